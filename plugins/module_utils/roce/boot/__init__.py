# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a reboot forgets is set again at boot, on the node alone, by the code that set it before.

sources   the plain Python that the program consists of, read from wherever it runs now
layout    where program, wanted state, unit and result are kept on the node
unit      the systemd unit, and the udev rule for a NIC that comes back
install   all of that as files that differ or do not, and the check that it holds
program   what runs at boot, and by an operator's hand (`rails --check`)
"""

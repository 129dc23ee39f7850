# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a RoCE NIC is set to: one setting at a time is read, compared, written and read again.

setting       what a rail, a setting and a reading are
engine        the settings that the module's options ask for: all of a rail or none, with restore
dcb, *_settings, firmware, sriov  the settings
boot_program  sets at boot what a reboot forgets; boot_unit installs it
"""

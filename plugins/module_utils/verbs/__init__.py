# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of each rail by RDMA verbs, and of the contract on the wire.

request    what one host is asked to do
endpoints  the RDMA device, port and GID of each rail on this host
exchanges  what one pair does: perftest's and UCX's programs, what they print, which are missing
counters   what the NIC counts: errors, congestion, packets per priority
serving    the far end: servers under systemd's guard, and packets that arrive
driving    the near end: clients one after another, and packets that leave
judging    figures and packets as checks
wire       packets, and the program of the far end: runs by itself, without the collection
"""

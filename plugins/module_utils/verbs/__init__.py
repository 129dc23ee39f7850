# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of each rail by RDMA verbs, and of the contract on the wire.

endpoints  the RDMA device, port and GID of each rail on this host, and its counters
exchanges  what one pair does: the request, perftest's and UCX's programs, what they print
ends       servers under systemd's time limit, and clients one after another
judging    figures and packets as checks
wire       packets, and the program of the serving end: runs by itself, without the collection
"""

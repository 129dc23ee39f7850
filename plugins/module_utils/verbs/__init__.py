# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove each rail by RDMA verbs, and the QoS contract on the wire.

endpoints   RDMA device, port, GID and counters of each rail on this host
exchanges   programs of a pair (perftest, UCX), and the parsers of their output
ends        servers in a systemd unit, and clients in sequence
incast      several senders to one rail, and its checks
evaluation  checks of figures and packets
wire        packet counters, and the program of the serving end, which runs without the collection
"""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packets of RoCE v2 as the kernel sees them. Needs nothing but Python: it also runs by itself.

packets  a frame's addresses, traffic class and RDMA operation
filters  which packets to count, as programs for the kernel
witness  the kernel's counts of one rail, and the first packets of each kind
serve    the program of a serving node: servers and witnesses until it is told to stop
"""

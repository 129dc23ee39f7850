# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: drivers and tools of the set, and what RDMA needs of the host.

hardware     where sysfs is read: this machine, or a recorded tree
packages     the set's packages, by the package engine; a change of source
drivers      the kernel and drivers that run beside those installed; who uses RDMA devices
iommu        arguments of the kernel command line, and the groups they lead to
acs          redirection between GPUs and NICs; a program of its own, which also runs at boot
acs_part     the registers now, that program and its unit on the node
devices      the RDMA device, link layer and firmware of every rail
tools        programs that have to answer, and whose mft is installed
options      from the options of the module to the parts; Secure Boot and kernel modules
"""

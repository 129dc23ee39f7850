# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: drivers and tools of the set, and what RDMA needs of the host.

hardware     where sysfs is read: this machine, or a recorded tree
packages     the set's packages, by the package engine; a change of source
drivers      the kernel and drivers that run beside those installed; who uses RDMA devices
acs          redirection between GPUs and NICs; a program of its own, which also runs at boot
pcie         IOMMU and ACS: kernel arguments and groups; that program, its unit and the registers
devices      the RDMA device, link layer and firmware of every rail; programs that have to answer
options      from the options of the module to the parts; Secure Boot and kernel modules
"""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NICs, GPUs and RDMA devices a machine has, read from sysfs.

    inventory   the machine as plain data
    tree        reading sysfs without failing on one odd file
    pci         PCI addresses, the way from the root complex, what a link carries
    ports       network interfaces, ports of RDMA devices, GIDs
    vpd         vital product data: what tells an NVSwitch bridge from a NIC
    survey      all of it put together: `survey(root)`

    modelled    the rails of the cluster model beside what the machine has at their places
    presence    is the NIC there, can it be a rail, does it do RDMA
    links       PCIe link, port speed
    planes      one device or several for each port
    neighbours  GPU, NUMA node, virtual functions
    compare     all of it put together: `compare_with_model(machine, rails)`

    facts       the machine as facts for people, and as lines of a cluster model

The survey is what this package gives by its name; who compares imports `hardware.compare` as well,
which the many that only ask for a device need not load. Nothing here runs a program or writes a
file. The root is `/sys` or a recorded tree.
"""

from __future__ import annotations

from .inventory import Function, Gid, Machine, PcieLink, RdmaDevice, VirtualFunction
from .survey import SurveyError, survey

__all__ = [
    "Function",
    "Gid",
    "Machine",
    "PcieLink",
    "RdmaDevice",
    "SurveyError",
    "VirtualFunction",
    "survey",
]

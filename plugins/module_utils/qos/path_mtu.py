# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the layers of an MTU count: the RoCE payload lies in an IP packet, that in a frame."""

from __future__ import annotations

from . import defaults

FRAME_OVERHEAD = 18
"""Ethernet header (14) and checksum (4) around an IP packet; routed links carry no VLAN tag."""

ROCE_OVERHEAD = 96
"""What the kernel reserves in an IP packet around RoCE payload, whatever the packet: IPv6 (40), UDP
(8), base transport (12), XRC (4) and atomic (28) headers, checksum (4). So a netdev has the path
MTU 4096 from 4192 bytes on."""

IP_MTU_LIMITS = (1280, 9978)
"""What an interface of a node can be set to at all: from IPv6's least to a ConnectX's most."""

PATH_MTUS = (256, 512, 1024, 2048, 4096)


def needed_ip_mtu(path_mtu: int) -> int:
    """The smallest IP MTU that carries RoCE packets of this path MTU."""
    return path_mtu + ROCE_OVERHEAD


def largest_path_mtu(ip_mtu: int) -> int:
    """The path MTU of links that carry IP packets of `ip_mtu`, where nobody asks for one."""
    fitting = [size for size in PATH_MTUS if needed_ip_mtu(size) <= ip_mtu]
    return min(fitting[-1] if fitting else PATH_MTUS[0], defaults.ROCE_PATH_MTU)

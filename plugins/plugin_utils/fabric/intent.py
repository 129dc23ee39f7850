# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wanted state of one switch, in no system's configuration language."""

from __future__ import annotations

from ...module_utils.core.dataclass import dataclass
from ..qos.compiled import FabricIntent
from .asics import Asic

SYSTEMS = ("sonic", "nvue", "eos")

HOST, STORAGE, UPLINK, DOWNLINK = "host", "storage", "uplink", "downlink"
"""Kinds of ports: to a node, to a storage host, from a leaf to a spine, from a spine to a leaf."""
KINDS = (HOST, STORAGE, UPLINK, DOWNLINK)
TO_NODES = (HOST, STORAGE)
"""Their cables are `roce_qos.cable_metres.to_nodes` long."""


@dataclass(frozen=True)
class PortIntent:
    name: str
    """As the switch's own system calls it: `Ethernet8`, `swp2`, `Ethernet2/1`."""
    kind: str
    speed_gbps: int
    cable_metres: int
    """The longest cable of this kind of link in the contract."""
    peer: str
    """Host name at the other end."""
    peer_interface: str
    """Its rail or port."""


@dataclass(frozen=True)
class SwitchIntent:
    name: str
    role: str
    """`leaf` or `spine`."""
    system: str
    """`sonic`, `nvue` or `eos`."""
    asic: Asic
    fabric: FabricIntent
    ports: tuple[PortIntent, ...]
    """In the order of the switch's ports. Ports outside the model are not in it."""

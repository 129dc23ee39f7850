# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device, port and GID of a rail on this host: told to every program, never left to it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Optional

from ..dataclass import dataclass
from ..hardware import Machine
from ..hardware.inventory import SOFTWARE

ROCE_V2 = "RoCE v2"


class NoEndpointError(Exception):
    """A rail that verbs cannot use; the text says why and what to do."""


@dataclass(frozen=True)
class Endpoint:
    """Where verbs find a rail."""

    rail: str
    device: str
    """`mlx5_3`"""
    port: int
    gid_index: int
    software: bool
    """Soft-RoCE: packets pass the kernel, and figures say nothing about a NIC."""
    numa: Optional[int] = None

    @property
    def ucx_device(self) -> str:
        return f"{self.device}:{self.port}"


def endpoint(machine: Machine, rail: str, address: str) -> Endpoint:
    """The endpoint of a rail; the GID is the one of RoCE v2 with the rail's own address."""
    found = machine.device_of(rail)
    if found is None or not found.name:
        raise NoEndpointError(
            f"{rail} has no RDMA device: see the layer rails for it, and load its driver (rdma "
            "link lists what is there)"
        )
    if found.port_state and "ACTIVE" not in found.port_state:
        raise NoEndpointError(
            f"{found.name} of {rail} is {found.port_state}: look at its cable and switch port"
        )
    wanted = ipaddress.ip_address(f"::ffff:{address}")
    for gid in found.gids:
        same = gid.netdev in ("", rail) and ipaddress.ip_address(gid.address) == wanted
        if same and gid.type == ROCE_V2:
            return Endpoint(
                rail, found.name, found.port, gid.index, found.kind == SOFTWARE, found.numa
            )
    shown = ", ".join(f"{gid.index}: {gid.address} {gid.type}" for gid in found.gids) or "none"
    raise NoEndpointError(
        f"{found.name} of {rail} has no RoCE v2 GID with {address} (it has {shown}): the rail's "
        f"address is missing or the device runs RoCE v1; --tags rails sets both"
    )


def cpus_near(numa: Optional[int], sys_root: Path = Path("/sys")) -> str:
    """The CPU list of a NUMA node (`0-55,112-167`), empty where it is not known."""
    if numa is None or numa < 0:
        return ""
    try:
        return (sys_root / f"devices/system/node/node{numa}/cpulist").read_text("ascii").strip()
    except OSError:
        return ""

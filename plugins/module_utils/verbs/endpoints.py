# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device, port and GID of a rail on this host, and its counters.

The kernel does not see a NIC's RDMA packets, but the NIC's per-priority counters prove their class:
a receiver that trusts DSCP counts a packet under the priority of its DSCP.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..hardware import Machine, tree
from ..hardware.inventory import SOFTWARE
from ..nic import health
from ..nic.port_settings import Ethtool

PAUSES = re.compile(r"^[rt]x_(prio[0-7]|global)_pause(_duration)?$")
CONGESTION = re.compile(
    r"np_ecn_marked_roce_packets|np_cnp_sent|rp_cnp_(handled|ignored)"
    r"|[rt]x_prio[0-7]_pause_duration|tx_pause_storm_warning_events"
)
"""Counters that prove whether congestion is notified or paused."""
PER_PRIORITY = re.compile(r"^([rt]x)_prio([0-7])_(packets|bytes)$")


class NoEndpointError(Exception):
    """A rail that verbs cannot use; the text gives the reason and the remedy."""


class SharedEndpointError(NoEndpointError):
    """A rail that shares the RDMA device of another rail, under whose name it is measured."""


@dataclass(frozen=True)
class Endpoint:
    rail: str
    device: str
    port: int
    gid_index: int
    software: bool
    """Soft-RoCE: packets pass through the kernel, and figures say nothing about a NIC."""
    numa: Optional[int] = None
    pci: str = ""


def endpoint(machine: Machine, rail: str, address: str) -> Endpoint:
    """The endpoint of a rail, with the GID of its address. Raises NoEndpointError."""
    found = machine.device_of(rail)
    first = machine.first_of(found) if found is not None else None
    if first is not None:
        raise SharedEndpointError(
            f"{rail} shares {first.name} of {first.netdev or first.pci}, which is "
            "measured: planes balanced in hardware (rail_rdma)"
        )
    if found is None or not found.name:
        raise NoEndpointError(f"{rail} has no RDMA device: see --tags rails and `rdma link`")
    if found.port_state and "ACTIVE" not in found.port_state:
        raise NoEndpointError(
            f"{found.name} of {rail} is {found.port_state}: check its cable and switch port"
        )
    gid = found.roce_gid(address)
    if gid is None:
        shown = ", ".join(f"{gid.index}: {gid.address} {gid.type}" for gid in found.gids) or "none"
        raise NoEndpointError(
            f"{found.name} of {rail} has no RoCE v2 GID with {address} (it has {shown}); run "
            "--tags rails"
        )
    software, pci = found.kind == SOFTWARE, found.pci or ""
    return Endpoint(rail, found.name, found.port, gid.index, software, found.numa, pci)


def cpus_near(numa: Optional[int], sys: Path) -> str:
    """CPU list of a NUMA node (`0-55,112-167`); empty if unknown."""
    return tree.text(sys / f"devices/system/node/node{numa}/cpulist")


def counters(here: Endpoint, sys: Path) -> dict[str, int]:
    """Counters of a rail by name. A missing counter is omitted, not reported as 0."""
    found = health.of_device(here.device, here.port, sys, health.EVENTS)
    with contextlib.suppress(OSError):
        # The interface of a software device has no per-priority counters.
        of_port = {} if here.software else Ethtool().statistics(here.rail)
        wanted = {n: v for n, v in of_port.items() if PER_PRIORITY.match(n) or PAUSES.match(n)}
        found.update(wanted, **health.of_port(of_port))
    return found


def grown(
    before: Mapping[str, int], after: Mapping[str, int], *, congestion: bool = False
) -> dict[str, int]:
    """Growth of counters. Omits counters that were read only once or did not grow, except
    (`congestion`) those that prove that congestion is notified."""
    changes = {name: after[name] - before[name] for name in after if name in before}
    return {
        name: change
        for name, change in changes.items()
        if change or (congestion and CONGESTION.fullmatch(name))
    }


def events(growth: Mapping[str, int]) -> dict[str, int]:
    """Errors, losses, congestion and pauses among the counters that grew."""
    names = (*health.EVENTS, *health.ERRORS)
    return {
        name: count
        for name, count in growth.items()
        if count and (name in names or PAUSES.match(name) or health.counted(name))
    }


def packets(growth: Mapping[str, int]) -> int:
    """Packets sent and received, under all priorities together."""
    matches = ((PER_PRIORITY.match(name), count) for name, count in growth.items())
    return sum(count for match, count in matches if match and match[3] == "packets")


def bytes_by_priority(growth: Mapping[str, int], way: str) -> dict[int, int]:
    """Bytes sent (`tx`) or received (`rx`) under each priority; empty if they are not counted."""
    matches = ((PER_PRIORITY.match(name), count) for name, count in growth.items())
    return {
        int(match[2]): count
        for match, count in matches
        if match and match[1] == way and match[3] == "bytes"
    }

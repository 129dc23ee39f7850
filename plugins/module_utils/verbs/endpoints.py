# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device, port and GID of a rail on this host, named to every program, and its counters.

The kernel does not see the packets of a real NIC. Its per-priority counters prove the class: a
receiver that trusts DSCP counts a packet under the priority that its DSCP stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..hardware import Machine
from ..hardware.inventory import SOFTWARE
from ..nic.mlx5 import health, losses

EVENTS = (
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored"),
    *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
    *("out_of_buffer", "duplicate_request", "rnr_nak_retry_err", "roce_adp_retrans"),
    *("out_of_seq_request", "rcvd_seq_err", "completer_retry_err", "retry_exceeded_err"),
    *("send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err", "link_downed", "send_err"),
    "rx_icrc_encapsulated",
)
"""Of hw_counters, by the names of mlx5 and of Soft-RoCE: errors and congestion."""
RETRIES = (
    *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
    "rx_icrc_encapsulated",
)
"""Of them, what a packet that was lost or spoilt counts at either end."""
PAUSES = re.compile(r"^[rt]x_(prio[0-7]|global)_pause(_duration)?$")
PER_PRIORITY = re.compile(r"^([rt]x)_prio([0-7])_(packets|bytes)$")


class NoEndpointError(Exception):
    """A rail that verbs cannot use; the text has the reason and the remedy."""


class SharedEndpointError(NoEndpointError):
    """A rail whose RDMA device is another one's, by whose name it is measured."""


@dataclass(frozen=True)
class Endpoint:
    """Where verbs find a rail."""

    rail: str
    device: str
    """`mlx5_3`"""
    port: int
    gid_index: int
    software: bool
    """Soft-RoCE: packets pass the kernel, and figures show nothing about a NIC."""
    numa: Optional[int] = None
    pci: str = ""


def endpoint(machine: Machine, rail: str, address: str) -> Endpoint:
    """The endpoint of a rail; the GID is the one of RoCE v2 with the rail's own address."""
    found = machine.device_of(rail)
    first = machine.first_of(found) if found is not None else None
    if first is not None:
        raise SharedEndpointError(
            f"{rail} shares {first.name} of {first.netdev or first.pci}, which is measured: planes "
            "balanced by hardware (rail_rdma)"
        )
    if found is None or not found.name:
        raise NoEndpointError(f"{rail} has no RDMA device: see --tags rails and `rdma link`")
    if found.port_state and "ACTIVE" not in found.port_state:
        raise NoEndpointError(
            f"{found.name} of {rail} is {found.port_state}: look at its cable and switch port"
        )
    gid = found.roce_gid(address)
    if gid is None:
        shown = ", ".join(f"{gid.index}: {gid.address} {gid.type}" for gid in found.gids) or "none"
        raise NoEndpointError(
            f"{found.name} of {rail} has no RoCE v2 GID with {address} (it has {shown}); run "
            "--tags rails"
        )
    software = found.kind == SOFTWARE
    where = found.numa, found.pci or ""
    return Endpoint(rail, found.name, found.port, gid.index, software, *where)


def cpus_near(numa: Optional[int], sys_root: Path = Path("/sys")) -> str:
    """The CPU list of a NUMA node (`0-55,112-167`), empty where it is not known."""
    if numa is None:
        return ""
    try:
        return (sys_root / f"devices/system/node/node{numa}/cpulist").read_text("ascii").strip()
    except OSError:
        return ""


def counters(here: Endpoint, run: Runner, sys: Path) -> dict[str, int]:
    """Counters of one rail by name. One that is missing is left out, never taken as 0."""
    directory = sys / f"class/infiniband/{here.device}/ports/{here.port}/hw_counters"
    found = {}
    for name in EVENTS:
        with suppress(OSError, ValueError):
            found[name] = int((directory / name).read_text(encoding="ascii"))
    if here.software:
        return found  # nothing behind the interface counts priorities
    try:
        return {**found, **statistics(run(["ethtool", "-S", here.rail], check=False).stdout)}
    except CommandError:
        return found


def statistics(text: str) -> dict[str, int]:
    """Per-priority counters from `ethtool -S`, and those of the physical port and its losses."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition(":")
        if separator and value.strip().isdigit():
            # Older drivers have a space after tx_pause_storm_warning_events.
            found[name.strip()] = int(value)
    wanted = {n: v for n, v in found.items() if PER_PRIORITY.match(n) or PAUSES.match(n)}
    return {**wanted, **health.of_port(found)}


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much counters grew; those that did not are left out, and those of one side alone."""
    changes = {name: after[name] - before[name] for name in after if name in before}
    return {name: change for name, change in changes.items() if change}


def events(growth: Mapping[str, int]) -> dict[str, int]:
    """Errors, losses, congestion and pauses among the counters that grew."""
    names = (*EVENTS, *health.ERRORS)
    return {
        name: count
        for name, count in growth.items()
        if name in names or PAUSES.match(name) or losses.counted(name)
    }


def packets(growth: Mapping[str, int]) -> int:
    """Sent and received under any priority."""
    matches = ((PER_PRIORITY.match(name), count) for name, count in growth.items())
    return sum(count for match, count in matches if match and match[3] == "packets")


def bytes_by_priority(growth: Mapping[str, int], way: str) -> dict[int, int]:
    """Bytes sent (`tx`) or received (`rx`) under each priority; empty where none are counted."""
    matches = ((PER_PRIORITY.match(name), count) for name, count in growth.items())
    return {
        int(match[2]): count
        for match, count in matches
        if match and match[1] == way and match[3] == "bytes"
    }

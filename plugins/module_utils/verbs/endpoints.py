# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device, port and GID of a rail on this host: told to every program, never left to it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..hardware import Machine
from ..hardware.inventory import SOFTWARE

# What a NIC counts: congestion, errors, and packets of each priority.
# The kernel does not see the packets of a real NIC. Its per-priority counters prove the class: a
# receiver that trusts DSCP counts a packet under the priority that its DSCP stands for.


EVENTS = (
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored"),
    *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
    *("out_of_buffer", "duplicate_request", "rnr_nak_retry_err", "roce_adp_retrans"),
    *("out_of_seq_request", "rcvd_seq_err", "completer_retry_err", "retry_exceeded_err"),
    *("send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err", "link_downed", "send_err"),
)
"""Of hw_counters, by the names of mlx5 and of Soft-RoCE: those that tell of trouble."""
PAUSES = re.compile(r"^[rt]x_prio[0-7]_pause(_duration)?$")
PER_PRIORITY = re.compile(r"^([rt]x)_prio([0-7])_(packets|bytes)$")


def read(device: str, port: int, interface: str, run: Runner, sys: Path) -> dict[str, int]:
    """Counters of one rail by name. What is not there is left out, never taken as 0."""
    found = _files(sys / f"class/infiniband/{device}/ports/{port}/hw_counters", EVENTS)
    if not (sys / f"class/infiniband/{device}/device").exists():
        return found  # Soft-RoCE: nothing behind the interface counts priorities
    try:
        told = run(["ethtool", "-S", interface], check=False).stdout
    except CommandError:
        return found
    return {**found, **statistics(told)}


def statistics(text: str) -> dict[str, int]:
    """Per-priority counters from `ethtool -S`."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition(":")
        wanted = PER_PRIORITY.match(name) or PAUSES.match(name)
        if separator and wanted and value.strip().isdigit():
            found[name] = int(value)
    return found


def _files(directory: Path, names: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for name in names:
        try:
            found[name] = int((directory / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return found


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much counters grew; those that did not are left out, and those of one side alone."""
    changes = {name: after[name] - before[name] for name in after if name in before}
    return {name: change for name, change in changes.items() if change}


def events(growth: Mapping[str, int]) -> dict[str, int]:
    """What of it is worth telling: trouble and pauses, where there were any."""
    return {name: count for name, count in growth.items() if name in EVENTS or PAUSES.match(name)}


def bytes_by_priority(growth: Mapping[str, int], way: str) -> dict[int, int]:
    """Bytes sent (`tx`) or received (`rx`) under each priority; empty where none are counted."""
    found = {}
    for name, count in growth.items():
        match = PER_PRIORITY.match(name)
        if match and match[1] == way and match[3] == "bytes":
            found[int(match[2])] = count
    return found


ROCE_V2 = "RoCE v2"


class NoEndpointError(Exception):
    """A rail that verbs cannot use; the text has the reason and the remedy."""


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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device of each rail: find it, and check the device, port and GID that UCX will use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ..core.checks import OK, Check, compare, differs, not_applicable
from ..hardware import Gid, Machine, RdmaDevice
from ..hardware.inventory import ROCE_V2
from ..qos import HostSettings, RdmaPort, mpi_environment
from .environment import CUDA_TRANSPORTS, MpiRail, rails_by_rank

IPV4 = "::ffff:"
PER_RANK = "MPI_ROCE_GID_INDEXES_BY_RANK"


def gid_text(gid: Optional[Gid]) -> str:
    """`RoCE v2 10.100.3.11`: IPv4 addresses in dotted form."""
    return f"{gid.type} {gid.address.removeprefix(IPV4)}" if gid else "no entry"


def wanted_gid(rail: MpiRail) -> str:
    return f"{ROCE_V2} {rail.address}"


def automatic_gid(device: RdmaDevice) -> Optional[Gid]:
    """The GID that UCX selects without an index: the first of RoCE v2 with IPv4."""
    ipv4 = (gid for gid in device.gids if gid.type == ROCE_V2 and gid.address.startswith(IPV4))
    return next(ipv4, None)


def with_ports(
    rails: Sequence[MpiRail], machine: Machine, *, check_mode: bool = False
) -> tuple[list[MpiRail], list[Check]]:
    """The rails with their RDMA ports, and a failed check for each rail without a usable port
    (pending in check mode, because earlier layers may create it)."""
    found = []
    lacking = []
    status = differs(check_mode)
    for rail in rails:
        name, device = rail.interface, machine.device_of(rail.interface)
        if device is not None and _shares(device, rail, rails, machine):
            continue  # planes balanced in hardware: the device of the first plane carries both
        if device is None or not device.name:
            reason = (
                f"{name} has no RDMA device: check its driver (rdma link) and the interface's name "
                "(--tags rails). Without RDMA, set mpi_stack_transport to tcp"
            )
            lacking.append(Check("rdma_device", "RDMA device", None, status, name, reason))
            continue
        gid = device.roce_gid(rail.address)
        if gid is None:
            listed = ", ".join(f"{entry.index}: {gid_text(entry)}" for entry in device.gids)
            reason = (
                f"{device.name} has {listed or 'no GID'}; check that the address is on the "
                "interface and its link is up (--tags rails)"
            )
            lacking.append(Check("rdma_gid", wanted_gid(rail), None, status, device.name, reason))
            continue
        found.append(replace(rail, rdma=RdmaPort(device.name, device.port, gid.index, name)))
    return found, lacking


def _shares(device: RdmaDevice, rail: MpiRail, rails: Sequence[MpiRail], machine: Machine) -> bool:
    """Whether a rail uses the RDMA device of another plane of the same rail."""
    first = machine.first_of(device)
    return first is not None and any(
        first.netdev == other.interface and other.number == rail.number is not None
        for other in rails
    )


def readback(
    rails: Sequence[MpiRail],
    machine: Machine,
    slots: int,
    environment: Mapping[str, str],
    *,
    check_mode: bool = False,
) -> list[Check]:
    """Check device, port and GID of each rail, by the indexes in the environment file."""
    checks = []
    for rail in rails:
        device = machine.device_of(rail.interface)
        if device is None or rail.rdma is None:
            continue  # reported by with_ports
        subject, found = rail.ucx_device, device.port_state or None
        checks.append(Check("rdma_device", "RDMA device", device.name, OK, rail.interface))
        reason = "check the cable, and that the interface is up (--tags rails)"
        status = OK if found == "ACTIVE" else differs(check_mode)
        reason = "" if status == OK else reason
        checks.append(Check("rdma_port", "ACTIVE", found, status, subject, reason))
        # The index that rail-bind sets for ranks of this rail, and the one for other programs.
        table = {gid.index: gid for gid in device.gids}
        index = environment.get("UCX_IB_GID_INDEX", "auto")
        used = {"UCX's own choice": automatic_gid(device)}
        if index.isdigit():
            used = {f"index {index}": table.get(int(index))}
        indexes = environment.get(PER_RANK, "").split()
        for of_rank, word in zip(rails_by_rank(rails, slots), indexes):
            if rail in of_rank:
                used[f"index {word} of rail-bind"] = table.get(int(word))
        wanted = wanted_gid(rail)
        wrong = {how: gid_text(gid) for how, gid in used.items() if gid_text(gid) != wanted}
        found, status, reason = wanted, OK, ", ".join(used)
        if wrong:
            found, status = "; ".join(wrong.values()), differs(check_mode)
            reason = (
                f"by {', '.join(wrong)}: another address of {rail.interface}, or "
                "UCX_IB_GID_INDEX in mpi_stack_environment, conflicts"
            )
        checks.append(Check("rdma_gid", wanted, found, status, subject, reason))
    return checks


def cuda_check(
    gpus: int, offered: Optional[Sequence[str]], *, check_mode: bool = False
) -> list[Check]:
    """Check the transports for GPU memory. `offered` is None if UCX could not be read."""
    if gpus < 1:
        return []
    name, wanted = "ucx_cuda", ", ".join(CUDA_TRANSPORTS)
    if offered is None:
        return [Check(name, wanted, None, differs(check_mode), "", "UCX could not be read")]
    if not offered:
        reason = (
            "this UCX is built without CUDA, or finds no driver: MPI transfers host memory "
            "only, and programs must copy GPU buffers"
        )
        return [not_applicable(name, wanted, reason)]
    missing = [transport for transport in CUDA_TRANSPORTS if transport not in offered]
    reason = f"this UCX does not offer {', '.join(missing)}" if missing else ""
    return [Check(name, wanted, ", ".join(offered), OK, "", reason)]


def contract_checks(
    qos: HostSettings,
    rails: Sequence[MpiRail],
    environment: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    check_mode: bool = False,
) -> list[Check]:
    """Check each variable of the contract: UCX's as UCX reads it, NCCL's in the file."""
    ports = [rail.rdma for rail in rails if rail.rdma is not None]
    reason, mode = "it differs from roce_qos: change it there", check_mode
    checks = []
    for name, value in mpi_environment(qos, ports).items():
        used = effective(settings, name) if name.startswith("UCX_") else environment.get(name)
        check = compare("contract", value, used, subject=name, check_mode=mode, reason=reason)
        checks.append(check)
    return checks


def effective(settings: Mapping[str, str], name: str) -> Any:
    """Value of a UCX_IB_ setting in `ucx_info -c`, which prints it for each transport; all if they
    differ."""
    if name in settings:
        return settings[name]
    tail = name[len("UCX_IB") :]
    found = {
        key: value
        for key, value in settings.items()
        if key.startswith(("UCX_RC_", "UCX_UD_")) and key.endswith(tail)
    }
    values = set(found.values())
    if len(values) > 1:
        return ", ".join(f"{key}={value}" for key, value in sorted(found.items()))
    return values.pop() if values else None

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine against the rails of the cluster model: every difference with its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..core.checks import FAILED, OK, PENDING, Check
from .inventory import RAIL, Machine
from .inventory import RdmaDevice as Port
from .modelled import Modelled, Rail, is_nic, named, nic, planes, rdma
from .pci import best, capacity_gbps, describe

PCIE, SPEED, GPU, NUMA, VFS = "rail_pcie", "rail_speed", "rail_gpu", "rail_numa", "rail_vfs"

NAMED_VFS = 4
"""As many virtual functions are named in a message; a NIC can have hundreds."""


def compare_with_model(
    machine: Machine,
    rails: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]] = (),
    *,
    check_mode: bool = False,
) -> list[Check]:
    """One check per promise of each rail; `rails` and `gpus` as `cluster_rails`, `cluster_gpus`.

    Hardware cannot be set, so a difference is `failed` in check mode too. Only what the role brings
    about is `pending` there: virtual functions are removed, interfaces are set up. A rail without a
    PCI address is looked up by its interface. What only a physical RoCE NIC has is not asked of
    anything else.
    """
    model = Modelled(machine, rails, gpus)
    found: list[Optional[Check]] = [planes(model)]
    for rail in model.rails:
        found.append(nic(model, rail))
        if found[-1] is not None and found[-1].status == FAILED:
            continue
        found.append(rdma(model, rail))
        port = rail.port
        if port is not None and is_nic(port):
            found += [
                _pcie(model, rail, port),
                _speed(model, rail, port, check_mode=check_mode),
                _gpu(model, rail, port),
                _numa(rail, port),
                _virtual_functions(rail, port, check_mode=check_mode),
            ]
    return [check for check in found if check is not None]


def _pcie(model: Modelled, rail: Rail, port: Port) -> Check:
    """The PCIe link: as good as both its ends can, and enough for all rails of the card."""
    functions = model.machine.functions
    function = functions.get(port.pci or "")
    bridges = function.bridges if function else ()
    above = functions.get(bridges[-1]) if bridges else None
    link, could = port.link, best(port.link, above.link if above else None)
    found = describe(link.speed_gts, link.width)
    wanted = describe(could.speed_gts or link.speed_gts, could.width or link.width)
    if link.speed_gts is None or link.width is None:
        reason = f"the kernel does not know the link; see lspci -vv -s {port.pci}"
        return Check(PCIE, wanted, found, FAILED, rail.name, reason)
    needed = sum(each.speed or 0 for each in model.on_card(rail.pci))
    carries = capacity_gbps(link.speed_gts, link.width)
    rates = f"it carries {carries:.0f} Gb/s, and the rails on it need {needed:g} Gb/s"
    if link.width < (could.width or 0) or link.speed_gts < (could.speed_gts or 0):
        reason = (
            f"{rail.place}: both ends of its link support more; {rates}. Look for PCIe errors "
            "(dmesg, AER) and a limit of the slot in the BIOS. Power the node off, reseat the NIC "
            "or its cable, look for dirt and bent pins; then replace the NIC, then the riser."
        )
    elif carries < needed:
        wanted = f"{needed:g} Gb/s"
        reason = (
            f"{rail.place} is at the best that NIC and slot support: {rates}. Move the NIC to a "
            "slot that carries it, or correct rails.speed_gbps in the model."
        )
    else:
        return Check(PCIE, wanted, found, OK, rail.name)
    return Check(PCIE, wanted, found, FAILED, rail.name, reason)


def _speed(model: Modelled, rail: Rail, port: Port, *, check_mode: bool) -> Optional[Check]:
    """The rate of the port, which NIC, cable and leaf agree on once its interface is up."""
    wanted, found = rail.speed, port.speed_gbps
    if wanted is None:
        return None
    if found == wanted:
        return Check(SPEED, wanted, found, OK, rail.name)
    leaf = " ".join(str(rail.entry.get(key) or "") for key in ("leaf", "leaf_port")).strip()
    look = (
        f"Look at the cable, the transceivers, the leaf's port{f' ({leaf})' if leaf else ''} and "
        f"ethtool {port.netdev or rail.name}"
    )
    status = FAILED
    if found is None and not port.name:
        reason = "unknown without a driver: see rail_rdma"
    elif found is None and port.netdev and not port.up:
        status = PENDING if check_mode else FAILED
        reason = f"the interface {port.netdev} is down, and its link with it"
    elif found is None:
        reason = f"the link of {rail.place} is down. {look}."
    elif model.split(rail):
        reason = "its card has more functions than the model has planes: see rail_planes"
    else:
        reason = f"{rail.place}: {look}; or correct rails.speed_gbps in the model."
    return Check(SPEED, wanted, found, status, rail.name, reason)


def _gpu(model: Modelled, rail: Rail, port: Port) -> Optional[Check]:
    """The GPU behind the NIC's switch is the one that the model pairs with the rail."""
    index = rail.entry.get("gpu")
    if index is None:
        return None
    here = [function.pci for function in model.machine.gpus]
    wanted = model.gpus.get(int(index))
    if wanted is None and int(index) < len(here):
        wanted = here[int(index)]  # The driver counts them by address.
    if wanted is None:
        reason = f"the model pairs {rail.name} with GPU {index}; this machine has {len(here)} GPUs."
        return Check(GPU, f"GPU {index}", "none", FAILED, rail.name, reason)
    found = ", ".join(port.gpus) or "none"
    if wanted in port.gpus:
        return Check(GPU, wanted, found, OK, rail.name)
    if wanted not in model.machine.functions:
        reason = (
            f"GPU {index} is not at {wanted}: it fell off the bus (dmesg: Xid 79), or gpus.pci is "
            f"wrong in the model. GPUs found: {', '.join(here) or 'none'}."
        )
    else:
        beside = [each for each in model.machine.of_kind(RAIL) if wanted in each.gpus]
        reason = (
            f"behind the switch of {rail.place} is {found}; GPU {index} at {wanted} of the model "
            f"is beside {named(beside) or 'no NIC'}. Correct the order of rails.pci or of gpus.pci "
            "in the model."
        )
    return Check(GPU, wanted, found, FAILED, rail.name, reason)


def _numa(rail: Rail, port: Port) -> Optional[Check]:
    """The NUMA node of the NIC, to which ranks are bound."""
    wanted = rail.entry.get("numa")
    if wanted is None or port.numa is None:
        return None
    if wanted == port.numa:
        return Check(NUMA, wanted, port.numa, OK, rail.name)
    reason = (
        f"ranks of {rail.place} would be bound to the wrong socket. Correct gpus.numa in the "
        "model, or the order of rails.pci."
    )
    return Check(NUMA, wanted, port.numa, FAILED, rail.name, reason)


def _virtual_functions(rail: Rail, port: Port, *, check_mode: bool) -> Check:
    """Rails are physical functions. The role removes virtual ones, unless they are in use."""
    found = max(port.sriov_numvfs, len(port.vfs))
    if not found:
        return Check(VFS, 0, 0, OK, rail.name)
    shown = [f"{vf.pci} ({vf.in_use or 'not in use'})" for vf in port.vfs[:NAMED_VFS]]
    if found > NAMED_VFS:
        shown.append(f"{found - NAMED_VFS} more")
    reason = (
        f"{rail.place} has virtual functions: {', '.join(shown)}. End what uses them, then "
        f"echo 0 > /sys/bus/pci/devices/{port.pci}/sriov_numvfs"
    )
    return Check(VFS, 0, found, PENDING if check_mode else FAILED, rail.name, reason)

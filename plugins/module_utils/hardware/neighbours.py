# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Does the rail's NIC sit beside its GPU, on its NUMA node, and without virtual functions?"""

from __future__ import annotations

from typing import Optional

from ..checks import FAILED, OK, PENDING, Check
from .inventory import RAIL
from .inventory import RdmaDevice as Port
from .modelled import Modelled, Rail, named

GPU = "rail_gpu"
NUMA = "rail_numa"
VFS = "rail_vfs"

NAMED_VFS = 4
"""As many virtual functions are named in a message; a NIC can have hundreds."""


def gpu(model: Modelled, rail: Rail, port: Port) -> Optional[Check]:
    """The GPU behind the NIC's switch is the one that the model pairs with the rail."""
    index = rail.entry.get("gpu")
    if index is None:
        return None
    here = model.machine.gpus
    wanted = model.gpus.get(int(index))
    if wanted is None and int(index) < len(here):
        wanted = here[int(index)].pci  # The driver counts them by address.
    if wanted is None:
        reason = f"the model pairs {rail.name} with GPU {index}; this machine has {len(here)} GPUs."
        return Check(GPU, f"GPU {index}", "none", FAILED, rail.name, reason)
    found = ", ".join(port.gpus) or "none"
    if wanted in port.gpus:
        return Check(GPU, wanted, found, OK, rail.name)
    if wanted not in model.machine.functions:
        addresses = ", ".join(function.pci for function in here) or "none"
        reason = (
            f"GPU {index} is not at {wanted}: it fell off the bus (dmesg: Xid 79), or gpus.pci is "
            f"wrong in the model. GPUs found: {addresses}."
        )
    else:
        beside = [each for each in model.machine.of_kind(RAIL) if wanted in each.gpus]
        reason = (
            f"behind the switch of {rail.place} is {found}, and the model pairs the rail with GPU "
            f"{index} at {wanted}, which sits beside {named(beside) or 'no NIC'}. Correct the "
            "order of rails.pci or of gpus.pci in the model."
        )
    return Check(GPU, wanted, found, FAILED, rail.name, reason)


def numa(model: Modelled, rail: Rail, port: Port) -> Optional[Check]:
    """The NUMA node of the NIC, to which ranks are bound."""
    wanted = rail.entry.get("numa")
    if wanted is None or port.numa is None:
        return None
    if wanted == port.numa:
        return Check(NUMA, wanted, port.numa, OK, rail.name)
    reason = (
        f"{rail.place} is on NUMA node {port.numa}; ranks would be bound to the wrong socket. "
        "Correct gpus.numa in the model, or the order of rails.pci."
    )
    return Check(NUMA, wanted, port.numa, FAILED, rail.name, reason)


def virtual_functions(rail: Rail, port: Port, *, check_mode: bool) -> Check:
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

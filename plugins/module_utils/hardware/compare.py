# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the machine with the rails of the cluster model; each difference has a remedy.

The checks cover the NIC, whether it can be a rail, its RDMA device, PCIe link, rate, GPU and NUMA
node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.text import some
from .inventory import (
    BLUEFIELD,
    DATA_DIRECT,
    ETHERNET,
    INFINIBAND,
    MELLANOX,
    NVSWITCH_BRIDGE,
    RAIL,
    SOFTWARE,
    VIRTUAL,
    Machine,
    RdmaDevice,
    best,
    capacity_gbps,
    card_of,
    describe,
)

NIC, RDMA = "rail_nic", "rail_rdma"
PCIE, SPEED, GPU, NUMA = "rail_pcie", "rail_speed", "rail_gpu", "rail_numa"

NOT_A_RAIL: Mapping[str, str] = {
    NVSWITCH_BRIDGE: "a management bridge to the NVSwitches (SW_MNG), for the fabric manager",
    DATA_DIRECT: "a Data Direct function, which has no port",
    BLUEFIELD: "a BlueField DPU, for storage and management",
    VIRTUAL: "a virtual function, while rails are physical functions",
}
CORRECT = "correct rails.pci in the model (nodes.overrides if only this machine differs)"


@dataclass(frozen=True)
class ModelRail:
    """An entry of `cluster_rails`, and the port of the machine at its PCI address."""

    name: str
    entry: Mapping[str, Any]
    port: Optional[RdmaDevice]

    @property
    def pci(self) -> str:
        """PCI address in the model or, if the model has none, that of its interface."""
        return self.entry.get("pci") or (self.port.pci if self.port else None) or ""

    @property
    def speed(self) -> Optional[float]:
        speed: Optional[float] = self.entry.get("speed_gbps")
        return speed


class Modelled:
    def __init__(
        self,
        machine: Machine,
        rails: Sequence[Mapping[str, Any]],
        gpus: Sequence[Mapping[str, Any]],
    ) -> None:
        self.machine = machine
        self.rails = [
            ModelRail(str(entry["interface"]), entry, self._port(entry)) for entry in rails
        ]
        self.gpus = {int(gpu["index"]): str(gpu["pci"]) for gpu in gpus if gpu.get("pci")}

    def _port(self, entry: Mapping[str, Any]) -> Optional[RdmaDevice]:
        if entry.get("pci"):
            return self.machine.at(str(entry["pci"]))
        found = (port for port in self.machine.ports if port.pci)
        return next((port for port in found if port.netdev == entry["interface"]), None)

    def first_of(self, rail: ModelRail) -> Optional[ModelRail]:
        """Return the rail whose RDMA device this one shares: a plane of the same rail and card."""
        port = self.machine.first_of(rail.port) if rail.port else None
        for each in self.rails if port else ():
            if each.port == port and each.entry.get("rail") == rail.entry.get("rail") is not None:
                return each
        return None

    def spare(self) -> str:
        """Return the NICs next to a GPU that belong to no rail of the model, as text."""
        taken = {rail.pci for rail in self.rails}
        found = [port for port in self.machine.of_kind(RAIL) if port.pci not in taken]
        names = some([f"{port.pci} ({port.netdev or port.name or 'no driver'})" for port in found])
        return f"NICs next to a GPU without a rail in the model: {names}"


def is_nic(port: Optional[RdmaDevice]) -> bool:
    """Return whether this is a physical RoCE NIC, with or without its driver."""
    return port is not None and (port.vendor == MELLANOX or bool(port.name))


def nic(model: Modelled, rail: ModelRail) -> Check:
    """Check the function at the rail's PCI address, or that of its interface."""
    port, machine = rail.port, model.machine
    if port is not None and port.kind not in NOT_A_RAIL:
        return Check(NIC, rail.pci, port.pci, OK, rail.name)
    function = machine.functions.get(rail.pci)
    found = "no such NIC"
    if port is not None:
        found = f"{port.kind} {port.vendor}:{port.device_id}"
        reason = f"{function} is {NOT_A_RAIL[port.kind]}: {CORRECT}. {model.spare()}"
    elif not rail.pci:
        reason = "the model has no PCI address, and no NIC has an interface of that name"
        return not_applicable(NIC, f"an interface {rail.name}", reason, subject=rail.name)
    elif function is not None:
        found = f"{function.vendor}:{function.device_id}"
        reason = f"{function} is not a network function: {CORRECT}. {model.spare()}"
    else:
        slot = machine.slots.get(card_of(rail.pci))
        reason = (
            f"no PCI function at {rail.pci}{f' (slot {slot})' if slot else ''}. {model.spare()}. "
            f"Power the node off and on; if lspci -s {rail.pci} still shows nothing, reseat or "
            f"replace the NIC. If the machine is right, {CORRECT}, or rails.planes"
        )
    return Check(NIC, rail.pci, found, FAILED, rail.name, reason)


def rdma(model: Modelled, rail: ModelRail) -> Check:
    """Check that an existing NIC has an RDMA device whose port is Ethernet."""
    wanted, port = f"an {ETHERNET} RDMA device", rail.port
    if port is None or not is_nic(port):
        device = model.machine.device_of((port.netdev if port else "") or rail.name)
        if device is not None and device.kind == SOFTWARE:
            return Check(RDMA, wanted, device.name, OK, rail.name, "made of software")
        kind = f"driver {port.driver or 'none'}" if port else "a virtual interface"
        return not_applicable(RDMA, wanted, f"no RoCE NIC ({kind})", subject=rail.name)
    if port.name and port.link_layer == INFINIBAND:
        reason = f"mlxconfig -d {port.pci} set LINK_TYPE_P1=2, then reset the NIC or reboot"
        return Check(RDMA, wanted, f"{port.name}, {INFINIBAND}", FAILED, rail.name, reason)
    if port.name:
        return Check(RDMA, wanted, port.name, OK, rail.name)
    first = model.first_of(rail)
    if first is not None and first.port is not None:
        found = f"{first.port.name} of {first.name}"
        return Check(RDMA, wanted, found, OK, rail.name, "shared: planes balanced by hardware")
    missing = [each for each in ("mlx5_core", "mlx5_ib") if each not in model.machine.modules]
    reason = f"mlx5_core is not bound to {port.pci}: check dmesg, or reboot"
    if missing:
        reason = f"modprobe {missing[0]}; if it is not found, the drivers do not match this kernel"
    elif port.driver:
        reason = (
            f"{port.driver} is bound to {port.pci}. RoCE may be off (devlink dev param show "
            f"pci/{port.pci} name enable_roce), or mlx5_ib failed (dmesg)"
        )
        if model.machine.first_of(port) is not None:
            reason += "; or its card balances planes by hardware, and the model has no rails.planes"
    return Check(RDMA, wanted, "none", FAILED, rail.name, reason)


def compare_with_model(
    machine: Machine,
    rails: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]] = (),
    *,
    check_mode: bool = False,
) -> list[Check]:
    """Return one check per promise of each rail of `cluster_rails`.

    A run cannot change hardware, so a difference is `failed` in check mode too, except for an
    interface that the role would set up, which is `pending`. A rail without a PCI address is looked
    up by its interface. The promises of a physical RoCE NIC are not checked on other interfaces.
    """
    model = Modelled(machine, rails, gpus)
    found: list[Check] = []
    for rail in model.rails:
        found.append(nic(model, rail))
        if found[-1].status == FAILED:
            continue
        found.append(rdma(model, rail))
        port = rail.port
        if port is not None and is_nic(port):
            found.append(_pcie(model, rail, port))
            if rail.speed is not None:
                found.append(_speed(rail, rail.speed, port, check_mode))
            if rail.entry.get("gpu") is not None:
                found.append(_gpu(model, rail, int(rail.entry["gpu"]), port))
            numa = rail.entry.get("numa")
            if numa is not None and port.numa is not None:
                reason = "correct gpus.numa in the model, or the order of rails.pci"
                found.append(compare(NUMA, numa, port.numa, subject=rail.name, reason=reason))
    return found


def _pcie(model: Modelled, rail: ModelRail, port: RdmaDevice) -> Check:
    """Check that the PCIe link is as fast as both ends support, and fast enough for its rails."""
    functions = model.machine.functions
    function = functions.get(port.pci or "")
    bridges = function.bridges if function else ()
    above = functions.get(bridges[-1]) if bridges else None
    link, could = port.link, best(port.link, above.link if above else None)
    found = describe(link.speed_gts, link.width)
    wanted = describe(could.speed_gts or link.speed_gts, could.width or link.width)
    if link.speed_gts is None or link.width is None:
        reason = f"the kernel does not report the link; check lspci -vv -s {port.pci}"
        return Check(PCIE, wanted, found, FAILED, rail.name, reason)
    on_card = [each for each in model.rails if card_of(each.pci) == card_of(rail.pci)]
    needed = sum(each.speed or 0 for each in on_card)
    carries = capacity_gbps(link.speed_gts, link.width)
    reason = f"it carries {carries:.0f} Gb/s, and the rails on it need {needed:g} Gb/s; "
    if link.width < (could.width or 0) or link.speed_gts < (could.speed_gts or 0):
        reason += (
            "NIC and slot support more: check dmesg (AER) and the BIOS; reseat, then replace it"
        )
    elif carries < needed:
        wanted = f"{needed:g} Gb/s"
        reason += "move the NIC to a better slot, or correct rails.speed_gbps in the model"
    else:
        return Check(PCIE, wanted, found, OK, rail.name)
    return Check(PCIE, wanted, found, FAILED, rail.name, reason)


def _speed(rail: ModelRail, wanted: float, port: RdmaDevice, check_mode: bool) -> Check:
    """Check the rate of the port, which is negotiated once its interface is up."""
    found, status = port.speed_gbps, FAILED
    leaf = " ".join(str(rail.entry.get(key) or "") for key in ("leaf", "leaf_port")).strip()
    advice = f"check cable, transceivers, leaf{f' ({leaf})' if leaf else ''}, ethtool {rail.name}"
    reason = f"{advice}; or correct rails.speed_gbps and rails.planes in the model"
    if found == wanted:
        status, reason = OK, ""
    elif found is None and not port.name:
        reason = "unknown without a driver: see rail_rdma"
    elif found is None and port.netdev and not port.up:
        status = differs(check_mode)
        reason = f"the interface {port.netdev} is down, and so is its link"
    return Check(SPEED, wanted, found, status, rail.name, reason)


def _gpu(model: Modelled, rail: ModelRail, index: int, port: RdmaDevice) -> Check:
    """Check that the GPU below the NIC's switch is the one that the model pairs with the rail."""
    here = [function.pci for function in model.machine.gpus]
    # The driver numbers GPUs by address.
    wanted = model.gpus.get(index) or (here[index] if index < len(here) else None)
    if wanted is None:
        reason = f"the model pairs the rail with it, but this machine has {len(here)} GPUs"
        return Check(GPU, f"GPU {index}", "none", FAILED, rail.name, reason)
    found = ", ".join(port.gpus) or "none"
    if wanted in port.gpus:
        return Check(GPU, wanted, found, OK, rail.name)
    reason = "correct the order of rails.pci or of gpus.pci in the model"
    if wanted not in model.machine.functions:
        reason = "no GPU at this address: it fell off the bus (dmesg: Xid 79), or gpus.pci is wrong"
    return Check(GPU, wanted, found, FAILED, rail.name, reason)

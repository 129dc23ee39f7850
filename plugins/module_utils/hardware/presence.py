# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Is the rail's NIC there, is it one that can be a rail, and does it do RDMA?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..checks import FAILED, OK, Check, not_applicable
from .inventory import BLUEFIELD, DATA_DIRECT, MELLANOX, NVSWITCH_BRIDGE, SOFTWARE, VIRTUAL
from .inventory import RdmaDevice as Port
from .modelled import Modelled, Rail, named
from .pci import bus_of, card_of
from .ports import ETHERNET, INFINIBAND

NIC = "rail_nic"
RDMA = "rail_rdma"

NO_NIC = "no such NIC"

NOT_A_RAIL: Mapping[str, str] = {
    NVSWITCH_BRIDGE: (
        "a management bridge to the NVSwitches (its vpd says SW_MNG), which belongs to the fabric "
        "manager"
    ),
    DATA_DIRECT: "a Data Direct function, which has no port",
    BLUEFIELD: "a BlueField DPU, which is for storage and management",
    VIRTUAL: "a virtual function of {physfn}, and rails are physical functions",
}

CORRECT = "correct rails.pci in the model (host_vars, where only this machine differs)."


def present(checks: Iterable[Check], interface: str) -> bool:
    """Whether the rail has a NIC that can be set up at all, by the checks of a comparison."""
    return not any(
        check.name == NIC and check.subject == interface and check.status == FAILED
        for check in checks
    )


def nic(model: Modelled, rail: Rail) -> Check:
    """The function at the rail's PCI address, or the one behind its interface."""
    port = rail.port
    if port is None and not rail.pci:
        reason = "the model gives no PCI address, and no NIC has an interface of that name"
        return not_applicable(NIC, f"an interface {rail.name}", reason, subject=rail.name)
    if port is None:
        function = model.machine.functions.get(rail.pci)
        if function is not None:
            found = f"{function.vendor}:{function.device_id}"
            reason = f"{function} is no network function: {CORRECT} {_spare(model)}."
            return Check(NIC, rail.pci, found, FAILED, rail.name, reason)
        return Check(NIC, rail.pci, NO_NIC, FAILED, rail.name, _missing(model, rail))
    if port.kind in NOT_A_RAIL:
        found = f"{port.kind} {port.vendor}:{port.device_id}"
        return Check(NIC, rail.pci, found, FAILED, rail.name, _wrong_kind(model, rail, port))
    return Check(NIC, rail.pci, port.pci, OK, rail.name)


def _missing(model: Modelled, rail: Rail) -> str:
    machine = model.machine
    slot = machine.slots.get(card_of(rail.pci))
    where = f"{rail.pci} (slot {slot})" if slot else rail.pci
    if model.merged(rail):
        return "its card is there as fewer functions than the model has planes: see rail_planes"
    neighbours = [
        str(each) for pci, each in machine.functions.items() if bus_of(pci) == bus_of(rail.pci)
    ]
    beside = f"on its bus is {', '.join(neighbours)}" if neighbours else "its bus is empty"
    return (
        f"there is no PCI function at {where}, and {beside}. {_spare(model)}. Power the node off "
        f"and on; if lspci -s {rail.pci} still shows nothing, reseat or replace the NIC. If the "
        f"machine is right, {CORRECT}"
    )


def _wrong_kind(model: Modelled, rail: Rail, port: Port) -> str:
    name = port.name or port.netdev
    what = NOT_A_RAIL[port.kind].format(physfn=port.physfn)
    return f"{rail.pci}{f' ({name})' if name else ''} is {what}: {CORRECT} {_spare(model)}."


def _spare(model: Modelled) -> str:
    spare = model.spare()
    if spare:
        return f"NICs beside a GPU that no rail names: {named(spare)}"
    return "Every other NIC beside a GPU has its rail"


def rdma(model: Modelled, rail: Rail, port: Port) -> Check:
    """The RDMA device of a RoCE NIC, and that its port is Ethernet."""
    wanted = f"an {ETHERNET} RDMA device"
    if port.name and port.link_layer == INFINIBAND:
        reason = (
            f"the port of {rail.place} is InfiniBand. Make it Ethernet in its firmware "
            f"(mlxconfig -d {port.pci} set LINK_TYPE_P1=2), then reset the NIC or reboot."
        )
        return Check(RDMA, wanted, f"{port.name}, {INFINIBAND}", FAILED, rail.name, reason)
    if port.name:
        return Check(RDMA, wanted, port.name, OK, rail.name)
    return Check(RDMA, wanted, "none", FAILED, rail.name, _no_rdma(model, rail, port))


def _no_rdma(model: Modelled, rail: Rail, port: Port) -> str:
    if port.vendor != MELLANOX:
        return f"{rail.place} has {port.driver or 'no driver'} and no RDMA device"
    for module, task in (("mlx5_core", "drives the NIC"), ("mlx5_ib", "gives it RDMA")):
        if module not in model.machine.modules:
            return (
                f"the kernel module {module}, which {task}, is not loaded: modprobe {module}. If "
                "there is no such module, the kernel lacks its extra modules, or DOCA-OFED was "
                "built for another kernel."
            )
    if not port.driver:
        return (
            f"mlx5_core is loaded and not bound to {port.pci}: look for 'mlx5_core {port.pci}' in "
            f"dmesg, then echo {port.pci} > /sys/bus/pci/drivers/mlx5_core/bind, or reboot."
        )
    return (
        f"{port.driver} is bound to {port.pci} and mlx5_ib is loaded. RoCE may be off (devlink dev "
        f"param show pci/{port.pci} name enable_roce), or mlx5_ib failed (dmesg)."
    )


def stand_in(model: Modelled, rail: Rail) -> Check:
    """What does RDMA for a rail that is no RoCE NIC."""
    wanted = "an RDMA device"
    device = model.machine.device_of(rail.name)
    if device is not None and device.kind == SOFTWARE:
        return Check(RDMA, wanted, device.name, OK, rail.name, "made of software")
    what = f"driver {rail.port.driver or 'none'}" if rail.port else "a virtual interface"
    return not_applicable(RDMA, wanted, f"no RoCE NIC ({what})", subject=rail.name)

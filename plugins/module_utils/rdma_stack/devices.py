# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every rail's RDMA device: there, of the right driver, on Ethernet, and its firmware."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Optional

from ..checks import FAILED, OK, PENDING, Check, not_applicable
from ..dataclass import dataclass
from ..hardware import Machine, RdmaDevice, SurveyError
from ..hardware.inventory import SOFTWARE
from ..hardware.modelled import Modelled, Rail, is_nic
from ..hardware.ports import ETHERNET
from ..hardware.presence import nic, rdma
from ..node.part import Node, Plan, PlanError, Verdict
from .hardware import Hardware

DRIVER = "mlx5_core"
DEVICE, FIRMWARE = "rdma_device", "rdma_firmware"
WANTED = f"an {ETHERNET} RDMA device of {DRIVER}"


def numbers(version: str) -> tuple[int, ...]:
    """`40.47.1026` in the order in which such versions come; nothing for what is none."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        return ()
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True)
class Devices:
    """`minimum`: the oldest firmware that rails may have; empty for any."""

    rails: Sequence[Mapping[str, Any]]
    minimum: str = ""
    changing: Callable[[], bool] = lambda: False
    """Whether drivers are about to change: what is missing may come with them."""
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if self.minimum and not numbers(self.minimum):
            raise PlanError(
                f"firmware_minimum: {self.minimum!r} is no version, such as 40.47.1026 "
                "(ibv_devinfo shows it as fw_ver)"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        if not self.rails:
            why = "the model gives this host no rails"
            return Verdict([not_applicable(DEVICE, WANTED, why)])
        missing = self.hardware.missing(node, "its rails have no NIC of their own")
        if missing:
            return Verdict([not_applicable(DEVICE, WANTED, missing)])
        try:
            machine = self.hardware.again()
        except SurveyError as error:
            return Verdict([Check(DEVICE, WANTED, "none", FAILED, reason=str(error))])
        model = Modelled(machine, self.rails, ())
        checks = [self._device(node, model, rail) for rail in model.rails]
        good = {check.subject for check in checks if check.status == OK}
        ports = {rail.name: rail.port for rail in model.rails if rail.name in good}
        nics = {name: port for name, port in ports.items() if port is not None and port.firmware}
        return Verdict([*checks, *self._firmware(nics)])

    def _device(self, node: Node, model: Modelled, rail: Rail) -> Check:
        where = nic(model, rail)
        if where.status == FAILED:
            return Check(DEVICE, WANTED, where.found, FAILED, rail.name, where.reason)
        port = rail.port
        if port is None or not is_nic(port):
            return _stand_in(model.machine, rail, port)
        found = rdma(model, rail, port)
        if found.status != OK:
            pending = node.check_mode and self.changing()
            status = PENDING if pending else FAILED
            return Check(DEVICE, WANTED, found.found, status, rail.name, found.reason)
        if port.driver != DRIVER:
            reason = f"{rail.place} is not a ConnectX with its own driver"
            return Check(DEVICE, WANTED, f"driver {port.driver}", FAILED, rail.name, reason)
        return Check(DEVICE, WANTED, port.name, OK, rail.name)

    def _firmware(self, ports: Mapping[str, RdmaDevice]) -> list[Check]:
        """One check a rail, against the rails with a NIC of the same model and the minimum."""
        checks = []
        for name, port in ports.items():
            like = Counter(
                other.firmware
                for other in ports.values()
                if (other.device_id, other.board_id) == (port.device_id, port.board_id)
            )
            # Of two that are as frequent, the newer one is what the others should have.
            usual = max(like, key=lambda version: (like[version], numbers(version)))
            checks.append(self._version(name, port, usual))
        return checks

    def _version(self, name: str, port: RdmaDevice, usual: str) -> Check:
        wanted = f"{self.minimum} or later" if self.minimum else usual
        if self.minimum and numbers(port.firmware) < numbers(self.minimum):
            reason = f"older than rdma_stack_firmware_minimum; {_BURN.format(pci=port.pci)}"
            return Check(FIRMWARE, wanted, port.firmware, FAILED, name, reason)
        if port.firmware != usual:
            reason = f"the other rails have {usual}; {_BURN.format(pci=port.pci)}"
            return Check(FIRMWARE, usual, port.firmware, FAILED, name, reason)
        return Check(FIRMWARE, wanted, port.firmware, OK, name)


_BURN = "update it (mlxfwmanager -d {pci}, or mstflint) and reset the NIC"


def _stand_in(machine: Machine, rail: Rail, port: Optional[RdmaDevice]) -> Check:
    """What does RDMA for a rail that is no RoCE NIC: Soft-RoCE on its interface, or nothing."""
    name = port.netdev if port else rail.name
    device = machine.device_of(name)
    if device is not None and device.kind == SOFTWARE:
        if device.link_layer == ETHERNET:
            return Check(DEVICE, f"an {ETHERNET} RDMA device", device.name, OK, rail.name)
        reason = f"{device.name} is of link layer {device.link_layer}"
        return Check(DEVICE, WANTED, device.link_layer, FAILED, rail.name, reason)
    what = f"driver {port.driver or 'none'}" if port else "a virtual interface"
    return not_applicable(DEVICE, WANTED, f"no RoCE NIC ({what})", subject=rail.name)

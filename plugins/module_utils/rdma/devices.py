# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every rail's RDMA device: there, of the right driver, on Ethernet, and its firmware."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware import RdmaDevice, SurveyError
from ..hardware.modelled import Modelled, Rail, is_nic, nic, rdma
from ..hardware.ports import ETHERNET
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
                f"firmware_minimum: {self.minimum!r}: wanted a version such as 40.47.1026 "
                "(fw_ver of ibv_devinfo)"
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
        found, port = nic(model, rail), rail.port
        if found.status != FAILED:
            found = rdma(model, rail)
            if found.status == FAILED and node.check_mode and self.changing():
                found = replace(found, status=PENDING)
            elif found.status == OK and port and is_nic(port) and port.driver != DRIVER:
                reason = f"{rail.place} is not a ConnectX with its own driver"
                found = replace(found, found=f"driver {port.driver}", status=FAILED, reason=reason)
        return replace(found, name=DEVICE, wanted=WANTED)

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
            wanted, reason = f"{self.minimum} or later" if self.minimum else usual, ""
            if self.minimum and numbers(port.firmware) < numbers(self.minimum):
                reason = "older than rdma_stack_firmware_minimum"
            elif port.firmware != usual:
                wanted, reason = usual, f"the other rails have {usual}"
            if reason:
                reason += f"; update it (mlxfwmanager -d {port.pci}, or mstflint), reset the NIC"
            status = FAILED if reason else OK
            checks.append(Check(FIRMWARE, wanted, port.firmware, status, name, reason))
        return checks

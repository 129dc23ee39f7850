# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check that every rail has its RDMA device and firmware, and that every program responds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.commands import CommandError
from ..core.part import Node, Plan, PlanError, Verdict
from ..core.text import some
from ..hardware import RdmaDevice, SurveyError
from ..hardware.compare import Modelled, ModelRail, nic, rdma
from ..hardware.inventory import ETHERNET, MELLANOX
from ..software import floors
from ..software.software_set import DOCA, INBOX
from . import Reads

DEVICE, FIRMWARE = "rdma_device", "rdma_firmware"
WANTED = f"an {ETHERNET} RDMA device"


def numbers(version: str) -> tuple[int, ...]:
    """`40.47.1026` as a sortable tuple; empty for any other text."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        return ()
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True)
class Devices(Reads):
    """`minimum`: the oldest accepted firmware; empty if any is accepted."""

    rails: Sequence[Mapping[str, Any]]
    minimum: str = ""
    accepted: Sequence[floors.Accepted] = ()

    def plan(self, node: Node) -> Plan:
        if self.minimum and not numbers(self.minimum):
            raise PlanError(
                f"rdma_stack_firmware_minimum: {self.minimum!r}: expected a version such as "
                "40.47.1026 (fw_ver of ibv_devinfo)"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "its rails have no separate NIC")
        if missing or not self.rails:
            reason = missing or "the model gives this host no rails"
            return Verdict([not_applicable(DEVICE, WANTED, reason)])
        try:
            machine = self.hardware.again()
        except SurveyError as error:
            return Verdict([Check(DEVICE, WANTED, "none", FAILED, reason=str(error))])
        model = Modelled(machine, self.rails, ())
        checks = [self._device(node, model, rail) for rail in model.rails]
        good = {check.subject for check in checks if check.status == OK}
        nics = {
            rail.name: rail.port
            for rail in model.rails
            if rail.name in good and rail.port and rail.port.firmware
        }
        return Verdict([*checks, *self._firmware(nics), *self._floors(nics)])

    def _device(self, node: Node, model: Modelled, rail: ModelRail) -> Check:
        found = nic(model, rail)
        if found.status != FAILED:
            found = rdma(model, rail)
            if found.status == FAILED:
                found = replace(found, status=self.hardware.wrong(node))
        return replace(found, name=DEVICE, wanted=WANTED)

    def _firmware(self, ports: Mapping[str, RdmaDevice]) -> list[Check]:
        """One check per rail, against the minimum and the other rails with the same NIC model."""
        checks = []
        for name, port in ports.items():
            like = Counter(
                other.firmware
                for other in ports.values()
                if (other.device_id, other.board_id) == (port.device_id, port.board_id)
            )
            # If two are equally frequent, the newer one is expected.
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

    def _floors(self, ports: Mapping[str, RdmaDevice]) -> list[Check]:
        """One check per version. Bulletins have it without its first number, the type of NIC."""
        rails: dict[str, list[str]] = {}
        for name, port in ports.items():
            if port.vendor == MELLANOX:
                rails.setdefault(port.firmware.partition(".")[2], []).append(name)
        return [
            floors.check(floors.FIRMWARE, version, self.accepted, f"firmware of {some(names)}")
            for version, names in rails.items()
        ]


TOOL, SEEN = "rdma_tool", "rdma_devices_seen"
ANSWERS = "answers"
LIST = "ibv_devinfo"
PROGRAMS: Mapping[str, tuple[str, str]] = {
    LIST: ("-l", r"\d+ HCAs? found|Failed to get IB devices"),
    "ib_write_bw": ("--version", r"(?i)version: *\d"),
    "mstconfig": ("--version", r"mstconfig.*\d"),
    "mlxconfig": ("--version", r"mlxconfig.*\d"),
}
"""Arguments of each program, and its output if it starts.

Another check reports a kernel without RDMA.
"""
OF_SOURCE = {INBOX: (LIST, "ib_write_bw", "mstconfig"), DOCA: (LIST, "ib_write_bw", "mlxconfig")}


@dataclass(frozen=True)
class Tools(Reads):
    source: str

    def verify(self, node: Node) -> Verdict:
        checks: list[Check] = []
        answers: dict[str, str] = {}
        for name in OF_SOURCE[self.source]:
            try:
                answers[name] = _ask(node, name)
                checks.append(Check(TOOL, ANSWERS, ANSWERS, OK, name))
            except CommandError as error:
                status = self.hardware.wrong(node)
                checks.append(Check(TOOL, ANSWERS, "nothing", status, name, str(error)))
        simulated = [name for name, text in answers.items() if "simulat" in text.lower()]
        self.hardware.notes += [f"{name} answers from a recorded state" for name in simulated]
        if LIST in answers:
            checks.append(self._seen(node, answers[LIST], LIST in simulated))
        return Verdict(checks)

    def _seen(self, node: Node, listed: str, simulated: bool) -> Check:
        """Compare user space with the kernel: each device needs a provider library."""
        missing = self.hardware.missing(node, "devices are the host's")
        if self.hardware.simulated and not simulated:
            missing = "the machine is recorded, and this ibv_devinfo asks the running kernel"
        if missing:
            return not_applicable(SEEN, "as in sysfs", missing)
        wanted = sorted({port.name for port in self.hardware.machine.ports if port.name})
        found = sorted(set(re.findall(r"^\s+(\S+)\s*$", listed, re.MULTILINE)))
        if found == wanted:
            return Check(SEEN, wanted, found, OK)
        reason = (
            f"{LIST} and /sys/class/infiniband differ: a provider library is missing (package "
            "ibverbs-providers or libibverbs), ib_uverbs is not loaded, or /dev/infiniband is not "
            "readable"
        )
        return Check(SEEN, wanted, found, self.hardware.wrong(node), "", reason)


def _ask(node: Node, name: str) -> str:
    option, expected = PROGRAMS[name]
    result = node.run([name, option], check=False)
    answer = f"{result.stdout}{result.stderr}"
    # Not by exit status: `--version` of perftest 4.5 exits with an error.
    if not re.search(expected, answer):
        last = answer.strip().splitlines()[-1:] or ["it printed nothing"]
        raise CommandError(f"{name} {option}: exit status {result.rc}: {last[0]}")
    return answer

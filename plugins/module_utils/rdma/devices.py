# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RDMA devices and programs: each rail has its device and firmware, each program answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..core.checks import FAILED, OK, PENDING, Check, differs, not_applicable
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware import RdmaDevice, SurveyError
from ..hardware.compare import Modelled, Rail, is_nic, nic, rdma
from ..hardware.inventory import ETHERNET
from ..software.software_set import DOCA, INBOX
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


TOOL, SEEN, OFED = "rdma_tool", "rdma_devices_seen", "rdma_ofed"
ANSWERS = "answers"
LIST = "ibv_devinfo"
PROGRAMS: Mapping[str, tuple[str, str]] = {
    LIST: ("-l", r"\d+ HCAs? found|Failed to get IB devices"),
    "ib_write_bw": ("--version", r"(?i)version: *\d"),
    "mstconfig": ("--version", r"mstconfig.*\d"),
    "mlxconfig": ("--version", r"mlxconfig.*\d"),
    "ofed_info": ("-s", r"\d+\.\d+-\d"),
}
"""What each is asked, and what it says if it could be started.

A kernel without RDMA is another check's finding.
"""
OF_SOURCE = {
    INBOX: (LIST, "ib_write_bw", "mstconfig"),
    DOCA: (LIST, "ib_write_bw", "mlxconfig", "ofed_info"),
}
OFED_PACKAGES = ("mlnx-ofa_kernel", "mlnx-ofed-kernel-dkms")
_OFED = re.compile(r"\d+\.\d+-[0-9.]+\d")


@dataclass(frozen=True)
class Tools:
    """`installed`: package to version, as they are after the run."""

    source: str
    installed: Callable[[], Mapping[str, str]]
    changing: Callable[[], bool] = lambda: False
    hardware: Hardware = field(default_factory=Hardware)
    simulated: list[str] = field(default_factory=list)
    """Filled with what programs say of themselves that are stand-ins."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        wrong = differs(node.check_mode and self.changing())
        checks: list[Check] = []
        told: dict[str, str] = {}
        for name in OF_SOURCE[self.source]:
            try:
                told[name] = self._ask(node, name)
                checks.append(Check(TOOL, ANSWERS, ANSWERS, OK, name))
            except CommandError as error:
                checks.append(Check(TOOL, ANSWERS, "nothing", wrong, name, str(error)))
        simulated = [name for name, text in told.items() if "simulat" in text.lower()]
        self.simulated.extend(f"{name} answers from a recorded state" for name in simulated)
        if LIST in told:
            checks.append(self._seen(node, told[LIST], LIST in simulated, wrong))
        if "ofed_info" in told:
            checks.append(_ofed(self.installed(), told["ofed_info"]))
        return Verdict(checks)

    def _ask(self, node: Node, name: str) -> str:
        option, expected = PROGRAMS[name]
        answer = node.run([name, option], check=False)
        told = f"{answer.stdout}{answer.stderr}"
        # Not by the exit status: perftest 4.5 ends its own version with failure.
        if not re.search(expected, told):
            last = told.strip().splitlines()[-1:] or ["it printed nothing"]
            raise CommandError(f"{name} {option}: exit status {answer.rc}: {last[0]}")
        return told

    def _seen(self, node: Node, listed: str, simulated: bool, wrong: str) -> Check:
        """Libraries in user space against the kernel: each device needs a provider of theirs."""
        missing = self.hardware.missing(node, "devices are the host's")
        if self.hardware.simulated and not simulated:
            missing = "the machine is recorded, and this ibv_devinfo asks the kernel that runs"
        if missing:
            return not_applicable(SEEN, "as in sysfs", missing)
        wanted = sorted({port.name for port in self.hardware.machine.devices})
        found = sorted(set(re.findall(r"^\s+(\S+)\s*$", listed, re.MULTILINE)))
        if found == wanted:
            return Check(SEEN, wanted, found, OK)
        reason = (
            "ibv_devices and /sys/class/infiniband differ: a provider library is missing (package "
            "ibverbs-providers or libibverbs), ib_uverbs is not loaded, or /dev/infiniband is not "
            "readable"
        )
        return Check(SEEN, wanted, found, wrong, "", reason)


def _ofed(installed: Mapping[str, str], told: str) -> Check:
    package = next((name for name in OFED_PACKAGES if name in installed), "")
    version = installed.get(package, "")
    match = _OFED.search(told)
    found = match[0] if match else told.strip()
    release = found.partition("-")[0]
    if package and match and re.search(rf"(?<![\d.]){re.escape(release)}(?![\d])", version):
        return Check(OFED, found, found, OK)
    wanted = f"{package} {version}" if package else f"one of {', '.join(OFED_PACKAGES)}"
    reason = "ofed_info is of another release than the drivers: an earlier OFED was not removed"
    return Check(OFED, wanted, found, FAILED, "", reason)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of the RDMA stack: each is there, answers, and sees what the kernel has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field

from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Verdict
from ..software.distribution import DEBIAN
from ..software.software_set import DOCA, INBOX
from .hardware import Hardware

TOOL, SEEN, OFED, MFT = "rdma_tool", "rdma_devices_seen", "rdma_ofed", "rdma_mft"
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
    family: str
    installed: Callable[[], Mapping[str, str]]
    changing: Callable[[], bool] = lambda: False
    hardware: Hardware = field(default_factory=Hardware)
    simulated: list[str] = field(default_factory=list)
    """Filled with what programs say of themselves that are stand-ins."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        wrong = PENDING if node.check_mode and self.changing() else FAILED
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
        if self.source == DOCA:
            installed = self.installed()
            if "ofed_info" in told:
                checks.append(_ofed(installed, told["ofed_info"]))
            checks.append(self._mft(node, installed, wrong))
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

    def _mft(self, node: Node, installed: Mapping[str, str], wrong: str) -> Check:
        """DOCA and CUDA both have mft in their repositories: it has to be DOCA's."""
        wanted = "one, from the repository doca"
        if "mft" not in installed:
            reason = "DOCA-OFED brings it: see what its profile installs"
            return Check(MFT, wanted, "none", wrong, "", reason)
        origins = sorted(origins_of_mft(node, self.family))
        shown = ", ".join(origins) or "unknown"
        if origins and all("doca" in each.lower() for each in origins):
            return Check(MFT, wanted, shown, OK)
        reason = (
            "firmware tools of another source than the drivers: install DOCA's "
            "(apt-get install mft=VERSION, dnf swap), or remove the other repository's"
        )
        return Check(MFT, wanted, shown, wrong, "", reason)


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


def origins_of_mft(node: Node, family: str) -> set[str]:
    """Repositories that the installed version came from, as the package manager has them."""
    if family != DEBIAN:
        query = ["dnf", "-q", "-C", "repoquery", "--installed", "--qf", "%{from_repo}\n", "mft"]
        return set(node.run(query, check=False).stdout.split())
    text = node.run(["apt-cache", "policy", "mft"], check=False).stdout
    origins: set[str] = set()
    mine = False  # below `***` in the version table, but for the state of dpkg itself
    for line in text.partition("Version table:")[2].splitlines():
        if line.strip().startswith("***"):
            mine = True
        elif re.match(r"^     \S", line):
            mine = False
        elif mine and "/var/lib/dpkg/status" not in line:
            origins.add(line.split()[1] if len(line.split()) > 1 else line.strip())
    return origins

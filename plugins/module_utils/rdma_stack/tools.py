# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of the RDMA stack: each is there, answers, and sees what the kernel has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from ..checks import FAILED, OK, PENDING, Check, not_applicable
from ..commands import CommandError, Result
from ..dataclass import dataclass
from ..node.part import Node, Plan, Verdict
from ..software.distribution import DEBIAN
from ..software.software_set import DOCA, INBOX, NO_RDMA
from .hardware import Hardware

TOOL, SEEN, OFED, MFT = "rdma_tool", "rdma_devices_seen", "rdma_ofed", "rdma_mft"
LIST = ("ibv_devinfo", "-l")
ANSWERS = "answers"
PROGRAMS: Mapping[str, Sequence[Sequence[str]]] = {
    INBOX: (LIST, ("ib_write_bw", "--version"), ("mstconfig", "--version")),
    DOCA: (LIST, ("ib_write_bw", "--version"), ("mlxconfig", "--version"), ("ofed_info", "-s")),
}
OFED_PACKAGES = ("mlnx-ofa_kernel", "mlnx-ofed-kernel-dkms")
_OFED = re.compile(r"\d+\.\d+-[0-9.]+\d")
EXPECTED = {
    "ibv_devinfo": r"\d+ HCAs? found|Failed to get IB devices",
    "ib_write_bw": r"(?i)version: *\d",
    "mstconfig": r"mstconfig.*\d",
    "mlxconfig": r"mlxconfig.*\d",
    "ofed_info": r"\d+\.\d+-\d",
}
"""What a program says that could be started. A kernel without RDMA is another program's finding."""


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
        checks: list[Check] = []
        if self.source == NO_RDMA:
            return Verdict(checks)
        answers = {argv[0]: self._ask(node, argv) for argv in PROGRAMS[self.source]}
        for name, answer in answers.items():
            checks.append(self._tool(node, name, answer))
            if (
                isinstance(answer, Result)
                and "simulat" in f"{answer.stdout}{answer.stderr}".lower()
            ):
                self.simulated.append(f"{name} answers from a recorded state")
        listed = answers[LIST[0]]
        if isinstance(listed, Result):
            checks.append(self._seen(node, listed))
        if self.source == DOCA:
            checks += self._of_doca(node, answers["ofed_info"])
        return Verdict(checks)

    def _ask(self, node: Node, argv: Sequence[str]) -> Result | str:
        """What it says, or why it says nothing."""
        try:
            answer = node.run(list(argv), check=False)
        except CommandError as error:
            return str(error)
        told = (answer.stdout + answer.stderr).strip()
        # Not by the exit status: perftest 4.5 ends its own version with failure.
        if not re.search(EXPECTED[argv[0]], told):
            last = told.splitlines()[-1] if told else "it printed nothing"
            return f"{' '.join(argv)}: exit status {answer.rc}: {last}"
        return answer

    def _tool(self, node: Node, name: str, answer: Result | str) -> Check:
        if isinstance(answer, Result):
            return Check(TOOL, ANSWERS, ANSWERS, OK, name)
        status = PENDING if node.check_mode and self.changing() else FAILED
        return Check(TOOL, ANSWERS, "nothing", status, name, answer)

    def _seen(self, node: Node, listed: Result) -> Check:
        """Libraries in user space against the kernel: each device needs a provider of theirs."""
        wanted = sorted({port.name for port in self.hardware.machine.devices})
        missing = self.hardware.missing(node, "devices are the host's")
        if missing:
            return not_applicable(SEEN, "as in sysfs", missing)
        if self.hardware.simulated and not _says_simulated(listed):
            why = "the machine is recorded, and this ibv_devinfo asks the kernel that runs"
            return not_applicable(SEEN, "as in sysfs", why)
        found = sorted(set(re.findall(r"^\s+(\S+)\s*$", listed.stdout, re.MULTILINE)))
        if found == wanted:
            return Check(SEEN, wanted, found, OK)
        pending = node.check_mode and self.changing()
        reason = (
            "ibv_devices and /sys/class/infiniband differ: a provider library is missing (package "
            "ibverbs-providers or libibverbs), ib_uverbs is not loaded, or /dev/infiniband is not "
            "readable"
        )
        return Check(SEEN, wanted, found, PENDING if pending else FAILED, "", reason)

    def _of_doca(self, node: Node, answer: Result | str) -> Iterable[Check]:
        """The release that ofed_info tells is that of the kernel drivers' package, and one mft."""
        installed = self.installed()
        if isinstance(answer, Result):
            yield _ofed(installed, answer.stdout)
        yield self._mft(node, installed)

    def _mft(self, node: Node, installed: Mapping[str, str]) -> Check:
        """DOCA and CUDA both have mft in their repositories: it has to be DOCA's."""
        wanted = "one, from the repository doca"
        differs = PENDING if node.check_mode and self.changing() else FAILED
        if "mft" not in installed:
            reason = "DOCA-OFED brings it: see what its profile installs"
            return Check(MFT, wanted, "none", differs, "", reason)
        origins = sorted(origins_of_mft(node, self.family))
        shown = ", ".join(origins) or "unknown"
        if origins and all("doca" in each.lower() for each in origins):
            return Check(MFT, wanted, shown, OK)
        reason = (
            "firmware tools of another source than the drivers: install DOCA's "
            "(apt-get install mft=VERSION, dnf swap), or remove the other repository's"
        )
        return Check(MFT, wanted, shown, differs, "", reason)


def _says_simulated(answer: Result) -> bool:
    return "simulat" in f"{answer.stdout}{answer.stderr}".lower()


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
    """Repositories that the installed version came from, as the package manager tells them."""
    if family == DEBIAN:
        return _origins_of_apt(node.run(["apt-cache", "policy", "mft"], check=False).stdout)
    query = ["dnf", "-q", "-C", "repoquery", "--installed", "--qf", "%{from_repo}\n", "mft"]
    return set(node.run(query, check=False).stdout.split())


def _origins_of_apt(text: str) -> set[str]:
    """The lines of the version table below `***`, but for the state of dpkg itself."""
    origins: set[str] = set()
    mine = False
    for line in text.partition("Version table:")[2].splitlines():
        if line.strip().startswith("***"):
            mine = True
        elif re.match(r"^     \S", line):
            mine = False
        elif mine and "/var/lib/dpkg/status" not in line:
            origins.add(line.split()[1] if len(line.split()) > 1 else line.strip())
    return origins

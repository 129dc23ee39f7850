# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The resources of the GPU stack in order, and the reasons for a node to have none."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Optional, cast

from .. import gpu
from ..core import secure_boot
from ..core.checks import FAILED, Check, compare, not_applicable
from ..core.commands import CommandError
from ..core.engine import Settled, settle
from ..core.machine import IN_CONTAINER
from ..core.part import NAME, Node, Part, Plan, PlanError, Step, Verdict
from ..core.waiting import until
from ..hardware import SurveyError
from ..packages.installer import Installer
from ..software import floors
from ..software.software_set import DriverSpec, SoftwareSet
from .modules import BootModules, DriverModules, Nouveau, Services, needs_peermem
from .reading import FABRIC_MANAGER, PERSISTENCED
from .shared import DCGM, GpuKernel, GpuPackages, Shared

# Machines on which this driver must not be installed, for reasons unknown to the package manager.

RUN_FILE = "usr/bin/nvidia-uninstall"
ELSEWHERE = re.compile(
    r"linux-((modules|objects)-nvidia-\d+|signatures-nvidia)-.+"  # Ubuntu
    r"|.*nvidia-(.+-)?\d+-server(-open|-[\d.]+)?"
    r"|akmod-nvidia.*|xorg-x11-drv-nvidia.*"  # RPM Fusion
    r"|kmod-nvidia(-\d+xx)?|nvidia-x11-drv.*"  # ELRepo
)
"""Packages from sources other than the CUDA repository. Not linux-modules-nvidia-fs-* (GPUDirect
Storage), which Ubuntu's kernel `nvidia` depends on."""
KEEP = "or keep it with software.driver.manage: false"


@dataclass(frozen=True)
class Suitable:
    """`gpus`: their number in the model. `installed`: packages and their versions."""

    software: SoftwareSet
    kernel: GpuKernel
    gpus: int
    installed: Mapping[str, str]

    def plan(self, node: Node) -> Plan:
        signed = secure_boot.refusal(node, self.kernel.root)
        found = [*self._machine(), *([signed] if signed else []), *self._other_driver(node)]
        if found:
            raise PlanError("\n".join(found))
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _machine(self) -> Iterator[str]:
        wanted, runs = self.software.kernel, self.kernel.release
        if wanted and wanted != runs:
            yield (
                f"kernel {runs} runs, but software.kernel of the set is {wanted}: boot it, or "
                f"write software.kernel: {runs}"
            )
        if not self.kernel.has_gpus:
            yield (
                f"no NVIDIA GPU on the PCI bus, but the model has {self.gpus}: check the power of "
                "the GPU board (BMC) and the BIOS (Above 4G Decoding); without GPUs write gpus: 0"
            )

    def _other_driver(self, node: Node) -> Iterator[str]:
        if node.path(RUN_FILE).exists():
            yield (
                f"a driver of NVIDIA's .run file is installed: run /{RUN_FILE}, reboot, run again; "
                f"{KEEP}"
            )
        tool = "apt-get purge" if "dpkg" in self.installed else "dnf remove"
        names = sorted(name for name in self.installed if ELSEWHERE.fullmatch(name))
        if names:
            yield (
                "a driver from another source than the CUDA repository is installed. Remove: "
                f"{tool} {' '.join(names)}; {KEEP}"
            )


# The CUDA toolkit: PATH in login shells, the linker's path, and the link /usr/local/cuda.

HOME = "usr/local/cuda"
PROFILE = f"etc/profile.d/{NAME}-cuda.sh"
LINKER = f"etc/ld.so.conf.d/90-{NAME}-cuda.conf"
BODY = """\
export CUDA_HOME=/usr/local/cuda
case ":$PATH:" in
  *:/usr/local/cuda/bin:*) ;;
  *) export PATH=/usr/local/cuda/bin:$PATH ;;
esac
"""
RELEASE = re.compile(r"release (\d+\.\d+)")


@dataclass(frozen=True)
class Cuda:
    shared: Shared
    version: str
    managed: bool = True

    @property
    def library(self) -> str:
        return f"libcudart.so.{self.version.split('.')[0]}"

    def plan(self, node: Node) -> Plan:
        if not self.managed:
            return Plan()
        files = [node.file(PROFILE, BODY), node.file(LINKER, f"/{HOME}/lib64\n")]
        steps = []
        found = _release(node)
        if found != self.version:
            steps.append(Step(f"/{HOME}", found, self.version, partial(self._link, node)))
        if files[1].changed or not self._known(node):
            act = node.doing("ldconfig")
            steps.append(Step(f"linker, {self.library}", "not known", "known", act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        cause, version = self.shared.without_cuda, self.version
        check_mode = node.check_mode and self.managed
        if cause.name:
            return Verdict([cause.hides("cuda_toolkit", version)])
        found = _release(node)
        why = f"update-alternatives --set cuda /{HOME}-{version} chooses between several toolkits"
        checks = [compare("cuda_toolkit", version, found, check_mode=check_mode, reason=why)]
        if found == version:  # otherwise the library differs too
            name, known = self.library, self.library if self._known(node) else "not known"
            why = "ldconfig -p does not list it: run ldconfig, and look for it in /usr/local/cuda"
            checks += [compare("cuda_linker", name, known, check_mode=check_mode, reason=why)]
        return Verdict(checks)

    def _known(self, node: Node) -> bool:
        lines = node.look(["ldconfig", "-p"], check=False).stdout.splitlines()
        return any(line.split()[:1] == [self.library] for line in lines)

    def _link(self, node: Node) -> None:
        folder = f"{HOME}-{self.version}"
        if _release(node) != self.version and node.path(folder).is_dir():
            node.run(["update-alternatives", "--set", "cuda", f"/{folder}"])


def _release(node: Node) -> str:
    try:
        text = node.look([str(node.path(f"{HOME}/bin/nvcc")), "--version"]).stdout
    except CommandError as error:
        return str(error)
    return "".join(RELEASE.findall(text))


# Minimum versions of the running driver and of installed software, in the set or not.

PACKAGES: Mapping[str, str] = {
    floors.DCGM: r"datacenter-gpu-manager(-\d+-cuda\d+)?",
    floors.NCCL: r"libnccl2?",
    floors.TOOLKIT: r"nvidia-container-toolkit",
}
RUNC = re.compile(r"runc version (\S+)")


@dataclass(frozen=True)
class Floors:
    """`installer`: None for an unmanaged driver, whose packages are not read."""

    shared: Shared
    accepted: Sequence[floors.Accepted]
    installer: Optional[Installer]

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        packages = self.installer.manager.installed() if self.installer else {}
        found = {floors.DRIVER: self.shared.kernel.driver or "", floors.CUDA: _release(node)}
        for name, version in packages.items():
            for component, pattern in PACKAGES.items():
                if re.fullmatch(pattern, name):
                    found[component] = version
        if self.installer and "runc" not in packages:  # the distribution corrects its own
            found[floors.RUNC] = _runc(node)
        return Verdict(
            [
                floors.check(component, version, self.accepted)
                for component, version in found.items()
                if floors.numbers_of(version)
            ]
        )


def _runc(node: Node) -> str:
    try:
        text = node.look(["runc", "--version"]).stdout
    except CommandError:
        return ""
    return "".join(RUNC.findall(text)[:1])


PAUSE_S = 5.0
PYNVML = Path("/usr/local/libexec/baremetal-mpi-roce/pynvml.py")


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@dataclass(frozen=True)
class Bindings:
    """pynvml.py of nvidia-ml-py from the controller, with which a node queries NVML.

    `text` is made by `packed`. The diff of the large file is not shown. If the controller sends
    none, an existing file stays.
    """

    text: str

    def plan(self, node: Node) -> Plan:
        text = zlib.decompress(base64.b64decode(self.text)).decode() if self.text else ""
        planned = node.record(str(PYNVML), text)
        if not (text and planned.changed):
            return Plan()
        before = "absent" if planned.before is None else "another version"
        return Plan(steps=[Step(str(PYNVML), before, "that of the controller", planned.apply)])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


@dataclass
class Health:
    """`simulated` is filled with evidence that the hardware is simulated."""

    shared: Shared
    wanted: gpu.GpuTarget
    wait_s: float = 0.0
    simulated: list[str] = field(default_factory=list)

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        """Wait for the fabric, even in check mode: the node may have just booted."""
        goal = len(self.wanted.gpus)
        if self.shared.without_driver.name:
            return Verdict([self.shared.without_driver.hides("gpus", goal)])
        readings: list[gpu.GpuFindings] = []

        def settled() -> bool:
            readings[:] = [self._evaluate(node)]
            return not readings[0].settling

        try:
            until(settled, self.wait_s, PAUSE_S, clock=node.clock, sleep=node.sleep)
        except SurveyError as error:
            return Verdict([Check("gpus", goal, "unknown", FAILED, "", str(error))])
        return Verdict(readings[0].checks, readings[0].reasons)

    def _evaluate(self, node: Node) -> gpu.GpuFindings:
        found = gpu.read(node, self.shared.kernel.root, node.path(str(PYNVML)))
        self.simulated[:] = found.simulated
        return gpu.evaluate(found, self.wanted, node)


@dataclass(frozen=True)
class Excused:
    why: str

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict([not_applicable("gpu_stack", "installed", self.why)])


def installs(options: Mapping[str, Any], software: SoftwareSet, node: Node) -> bool:
    managed = software.driver is not None and software.driver.manage
    return managed and not excuse(options, software, node)


def excuse(options: Mapping[str, Any], software: SoftwareSet, node: Node) -> str:
    """Why the layer has nothing to do on a node, or nothing."""
    if software.driver is None:
        return "the set has no driver (software.driver of the cluster model)"
    if not options["gpus"]:
        return "the model has no GPUs on this node"
    if node.container is not None and Path(options["hardware_root"]) == node.root:
        return f"{IN_CONTAINER} ({node.container}): the driver is the host's"
    return ""


def wanted(options: Mapping[str, Any], driver: DriverSpec) -> gpu.GpuTarget:
    given = {key: value for key, value in options["health"].items() if value is not None}
    given.update({key: frozenset(given[key]) for key in ("xids", "xids_ignored") if key in given})
    return gpu.GpuTarget(
        driver=driver.version,
        gpus=options["gpus"],
        rails=options["rails"],
        open_modules=driver.modules == "open",
        managed=driver.manage,
        gpudirect=options["gpudirect"],
        **given,
    )


def converge(
    options: Mapping[str, Any], software: SoftwareSet, node: Node, installer: Optional[Installer]
) -> Settled:
    """Plan, act and verify. Without `installer` (an unmanaged driver), only verify."""
    driver = cast(DriverSpec, software.driver)
    kernel = GpuKernel(Path(options["hardware_root"]), node.root)
    shared, gpus = Shared(kernel, driver.version), wanted(options, driver)
    health = Health(shared, gpus, options["fabric_wait_s"])
    bindings = Bindings(options["nvml_bindings"])
    managed = installer is not None
    cuda = [Cuda(shared, software.cuda, managed)] if software.cuda else []
    minimum = Floors(shared, software.accepted, installer)
    parts: list[Part] = [bindings, *cuda, health, minimum]
    if installer is not None:
        modules = ["gdrdrv"] if software.gdrcopy else []
        if needs_peermem(kernel.release, options["gpudirect"], gpus.open_modules):
            modules.append("nvidia_peermem")
        uses = {PERSISTENCED: gpus.persistence, FABRIC_MANAGER: gpus.fabric, DCGM: software.dcgm}
        services = [unit for unit, used in uses.items() if used]
        loading = DriverModules(shared, software.gdrcopy, options["reload_driver"])
        parts = [
            Suitable(software, kernel, len(gpus.gpus), installer.manager.installed()),
            Nouveau(shared),
            bindings,
            GpuPackages(shared, installer, options["change_under_jobs"]),
            loading,
            BootModules(shared, modules, loading),
            *cuda,
            Services(shared, services, installer),
            health,
            minimum,
        ]
    return Settled(settle(parts, node), health.simulated)

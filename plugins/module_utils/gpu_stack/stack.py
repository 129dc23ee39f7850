# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of the stack in the order in which they are done, and what makes one not applicable."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import Check, not_applicable
from ..dataclass import dataclass
from ..machine import IN_CONTAINER
from ..node.layer import Settled
from ..node.part import NAME, Node, Part, Plan, PlanError, Step, Verdict
from ..node.settle import settle
from ..software import Distribution, SoftwareSet, judge
from ..software import Node as Here
from ..software.compatibility import REFUSED
from . import boot, packages, units
from .bindings import Bindings
from .boot import BootModules
from .cause import Cause
from .cuda import Cuda
from .driver import Driver
from .health import Health
from .kernel import Kernel
from .packages import Installer
from .pause import Pause
from .request import Request
from .services import Services
from .suitable import Suitable

# nouveau, the kernel's own driver, makes way: at the next boot, never by force.
#
# It is kept from loading in the initramfs too. Where it drives the GPUs now, NVIDIA's module
# cannot have them until a reboot; unloading it under a console would freeze that.

FILE = f"etc/modprobe.d/90-{NAME}-nouveau.conf"
BODY = "blacklist nouveau\noptions nouveau modeset=0\n"


@dataclass(frozen=True)
class Nouveau:
    kernel: Kernel

    def plan(self, node: Node) -> Plan:
        file = node.file(FILE, BODY)
        step = Step(
            f"initramfs of {self.kernel.release}",
            "without the blacklist of nouveau",
            "with it",
            lambda: _renew(node, self.kernel.release),
        )
        image = _image(node, self.kernel.release)
        if image and (file.changed or _older(node, image)):
            return Plan([file], [step])
        return Plan([file])

    def verify(self, node: Node) -> Verdict:
        """Whether it is loaded is judged with the GPUs, which it keeps from the driver."""
        return Verdict()


def _image(node: Node, release: str) -> str:
    """The initramfs of this kernel; empty on a node that boots without one of its own."""
    names = (f"boot/initrd.img-{release}", f"boot/initramfs-{release}.img")
    return next((name for name in names if node.path(name).exists()), "")


def _older(node: Node, image: str) -> bool:
    """A run that was stopped in between left an initramfs from before the file."""
    return node.path(image).stat().st_mtime < node.path(FILE).stat().st_mtime


def _renew(node: Node, release: str) -> None:
    node.run(_tool(node, release))


def _tool(node: Node, release: str) -> Sequence[str]:
    if node.path("usr/sbin/update-initramfs").exists():
        return ["update-initramfs", "-u", "-k", release]
    return ["dracut", "--force", f"/boot/initramfs-{release}.img", release]


def excused(request: Request, node: Node) -> list[Check]:
    """The one check of a node on which there is nothing to do; none where there is."""
    why = ""
    if request.software.driver is None:
        why = "the set has no driver (software.driver of the cluster model)"
    elif not request.gpus:
        why = "the model has no GPUs on this node"
    elif node.container is not None and request.hardware_root == node.root:
        why = f"{IN_CONTAINER} ({node.container}): the driver is the host's"
    return [not_applicable("gpu_stack", "installed", why)] if why else []


def judged(software: SoftwareSet, found: Distribution, release: str) -> tuple[list[str], list[str]]:
    """What is refused on such a node, and what is doubtful and the inventory could not know."""
    here = judge(software, Here(found, release))
    known = judge(software)
    refused = [each.line() for each in here if each.status == REFUSED]
    return refused, [each.line() for each in here if each.status != REFUSED and each not in known]


def nothing(node: Node, checks: list[Check]) -> Settled:
    """The result of a node on which there is nothing to do. It waits for no reboot either."""
    outcome = settle([], node)
    outcome.checks = checks
    return Settled(outcome)


def parts(request: Request, node: Node, kernel: Kernel, installer: Installer) -> list[Part]:
    software = request.software
    driver = software.driver
    if driver is None:
        raise PlanError("the set has no software.driver")
    pause, cause, without_cuda = Pause(), Cause(), Cause()
    causes = ((packages.DRIVER, cause), (packages.CUDA, without_cuda))
    wanted = request.wanted()
    modules = ["gdrdrv"] if software.gdrcopy else []
    if boot.needs_peermem(kernel, request.gpudirect, wanted.open_modules):
        modules.append("nvidia_peermem")
    services = [units.PERSISTENCED] if wanted.persistence else []
    services += [units.FABRIC_MANAGER] if wanted.fabric else []
    services += [units.DCGM] if software.dcgm else []
    chosen: list[Part] = [
        Suitable(software, kernel, len(request.gpus), installer.installed()),
        Nouveau(kernel),
        Bindings(str(request.pynvml), request.bindings),
        packages.Packages(installer, pause, causes, request.under_jobs),
        Driver(kernel, driver.version, software.gdrcopy, pause, cause, request.reload),
        BootModules(kernel, modules, driver.version, pause, cause),
    ]
    if software.cuda:
        chosen.append(Cuda(software.cuda, without_cuda))
    chosen.append(Services(kernel, driver.version, services, installer, pause, cause))
    chosen.append(Health(kernel, wanted, request.pynvml, cause, request.fabric_wait_s))
    return chosen


def converge(request: Request, node: Node, installer: Installer) -> Settled:
    """Plan, act, verify. Raises PlanError before anything is changed."""
    kernel = Kernel(request.hardware_root, node.root)
    chosen = parts(request, node, kernel, installer)
    outcome = settle(chosen, node)
    simulated = [line for part in chosen if isinstance(part, Health) for line in part.simulated]
    return Settled(outcome, simulated)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of the stack in the order in which they are done, and what makes one not applicable."""

from __future__ import annotations

from ..checks import Check, not_applicable
from ..machine import IN_CONTAINER
from ..node.layer import Settled
from ..node.part import Node, Part, PlanError
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
from .nouveau import Nouveau
from .packages import Installer
from .pause import Pause
from .request import Request
from .services import Services
from .suitable import Suitable


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

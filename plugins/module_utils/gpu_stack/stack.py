# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of the stack in the order in which they are done, and what makes one not applicable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from .. import gpu
from ..checks import Check, not_applicable
from ..gpu.reading import FABRIC_MANAGER, PERSISTENCED
from ..machine import IN_CONTAINER
from ..node.layer import Settled
from ..node.part import Node, Part
from ..node.settle import settle
from ..software import Distribution, SoftwareSet, judge
from ..software import Driver as OfTheSet
from ..software import Node as Here
from ..software.compatibility import REFUSED
from .cuda import Cuda
from .health import Bindings, Health
from .modules import BootModules, Driver, Nouveau, needs_peermem
from .packages import Installer, Packages
from .services import Services
from .shared import DCGM, Kernel, Shared
from .suitable import Suitable


def excused(options: Mapping[str, Any], software: SoftwareSet, node: Node) -> list[Check]:
    """The one check of a node on which there is nothing to do; none where there is."""
    why = ""
    if software.driver is None:
        why = "the set has no driver (software.driver of the cluster model)"
    elif not options["gpus"]:
        why = "the model has no GPUs on this node"
    elif node.container is not None and Path(options["hardware_root"]) == node.root:
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


def wanted(options: Mapping[str, Any], driver: OfTheSet) -> gpu.Wanted:
    """What the GPUs are to be; thresholds that were not given are the published ones."""
    given = {key: value for key, value in options["health"].items() if value is not None}
    if "xids" in given:
        given["xids"] = frozenset(given["xids"])
    return gpu.Wanted(
        driver=driver.version,
        gpus=options["gpus"],
        rails=options["rails"],
        open_modules=driver.modules == "open",
        gpudirect=options["gpudirect"],
        **given,
    )


def converge(
    options: Mapping[str, Any], software: SoftwareSet, node: Node, installer: Installer
) -> Settled:
    """Plan, act, verify, with a driver in the set: else `excused`. Raises PlanError before anything
    is changed."""
    driver = cast(OfTheSet, software.driver)
    kernel = Kernel(Path(options["hardware_root"]), node.root)
    shared, gpus = Shared(kernel, driver.version), wanted(options, driver)
    modules = ["gdrdrv"] if software.gdrcopy else []
    if needs_peermem(kernel.release, options["gpudirect"], gpus.open_modules):
        modules.append("nvidia_peermem")
    services = [PERSISTENCED] if gpus.persistence else []
    services += [FABRIC_MANAGER] if gpus.fabric else []
    services += [DCGM] if software.dcgm else []
    health = Health(shared, gpus, options["fabric_wait"])
    parts: list[Part] = [
        Suitable(software, kernel, len(gpus.gpus), installer.installed()),
        Nouveau(shared),
        Bindings(options["nvml_bindings"]),
        Packages(shared, installer, options["change_under_jobs"]),
        Driver(shared, software.gdrcopy, options["reload_driver"]),
        BootModules(shared, modules),
        *([Cuda(shared, software.cuda)] if software.cuda else []),
        Services(shared, services, installer),
        health,
    ]
    return Settled(settle(parts, node), health.simulated)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm on one host: its files for the installed version, its daemon, its clock, and what
slurmctld says about it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Callable, Optional

from ..core.checks import FAILED, OK, Check, differs
from ..core.commands import CommandError, find_program
from ..core.files import HEADER, replace_block
from ..core.part import Node, Part, Plan, PlanError, Step, Verdict
from ..core.text import one_line, shortened
from . import compare, state, texts
from .cluster import SlurmCluster
from .daemons import CONTROLLER, NODE, Daemon, Surroundings
from .munge import Munge

BLOCK = "slurm"
"""Name of the marked block in the site's slurm.conf."""
OPTIONAL = (texts.GRES, texts.CGROUP, texts.TOPOLOGY_CONF, texts.TOPOLOGY_YAML)
"""Files whose names are Slurm's: the site may have written them."""
PROGRAMS = ("task_prolog", "prolog", "epilog", "health_check", "reboot_program")
"""Settings that name programs, which must be on every node."""


@dataclass(frozen=True)
class Request:
    cluster: SlurmCluster
    host: str
    directory: str
    settings: Mapping[str, Any]
    """Of texts.Settings, without the version and what slurm.conf sets itself."""
    managed: bool
    """Whether packages are the distribution's, and daemons ours to start."""
    restart: bool
    munge: Munge
    wait_s: float
    now: Optional[float]
    """Time of the controller of Ansible."""
    max_offset_s: float
    others: Sequence[str] = ()
    """Nodes that the controller compares in place of their own run."""

    @property
    def unit(self) -> str:
        if self.host in {node.name for node in self.cluster.nodes}:
            return NODE
        return CONTROLLER if self.host == self.cluster.controllers[0][0] else ""

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def parts(request: Request, node: Node) -> list[Part]:
    """Everything of this host, in order. Raises PlanError."""
    if find_program("scontrol") is None:
        if request.managed and node.check_mode:
            return [NotInstalled(request.unit)]
        remedy = "install Slurm, or write slurm_packages: distribution"
        raise PlanError(f"scontrol is not installed on {request.host}: {remedy}")
    version = state.parse_version(node.look(["scontrol", "-V"]).stdout)
    if version is None:
        raise PlanError("scontrol -V prints no version of Slurm")
    files = Files(request, version, node)
    found: list[Part] = [request.munge]
    if request.managed:
        found.append(Surroundings())
    up = partial(compare.answers, name=request.host if request.unit == NODE else "")
    found.append(
        Daemon(
            request.unit, files.texts, request.managed, request.restart, up, request.wait_s
        )
    )
    return [*found, files, Clock(request.now, request.max_offset_s), State(request, files)]


@dataclass(frozen=True)
class NotInstalled:
    """A host in check mode, before its packages are installed."""

    unit: str

    def plan(self, node: Node) -> Plan:
        return Plan([], [Step(self.unit or "slurm", "not installed", "as planned", lambda: None)])

    def verify(self, node: Node) -> Verdict:
        status = differs(node.check_mode)
        return Verdict([Check("slurm_service", "installed", "not installed", status, self.unit)])

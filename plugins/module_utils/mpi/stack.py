# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI of one host: its files, and what mpirun, UCX and mpi4py report of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..core.checks import Check, compare, failures
from ..core.dataclass import dataclass
from ..core.files import FilePlan, replace_block
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware import Machine, survey
from ..os_baseline.limits import parse_proc
from . import environment as environments
from . import rdma, versions

NCCL_FILE = "/etc/nccl.conf"
RC = "rc"


@dataclass(frozen=True)
class Wanted:
    """What the controller gives besides the settings."""

    profile: str
    programs: Mapping[str, str]
    python: str
    user: str
    """The account whose session proves how much memory may be locked."""
    gpus: int


class Stack:
    """Environment, profile, programs and Open MPI's parameters.

    With `rc` nothing is written while a rail cannot be used: a cluster with half of its rails
    would be slow without a visible cause.
    """

    def __init__(self, settings: environments.Settings, wanted: Wanted) -> None:
        self.settings = settings
        self.wanted = wanted
        self.machine = Machine()
        self.ucx = versions.Ucx()
        self.lacking: Sequence[Check] = ()
        """A check for each rail without a usable RDMA port."""
        self.changes = False
        self.installed = versions.Installed()

    def plan(self, node: Node) -> Plan:
        if self.settings.transport == RC:
            self._find_rdma(node)
        files = self._files(node)
        self.changes = any(each.changed for each in files)
        return Plan(files)

    def _find_rdma(self, node: Node) -> None:
        """The RDMA devices of this host, and what its UCX can do."""
        self.machine = survey()
        rails, self.lacking = rdma.with_ports(
            self.settings.rails, self.machine, check_mode=node.check_mode
        )
        failed = failures(self.lacking)
        if failed:
            raise PlanError("\n".join(check.line() for check in failed), failed)
        self.ucx = versions.read_ucx(node.run)
        offered = (one for one in environments.CUDA_TRANSPORTS if one in self.ucx.transports)
        self.settings = replace(
            self.settings,
            rails=tuple(rails),
            cuda=tuple(offered) if self.wanted.gpus else (),
            reachability_mode=self.ucx.knows(environments.REACHABILITY.removeprefix("UCX_IB_")),
        )

    def _files(self, node: Node) -> list[FilePlan]:
        settings = self.settings
        files = [node.file(environments.PROFILE_FILE, self.wanted.profile.rstrip() + "\n")]
        if not self.lacking:
            # In check mode a device may be missing yet, and with it what this file will have.
            text = environments.environment_text(environments.environment(settings))
            files.insert(0, node.file(environments.ENVIRONMENT_FILE, text))
        for name, content in sorted(self.wanted.programs.items()):
            path = f"{environments.PROGRAM_DIRECTORY}/{name}"
            files.append(node.record(path, content.rstrip() + "\n", mode=0o755))
        mca_file = settings.layout.mca_file
        block = environments.parameter_lines(environments.parameters(settings))
        files.append(node.record(mca_file, replace_block(node.read(mca_file) or "", block, "mpi")))
        return files

    def verify(self, node: Node) -> Verdict:
        settings, check_mode = self.settings, node.check_mode
        mca_file = settings.layout.mca_file
        found = environments.effective_parameters(node.read(mca_file) or "")
        reason = f"a later line of {mca_file} wins over the managed block; remove it"
        result = [
            compare(
                "mpi_parameter",
                value,
                found.get(name),
                subject=name,
                check_mode=check_mode,
                reason=reason,
            )
            for name, value in environments.parameters(settings).items()
        ]
        # UCX's former answer holds, unless its environment has changed.
        former = self.ucx if settings.transport == RC and (check_mode or not self.changes) else None
        self.installed = versions.read(node.run, self.wanted.python, former)
        result += versions.readback(
            self.installed, settings.rails, settings.transport, check_mode=check_mode
        )
        return Verdict(result + (self._rdma(node) if settings.transport == RC else []))

    def _rdma(self, node: Node) -> list[Check]:
        """What rc needs of this host, beyond what is installed."""
        settings, check_mode, ucx = self.settings, node.check_mode, self.installed.ucx
        environment = environments.parse_environment(node.read(environments.ENVIRONMENT_FILE) or "")
        result = list(self.lacking)
        result += rdma.readback(
            settings.rails, self.machine, settings.slots, environment, check_mode=check_mode
        )
        if settings.rails and settings.qos is not None:
            result += rdma.contract_checks(
                settings.qos, settings.rails, environment, ucx.settings, check_mode=check_mode
            )
            result += rdma.nccl_file_checks(node.read(NCCL_FILE) or "", environment)
            result.append(self._memlock(node))
        offered = None if ucx.problem else settings.cuda
        return result + rdma.cuda_check(self.wanted.gpus, offered, check_mode=check_mode)

    def _memlock(self, node: Node) -> Check:
        """How much memory a session of the MPI user may lock, beside how much there is."""
        user = self.wanted.user
        if node.run(["id", "-u", user], check=False).rc != 0:
            user = "nobody"
        limits = node.run(["runuser", "-u", user, "--", "cat", "/proc/self/limits"]).stdout
        memory = int((node.read("/proc/meminfo") or "").split()[1]) * 1024
        limit = parse_proc(limits).get("memlock")
        return rdma.memlock_check(limit, memory, user, check_mode=node.check_mode)

    def returned(self) -> dict[str, Any]:
        ports = [rail.rdma for rail in self.settings.rails if rail.rdma is not None]
        return {
            "versions": self.installed.versions(),
            "environment": environments.environment(self.settings),
            "rdma": [asdict(port) for port in ports],
        }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI configuration of a host: its files, and the checks of their effect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

from ..core.checks import FAILED, Check, compare, failures, not_applicable
from ..core.commands import Runner
from ..core.files import FilePlan, replace_block
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware import Machine, survey
from . import environment as environments
from . import hostfile, rdma
from .environment import PROFILE_FILE
from .installed import RC, Installed, Ucx, installed_checks, read, read_ucx
from .launch.launcher import HYDRA

UCX_FILE, NCCL_FILE = "etc/ucx/ucx.conf", "etc/nccl.conf"
UCX_LINE = 198
"""UCX truncates longer lines of its file: INI_MAX_LINE in openucx/ucx src/ucs/config/ini.h."""


def interface_with(run: Runner, address: str) -> str:
    for link in json.loads(run(("ip", "-N", "-j", "address", "show")).stdout or "[]"):
        if any(info.get("local") == address for info in link.get("addr_info", [])):
            return str(link["ifname"])
    return ""


def _lines(values: Mapping[str, str], prefix: str) -> list[str]:
    """Lines of a file of UCX or NCCL, which have no quotes."""
    return [f"{key}={value}" for key, value in values.items() if key.startswith(prefix)]


def _with_block(node: Node, name: str, lines: list[str]) -> list[FilePlan]:
    """A file that begins with the managed block: sections in UCX's file apply only to some
    processors, and NCCL uses the first line for a variable.
    """
    before = node.read(name) or ""
    after = replace_block(before, lines, "mpi", first=True)
    return [node.edited(name, after)] if lines or "# BEGIN baremetal.mpi_roce mpi" in before else []


def _foreign(node: Node) -> bool:
    """Whether another origin wrote NCCL's file: it has settings and no managed block."""
    settings = environments.settings_in(node.read(NCCL_FILE) or "")
    return bool(settings) and all(each.place == "before" for each in settings)


DECLARED = "or declare it with mpi_stack_parameters"
OTHER_FILES = ("openmpi-mca-params-override.conf", "pmix-mca-params.conf", "prte-mca-params.conf")
AFTER = "comes after the managed block and overrides it"


def parameter_checks(node: Node, mca_file: str, ours: Mapping[str, str]) -> list[Check]:
    """Check the parameters of Open MPI, and others that affect how ranks start and connect."""
    text, name = node.read(mca_file) or "", "mpi_parameter"
    effective = {setting.name: setting for setting in environments.settings_in(text)}
    checks = []
    for key, value in ours.items():
        actual = effective.get(key)
        if actual is not None and actual.value != value and actual.place == "after":
            at = f"{mca_file}:{actual.number}"
            hand, why = f"remove it from {at}", f"{at} {AFTER}"
            checks.append(Check(name, value, actual.value, FAILED, key, why, by_hand=hand))
            continue
        found = actual.value if actual is not None else None
        checks.append(compare(name, value, found, subject=key, check_mode=node.check_mode))
    directory = mca_file.rpartition("/")[0]
    paths = (mca_file, *(f"{directory}/{each}" for each in OTHER_FILES))
    for path in paths if ours else ():  # Intel MPI reads none
        for foreign in environments.foreign_parameters(node.read(path) or "", ours):
            key, at = foreign.name, f"{path}:{foreign.number}"
            hand, why = f"remove {key} from {at}, {DECLARED}", f"{at} sets it"
            checks.append(Check(name, "not set", foreign.value, FAILED, key, why, by_hand=hand))
    return checks


def ucx_file_checks(node: Node, paths: Sequence[str], lines: Sequence[str]) -> list[Check]:
    """Lines of UCX's file that override the managed block, or set other variables."""
    ours = dict(line.split("=", 1) for line in lines)
    checks = []
    for path in dict.fromkeys(path.lstrip("/") for path in paths):
        for line in environments.settings_in(node.read(path) or ""):
            name, at = line.name, f"/{path}:{line.number}"
            overrides = line.place == "after" and ours.get(name, line.value) != line.value
            new = line.place != "inside" and name not in ours
            if not name.startswith("UCX_") or "_LOG_" in name or not (overrides or new):
                continue
            wanted, reason = ours.get(name, "not set"), f"{at} {AFTER if overrides else 'sets it'}"
            hand = f"remove {name} from {at}; mpi_stack_environment declares variables"
            check = Check("ucx_file", wanted, line.value, FAILED, name, reason, by_hand=hand)
            checks.append(check)
    return checks


@dataclass(eq=False)
class Stack:
    """Environment file, profile, programs, and parameters of Open MPI.

    With `rc`, nothing is written while a rail cannot be used: a cluster that uses half of its rails
    is slow without a visible cause.
    """

    settings: environments.MpiSettings
    mca_file: str
    ucx_file: str
    """Configuration file of UCX; environment variables take precedence."""
    nccl_file: Optional[bool]
    """NCCL also gets a file, for jobs that do not have the environment. None: if the software set
    has NCCL, and the file no lines of another origin."""
    profile: str
    programs: Mapping[str, str]
    python: str
    gpus: int
    nccl: bool = False
    """Whether the software set has NCCL."""
    numa_cores: Mapping[str, Any] = field(default_factory=dict)
    """CPUs of each NUMA node as they are used in the rankfile."""
    kind: str = ""
    """Of this node; empty if the model has no kinds."""
    machine: Machine = field(default_factory=Machine, init=False)
    ucx: Ucx = field(default=Ucx(), init=False)
    nowhere: bool = field(default=False, init=False)
    """No interface has the management address, and the model names none."""
    lacking: Sequence[Check] = field(default=(), init=False)
    """Failed checks of the rails without a usable RDMA port."""
    changes: bool = field(default=False, init=False)
    installed: Installed = field(default=Installed(), init=False)

    def plan(self, node: Node) -> Plan:
        if self.settings.transport == RC:
            self._find_rdma(node)
        self._find_management(node)
        files = self._files(node)
        self.changes = any(file.changed for file in files)
        return Plan(files)

    def _find_management(self, node: Node) -> None:
        """Find the management interface if a setting needs it and the model does not name it."""
        settings = self.settings
        needed = settings.launcher is HYDRA or (settings.transport == RC and bool(settings.rails))
        if settings.slots and not settings.rails:
            needed = True
        if needed and not settings.management_interface and settings.management_address:
            name = interface_with(node.look, settings.management_address)
            self.settings, self.nowhere = replace(settings, management_interface=name), not name

    def _find_rdma(self, node: Node) -> None:
        self.machine = survey()
        rails, self.lacking = rdma.with_ports(
            self.settings.rails, self.machine, check_mode=node.check_mode
        )
        failed = failures(self.lacking)
        if failed:
            raise PlanError("\n".join(check.line() for check in failed), failed)
        self.ucx = read_ucx(node.run)
        offered = (name for name in environments.CUDA_TRANSPORTS if name in self.ucx.transports)
        self.settings = replace(
            self.settings,
            rails=tuple(rails),
            cuda=tuple(offered) if self.gpus else (),
            reachability_mode=self.ucx.knows(environments.REACHABILITY.removeprefix("UCX_IB_")),
        )

    def _files(self, node: Node) -> list[FilePlan]:
        files = [node.file(PROFILE_FILE, self.profile.rstrip() + "\n")]
        if not self.lacking:
            # In check mode a device may still be missing, and these files depend on it.
            values = environments.environment(self.settings)
            text = environments.environment_text(values)
            files.insert(0, node.file(environments.ENVIRONMENT_FILE, text))
            for path in dict.fromkeys((UCX_FILE, self.ucx_file)):
                files += _with_block(node, path, self._ucx_lines())
            wanted = self.nccl and not _foreign(node) if self.nccl_file is None else self.nccl_file
            files += _with_block(node, NCCL_FILE, _lines(values, "NCCL_") if wanted else [])
        for name, content in sorted(self.programs.items()):
            path = f"{environments.PROGRAM_DIRECTORY}/{name}"
            files.append(node.record(path, content.rstrip() + "\n", mode=0o755))
        values = environments.parameters(self.settings)
        block = [f"{key} = {value}" for key, value in values.items()]
        before = node.read(self.mca_file) or ""
        text = replace_block(before, block, "mpi")
        return [*files, *([node.record(self.mca_file, text)] if text != before or block else [])]

    def _ucx_lines(self) -> list[str]:
        values = environments.environment(self.settings)
        return [line for line in _lines(values, "UCX_") if len(line) < UCX_LINE]

    def verify(self, node: Node) -> Verdict:
        settings, check_mode, mca_file = self.settings, node.check_mode, self.mca_file
        result = parameter_checks(node, mca_file, environments.parameters(settings))
        result += ucx_file_checks(node, (UCX_FILE, self.ucx_file), self._ucx_lines())
        # UCX is read again only if its environment has changed.
        unchanged = check_mode or not self.changes
        ucx = self.ucx if settings.transport == RC and unchanged else None
        self.installed = read(node.run, self.python, ucx, settings.launcher)
        given = (settings.rails, settings.transport, self.machine, settings.launcher)
        result += installed_checks(self.installed, *given, check_mode=check_mode)
        if self.nowhere:
            reason = "NCCL and Gloo would guess an interface; set management.interface in the model"
            address, found = settings.management_address, "on no interface"
            result.append(Check("mpi_management", address, found, FAILED, reason=reason))
        for line in _lines(environments.environment(settings), "UCX_"):
            if len(line) >= UCX_LINE:
                limit, name = f"less than {UCX_LINE} characters", line.partition("=")[0]
                reason = "UCX truncates the line: jobs without a login shell need TaskProlog"
                result.append(not_applicable("ucx_file", limit, reason, subject=name))
        if self.nccl_file is None and self.nccl and settings.rails and _foreign(node):
            reason = "it has lines of another origin; mpi_stack_nccl_file: true precedes them"
            wanted = "NCCL's variables"
            result.append(not_applicable("nccl_file", wanted, reason, subject=f"/{NCCL_FILE}"))
        cores = self.numa_cores if settings.slots else {}
        result += hostfile.cores_checks(node, cores, self.kind)
        return Verdict(result + (self._rdma(node) if settings.transport == RC else []))

    def _rdma(self, node: Node) -> list[Check]:
        """Requirements of the transport `rc`, in addition to the installed software."""
        settings, mode, ucx = self.settings, node.check_mode, self.installed.ucx
        variables = environments.parse_environment(node.read(environments.ENVIRONMENT_FILE) or "")
        rails, result = settings.rails, list(self.lacking)
        result += rdma.readback(rails, self.machine, settings.slots, variables, check_mode=mode)
        if rails and settings.qos is not None:
            given = (settings.qos, rails, variables, ucx.settings)
            result += rdma.contract_checks(*given, check_mode=mode)
        offered = None if ucx.problem else settings.cuda
        return result + rdma.cuda_check(self.gpus, offered, check_mode=mode)

    def returned(self) -> dict[str, Any]:
        ports = [rail.rdma for rail in self.settings.rails if rail.rdma is not None]
        return {
            "versions": dict(self.installed.versions),
            "environment": environments.environment(self.settings),
            "rdma": [asdict(port) for port in ports],
        }

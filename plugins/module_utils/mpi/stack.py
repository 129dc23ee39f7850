# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI of one host: its files, and what mpirun, UCX and mpi4py report of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, compare, differs, failures, not_applicable
from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, replace_block
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware import Machine, survey
from . import environment as environments
from . import hostfile, rdma
from .environment import PROFILE_FILE, PROVIDER, Rail
from .launch.launcher import HYDRA, OPEN_MPI, Launcher

RC = "rc"
OF_PACKAGES = ("/usr/lib", "/opt/")
"""Where packages and the collection put modules of Python; /usr/local and homes are others'."""
PROBE = (
    "import json, numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(json.dumps([mpi4py.__version__, numpy.__version__, MPI.Get_library_version()]))"
)
"""Imports mpi4py without starting MPI and prints which library it is linked with."""
STARTED = ("env", "I_MPI_DEBUG=2"), PROBE.replace("False", "True")
"""Starts Intel MPI, which then says which provider of libfabric it has taken."""


@dataclass(frozen=True)
class Ucx:
    """What `ucx_info` prints: version, transports of each device, every setting with its value."""

    version: Optional[str] = None
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def transports(self) -> set[str]:
        return {name for offered in self.devices.values() for name in offered}

    def knows(self, setting: str) -> bool:
        """Whether this UCX has a setting, by its last words: `ROCE_REACHABILITY_MODE`."""
        return any(key.endswith(setting) for key in self.settings)


@dataclass(frozen=True)
class Installed:
    """What answered. A missing version comes with its reason in `problems`."""

    versions: Mapping[str, Optional[str]] = field(default_factory=dict)
    """`open_mpi`, `ucx`, `mpi4py`, `numpy`, and `linked_with`: the MPI library of mpi4py."""
    ucx: Ucx = Ucx()
    orted: Optional[str] = None
    """Where the daemon is that mpirun starts on each node."""
    fabric: Optional[str] = None
    """The provider of libfabric that Intel MPI takes."""
    problems: Mapping[str, str] = field(default_factory=dict)
    stray: str = ""
    """File of another mpi4py or numpy, which this Python finds first and cannot load."""


def ask(run: Runner, *argv: str) -> str:
    """What a program prints through the environment that every rank gets."""
    shell = f'[ ! -r {PROFILE_FILE} ] || . {PROFILE_FILE}; exec "$@"'
    return run(["/bin/sh", "-c", shell, "sh", *argv]).stdout


def read_ucx(run: Runner) -> Ucx:
    try:
        # One call: -v prints the version, -d the devices, -c the settings.
        answer = ask(run, "ucx_info", "-v", "-d", "-c")
    except CommandError as error:
        return Ucx(problem=_cause(error))
    # `# Version 1.13.1` (1.13) and `# Library version: 1.16.0` (later).
    version = re.search(r"^#\s*(?:Library version|Version):?\s+(\d\S*)", answer, re.MULTILINE)
    settings = dict(re.findall(r"^(UCX_\w+)=(.*)$", answer, re.MULTILINE))
    return Ucx(version[1] if version else None, ucx_devices(answer), settings)


def ucx_devices(text: str) -> dict[str, list[str]]:
    """`ucx_info -d`: the transports of each device, in order."""
    found: dict[str, list[str]] = {}
    transport = ""
    for kind, name in re.findall(r"^#\s*(Transport|Device):\s*(\S+)", text, re.MULTILINE):
        if kind == "Transport":
            transport = name
        elif transport not in found.setdefault(name, []):
            found[name].append(transport)
    return found


def read(
    run: Runner, python: str, ucx: Optional[Ucx] = None, launcher: Launcher = OPEN_MPI
) -> Installed:
    """Ask mpirun, UCX (unless `ucx` is its answer of just now) and mpi4py."""
    problems: dict[str, str] = {}
    mpi = mpi4py = numpy = linked_with = orted = fabric = None
    stray = ""
    try:
        answer = ask(run, "mpirun", "--version")
        version = launcher.version.search(answer)
        mpi = version[1] if version else None
        if mpi is None:
            problems[launcher.key] = f"mpirun is not {launcher.name}: {answer.strip()[:80]!r}"
    except CommandError as error:
        problems[launcher.key] = _cause(error)
    try:
        # mpirun starts it on the other nodes, through the same environment.
        orted = ask(run, "sh", "-c", f"command -v {launcher.daemon}").strip() or None
    except CommandError:
        problems["orted"] = (
            "not on the path, so mpirun cannot start ranks here; reinstall the package that has it "
            "(Debian family openmpi-bin, RHEL family openmpi)"
        )
    ucx = ucx or read_ucx(run)
    if ucx.problem:
        problems["ucx"] = ucx.problem
    try:
        before, program = STARTED if launcher is HYDRA else ((), PROBE)
        probe = ask(run, *before, python, "-c", program)
        named = re.search(r"libfabric provider: (\S+)", probe)
        fabric = named[1] if named else None
        mpi4py, numpy, library = json.loads(probe.splitlines()[-1])
        linked_with = library.split(",")[0].strip()
    except (CommandError, ValueError, IndexError) as error:
        problems["mpi4py"] = _cause(error)
        files = re.findall(r'File "(/[^"\n]{1,300})", line', str(error))
        if files and not files[-1].startswith(OF_PACKAGES):
            stray = files[-1]
    versions = {
        launcher.key: mpi,
        "ucx": ucx.version,
        "mpi4py": mpi4py,
        "numpy": numpy,
        "linked_with": linked_with,
    }
    return Installed(versions, ucx, orted, fabric, problems, stray)


def _cause(error: Exception) -> str:
    """The line of an error with its cause: Python puts it last, programs first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Traceback" in str(error) else lines[0]


UCX_FILE, NCCL_FILE = "etc/ucx/ucx.conf", "etc/nccl.conf"
UCX_LINE = 198
"""UCX cuts longer lines of its file: INI_MAX_LINE of openucx/ucx src/ucs/config/ini.h."""
MLX5_CORE, ACCELERATED = "mlx5_core", ("rc_mlx5", "dc_mlx5")
"""Transports of UCX that drive an NVIDIA NIC directly; without them rc_verbs does, slowly."""
CONNECTX_8, CONNECTX_8_UCX = "1023", (1, 18)
"""PCI device, and the first UCX with it in its table of devices: openucx/ucx pull request 10088."""


def installed_checks(
    installed: Installed,
    rails: Sequence[Rail],
    transport: str,
    machine: Machine,
    launcher: Launcher = OPEN_MPI,
    *,
    check_mode: bool = False,
) -> list[Check]:
    """The promises of the layer that the installed software has to keep."""
    found = {name: installed.versions.get(name) for name in (launcher.key, "ucx", "mpi4py")}
    # Later ones launch by a daemon of another name: the preflight and the smoke test refuse them.
    if launcher is OPEN_MPI and (found["open_mpi"] or "").startswith("4."):
        found["orted"] = installed.orted
    checks = [
        Check(name, "installed", value, OK)
        if value is not None
        else Check(
            *(name, "installed", None, differs(check_mode), ""),
            installed.problems.get(name) or "it did not answer",
            by_hand=f"remove {installed.stray}" if name == "mpi4py" and installed.stray else "",
        )
        for name, value in found.items()
    ]
    linked = installed.versions.get("linked_with")
    if linked is not None:
        if launcher is HYDRA:
            why, here = (
                "Intel MPI takes no UCX, and so not the rails: docs/mpi.md",
                installed.fabric,
            )
            checks.append(compare("mpi_fabric", PROVIDER, here, check_mode=check_mode, reason=why))
        checks.append(
            compare(
                "mpi4py_library",
                launcher.library.format(found[launcher.key]),
                linked,
                check_mode=check_mode,
                reason="mpi4py loads another MPI than mpirun's: ranks would not meet",
            )
        )
    nics = {rail: machine.device_of(rail.interface) for rail in rails if transport == RC}
    if any(nic and nic.device_id == CONNECTX_8 for nic in nics.values()):
        version = installed.ucx.version or ""
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        wanted = ".".join(map(str, CONNECTX_8_UCX))
        here = wanted if numbers >= CONNECTX_8_UCX else version or None
        why = f"UCX before {wanted} does not know ConnectX-8 and drives it slowly: update UCX"
        checks.append(compare("ucx_nic", wanted, here, check_mode=check_mode, reason=why))
    for rail in rails:
        nic = nics.get(rail)
        offered = list(installed.ucx.devices.get(rail.ucx_device, ()))
        accelerated = nic is not None and nic.driver == MLX5_CORE
        goals = [
            name
            for name in offered
            if (name in ACCELERATED if accelerated else name.split("_")[0] == transport)
        ]
        wanted = " or ".join(ACCELERATED) if accelerated else transport
        here = ", ".join(goals or offered) or "not there"
        status = OK if goals else differs(check_mode)
        why = "" if goals else "ucx_info -d does not offer it; without address or link it is hidden"
        checks.append(Check("ucx_device", wanted, here, status, rail.ucx_device, why))
    return checks


def interface_with(run: Runner, address: str) -> str:
    """The interface that carries an address; empty where none does."""
    links = json.loads(run(("ip", "-N", "-j", "address", "show")).stdout or "[]")
    carrying = (
        link["ifname"]
        for link in links
        if any(each.get("local") == address for each in link.get("addr_info", []))
    )
    return next(carrying, "")


def _lines(values: Mapping[str, str], prefix: str) -> list[str]:
    """As UCX and NCCL read their files: without quotes."""
    return [f"{key}={value}" for key, value in values.items() if key.startswith(prefix)]


def _with_block(node: Node, name: str, lines: list[str]) -> list[FilePlan]:
    """At the beginning: UCX's sections hold for some processors alone, NCCL takes a first line."""
    before = node.read(name) or ""
    after = replace_block(before, lines, "mpi", first=True)
    return [node.edited(name, after)] if lines or "# BEGIN baremetal.mpi_roce mpi" in before else []


DECLARED = "mpi_stack_parameters"
FURTHER = ("openmpi-mca-params-override.conf", "pmix-mca-params.conf", "prte-mca-params.conf")
"""Files next to Open MPI's, which it reads as well."""


def parameter_checks(node: Node, mca_file: str, ours: Mapping[str, str]) -> list[Check]:
    """Open MPI's parameters as it reads them, and others that decide how ranks start and meet."""
    text = node.read(mca_file) or ""
    last = {each.name: each for each in environments.settings_in(text)}
    checks = []
    for name, value in ours.items():
        found = last.get(name)
        if found is None or found.value == value or found.place != "after":
            shown, mode = found and found.value, node.check_mode
            checks.append(compare("mpi_parameter", value, shown, subject=name, check_mode=mode))
            continue
        at = f"{mca_file}:{found.number}"
        why, step = f"{at} is below the managed block, and wins", f"remove it from {at}"
        pair = value, found.value
        checks.append(Check("mpi_parameter", *pair, FAILED, name, why, by_hand=step))
    directory = mca_file.rpartition("/")[0]
    paths = (mca_file, *(f"{directory}/{name}" for name in FURTHER))
    for path in paths if ours else ():  # Intel MPI reads none
        for each in environments.foreign_parameters(node.read(path) or "", ours):
            other = environments.conflicts_with(each.name, ours)
            why = f"{path}:{each.number} sets it" + (
                f", and Open MPI takes this or {other}, which is set for the cluster's networks"
                if other
                else ""
            )
            step = f"remove {each.name} from {path}:{each.number}, or declare it with {DECLARED}"
            pair = "not set", each.value
            checks.append(Check("mpi_parameter", *pair, FAILED, each.name, why, by_hand=step))
    return checks


def ucx_file_checks(node: Node, paths: Sequence[str], lines: Sequence[str]) -> list[Check]:
    """Lines of UCX's file that win over ours (the last one does), or set what we leave to UCX."""
    ours = dict(line.split("=", 1) for line in lines)
    checks = []
    for path in dict.fromkeys(path.lstrip("/") for path in paths):
        for each in environments.settings_in(node.read(path) or ""):
            wins = each.place == "after" and ours.get(each.name, each.value) != each.value
            new = each.place != "inside" and each.name not in ours
            if not each.name.startswith("UCX_") or "_LOG_" in each.name or not (wins or new):
                continue
            at = f"/{path}:{each.number}"
            why = f"{at} is below the managed block, and wins" if wins else f"{at} sets it"
            step = f"remove {each.name} from {at}; mpi_stack_environment declares variables"
            pair = ours.get(each.name, "not set"), each.value
            checks.append(Check("ucx_file", *pair, FAILED, each.name, why, by_hand=step))
    return checks


@dataclass(eq=False)
class Stack:
    """Environment, profile, programs and Open MPI's parameters.

    With `rc` nothing is written while a rail cannot be used: a cluster with half of its rails
    would be slow without a visible cause.
    """

    settings: environments.Settings
    mca_file: str
    """Open MPI's system-wide parameter file."""
    ucx_file: str
    """UCX's; a variable of the environment has precedence."""
    nccl_file: bool
    """Whether NCCL gets a file, for jobs that get no environment."""
    profile: str
    programs: Mapping[str, str]
    python: str
    gpus: int
    numa_cores: Mapping[str, Any] = field(default_factory=dict)
    """What a rankfile has of this host."""
    machine: Machine = field(default_factory=Machine, init=False)
    ucx: Ucx = field(default=Ucx(), init=False)
    nowhere: bool = field(default=False, init=False)
    """Whether the management address is on no interface, and the model names none."""
    lacking: Sequence[Check] = field(default=(), init=False)
    """A check for each rail without a usable RDMA port."""
    changes: bool = field(default=False, init=False)
    installed: Installed = field(default=Installed(), init=False)

    def plan(self, node: Node) -> Plan:
        if self.settings.transport == RC:
            self._find_rdma(node)
        self._find_management(node)
        files = self._files(node)
        self.changes = any(each.changed for each in files)
        return Plan(files)

    def _find_management(self, node: Node) -> None:
        """Where the model names no interface for it, and a setting of this host needs one."""
        settings = self.settings
        told = (settings.transport == RC and settings.rails) or settings.launcher is HYDRA
        if told and not settings.management_interface and settings.management_address:
            here = interface_with(node.look, settings.management_address)
            self.settings, self.nowhere = replace(settings, management_interface=here), not here

    def _find_rdma(self, node: Node) -> None:
        """The RDMA devices of this host, and what its UCX can do."""
        self.machine = survey()
        rails, self.lacking = rdma.with_ports(
            self.settings.rails, self.machine, check_mode=node.check_mode
        )
        failed = failures(self.lacking)
        if failed:
            raise PlanError("\n".join(check.line() for check in failed), failed)
        self.ucx = read_ucx(node.run)
        offered = (one for one in environments.CUDA_TRANSPORTS if one in self.ucx.transports)
        self.settings = replace(
            self.settings,
            rails=tuple(rails),
            cuda=tuple(offered) if self.gpus else (),
            reachability_mode=self.ucx.knows(environments.REACHABILITY.removeprefix("UCX_IB_")),
        )

    def _files(self, node: Node) -> list[FilePlan]:
        files = [node.file(PROFILE_FILE, self.profile.rstrip() + "\n")]
        if not self.lacking:
            # In check mode a device may be missing yet, and with it what these files will have.
            values = environments.environment(self.settings)
            text = environments.environment_text(values)
            files.insert(0, node.file(environments.ENVIRONMENT_FILE, text))
            ucx = self._ucx_lines()
            for path in dict.fromkeys((UCX_FILE, self.ucx_file)):
                files += _with_block(node, path, ucx)
            files += _with_block(node, NCCL_FILE, _lines(values, "NCCL_") if self.nccl_file else [])
        for name, content in sorted(self.programs.items()):
            path = f"{environments.PROGRAM_DIRECTORY}/{name}"
            files.append(node.record(path, content.rstrip() + "\n", mode=0o755))
        block = environments.parameter_lines(environments.parameters(self.settings))
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
        # UCX's former answer holds, unless its environment has changed.
        former = self.ucx if settings.transport == RC and (check_mode or not self.changes) else None
        self.installed = read(node.run, self.python, former, settings.launcher)
        result += installed_checks(
            *(self.installed, settings.rails, settings.transport, self.machine, settings.launcher),
            check_mode=check_mode,
        )
        if self.nowhere:
            why = "NCCL and Gloo would guess how ranks meet; name management.interface in the model"
            address = settings.management_address
            result.append(Check("mpi_management", address, "on no interface", FAILED, reason=why))
        for line in _lines(environments.environment(settings), "UCX_"):
            if len(line) >= UCX_LINE:
                name = line.partition("=")[0]
                why = "UCX cuts such lines: jobs without a login shell need TaskProlog for it"
                wanted = f"less than {UCX_LINE} characters"
                result.append(not_applicable("ucx_file", wanted, why, subject=name))
        result += hostfile.cores_checks(node, self.numa_cores if settings.slots else {})
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
        offered = None if ucx.problem else settings.cuda
        return result + rdma.cuda_check(self.gpus, offered, check_mode=check_mode)

    def returned(self) -> dict[str, Any]:
        ports = [rail.rdma for rail in self.settings.rails if rail.rdma is not None]
        return {
            "versions": dict(self.installed.versions),
            "environment": environments.environment(self.settings),
            "rdma": [asdict(port) for port in ports],
        }

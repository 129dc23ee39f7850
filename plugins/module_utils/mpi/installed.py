# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The installed MPI, UCX and mpi4py: read them, and check their versions, libraries and devices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ..core.checks import NOT_APPLICABLE, OK, Check, compare, differs
from ..core.commands import CommandError, Runner
from ..hardware import Machine
from .environment import PROFILE_FILE, PROVIDER, MpiRail
from .launch.launcher import HYDRA, OPEN_MPI, Launcher

RC = "rc"
PACKAGE_ROOTS = ("/usr/lib", "/opt/")
"""Directories in which packages and the collection install Python modules."""
PROBE = (
    "import json, numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(json.dumps([mpi4py.__version__, numpy.__version__, MPI.Get_library_version()]))"
)
"""Import mpi4py without MPI_Init, and print versions and the MPI library that it loads."""
INITIALIZED = ("env", "I_MPI_DEBUG=2"), PROBE.replace("False", "True")
"""The same after MPI_Init, where Intel MPI prints which libfabric provider it uses."""
MLX5_CORE, ACCELERATED = "mlx5_core", ("rc_mlx5", "dc_mlx5")
"""Transports of UCX that access an NVIDIA NIC directly; rc_verbs is slow on it."""
CONNECTX_8, CONNECTX_8_UCX = "1023", (1, 18)
"""PCI device ID, and the first UCX release that knows it: openucx/ucx pull request 10088."""
KNOWN_DATED = "2026-11-28"
KNOWN = {"open_mpi": (4, 1), "ucx": (1, 22)}
"""Last lines with known behaviour: tags of openucx/ucx; `launch/launcher` refuses Open MPI 5."""


@dataclass(frozen=True)
class Ucx:
    version: Optional[str] = None
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def transports(self) -> set[str]:
        return {name for offered in self.devices.values() for name in offered}

    def knows(self, setting: str) -> bool:
        """Whether this UCX has a setting with this suffix: `ROCE_REACHABILITY_MODE`."""
        return any(name.endswith(setting) for name in self.settings)


@dataclass(frozen=True)
class Installed:
    versions: Mapping[str, Optional[str]] = field(default_factory=dict)
    """`open_mpi` or `intel_mpi`, `ucx`, `mpi4py`, `numpy`, and `linked_with`, the MPI library that
    mpi4py loads. None if a version could not be read.
    """
    ucx: Ucx = Ucx()
    orted: Optional[str] = None
    """Path of the daemon that mpirun starts on each node."""
    fabric: Optional[str] = None
    problems: Mapping[str, str] = field(default_factory=dict)
    stray: str = ""
    """File of another mpi4py or numpy that comes first on the module path and cannot be loaded."""


def ask(run: Runner, *argv: str) -> str:
    """Output of a program in the environment of ranks."""
    shell = f'[ ! -r {PROFILE_FILE} ] || . {PROFILE_FILE}; exec "$@"'
    return run(["/bin/sh", "-c", shell, "sh", *argv]).stdout


def read_ucx(run: Runner) -> Ucx:
    try:
        # -v prints the version, -d the devices, -c the settings.
        output = ask(run, "ucx_info", "-v", "-d", "-c")
    except CommandError as error:
        return Ucx(problem=_cause(error))
    # `# Version 1.13.1` (1.13) and `# Library version: 1.16.0` (later).
    version = re.search(r"^#\s*(?:Library version|Version):?\s+(\d\S*)", output, re.MULTILINE)
    settings = dict(re.findall(r"^(UCX_\w+)=(.*)$", output, re.MULTILINE))
    return Ucx(version[1] if version else None, ucx_devices(output), settings)


def ucx_devices(text: str) -> dict[str, list[str]]:
    """Transports by device, in the order of `ucx_info -d`."""
    devices: dict[str, list[str]] = {}
    transport = ""
    for kind, name in re.findall(r"^#\s*(Transport|Device):\s*(\S+)", text, re.MULTILINE):
        if kind == "Transport":
            transport = name
        elif transport not in devices.setdefault(name, []):
            devices[name].append(transport)
    return devices


def read(
    run: Runner, python: str, ucx: Optional[Ucx] = None, launcher: Launcher = OPEN_MPI
) -> Installed:
    """Read mpirun, mpi4py, and UCX unless `ucx` was read before."""
    problems: dict[str, str] = {}
    mpi = mpi4py = numpy = linked_with = orted = fabric = None
    stray = ""
    try:
        output = ask(run, "mpirun", "--version")
        version = launcher.version.search(output)
        mpi = version[1] if version else None
        if mpi is None:
            problems[launcher.key] = f"mpirun is not {launcher.name}: {output.strip()[:80]!r}"
    except CommandError as error:
        problems[launcher.key] = _cause(error)
    try:
        # mpirun starts it on the other nodes, in the same environment.
        orted = ask(run, "sh", "-c", f"command -v {launcher.daemon}").strip() or None
    except CommandError:
        problems["orted"] = "not on the path, so mpirun cannot start ranks here; reinstall MPI"
    ucx = ucx or read_ucx(run)
    if ucx.problem:
        problems["ucx"] = ucx.problem
    try:
        before, program = INITIALIZED if launcher is HYDRA else ((), PROBE)
        probe = ask(run, *before, python, "-c", program)
        named = re.search(r"libfabric provider: (\S+)", probe)
        fabric = named[1] if named else None
        mpi4py, numpy, library = json.loads(probe.splitlines()[-1])
        linked_with = library.split(",")[0].strip()
    except (CommandError, ValueError, IndexError) as error:
        problems["mpi4py"] = _cause(error)
        files = re.findall(r'File "(/[^"\n]{1,300})", line', str(error))
        if files and not files[-1].startswith(PACKAGE_ROOTS):
            stray = files[-1]
    versions = {launcher.key: mpi, "ucx": ucx.version, "mpi4py": mpi4py, "numpy": numpy}
    versions["linked_with"] = linked_with
    return Installed(versions, ucx, orted, fabric, problems, stray)


def _cause(error: Exception) -> str:
    """The line of an error with its cause: the last of a Python traceback, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Traceback" in str(error) else lines[0]


def installed_checks(
    installed: Installed,
    rails: Sequence[MpiRail],
    transport: str,
    machine: Machine,
    launcher: Launcher = OPEN_MPI,
    *,
    check_mode: bool = False,
) -> list[Check]:
    nics = {rail: machine.device_of(rail.interface) for rail in rails if transport == RC}
    checks = [
        *version_checks(installed, launcher, check_mode),
        *library_checks(installed, launcher, check_mode),
    ]
    ucx = installed.ucx
    if any(nic and nic.device_id == CONNECTX_8 for nic in nics.values()):
        numbers = tuple(int(number) for number in re.findall(r"\d+", ucx.version or "")[:2])
        required = ".".join(map(str, CONNECTX_8_UCX))
        found = required if numbers >= CONNECTX_8_UCX else ucx.version
        reason = f"UCX before {required} does not know ConnectX-8 and is slow on it: update UCX"
        checks.append(compare("ucx_nic", required, found, check_mode=check_mode, reason=reason))
    for rail in rails:
        nic = nics.get(rail)
        accelerated = nic is not None and nic.driver == MLX5_CORE
        checks.append(device_check(ucx, rail, transport, accelerated, check_mode))
    return checks


def version_checks(installed: Installed, launcher: Launcher, check_mode: bool) -> Iterator[Check]:
    versions = {name: installed.versions.get(name) for name in (launcher.key, "ucx", "mpi4py")}
    # The daemon of Open MPI 5 has another name; the preflight and the smoke test refuse it.
    if launcher is OPEN_MPI and (versions["open_mpi"] or "").startswith("4."):
        versions["orted"] = installed.orted
    for name, version in versions.items():
        if version is not None:
            last = KNOWN.get(name)
            if last and tuple(map(int, re.findall(r"\d+", version)[:2])) > last:
                known = ".".join(map(str, last))
                reason = f"the last line known on {KNOWN_DATED} was {known}: read its notes"
                yield Check(name, "a known line", version, NOT_APPLICABLE, "", reason)
            else:
                yield Check(name, "installed", version, OK)
            continue
        hand = f"remove {installed.stray}" if name == "mpi4py" and installed.stray else ""
        reason = installed.problems.get(name) or "it printed no version"
        status = differs(check_mode)
        yield Check(name, "installed", None, status, reason=reason, by_hand=hand)


def library_checks(installed: Installed, launcher: Launcher, check_mode: bool) -> Iterator[Check]:
    """Check that mpi4py loads the MPI of mpirun, and that Intel MPI uses UCX."""
    linked_with = installed.versions.get("linked_with")
    if linked_with is None:
        return
    mode = check_mode
    if launcher is HYDRA:
        reason = "Intel MPI does not use UCX, and therefore not the rails: docs/mpi.md"
        yield compare("mpi_fabric", PROVIDER, installed.fabric, check_mode=mode, reason=reason)
    wanted = launcher.library.format(installed.versions.get(launcher.key))
    reason = "mpi4py loads another MPI than mpirun starts: ranks would not connect"
    yield compare("mpi4py_library", wanted, linked_with, check_mode=mode, reason=reason)


def device_check(
    ucx: Ucx, rail: MpiRail, transport: str, accelerated: bool, check_mode: bool
) -> Check:
    """Check that UCX offers a rail's device with the transport, accelerated on an NVIDIA NIC."""
    offered = list(ucx.devices.get(rail.ucx_device, ()))
    usable = [
        name
        for name in offered
        if (name in ACCELERATED if accelerated else name.split("_")[0] == transport)
    ]
    wanted = " or ".join(ACCELERATED) if accelerated else transport
    found, status = ", ".join(usable or offered) or "not there", OK
    reason = ""
    if not usable:
        status = differs(check_mode)
        reason = "ucx_info -d does not list it; UCX hides devices without address or link"
    return Check("ucx_device", wanted, found, status, rail.ucx_device, reason)

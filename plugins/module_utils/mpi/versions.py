# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the installed MPI says of itself: versions, transports, devices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Optional

from ..core.checks import FAILED, OK, PENDING, Check, compare
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from .environment import PROFILE_FILE, Rail

PROBE = (
    "import json, numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(json.dumps([mpi4py.__version__, numpy.__version__, MPI.Get_library_version()]))"
)
"""Imports mpi4py without starting MPI and says which library it is linked with."""


@dataclass(frozen=True)
class Ucx:
    """What `ucx_info` says: version, transports of each device, every setting with its value."""

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

    open_mpi: Optional[str] = None
    ucx: Ucx = Ucx()
    mpi4py: Optional[str] = None
    numpy: Optional[str] = None
    linked_with: Optional[str] = None
    orted: Optional[str] = None
    """Where the daemon is that mpirun starts on each node."""
    problems: Mapping[str, str] = field(default_factory=dict)

    def versions(self) -> dict[str, Optional[str]]:
        return {
            "open_mpi": self.open_mpi,
            "ucx": self.ucx.version,
            "mpi4py": self.mpi4py,
            "numpy": self.numpy,
            "linked_with": self.linked_with,
        }


def parse_mpirun_version(text: str) -> Optional[str]:
    """`mpirun (Open MPI) 4.1.4` to `4.1.4`."""
    found = re.search(r"\(Open MPI\)\s+(\S+)", text)
    return found.group(1) if found else None


def parse_ucx_version(text: str) -> Optional[str]:
    """`# Version 1.13.1` (1.13) and `# Library version: 1.16.0` (later) to the number."""
    found = re.search(r"^#\s*(?:Library version|Version):?\s+(\d\S*)", text, re.MULTILINE)
    return found.group(1) if found else None


def parse_ucx_devices(text: str) -> dict[str, list[str]]:
    """`ucx_info -d`: the transports of each device, in order."""
    found: dict[str, list[str]] = {}
    transport = ""
    for line in text.splitlines():
        field_ = re.match(r"#\s*(Transport|Device):\s*(\S+)", line)
        if field_ is None:
            continue
        if field_.group(1) == "Transport":
            transport = field_.group(2)
        elif transport not in found.setdefault(field_.group(2), []):
            found[field_.group(2)].append(transport)
    return found


def parse_ucx_settings(text: str) -> dict[str, str]:
    """`ucx_info -c`: the value that each setting has, from the environment or by default."""
    return dict(re.findall(r"^(UCX_\w+)=(.*)$", text, re.MULTILINE))


def ask(run: Runner, *argv: str) -> str:
    """What a program prints through the environment that every rank gets."""
    shell = f'[ ! -r {PROFILE_FILE} ] || . {PROFILE_FILE}; exec "$@"'
    return run(["/bin/sh", "-c", shell, "sh", *argv]).stdout


def read_ucx(run: Runner) -> Ucx:
    try:
        # One call: -v prints the version, -d the devices, -c the settings.
        answer = ask(run, "ucx_info", "-v", "-d", "-c")
    except CommandError as error:
        return Ucx(problem=_first_line(error))
    return Ucx(parse_ucx_version(answer), parse_ucx_devices(answer), parse_ucx_settings(answer))


def read(run: Runner, python: str, ucx: Optional[Ucx] = None) -> Installed:
    """Ask mpirun, UCX (unless `ucx` is what it has just said) and mpi4py."""
    problems: dict[str, str] = {}
    open_mpi = mpi4py = numpy = linked_with = orted = None
    try:
        answer = ask(run, "mpirun", "--version")
        open_mpi = parse_mpirun_version(answer)
        if open_mpi is None:
            problems["open_mpi"] = f"mpirun is not Open MPI: {answer.strip()[:80]!r}"
    except CommandError as error:
        problems["open_mpi"] = _first_line(error)
    try:
        # mpirun starts it on the other nodes, through the same environment.
        orted = ask(run, "sh", "-c", "command -v orted").strip() or None
    except CommandError:
        problems["orted"] = (
            "not on the path, so mpirun cannot start ranks here; reinstall the package that has it "
            "(Debian family openmpi-bin, RHEL family openmpi)"
        )
    ucx = ucx or read_ucx(run)
    if ucx.problem:
        problems["ucx"] = ucx.problem
    try:
        mpi4py, numpy, linked_with = json.loads(ask(run, python, "-c", PROBE))
        linked_with = linked_with.split(",")[0].strip()
    except (CommandError, ValueError) as error:
        problems["mpi4py"] = _first_line(error)
    return Installed(open_mpi, ucx, mpi4py, numpy, linked_with, orted, problems)


def _first_line(error: Exception) -> str:
    """The telling line of an error: Python puts it last, programs first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Traceback" in str(error) else lines[0]


def _present(name: str, found: Optional[str], reason: str, check_mode: bool) -> Check:
    if found is not None:
        return Check(name, "installed", found, OK)
    return Check(name, "installed", None, PENDING if check_mode else FAILED, "", reason)


def readback(
    installed: Installed, rails: Sequence[Rail], transport: str, *, check_mode: bool = False
) -> list[Check]:
    """The promises of the layer that the installed software has to keep."""
    problems = installed.problems
    missing = "it did not answer"
    checks = [
        _present("open_mpi", installed.open_mpi, problems.get("open_mpi", missing), check_mode),
        _present("ucx", installed.ucx.version, problems.get("ucx", missing), check_mode),
        _present("mpi4py", installed.mpi4py, problems.get("mpi4py", missing), check_mode),
    ]
    # Later versions launch by a daemon of another name, and say so themselves.
    if installed.open_mpi is not None and installed.open_mpi.startswith("4."):
        checks.append(
            _present("orted", installed.orted, problems.get("orted", missing), check_mode)
        )
    if installed.mpi4py is not None:
        linked = installed.linked_with or ""
        checks.append(
            compare(
                "mpi4py_library",
                "Open MPI",
                "Open MPI" if linked.startswith("Open MPI") else linked,
                check_mode=check_mode,
                reason="mpi4py is built for another MPI than mpirun: ranks would not meet",
            )
        )
    for rail in rails:
        offered = list(installed.ucx.devices.get(rail.ucx_device, ()))
        usable = any(name == transport or name.startswith(f"{transport}_") for name in offered)
        checks.append(
            compare(
                "ucx_device",
                transport,
                transport if usable else ", ".join(offered) or "not there",
                subject=rail.ucx_device,
                check_mode=check_mode,
                reason="ucx_info -d does not offer it; without address or link it is hidden",
            )
        )
    return checks

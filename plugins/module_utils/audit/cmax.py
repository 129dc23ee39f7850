# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run ClusterMAX's auditor (`cmax audit`) from its wheels, which are unpacked for this run only."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pwd
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.commands import CommandError
from ..core.machine import container
from ..hardware import survey
from ..hardware.inventory import MELLANOX, SOFTWARE
from ..mpi.launch.unit import as_user

NAMES = ("python3", *(f"python3.{minor}" for minor in range(15, 9, -1)))
OLDEST = (3, 10)
"""The oldest Python of cmax 0.2.1 (Requires-Python of its wheel)."""
NOWHERE = "http://127.0.0.1:9"
"""A proxy that refuses connections: cmax asks ipinfo.io where the cluster is, with curl."""
PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
MOST_OBSERVED = 300
MOST_VERDICTS = 500
EVALUATE_S = 60.0

EVALUATE = """
import json, sys
from pathlib import Path
from cmax import audit_report, security
[values] = Path(sys.argv[1]).glob("*/*/audit/audit.values.json")
target = security.detect_target(sys.argv[2])
checks = audit_report.evaluate(
    json.loads(values.read_text()),
    security.find_runtime_root(None),
    harness=target.harness,
    environment=target.environment,
)
rows = [{"key": c.key, "verdict": c.status, "observed": str(c.observed)} for c in checks]
print(json.dumps(rows))
"""
"""The report of cmax as data: its command prints text only."""


class AuditError(Exception):
    """The auditor could not run, or its result has another form; the text has the remedy."""


@dataclass(frozen=True)
class Options:
    wheels: Mapping[str, Mapping[str, str]]
    """Wheels by file name, each with `sha256` and `content` (base64)."""
    slurm: bool
    user: str
    time_limit_s: float
    internet: bool


def interpreter() -> str:
    """The first Python that cmax supports. Raises AuditError."""
    for name in NAMES:
        path = commands.find_program(name)
        program = "import sys; print(*sys.version_info[:2])"
        answer = commands.run([path, "-c", program], check=False) if path else None
        words = answer.stdout.split() if answer and answer.rc == 0 else []
        if len(words) == 2 and all(map(str.isdigit, words)) and (*map(int, words),) >= OLDEST:
            return str(path)
    raise AuditError("no Python 3.10 or later: install one, such as python3.12 on EL 9")


def target(slurm: bool, root: Path = Path("/")) -> str:
    """The option of cmax for this host."""
    return "slurm" if slurm else "container" if container(root) else "standalone"


def node(root: Path = Path("/")) -> dict[str, Any]:
    """What explains verdicts about this node: whether it is a container, and its devices.

    A container sees the PCI devices of its host. Raises SurveyError.
    """
    machine = survey(root / "sys")
    cards = [
        one.pci for one in machine.functions.values() if one.network and one.vendor == MELLANOX
    ]
    devices = [port.name for port in machine.ports if port.name and port.kind != SOFTWARE]
    return {
        "container": container(root) is not None,
        "gpus": len(machine.gpus),
        "rdma_nics": max(len(cards), len(devices)),
    }


def audit(options: Options, root: Path = Path("/")) -> dict[str, Any]:
    """Run the auditor and return its verdicts. Raises AuditError and CommandError."""
    try:
        account = pwd.getpwnam(options.user)
    except KeyError as error:
        raise AuditError(f"user {options.user} does not exist (--tags ssh creates it)") from error
    python, of = interpreter(), target(options.slurm, root)
    umask = os.umask(0o022)  # so that the user can read the wheels
    directory = Path(
        tempfile.mkdtemp(prefix="baremetal-mpi-roce-audit-", dir=str(root / "var/tmp"))
    )
    try:
        _unpack(options.wheels, directory)
        (directory / "bin").mkdir()
        (directory / "bin/python3").symlink_to(python)
        for name in ("runs", "home"):
            (directory / name).mkdir(mode=0o700)
            os.chown(directory / name, account.pw_uid, account.pw_gid)
        directory.chmod(0o755)
        environment = _environment(options, directory, account.pw_dir)
        command = [python, "-m", "cmax.cli", "audit", f"--{of}", "--yes"]
        _run(options.user, environment, command, options.time_limit_s)
        evaluate = [python, "-c", EVALUATE, str(directory / "runs"), of]
        printed = _run(options.user, environment, evaluate, EVALUATE_S)
        return {"target": of, "python": python, "verdicts": verdicts(printed)}
    finally:
        os.umask(umask)
        shutil.rmtree(directory, ignore_errors=True)


def _unpack(wheels: Mapping[str, Mapping[str, str]], directory: Path) -> None:
    for name, wheel in wheels.items():
        content = base64.b64decode(wheel["content"])
        actual = hashlib.sha256(content).hexdigest()
        if actual != wheel["sha256"]:
            raise AuditError(f"{name} has SHA-256 {actual}, not {wheel['sha256']}: run again")
        archive = directory / "wheel.zip"
        archive.write_bytes(content)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(directory / "lib")
        archive.unlink()


def _environment(options: Options, directory: Path, home: str) -> dict[str, str]:
    values = {
        "PATH": f"{directory}/bin:{commands.search_path()}",
        "PYTHONPATH": f"{directory}/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CLUSTERMAX_RUNS_ROOT": f"{directory}/runs",
        # Logins to other nodes need the keys of the user; other checks leave files at home.
        "HOME": home if options.slurm else f"{directory}/home",
        "USER": options.user,
        "LOGNAME": options.user,
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }
    return values if options.internet else {**values, **dict.fromkeys(PROXIES, NOWHERE)}


def _run(user: str, environment: Mapping[str, str], argv: list[str], limit_s: float) -> str:
    variables = [f"{key}={value}" for key, value in environment.items()]
    # As root, there is no other user to become.
    command = ["env", "-i", *variables, *argv]
    command = command if user == "root" else as_user(user, command)
    return commands.run(command, timeout_s=limit_s, popen={"cwd": "/"}).stdout


def verdicts(printed: str) -> list[dict[str, str]]:
    """The verdicts that EVALUATE printed, within limits. Raises AuditError."""
    try:
        rows = json.loads(printed.strip().rpartition("\n")[2])
        found = [
            {**{key: str(row[key])[:80] for key in ("key", "verdict")}, "observed": row["observed"]}
            for row in rows[: MOST_VERDICTS + 1]
        ]
        found = [{**row, "observed": str(row["observed"])[:MOST_OBSERVED]} for row in found]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise AuditError(f"cmax printed no verdicts: {printed[-200:]!r}") from error
    if not 0 < len(found) <= MOST_VERDICTS:
        raise AuditError(f"cmax printed {len(found)} verdicts, not 1 to {MOST_VERDICTS}")
    return found


def tried(options: Options, root: Path = Path("/")) -> tuple[Optional[dict[str, Any]], str]:
    """The result, or None and the reason why there is none."""
    try:
        return audit(options, root), ""
    except (AuditError, CommandError, OSError, zipfile.BadZipFile) as error:
        return None, str(error)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The driver's parts: the module that runs, the one on disk, the fabric manager, its services."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional

from ..commands import CommandError, Runner
from ..hardware import tree
from .found import Driver, Service

OPEN = "Open Kernel Module"
OPEN_LICENCE = "Dual MIT/GPL"
_VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)?")
PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState", "Result")


def read_driver(run: Runner, root: Path) -> Driver:
    kernel = tree.text(root / "proc/sys/kernel/osrelease") or os.uname().release
    about = tree.text(root / "proc/driver/nvidia/version")
    version, error = _fabric_manager(run)
    licence = _modinfo(run, "license")
    return Driver(
        module=tree.text(root / "sys/module/nvidia/version"),
        open=OPEN in about if about else None,
        on_disk=_modinfo(run, "version"),
        on_disk_open=licence == OPEN_LICENCE if licence else None,
        fabric_manager=version,
        fabric_manager_error=error,
        kernel=kernel,
    )


def _modinfo(run: Runner, field: str) -> str:
    """A field of the module that modprobe would load; nothing where there is none."""
    try:
        result = run(["modinfo", "-F", field, "nvidia"], check=False)
    except CommandError:
        return ""
    return result.stdout.strip().splitlines()[0] if result.rc == 0 and result.stdout.strip() else ""


def _fabric_manager(run: Runner) -> tuple[str, str]:
    """Its version, or why that is not known."""
    try:
        result = run(["nv-fabricmanager", "--version"], check=False)
    except CommandError as error:
        return "", str(error)
    match = _VERSION.search(result.stdout + result.stderr)
    if match is None:
        said = " ".join((result.stdout + result.stderr).split()) or "nothing"
        return "", f"nv-fabricmanager --version: exit status {result.rc}, it printed {said[:200]}"
    return match.group(), ""


def read_services(run: Runner, names: tuple[str, ...]) -> list[Service]:
    """Units of systemd, in the order of their names."""
    words = [word for each in PROPERTIES for word in ("-p", each)]
    try:
        result = run(["systemctl", "show", *words, *names])
    except CommandError as error:
        return [Service(name, error=str(error)) for name in names]
    found = [_service(block) for block in result.stdout.split("\n\n")]
    known = {service.name: service for service in found if service is not None}
    silent = "systemctl show said nothing about it"
    return [known.get(name, Service(name, error=silent)) for name in names]


def _service(block: str) -> Optional[Service]:
    values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    if not values.get("Id"):
        return None
    return Service(
        name=values["Id"],
        load=values.get("LoadState", ""),
        active=values.get("ActiveState", ""),
        enabled=values.get("UnitFileState", ""),
        result=values.get("Result", ""),
    )

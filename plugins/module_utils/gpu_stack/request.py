# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is asked for: the set, the model and the options of the module, validated together."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from .. import gpu
from ..dataclass import dataclass
from ..node.part import PlanError
from ..software import SoftwareError, SoftwareSet, read_software
from .bindings import unpacked
from .boot import AUTO

PYNVML = Path("/usr/local/libexec/baremetal-mpi-roce/pynvml.py")


@dataclass(frozen=True)
class Request:
    software: SoftwareSet
    gpus: Sequence[Mapping[str, Any]]
    rails: Sequence[Mapping[str, Any]]
    keys: Mapping[str, bytes]
    hardware_root: Path
    bindings: str
    """Text of pynvml.py; empty: what is on the node stays."""
    pynvml: Path
    gpudirect: str = AUTO
    allow_downgrade: bool = False
    under_jobs: bool = False
    reload: bool = False
    fabric_wait_s: float = 0.0
    health: Optional[Mapping[str, Any]] = None

    def wanted(self) -> gpu.Wanted:
        """What the GPUs are to be; thresholds that nobody gave are the published ones."""
        driver = self.software.driver
        if driver is None:
            raise PlanError("the set has no software.driver")
        given = {key: value for key, value in (self.health or {}).items() if value is not None}
        if "xids" in given:
            given["xids"] = frozenset(given["xids"])
        return gpu.Wanted(
            driver=driver.version,
            gpus=self.gpus,
            rails=self.rails,
            open_modules=driver.modules == "open",
            gpudirect=self.gpudirect,
            **given,
        )


def from_options(options: Mapping[str, Any]) -> Request:
    """Raises PlanError with every finding."""
    findings = []
    software: Optional[SoftwareSet] = None
    try:
        software = read_software(options["software"])
    except SoftwareError as error:
        findings.append(str(error))
    keys = {}
    for name, text in options["keys"].items():
        try:
            keys[name] = base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError) as error:
            findings.append(f"keys.{name}: not in base64 ({error})")
    bindings = ""
    try:
        bindings = unpacked(options["nvml_bindings"]) if options["nvml_bindings"] else ""
    except PlanError as error:
        findings.append(str(error))
    root = Path(options["hardware_root"])
    if not root.is_dir():
        findings.append(f"hardware_root {root}: no such directory. Write / for the machine itself")
    if options["gpudirect"] not in gpu.GPUDIRECT:
        findings.append(
            f"gpudirect: {options['gpudirect']!r} is none of {', '.join(gpu.GPUDIRECT)}"
        )
    if options["fabric_wait"] < 0:
        findings.append(f"fabric_wait: {options['fabric_wait']} is less than 0 seconds")
    if findings or software is None:
        raise PlanError("\n".join(findings))
    return Request(
        software=software,
        gpus=options["gpus"],
        rails=options["rails"],
        keys=keys,
        hardware_root=root,
        bindings=bindings,
        pynvml=PYNVML,
        gpudirect=options["gpudirect"],
        allow_downgrade=options["allow_downgrade"],
        under_jobs=options["change_under_jobs"],
        reload=options["reload_driver"],
        fabric_wait_s=options["fabric_wait"],
        health=options["health"],
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the variable `cluster_software` to a set, or to every reason why there can be none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from ..schema.findings import Findings, Path, RefusedError
from ..schema.kinds import check
from . import defaults
from .compatibility import REFUSED, judge
from .keys import SOFTWARE, VARIABLE
from .rules import check_software
from .software_set import DOCA, Driver, Rdma, SoftwareSet, Source


class SoftwareError(RefusedError):
    """The set is refused."""

    what = f"{VARIABLE} cannot be installed"


def read_software(value: Optional[Mapping[str, Any]]) -> SoftwareSet:
    """The set that `value` describes; None and {} are the defaults. Raises SoftwareError."""
    findings = Findings()
    checked = check(SOFTWARE, {} if value is None else value, findings, (VARIABLE,))
    software = finish(checked, findings, (VARIABLE,))
    if software is not None:
        refuse(software, findings, (VARIABLE,))
    if software is None or findings:
        raise SoftwareError(findings.found)
    return software


def finish(checked: Any, findings: Findings, path: Path) -> Optional[SoftwareSet]:
    """The set of a value that went through `check`; None where anything was found in it."""
    if checked is None:
        return None
    check_software(checked, findings, path)
    return _software(checked) if findings.clean(path) else None


def refuse(software: SoftwareSet, findings: Findings, path: Path) -> None:
    """Versions that are known not to go together, wherever they are installed."""
    for judgement in judge(software):
        if judgement.status == REFUSED:
            findings.add(
                f"software.{judgement.rule}",
                (*path, *judgement.key),
                judgement.problem,
                judgement.remedy,
            )


def _software(value: dict[str, Any]) -> SoftwareSet:
    rdma, driver = value["rdma"], value["driver"]
    profile = rdma["profile"] or (defaults.DOCA_PROFILE if rdma["source"] == DOCA else "")
    return SoftwareSet(
        kernel=value["kernel"],
        rdma=Rdma(rdma["source"], rdma["version"], profile),
        driver=Driver(**driver) if driver else None,
        cuda=value["cuda"],
        dcgm=value["dcgm"],
        gdrcopy=value["gdrcopy"],
        nccl=value["nccl"],
        repositories={
            name: Source(**entry) for name, entry in value["repositories"].items() if entry
        },
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The software set as every host of an inventory has it: one that can be installed.

A model gives one to group `all`. Written by hand, or overridden for a group, it was checked by
nobody. Groups may differ: a launcher has no driver, a mirror serves one family. Compute hosts may
not differ in what a job meets on all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import some
from ...module_utils.software.compatibility import REFUSED
from ...module_utils.software.software_set import SoftwareSet
from ..schema.findings import Findings
from ..schema.kinds import check
from .software import finish, refuse
from .software_keys import SOFTWARE, VARIABLE
from .software_rules import judge

OF_A_HOST = ("kernel", "repositories")
"""What compute hosts may differ in: two families have two kernels and two repositories."""


@dataclass(frozen=True)
class Holder:
    """A host, and its `cluster_software` (None where it has none)."""

    name: str
    value: Any
    compute: bool = True


@dataclass
class _Version:
    value: Any
    software: Optional[SoftwareSet]
    compute: list[str] = field(default_factory=list)


def check_sets(holders: Iterable[Holder], findings: Findings) -> list[str]:
    """Findings for sets that cannot be installed and compute hosts that differ.

    Ten thousand hosts with the same mistake have it once. Returns what is doubtful or unknown of
    the sets, a line each.
    """
    versions: list[_Version] = []
    for holder in holders:
        version = next((known for known in versions if known.value == holder.value), None)
        if version is None:
            version = _Version(holder.value, _read(holder, findings))
            versions.append(version)
        if holder.compute:
            version.compute.append(holder.name)
    _check_same(versions, findings)
    return _doubts(versions)


def _read(holder: Holder, findings: Findings) -> Optional[SoftwareSet]:
    path = (holder.name, VARIABLE)
    value = {} if holder.value is None else holder.value
    # Its own findings: what is wrong with the host besides hides nothing that is wrong here.
    own = Findings()
    software = finish(check(SOFTWARE, value, own, path), own, path)
    if software is not None:
        refuse(software, own, path)
    findings.found.extend(own.found)
    return software


def _check_same(versions: list[_Version], findings: Findings) -> None:
    """Compared is what a set says: it can be written in several ways."""
    alike: dict[str, list[str]] = {}
    values: dict[str, dict[str, Any]] = {}
    for version in versions:
        if version.software is not None and version.compute:
            value = version.software.as_variable()
            shared = {key: item for key, item in value.items() if key not in OF_A_HOST}
            text = json.dumps(shared, sort_keys=True)
            alike.setdefault(text, []).extend(version.compute)
            values[text] = shared
    if len(alike) < 2:
        return
    usual = max(alike, key=lambda text: len(alike[text]))
    for text, names in alike.items():
        for key, wanted in values[usual].items():
            if values[text][key] != wanted:
                also = f" (also on {some(names[1:], 3)})" if names[1:] else ""
                findings.add(
                    "software.hosts_differ",
                    (names[0], VARIABLE, key),
                    f"{json.dumps(values[text][key])}{also}, but {json.dumps(wanted)} on "
                    f"{some(alike[usual], 3)}: a job meets one version on all its nodes",
                    f"Set {VARIABLE} once, for group compute; {' and '.join(OF_A_HOST)} may differ",
                    value=(values[text][key], wanted),
                )


def _doubts(versions: list[_Version]) -> list[str]:
    lines = [
        f"{judgement.status}: {judgement.line()}"
        for version in versions
        if version.software is not None
        for judgement in judge(version.software)
        if judgement.status != REFUSED
    ]
    return list(dict.fromkeys(lines))

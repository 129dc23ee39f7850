# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an inventory says of switches, compiled by a model or written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.schema.findings import Findings
from ...module_utils.schema.kinds import check
from ..fabric.keys import ASICS, check_asics, check_ports

PORTS, CHIPS = "cluster_ports", "cluster_asics"
VARIABLES = (PORTS, CHIPS)


def check_switches(switches: Iterable[tuple[str, Mapping[str, Any]]], findings: Findings) -> None:
    """Findings for ports and chips that no layer could read: by switch and its variables."""
    seen: list[Any] = []
    for name, variables in switches:
        _check_ports(name, variables, findings)
        chips = variables.get(CHIPS)
        # Group `all` has them: one mistake is told once.
        if CHIPS in variables and chips not in seen:
            seen.append(chips)
            own = Findings()
            read = check(ASICS, chips, own, (name, CHIPS))
            check_asics(read or {}, own, (name, CHIPS))
            findings.found.extend(own.found)


def _check_ports(name: str, variables: Mapping[str, Any], findings: Findings) -> None:
    if PORTS not in variables:
        return
    own = Findings()
    check_ports(variables[PORTS], own, (name, PORTS))
    findings.found.extend(own.found)

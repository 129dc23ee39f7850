# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tests assert of findings: line, code, place and value of each, and none of the words."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import (
    Finding,
    dotted,
)


def brief(findings: Iterable[Finding], below: int = 0) -> list[str]:
    """`6 qos.rail_mtu rails.mtu (9216, 9198)`. `below`: that much of each path is left out."""
    return [_brief(finding, below) for finding in findings]


def _brief(finding: Finding, below: int) -> str:
    value = finding.value
    # Of what should not be a section or a list, its content says nothing more.
    shown = type(value).__name__ if isinstance(value, (dict, list)) else repr(value)
    line = "" if finding.line is None else str(finding.line)
    place = dotted(finding.path[below:])
    return " ".join(filter(None, [line, finding.code, place, "" if value is None else shown]))

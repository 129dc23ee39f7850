# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results that other layers read: those registered by the roles switch_qos and roce_rails.

The names are those of `register` in the roles' tasks, and are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

SWITCH = "switch_qos_state"
"""Registered by the role switch_qos for steps `plan` and `apply`."""
RAILS = "roce_rails_state"
"""Registered by the role roce_rails."""


@dataclass(frozen=True)
class SwitchResult:
    """The last result of switch_qos for one switch; empty if it has not run."""

    differs: bool = False
    applied: bool = False
    problem: str = ""
    """Why the switch could not be planned, or cannot implement the contract."""
    report: Optional[Mapping[str, Any]] = None
    """`SwitchReport.as_dict()`"""
    reason: str = ""
    """Why there is no report: the first line of the problem, or of Ansible's message."""

    @classmethod
    def of(cls, variables: Mapping[str, Any]) -> SwitchResult:
        state = variables.get(SWITCH) or {}
        return cls(
            differs=bool(state.get("differs")),
            applied=bool(state.get("applied")),
            problem=str(state.get("problem") or ""),
            report=state.get("report"),
            reason=failure_of(state),
        )

    def ports_up(self) -> set[str]:
        ports = (self.report or {}).get("ports") or []
        return {port["name"] for port in ports if port.get("up")}


def failure_of(state: Mapping[str, Any]) -> str:
    """Why a registered result has no data, in one line."""
    text = str(state.get("problem") or state.get("msg") or "").strip()
    return text.partition("\n")[0]

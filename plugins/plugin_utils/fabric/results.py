# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results that other layers read. Their names are those of `register` in the roles, and public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RAILS, UNDERLAY = "roce_rails_state", "switch_qos_underlay"


def switch_result(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = variables.get("switch_qos_state") or {}
    return found


def failure_of(state: Mapping[str, Any]) -> str:
    """Why a registered result has no data: the first line of its problem or message."""
    text = str(state.get("problem") or state.get("msg") or "").strip()
    return text.partition("\n")[0]

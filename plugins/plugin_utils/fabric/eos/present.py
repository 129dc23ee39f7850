# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was read of one switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from ....module_utils.core.dataclass import dataclass

SESSION_PREFIX = "baremetal-"
"""Configuration sessions of this collection begin so."""


@dataclass(frozen=True)
class Present:
    version: str
    """Model and release."""
    running: str
    startup: str
    interfaces: Mapping[str, Mapping[str, Any]]
    """`interfaceStatuses` of `show interfaces status`."""
    neighbours: Optional[tuple[Mapping[str, Any], ...]]
    """`lldpNeighbors` of `show lldp neighbors`; None where LLDP is off."""
    unconfirmed: bool = False
    """Its own change is in force and waits to be confirmed: it is not saved yet."""


def sessions(detail: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of `show configuration sessions detail`, by name. What is no session is none."""
    found = detail.get("sessions")
    named = found.items() if isinstance(found, dict) else ()
    return {str(name): state for name, state in named if isinstance(state, dict)}


def session_with_timer(detail: Mapping[str, Any]) -> str:
    """Who waits to be confirmed, of `show configuration sessions detail`; empty: nobody.

    Up to EOS 4.31 the session itself says so, from 4.32 on it stands beside the sessions.
    """
    name = detail.get("commitTimerSessionName")
    if name:
        return str(name)
    for session, state in sessions(detail).items():
        if state.get("state") == "pendingCommitTimer":
            return str(session)
    return ""


def abandoned_sessions(detail: Mapping[str, Any]) -> list[str]:
    """Own ones that were opened and neither committed nor aborted: EOS has room for a few."""
    return [
        name
        for name, state in sessions(detail).items()
        if name.startswith(SESSION_PREFIX) and state.get("state") == "pending"
    ]

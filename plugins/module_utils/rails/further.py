# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a run does on the rails besides their network configuration, as far as it knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..checks import Check


class Further(Protocol):
    """Planned with the rails, done once each has its name, before the network service sets it up.

    A NIC may take its link down for a moment when its settings change; the run waits for it anyway.
    """

    def look(self, interfaces: Mapping[str, str], reached_by: Mapping[str, str]) -> None:
        """Read everything. `interfaces`: what each rail is called now. `reached_by`: interfaces
        by which this host is reached, and why."""

    @property
    def diff(self) -> list[dict[str, Any]]:
        """What would be set; empty when nothing differs."""

    def act(self, interfaces: Mapping[str, str]) -> Sequence[str]:
        """Set what differs. Returns the rails on which anything was written."""

    def checks(self, later: Mapping[str, str], *, check_mode: bool) -> list[Check]:
        """`later`: rails that get their name at the next boot only, and why."""

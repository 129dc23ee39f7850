# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The finding that stands in the way of later ones, so that one fault is told once."""

from __future__ import annotations

from ..checks import FAILED, PENDING, Check, not_applicable
from ..dataclass import dataclass


@dataclass
class Cause:
    """Filled while verifying, in the order of the parts: a driver that is not installed is not
    built, one that is not built does not run, and then no GPU answers."""

    name: str = ""

    def look(self, check: Check) -> None:
        """Take a check as the cause of what follows, if it found something and is the first."""
        if not self.name and check.status in (FAILED, PENDING):
            self.name = f"{check.name} {check.subject}".strip()

    def hides(self, name: str, wanted: object, subject: str = "") -> Check:
        """A check that cannot be made because of it. It has not passed."""
        return not_applicable(name, wanted, f"not read: see {self.name}", subject=subject)

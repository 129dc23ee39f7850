# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a rule about versions is, and what it says of a set on a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from ..dataclass import dataclass
from .distribution import Distribution
from .software_set import SoftwareSet

REFUSED, WARNED, UNKNOWN = "refused", "warned", "unknown"
STATUSES = (REFUSED, WARNED, UNKNOWN)


@dataclass(frozen=True)
class Node:
    """What is known of a node; nothing at all where only the inventory is read."""

    distribution: Optional[Distribution] = None
    kernel: str = ""
    """The kernel that has to run, `uname -r`."""


NOWHERE = Node()


@dataclass(frozen=True)
class Judgement:
    """One finding about one set."""

    rule: str
    status: str
    key: tuple[str, ...]
    """The key below `software` that it is about."""
    found: str
    reason: str
    remedy: str
    source: str

    @property
    def problem(self) -> str:
        return f"{self.found}: {self.reason} ({self.source})"

    def line(self) -> str:
        return f"software.{'.'.join(self.key)}: {self.problem}. {self.remedy}."


@dataclass(frozen=True)
class Rule:
    """`holds` returns the combination in words where the rule speaks of this set."""

    name: str
    status: str
    key: str
    when: str
    """The combination in general, for the page."""
    reason: str
    remedy: str
    source: str
    holds: Callable[[SoftwareSet, Node], Optional[str]]

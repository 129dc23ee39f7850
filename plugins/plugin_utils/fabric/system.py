# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interface that every switch system is spoken through.

Rendering, comparing and reporting are pure: they take data and give data, so that plans of a whole
fabric need no switch. Only `Switch` talks to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ...module_utils.core.dataclass import dataclass
from ...module_utils.schema.findings import Finding
from .intent import SwitchIntent
from .report import SwitchReport

OWNED = "BAREMETAL_MPI_ROCE"
"""What every object that belongs to this collection is called, or begins with. Objects of other
names are the operator's: they are neither changed nor removed."""


class SwitchError(Exception):
    """A switch refused, did not answer, or answered what cannot be: which, what, and the way out.

    Never holds a password or token.
    """


class WantedError(Exception):
    """The intent cannot be kept on this system or chip. `findings` has every reason.

    Raised by pure code, before a switch is spoken to.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text() for finding in self.findings))


@dataclass(frozen=True)
class Change:
    """One value that differs."""

    path: str
    """In the system's own words: `PORT_QOS_MAP|Ethernet0 pfc_enable`."""
    found: Any
    """None: not there."""
    wanted: Any
    """None: it goes."""


@dataclass(frozen=True)
class Impact:
    """What applying a difference costs those who use the switch."""

    ports_down: tuple[str, ...] = ()
    """They go down and come up again."""
    losses: tuple[str, ...] = ()
    """Other costs, one sentence each: `PFC off for a moment on 64 ports: packets can be lost`."""

    @property
    def level(self) -> str:
        """`none`, `loss` or `bounce`."""
        return "bounce" if self.ports_down else "loss" if self.losses else "none"


@dataclass(frozen=True)
class Difference:
    changes: tuple[Change, ...]
    impact: Impact
    before: str
    """What is there of what changes, as text for a unified diff; `after` the same as it will be."""
    after: str
    steps: Any
    """What the system's `Switch` applies: patches, an object, lines. Nobody else looks into it."""

    def __bool__(self) -> bool:
        return bool(self.changes)


class System(Protocol):
    """One system, without a connection."""

    name: str

    def wanted(self, intent: SwitchIntent) -> Any:
        """The intent as the system's own configuration; WantedError where it cannot be."""

    def difference(self, intent: SwitchIntent, wanted: Any, present: Any) -> Difference:
        """Empty when `present` keeps `wanted`, whatever the operator has besides.

        Rounding by hardware is tolerated. SwitchError where `present` cannot carry `wanted`.
        """

    def report(self, intent: SwitchIntent, present: Any) -> SwitchReport:
        """What the switch does, in the terms of the contract, for every port of the intent."""


class Applied(Protocol):
    """A difference that is in force and not yet kept: left alone, the switch itself undoes it."""

    def confirm(self) -> None:
        """Keep it, across reboots of the switch too. SwitchError if it is not kept."""

    def rollback(self) -> None:
        """Undo it now and wait until it is undone. SwitchError if it is not."""


class Switch(Protocol):
    """One switch, over its connection."""

    def read(self) -> Any:
        """All that `difference` and `report` look at, read from the device now. Changes nothing.

        Each call makes a connection of its own: a read after a change proves that the switch can
        still be reached.
        """

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        """Put a difference in force; the switch undoes it by itself after `confirm_s` unless told.

        On SwitchError nothing of it is left in force, or the message says what is.
        """


@dataclass(frozen=True)
class Login:
    """How a switch is reached. Its text never shows the secrets."""

    address: str
    port: Optional[int] = None
    """None: the system's usual one."""
    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    """PEM of who signs the switch's certificate; empty: the authorities of this machine."""
    timeout_s: int = 30

    def __repr__(self) -> str:
        return f"Login({self.user}@{self.address}:{self.port or ''})"

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a change, in which calls they are sent, and how long they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional, Union

from ....module_utils.core.text import counted, natural, some
from ..session import LINKS_S
from .buffers import generated, release_of
from .reading import Present
from .tables import Config

Operation = dict[str, Any]

UNORDERED = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG")
"""Tables whose order `config apply-patch -i` leaves to the caller.

Upstream's own order takes 13 s of sorting and 9 changes per port (39 s and 18 on 202511), and more
than the square of that for several ports in one patch. With `-i` all of these tables are one
unordered change that is not validated. Ports are therefore down before it and come up after it,
which validates the whole."""
IGNORED = "".join(f" -i /{table}" for table in UNORDERED)
"""Also used for a rollback, to a state that was in force before."""
READ_S = 120
LEAST_PATCH_S, SLOWER = 120, 5
"""A guess: a switch may take this many times longer than its dry run suggests, or for undoing."""
CALL_S = 30


@dataclass(frozen=True)
class Pace:
    call_s: float
    """Time to start `config` and read the configuration, for the checkpoint and the patch."""
    change_s: float
    """Time to sort and apply one operation."""


BULK_FROM = 202605
"""First release whose sorter groups similar changes (sonic-utilities 92c565b3, JsonMoveGroup)."""
IN_BULK, ONE_BY_ONE = Pace(5, 0.2), Pace(6, 1.3)
"""For plans, and until an apply has measured the switch: with 64 ports on one core 25 s on
sonic-utilities 691b1bbc, 167 s for 333 changes on a092c970; 0.8 s to apply one is from
sonic-buildimage issue 22370."""
LOOK_S = 20
"""A guess: time until the links of a group are up again."""


def expected_s(steps: list[Step], version: str) -> int:
    """Of an apply, whose dry run takes as long as its first patch."""
    release = release_of(version)
    bulk = "master" in version if release is None else release >= BULK_FROM
    pace = IN_BULK if bulk else ONE_BY_ONE
    looks = LOOK_S * sum(step.look is not None for step in steps)
    return sum(step.takes_s(pace) for step in (*steps[:1], *steps)) + looks


@dataclass(frozen=True)
class PortsCheck:
    """Conditions after a step, before the next group of ports goes down."""

    rows: Config
    links: tuple[str, ...]

    def differing(self, present: Present) -> list[str]:
        """buffermgrd of the traditional model replaces rows of BUFFER_PG by its own, whose size is
        compared at the end."""
        return [
            f"{table}|{key}"
            for table, rows in self.rows.items()
            for key, row in rows.items()
            if present.config.get(table, {}).get(key) != row
            and not (table == "BUFFER_PG" and generated(key, present))
        ]


@dataclass(frozen=True)
class Patch:
    operations: list[Operation]
    ports: tuple[str, ...] = ()
    """Ports that it changes; empty for objects that ports share."""
    look: Optional[PortsCheck] = None

    @property
    def unordered(self) -> bool:
        return any(operation["path"].split("/")[1] in UNORDERED for operation in self.operations)

    def takes_s(self, pace: Pace) -> int:
        ordered = [op for op in self.operations if op["path"].split("/")[1] not in UNORDERED]
        changes = len(ordered) + self.unordered
        return math.ceil(pace.call_s + changes * pace.change_s)


@dataclass(frozen=True)
class PollInterval:
    """Adds the row PFC_WD|GLOBAL by `pfcwd interval`: a patch may change that row, but neither add
    nor remove it (generic_config_updater)."""

    milliseconds: str
    ports = ()
    look = None

    def takes_s(self, pace: Pace) -> int:
        return math.ceil(pace.call_s)


@dataclass(frozen=True)
class Save:
    """The configuration is in force, but a restart would lose it: config_db.json is older."""


Step = Union[Patch, PollInterval]


def options_of(step: Patch) -> str:
    return IGNORED if step.unordered else ""


def trial_of(steps: list[Step]) -> Patch:
    """The part that a dry run can test: the first patch, and the largest group."""
    first, *later = [step.operations if isinstance(step, Patch) else [] for step in steps]
    ports = ([op for op in each if op["path"].startswith("/PORT/")] for each in later)
    return Patch([*first, *max(ports, key=len, default=[])])


def limit_of(step: Step, pace: Pace) -> int:
    return max(LEAST_PATCH_S, SLOWER * step.takes_s(pace))


def most_of(batch: list[Step], pace: Pace) -> int:
    return sum(
        limit_of(step, pace) + CALL_S + (READ_S + LINKS_S if step.look else 0) for step in batch
    )


def batches_of(steps: list[Step]) -> list[list[Step]]:
    """Split steps after each one that is followed by a read."""
    found: list[list[Step]] = [[]]
    for number, step in enumerate(steps, 1):
        found[-1].append(step)
        if step.look and number < len(steps):
            found.append([])
    return found


def calls_of(batch: list[Step]) -> list[list[Step]]:
    """Group steps of the same ports into one command line: a lost controller leaves none down."""
    found: list[list[Step]] = []
    for step in batch:
        if found and step.ports and step.ports == found[-1][-1].ports:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def announced(number: int, batches: list[list[Step]], pace: Pace) -> str:
    batch = batches[number]
    ports = sorted({port for step in batch for port in step.ports}, key=natural)
    contents = ["objects"] if any(not step.ports for step in batch) else []
    contents += [f"{counted(len(ports), 'port')} ({some(ports, 4)})"] if ports else []
    which = f"batch {number + 1} of {len(batches)}: {' and '.join(contents)}"
    return f"{which}, {most_of(batch, pace)} s at most"

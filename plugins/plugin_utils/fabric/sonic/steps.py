# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch is told, call by call, and how long that takes it."""

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
"""Of RFC 6902, as `config apply-patch` takes it."""

UNORDERED = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG")
"""`config apply-patch -i` leaves these to us. In its own order upstream takes a port down, changes
its rows field by field, each time with a look at the whole configuration, and takes it up: 13 s of
sorting and 9 changes for each port (39 s and 18 on 202511), and for several ports in one patch more
than the square of it. With `-i` all of these tables are one change, in no order, and nothing looks
whether they fit: ports are down before and come up after it, which validates the whole."""
IGNORED = "".join(f" -i /{table}" for table in UNORDERED)
"""Also for going back: then two states are checked that were in force before."""
READ_S = 120
LEAST_PATCH_S, SLOWER = 120, 5
"""A guess: a switch may take so many times what its dry run lets expect, or for undoing it."""
CALL_S = 30
"""What a command may take besides."""


@dataclass(frozen=True)
class Pace:
    """How fast a switch is."""

    call_s: float
    """To start `config` and to read the configuration, twice: for the checkpoint and the patch."""
    change_s: float
    """For each operation, to sort it and to apply it."""


BULK_FROM = 202605
"""From this release on the sorter groups like changes (sonic-utilities 92c565b3, JsonMoveGroup)
and sleeps 1 s after each group. Before, each is a change, and starts `sonic-cfggen` twice."""
IN_BULK, ONE_BY_ONE = Pace(5, 0.2), Pace(6, 1.3)
"""Sorters timed on one core, with 64 ports: 25 s on 691b1bbc, 167 s for 333 changes on a092c970;
0.8 s to apply one is from sonic-buildimage issue 22370; to start programs is a guess. These are for
plans: an apply measures the switch by its dry run."""


def pace_of(version: str) -> Pace:
    release = release_of(version)
    bulk = "master" in version if release is None else release >= BULK_FROM
    return IN_BULK if bulk else ONE_BY_ONE


@dataclass(frozen=True)
class Look:
    """What must hold after a step, before the next group of ports goes down."""

    rows: Config
    """Of the group's ports."""
    links: tuple[str, ...]
    """That were up before."""

    def differing(self, present: Present) -> list[str]:
        """Rows that are not as they were set. buffermgrd of the traditional model replaces those of
        BUFFER_PG by its own, whose size is compared when all is in force."""
        return [
            f"{table}|{key}"
            for table, rows in self.rows.items()
            for key, row in rows.items()
            if present.config.get(table, {}).get(key) != row
            and not (table == "BUFFER_PG" and generated(key, present))
        ]


@dataclass(frozen=True)
class Patch:
    """One call of `config apply-patch`."""

    operations: list[Operation]
    ports: tuple[str, ...] = ()
    """All that it changes; empty: objects that ports share."""
    look: Optional[Look] = None

    @property
    def unordered(self) -> bool:
        return any(operation["path"].split("/")[1] in UNORDERED for operation in self.operations)

    def takes_s(self, pace: Pace) -> int:
        ordered = [op for op in self.operations if op["path"].split("/")[1] not in UNORDERED]
        changes = len(ordered) + self.unordered
        return math.ceil(pace.call_s + changes * pace.change_s)


@dataclass(frozen=True)
class PollInterval:
    """PFC_WD|GLOBAL where there is none: a patch may change that row, but neither add nor remove it
    (generic_config_updater), so it comes from `pfcwd interval`."""

    milliseconds: str
    ports = ()
    look = None

    def takes_s(self, pace: Pace) -> int:
        return math.ceil(pace.call_s)


@dataclass(frozen=True)
class Save:
    """All is in force, and config_db.json has it not: a restart of the switch would lose it."""


Step = Union[Patch, PollInterval]
LOOK_S = 20
"""A guess: until the links of a group are up again."""


def options_of(step: Patch) -> str:
    return IGNORED if step.unordered else ""


def trial_of(steps: list[Step]) -> Patch:
    """What can be tried before anything is in force: the first patch, and the largest group."""
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
    """Each ends where its ports are looked at."""
    found: list[list[Step]] = [[]]
    for place, step in enumerate(steps, 1):
        found[-1].append(step)
        if step.look and place < len(steps):
            found.append([])
    return found


def calls_of(batch: list[Step]) -> list[list[Step]]:
    """Steps of the same ports are one command line: a controller that is lost leaves none down."""
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
    what = ["objects"] if any(not step.ports for step in batch) else []
    what += [f"{counted(len(ports), 'port')} ({some(ports, 4)})"] if ports else []
    looking = sum(LOOK_S for step in batch if step.look)
    return (
        f"batch {number + 1} of {len(batches)}: {' and '.join(what)}, about "
        f"{sum(step.takes_s(pace) for step in batch) + looking} s, {most_of(batch, pace)} s at most"
    )

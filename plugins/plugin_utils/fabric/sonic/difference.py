# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs between a switch and the contract, what that costs, and the patches for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Optional, Union

from ....module_utils.dataclass import dataclass
from ....module_utils.fabric.intent import SwitchIntent
from ..system import Change, Difference, Impact, SwitchError
from . import tables
from .impact import impact
from .patches import Operation, patch
from .reading import SAVED_FILE, Present
from .tables import Config, Row, natural
from .target import target
from .wanted import Wanted


@dataclass(frozen=True)
class Patch:
    """One call of `config apply-patch`."""

    operations: list[Operation]


@dataclass(frozen=True)
class PollInterval:
    """PFC_WD|GLOBAL where there is none: a patch may change that row, but neither add nor remove it
    (generic_config_updater), so it comes from `pfcwd interval`."""

    milliseconds: str


@dataclass(frozen=True)
class Save:
    """All is in force, and config_db.json has it not: a restart of the switch would lose it."""


Step = Union[Patch, PollInterval]


def difference(intent: SwitchIntent, wanted: Wanted, present: Present) -> Difference:
    try:
        goal = target(wanted, present)
    except SwitchError as error:
        raise SwitchError(f"{intent.name}: {error}") from None
    before = {table: present.config.get(table, {}) for table in (*tables.OBJECTS, *tables.ROWS)}
    changes = tuple(_changes(before, goal.final))
    if not changes and not present.unconfirmed:
        lost = _lost_by_a_restart(wanted, present)
        if lost:
            unsaved = Change(SAVED_FILE, "not saved", "as it is in force")
            return Difference(
                (unsaved,), Impact(), _text(lost, "found"), _text(lost, "wanted"), Save()
            )
    return Difference(
        changes=changes,
        impact=impact(changes, before),
        before=_text(changes, "found"),
        after=_text(changes, "wanted"),
        steps=_steps(before, goal.bound, goal.final),
    )


def _lost_by_a_restart(wanted: Wanted, present: Present) -> tuple[Change, ...]:
    """What would differ if the switch came up with what is saved."""
    if present.saved is None or present.saved == present.config:
        return ()
    saved = {table: present.saved.get(table, {}) for table in (*tables.OBJECTS, *tables.ROWS)}
    try:
        goal = target(wanted, replace(present, config=present.saved))
    except SwitchError as error:
        return (Change(SAVED_FILE, str(error), None),)
    return tuple(_changes(saved, goal.final))


def _steps(before: Config, bound: Config, final: Config) -> list[Step]:
    steps: list[Step] = []
    interval = bound.get(tables.PFC_WD, {}).get(tables.GLOBAL)
    if interval and tables.GLOBAL not in before[tables.PFC_WD]:
        steps.append(PollInterval(interval["POLL_INTERVAL"]))
        rows = {**before[tables.PFC_WD], tables.GLOBAL: interval}
        before = {**before, tables.PFC_WD: rows}
    for old, new in ((before, bound), (bound, final)):
        operations = patch(old, new)
        if operations:
            steps.append(Patch(operations))
    return steps


def _changes(before: Config, after: Config) -> Iterator[Change]:
    for table in (*tables.OBJECTS, *tables.ROWS):
        old, new = before.get(table, {}), after.get(table, {})
        for key in sorted({*old, *new}, key=natural):
            yield from _row(f"{table}|{key}", old.get(key), new.get(key))


def _row(path: str, old: Optional[Row], new: Optional[Row]) -> Iterator[Change]:
    if old is None or new is None:
        yield Change(path, old, new)
    elif old != new:
        for field in sorted({*old, *new}, key=natural):
            if old.get(field) != new.get(field):
                yield Change(f"{path} {field}", old.get(field), new.get(field))


def _text(changes: tuple[Change, ...], side: str) -> str:
    lines: list[str] = []
    for change in changes:
        value = getattr(change, side)
        if isinstance(value, dict):
            fields = sorted(value.items(), key=lambda item: natural(item[0]))
            lines.extend(f"{change.path} {field}: {text}" for field, text in fields)
        elif value is not None:
            lines.append(f"{change.path}: {value}")
    return "".join(f"{line}\n" for line in lines)

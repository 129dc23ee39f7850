# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The generic config updater: checks and sorts a patch, and applies it change by change.

A patch that fails half-way is not undone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import yang
from .database import Config
from .patch import Operation, applied, difference, permitted, tokens
from .switch import Sonic

OBJECTS = (
    "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP", "MAP_PFC_PRIORITY_TO_QUEUE",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "WRED_PROFILE", "SCHEDULER", "BUFFER_POOL",
    "BUFFER_PROFILE",
)  # fmt: skip
"""Tables that others refer to: added before those, removed after them."""
BOUNCING = {
    "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP", "QUEUE", "BUFFER_PORT_INGRESS_PROFILE_LIST",
    "BUFFER_PORT_EGRESS_PROFILE_LIST",
}  # fmt: skip
"""Tables in which a port's row is changed while the port is down."""
BACKEND = ("BUFFER_PG", "BUFFER_PROFILE", "FLEX_COUNTER_TABLE")
"""Not compared after a patch: daemons write these tables as well."""
REFERENCE = {"WRED_PROFILE": ("QUEUE", "wred_profile")}
"""Objects whose fields can all be removed: the sorter handles each field separately."""


class UpdateError(Exception):
    """The patch was rejected, or failed half-way."""


TIME_UP = 124
"""Exit status of `timeout`."""


@dataclass(frozen=True)
class Cost:
    """Seconds that a patch takes on a real switch. The simulation does not wait."""

    sorting_s: float
    changes: int
    change_s: float

    @property
    def seconds(self) -> float:
        return self.sorting_s + self.changes * self.change_s


BULK_FROM = "202605"


def cost(old: Config, new: Config, ignored: Sequence[str], release: str) -> Cost:
    """Time of sorting, and of each change after it.

    Sorters were run on one core (sonic-utilities 691b1bbc, and a092c970 of 202511). A port with its
    rows in BOUNCING took 13 s and 9 changes (202511: 40 s and 18); 2 and 3 ports in one patch took
    32 and 74 s; objects took 1.3 s (5.9 s). 64 ports in patches that ignore those tables took 25 s
    in total (161 s for 320 changes). From 202605 on like changes are one, followed by a sleep of 1
    s (change_applier.py); before, `sonic-cfggen` ran twice, 0.8 s (sonic-buildimage issue 22370).
    """
    bulk = release >= BULK_FROM
    critical = set(_touched(old, new, BOUNCING - set(ignored)))
    rest = [
        tokens(operation["path"])
        for operation in difference(old, new)
        if tokens(operation["path"])[0] not in ignored
    ]
    rest = [parts for parts in rest if _port(parts) not in critical]
    shared = [parts for parts in rest if parts[0] in OBJECTS]
    changes = len({(parts[0], parts[-1]) for parts in rest}) if bulk else len(rest)
    changes += (9 if bulk else 18) * len(critical)
    changes += any(old.get(table) != new.get(table) for table in ignored)
    sorting_s = (13 if bulk else 40) * len(critical) ** 1.5 + (0.1 if bulk else 0.5) * len(rest)
    sorting_s += bool(shared) * (1.3 if bulk else 5.9)
    return Cost(sorting_s, changes, 1.0 if bulk else 0.8)


def _port(parts: Sequence[str]) -> str:
    return parts[-1 if parts[0] == "CABLE_LENGTH" else 1].split("|")[0] if parts[1:] else ""


def _touched(old: Config, new: Config, tables: Iterable[str]) -> Iterator[str]:
    for table in tables:
        before, after = old.get(table, {}), new.get(table, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                yield key.split("|")[0]


def apply_patch(
    switch: Sonic,
    patch: Sequence[Operation],
    *,
    dry_run: bool = False,
    fails: bool = True,
    ignored: Sequence[str] = (),
) -> int:
    """Apply a patch and return the number of changes. Raises UpdateError, or exceptions that the
    real updater does not catch either.

    `fails`: inject the configured faults. `ignored`: tables of `-i`.
    """
    old = switch.config()
    new = applied(patch, old)
    permitted(old, new)
    empty = [table for table, rows in new.items() if not rows]
    if empty:
        raise UpdateError(
            "localhost: given patch is not valid because it will result in empty tables "
            f"which is not allowed in ConfigDb. Table{'s'[: len(empty) - 1]}: {', '.join(empty)}"
        )
    named = {tokens(operation["path"])[0] for operation in patch}
    if named - set(yang.KEYS):
        raise UpdateError(
            "Given patch is not valid because it has changes to tables without YANG models"
        )
    try:
        yang.validate(_without(new, ignored))
    except yang.YangError as error:
        raise UpdateError(f"Given patch will produce invalid config. Error: {error}") from error
    price = cost(old, new, ignored, switch.release)
    if price.sorting_s > switch.limit_s:
        raise SystemExit(TIME_UP)  # interrupted while sorting: nothing was changed
    if not dry_run:
        steps = list(_steps(old, new, ignored))
        _apply(switch, old, new, steps, price, switch.faults.take("apply") if fails else None)
    return price.changes


def replace(switch: Sonic, target: Config, ignored: Sequence[str] = ()) -> None:
    apply_patch(switch, difference(switch.config(), target), fails=False, ignored=ignored)


def _without(config: Config, ignored: Sequence[str]) -> Config:
    return {table: rows for table, rows in config.items() if table not in ignored}


def _apply(
    switch: Sonic, old: Config, new: Config, steps: Sequence[Config], price: Cost, fault: Any
) -> None:
    if fault in ("partial", "rejected"):
        switch.log("fault", apply=fault)
    if fault == "rejected":
        raise UpdateError(
            "Given patch will produce invalid config. Error: Data Loading Failed:rejected by "
            "a fault of this simulation"
        )
    switch.log(
        "patch",
        operations=len(difference(old, new)),
        changes=price.changes,
        seconds=round(price.seconds),
    )
    applied_s = (price.seconds - price.sorting_s) / max(len(steps), 1)
    switch.pending = True
    before = old
    for number, step in enumerate(steps):
        if fault == "partial" and number >= max(1, len(steps) // 2):
            raise UpdateError(
                f"change {number + 1} of {len(steps)} failed by a fault of this simulation"
            )
        if price.sorting_s + number * applied_s > switch.limit_s:
            raise SystemExit(TIME_UP)  # changes made so far remain
        _log_stripped(switch, before, step)
        switch.write(before, step)
        before = step
    if _compared(switch.config()) != _compared(new):
        raise UpdateError(
            "localhost: after applying patch to config, there are still some parts not updated"
        )
    if fault == "cut":
        switch.log("fault", apply=fault, seconds=switch.faults.cut_s)
        switch.management.cut(switch.faults.cut_s)


def _compared(config: Config) -> dict[str, Any]:
    return {table: rows for table, rows in config.items() if table not in BACKEND}


def _log_stripped(switch: Sonic, before: Config, step: Config) -> None:
    for table in REFERENCE:
        for name, row in step.get(table, {}).items():
            if not row and before.get(table, {}).get(name):
                switch.log("stripped", object=f"{table}|{name}", bound="yes")


def _steps(old: Config, new: Config, ignored: Sequence[str]) -> Iterator[Config]:
    """Return the changes in an order that preserves references; some need a port to be down.

    Ignored tables come first, as one change that takes no port down.
    """
    state = {**_without(old, ignored), **{table: new.get(table, {}) for table in ignored}}
    if state != old:
        yield {table: rows for table, rows in state.items() if rows}
    for target in _states(state, new):
        pruned = {table: rows for table, rows in target.items() if rows}
        if pruned != state:
            yield pruned
            state = pruned


def _states(old: Config, new: Config) -> Iterator[Config]:
    state = copy.deepcopy(old)
    down = bounced(old, new)
    for port in down:
        state["PORT"][port]["admin_status"] = "down"
    yield copy.deepcopy(state)
    for table, (referring, field) in REFERENCE.items():
        for name in set(old.get(table, {})) - set(new.get(table, {})):
            if any(row.get(field) == name for row in old.get(referring, {}).values()):
                state[table][name] = {}
    yield copy.deepcopy(state)
    for table in OBJECTS:
        state[table] = {**state.get(table, {}), **copy.deepcopy(new.get(table, {}))}
    yield copy.deepcopy(state)
    for table in sorted({*old, *new} - set(OBJECTS)):
        state[table] = copy.deepcopy(new.get(table, {}))
        if table == "PORT":
            for port in down:
                state[table][port]["admin_status"] = "down"
        yield copy.deepcopy(state)
    for table in OBJECTS:
        state[table] = copy.deepcopy(new.get(table, {}))
    yield state
    yield copy.deepcopy(new)


def bounced(old: Config, new: Config) -> list[str]:
    """Return ports that are up, remain, and have a row that can change only while they are down."""
    touched = set(_touched(old, new, BOUNCING))
    return [
        port
        for port, row in old.get("PORT", {}).items()
        if port in touched and row.get("admin_status") == "up" and port in new.get("PORT", {})
    ]

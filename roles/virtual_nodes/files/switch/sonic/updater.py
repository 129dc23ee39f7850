# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The generic config updater: patches that are checked, sorted and applied one change at a time.

Nothing is undone when it fails half-way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
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
"""What others refer to: added before those, removed after them."""
BOUNCING = {
    "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP", "QUEUE", "BUFFER_PORT_INGRESS_PROFILE_LIST",
    "BUFFER_PORT_EGRESS_PROFILE_LIST",
}  # fmt: skip
"""A change of a port's row in these is made while the port is down."""
BACKEND = ("BUFFER_PG", "BUFFER_PROFILE", "FLEX_COUNTER_TABLE")
"""Not compared after a patch: daemons write them as well."""
OF_PORTS = (
    "PORT", "PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PFC_WD", "CABLE_LENGTH",
    "BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PORT_EGRESS_PROFILE_LIST",
)  # fmt: skip
REFERENCE = {"WRED_PROFILE": ("QUEUE", "wred_profile")}
"""Objects whose fields may all go: the sorter takes them one by one, bound or not."""


class UpdateError(Exception):
    """The patch was refused, or failed half-way."""


TIME_UP = 124
"""As `timeout` ends."""


def sorting_s(old: Config, new: Config) -> float:
    """How long upstream's sorter would take, which passes on no clock of this simulation.

    Fitted within a quarter to runs of it (sonic-utilities 691b1bbc, one core): 1, 2, 3 and 6 ports
    with their objects in one patch took 20, 48, 126 and 737 s, the objects of a switch of 64 ports
    35 s, and one port of it 9 to 12 s.
    """
    ports: set[str] = set()
    for table in OF_PORTS:
        for key in {**old.get(table, {}), **new.get(table, {})}:
            before, after = (each.get(table, {}).get(key, {}) for each in (old, new))
            if table == "CABLE_LENGTH":
                ports |= {port for port, _length in before.items() ^ after.items()}
            elif before != after:
                ports.add(key.split("|")[0])
    objects = any(old.get(table, {}) != new.get(table, {}) for table in OBJECTS)
    shared = 10 + 0.4 * len(new.get("PORT", {})) if objects else 0
    return shared + 10 * len(ports & new.get("PORT", {}).keys()) ** 2.25


def apply_patch(
    switch: Sonic, patch: Sequence[Operation], *, dry_run: bool = False, fails: bool = True
) -> None:
    """UpdateError or another exception as the real one lets them through.

    `fails`: with the faults that are set for the switch.
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
        yang.validate(new)
    except yang.YangError as error:
        raise UpdateError(f"Given patch will produce invalid config. Error: {error}") from error
    if sorting_s(old, new) > switch.limit_s:
        raise SystemExit(TIME_UP)  # while it sorts: nothing was changed
    if not dry_run:
        steps = list(_steps(old, new))
        _apply(switch, old, new, steps, switch.faults.take("apply") if fails else None)


def replace(switch: Sonic, target: Config) -> None:
    apply_patch(switch, difference(switch.config(), target), fails=False)


def _apply(switch: Sonic, old: Config, new: Config, steps: Sequence[Config], fault: Any) -> None:
    if fault in ("partial", "rejected"):
        switch.log("fault", apply=fault)
    if fault == "rejected":
        raise UpdateError(
            "Given patch will produce invalid config. Error: Data Loading Failed:rejected by "
            "a fault of this simulation"
        )
    seconds = round(sorting_s(old, new))
    switch.log("patch", operations=len(difference(old, new)), changes=len(steps), seconds=seconds)
    switch.pending = True
    before = old
    for number, step in enumerate(steps):
        if fault == "partial" and number >= max(1, len(steps) // 2):
            raise UpdateError(
                f"change {number + 1} of {len(steps)} failed by a fault of this simulation"
            )
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


def _steps(old: Config, new: Config) -> Iterator[Config]:
    """The changes in an order that keeps references whole; ports are down for some of them."""
    state = old
    for target in _states(old, new):
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
    """Ports that are up, stay, and have a row that is only changed while they are down."""
    touched = set()
    for table in BOUNCING:
        before, after = old.get(table, {}), new.get(table, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                touched.add(key.split("|")[0])
    return [
        port
        for port, row in old.get("PORT", {}).items()
        if port in touched and row.get("admin_status") == "up" and port in new.get("PORT", {})
    ]

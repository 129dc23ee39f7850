# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches from any state of a switch lead to the contract, safely at every step, and once."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import switch, tables
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.difference import (
    BOUNCING,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sonic_switch import Config, dangling, new_switch, present, small, stepped

NAME = "BAREMETAL_MPI_ROCE"
PORTS = ("Ethernet0", "Ethernet8", "Ethernet16")
"""The first two belong to the model, the third to the operator."""

CONTRACTS: tuple[dict[str, Any], ...] = (
    {},
    {"roce": {"dscp": 24, "priority": 4, "bandwidth_percent": 60}},
    {"classes": [{"name": "storage", "dscps": [10], "priority": 2, "bandwidth_percent": 20}]},
    {"pfc": {"watchdog": {"enabled": False}}},
    {"cable_metres": {"to_nodes": 5, "between_switches": 40}, "ecn": {"minimum_bytes": 2048}},
)


@cache
def _intent(number: int) -> Any:
    return small(CONTRACTS[number])


def final(config: Config, number: int) -> tuple[Config, Any, list[Config]]:
    intent = _intent(number)
    difference = switch.DRIVER.difference(intent, switch.DRIVER.wanted(intent), present(config))
    states = [config, *map(copy.deepcopy, stepped(config, difference.steps))]
    return states[-1], difference, states


VALUES = st.sampled_from(["0", "3", "7", "1024", "NULL", "x"])
OPERATORS: dict[str, tuple[str, dict[str, str]]] = {
    "DSCP_TO_TC_MAP": ("SITE", {"10": "1"}),
    "SCHEDULER": ("SITE", {"type": "DWRR", "weight": "7"}),
    "WRED_PROFILE": ("SITE", {"ecn": "ecn_none"}),
    "BUFFER_PROFILE": ("SITE", {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "1"}),
    "PFC_WD": (
        "Ethernet16",
        {"action": "alert", "detection_time": "400", "restoration_time": "400"},
    ),
    "TC_TO_QUEUE_MAP": (f"SITE_{NAME}", {"0": "0"}),
}


@st.composite
def switches(draw: st.DrawFn) -> Config:
    """A new switch, or one with another contract; drift, missing tables, objects of the
    operator."""
    config = new_switch(len(PORTS))
    if draw(st.booleans()):
        config = final(config, draw(st.integers(0, len(CONTRACTS) - 1)))[0]
    config = copy.deepcopy(config)
    for table in draw(st.sets(st.sampled_from(sorted(OPERATORS)))):
        key, row = OPERATORS[table]
        config.setdefault(table, {})[key] = dict(row)
    for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "CABLE_LENGTH"):
        if draw(st.integers(0, 5)) == 0:
            config.pop(table, None)
    for _ in range(draw(st.integers(0, 6))):
        _drift(draw, config)
    if draw(st.booleans()):
        config.setdefault("SCHEDULER", {})[f"{NAME}_OLD"] = {"type": "STRICT"}
        row = config.setdefault("QUEUE", {}).setdefault("Ethernet16|7", {})
        row["scheduler"] = f"{NAME}_OLD"
    return {table: rows for table, rows in config.items() if rows}


def _drift(draw: st.DrawFn, config: Config) -> None:
    """Change one field, row or object that the collection owns."""
    table = draw(st.sampled_from([t for t in tables.CHANGED if config.get(t)]))
    keys = [
        key
        for key in config[table]
        if tables.owned(key) or tables.port_of(key) in PORTS[:2] or key == "AZURE"
    ]
    if table in tables.OBJECTS:
        keys = [key for key in keys if tables.owned(key)]
    if not keys:
        return
    key = draw(st.sampled_from(keys))
    row = config[table][key]
    references = {field for t, field in tables.REFERENCES if t == table}
    fields = [field for field in row if field not in references and field != "lanes"]
    if fields and draw(st.booleans()):
        field = draw(st.sampled_from(fields))
        if draw(st.booleans()):
            row[field] = draw(VALUES)
        else:
            del row[field]
    elif table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG"):
        del config[table][key]


@given(switches(), st.integers(0, len(CONTRACTS) - 1))
def test_the_contract_is_reached_safely_and_once(config: Config, number: int) -> None:
    before = copy.deepcopy(config)
    reached, difference, states = final(config, number)
    assert config == before, "planning changes nothing"
    assert bool(difference) == (reached != before) == bool(difference.steps)
    for state in states:
        assert not [table for table, rows in state.items() if not rows]
        assert set(dangling(state)) <= set(dangling(before))
    switch.DRIVER.report(_intent(number), present(before))
    again = final(reached, number)[1]
    assert (again.changes, again.steps) == ((), [])
    _is_the_operators_as_it_was(before, reached)
    _impact_is_exact(before, reached, difference)


def _is_the_operators_as_it_was(before: Config, reached: Config) -> None:
    for table, rows in before.items():
        if table in (*tables.OBJECTS, "BUFFER_POOL"):
            theirs = {key: row for key, row in rows.items() if not tables.owned(key)}
            assert {k: r for k, r in reached[table].items() if not tables.owned(k)} == theirs
        elif table not in tables.ROWS:
            assert reached[table] == rows
        else:
            for key, row in rows.items():
                refers = any(tables.owned(value) for value in row.values())
                if tables.port_of(key) == PORTS[2] and not refers:
                    assert reached.get(table, {}).get(key) == row
    lengths = before.get("CABLE_LENGTH", {}).get("AZURE", {})
    if PORTS[2] in lengths:
        assert reached["CABLE_LENGTH"]["AZURE"][PORTS[2]] == lengths[PORTS[2]]


def _impact_is_exact(before: Config, reached: Config, difference: Any) -> None:
    """Ports that go down by the rule of docs/fabric.md, from the states only."""
    bounced = {
        tables.port_of(key)
        for table in BOUNCING
        for key in {**before.get(table, {}), **reached.get(table, {})}
        if before.get(table, {}).get(key) != reached.get(table, {}).get(key)
    }
    up = [port for port, row in before["PORT"].items() if row.get("admin_status") == "up"]
    assert difference.impact.ports_down == tuple(port for port in up if port in bounced)

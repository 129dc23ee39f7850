# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Contracts with two lossless classes, and with lossy RoCE data, from the model to every switch
system and NIC."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import port_checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    fabric_intent,
    host_settings,
    read_contract,
)

from tests.unit import test_fabric_every_key as every_key
from tests.unit.eos_intents import leaf as eos_leaf
from tests.unit.nvue_switch import intent as nvue_intent
from tests.unit.sonic_switch import after, new_switch, present, small

Said = pytest.CaptureFixture[str]

STORAGE: dict[str, Any] = {
    "name": "storage",
    "dscps": [20],
    "priority": 4,
    "bandwidth_percent": 20,
    "lossless": True,
}
TWO: dict[str, Any] = {"classes": [STORAGE]}
LOSSY: dict[str, Any] = {"roce": {"priority": 5, "lossless": False}}
"""SONiC serves queue 3 from a lossless pool."""
MIXED: dict[str, Any] = {**LOSSY, **TWO}
CONTRACTS: dict[str, dict[str, Any]] = {"two": TWO, "lossy": LOSSY, "mixed": MIXED}
PAUSED = {"two": (3, 4), "lossy": (), "mixed": (4,)}
MARKED = {"two": {3, 4}, "lossy": {5}, "mixed": {4, 5}}
GOLDEN = Path(__file__).parent / "golden/fabric"


@pytest.mark.parametrize("name", CONTRACTS)
def test_both_ends_pause_and_mark_the_same_priorities(name: str) -> None:
    contract = read_contract(CONTRACTS[name])
    intent, host = fabric_intent(contract), host_settings(contract)
    assert intent.pfc_priorities == host.pfc_priorities == PAUSED[name]
    assert {q.traffic_class for q in intent.queues if q.ecn} == MARKED[name]
    assert set(host.ecn_priorities) == MARKED[name]
    groups = {queue.priority: queue.priority_group for queue in intent.queues if queue.lossless}
    assert groups == {priority: priority for priority in PAUSED[name]}
    assert intent.watchdog.enabled is bool(PAUSED[name])
    assert host.lossless is (name == "two")
    assert host.service_level == contract.roce.priority


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_variable_has_what_differs_from_before(name: str) -> None:
    variable = read_contract(CONTRACTS[name]).as_variable()
    assert read_contract(json.loads(json.dumps(variable))) == read_contract(CONTRACTS[name])
    assert ("lossless" in variable["roce"]) is (name != "two")
    lossy = {**STORAGE, "lossless": False}
    classes = read_contract({"classes": [lossy]}).as_variable()["classes"]
    assert "lossless" not in classes[0]


@pytest.mark.parametrize("without", [True, False])
def test_marking_without_a_reaction_point_is_left_to_the_switch(without: bool) -> None:
    control = {"notification_point": not without, "reaction_point": not without}
    contract = read_contract({**TWO, "congestion_control": control})
    assert bool(host_settings(contract).ecn_priorities) is not without


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_switch_goes_from_each_contract_to_each_other(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    intents = {"usual": intent_of(name, {})}
    intents.update({key: intent_of(name, value) for key, value in CONTRACTS.items()})
    switch = every_key.SIMULATED[name]([*intents.values()], tmp_path, capsys)
    order = ["usual", "two", "usual", "lossy", "usual", "mixed", "two", "lossy", "mixed", "lossy"]
    order += ["two", "mixed", "usual"]
    assert {*pairwise(order)} == {(a, b) for a in intents for b in intents if a != b}
    for key in order:
        intent = intents[key]
        switch.apply(every_key.plan(name, switch, intent))
        remaining = every_key.plan(name, switch, intent)
        assert remaining.changes == (), key
        report = SYSTEMS[name].driver.report(intent, switch.read())
        checks = port_checks(intent, report, remaining, False)
        assert [each for each in checks if each.status != OK] == [], key
        port = next(each for each in report.ports if each.name == intent.ports[0].name)
        paused = PAUSED.get(key, (3,))
        assert (port.pfc_priorities, set(port.lossless_priorities or ())) == (paused, {*paused})
        assert {*(port.ecn or {})} >= MARKED.get(key, {3})


def intent_of(name: str, contract: dict[str, Any]) -> system.SwitchIntent:
    data = yaml.safe_load(every_key.model(name))
    data["roce_qos"] = contract
    found = every_key.leaf_of(yaml.safe_dump(data))
    if name == "eos":
        options = {"eos_queue": "tx-queue", **found.asic.options}
        return replace(found, asic=replace(found.asic, options=options))
    return found


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("on", SYSTEMS)
def test_what_a_new_switch_gets(on: str, name: str) -> None:
    """Update the files with UPDATE_GOLDEN=1."""
    contract, driver = CONTRACTS[name], SYSTEMS[on].driver
    if on == "eos":
        path, text = GOLDEN / f"eos/{name}.cfg", driver.wanted(eos_leaf(contract)).text
    elif on == "nvue":
        path, text = GOLDEN / f"nvue/{name}.json", lines(driver.wanted(nvue_intent(contract)))
    else:
        intent, config = small(contract), new_switch(2)
        steps = driver.difference(intent, driver.wanted(intent), present(config)).steps
        path, text = GOLDEN / f"sonic/{name}.json", lines(after(config, steps))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def lines(tables: dict[str, Any]) -> str:
    """Two levels of objects, and one line below."""
    rows = (
        f" {json.dumps(table)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in of.items())
        + "\n }"
        for table, of in tables.items()
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"

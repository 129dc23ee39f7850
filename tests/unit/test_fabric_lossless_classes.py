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
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import evaluation
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Headroom
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import port_checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    fabric_intent,
    host_settings,
    read_contract,
)

from tests.unit import test_fabric_every_key as every_key
from tests.unit.eos_intents import leaf as eos_leaf
from tests.unit.link_fabric import Fabric
from tests.unit.nic_host import FakeNode, kernel_writes
from tests.unit.nvue_switch import intent as nvue_intent
from tests.unit.qos_contracts import compiled
from tests.unit.sonic_switch import Config, after, new_switch, present, small
from tests.unit.test_verbs_evaluation import REQUEST

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


@pytest.fixture
def nic_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_writes(monkeypatch)


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


@pytest.mark.slow
def test_nvue_gives_the_whole_buffer_to_lossy_classes(tmp_path: Path, capsys: Said) -> None:
    """A share of the former contract would stay, and waste the rest."""
    shared, lossy = intent_of("nvue", {"pfc": {"pool_percent": 90}}), intent_of("nvue", LOSSY)
    switch = every_key.SIMULATED["nvue"]([shared, lossy], tmp_path, capsys)
    for intent, pools in ((shared, {"roce-lossless": 90, "default-lossy": 10}), (lossy, {})):
        switch.apply(every_key.plan("nvue", switch, intent))
        written = switch.read().explicit["qos"].get("traffic-pool", {})
        found = {name: pool.get("memory-percent") for name, pool in written.items()}
        assert {name: share for name, share in found.items() if share is not None} == pools
        assert ("roce-lossless" in written) is (intent is shared)


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


def test_a_nic_pauses_both_classes_and_forces_none(tmp_path: Path, nic_kernel: None) -> None:
    node = FakeNode(tmp_path, tools=("dcb", "mlxreg"), doca=True)
    node.converge()
    outcome = node.converge(qos=compiled(TWO))
    assert {check.status for check in outcome.checks} <= {OK, "not_applicable"}
    state = node.ports["rail0"]
    assert (state["pfc"], dict(state["app"])[20]) == ({3, 4}, 4)
    settings = outcome.settings["rail0"]
    assert settings["ecn_np"]["wanted"] == settings["ecn_rp"]["wanted"] == [3, 4]
    assert "traffic_class" not in settings, "data of the other class would get the DSCP of RoCE"
    assert not node.converge(qos=compiled(TWO)).changed


def test_a_nic_of_lossy_roce_data_has_no_pauses(tmp_path: Path, nic_kernel: None) -> None:
    node = FakeNode(tmp_path, tools=("dcb", "mlxreg"), doca=True)
    node.converge()
    outcome = node.converge(qos=compiled(LOSSY))
    assert {check.status for check in outcome.checks} <= {OK, "not_applicable"}
    assert (node.ports["rail0"]["pfc"], dict(node.ports["rail0"]["app"])[26]) == (set(), 5)
    settings = outcome.settings["rail0"]
    assert (settings["pfc"]["wanted"], settings["ecn_rp"]["wanted"]) == ([], [5])
    assert "cable_length" not in settings and "traffic_class" in settings
    assert node.converge().changed
    assert node.ports["rail0"]["pfc"] == {3}


@pytest.mark.parametrize(("name", "status"), [("two", FAILED), ("lossy", NOT_APPLICABLE)])
def test_lost_packets_of_lossy_data_are_shown_only(name: str, status: str) -> None:
    contract = host_settings(read_contract(CONTRACTS[name]))
    request = replace(REQUEST, settings=contract, health={"new_errors": 0})
    lost = {"tx_prio3_packets": 100, "rx_discards_phy": 5, "local_ack_timeout_err": 50}
    where = "rail3 -> node02"
    for check in (
        evaluation.lost(request, where, "rail3", lost),
        evaluation.retries(request, where, "rail3", lost),
    ):
        assert (check.name, check.status) == (check.name, status)
    quiet = {"tx_prio3_packets": 100, "tx_prio3_bytes": 1}
    assert evaluation.lost(request, where, "rail3", quiet).status == OK


def test_links_compare_both_classes() -> None:
    fabric = Fabric(qos=TWO)
    assert {check.status for check in fabric.check().checks} == {OK}
    fabric.port("leaf01", "Ethernet8")["ecn"].pop(4)
    check = fabric.one()
    assert (check.name, check.subject) == ("link_ecn", "leaf01 Ethernet8 - node02 rail0")
    fabric = Fabric(qos=TWO)
    port = fabric.port("leaf01", "Ethernet8")
    classes = list(port["dscp_to_traffic_class"])
    classes[20] = 0
    port["dscp_to_traffic_class"] = tuple(classes)
    check = fabric.one()
    assert (check.name, "DSCP 20 to TC 4" in check.wanted) == ("link_dscp_map", True)
    fabric = Fabric(qos=TWO)
    fabric.port("leaf01", "Ethernet8")["lossless_priorities"] = (3,)
    assert fabric.one().name == "link_lossless"
    assert {check.status for check in Fabric(qos=LOSSY).check().checks} == {OK}


class TestBuffersOfSonic:
    GENERATED = "pg_lossless_800000_50m_profile"

    def generated(self, groups: str) -> Config:
        """A switch of the traditional buffer model, where buffermgrd has bound its profile."""
        config = new_switch(2, model="traditional")
        row = {"pool": "ingress_lossless_pool", "size": "1", "xon": "1", "xoff": "999999"}
        config["BUFFER_PROFILE"][self.GENERATED] = {**row, "dynamic_th": "0"}
        for port in ("Ethernet0", "Ethernet8"):
            config["BUFFER_PG"].pop(f"{port}|3-4", None)
            config["BUFFER_PG"][f"{port}|{groups}"] = {"profile": self.GENERATED}
        return config

    def reached(self, config: Config, contract: dict[str, Any]) -> Config:
        intent, driver = small(contract), SYSTEMS["sonic"].driver
        lookup = {(800, 50): Headroom(999999 + 38912, 38912, 999999)}
        planned = driver.difference(
            intent, driver.wanted(intent), present(config, lookup=lookup, listed=True)
        )
        config = after(config, planned.steps)
        left = driver.difference(
            intent, driver.wanted(intent), present(config, lookup=lookup, listed=True)
        )
        assert left.changes == ()
        return config

    @pytest.mark.parametrize("groups", ["3-4", "3", "2-4"])
    def test_groups_are_those_that_the_switch_binds_itself(self, groups: str) -> None:
        """Other keys would overlap with those that buffermgrd writes for `pfc_enable` 3,4."""
        found = self.reached(self.generated(groups), TWO)["BUFFER_PG"]
        lossless = {key: row["profile"] for key, row in found.items() if not key.endswith("|0")}
        assert lossless == {f"Ethernet{port}|3-4": self.GENERATED for port in (0, 8)}

    def test_without_pauses_no_map_of_them_is_bound(self) -> None:
        two = self.reached(new_switch(2), TWO)
        assert "pfc_to_pg_map" in two["PORT_QOS_MAP"]["Ethernet0"]
        row = self.reached(two, LOSSY)["PORT_QOS_MAP"]["Ethernet0"]
        assert not {"pfc_to_pg_map", "pfc_enable", "pfcwd_sw_enable"} & row.keys()

    def test_lossy_data_needs_no_headroom(self) -> None:
        config = self.generated("3-4")
        del config["BUFFER_POOL"]["ingress_lossless_pool"]
        found = self.reached(config, LOSSY)
        assert [key for key in found["BUFFER_PG"] if not key.endswith("|0")] == []

    @pytest.mark.parametrize(
        ("contract", "queue", "profile", "culprit"),
        [
            (TWO, 4, "egress_lossy_profile", "class storage"),
            (TWO, 3, "egress_lossy_profile", "RoCE data"),
            ({"roce": {"lossless": False}}, 3, "egress_lossless_profile", "RoCE data"),
        ],
    )
    def test_a_queue_of_the_wrong_pool_is_refused(
        self, contract: dict[str, Any], queue: int, profile: str, culprit: str
    ) -> None:
        config = new_switch(2)
        del config["BUFFER_QUEUE"]["Ethernet8|3-4"]
        config["BUFFER_QUEUE"][f"Ethernet8|{queue}"] = {"profile": profile}
        if queue == 3 and profile.endswith("lossless_profile"):
            del config["BUFFER_QUEUE"]["Ethernet0|3-4"]
        with pytest.raises(system.SwitchError) as refused:
            self.reached(config, contract)
        assert f"BUFFER_QUEUE|Ethernet8|{queue} serves queue {queue}" in str(refused.value)
        assert f"that of {culprit}, from " in str(refused.value)

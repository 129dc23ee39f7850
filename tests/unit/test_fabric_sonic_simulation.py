# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The driver's patches on the simulated switch, which was written independently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Asic, Headroom
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.steps import (
    IGNORED,
    PollInterval,
    Step,
    options_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.switch import DRIVER

from tests.bed.simulators.memory import UNUSED, Switch, leaf, show
from tests.unit.sonic_switch import small

pytestmark = pytest.mark.slow

__all__ = ["leaf"]

Said = pytest.CaptureFixture[str]


TOMAHAWK5 = Asic("tomahawk5", values={(400, 50): Headroom(1248, 2288, 337000, 0, 2288)})
"""Between 40 and 300 m, for which the platform has rows."""


def intent(qos: Optional[dict[str, Any]] = None, broadcom: bool = False) -> system.SwitchIntent:
    found = small(qos)
    ports = tuple(replace(port, speed_gbps=400) for port in found.ports)
    return replace(found, ports=ports, asic=TOMAHAWK5 if broadcom else found.asic)


def read(leaf: Switch, output: Said) -> reading.Present:
    output.readouterr()
    parts = {}
    for name, run, words in (
        (reading.CONFIG, show.cfggen, ["-d", "--print-data"]),
        (reading.PORTS, show.db_dump, ["-n", "APPL_DB", "-k", "PORT_TABLE:*", "-y"]),
        (reading.NEIGHBOURS, show.db_dump, ["-n", "APPL_DB", "-k", "LLDP_ENTRY_TABLE:*", "-y"]),
    ):
        assert run(words, leaf.sonic) == 0
        parts[name] = output.readouterr().out
    parts[reading.SAVED] = parts[reading.CONFIG]
    parts[reading.VERSION] = (leaf.folder / "etc/sonic/sonic_version.yml").read_text()
    out = "".join(f"{text}\n{reading.MARK} {name} 0\n" for name, text in parts.items())
    present = reading.parsed(system.Completed(0, out, ""))
    path = reading.lookup_file(present)
    if path:
        rows = (leaf.folder / path.lstrip("/")).read_text()
        present = replace(present, lookup=reading.lookup_of(rows))
    return present


def plan(leaf: Switch, output: Said, qos: Optional[dict[str, Any]] = None) -> system.Difference:
    present = read(leaf, output)
    wanted = intent(qos, present.asic_type == "broadcom")
    return DRIVER.difference(wanted, DRIVER.wanted(wanted), present)


def apply(leaf: Switch, difference: system.Difference, output: Said) -> None:
    for step in difference.steps:
        tell(leaf, step, output)


def tell(leaf: Switch, step: Step, output: Said) -> None:
    if isinstance(step, PollInterval):
        assert show.pfcwd(["interval", step.milliseconds], leaf.sonic) == 0
        return
    ignoring = options_of(step).split()
    for options in (("-d", *ignoring), ignoring):
        assert leaf.patch(*step.operations, options=options) == 0, output.readouterr().err


def bounced(leaf: Switch) -> list[str]:
    return [event.partition("port=")[2] for event in leaf.events("bounce")]


QOS: dict[str, dict[str, Any]] = {
    "default": {},
    "another priority": {"roce": {"dscp": 24, "priority": 4}},
    "a further class": {
        "classes": [{"name": "storage", "dscps": [10], "priority": 2, "bandwidth_percent": 20}]
    },
    "no watchdog": {"pfc": {"watchdog": {"enabled": False}}},
    "short cables": {"cable_metres": {"to_nodes": 40, "between_switches": 40}},
}


def test_a_group_is_right_where_buffermgrd_binds_its_own_again(leaf: Switch, capsys: Said) -> None:
    """It acts when a port comes up, if the platform has the row (sonic-swss e6b0c5b5)."""
    (leaf.folder / "other").mkdir()
    broadcom = Switch(leaf.folder / "other", "tomahawk5")
    for metres in (5, 40, 300):
        qos = {"cable_metres": {"to_nodes": metres, "between_switches": metres}}
        steps = plan(broadcom, capsys, qos).steps
        assert any(getattr(step, "look", None) for step in steps)
        for step in steps:
            tell(broadcom, step, capsys)
            assert not step.look or step.look.differing(read(broadcom, capsys)) == []
        own = {"profile": f"pg_lossless_400000_{metres}m_profile"}
        assert broadcom.config["BUFFER_PG"]["Ethernet0|3"] == own
        assert not plan(broadcom, capsys, qos)


@pytest.fixture(params=["spectrum4", "tomahawk5"])
def switch(request: pytest.FixtureRequest, leaf: Switch) -> Switch:
    """With the dynamic buffer model, and with the traditional one."""
    (leaf.folder / "other").mkdir()
    return leaf if request.param == "spectrum4" else Switch(leaf.folder / "other", request.param)


@pytest.mark.parametrize("qos", QOS.values(), ids=QOS)
def test_from_the_factory_over_any_contract_and_back(
    switch: Switch, capsys: Said, qos: dict[str, Any]
) -> None:
    unused = {table: rows.get(UNUSED) for table, rows in switch.config.items()}
    for contract in ({}, qos, {}):
        apply(switch, plan(switch, capsys, contract), capsys)
        again = plan(switch, capsys, contract)
        assert (again.changes, again.steps) == ((), [])
    assert {table: switch.config[table].get(UNUSED) for table in unused} == unused


def test_a_link_is_moved_to_another_port_in_one_run_and_back(leaf: Switch, capsys: Said) -> None:
    """Together they would be a move of a PFC_WD row, which is refused, even in a rollback."""
    apply(leaf, plan(leaf, capsys), capsys)
    before, here = leaf.config, intent()
    moved = replace(here, ports=(here.ports[0], replace(here.ports[1], name=UNUSED)))
    difference = DRIVER.difference(moved, DRIVER.wanted(moved), read(leaf, capsys))
    for number, step in enumerate(difference.steps):
        assert leaf.run("checkpoint", str(number)) == 0
        apply(leaf, replace(difference, steps=[step]), capsys)
    assert "Ethernet8" not in leaf.config["PFC_WD"] and UNUSED in leaf.config["PFC_WD"]
    assert leaf.run("rollback", "0") == 2, "refused as a whole"
    for number in reversed(range(len(difference.steps))):
        assert leaf.run("rollback", str(number), *IGNORED.split()) == 0, capsys.readouterr().err
    assert leaf.config == before


def test_no_patch_and_no_way_back_changes_a_port_that_is_up(switch: Switch, capsys: Said) -> None:
    """With `-i` the driver takes ports down, each once."""
    rows = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG")

    def up(one: Any, other: Any) -> list[str]:
        return [
            f"{table}|{key}"
            for table in rows
            for key in {*one[table], *other[table]}
            if one[table].get(key) != other[table].get(key)
            for each in (one, other)
            if each["PORT"][key.split("|")[0]].get("admin_status") == "up"
        ]

    before = switch.config
    states = [before]
    for contract in (QOS["another priority"], QOS["default"]):
        difference = plan(switch, capsys, contract)
        for step in difference.steps:
            assert switch.run("checkpoint", f"{len(states):03}") == 0
            apply(switch, replace(difference, steps=[step]), capsys)
            states.append(switch.config)
    own = [state for state in states if "pg_lossless" not in str(state["BUFFER_PG"])]
    assert [up(*pair) for pair in zip(own, own[1:])] == [[]] * (len(own) - 1)
    assert sorted(bounced(switch)) == ["Ethernet0"] * 2 + ["Ethernet8"] * 2
    for number in range(len(states) - 1, 0, -1):
        assert switch.run("rollback", f"{number:03}", *IGNORED.split()) == 0
    if before["DEVICE_METADATA"]["localhost"]["buffer_model"] == "dynamic":
        assert switch.config == before

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every fault of docs/faults.md as a finding of drift: those of nodes from what
playbooks/verify.yml recorded on virtual nodes, those of switches on their simulations.
tests/integration compares the recording with new runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK, as_dicts
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.drift import findings, report
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import port_checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.source import read_file
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.versions import compiled
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import RunSummary

from tests import fabric, faults
from tests.nodes import TOP, Run
from tests.unit import test_fabric_every_key as every_key
from tests.unit import test_fabric_lossless_classes as classes

START = datetime(2026, 11, 1, 4, tzinfo=timezone.utc)
ALSO = {"eos": ("port_ecn", "port_queues", "port_trust")}
"""What a port without its profile lacks, too."""
LIMIT = r"ansible-playbook site.yml -i inv --tags (\w+) --limit ([\w,]+)"


def test_every_fault_of_a_node_is_found_under_its_check_and_repaired(tmp_path: Path) -> None:
    hosts = compiled(read_file(str(TOP / "inventories/virtual-mixed/cluster.yml"))).hosts
    shown(faults.recorded("nodes"), hosts, faults.NODE_FAULTS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_fault_of_a_switch_is_found_under_its_check_and_repaired(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the simulations of tests/bed."""
    intent, driver = classes.intent_of(system, {}), SYSTEMS[system].driver
    switch = every_key.SIMULATED[system]([intent], tmp_path, capsys)
    switch.apply(every_key.plan(system, switch, intent))
    for _name, _check, change in fabric.SYSTEMS[system].FAULTS:
        if system == "sonic":
            key, name, value = change.split()
            path = "/".join(["", *key.split("|"), name])
            change = {"op": "add", "path": path, "value": value}
            assert switch._switch.patch(change) == 0, capsys.readouterr()
        else:
            switch.apply(SimpleNamespace(steps=change))
    remaining = every_key.plan(system, switch, intent)
    found = port_checks(intent, driver.report(intent, switch.read()), remaining, False)
    ports = {port.name: port.peer for port in intent.ports}
    hosts = {"leaf01": {"cluster_role": "leaf", "cluster_ports": [{"peers": ports}]}}
    made = [
        faults.Fault(name, "fabric", check, "leaf01", "")
        for name, check, _change in fabric.SYSTEMS[system].FAULTS
    ]
    shown({"fabric": {"leaf01": as_dicts(found)}}, hosts, made, tmp_path)
    names = {each.name for each in found if each.status != OK}
    assert names - {fault.check for fault in made} == {"configuration", *ALSO.get(system, ())}


def shown(
    found: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
    made: Sequence[faults.Fault],
    folder: Path,
) -> None:
    """Drift shows each fault that was made and nothing else, and its history has both times."""
    reports = []
    for number in range(2):
        run = RunSummary(
            inventories=("inv",),
            roles={name: str(host["cluster_role"]) for name, host in hosts.items()},
            expected={layer: dict.fromkeys(hosts, "") for layer in found},
            verifies=True,
        )
        for layer, by_host in found.items() if number == 0 else ():
            for host, checks in by_host.items():
                run.add_result(host, {"layer": layer, "checks": checks})
                run.expected[layer][host] = "checks failed"
        at = START + timedelta(days=number)
        evaluated = report.evaluate(
            run, findings.Settings(), folder, at, 1.0, facts=lambda host: hosts[host]
        )
        reports.append(evaluated.report)
    first, second = reports
    seen = Run(2, "", 0, {}, {"layers": faults.by_layer(first["findings"])})
    assert made and faults.missed(seen, made) == [] and faults.surplus(seen, made) == []
    for each in first["findings"]:
        assert each["found"] != each["desired"] and each["new"], each
        at_fault, by_hand = each["part"].split()[0], each["by_hand"]
        if by_hand:
            says = by_hand.startswith(f"{at_fault} (says ")
            assert not each["command"] and says == (at_fault != each["host"]), each
        else:
            command = re.fullmatch(LIMIT, each["command"])
            assert command and command[2].split(",")[0] == at_fault, each
            assert command[1] == each["layer"] or each["check"] == "rail_peer", each
    assert (second["verdict"], second["findings"]) == ("no drift", [])
    every = {faults.key(each) for each in first["findings"]}
    for run, event in zip(reports, ("found", "repaired")):
        assert faults.history(folder, event) == dict.fromkeys(every, run["started"])


def test_a_dead_rail_is_named_by_its_neighbours() -> None:
    """rail2 of node02 has no address, that of node04 is down: node01 and node04 send to them."""
    hosts = compiled(read_file(str(TOP / "inventories/virtual-mixed/cluster.yml"))).hosts
    found = faults.recorded("nodes")
    run = RunSummary(
        inventories=("inv",),
        roles={name: str(host["cluster_role"]) for name, host in hosts.items()},
        expected={layer: dict.fromkeys(hosts, "failed") for layer in ("rails", "ssh")},
    )
    for layer in run.expected:
        for host, checks in found[layer].items():
            run.add_result(host, {"layer": layer, "checks": checks})
    peers = {
        each["subject"]: (each["part"], each["command"].rpartition(" --tags ")[2])
        for each in findings.findings_of(run, lambda host: hosts[host])
        if each["check"] == "rail_peer" and each["command"]
    }
    assert peers == {
        "node01 -> node02-rail2": ("node02 rail2", "rails --limit node02"),
        "node04 -> node01-rail0": ("node04 rail0", "rails --limit node04"),
        "node04 -> node01-rail2": ("node04 rail2", "rails --limit node04"),
    }

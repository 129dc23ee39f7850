# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every fault of docs/faults.md as a finding of drift, from what playbooks/verify.yml recorded on
virtual nodes and switches. tests/integration compares the recording with new runs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.drift import (
    findings,
    history,
    report,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.source import read_file
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.versions import compiled
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import RunSummary

from tests import faults
from tests.nodes import TOP, Run

START = datetime(2026, 11, 1, 4, tzinfo=timezone.utc)
LIMIT = r"ansible-playbook site.yml -i inv --tags (\w+) --limit ([\w,]+)"


def test_every_fault_is_found_under_its_check_and_repaired(tmp_path: Path) -> None:
    """And nothing else is; the history has both times."""
    source, found = TOP / "inventories/virtual-mixed/cluster.yml", faults.recorded("nodes")
    hosts = compiled(read_file(str(source))).hosts
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
        reports.append(
            report.evaluate(
                run, findings.Settings(), tmp_path, at, 1.0, facts=lambda host: hosts[host]
            ).report
        )
    first, second = reports
    listed = first["findings"]
    seen = Run(2, "", 0, {}, {"layers": faults.by_layer(listed)})
    assert len(found) > 7
    assert faults.missed(seen) == [] and faults.surplus(seen) == []
    for each in listed:
        assert each["found"] != each["desired"] and each["new"], each
        at_fault = each["part"].split()[0]
        if each["by_hand"]:
            assert not each["command"] and (each["by_hand"].startswith(f"{at_fault} (says ")) == (
                at_fault != each["host"]
            ), each
        else:
            command = re.fullmatch(LIMIT, each["command"])
            assert command and command[2].split(",")[0] == at_fault, each
            assert command[1] == each["layer"] or each["check"] == "rail_peer", each
    assert (second["verdict"], second["findings"]) == ("no drift", [])
    with history.changing(tmp_path) as events:
        times = [
            {history.key_of(each): each["at"] for each in events.events if each["event"] == kind}
            for kind in (history.FOUND, history.REPAIRED)
        ]
    every = {history.key_of(each) for each in listed}
    assert times == [dict.fromkeys(every, each["started"]) for each in reports]


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

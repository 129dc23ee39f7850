# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every rail by real RDMA verbs (Soft-RoCE), and a wrong contract detected on the wire."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import HostSettings

from tests.nodes import TOP, Nodes, Run

pytestmark = pytest.mark.machines

SHORT = ["-e", '{"rdma_verify_exchanges": ["write_lat", "ucx"]}', "-e", "rdma_verify_iterations=20"]
"""Enough for packets of perftest and of MPI."""


def verbs(machines: Nodes, *words: str, expect: int = 0) -> Run:
    return machines.play("playbooks/verbs.yml", *words, expect=expect)


def named(run: Run, name: str, *hosts: str) -> list[dict[str, Any]]:
    return [check for check in run.checks("verbs", *hosts) if check["name"] == name]


def one(run: Run, name: str, host: str, subject: str) -> dict[str, Any]:
    (check,) = [check for check in named(run, name, host) if check["subject"].startswith(subject)]
    return check


def rails(machines: Nodes, name: str) -> list[str]:
    return [rail["interface"] for rail in machines.of(name)["cluster_rails"]]


UNMARK = "action pedit munge ip tos set 0 pipe csum ip4h"


def filtered(machines: Nodes, name: str, rule: str) -> contextlib.AbstractContextManager[object]:
    """A rule on the first rail of a node, for a while."""
    rail = rails(machines, name)[0]
    add = f"tc qdisc add dev {rail} clsact && tc filter add dev {rail} {rule}"
    return machines.by_hand(name, add, f"tc qdisc del dev {rail} clsact")


@pytest.fixture
def rewriting(machines: Nodes) -> Iterator[str]:
    """A node with a rule that removes the mark from packets that leave by one rail."""
    name = machines.group("compute")[0]
    with filtered(machines, name, "egress protocol ip matchall " + UNMARK):
        yield name


def test_every_rail_both_ways_and_the_contract_on_every_packet(machines: Nodes) -> None:
    run = verbs(machines)
    assert run.total("changed") == 0
    assert {check["status"] for check in run.checks("verbs")} <= {"ok", "not_applicable"}

    nodes = machines.group("compute")
    for name in nodes:
        (peer,) = [other for other in nodes if other != name]
        settings = HostSettings.of(machines.of(name)["cluster_qos"])
        for rail in rails(machines, name):
            for exchange in ("write_bw", "write_lat", "send_bw", "ucx"):
                for kind, way in (("wire_sent", "->"), ("wire_arrived", "<-")):
                    check = one(run, kind, name, f"{rail} {way} {peer} {exchange}")
                    assert check["status"] == "ok"
                    assert f"TOS {settings.traffic_class} " in check["wanted"]
            assert one(run, "roce_mtu", name, rail)["found"] == settings.roce_mtu
    # Thresholds of a NIC are shown, but not applied to a software device.
    assert {check["status"] for check in named(run, "write_bw")} == {"not_applicable"}
    assert all("Soft-RoCE" in check["reason"] for check in named(run, "write_bw"))

    # These nodes have no GPU, whatever their model says.
    assert {(check["status"], check["reason"]) for check in named(run, "gpu_write_bw")} == {
        ("not_applicable", f"{name} has no GPU") for name in nodes
    }

    # Nothing is left behind, and few modules were executed.
    for name in nodes:
        node = machines.on(name)
        assert not node.file("/run/baremetal-mpi-roce/verbs").exists
        assert node.run("systemctl is-active baremetal-mpi-verbs.service").rc != 0
        assert node.run("pgrep -x 'ib_write_bw|ib_write_lat|ib_send_bw|ucx_perftest'").rc == 1
        assert run.report["remote_module_executions"]["hosts"][name] == 3

    saved = TOP / "reports" / machines.of(nodes[0])["cluster_name"]
    latest = json.loads((saved / "verbs-latest.json").read_text(encoding="utf-8"))
    assert len(latest["pairs"]) == sum(len(rails(machines, name)) for name in nodes)
    for pair in latest["pairs"]:
        # Every sent packet was received: both kernels counted each of them.
        arrived = latest["arrived"][pair["peer"]][pair["rail"]]["exchanges"]
        sent = [entry for entry in pair["exchanges"].values() if "skipped" not in entry]
        left = sum(entry["wire"]["out"]["packets"] for entry in sent)
        assert left == sum(entry["wire"]["in"]["packets"] for entry in arrived.values()) > 0


def test_mpi_without_the_contract_is_detected_on_the_wire(machines: Nodes, tmp_path: Path) -> None:
    """Change the contract, but not the nodes' MPI environment: UCX still sends the old mark."""
    name = machines.group("compute")[0]
    before = HostSettings.of(machines.of(name)["cluster_qos"])
    dscp = 24 if before.traffic_class >> 2 != 24 else 28
    changed = machines.changed(
        tmp_path, lambda model: model.update(roce_qos={"roce": {"dscp": dscp}})
    )
    after = HostSettings.of(changed.of(name)["cluster_qos"])
    run = verbs(changed, *SHORT, expect=2)
    sent = {check["subject"].split()[-1]: check for check in named(run, "wire_sent")}
    # perftest gets the contract: it shows the behaviour of the NIC ...
    assert sent["write_lat"]["status"] == "ok"
    # ... and UCX gets the node's environment: it shows the behaviour of MPI.
    assert sent["ucx"]["status"] == "failed"
    assert sent["ucx"]["found"].startswith("0 of ")
    assert f"UCX_IB_TRAFFIC_CLASS={before.traffic_class}" in sent["ucx"]["reason"]
    assert f"asks for {after.traffic_class}" in sent["ucx"]["reason"]
    arrived = {check["subject"].split()[-1]: check for check in named(run, "wire_arrived")}
    assert arrived["ucx"]["status"] == "failed"
    assert arrived["ucx"]["found"].startswith("0 of ")
    assert arrived["write_lat"]["status"] == "ok"
    assert "pairs of rails; contract: TOS" in run.output  # figures are shown all the same


def test_a_removed_mark_is_reported_for_its_rail_only(machines: Nodes, rewriting: str) -> None:
    run = verbs(machines, *SHORT, expect=2)
    (peer,) = [name for name in machines.group("compute") if name != rewriting]
    first, *others = rails(machines, rewriting)
    assert others
    for host, least, most in (
        (rewriting, {"wire_sent"}, {"wire_sent", "wire_answered"}),
        (peer, {"wire_arrived"}, {"wire_arrived"}),
    ):
        failed = run.failed("verbs", host)
        assert {check["subject"].split()[0] for check in failed} == {first}
        assert least <= {check["name"] for check in failed} <= most
    check = one(run, "wire_sent", rewriting, f"{first} -> {peer} write_lat")
    assert "seen: TOS 0 (DSCP 0, Not-ECT)" in check["found"]
    assert "a rule on" in check["reason"]


@pytest.fixture
def deaf(machines: Nodes) -> Iterator[str]:
    """A node that drops incoming traffic on one of its rails, although the link is up."""
    name = machines.group("compute")[-1]
    with filtered(machines, name, "ingress matchall action drop"):
        yield name


def test_a_blocked_rail_is_named_and_the_others_measured(machines: Nodes, deaf: str) -> None:
    run = verbs(machines, *SHORT, "-e", "rdma_verify_time_limit_s=40", expect=2)
    (peer,) = [name for name in machines.group("compute") if name != deaf]
    first, *others = rails(machines, deaf)
    assert {check["subject"] for check in run.failed("verbs")} == {
        f"{first} -> {deaf}",
        f"{first} -> {peer}",
    }
    (check,) = [entry for entry in named(run, "write_lat", peer) if entry["status"] == "failed"]
    assert check["subject"] == f"{first} -> {deaf}"
    assert f"ping -I {first} " in check["reason"]
    for rail in others:
        subjects = {check["subject"] for check in named(run, "wire_sent", peer)}
        assert f"{rail} -> {deaf} ucx" in subjects


def test_a_limit_to_one_host_measures_nothing_and_says_so(machines: Nodes) -> None:
    name = machines.group("compute")[0]
    run = verbs(machines, f"--limit={name}")
    assert {check["status"] for check in run.checks("verbs")} == {"not_applicable"}
    assert run.report["remote_module_executions"]["hosts"] == {}


def test_check_mode_starts_nothing(machines: Nodes) -> None:
    run = verbs(machines, "--check")
    assert not run.checks("verbs")
    name = machines.group("compute")[0]
    assert not machines.on(name).file("/run/baremetal-mpi-roce/verbs").exists
    assert run.report["remote_module_executions"]["hosts"][name] == 1

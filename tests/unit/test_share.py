# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Several controllers: which nodes are accepted, how a run is cut, and how reports are merged."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.action.cluster_share import _whole
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import finite
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import ROLES, SHARED
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import RunSummary
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share import cut, nodes
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.cut import HERE, Job
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.merge import (
    Merged,
    into,
    parsed,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.nodes import NodesError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.run import Run
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.workers import Outcome
from hypothesis import given
from hypothesis import strategies as st

from tests.share import digest
from tests.unit.action_plays import ROOT

NODES = [f"node0{n}" for n in range(1, 5)]
PLACES = {**dict.fromkeys(NODES, "compute"), "launcher01": "launcher", "leaf01": "leaf"}
RACKS = dict(zip(NODES, ("r1", "r1", "r2", "r3")))


def execution(**changes: Any) -> list[nodes.ExecutionNode]:
    own = {"exec1": {"share_racks": ["r1"]}, "exec2": {"share_racks": ["r2"], **changes}}
    return nodes.read("execution", own, ["r1", "r2", "r3"])


# Nodes.


def test_a_node_is_reached_by_its_variables() -> None:
    variables = {
        "ansible_host": "10.0.0.9",
        "ansible_port": 2222,
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": "/k",
        "ansible_ssh_common_args": "-o UserKnownHostsFile='/a b'",
        "share_python": "/opt/venv/bin/python",
    }
    node = execution(**variables)[1]
    argv = node.command("print('x y')")
    assert argv[-2:] == ["10.0.0.9", "/opt/venv/bin/python -I -c 'print('\"'\"'x y'\"'\"')'"]
    text = " ".join(argv)
    for part in ("-p 2222", "-l ops", "-i /k", "UserKnownHostsFile=/a b", "BatchMode=yes -o"):
        assert part in text
    assert (node.directory, node.racks) == ("/dev/shm", ("r2",))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"share_racks": []}, "share.racks"),
        ({"share_racks": "r2"}, "share.racks"),
        ({"share_racks": ["r9"]}, "share.unknown_rack"),
        ({"share_racks": ["r1"]}, "share.rack_twice"),
        ({"ansible_password": "x"}, "share.password"),
        ({"ansible_host": "-oProxyCommand=x"}, "share.value"),
        ({"ansible_user": "a b"}, "share.value"),
        ({"ansible_port": "22; x"}, "share.value"),
        ({"share_python": "python; x"}, "share.value"),
        ({"share_directory": "/a b"}, "share.value"),
        ({"ansible_ssh_common_args": "'"}, "share.ssh_arguments"),
    ],
)
def test_a_wrong_node_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(NodesError) as error:
        execution(**changes)
    assert code in {finding.code for finding in error.value.findings}
    if code == "share.password":
        assert "'x'" not in str(error.value)


def test_an_inventory_without_nodes_is_refused() -> None:
    with pytest.raises(NodesError) as error:
        nodes.read("execution", {}, ["r1"])
    assert [finding.code for finding in error.value.findings] == ["share.no_nodes"]


def test_nodes_that_cannot_run_a_job_are_named() -> None:
    here = {"ansible-core": "2.19.14", "ansible-runner": "2.4.3"}
    good = {"share": "ready", "versions": here, "free_bytes": 10 << 20, "writable": True}
    answers: dict[str, Mapping[str, Any]] = {
        "good": good,
        "old": {**good, "versions": {**here, "ansible-core": "2.18.0"}},
        "bare": {**good, "versions": {"ansible-core": "2.19.14"}},
        "full": {**good, "free_bytes": 1 << 20},
        "closed": {**good, "writable": False},
        "strange": {**good, "versions": 3, "free_bytes": "x"},
        "lost": {"share": "lost", "reason": "Permission denied (publickey)."},
    }
    found = nodes.refusals(answers, here, 5 << 20)
    names = [line.partition(":")[0] for line in found]
    assert names == ["old", "bare", "full", "closed", "strange", "strange", "strange", "lost"]
    assert "2.18.0" in found[0] and "Permission denied" in found[-1]


def test_receptor_forwards_a_port_to_the_ssh_server_of_each_node() -> None:
    files = nodes.receptor(execution(), {"exec1": "10.0.0.1", "exec2": "fe80::1"})
    read = {name: yaml.safe_load(text) for name, text in files.items()}
    assert set(read) == {"controller.yml", "exec1.yml", "exec2.yml", "inventory.yml"}
    servers = read["controller.yml"]["tcp-servers"]
    hosts = read["inventory.yml"]["all"]["hosts"]
    for server in servers:
        own = read[f"{server['remotenode']}.yml"]
        assert own["node"]["id"] == server["remotenode"]
        assert own["tcp-clients"][0]["service"] == server["remoteservice"]
        assert hosts[server["remotenode"]]["ansible_port"] == server["port"]
        assert (server["bindaddr"], own["tls-servers"][0]["requireclientcert"]) == (
            "127.0.0.1",
            True,
        )
    assert len({server["port"] for server in servers}) == 2
    peers = read["controller.yml"]["tcp-peers"]
    assert [peer["address"] for peer in peers] == ["10.0.0.1:27199", "[fe80::1]:27199"]
    assert {peer["tls"] for peer in peers} == {"mesh"}


# The cut.


def test_layers_that_need_state_of_the_controller_are_not_shared() -> None:
    assert not {"ssh", "slurm", "monitoring", "fabric", "links", "storage", "verbs"} & set(SHARED)


def test_the_playbook_accepts_the_tags_of_every_layer() -> None:
    [_model, play] = yaml.safe_load((ROOT / "playbooks/share.yml").read_text(encoding="utf-8"))
    assert play["tasks"][-1]["tags"] == list(ROLES)


def test_stages_are_in_the_order_of_the_site() -> None:
    every = cut.layers_of((), ())
    found = cut.stages(every)
    assert [layer for _shared, group in found for layer in group] == list(ROLES)
    assert [shared for shared, _group in found] == [True, False, True, False, True, False]
    assert cut.stages(["gpu", "mpi"], ["mpi"]) == [(True, ["gpu"]), (False, ["mpi"])]
    assert cut.layers_of(["mpi", "os"], ["os"]) == ["mpi"]
    assert cut.layers_of(["all"], ["os"]) == [layer for layer in ROLES if layer != "os"]


@pytest.mark.parametrize(
    ("software", "whole"),
    [
        ({}, []),
        ({"mpi": {"provider": "distribution"}}, []),
        ({"mpi": {"provider": "source"}}, ["mpi"]),
        ({"mpi": {"provider": "hpcx"}}, ["mpi"]),
    ],
)
def test_mpi_with_archives_is_not_shared(software: dict[str, Any], whole: list[str]) -> None:
    class Variables:
        def raw_get(self, _host: str) -> dict[str, Any]:
            return {"cluster_software": software}

    found = _whole({"hostvars": Variables(), "groups": {"compute": NODES}})
    assert found == whole


def test_jobs_have_the_racks_of_their_node_and_layers_with_hosts() -> None:
    assert cut.jobs(["names", "gpu"], PLACES, RACKS, execution()) == [
        Job(("names", "gpu"), ("node01", "node02"), "exec1"),
        Job(("names", "gpu"), ("node03",), "exec2"),
        Job(("names", "gpu"), ("node04", "launcher01"), HERE),
    ]
    launcher = {"launcher01": "launcher"}
    assert cut.jobs(["names", "gpu"], launcher, RACKS, execution()) == [
        Job(("names",), ("launcher01",), HERE)
    ]
    assert cut.jobs(["gpu"], launcher, RACKS, execution()) == []


@given(st.dictionaries(st.sampled_from(NODES), st.sampled_from(["r1", "r2", "r3"])))
def test_every_host_of_a_layer_is_in_one_job(racks: dict[str, str]) -> None:
    jobs = cut.jobs(["gpu"], PLACES, racks, execution())
    assert sorted(host for job in jobs for host in job.hosts) == NODES


# Reports.

STATUS = st.sampled_from(["ok", "failed", "pending", "reboot", "not_applicable"])


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    hosts = st.sampled_from([*PLACES, "stranger"])
    check = st.builds(
        lambda name, status: {
            "name": name,
            "subject": "x",
            "wanted": 1,
            "found": 2,
            "status": status,
            "reason": "because",
        },
        st.sampled_from(["mtu", "route", "link"]),
        STATUS,
    )
    entry = st.builds(
        lambda checks: {"checks": checks},
        st.lists(check, max_size=2, unique_by=lambda c: str(c["name"])),
    )
    layer = st.builds(lambda own: {"hosts": own}, st.dictionaries(hosts, entry, max_size=3))
    counts = st.dictionaries(hosts, st.integers(1, 5), max_size=3)
    reasons = st.dictionaries(hosts, st.sampled_from(["task: a", "task: b"]), max_size=2)
    lists = st.dictionaries(st.sampled_from(["a", "b"]), st.lists(hosts, max_size=3), max_size=2)
    return {
        "started": f"2026-01-01T00:00:{draw(st.integers(0, 59)):02}.123456+00:00",
        "seconds": draw(st.integers(0, 900)) / 10,
        "layers": draw(st.dictionaries(st.sampled_from(["os", "gpu"]), layer, max_size=2)),
        "failed": draw(reasons),
        "unreachable": draw(reasons),
        "unverified": draw(st.dictionaries(st.just("os"), lists, max_size=1)),
        "changed": draw(counts),
        "remote_module_executions": {"hosts": draw(counts)},
        "simulated": draw(lists),
        "out_of_service": draw(
            st.lists(st.just({"nodes": "n1", "since": "s", "by": "b", "reason": "r"}), max_size=1)
        ),
    }


def read(report: dict[str, Any]) -> Merged:
    return parsed(report, PLACES)


@given(reports(), reports(), reports())
def test_merging_is_associative_and_ignores_the_order(
    a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]
) -> None:
    one, two, three = map(read, (a, b, c))
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert Merged() + one == one


@given(reports())
def test_a_merged_report_is_read_as_it_was(report: dict[str, Any]) -> None:
    merged = read(report)
    summary = into(RunSummary(roles=dict(PLACES), verifies=True), merged)
    seconds = merged.seconds
    made = json.loads(json.dumps(finite(summary.report(str(merged.began), seconds, 60, False))))
    again = read(made)
    assert "stranger" not in json.dumps(made)
    assert again.layers == merged.layers
    assert (again.failed, again.unreachable) == (merged.failed, merged.unreachable)
    assert (again.changed, again.executions) == (merged.changed, merged.executions)
    assert (again.simulated, again.out_of_service) == (merged.simulated, merged.out_of_service)


def result(layer: str, host: str, status: str = "ok") -> dict[str, Any]:
    check = {"name": "mtu", "subject": host, "wanted": 1, "found": 1, "status": status}
    return {"layer": layer, "checks": [{**check, "reason": ""}], "changed": False}


def run_of(hosts: Sequence[str], layers: Sequence[str]) -> RunSummary:
    summary = RunSummary(cluster="c", roles=dict(PLACES), racks=dict(RACKS))
    for layer in layers:
        for host in hosts:
            summary.add_result(host, result(layer, host))
            summary.changed[host] += 1
    return summary


def test_parts_of_a_run_have_the_digest_of_the_whole() -> None:
    whole = run_of(NODES, ["os", "gpu"]).report("2026-01-01T00:00:00+00:00", 9.0, 60, False)
    merged = Merged()
    for hosts, layers in [(NODES[2:], ["gpu"]), (NODES[:2], ["os", "gpu"]), (NODES[2:], ["os"])]:
        part = run_of(hosts, layers).report("2026-02-01T00:00:00+00:00", 3.0, 60, False)
        merged += parsed(json.loads(json.dumps(finite(part))), hosts)
    summary = into(RunSummary(cluster="c", roles=dict(PLACES), racks=dict(RACKS)), merged)
    assert digest(summary.report("", 1.0, 60, False)) == digest(whole)
    summary.failed["node01"] = "x"
    assert digest(summary.report("", 1.0, 60, False)) != digest(whole)


def test_of_two_answers_the_worst_counts() -> None:
    one, two = (
        parsed({"layers": {"os": {"hosts": {"node01": result("os", "node01", status)}}}}, NODES)
        for status in ("failed", "ok")
    )
    for both in (one + two, two + one):
        assert [check["status"] for check in both.layers["os"]["node01"].checks] == ["failed"]


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        {"layers": {"os": {"hosts": {"node01": 3}}, "evil": {"hosts": {"node01": {}}}}},
        {"failed": [1], "changed": {"node01": -1, "node02": "x"}, "started": 5, "seconds": "x"},
        {"started": "2026-01-01T00:00:00", "seconds": float("inf"), "out_of_service": [1]},
        {"simulated": {"a": 1}, "unverified": {"os": [1]}, "remote_module_executions": 1},
    ],
)
def test_a_report_of_another_form_harms_only_its_hosts(report: Any) -> None:
    merged = parsed(report, NODES)
    assert set(merged.layers) <= {"os"}
    assert not merged.changed and not merged.failed and merged.seconds == 0
    into(RunSummary(roles=dict(PLACES)), merged).lines(1.0, 60)


# The run.


@dataclass
class Fake:
    """Finishes every job immediately; some nodes are lost."""

    lost: Mapping[str, int] = field(default_factory=dict)
    """Number of jobs after which a node is lost."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Hosts that fail in a layer."""
    done: list[Job] = field(default_factory=list)
    whole: list[tuple[str, ...]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def remote(self, node: nodes.ExecutionNode, job: Job, name: str) -> Outcome:
        with self.lock:
            count = sum(each.place == node.name for each in self.done)
            if count >= self.lost.get(node.name, 99):
                return Outcome(lost="silent")
            return self._report(job)

    def local(self, job: Optional[Job], layers: Sequence[str], name: str) -> Outcome:
        with self.lock:
            if job is None:
                self.whole.append(tuple(layers))
                job = cut.job_of(layers, list(PLACES), HERE, PLACES)
            if HERE in self.lost:
                return Outcome(4, lost="no report")
            return self._report(job)

    def _report(self, job: Job) -> Outcome:
        self.done.append(job)
        summary = RunSummary(roles=dict(PLACES))
        for layer in job.layers:
            for host in job.hosts:
                if PLACES[host] not in cut.HOSTS[layer]:
                    continue
                bad = self.failing.get(host) == layer
                summary.add_result(host, result(layer, host, "failed" if bad else "ok"))
                if bad:
                    summary.failed[host] = f"{layer}: broken"
        report = summary.report("2026-01-01T00:00:00+00:00", 1.0, 60, False)
        return Outcome(2 if summary.failed else 0, report)


def ran(
    fake: Fake, layers: Sequence[str] = tuple(ROLES), verifies: bool = False
) -> tuple[Run, RunSummary, int]:
    run = Run(fake, execution(), PLACES, RACKS, False, verifies, lambda _text: None)
    run.run(layers)
    summary = RunSummary(roles=dict(PLACES), verifies=verifies)
    return run, summary, run.finish(summary, layers, ())


def hosts_by_layer(summary: RunSummary) -> dict[str, set[str]]:
    return {layer: set(own) for layer, own in summary.layers.items()}


def test_a_run_covers_every_layer_of_every_host() -> None:
    fake = Fake()
    run, summary, status = ran(fake)
    assert (status, run.lost, run.lines()) == (0, {}, [])
    assert hosts_by_layer(summary) == {
        layer: {host for host, role in PLACES.items() if role in cut.HOSTS[layer]}
        for layer in ROLES
    }
    # Without --limit, as on one controller.
    assert fake.whole == [
        ("fabric", "links", "storage"),
        ("hostfile", "ssh"),
        ("slurm", "monitoring", "verbs", "smoke"),
    ]


def test_hosts_of_a_lost_node_run_on_the_other_one_and_it_gets_no_more() -> None:
    fake = Fake(lost={"exec1": 1})
    run, summary, status = ran(fake)
    assert (status, run.lost) == (0, {"exec1": "silent"})
    assert hosts_by_layer(summary) == hosts_by_layer(ran(Fake())[1])
    mine = [job.place for job in fake.done if job.hosts == ("node01", "node02")]
    assert mine == ["exec1", "exec2", "exec2"]
    assert any("exec1" in line for line in run.lines())


def test_a_node_has_one_job_at_a_time() -> None:
    lost, second = threading.Event(), threading.Event()
    jobs: list[str] = []

    class Slow(Fake):
        def remote(self, node: nodes.ExecutionNode, job: Job, name: str) -> Outcome:
            if node.name == "exec1":
                return Outcome(lost="silent")
            jobs.append(name)
            if len(jobs) == 1:
                assert lost.wait(60)
                assert not second.wait(0.3)  # the second job waits for the first
            second.set()
            return super().remote(node, job, name)

    def show(text: str) -> None:
        if "LOST" in text:
            lost.set()

    run = Run(Slow(), execution(), PLACES, RACKS, False, False, show)
    run.run(["os"])
    assert jobs == ["1-exec2", "1-exec2-2"]


def test_the_controller_runs_what_no_node_can() -> None:
    fake = Fake(lost={"exec1": 0, "exec2": 0})
    run, summary, status = ran(fake)
    assert (status, set(run.lost)) == (0, {"exec1", "exec2"})
    assert hosts_by_layer(summary) == hosts_by_layer(ran(Fake())[1])
    assert {job.place for job in fake.done} == {HERE}


def test_hosts_that_no_controller_finishes_are_named_and_left_out() -> None:
    fake = Fake(lost={"exec1": 0, "exec2": 0, HERE: 0})
    run, summary, status = ran(fake, ["os", "ssh"])
    assert status == 2
    assert set(run.undone) == set(summary.failed) == {*NODES, "launcher01"}
    assert fake.done == [] and fake.whole == []  # ssh has no host left


@pytest.mark.parametrize(("verifies", "later"), [(False, False), (True, True)])
def test_a_failed_host_takes_part_in_later_layers_of_verify_only(
    verifies: bool, later: bool
) -> None:
    fake = Fake(failing={"node03": "gpu"})
    _run, summary, status = ran(fake, ["os", "gpu", "ssh", "mpi"], verifies)
    assert status == 2 and "node03" in summary.failed
    assert [("node03" in summary.layers[layer]) for layer in ("ssh", "mpi")] == [later, later]


def test_a_limit_without_hosts_of_a_named_layer_is_not_success() -> None:
    launcher = {"launcher01": "launcher"}
    run = Run(Fake(), execution(), launcher, RACKS, True, False, lambda _text: None)
    run.run(["gpu"])
    summary = RunSummary(roles=dict(PLACES))
    assert run.finish(summary, ["gpu"], ["gpu"]) == 2
    assert (summary.left_out, summary.named) == ({"gpu": NODES}, {"gpu"})

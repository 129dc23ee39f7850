# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI over RDMA on virtual machines: it uses RDMA, and a run without RDMA is reported."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.nodes import TOP, Nodes, Run

pytestmark = pytest.mark.machines

RAIL_BIND = "/usr/local/libexec/baremetal-mpi-roce/rail-bind"
SMOKE = ("site.yml", "--tags", "smoke")
PREFIXES = ("UCX_", "NCCL_", "MPI_ROCE_")
QUICK = {"mpi_smoke_max_bytes": 65536, "mpi_smoke_size_step": 64, "mpi_smoke_bisect_runs": 0}


def extra(**variables: Any) -> str:
    return "--extra-vars=" + json.dumps(variables)


def smoke_of(run: Run) -> dict[str, Any]:
    (where,) = re.findall(r"smoke: report in (\S+)", run.output)[:1]
    return dict(json.loads((TOP / where).read_text(encoding="utf-8")))


def failed(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in report["checks"] if check["status"] == "failed"}


def messages(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value for key, value in pairs if key.startswith(PREFIXES)}


def test_an_allreduce_over_rc_uses_every_rail_by_rdma(machines: Nodes) -> None:
    report = smoke_of(machines.play(*SMOKE))
    assert failed(report) == {}
    found = {check["name"]: check for check in report["checks"]}
    assert found["transport"]["reason"] == "rc_verbs"
    assert found["rails_tcp"]["status"] == "ok"
    rails = {rail["interface"] for rail in machines.of("node01")["cluster_rails"]}
    assert {entry["rail"] for entry in report["figures"]["rails"]} == rails
    for node in report["traffic"]:
        for rail, moved in node["rails"].items():
            assert moved["packets"] > 100, f"{node['node']} {rail}: {moved}"
            assert moved["tcp_bytes"] < moved["sent_bytes"] / 10
    assert report["figures"]["virtual"], "Soft-RoCE has no line rate to be compared with"


def test_ranks_and_login_shells_have_the_environment(machines: Nodes) -> None:
    node, launcher = "node01", machines.group("launcher")[0]
    file = messages(machines.on(node).file("/etc/baremetal-mpi-roce/mpi.env").content_string)
    shell = messages(machines.as_user(node, "env"))
    assert set(shell) == set(file)
    assert shell["UCX_TLS"] == "rc,ud,sm,self"
    started = f"mpirun --host {node}:1 -np 1"
    rank = messages(machines.as_user(launcher, f"cd /; {started} env"))
    assert {key: rank[key] for key in shell} == shell
    assert set(rank) == set(shell)
    # A bound rank has only the rail of its GPU.
    both = f"cd /; mpirun --host {node}:2 -np 2 --tag-output {RAIL_BIND} env"
    bound = [
        line.split("UCX_NET_DEVICES=", 1)[1]
        for line in machines.as_user(launcher, both).splitlines()
        if "UCX_NET_DEVICES=" in line
    ]
    assert sorted(bound) == sorted(shell["UCX_NET_DEVICES"].split(","))


def test_ucx_forced_to_tcp_where_rc_was_asked_fails(machines: Nodes) -> None:
    forced = {"mca_base_env_list": "UCX_TLS=tcp,sm,self;UCX_NET_DEVICES=rail0,rail1"}
    run = machines.play(
        *SMOKE,
        extra(mpi_smoke_bind_rails=False, mpi_smoke_parameters=forced, **QUICK),
        expect=2,
    )
    found = failed(smoke_of(run))
    assert found["transport"]["wanted"] == "rc"
    assert found["transport"]["found"] == "tcp"
    assert "rails_traffic" in found
    assert "transport: wanted 'rc', found 'tcp'" in run.output


def test_a_node_without_its_rdma_device_fails_by_name(machines: Nodes) -> None:
    add = "rdma link add rxe1 type rxe netdev rail1"
    with machines.by_hand("node02", "rdma link delete rxe1", add):
        run = machines.play("site.yml", "--tags", "mpi", "--limit", "node02", expect=2)
        assert "rdma_device rail1" in run.output
        assert "mpi_stack_transport" in run.output
        run = machines.play(*SMOKE, extra(**QUICK), expect=2)
        assert "ready node02" in run.output
        assert "rail1" in run.output
    assert machines.play("site.yml", "--tags", "mpi", "--limit", "node02").total("changed") == 0


def test_a_mark_that_is_not_the_contracts_fails(machines: Nodes) -> None:
    kept = machines.of("node01")["mpi_stack_environment"]
    other = extra(mpi_stack_environment={**kept, "UCX_RC_VERBS_TRAFFIC_CLASS": "0"})
    layer = ("site.yml", "--tags", "mpi", "--limit", "node01")
    run = machines.play(*layer, other, "--check")
    assert run.total("changed") > 0, "check mode shows what it would write"
    run = machines.play(*layer, other, expect=2)
    assert "contract UCX_IB_TRAFFIC_CLASS" in run.output
    assert "UCX_RC_VERBS_TRAFFIC_CLASS=0" in run.output
    machines.play(*layer)

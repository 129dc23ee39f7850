# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading records, UCX's lanes, and what Open MPI 4.1.4 printed when things went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import parse
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.parse import Lane

RECORDED = Path(__file__).parent / "golden/mpirun"
NODES = ("node01", "node02", "node0")


def test_records_among_other_lines() -> None:
    lines = [
        "Welcome to launcher01\n",
        'allreduce-record {"kind": "size", "bytes": 4}\n',
        'allreduce-record {"kind": "si',
        "allreduce-record 7\n",
        ' allreduce-record {"kind": "size"}\n',
    ]
    found = [parse.record(line) for line in lines]
    assert [one for one in found if one] == [{"kind": "size", "bytes": 4}]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ep_cfg[0]: tag(self/memory0 cma/memory)", ()),
        ("ep_cfg[2]: tag(tcp/rail0)", (Lane("tcp", "rail0"),)),
        ("ep_cfg[2]: tag(tcp/rail1 tcp/rail0)", (Lane("tcp", "rail1"), Lane("tcp", "rail0"))),
        (
            "ep_cfg[1]: tag(rc_verbs/rxe0:1 rc_verbs/rxe1:1);",
            (Lane("rc_verbs", "rxe0:1"), Lane("rc_verbs", "rxe1:1")),
        ),
        # Recorded from UCX 1.13.1 over Soft-RoCE, ranks that have both rails: inside a node too.
        ("ep_cfg[0]: tag(self/memory0 cma/memory rc_verbs/rxe0:1)", ()),
        # As 1.18 and later print it: one or more uses, and a lane that only asks for signs of life.
        (
            "ucp_context_0 inter-node cfg#2 tag(rc_verbs/rxe1:1) ka(ud_verbs/rxe1:1)",
            (Lane("rc_verbs", "rxe1:1"),),
        ),
        (
            "0x5581e0 inter-node cfg#5 tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1) am(ud_mlx5/mlx5_0:1)",
            (Lane("rc_mlx5", "mlx5_0:1"), Lane("rc_mlx5", "mlx5_1:1"), Lane("ud_mlx5", "mlx5_0:1")),
        ),
        ("ucp_context_0 self cfg#0 tag(self/memory cma/memory)", ()),
        (
            "ucp_context_0 intra-node cfg#4 tag(sysv/memory cma/memory rc_mlx5/mlx5_3:1)",
            (),
        ),
        (
            "x inter-node cfg#3 tag(tcp/rail0) rma(tcp/rail1)",
            (Lane("tcp", "rail0"), Lane("tcp", "rail1")),
        ),
    ],
)
def test_lanes_that_leave_the_node(text: str, wanted: tuple[Lane, ...]) -> None:
    assert parse.between_nodes(text) == wanted


def test_rc_is_rc_whoever_drives_it_and_nothing_else_is() -> None:
    assert parse.is_transport(Lane("rc_mlx5", "mlx5_0:1"), "rc")
    assert parse.is_transport(Lane("rc_verbs", "rxe0:1"), "rc")
    assert parse.is_transport(Lane("tcp", "rail0"), "tcp")
    for other in ("tcp", "ud_verbs", "dc_mlx5", "rcx"):
        assert not parse.is_transport(Lane(other, "mlx5_0:1"), "rc")


@pytest.mark.parametrize(
    ("name", "telling", "hosts", "ranks"),
    [
        ("killed", "process rank 11 with PID 600 on node node02 exited", ["node02"], [11]),
        ("sshdown", "connect to host node02 port 22: Connection refused", ["node02"], []),
        ("noagent", "libexec/baremetal-mpi-roce/orted: No such file", [], []),
        ("noprog", "/nonexistent/prog: not found", [], [8]),
        ("nopml", "Component: nosuch", ["node02"], []),
        ("nodevice", "Destination is unreachable", ["node01", "node02"], [11, 3]),
        ("slots", "There are not enough slots available", [], []),
    ],
)
def test_of_what_the_launcher_said_the_cause_is_left(
    name: str, telling: str, hosts: list[str], ranks: list[int]
) -> None:
    text = (RECORDED / f"{name}.txt").read_text(encoding="utf-8")
    lines = parse.relevant_lines(text)
    assert any(telling in line for line in lines)
    assert len(lines) <= 7
    assert parse.hosts_named(lines, NODES) == hosts
    assert parse.first_ranks_named(lines) == ranks

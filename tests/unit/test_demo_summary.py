# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines at the end of ./demo about shared file systems and the allreduce."""

from __future__ import annotations

from typing import Any

import pytest

from tools.demo_summary import allreduce, storage

POINT = "/mnt/checkpoints"


def check(name: str, status: str, subject: str = POINT, found: Any = None) -> dict[str, Any]:
    return {"name": name, "status": status, "subject": subject, "found": found}


def lines(hosts: dict[str, list[dict[str, Any]]], **measured: Any) -> list[str]:
    entries: dict[str, Any] = {host: {"checks": checks} for host, checks in hosts.items()}
    if measured:
        entries[next(iter(entries))]["measured"] = {"figures": measured}
    return list(storage({"layers": {"storage": {"hosts": entries}}}))


def test_containers_are_set_up_without_a_mount() -> None:
    exports = check("nfs_exports", "not_applicable", "/srv/checkpoints")
    mount = check("storage_mount", "not_applicable")
    assert lines({"storage01": [exports], "node01": [mount], "node02": [mount]}) == [
        "/mnt/checkpoints is set up on 2 containers, which mount nothing",
    ]


def test_machines_mount_and_measure() -> None:
    good = [check("storage_mount", "ok"), check("storage_neighbour", "ok")]
    poor = [check("storage_mount", "ok"), check("storage_neighbour", "failed")]
    exports = check("nfs_exports", "ok", "/srv/checkpoints", "37 addresses")
    used = {"mount": POINT, "write": {"together": 1.5}, "read": None, "virtual": True}
    assert lines({"node01": [exports, *good], "node02": poor}, checkpoints=used) == [
        "node01 serves /srv/checkpoints to 37 addresses only",
        "/mnt/checkpoints is mounted on 2 nodes; 1 read another node's file",
        "/mnt/checkpoints on all nodes: write 1.50 GB/s (nominal: these nodes are virtual)",
    ]


def test_a_wrong_export_is_not_listed() -> None:
    assert lines({"storage01": [check("nfs_exports", "failed", "/srv/x", "not exported")]}) == []


@pytest.mark.parametrize(("status", "results"), [("ok", "bit-exact"), ("failed", "not verified")])
def test_results_are_exact_only_if_their_check_passed(status: str, results: str) -> None:
    size = {"bytes": 8, "median_us": 1.0, "p99_us": 2.0, "busbw_gbytes_s": 1.0}
    figures = {"by_size": [size], "ranks": 4, "transport": "tcp", "virtual": True}
    measured = {"figures": {**figures, "line_rate_gbytes_s": 10.0}}
    smoke = {"measured": measured, "checks": [check("exactness", status)]}
    assert results in next(allreduce(smoke))

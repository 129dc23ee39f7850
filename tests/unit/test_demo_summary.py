# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines at the end of ./demo about shared file systems."""

from __future__ import annotations

from typing import Any

from tools.demo_summary import storage

POINT = "/mnt/checkpoints"


def check(name: str, status: str, subject: str = POINT, found: Any = None) -> dict[str, Any]:
    return {"name": name, "status": status, "subject": subject, "found": found}


def lines(hosts: dict[str, list[dict[str, Any]]], **measured: Any) -> list[str]:
    entries: dict[str, Any] = {host: {"checks": checks} for host, checks in hosts.items()}
    if measured:
        entries[next(iter(entries))]["measured"] = {"figures": measured}
    return list(storage({"layers": {"storage": {"hosts": entries}}}))


def test_containers_have_it_set_up_and_neither_served_nor_mounted() -> None:
    exports = check("nfs_exports", "not_applicable", "/srv/checkpoints")
    mount = check("storage_mount", "not_applicable")
    assert lines({"storage01": [exports], "node01": [mount], "node02": [mount]}) == [
        "/mnt/checkpoints is set up on 2 containers, which can mount none",
    ]


def test_machines_have_it_mounted_and_measured() -> None:
    good = [check("storage_mount", "ok"), check("storage_neighbour", "ok")]
    poor = [check("storage_mount", "ok"), check("storage_neighbour", "failed")]
    exports = check("nfs_exports", "ok", "/srv/checkpoints", "37 addresses")
    used = {"mount": POINT, "write": {"together": 1.5}, "read": None, "virtual": True}
    assert lines({"node01": [exports, *good], "node02": poor}, checkpoints=used) == [
        "node01 serves /srv/checkpoints to 37 addresses alone",
        "/mnt/checkpoints is mounted on 2 nodes; 1 read what another wrote",
        "/mnt/checkpoints all together: write 1.50 GB/s (virtual: no measure of anything)",
    ]


def test_what_is_not_exported_as_wanted_is_not_said_to_be_served() -> None:
    assert lines({"storage01": [check("nfs_exports", "failed", "/srv/x", "not exported")]}) == []


def test_a_cluster_without_file_systems_says_nothing() -> None:
    assert list(storage({"layers": {}})) == []

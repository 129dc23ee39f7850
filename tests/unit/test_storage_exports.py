# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exports in files and in the kernel, foreign access, and the served directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    ServedDirectory,
    User,
    read_exports,
)

from tests.unit.storage_node import found, wrong
from tests.unit.storage_server import DISK, NODES, OURS, ServerHost, system

GOLDEN = Path(__file__).parent / "golden/storage"


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


def test_the_file_matches_the_golden_file(host: ServerHost) -> None:
    host.disk()
    host.settle(
        system(device=DISK, format="xfs"),
        system("datasets"),
        clients=[*NODES, "fd00:1::11"],
    )
    assert host.read(OURS) == (GOLDEN / "served.exports").read_text()


def test_a_new_host_exports_to_nodes_only(host: ServerHost) -> None:
    outcome = host.settle(system())
    assert wrong(outcome) == []
    exported = {(each.path, each.client) for each in read_exports("\n".join(host.etab))}
    assert exported == {("/srv/checkpoints", each) for each in NODES}
    assert all("root_squash" in line and "(rw" not in line for line in host.etab)
    before, host.calls = host.snapshot(), []
    outcome = host.settle(system())
    assert not outcome.changed and wrong(outcome) == []
    assert host.ran("exportfs", "-a") == 0 and host.snapshot() == before
    host.etab = host.etab[1:]  # as an interrupted run leaves it
    outcome = host.settle(system())
    assert outcome.changed and wrong(outcome) == [] and len(host.etab) == 4


def test_check_mode_writes_nothing(host: ServerHost) -> None:
    host.gone.add("exportfs")  # the packages are not there yet
    before = host.snapshot()
    outcome = host.settle(system(), check_mode=True)
    assert host.snapshot() == before and outcome.changed
    assert {check.status for check in outcome.checks} <= {"pending", "ok", "not_applicable"}
    assert found(outcome, "nfs_exports")["/srv/checkpoints"].status == "pending"


def test_a_removed_client_loses_access(host: ServerHost) -> None:
    host.settle(system())
    outcome = host.settle(system(), clients=NODES[::2])
    assert wrong(outcome) == [] and outcome.changed
    assert "10.240.0.12" not in host.read(OURS)
    assert not [line for line in host.etab if "10.240.0.12" in line]
    assert host.ran("systemctl", "restart", "nfs-server.service") == 1  # of the first run


def test_the_operator_s_exports_remain(host: ServerHost) -> None:
    host.write("etc/exports", "/export/home 10.9.0.0/16(rw,no_root_squash)\n")
    host.write("etc/exports.d/site.exports", "/export/iso *(ro)\n")
    by_hand = "/export/ha  10.9.9.9(sync,rw,root_squash,no_subtree_check,sec=sys)"
    host.etab.append(by_hand)
    host.settle(system())
    assert wrong(host.settle(system(), clients=NODES[::2])) == []
    assert host.read("etc/exports") == "/export/home 10.9.0.0/16(rw,no_root_squash)\n"
    exported = {(each.path, each.client) for each in read_exports("\n".join(host.etab))}
    assert {("/export/home", "10.9.0.0/16"), ("/export/iso", "*")} <= exported
    assert by_hand in host.etab


def test_runs_do_not_remove_the_operator_s_exports(host: ServerHost) -> None:
    host.settle(system())
    lines = "/srv/checkpoints 10.9.9.8(ro)\n/srv/checkpoints 10.9.9.9(rw)\n"
    host.write("etc/exports.d/site.exports", lines)
    host.settle(system(), clients=NODES[1:])
    assert len([line for line in host.etab if "10.9.9." in line]) == 2
    outcome = host.settle(system(), clients=NODES[1:])
    assert not outcome.changed and host.ran("exportfs", "-u") == 1
    assert "10.9.9.9" in found(outcome, "nfs_exports")["/srv/checkpoints"].reason


def test_a_client_added_by_hand_is_removed(host: ServerHost) -> None:
    host.settle(system())
    host.etab.append("/srv/checkpoints  10.9.9.9(sync,rw,root_squash,no_subtree_check,sec=sys)")
    checked = host.settle(system(), check_mode=True)
    assert "10.9.9.9" in found(checked, "nfs_exports")["/srv/checkpoints"].reason
    assert wrong(host.settle(system())) == []
    assert not [line for line in host.etab if "10.9.9.9" in line]


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("/srv/checkpoints *(rw)", "failed"),
        ("/srv 10.9.9.9(rw)", "failed"),
        ("/ node*.example.org(ro)", "failed"),
        ("/srv 10.240.0.11(rw,no_root_squash)", "failed"),
        ("/srv/checkpoints/old *(ro)", "failed"),
        ("/srv 10.240.0.11(rw)", "ok"),
        ("/srv2 10.9.9.9(rw)", "ok"),
    ],
)
def test_additional_access_is_reported(
    host: ServerHost, line: str, status: str, active: bool
) -> None:
    if not active:
        host.settle(system())
    host.write("etc/exports", f"{line}\n")
    check = found(host.settle(system()), "nfs_exports")["/srv/checkpoints"]
    assert check.status == status
    client = line.split()[1].partition("(")[0]
    assert status == "ok" or client in f"{check.found} {check.reason}"
    assert host.read("etc/exports") == f"{line}\n"


def test_exports_are_removed_in_batches(host: ServerHost) -> None:
    clients = [f"10.0.{one // 250}.{one % 250 + 1}" for one in range(2500)]
    host.settle(system(), clients=clients)
    assert wrong(host.settle(clients=clients, absent=["/srv/checkpoints"])) == []
    assert host.etab == [] and host.ran("exportfs", "-u") == 3


def test_former_exports_remain_until_declared_absent(host: ServerHost) -> None:
    host.settle(system(), system("datasets"))
    outcome = host.settle(system("datasets"))
    check = found(outcome, "nfs_exports_left")["/srv/checkpoints"]
    assert check.status == "failed" and "/srv/checkpoints to shared_storage_absent" in check.reason
    assert len(host.etab) == 8 and not outcome.changed

    outcome = host.settle(system("datasets"), absent=["/srv/checkpoints"])
    assert wrong(outcome) == [] and len(host.etab) == 4
    assert "/srv/checkpoints" not in host.read(OURS)
    outcome = host.settle(absent=["/srv/checkpoints", "/srv/datasets/"])
    assert wrong(outcome) == [] and host.etab == [] and not (host.root / OURS).exists()
    assert not host.settle(absent=["/srv/datasets"]).changed


def test_an_interrupted_removal_is_completed(host: ServerHost) -> None:
    host.settle(system())
    run = host.run

    def failing(argv, **given):  # type: ignore[no-untyped-def]
        if list(argv[:2]) == ["exportfs", "-u"]:
            host.etab.pop()
            raise OSError("no space left")
        return run(argv, **given)

    host.run = failing  # type: ignore[method-assign]
    assert host.settle(absent=["/srv/checkpoints"]).errors
    host.run = run  # type: ignore[method-assign]
    assert wrong(host.settle(absent=["/srv/checkpoints"])) == [] and host.etab == []


def test_a_container_only_gets_the_file(tmp_path: Path) -> None:
    host = ServerHost(tmp_path, container="podman")
    outcome = host.settle(system())
    check = found(outcome, "nfs_exports")["/srv/checkpoints"]
    assert check.status == "not_applicable" and "podman" in check.reason
    assert host.ran("exportfs") == 0 and "10.240.0.11" in host.read(OURS)


def test_a_host_that_serves_nothing_is_not_changed(host: ServerHost) -> None:
    before = host.snapshot()
    outcome = host.settle()
    assert not outcome.changed and outcome.checks == [] and host.snapshot() == before
    assert host.calls == []


# The directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def wanted(host: ServerHost, **changed: Any) -> ServedDirectory:
    known = {"owner": "", "group": "", "mode": "0770", "user": User("mpi", 2000), **changed}
    return ServedDirectory("/srv/checkpoints", **known)


def plan_text(host: ServerHost, **changed: Any) -> str:
    (step,) = wanted(host, **changed).plan(host.node()).steps
    return step.after


@pytest.mark.parametrize("bits", ["0770", "2770", "1777", "0755"])
def test_the_directory_is_created_and_repaired(host: ServerHost, bits: str) -> None:
    fs, path = system(mode=bits, path="/srv/one/checkpoints"), host.root / "srv/one/checkpoints"
    before = os.umask(0o077)
    try:
        outcome = host.settle(fs)
    finally:
        os.umask(before)
    assert wrong(outcome) == [] and mode(path) == int(bits, 8)
    assert mode(path.parent) == 0o755
    assert not host.settle(fs).changed
    (path / "inside").mkdir()
    (path / "inside").chmod(0o700)
    path.chmod(0o711)
    checked = host.settle(fs, check_mode=True)
    (shown,) = [each for each in checked.diff if str(fs.path) in each["before_header"]]
    assert "mode 0711" in shown["before"] and f"mode {bits}" in shown["after"]
    assert mode(path) == 0o711
    assert wrong(host.settle(fs)) == []
    assert mode(path) == int(bits, 8) and mode(path / "inside") == 0o700


@pytest.mark.parametrize("part", ["srv", "srv/checkpoints", "srv/a"])
def test_a_link_in_the_path_is_refused(host: ServerHost, part: str) -> None:
    elsewhere = host.root / "elsewhere"
    elsewhere.mkdir()
    place = host.root / part
    if place.exists():
        place.rmdir()
    place.symlink_to(elsewhere)
    path = "/srv/a/checkpoints" if part == "srv/a" else "/srv/checkpoints"
    before = host.snapshot()
    with pytest.raises(PlanError, match=f"/{part} is a symbolic link to"):
        host.settle(system(path=path))
    assert host.snapshot() == before


def test_a_link_created_after_planning_is_not_followed(host: ServerHost) -> None:
    elsewhere = host.root / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o700)
    part = wanted(host, user=User("mpi", os.getuid()))
    (step,) = part.plan(host.node()).steps
    (host.root / "srv/checkpoints").symlink_to(elsewhere)
    with pytest.raises(Exception, match="/srv/checkpoints"):
        step.act()
    assert mode(elsewhere) == 0o700


def test_owner_and_group(host: ServerHost) -> None:
    assert plan_text(host) == "owner 2000, group 2000, mode 0770", "the account is not needed"
    host.accounts["passwd"] = {
        "mpi": "mpi:x:2000:3000::/:/bin/sh",
        "data": "data:x:500:600::/:/bin/sh",
    }
    host.accounts["group"]["staff"] = "staff:x:50:"
    assert plan_text(host) == "owner 2000, group 3000, mode 0770"
    assert plan_text(host, owner="data") == "owner 500, group 600, mode 0770"
    assert plan_text(host, owner="data", group="staff") == "owner 500, group 50, mode 0770"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"owner": "unknown"}, "user 'unknown' not found"),
        ({"group": "unknown"}, "group 'unknown' not found"),
        ({"user": User("other")}, "user 'other' not found"),
        ({"user": User("mpi", 2001)}, "uid 2000 on this host"),
    ],
)
def test_unknown_or_differing_accounts_are_refused(
    host: ServerHost, changed: dict[str, Any], why: str
) -> None:
    host.accounts["passwd"]["mpi"] = "mpi:x:2000:2000::/:/bin/sh"
    with pytest.raises(PlanError, match=why):
        plan_text(host, **changed)


def test_a_directory_on_a_device_follows_its_mount(host: ServerHost) -> None:
    host.disk()
    (host.root / "srv/checkpoints").mkdir()
    (host.root / "srv/checkpoints").chmod(0o770)  # of the directory below
    outcome = host.settle(system(device=DISK, format="xfs"))
    assert wrong(outcome) == [] and mode(host.root / "srv/checkpoints") == 0o770
    headers = [each["before_header"] for each in outcome.diff]
    mounted = next(i for i, each in enumerate(headers) if "mount (running)" in each)
    assert headers.index("/srv/checkpoints (running)") > mounted

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The served directory: its owner, group and mode, and no link on the way to it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    Directory,
    User,
)

from tests.unit.storage_server import DISK, ServerHost, system, wrong


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def wanted(host: ServerHost, **changed: Any) -> Directory:
    known = {"owner": "", "group": "", "mode": "0770", "user": User("mpi", 2000), **changed}
    return Directory("/srv/checkpoints", **known)  # type: ignore[arg-type]


def plan_text(host: ServerHost, **changed: Any) -> str:
    (step,) = wanted(host, **changed).plan(host.node()).steps
    return step.after


@pytest.mark.parametrize("bits", ["0770", "2770", "1777", "0755"])
def test_it_is_made(host: ServerHost, bits: str) -> None:
    path = host.root / "srv/one/checkpoints"
    before = os.umask(0o077)
    try:
        outcome = host.settle(system(mode=bits, path="/srv/one/checkpoints"))
    finally:
        os.umask(before)
    assert wrong(outcome) == [] and mode(path) == int(bits, 8)
    assert mode(path.parent) == 0o755
    assert not host.settle(system(mode=bits, path="/srv/one/checkpoints")).changed


def test_one_that_is_otherwise_is_shown_and_changed(host: ServerHost) -> None:
    path = host.root / "srv/checkpoints"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    (path / "inside").mkdir()
    (path / "inside").chmod(0o700)
    checked = host.settle(system(), check_mode=True)
    (shown,) = [each for each in checked.diff if "/srv/checkpoints" in each["before_header"]]
    assert "mode 0755" in shown["before"] and "mode 0770" in shown["after"]
    assert mode(path) == 0o755
    assert wrong(host.settle(system())) == []
    assert mode(path) == 0o770 and mode(path / "inside") == 0o700


@pytest.mark.parametrize("part", ["srv", "srv/checkpoints", "srv/a"])
def test_a_link_on_the_way_is_refused(host: ServerHost, part: str) -> None:
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


def test_a_link_that_comes_between_is_not_followed(host: ServerHost) -> None:
    elsewhere = host.root / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o700)
    part = wanted(host, owner=str(os.getuid()), group=str(os.getgid()))
    (step,) = part.plan(host.node()).steps
    (host.root / "srv/checkpoints").symlink_to(elsewhere)
    with pytest.raises(Exception, match="/srv/checkpoints"):
        step.act()
    assert mode(elsewhere) == 0o700


def test_the_owner_is_the_mpi_user(host: ServerHost) -> None:
    assert plan_text(host) == "owner 2000, group 2000, mode 0770"
    host.accounts["passwd"]["mpi"] = "mpi:x:2000:3000::/:/bin/sh"
    assert plan_text(host) == "owner 2000, group 3000, mode 0770"


def test_a_host_without_the_account_goes_by_its_number(host: ServerHost) -> None:
    host.accounts["passwd"].clear()
    assert plan_text(host) == "owner 2000, group 2000, mode 0770"
    with pytest.raises(PlanError, match="has no user 'mpi'"):
        plan_text(host, user=User("mpi"))


def test_an_account_with_another_number_is_refused(host: ServerHost) -> None:
    with pytest.raises(PlanError, match="user mpi has the number 2000 on this host and 2001"):
        plan_text(host, user=User("mpi", 2001))


def test_names_and_numbers(host: ServerHost) -> None:
    host.accounts["passwd"]["data"] = "data:x:500:600::/:/bin/sh"
    host.accounts["group"]["staff"] = "staff:x:50:"
    assert plan_text(host, owner="data") == "owner 500, group 600, mode 0770"
    assert plan_text(host, owner="data", group="staff") == "owner 500, group 50, mode 0770"
    assert plan_text(host, owner="7", group="8") == "owner 7, group 8, mode 0770"
    with pytest.raises(PlanError, match="has no user 'nobody-here'"):
        plan_text(host, owner="nobody-here")
    with pytest.raises(PlanError, match="has no group 'nobody-here'"):
        plan_text(host, group="nobody-here")


def test_on_a_device_it_is_done_after_mounting(host: ServerHost) -> None:
    host.disk()
    (host.root / "srv/checkpoints").mkdir()
    (host.root / "srv/checkpoints").chmod(0o770)  # of what is below
    outcome = host.settle(system(device=DISK, format="xfs"))
    assert wrong(outcome) == [] and mode(host.root / "srv/checkpoints") == 0o770
    headers = [each["before_header"] for each in outcome.diff]
    mounted = next(i for i, each in enumerate(headers) if "mount (running)" in each)
    assert headers.index("/srv/checkpoints (running)") > mounted

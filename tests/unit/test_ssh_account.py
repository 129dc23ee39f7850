"""The MPI user's account: what makes it, and what stands in the way."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import account


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Users and groups by name and number, empty."""
    known = SimpleNamespace(users={}, groups={})

    def user(name: str) -> SimpleNamespace:
        uid, shell = known.users[name]
        return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=uid, pw_dir="/x", pw_shell=shell)

    def user_by_number(uid: int) -> SimpleNamespace:
        return user({number: name for name, (number, _shell) in known.users.items()}[uid])

    monkeypatch.setattr(pwd, "getpwnam", user)
    monkeypatch.setattr(pwd, "getpwuid", user_by_number)
    monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=known.groups[name]))
    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: {number: name for name, number in known.groups.items()}[gid]
    )
    return known


def test_account_and_group_have_the_number_of_the_cluster(system: SimpleNamespace) -> None:
    group, user = account.commands("mpi", 2000, "/bin/bash")
    assert group == ["groupadd", "--gid", "2000", "mpi"]
    assert user[:5] == ["useradd", "--uid", "2000", "--gid", "mpi"]
    assert "--create-home" in user
    assert user[user.index("--password") + 1] == "*", "no password admits, and it is not locked"


def test_an_account_that_is_there_is_left_as_it_is(system: SimpleNamespace) -> None:
    system.users["mpi"] = (2000, "/bin/zsh")
    assert account.commands("mpi", 2000, "/bin/bash") == []
    assert account.commands("mpi", None, "/bin/bash") == []


def test_a_killed_run_left_the_group(system: SimpleNamespace) -> None:
    system.groups["mpi"] = 2000
    assert [step[0] for step in account.commands("mpi", 2000, "/bin/bash")] == ["useradd"]


def test_a_group_number_in_use_is_not_fought_over(system: SimpleNamespace) -> None:
    system.groups["other"] = 2000
    assert account.commands("mpi", 2000, "/bin/bash")[0] == ["groupadd", "mpi"]


def test_another_number_is_refused_with_the_way_out(system: SimpleNamespace) -> None:
    system.users["mpi"] = (1001, "/bin/bash")
    with pytest.raises(account.AccountError, match="set cluster_mpi_uid to 1001"):
        account.commands("mpi", 2000, "/bin/bash")


def test_a_number_of_somebody_else_is_refused_by_name(system: SimpleNamespace) -> None:
    system.users["bob"] = (2000, "/bin/bash")
    with pytest.raises(account.AccountError, match="uid 2000 for mpi belongs to bob"):
        account.commands("mpi", 2000, "/bin/bash")


def test_a_shell_that_runs_nothing_is_told(system: SimpleNamespace) -> None:
    system.users["mpi"] = (2000, "/usr/sbin/nologin")
    number, shell = account.checks("mpi", 2000, check_mode=False)
    assert number.status == "ok"
    assert (shell.status, shell.found) == ("failed", "/usr/sbin/nologin")


def test_a_missing_account_is_pending_in_check_mode_only(system: SimpleNamespace) -> None:
    assert [each.status for each in account.checks("mpi", 2000, check_mode=True)] == ["pending"]
    assert [each.status for each in account.checks("mpi", 2000, check_mode=False)] == ["failed"]


def test_a_home_that_a_killed_run_left_out_is_made(
    system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.users["mpi"] = (2000, "/bin/bash")
    monkeypatch.setattr(account, "home_missing", lambda there: there.home == Path("/x"))
    made = account.commands("mpi", 2000, "/bin/bash")
    assert made == [["mkhomedir_helper", "mpi", "0027"], ["chown", "2000:2000", "/x"]]


def test_a_home_is_missing_where_the_account_is_local(tmp_path: Path) -> None:
    here = pwd.getpwuid(0).pw_name
    for name, home, missing in (
        (here, tmp_path / "x", True),
        (here, tmp_path, False),
        (here, tmp_path / "not/mounted", False),
        ("of-a-directory-service", tmp_path / "x", False),
    ):
        assert account.home_missing(account.Account(name, 0, 0, home, "/bin/sh")) is missing


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        (".ssh/authorized_keys .ssh/authorized_keys2", "/home/mpi/.ssh/authorized_keys"),
        ("/etc/ssh/keys/%u", "/etc/ssh/keys/mpi"),
        ("%h/keys%%", "/home/mpi/keys%"),
        ("", "/home/mpi/.ssh/authorized_keys"),
    ],
)
def test_where_authorized_keys_lies(setting: str, path: str) -> None:
    there = account.Account("mpi", 1, 1, Path("/home/mpi"), "/bin/sh")
    assert account.authorized_keys_of(there, setting) == Path(path)

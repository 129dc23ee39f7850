"""Account, key pairs, texts of configuration files, and output of sshd."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import (
    account,
    keys,
    texts,
    trust,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.sshd import Sshd, SshdSettings

from tests.unit.ssh_cluster import keypair, refused, ssh_keygen

UID, GID = os.getuid(), os.getgid()
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def node_at(folder: Path) -> Node:
    return Node("ssh", folder, run, None, "boot", uid=UID, gid=GID)


# The account.


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An empty database of users and groups."""
    known = SimpleNamespace(users={}, groups={})

    def user(name: str) -> SimpleNamespace:
        uid, shell = known.users[name]
        return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=uid, pw_dir="/x", pw_shell=shell)

    def user_by_number(uid: int) -> SimpleNamespace:
        return user({number: name for name, (number, _shell) in known.users.items()}[uid])

    monkeypatch.setattr(pwd, "getpwnam", user)
    monkeypatch.setattr(pwd, "getpwuid", user_by_number)

    def group(gid: int) -> SimpleNamespace:
        return SimpleNamespace(gr_name={each: name for name, each in known.groups.items()}[gid])

    monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=known.groups[name]))
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, *known.groups.values()])
    return known


def mpi(uid: Optional[int] = 2000) -> account.UserPart:
    return account.UserPart("mpi", uid, "/bin/bash")


def test_account_and_group_get_the_uid_of_the_cluster(system: SimpleNamespace) -> None:
    (user,) = mpi().commands()
    assert user[:4] == ["useradd", "--uid", "2000", "--user-group"]
    assert "--create-home" in user
    assert user[user.index("--password") + 1] == "*", "no password admits, and it is not locked"
    system.groups["mpi"] = 300
    assert "--gid=mpi" in mpi().commands()[0]


def test_a_privileged_account_is_refused(system: SimpleNamespace) -> None:
    with refused(PlanError, "ssh_user_privileged", privilege="uid 0"):
        mpi(0).commands()
    system.users["mpi"] = (2000, "/bin/bash")
    system.groups["video"] = 44
    assert mpi().commands() == mpi(None).commands() == []
    system.groups["docker"] = 998
    with refused(PlanError, "ssh_user_privileged", privilege="a member of docker"):
        mpi().commands()
    system.users["mpi"] = (0, "/bin/bash")
    with refused(PlanError, "ssh_user_privileged", privilege="uid 0"):
        mpi(None).commands()


def test_another_uid_is_refused(system: SimpleNamespace) -> None:
    system.users["mpi"] = (1001, "/bin/bash")
    with refused(PlanError, "ssh_uid_differs", actual=1001, desired=2000):
        mpi().commands()


def test_read_back_of_the_account(system: SimpleNamespace, tmp_path: Path) -> None:
    assert [each.status for each in mpi().verify(node_at(tmp_path)).checks] == ["failed"]
    system.users["mpi"] = (2000, "/usr/sbin/nologin")
    number, shell = mpi().verify(node_at(tmp_path)).checks
    assert number.status == "ok"
    assert (shell.status, shell.found) == ("failed", "/usr/sbin/nologin")


def test_a_missing_home_is_created(
    system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.users["mpi"] = (2000, "/bin/bash")
    monkeypatch.setattr(account, "home_missing", lambda there: there.pw_dir == "/x")
    made = mpi().commands()
    assert made == [["mkhomedir_helper", "mpi", "0027"], ["chown", "2000:2000", "/x"]]


def test_an_expired_account_is_reported(
    system: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshd refuses keys as well: another node sees a closed connection without reason."""
    monkeypatch.setattr(account.time, "time", lambda: 20000.5 * keys.DAY)
    system.users["mpi"] = (2000, "/bin/bash")
    (tmp_path / "etc").mkdir()
    for fields, status in (
        ("*:1:0:9:7::20001:", "ok"),
        ("*:1:0:9:7::20000:", "failed"),
        ("!", "ok"),
    ):
        (tmp_path / "etc/shadow").write_text(f"root:*:0:::::1:\nmpi2:*:0\nmpi:{fields}\n")
        *_others, check = mpi().verify(node_at(tmp_path)).checks
        assert (check.name, check.status) == ("account_expiry", status)
        assert check.found == ("not expired" if status == "ok" else "expired on 2024-10-04")


@pytest.mark.parametrize(
    ("mode", "uid", "status"),
    [(0o750, UID, "ok"), (0o770, UID, "ok"), (0o777, UID, "failed"), (0o750, UID + 1, "failed")],
)
def test_a_writable_or_foreign_home_is_reported(
    mode: int, uid: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = pwd.struct_passwd(("mpi", "x", uid, GID, "", str(tmp_path / "home"), "/bin/sh"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(mode)
    monkeypatch.setattr(account, "find", lambda user: there)
    monkeypatch.setattr(account, "is_local", lambda found: True)
    monkeypatch.setattr(account, "home_missing", lambda found: False)
    *_others, check = account.UserPart("mpi", uid, "/bin/sh").verify(node_at(tmp_path)).checks
    assert (check.name, check.status) == ("home", status)
    remedy = f"chown mpi {tmp_path}/home; chmod go-w {tmp_path}/home"
    assert check.reason == (remedy if status == "failed" else "")


def local(name: str, home: Path) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", 0, 0, "", str(home), "/bin/sh"))


def test_a_home_can_be_missing_for_local_accounts_only(tmp_path: Path) -> None:
    here = pwd.getpwuid(0).pw_name
    for name, home, missing in (
        (here, tmp_path / "x", True),
        (here, tmp_path, False),
        (here, tmp_path / "not/mounted", False),
        ("of-a-directory-service", tmp_path / "x", False),
    ):
        assert account.home_missing(local(name, home)) is missing


def test_a_dead_server_of_a_home_blocks_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "ANSWER_S", 0.2)
    hangs = lambda path: time.sleep(60) if path == tmp_path else os.access(path, 0)  # noqa: E731
    monkeypatch.setattr(Path, "exists", hangs)
    monkeypatch.setattr(account, "is_local", lambda found: True)
    begin, there = time.monotonic(), local("mpi", tmp_path)
    assert not account.home_missing(there)
    (check,) = account.home_checks(there, check_mode=True)
    assert (check.name, check.status, check.subject) == ("home", "failed", str(tmp_path))
    assert check.found.startswith("no answer within 0.2 s") and "umount -l" in check.by_hand
    assert time.monotonic() - begin < 10


# Key pairs, with the real ssh-keygen.


def pair_at(path: Path, uid: int = UID, gid: int = GID, kind: str = "user") -> keys.KeyPair:
    return keys.KeyPair(kind, path, "mpi@node01", lambda: (uid, gid))


def settled(pair: keys.KeyPair) -> bool:
    """Settle; returns whether it changed. A second run must change nothing."""
    node = node_at(pair.path.parent)
    outcome = settle([pair], node)
    assert {check.status for check in outcome.checks} == {"ok"}, outcome
    assert not pair.plan(node).steps
    return outcome.changed


def wrong(pair: keys.KeyPair) -> list[str]:
    """Files that fail the read-back."""
    found = pair.verify(node_at(pair.path.parent)).checks
    return [Path(check.subject).name for check in found if check.status != "ok"]


def test_a_missing_pair_is_created(tmp_path: Path) -> None:
    path = tmp_path / "new/id_ed25519"
    pair = pair_at(path)
    assert settled(pair)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.public_path(path).stat().st_mode) == 0o644
    assert keys.public_path(path).read_text().split()[2] == "mpi@node01"
    assert sorted(each.name for each in path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    assert pair.public == keys.key_of(keys.public_path(path).read_text())


@pytest.mark.parametrize("text", ["", None])
def test_an_unusable_key_is_replaced(text: Optional[str], tmp_path: Path) -> None:
    old = keypair(tmp_path / "id", passphrase="" if text is not None else "secret words")
    if text is not None:
        (tmp_path / "id").write_text(text)
    pair = pair_at(tmp_path / "id")
    assert settled(pair)
    assert pair.public not in ("", old)


@pytest.mark.parametrize("text", [None, "ssh-ed25519 AAAA other\n"])
def test_a_lost_public_key_is_restored(text: Optional[str], tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    if text is None:
        keys.public_path(tmp_path / "id").unlink()
    else:
        keys.public_path(tmp_path / "id").write_text(text)
    pair = pair_at(tmp_path / "id")
    assert wrong(pair) == ["id.pub"]
    assert settled(pair)
    assert pair.public == key


@root
@pytest.mark.parametrize("name", ["id", "id.pub"])
def test_a_wrong_owner_is_repaired(name: str, tmp_path: Path) -> None:
    keypair(tmp_path / "id")
    os.chown(tmp_path / name, 4711, 4711)
    assert wrong(pair_at(tmp_path / "id")) == [name]
    assert settled(pair_at(tmp_path / "id"))


@pytest.mark.parametrize("name", ["id", "id.pub"])
def test_a_wrong_mode_is_repaired(name: str, tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    (tmp_path / name).chmod(0o666)
    pair = pair_at(tmp_path / "id")
    (step,) = pair.plan(node_at(tmp_path)).steps
    assert [Path(diff["after_header"]).name for diff in step.diffs()] == [name]
    assert wrong(pair) == [name]
    assert settled(pair)
    assert pair.public == key


@root
def test_a_host_key_retains_its_group(tmp_path: Path) -> None:
    """On Enterprise Linux a dedicated group may read it."""
    path = tmp_path / "id"
    key = keypair(path)
    os.chown(path, 0, 4711)
    path.chmod(0o640)
    pair = pair_at(path, 0, 0, "host")
    assert not settled(pair)
    for mode, owner, left in ((0o644, 0, 0o640), (0o640, 4711, 0o640)):
        os.chown(path, owner, 4711)
        path.chmod(mode)
        assert wrong(pair) == ["id"]
        assert settled(pair)
        assert (pair.public, stat.S_IMODE(path.stat().st_mode)) == (key, left)
        assert (path.stat().st_uid, path.stat().st_gid) == (0, 4711)


def test_an_interrupted_creation_leaves_nothing(tmp_path: Path) -> None:
    def broken(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        raise OSError("killed")

    node = Node("ssh", tmp_path, broken, None, "boot", uid=UID, gid=GID)
    assert settle([pair_at(tmp_path / "keys/id")], node).errors
    assert list((tmp_path / "keys").iterdir()) == []


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 %%%", "ssh-rsa AAAAC3NzaC1lZDI1"])
def test_invalid_keys(line: str, tmp_path: Path) -> None:
    assert keys.key_of(line) == ""
    key = keypair(tmp_path / "id")
    assert keys.key_of(key[:-4]) == ""
    assert keys.key_of(f"{key} comment\n") == key
    assert keys.digest(key) in ssh_keygen("-l", "-f", str(tmp_path / "id.pub")).stdout


@pytest.mark.parametrize(
    ("mode", "status", "refused"), [("0", 1, False), ("1", 255, True), ("1", 0, False)]
)
def test_fips_mode_is_refused_before_any_change(
    mode: str, status: int, refused: bool, tmp_path: Path
) -> None:
    asked = Recorded({"ssh-keygen": (status, "ED25519 keys are not allowed in FIPS mode")})
    node = Node("ssh", tmp_path, asked, None, "boot", check_mode=True)
    node.path(keys.FIPS).parent.mkdir(parents=True)
    node.path(keys.FIPS).write_text(f"{mode}\n")
    why = keys.refused_by_fips(node)
    assert ("ED25519 keys are not allowed in FIPS mode" in why) is refused
    if refused:
        with pytest.raises(PlanError, match="FIPS"):
            trust.converge(trust.TrustRequest({"user_authorities": []}, "mpi", 1, ""), node)
        assert all("ssh-keygen" in line for line in asked.asked)


# Files.

GOLDEN = Path(__file__).parent / "golden/ssh"
AUTHORITY = {
    "patterns": ["launcher*", "node*", "10.0.0.*"],
    "port": 22,
    "other_ports": {},
    "host_authorities": ["ssh-ed25519 NEW", "ssh-ed25519 OLD"],
}
PORTS = {
    **AUTHORITY,
    "port": 2222,
    "other_ports": {"22": ["launcher", "10.0.0.10"], "2022": ["node02", "node02-rail0"]},
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sshd_drop_in.conf", texts.sshd_text("mpi")),
        ("sshd_drop_in_host_key.conf", texts.sshd_text("mpi", "/etc/ssh/ssh_host_ed25519_key")),
        ("ssh_drop_in.conf", texts.ssh_text("mpi", AUTHORITY)),
        ("ssh_drop_in_ports.conf", texts.ssh_text("mpi", PORTS)),
        ("known_hosts", texts.authority_lines(AUTHORITY)),
        ("known_hosts_ports", texts.authority_lines(PORTS)),
    ],
)
def test_texts_of_the_files(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("main", "there"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf\n", True),
        ("include sshd_config.d/*.conf\n", True),
        ("Include=/etc/ssh/sshd_config.d/*.conf\n", True),
        ("#Include /etc/ssh/sshd_config.d/*.conf\n", False),
        ("UsePAM yes\n", False),
    ],
)
def test_a_main_file_without_an_include_gets_one(main: str, there: bool, tmp_path: Path) -> None:
    node = node_at(tmp_path)
    path = node.path(trust.SSHD_CONFIG)
    path.parent.mkdir(parents=True)
    path.write_text(main)
    planned = trust._including(node, trust.SSHD_CONFIG, trust.SSHD_DROP_IN)
    assert planned.changed is not there
    planned.apply()
    assert not trust._including(node, trust.SSHD_CONFIG, trust.SSHD_DROP_IN).changed
    assert path.read_text().endswith(main)


# What sshd answers.


class Recorded:
    """A runner with recorded output, by the first words of a command."""

    def __init__(self, answers: dict[str, tuple[int, str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        line = " ".join([Path(argv[0]).name, *argv[1:]])
        self.asked.append(line)
        for start, (rc, text) in self.answers.items():
            if line.startswith(start):
                return Result(tuple(argv), rc, text, text)
        return Result(tuple(argv), 3, "", "")


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("0.0.0.0:22", "22 127.0.0.1"), ("[::]:2222", "2222 ::1"), ("10.0.0.11:22", "22 10.0.0.11")],
)
def test_the_presented_certificate(listens: str, asked: str) -> None:
    text = "# 127.0.0.1:22 SSH-2.0-OpenSSH_9.2\n127.0.0.1 ssh-ed25519-cert-v01@openssh.com AAAA c\n"
    runner = Recorded({"ssh-keyscan": (0, text)})
    sshd = Sshd(Path("/x"), runner)
    settings = SshdSettings({"listenaddress": [listens]})
    assert sshd.presented(settings) == "ssh-ed25519-cert-v01@openssh.com AAAA"
    assert runner.asked[0].endswith(asked)
    runner.answers = {"ssh-keyscan": (1, "")}
    assert sshd.presented(SshdSettings()) is None

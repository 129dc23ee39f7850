"""Account, key pairs, configuration files, sshd's answers and the proof, each by itself."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import (
    account,
    keys,
    texts,
    trust,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.refusals import Refusal
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.sshd import Settings, Sshd
from ansible_collections.baremetal.mpi_roce.plugins.modules import ssh_probe as probe

from tests.unit.ssh_cluster import keypair, ssh_keygen

UID, GID = os.getuid(), os.getgid()
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def node_at(folder: Path) -> Node:
    return Node("ssh", folder, run, None, "boot", uid=UID, gid=GID)


# The account.


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

    def group(gid: int) -> SimpleNamespace:
        return SimpleNamespace(gr_name={each: name for name, each in known.groups.items()}[gid])

    monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=known.groups[name]))
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, *known.groups.values()])
    return known


def mpi(uid: Optional[int] = 2000) -> account.UserPart:
    return account.UserPart("mpi", uid, "/bin/bash")


def test_account_and_group_get_the_number_of_the_cluster(system: SimpleNamespace) -> None:
    group, user = mpi().commands()
    assert group == ["groupadd", "--gid", "2000", "mpi"]
    assert user[:5] == ["useradd", "--uid", "2000", "--gid", "mpi"]
    assert "--create-home" in user
    assert user[user.index("--password") + 1] == "*", "no password admits, and it is not locked"


def test_an_existing_account_is_left_as_it_is(system: SimpleNamespace) -> None:
    system.users["mpi"] = (2000, "/bin/zsh")
    assert mpi().commands() == mpi(None).commands() == []


def test_an_account_that_is_root_or_becomes_it_is_refused(system: SimpleNamespace) -> None:
    with pytest.raises(PlanError, match="user mpi is uid 0 here"):
        mpi(0).commands()
    system.users["mpi"] = (2000, "/bin/bash")
    system.groups["video"] = 44
    assert mpi().commands() == []
    system.groups["docker"] = 998
    with pytest.raises(PlanError, match="user mpi is a member of docker here"):
        mpi().commands()
    system.users["mpi"] = (0, "/bin/bash")
    with pytest.raises(PlanError, match="user mpi is uid 0 here"):
        mpi(None).commands()


def test_another_number_and_a_number_in_use_are_refused(system: SimpleNamespace) -> None:
    system.users["bob"] = (2000, "/bin/bash")
    with pytest.raises(PlanError, match="uid 2000 for mpi belongs to bob"):
        mpi().commands()
    system.users["mpi"] = (1001, "/bin/bash")
    with pytest.raises(PlanError, match="set cluster_mpi_uid to 1001"):
        mpi().commands()


def test_what_is_read_back_of_the_account(system: SimpleNamespace, tmp_path: Path) -> None:
    assert [each.status for each in mpi().verify(node_at(tmp_path)).checks] == ["failed"]
    system.users["mpi"] = (2000, "/usr/sbin/nologin")
    number, shell = mpi().verify(node_at(tmp_path)).checks
    assert number.status == "ok"
    assert (shell.status, shell.found) == ("failed", "/usr/sbin/nologin")


def test_a_home_that_a_killed_run_left_out_is_made(
    system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.users["mpi"] = (2000, "/bin/bash")
    monkeypatch.setattr(account, "home_missing", lambda there: there.pw_dir == "/x")
    made = mpi().commands()
    assert made == [["mkhomedir_helper", "mpi", "0027"], ["chown", "2000:2000", "/x"]]


@pytest.mark.parametrize(
    ("fields", "why", "remedy"),
    [
        ("*:19000:0:99999:7:::", "", ""),
        ("*:19000:0:60:7::20001:", "a new password was due on 2022-03-09", "chage -M -1 -d"),
        ("*:19000:0:99999:7::1:", "expired on 1970-01-02", "chage -E -1 mpi"),
        ("*:0:::::20000:", "expired on 2024-10-04", "chage -E -1 mpi"),
        ("*:0::::::", "a new password was due on the next login", "chage -M -1 -d"),
        ("!", "", ""),
    ],
)
def test_an_account_that_expired_is_found_on_its_node(
    fields: str,
    why: str,
    remedy: str,
    system: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By key as well, sshd admits none: another node sees a closed connection and no reason."""
    monkeypatch.setattr(account.time, "time", lambda: 20000.5 * keys.DAY)
    system.users["mpi"] = (2000, "/bin/bash")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/shadow").write_text(f"root:*:0:::::1:\nmpi2:*:0\nmpi:{fields}\n")
    *_others, check = mpi().verify(node_at(tmp_path)).checks
    assert (check.name, check.status) == ("account_expiry", "failed" if why else "ok")
    assert check.found == (why or "not expired")
    assert check.reason.startswith(remedy)


@pytest.mark.parametrize(
    ("mode", "uid", "status"),
    [(0o750, UID, "ok"), (0o770, UID, "ok"), (0o777, UID, "failed"), (0o750, UID + 1, "failed")],
)
def test_a_home_of_another_or_open_to_others_is_found(
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


def test_a_home_of_root_is_given_to_the_user_by_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = pwd.struct_passwd(("mpi", "x", UID, GID, "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(account, "is_local", lambda found: True)
    monkeypatch.setattr(account, "home_missing", lambda found: True)
    (check,) = account.home_checks(there, check_mode=True)
    assert (check.name, check.status, check.subject) == ("home", "pending", str(tmp_path))


def local(name: str, home: Path) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", 0, 0, "", str(home), "/bin/sh"))


def test_a_home_is_missing_where_the_account_is_local(tmp_path: Path) -> None:
    here = pwd.getpwuid(0).pw_name
    for name, home, missing in (
        (here, tmp_path / "x", True),
        (here, tmp_path, False),
        (here, tmp_path / "not/mounted", False),
        ("of-a-directory-service", tmp_path / "x", False),
    ):
        assert account.home_missing(local(name, home)) is missing


def test_a_home_whose_server_is_dead_keeps_no_run_waiting(
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
    """Whether it changed; afterwards it must not."""
    node = node_at(pair.path.parent)
    outcome = settle([pair], node)
    assert {check.status for check in outcome.checks} == {"ok"}, outcome
    assert not pair.plan(node).steps
    return outcome.changed


def wrong(pair: keys.KeyPair) -> list[str]:
    """Files that the read-back finds."""
    found = pair.verify(node_at(pair.path.parent)).checks
    return [Path(check.subject).name for check in found if check.status != "ok"]


def test_a_missing_pair_is_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "new/id_ed25519"
    pair = pair_at(path)
    assert settled(pair)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.public_path(path).stat().st_mode) == 0o644
    assert keys.public_path(path).read_text().split()[2] == "mpi@node01"
    assert sorted(each.name for each in path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    assert pair.public == keys.key_of(keys.public_path(path).read_text())


@pytest.mark.parametrize("text", ["", "-----BEGIN OPENSSH PRIVATE KEY-----\n", None])
def test_half_a_key_or_one_with_a_passphrase_is_replaced(
    text: Optional[str], tmp_path: Path
) -> None:
    old = keypair(tmp_path / "id", passphrase="" if text is not None else "secret words")
    if text is not None:
        (tmp_path / "id").write_text(text)
    pair = pair_at(tmp_path / "id")
    assert settled(pair)
    assert pair.public not in ("", old)


@pytest.mark.parametrize("text", [None, "", "ssh-ed25519 AAAA other\n"])
def test_a_lost_public_half_comes_back_from_the_private(
    text: Optional[str], tmp_path: Path
) -> None:
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
def test_a_half_of_another_owner_is_found(name: str, tmp_path: Path) -> None:
    keypair(tmp_path / "id")
    os.chown(tmp_path / name, 4711, 4711)
    assert wrong(pair_at(tmp_path / "id")) == [name]
    assert settled(pair_at(tmp_path / "id"))


@pytest.mark.parametrize("name", ["id", "id.pub"])
def test_a_wrong_mode_is_repaired_and_the_key_kept(name: str, tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    (tmp_path / name).chmod(0o666)
    pair = pair_at(tmp_path / "id")
    (step,) = pair.plan(node_at(tmp_path)).steps
    assert [Path(diff["after_header"]).name for diff in step.diffs()] == [name]
    assert wrong(pair) == [name]
    assert settled(pair)
    assert pair.public == key


@root
def test_a_host_key_stays_as_the_distribution_made_it(tmp_path: Path) -> None:
    """On Enterprise Linux a group of its own may read it."""
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


def test_a_pair_half_made_leaves_nothing(tmp_path: Path) -> None:
    def broken(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        raise OSError("killed")

    node = Node("ssh", tmp_path, broken, None, "boot", uid=UID, gid=GID)
    assert settle([pair_at(tmp_path / "keys/id")], node).errors
    assert list((tmp_path / "keys").iterdir()) == []


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 %%%", "ssh-rsa AAAAC3NzaC1lZDI1"])
def test_what_is_no_key(line: str, tmp_path: Path) -> None:
    assert keys.key_of(line) == ""
    key = keypair(tmp_path / "id")
    assert keys.key_of(key[:-4]) == ""
    assert keys.key_of(f"{key} comment\n") == key
    assert keys.digest(key) in ssh_keygen("-l", "-f", str(tmp_path / "id.pub")).stdout


@pytest.mark.parametrize(
    ("mode", "status", "refused"), [("0", 1, False), ("1", 255, True), ("1", 0, False)]
)
def test_fips_mode_is_found_before_anything_is_made(
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
            trust.converge(trust.Request({"user_authorities": []}, "mpi", 1, ""), node)
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
    """Answers of programs by their first words."""

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
def test_the_certificate_on_the_wire(listens: str, asked: str) -> None:
    text = "# 127.0.0.1:22 SSH-2.0-OpenSSH_9.2\n127.0.0.1 ssh-ed25519-cert-v01@openssh.com AAAA c\n"
    runner = Recorded({"ssh-keyscan": (0, text)})
    sshd = Sshd(Path("/x"), runner)
    settings = Settings({"listenaddress": [listens]})
    assert sshd.presented(settings) == "ssh-ed25519-cert-v01@openssh.com AAAA"
    assert runner.asked[0].endswith(asked)
    runner.answers = {"ssh-keyscan": (1, "")}
    assert sshd.presented(Settings()) is None


USER = pwd.struct_passwd(("mpi", "x", os.geteuid(), os.getegid(), "", "/", "/bin/sh"))


def test_it_never_asks_and_never_lowers_the_guard() -> None:
    words = probe.argv("-oProxyCommand=x", 7)
    assert {"BatchMode=yes", "ConnectTimeout=7"} <= set(words)
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)
    assert words[words.index("--") + 1] == "-oProxyCommand=x", "a name is never an option"


@pytest.mark.parametrize(("target", "quick"), [("node02", False), ("node02-rail0", True)])
def test_the_name_of_a_host_proves_how_keys_are_exchanged(
    monkeypatch: pytest.MonkeyPatch, target: str, quick: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        probe, "ask", lambda words, *_given: asked.extend(words) or ("", "", Refusal(""))
    )
    probe.attempt({"host": "node02", "target": target}, USER, 7)
    assert any(word.startswith("KexAlgorithms=") for word in asked) is quick


def tried(host: str, why: str = "") -> dict[str, Any]:
    return {"host": host, "target": host, "why": why}


def test_each_pair_is_named() -> None:
    attempts = [
        tried("node02"),
        tried("node03", "Connection refused"),
        tried("node04", "timed out"),
        tried("node05", "no host key"),
        tried("node06"),
    ]
    lost, incomplete = ["node04", "node06"], ["node05"]
    found = probe.checks(attempts, lost, incomplete, here="node01", check_mode=False)
    skipped = "not_applicable"
    assert [each.status for each in found] == ["ok", "failed", skipped, skipped, "ok"]
    assert (found[1].subject, found[1].found) == ("node01 -> node03", "Connection refused")
    assert "node04 dropped out of this run earlier (timed out)" in found[2].reason
    (pending,) = probe.checks(attempts[1:2], [], [], here="x", check_mode=True)
    assert pending.status == "pending"


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In the place of ssh."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    folder.chmod(0o755)
    monkeypatch.setattr(probe, "argv", lambda target, *_given: [str(path), target])


def test_a_login_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "exec sleep infinity")
    monkeypatch.setattr(probe, "GRACE_S", 0.1)
    assert "timed out" in probe.attempt(tried("n"), USER, 0)["why"]


def test_a_login_that_prints_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "exec yes")
    monkeypatch.setattr(commands, "MAX_OUTPUT_BYTES", 1 << 20)
    assert "printed more than 1 MiB" in probe.attempt(tried("n"), USER, 60)["why"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo Welcome; echo $1", ""),
        ("echo node02.b300.example.net", ""),
        ("echo node03", "node03 answered"),
        ("echo node021", "node021 answered"),
        ("exit 0", "nothing answered"),
        ("echo; printf '\\033[2J'", "\\x1b[2J answered"),
    ],
)
def test_who_answered_is_compared(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Host alias, or a name that leads elsewhere, is a host of the cluster as well."""
    program(tmp_path, monkeypatch, script)
    found = probe.attempt(tried("node02"), USER, 0)
    assert found["why"] == why
    (check,) = probe.checks([found], ["node02"], [], here="node01", check_mode=False)
    assert check.status == ("failed" if why else "ok")


@pytest.mark.parametrize(
    ("said", "at"), [("echo node03", ""), ("echo other", "node02"), ("exit 0", "node02")]
)
def test_who_is_not_of_the_cluster_is_the_target_by_another_name(
    said: str, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, said)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("10.0.0.12 node02\n10.0.0.13 node03\n")
    (check,) = probe.checks(
        [probe.attempt(tried("node02"), USER, 0, tmp_path)], [], [], here="n", check_mode=False
    )
    assert (check.status, check.at) == ("failed", at)


OURS = f"""user mpi
hostname node02
port 22
stricthostkeychecking true
identitiesonly yes
hostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519
pubkeyacceptedalgorithms rsa-sha2-512,ssh-ed25519-cert-v01@openssh.com
identityfile {keys.USER_KEY}
certificatefile {keys.USER_CERTIFICATE}
globalknownhostsfile {keys.KNOWN_HOSTS} /etc/ssh/ssh_known_hosts
revokedhostkeys {keys.REVOKED}
"""
NODE02 = {"host": "node02", "target": "node02"}


def client(
    monkeypatch: pytest.MonkeyPatch, text: str, read: str = "", check_mode: bool = False
) -> list[Check]:
    answer = (text, read, Refusal(""))
    monkeypatch.setattr(probe, "ask", lambda words, user, limit: answer)
    return probe.client(NODE02, USER, 5, check_mode)


@pytest.mark.parametrize(
    ("line", "keyword"),
    [
        ("user root", "user"),
        ("hostname 10.0.0.9", "hostname"),
        ("port 2222", "port"),
        ("identitiesonly no", "identitiesonly"),
        ("identityfile ~/.ssh/id_rsa", "identityfile"),
        ("certificatefile /x-cert.pub", "certificatefile"),
        ("stricthostkeychecking false", "stricthostkeychecking"),
        ("stricthostkeychecking accept-new", "stricthostkeychecking"),
        ("globalknownhostsfile /etc/ssh/ssh_known_hosts", "globalknownhostsfile"),
        ("revokedhostkeys none", "revokedhostkeys"),
        ("hostkeyalgorithms rsa-sha2-512", "hostkeyalgorithms"),
        ("pubkeyacceptedalgorithms ssh-ed25519", "pubkeyacceptedalgorithms"),
        ("proxyjump gateway", "proxyjump"),
        ("proxycommand nc %h %p", "proxycommand"),
    ],
)
def test_ssh_s_own_settings_are_read_as_the_user(
    line: str, keyword: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {each.status for each in client(monkeypatch, OURS)} == {"ok"}
    kept = [each for each in OURS.splitlines() if not each.startswith(f"{keyword} ")]
    text = "\n".join([*kept, line])
    for check_mode, status in ((False, "failed"), (True, "pending")):
        (check,) = [each for each in client(monkeypatch, text, "", check_mode) if each.reason]
        assert (check.name, check.subject, check.status) == ("ssh_client", keyword, status)
        assert check.found == line.partition(" ")[2]


def test_a_domain_that_ssh_adds_is_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    text = OURS.replace("hostname node02", "hostname node02.example.net")
    assert {each.status for each in client(monkeypatch, text)} == {"ok"}


def test_the_file_of_a_foreign_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By line, whatever spelling ssh admits; what stands in our own file is for the role."""
    mine, ours = tmp_path / "config", tmp_path / keys.DROP_IN
    text, read = OURS.replace("port 22", "port 2222"), ""
    for path, line in ((ours, "Port 22"), (mine, '  PORT="2222"')):
        path.write_text(f"Host *\n{line}\n")
        read += f"debug1: Reading configuration data {path}\n"
    (check,) = [each for each in client(monkeypatch, text, read) if each.status != "ok"]
    assert check.by_hand == f"remove port from {mine}:2"
    os.mkfifo(tmp_path / "pipe")
    read = f"debug1: Reading configuration data {tmp_path / 'pipe'}\n{read}"
    ours.write_text("Port 2222\n")
    (check,) = [each for each in client(monkeypatch, text, read) if each.status != "ok"]
    assert check.by_hand == ""


def test_one_line_that_misleads_to_every_host_is_named_once() -> None:
    wrong = Check("ssh_client", "22", "2222", "failed", "port", by_hand="remove port from x:2")
    other = Check("ssh_client", "22", "23", "failed", "port", by_hand="remove port from x:9")
    found = list(probe.once({"node01": [wrong], "node02": [wrong], "node03": [other]}))
    assert [each.subject for each in found] == ["port", "port of node03"]


def blame(attempts: list[dict[str, Any]], **options: Any) -> list[str]:
    found = probe.checks(attempts, [], [], here="launcher", check_mode=False, **options)
    return [each.at for each in found]


def test_the_host_that_refuses_is_named_and_not_the_one_that_asked() -> None:
    refused, fine = {"side": "either", "remedy": "", "by_hand": False}, {"side": "either"}
    one = {**tried("node02", "Permission denied (publickey)."), **refused}
    assert blame([{**tried("node01"), **fine}, one]) == ["", "node02"]
    assert blame([one]) == ["node02"], "the only target says nothing of this host"
    both = [one, {**one, "host": "node03", "target": "node03"}]
    assert blame(both) == ["", ""], "refused by all: its own key"
    said = [{**each, "side": "target"} for each in both]
    assert blame(said) == ["node02", "node03"], "unless each says that it is its own doing"
    assert blame([one], misled={"node02": "remove port"}) == [""]
    rail = {**one, "target": "node02-rail0"}
    assert blame([one, rail]) == ["node02", "node02"]
    assert blame([{**tried("node02"), **fine}, rail]) == ["", ""], "the rail, not its sshd"


def test_a_name_that_is_unknown_is_for_the_file_that_says_where_names_come_from() -> None:
    unknown = "Could not resolve hostname node02: Temporary failure in name resolution"
    each = {**tried("node02", unknown), "side": "here", "remedy": "x", "by_hand": False}
    rail = {**each, "why": "ping: node02-rail0: Name or service not known", "rail": "rail0"}
    for source in ("", "put files first"):
        found = probe.checks([each, rail], [], [], here="n", check_mode=False, source=source)
        assert [(check.at, check.by_hand) for check in found] == [("", source), ("", source)]


@pytest.mark.parametrize(("status", "at"), [("failed", "node02"), ("pending", "node02")])
def test_a_remedy_by_hand_is_the_target_s(status: str, at: str) -> None:
    each = {**tried("node02", "x"), "side": "target", "remedy": "rm /etc/nologin", "by_hand": True}
    (check,) = probe.checks([each], [], [], here="node01", check_mode=status == "pending")
    assert (check.status, check.at, check.by_hand) == (status, at, "rm /etc/nologin")
    (lost,) = probe.checks([each], ["node02"], [], here="node01", check_mode=False)
    assert (lost.status, lost.at, lost.by_hand) == ("not_applicable", "", "")


def test_who_loses_packets_of_a_rail_is_named() -> None:
    lossy = {"host": "node02", "target": "node02-rail3", "rail": "rail3", "lossy": True}
    both = [{**lossy, "why": "5.0% lost", "side": side} for side in ("", "here", "target")]
    found = probe.checks(both, [], [], here="node01", check_mode=False)
    assert {(each.name, each.status, each.subject) for each in found} == {
        ("rail_peer", "failed", "node01 -> node02-rail3")
    }
    assert [each.at for each in found] == ["", "", "node02"]
    assert all("rail3" in each.by_hand for each in found)
    silent = {**lossy, "why": "no answer", "side": "", "lossy": False}
    (other,) = probe.checks([silent], [], [], here="node01", check_mode=False)
    assert (other.status, other.at, other.by_hand) == ("failed", "", "")
    (skipped,) = probe.checks(both[2:], ["node02"], [], here="node01", check_mode=False)
    assert (skipped.status, skipped.at, skipped.by_hand) == ("not_applicable", "", "")


def test_a_rail_without_packets_is_not_blamed_on_a_firewall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def filters(_run: object, addresses: Sequence[str]) -> tuple[dict[str, str], str]:
        asked.extend(addresses)
        return dict.fromkeys(addresses, "ufw"), "open"

    monkeypatch.setattr(probe.filters, "filters", filters)
    rails = [
        {**tried("node02", why), "rail": rail} for rail, why in (("rail0", "lost"), ("rail1", ""))
    ]
    back = {"management": 113, "rail0": 110, "rail1": 110}
    itself = {"host": "node01", "back": {"loopback": 111}}
    attempts = [{**tried("node02"), "back": back}, *rails, itself]
    own = {
        "management": "10.0.0.1",
        "rail0": "10.1.0.1",
        "rail1": "10.1.1.1",
        **probe.paths.LOOPBACK,
    }
    found = list(probe.called(attempts, own, "node01", False))
    assert [each.subject for each in found] == [
        "node02 -> node01 management",
        "node02 -> node01 rail1",
        "node01 -> node01 loopback",
    ]
    assert asked == ["10.0.0.1", "10.1.1.1", "127.0.0.1"]
    assert probe.called_by(attempts[0], attempts) == ["management", "rail0", "rail1"]
    assert probe.called_by({"host": "node02", "target": "node02-rail0"}, attempts) == []

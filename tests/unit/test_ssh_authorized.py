"""Lists of keys in the home of the MPI user: hostile, and read by root."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import authorized
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest

from tests.unit.ssh_cluster import keypair, ssh_keygen

ROOT = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
PATTERNS = [".ssh/authorized_keys .ssh/authorized_keys2"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/mpi/.ssh").mkdir(parents=True)
    return tmp_path / "home/mpi"


def checked(
    home: Path, patterns: Sequence[str] = PATTERNS, declared: Sequence[str] = ()
) -> list[Check]:
    user = pwd.struct_passwd(("mpi", "x", os.getuid(), os.getgid(), "", str(home), "/bin/bash"))
    return authorized.checks(user, patterns, declared)


def failed(found: list[Check]) -> dict[str, str]:
    return {check.subject: check.found for check in found if check.status == "failed"}


@pytest.mark.parametrize(
    ("table", "shared"),
    [
        ("", False),
        ("30 20 0:50 / /home rw - nfs4 s:/home rw\n", True),
        ("30 20 0:50 / /home/mpi rw - lustre s:/home rw\n", True),
        ("30 20 0:50 / /home rw - wholly_new s rw\n", True),
        ("30 20 0:50 / /home/mpi2 rw - nfs4 s:/home rw\n", False),
        ("30 20 0:51 / /home rw - autofs auto.home rw\n", True),
        ("30 20 8:2 / /home rw - xfs /dev/sdb rw\n", False),
        ("30 20 0:50 / /gpfs rw - gpfs s rw\n", False),
    ],
)
def test_a_home_on_a_shareable_file_system_is_shared(
    table: str, shared: bool, tmp_path: Path
) -> None:
    assert authorized.shared("/home/mpi", mounts.parse(ROOT + table), tmp_path) is shared


def test_a_link_to_a_shared_file_system_is_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/mpi").symlink_to("../gpfs/homes/mpi")
    table = ROOT + "30 20 0:50 / /gpfs rw - gpfs s rw\n"
    assert authorized.shared("/home/mpi", mounts.parse(table), tmp_path)
    assert not authorized.shared("/home/mpi", mounts.parse(ROOT), tmp_path)
    (tmp_path / "gpfs").symlink_to("gpfs")
    assert authorized.shared("/gpfs/mpi", mounts.parse(ROOT), tmp_path), "a loop is no local home"


def test_undeclared_keys_of_every_list_are_reported(home: Path, tmp_path: Path) -> None:
    keys = [keypair(tmp_path / name) for name in ("a", "b", "c")]
    keys.append(keypair(tmp_path / "d", "-t", "ecdsa"))
    first, second = home / ".ssh/authorized_keys", home / ".ssh/authorized_keys2"
    first.write_text(f'# {keys[0]}\n\n  command="x y",restrict {keys[0]} o p\n{keys[1]}\n')
    second.write_text(f"cert-authority {keys[2]}\n{keys[3]} x\n")
    elsewhere = tmp_path / "mpi.keys"
    elsewhere.write_text(keys[0])
    patterns = [*PATTERNS, f"{tmp_path}/%u.keys", "none", "%h/absent"]
    assert failed(checked(home, patterns, declared=[f"{keys[1]} declared"])) == {
        str(first): f"line 3 {digest(keys[0])}",
        str(second): f"line 1 {digest(keys[2])}, line 2 {digest(keys[3])}",
        str(elsewhere): f"line 1 {digest(keys[0])}",
    }
    assert failed(checked(home, patterns, declared=keys)) == {}
    assert [check.name for check in checked(home, ["none"])] == ["undeclared_keys"]


@pytest.mark.parametrize(
    "form",
    ["{0}\t{1}", "{0} {1}\r", "{0} {1}\0 x", "  {0}   {1}", "{0} {2}\v{3}\f", 'a="b c" {0} {1}'],
)
def test_keys_are_parsed_as_openssh_does(form: str, home: Path, tmp_path: Path) -> None:
    key = keypair(tmp_path / "a")
    kind, blob = key.split()
    path = home / ".ssh/authorized_keys"
    path.write_bytes((form.format(kind, blob, blob[:20], blob[20:]) + "\n").encode("latin-1"))
    assert digest(key) in ssh_keygen("-l", "-f", str(path)).stdout, "OpenSSH itself reads it"
    assert failed(checked(home)) == {str(path): f"line 1 {digest(key)}"}


def test_only_a_small_regular_file_is_read(home: Path, tmp_path: Path) -> None:
    """Links are followed, as by sshd, with the rights of the user."""
    key = keypair(tmp_path / "a")
    (tmp_path / "elsewhere").write_text(f"{key}\n")
    path = home / ".ssh/authorized_keys"
    path.symlink_to(tmp_path / "elsewhere")
    assert failed(checked(home)) == {str(path): f"line 1 {digest(key)}"}
    path.unlink()
    os.mkfifo(path)
    assert failed(checked(home)) == {str(path): "not a regular file"}
    path.unlink()
    path.write_bytes(b"\n" * (authorized.MAX_BYTES + 1))
    assert failed(checked(home)) == {str(path): "longer than 256 KiB"}
    path.write_text("\n".join(["x" * 100, "ssh-ed25519 AAAA", "\x1b[2J", "\xff" * 9]))
    assert failed(checked(home)) == {}


def test_a_list_of_keys_is_bounded(home: Path, tmp_path: Path) -> None:
    key = keypair(tmp_path / "a")
    (home / ".ssh/authorized_keys").write_text(f"{key}\n" * 1000)
    (check,) = checked(home)
    assert check.found.endswith(" and 990 more")
    assert "line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 990 more" in check.by_hand


@pytest.mark.parametrize("known", [True, False])
def test_the_user_reads_a_list_as_sshd_does(
    known: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that the user cannot read admits no one; one that was not read at all is a fault."""

    def take() -> None:
        if not known:
            raise PermissionError("setgid")
        monkeypatch.setattr(os, "open", refuse)

    def refuse(*_words: object) -> int:
        raise PermissionError("open")

    monkeypatch.setattr(authorized.account, "rights_of", lambda _user: take)
    (home / ".ssh/authorized_keys").write_text(f"{keypair(home / 'a')}\n")
    assert failed(checked(home, [".ssh/authorized_keys"])) == (
        {} if known else {str(home / ".ssh/authorized_keys"): "nothing was read"}
    )


def test_a_dead_server_is_reported_in_time(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    table = f"30 20 0:50 / {home.parent} rw - nfs4 s:/export rw\n"
    (tmp_path / mounts.MOUNTINFO).write_text(ROOT + table)
    monkeypatch.setattr(authorized.account, "ANSWER_S", 0.2)
    monkeypatch.setattr(authorized, "_contents", lambda _path: time.sleep(60))
    user = pwd.struct_passwd(("mpi", "x", os.getuid(), os.getgid(), "", str(home), "/bin/bash"))
    begin = time.monotonic()
    (check,) = authorized.checks(user, [".ssh/authorized_keys"], [], tmp_path)
    assert time.monotonic() - begin < 10
    assert check.subject == str(home / ".ssh/authorized_keys")
    assert check.found == f"no answer within 0.2 s: s:/export (nfs4) at {home.parent}"
    assert "s:/export" in check.by_hand
    assert check.by_hand.endswith("ssh_trust_strict to true")

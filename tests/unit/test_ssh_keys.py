"""Key pairs on a node, with the real ssh-keygen."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import (
    KeyPlan,
    apply_key,
    plan_key,
    public_path,
)

from tests.unit.ssh_cluster import keypair

UID, GID = os.getuid(), os.getgid()


def plan(path: Path) -> KeyPlan:
    return plan_key(path, UID, GID, "mpi@node01")


def test_a_missing_pair_is_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "new/id_ed25519"
    first = plan(path)
    assert (first.changed, first.before) == (True, None)
    key = apply_key(first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(public_path(path).stat().st_mode) == 0o644
    assert public_path(path).read_text().split()[2] == "mpi@node01"
    assert sorted(each.name for each in path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    again = plan(path)
    assert (again.changed, again.public) == (False, key)


def test_a_pair_that_is_there_is_kept(tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    found = plan(tmp_path / "id")
    assert (found.changed, found.public) == (False, key)


@pytest.mark.parametrize("text", ["", "garbage\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n"])
def test_half_a_private_key_is_replaced(text: str, tmp_path: Path) -> None:
    old = keypair(tmp_path / "id")
    (tmp_path / "id").write_text(text)
    found = plan(tmp_path / "id")
    assert (found.public, found.changed) == (None, True)
    assert apply_key(found) != old
    assert not plan(tmp_path / "id").changed


def test_a_passphrase_would_have_to_be_asked_for(tmp_path: Path) -> None:
    keypair(tmp_path / "id", passphrase="secret words")
    assert plan(tmp_path / "id").public is None


@pytest.mark.parametrize("text", [None, "", "ssh-ed25519 AAAA other\n"])
def test_a_lost_public_half_comes_back_from_the_private(text: str | None, tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    if text is None:
        public_path(tmp_path / "id").unlink()
    else:
        public_path(tmp_path / "id").write_text(text)
    found = plan(tmp_path / "id")
    assert (found.public, found.public_file.changed) == (key, True)
    assert apply_key(found) == key
    assert not plan(tmp_path / "id").changed


@pytest.mark.parametrize("name", ["id", "id.pub"])
def test_a_wrong_mode_is_put_right_and_the_key_kept(name: str, tmp_path: Path) -> None:
    key = keypair(tmp_path / "id")
    (tmp_path / name).chmod(0o666)
    found = plan(tmp_path / "id")
    assert [Path(diff["after_header"]).name for diff in found.diffs()] == [name]
    assert found.public == key
    assert apply_key(found) == key
    assert not plan(tmp_path / "id").changed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_wrong_owner_is_put_right(tmp_path: Path) -> None:
    keypair(tmp_path / "id")
    found = plan_key(tmp_path / "id", 4711, 4712, "x")
    apply_key(found)
    assert (tmp_path / "id").stat().st_uid == 4711
    assert not plan_key(tmp_path / "id", 4711, 4712, "x").changed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("mode", "group", "wanted"),
    [
        (0o640, 4711, (0o640, 4711)),  # as Enterprise Linux makes it: left alone
        (0o600, 4711, (0o600, 4711)),
        (0o600, 0, (0o600, 0)),
        (0o400, 0, (0o400, 0)),
        (0o644, 4711, (0o640, 4711)),  # read by others
        (0o660, 4711, (0o640, 4711)),
        (0o640, 0, (0o600, 0)),  # sshd refuses it
        (0o640, 4712, (0o600, 4712)),  # another group's
    ],
)
def test_a_host_key_stays_as_the_distribution_made_it(
    mode: int, group: int, wanted: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "id"
    key = keypair(path)
    os.chown(path, 0, group)
    path.chmod(mode)
    found = plan_key(path, 0, 0, "root@node01", readers=[4711])
    assert found.changed == ((mode, group) != wanted)
    assert apply_key(found) == key
    status = path.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == wanted
    assert not plan_key(path, 0, 0, "root@node01", readers=[4711]).changed


def test_no_difference_shows_a_private_key(tmp_path: Path) -> None:
    path = tmp_path / "id"
    shown = [str(plan(path).diffs())]
    apply_key(plan(path))
    secret = path.read_text().splitlines()[1]
    public_path(path).unlink()
    shown.append(str(plan(path).diffs()))
    path.write_text(path.read_text()[:200])
    shown.append(str(plan(path).diffs()))
    assert len(set(shown)) == 3
    assert not any("PRIVATE KEY" in text or secret[:20] in text for text in shown)


def test_a_pair_half_made_leaves_the_old_one(tmp_path: Path) -> None:
    def broken(argv: list[str], **options: object) -> object:
        if "-N" in argv:
            raise OSError("killed")
        return run(argv, **options)  # type: ignore[arg-type]

    with pytest.raises(OSError, match="killed"):
        apply_key(plan(tmp_path / "id"), broken)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []

"""The ledger: what was signed is never forgotten before it expires."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh_trust.certificates import (
    digest,
    parse_certificate,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import issuing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Issued
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.ledger import (
    Ledger,
    LedgerError,
    Node,
)

from tests.unit.ssh_cluster import DAY, NOW, keypair


def test_a_node_is_read_as_it_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ssh-ca")
    node = Node("node01", "u", "h", [Issued("user", 5, "generation-1", NOW)], ["generation-1"])
    assert ledger.write(node)
    assert ledger.read("node01") == node
    assert not ledger.write(node), "the same again is no change"
    assert ledger.read("node02") is None


def test_everything_is_private_to_its_owner(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ssh-ca")
    ledger.write(Node("node01"))
    with ledger.locked():
        pass
    for path in (tmp_path / "ssh-ca").rglob("*"):
        if path.name != "lock":
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_last_certificate_of_a_kind_is_the_one_in_use() -> None:
    issued = [Issued(kind, serial, "a", NOW) for kind, serial in (("user", 9), ("user", 3))]
    node = Node("node01", issued=issued)
    assert node.latest("user") == issued[1]
    assert node.latest("host") is None
    assert issuing.digests(node) == {"user": ""}


def test_expired_certificates_are_forgotten() -> None:
    node = Node("n", issued=[Issued("user", 1, "a", NOW), Issued("user", 2, "a", NOW + 1)])
    node.forget_expired(NOW)
    assert [each.serial for each in node.issued] == [2]


def test_a_node_that_leaves_twice_keeps_all_its_serials(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for serial in (1, 2):
        ledger.write(Node("node01", issued=[Issued("user", serial, "a", NOW)]))
        ledger.remove("node01")
    assert ledger.names() == []
    gone = ledger.read("node01", removed=True)
    assert gone is not None
    assert sorted(each.serial for each in gone.issued) == [1, 2]


def test_a_spoiled_entry_is_named(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/node01.json").write_text("{")
    with pytest.raises(LedgerError, match=r"nodes/node01.json: not a ledger entry"):
        ledger.read("node01")


def test_a_spoiled_entry_of_who_has_left_is_not_to_be_thrown_away(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    (tmp_path / "removed").mkdir()
    (tmp_path / "removed/node01.json").write_text("{")
    with pytest.raises(LedgerError, match=r"restore it from a copy; without one, .* replace the"):
        ledger.revoked()


def test_the_journal_outlives_torn_lines(tmp_path: Path) -> None:
    journal = Ledger(tmp_path).journal
    journal.issued({"node01": [Issued("user", 1, "a", NOW), Issued("host", 2, "a", NOW)]})
    with journal.path.open("ab") as stream:
        stream.write(b'\n{"node": "node01", "seri\xff')
    journal.left("node01")
    journal.issued({"node01": [Issued("user", 3, "a", NOW)]})
    history = journal.read()["node01"]
    assert [each.serial for each in history.revoked] == [1, 2]
    assert [each.serial for each in history.present] == [3]


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes = b"") -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger(tmp_path)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space") as told:
        ledger.journal.left("node01")
    assert told.value.filename == str(ledger.journal.path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as told:
        ledger.write(Node("node01"))
    assert told.value.filename == str(tmp_path / "nodes/node01.json")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_names_that_are_paths_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        Ledger(tmp_path).read(name)


def test_what_cannot_be_remembered_is_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "state")
    key = keypair(tmp_path / "ca")
    signing = issuing.Signing("generation-1", {"user": tmp_path / "ca"}, ("generation-1",))

    def full(self: Ledger, node: Node) -> bool:
        raise OSError("no space left on device")

    monkeypatch.setattr(Ledger, "write", full)
    common = {"user": "mpi", "principal": "mpi@c", "names": ["node01"], "validity_days": 10}
    with pytest.raises(OSError, match="no space"):
        issuing.issue(ledger, "n", ["user"], {"user": key.text}, signing, now=NOW, **common)  # type: ignore[arg-type]


def test_each_kind_says_what_it_is_for(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state")
    key, authority = keypair(tmp_path / "key"), keypair(tmp_path / "ca")
    paths = {"user": tmp_path / "ca", "host": tmp_path / "ca"}
    signing = issuing.Signing("generation-1", paths, ("generation-1",))
    public = {"user": key.text, "host": key.text}
    texts = issuing.issue(
        ledger,
        "node01",
        ["user", "host"],
        public,
        signing,
        user="mpi",
        principal="mpi@c",
        names=["node01", "10.0.0.11"],
        validity_days=10,
        now=NOW,
    )
    user, host = (parse_certificate(texts[kind]) for kind in ("user", "host"))
    assert (user.key_id, user.principals) == ("mpi@node01", ("mpi@c",))
    assert (host.key_id, host.principals) == ("node01", ("node01", "10.0.0.11"))
    assert user.authority == host.authority == authority
    assert user.valid_before == NOW + 10 * DAY
    wanted = {kind: digest(text) for kind, text in texts.items()}
    assert issuing.digests(ledger.read("node01")) == wanted
    assert user.serial != host.serial


def test_remembering_the_same_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    public = {"user": "ssh-ed25519 U", "host": "ssh-ed25519 H"}
    assert issuing.remember(ledger, "node01", public, ["generation-1"], NOW)
    assert not issuing.remember(ledger, "node01", public, ["generation-1"], NOW)
    assert json.loads((tmp_path / "nodes/node01.json").read_text())["trusts"] == ["generation-1"]

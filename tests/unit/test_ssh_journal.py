"""The journal: what was signed is never forgotten, and how things stand is derived from it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.certificates import (
    digest,
    parse_certificate,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
    Node,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.publishing import (
    issue,
    remember,
)

from tests.unit.ssh_cluster import DAY, NOW, keypair

PUBLIC = {"user": "ssh-ed25519 U", "host": "ssh-ed25519 H"}


def test_a_node_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.read() == {}
    certificate = Issued("user", 5, "generation-1", NOW, "SHA256:x")
    journal.issued("node01", [certificate])
    assert not journal.read()["node01"].laid, "signed for, and no run got to its end"
    remember(journal, "node01", Node().known(), PUBLIC, ["generation-1"])
    node = Node("ssh-ed25519 U", "ssh-ed25519 H", ["generation-1"], [certificate])
    assert journal.read() == {"node01": node}
    assert node.known()["issued"] == {"user": "SHA256:x"}
    text = journal.path.read_text()
    remember(journal, "node01", node.known(), PUBLIC, ["generation-1"])
    assert journal.path.read_text() == text, "the same again is no line"


def test_everything_is_private_to_its_owner(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "ssh-ca")
    with journal.locked():
        journal.left("node01")
    for path in (journal.directory, journal.path):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_last_certificate_of_a_kind_is_the_one_in_use() -> None:
    issued = [Issued(kind, serial, "a", NOW) for kind, serial in (("user", 9), ("user", 3))]
    assert Node(issued=issued).latest() == {"user": issued[1]}


def test_a_node_that_leaves_twice_keeps_all_its_serials(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for serial in (1, 2):
        journal.issued("node01", [Issued("user", serial, "a", NOW)])
        journal.left("node01")
    node = journal.read()["node01"]
    assert ([each.serial for each in node.revoked], node.issued) == ([1, 2], [])


def test_the_journal_outlives_torn_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.issued("node01", [Issued("user", 1, "a", NOW), Issued("host", 2, "a", NOW)])
    with journal.path.open("ab") as stream:
        stream.write(b'\n{"node": "node01", "seri\xff')
    journal.left("node01")
    journal.issued("node01", [Issued("user", 3, "a", NOW)])
    node = journal.read()["node01"]
    assert [each.serial for each in node.revoked] == [1, 2]
    assert [each.serial for each in node.issued] == [3]


def test_lines_of_the_first_version_are_read(tmp_path: Path) -> None:
    """They have no digest: the certificate is signed anew, and what left stays revoked."""
    journal = Journal(tmp_path)
    line = '{"node": "node01", "kind": "user", "serial": 1, "authority": "a", "valid_before": 2}'
    journal.path.write_text(f'\n{line}\n{{"node": "node01", "left": true}}')
    assert journal.read()["node01"].revoked == [Issued("user", 1, "a", 2, "")]


def test_what_cannot_be_noted_is_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keypair(tmp_path / "ca")
    told = {"signs": "a", "private_keys": {"user": tmp_path / "ca"}, "principal": "mpi@c"}

    def full(handle: int, data: bytes) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        issue(
            Journal(tmp_path),
            "node01",
            ["user"],
            {"user": key.text},
            told,
            user="mpi",
            names=["node01"],
            validity_days=10,
            now=NOW,
        )


def test_each_kind_says_what_it_is_for(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    key, authority = keypair(tmp_path / "key"), keypair(tmp_path / "ca")
    texts = issue(
        journal,
        "node01",
        ["user", "host"],
        {"user": key.text, "host": key.text},
        {
            "signs": "generation-1",
            "private_keys": {"user": tmp_path / "ca", "host": tmp_path / "ca"},
            "principal": "mpi@c",
        },
        user="mpi",
        names=["node01", "10.0.0.11"],
        validity_days=10,
        now=NOW,
    )
    user, host = (parse_certificate(texts[kind]) for kind in ("user", "host"))
    assert (user.key_id, user.principals) == ("mpi@node01", ("mpi@c",))
    assert (host.key_id, host.principals) == ("node01", ("node01", "10.0.0.11"))
    assert user.authority == host.authority == authority
    assert user.valid_before == NOW + 10 * DAY
    assert user.serial != host.serial
    node = journal.read()["node01"]
    assert node.known()["issued"] == {kind: digest(text) for kind, text in texts.items()}
    assert [each.serial for each in node.issued] == [user.serial, host.serial]

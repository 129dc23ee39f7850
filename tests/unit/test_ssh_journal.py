"""The journal: what it records, what it survives, and the state of nodes derived from it."""

from __future__ import annotations

import json
import os
import stat
import syslog
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
    Member,
    SerialError,
)

from tests.unit.ssh_cluster import NOW, issue, keypair

PAGE = Path(__file__).parents[2] / "docs/ssh-trust.md"


def test_a_node_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.read() == {}
    certificate = Issued(
        "user", 5, "generation-1", NOW, "SHA256:x", NOW, "ssh-ed25519 U", ["a"], ["b"]
    )
    journal.issued("node01", [certificate])
    assert not journal.read()["node01"].complete, "signed, and no run succeeded"
    journal.trusts("node01", ["generation-1"])
    node = Member(["generation-1"], issued=[certificate])
    assert journal.read() == {"node01": node}
    assert node.known()["issued"]["user"]["digest"] == "SHA256:x"


def test_a_serial_is_recorded_once(tmp_path: Path) -> None:
    journal, one = Journal(tmp_path), Issued("user", 5, "generation-1", NOW)
    journal.issued("node01", [one])
    for again in ([one], [Issued("host", 6, "generation-1", NOW)] * 2):
        with pytest.raises(SerialError, match="another certificate has it"):
            journal.issued("node02", again)
    assert list(journal.read()) == ["node01"]


def test_everything_is_private_to_its_owner(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "above/ssh-ca")
    before = os.umask(0)
    try:
        with journal.locked():
            journal.left("node01")
    finally:
        os.umask(before)
    for path in (journal.directory.parent, journal.directory, journal.path):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_each_line_has_time_operator_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = []
    monkeypatch.setattr(syslog, "syslog", lambda _priority, text: logged.append(text))
    monkeypatch.setenv("SUDO_USER", "ann")
    before = int(time.time())
    Journal(tmp_path).issued("node01", [Issued("user", 5, "a", NOW)], {"user": "there is none"})
    text = (tmp_path / "journal.jsonl").read_text().strip()
    line = json.loads(text)
    assert (line["operator"], line["reason"], line["serial"]) == ("ann", "there is none", 5)
    assert line["time"] >= before
    assert logged == [f"baremetal.mpi_roce ssh {text}"]


def test_invalid_lines_and_a_node_that_leaves_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.issued("node01", [Issued("user", 1, "a", NOW), Issued("host", 2, "a", NOW)])
    with journal.path.open("ab") as stream:
        stream.write(b'\n{"node": "node01", "seri\xff')
    journal.left("node01")
    journal.issued("node01", [Issued("user", 3, "a", NOW)])
    journal.left("node01")
    journal.issued("node01", [Issued("user", 5, "a", NOW), Issued("user", 4, "a", NOW)])
    node = journal.read()["node01"]
    assert [each.serial for each in node.revoked] == [1, 2, 3]
    assert node.latest()["user"].serial == 4


def test_unrecorded_certificates_are_not_issued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keypair(tmp_path / "ca")

    def full(handle: int, data: bytes) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        issue(tmp_path, key)

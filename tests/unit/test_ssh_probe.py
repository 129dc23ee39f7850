"""The proof: ssh's own line for each pair that fails."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.modules import ssh_probe as probe

USER = pwd.struct_passwd(("mpi", "x", os.geteuid(), os.getegid(), "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "Certificate invalid: expired\nNo ED25519 host key is known for node02 and you have"
            " requested strict checking.\nHost key verification failed.\n",
            "Certificate invalid: expired",
        ),
        (
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl\n"
            "Host key verification failed.\n",
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl",
        ),
        ("first\nodd thing\n", "odd thing"),
        ("", "ssh: exit status 7"),
    ],
)
def test_the_line_with_the_reason(printed: str, line: str) -> None:
    assert probe.reason(printed, 7) == line


def test_it_never_asks_and_never_lowers_the_guard() -> None:
    words = probe.argv("-oProxyCommand=x", 7)
    assert {"BatchMode=yes", "ConnectTimeout=7"} <= set(words)
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)
    assert words[words.index("--") + 1] == "-oProxyCommand=x", "a name is never an option"


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
    monkeypatch.setattr(probe, "argv", lambda target, timeout_s: [str(path), target])


def test_a_login_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "exec sleep infinity")
    monkeypatch.setattr(probe, "GRACE_S", 0.1)
    assert "timed out" in probe.attempt("n", "n", USER, 0)["why"]


def test_the_environment_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, 'echo "$HOME|$USER|$SSH_AUTH_SOCK|$LC_ALL" >&2\nexit 3')
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    assert probe.attempt("n", "n", USER, 60)["why"] == "/|mpi||C"

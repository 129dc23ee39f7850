"""The proof: ssh's own line and an advice for each pair that fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import probe
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.account import Account

from tests.waiting import deadline

ACCOUNT = Account("mpi", os.geteuid(), os.getegid(), Path("/"), "/bin/sh")


@pytest.mark.parametrize(
    ("printed", "line", "advice"),
    [
        (
            "Certificate invalid: expired\nNo ED25519 host key is known for node02 and you have"
            " requested strict checking.\nHost key verification failed.\n",
            "Certificate invalid: expired",
            "clocks",
        ),
        (
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl\n"
            "Host key verification failed.\n",
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl",
            "left the inventory",
        ),
        (
            "Welcome\nmpi@node02: Permission denied (publickey,password).\n",
            "mpi@node02: Permission denied (publickey,password).",
            "sshd's log",
        ),
        ("first\nodd thing\n", "odd thing", "ssh -v"),
        ("", "ssh: exit status 7", "ssh -v"),
    ],
)
def test_the_line_with_the_reason_and_an_advice(printed: str, line: str, advice: str) -> None:
    found = probe.reason(printed, 7)
    assert found[0] == line
    assert advice in found[1]


def test_it_never_asks_and_never_lowers_the_guard() -> None:
    words = probe.argv("-oProxyCommand=x", 7)
    assert "BatchMode=yes" in words
    assert "ConnectTimeout=7" in words
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)
    assert words[words.index("--") + 1] == "-oProxyCommand=x", "a name is never an option"


def tried(host: str, why: str = "", advice: str = "") -> probe.Attempt:
    return probe.Attempt(host, host, why, advice)


def test_each_pair_is_named() -> None:
    attempts = [
        tried("node02"),
        tried("node03", "Connection refused", "sshd does not run there"),
        tried("node04", "timed out"),
        tried("node05", "no host key"),
        tried("node06"),
    ]
    lost, incomplete = ["node04", "node06"], ["node05"]
    found = probe.checks(attempts, lost, incomplete, here="node01", check_mode=False)
    skipped = "not_applicable"
    assert [each.status for each in found] == ["ok", "failed", skipped, skipped, "ok"]
    assert (found[1].subject, found[1].found) == ("node01 -> node03", "Connection refused")
    assert found[1].reason == "sshd does not run there; ssh: Connection refused"
    assert "node04 dropped out of this run earlier (timed out)" in found[2].reason
    (pending,) = probe.checks(attempts[1:2], [], [], here="x", check_mode=True)
    assert pending.status == "pending"


def test_so_many_at_a_time_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    four = threading.Barrier(4, timeout=deadline(60))

    def one(host: str, target: str, account: Account, timeout_s: int) -> probe.Attempt:
        four.wait()
        return probe.Attempt(host, target)

    monkeypatch.setattr(probe, "attempt", one)
    targets = [{"host": f"n{number}", "target": f"n{number}-x"} for number in range(12)]
    found = probe.probe(targets, ACCOUNT, timeout_s=1, parallel=4)
    assert [each.target for each in found] == [each["target"] for each in targets]


def test_a_login_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec sleep infinity\n")
    program.chmod(0o755)
    monkeypatch.setattr(probe, "argv", lambda target, timeout_s: [str(program), target])
    monkeypatch.setattr(probe, "GRACE_S", 0.1)
    assert "timed out" in probe.attempt("n", "n", ACCOUNT, 0).why


def test_the_environment_is_the_user_s_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text('#!/bin/sh\necho "$HOME|$USER|$SSH_AUTH_SOCK|$LC_ALL" >&2\nexit 3\n')
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(probe, "argv", lambda target, timeout_s: [str(program)])
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    assert probe.attempt("n", "n", ACCOUNT, 60).why == "/|mpi||C"

"""The proof: what ssh prints becomes a reason and an advice."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import probe
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.account import Account

from tests.waiting import deadline

TOLD = {
    "unknown host key": (
        "No ED25519 host key is known for node02 and you have requested strict checking.\n"
        "Host key verification failed.\n"
    ),
    "revoked host key": (
        "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl\n"
        "Host key verification failed.\n"
    ),
    "host key is not the one known": (
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nIT IS POSSIBLE\n"
        "Host key verification failed.\n"
    ),
    "host certificate expired or not valid yet": (
        "Certificate invalid: expired\nNo ED25519 host key is known for node02 and you have"
        " requested strict checking.\nHost key verification failed.\n"
    ),
    "host certificate is for other names": (
        "Certificate invalid: name is not a listed principal\nHost key verification failed.\n"
    ),
    "permission denied": "mpi@node02: Permission denied (publickey,password).\n",
    probe.TIMEOUT: "ssh: connect to host node02 port 22: Connection timed out\n",
    "connection refused": "ssh: connect to host node02 port 22: Connection refused\n",
    "no route": "ssh: connect to host node02 port 22: No route to host\n",
    "name does not resolve": "ssh: Could not resolve hostname node02: Name or service not known\n",
    "connection closed": (
        "kex_exchange_identification: read: Connection reset by peer\n"
        "Connection reset by 10.0.0.12 port 22\n"
    ),
}
ACCOUNT = Account("mpi", os.geteuid(), os.getegid(), Path("/"), "/bin/sh")


@pytest.mark.parametrize("meaning", TOLD)
def test_what_ssh_prints_is_understood(meaning: str) -> None:
    why, line = probe.reason(TOLD[meaning], 255)
    assert why == meaning
    assert line in [each.strip() for each in TOLD[meaning].splitlines()]


def test_every_reason_has_an_advice() -> None:
    assert set(probe.ADVICE) == set(TOLD)


def test_what_is_not_understood_is_quoted() -> None:
    assert probe.reason("first\nodd thing\n", 7) == ("ssh ended with status 7", "odd thing")
    assert probe.reason("", 7) == ("ssh ended with status 7", "")


def test_a_banner_is_not_taken_for_the_reason() -> None:
    why, line = probe.reason("Welcome\n" + TOLD["permission denied"], 255)
    assert (why, line) == ("permission denied", TOLD["permission denied"].strip())


def test_it_never_asks_and_never_lowers_the_guard() -> None:
    words = probe.argv("-oProxyCommand=x", 7)
    assert "BatchMode=yes" in words
    assert "ConnectTimeout=7" in words
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)
    assert words[words.index("--") + 1] == "-oProxyCommand=x", "a name is never an option"


def tried(host: str, why: str = "", told: str = "") -> probe.Attempt:
    return probe.Attempt(probe.Target(host, host), why, told, 0.1)


def test_each_pair_is_named() -> None:
    attempts = [tried("node02"), tried("node03", "connection refused", "Connection refused")]
    good, bad = probe.checks(attempts, [], here="node01", check_mode=False)
    assert (good.status, good.subject) == ("ok", "node01 -> node02")
    assert (bad.status, bad.subject, bad.found) == (
        "failed",
        "node01 -> node03",
        "connection refused",
    )
    assert bad.reason == "sshd does not run there, or not on this port; ssh: Connection refused"


def test_who_dropped_out_of_the_run_is_named_and_not_held_against_this_host() -> None:
    (found,) = probe.checks(
        [tried("node03", probe.TIMEOUT)], ["node03"], here="launcher", check_mode=False
    )
    assert found.status == "not_applicable"
    assert "node03 dropped out of this run earlier (no answer in time)" in found.reason


def test_who_was_never_in_a_run_is_named_and_not_held_against_this_host() -> None:
    attempts = [tried("node03", "unknown host key"), tried("node04", "unknown host key")]
    fresh, laid = probe.checks(attempts, [], ["node03"], here="launcher", check_mode=False)
    assert fresh.status == "not_applicable"
    assert fresh.reason == "trust not laid there yet (run --tags ssh on it); unknown host key"
    assert laid.status == "failed"
    (reached,) = probe.checks([tried("node03")], [], ["node03"], here="x", check_mode=False)
    assert reached.status == "ok"


def test_who_dropped_out_and_answers_is_reached() -> None:
    (found,) = probe.checks([tried("node03")], ["node03"], here="launcher", check_mode=False)
    assert found.status == "ok"


def test_in_check_mode_a_difference_is_pending() -> None:
    (found,) = probe.checks([tried("n", probe.TIMEOUT)], [], here="x", check_mode=True)
    assert found.status == "pending"
    (found,) = probe.not_laid([probe.Target("n", "n-rail0")], "not yet", here="x")
    assert (found.status, found.subject) == ("pending", "x -> n-rail0")


def test_so_many_at_a_time_and_in_order() -> None:
    running, most, lock = 0, 0, threading.Lock()
    four = threading.Barrier(4, timeout=deadline(60))

    def one(target: probe.Target, account: Account, timeout_s: int) -> probe.Attempt:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        four.wait()
        with lock:
            running -= 1
        return probe.Attempt(target, "", "", 0.0)

    targets = [probe.Target(f"n{number}", f"n{number}") for number in range(12)]
    found = probe.probe(targets, ACCOUNT, timeout_s=1, parallel=4, attempt_one=one)
    assert [each.target for each in found] == targets
    assert most == 4
    assert probe.probe([], ACCOUNT, timeout_s=1, parallel=4) == []


def test_a_login_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec sleep infinity\n")
    program.chmod(0o755)
    monkeypatch.setattr(probe, "argv", lambda target, timeout_s: [str(program), target])
    monkeypatch.setattr(probe, "GRACE_S", 0.1)
    found = probe.attempt(probe.Target("n", "n"), ACCOUNT, 0)
    assert (found.why, found.told) == (probe.TIMEOUT, "ssh was ended")


def test_the_environment_is_the_user_s_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text('#!/bin/sh\necho "$HOME|$USER|$SSH_AUTH_SOCK|$LC_ALL" >&2\nexit 3\n')
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(probe, "argv", lambda target, timeout_s: [str(program)])
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    assert probe.attempt(probe.Target("n", "n"), ACCOUNT, 60).told == "/|mpi||C"

"""What sshd says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.sshd import (
    Settings,
    Sshd,
    listening,
    refusal,
)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("0.0.0.0:22", ("127.0.0.1", 22)),
        ("[::]:2222", ("::1", 2222)),
        ("10.0.0.11:22", ("10.0.0.11", 22)),
        ("[fe80::1%eth0]:22", ("fe80::1%eth0", 22)),
    ],
)
def test_where_sshd_answers(address: str, found: tuple[str, int]) -> None:
    assert listening(Settings({"listenaddress": [address, "[::]:22"]})) == found


class Recorded:
    """Answers of programs by their first words."""

    def __init__(self, answers: dict[str, tuple[int, str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        line = " ".join(argv)
        self.asked.append(line)
        for start, (rc, text) in self.answers.items():
            if line.startswith(start):
                return Result(tuple(argv), rc, text, text)
        return Result(tuple(argv), 3, "", "")


@pytest.mark.parametrize(
    ("active", "reloaded"),
    [
        ("ssh.service", "systemctl reload ssh.service"),
        ("sshd.service", "systemctl reload sshd.service"),
        ("none", None),
    ],
)
def test_the_unit_that_runs_is_reloaded(active: str, reloaded: Optional[str]) -> None:
    runner = Recorded(
        {f"systemctl is-active --quiet {active}": (0, ""), "systemctl reload": (0, "")}
    )
    Sshd(Path("/etc/ssh/sshd_config"), runner).reload()
    assert [line for line in runner.asked if " reload " in line] == ([reloaded] if reloaded else [])


def test_the_certificate_on_the_wire() -> None:
    text = "# 127.0.0.1:22 SSH-2.0-OpenSSH_9.2\n127.0.0.1 ssh-ed25519-cert-v01@openssh.com AAAA c\n"
    runner = Recorded({"ssh-keyscan": (0, text)})
    sshd = Sshd(Path("/x"), runner)
    assert sshd.presented(Settings({})) == "ssh-ed25519-cert-v01@openssh.com AAAA"
    runner.answers = {"ssh-keyscan": (1, "")}
    assert sshd.presented(Settings({})) is None


def test_the_directory_debian_s_sshd_wants_is_made_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    monkeypatch.setattr(Sshd, "_program", lambda self: "sshd")
    monkeypatch.setattr(Path, "mkdir", lambda self, **_options: made.append(str(self)))
    wants = "Missing privilege separation directory: /run/sshd"
    runner = Recorded({"sshd -t": (255, wants)})
    assert Sshd(Path("/c"), runner).fault() == wants
    assert (made, len(runner.asked)) == (["/run/sshd"], 2)
    runner = Recorded({"sshd -t": (0, "")})
    assert Sshd(Path("/c"), runner).fault() == ""
    assert (len(made), len(runner.asked)) == (1, 1)


def test_settings_that_cannot_be_asked_for_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sshd, "_program", lambda self: "sshd")
    runner = Recorded({"sshd -T": (255, "line 3: Bad configuration option: Garbage")})
    with pytest.raises(CommandError, match="sshd -T: line 3: Bad configuration"):
        Sshd(Path("/c"), runner).settings("mpi")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, ""),
        ({"allowusers": ["root", "mpi"]}, ""),
        ({"allowusers": ["m*"]}, ""),
        ({"allowusers": ["mpi@10.0.0.*"]}, ""),
        ({"allowusers": ["root", "ops"]}, "AllowUsers root ops"),
        ({"denyusers": ["mpi"]}, "DenyUsers mpi"),
        ({"allowgroups": ["hpc"]}, ""),
        ({"allowgroups": ["wheel"]}, "AllowGroups wheel"),
        ({"denygroups": ["hp?"]}, "DenyGroups hp?"),
    ],
)
def test_a_rule_that_refuses_the_mpi_user_is_named(
    settings: dict[str, list[str]], found: str
) -> None:
    assert refusal(Settings(settings), "mpi", ["mpi", "hpc"]) == found

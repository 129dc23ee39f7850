"""ssh's output for a failed login: the line with the cause, and the host at fault.

Outputs of OpenSSH 9.2 between virtual nodes; that of pam_slurm_adopt from its source.
"""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.refusals import (
    BEFORE,
    MAX_LINE,
    blamed,
    refusal,
)

CLOSED = "Connection closed by 10.223.0.11 port 22\n"


ISSUE = "System is going down. Unprivileged users are not permitted to log in anymore.\n\n"
SLURM = "Access denied by pam_slurm_adopt: you have no active jobs on this node\n"
POST_QUANTUM = (
    "** WARNING: connection is not using a post-quantum key exchange algorithm.\nodd\n"
    "** The server may need to be upgraded. See https://openssh.com/pq.html\n"
)


@pytest.mark.parametrize(
    ("printed", "number", "side", "remedy"),
    [
        ("Certificate invalid: expired\nHost key verification failed.\n", 0, "target", False),
        ("Certificate invalid: not yet valid\nkey verification failed.\n", 0, "either", True),
        ("Host key x revoked by file /x\nHost key verification failed.\n", 0, "target", False),
        ("No ED25519 host key is known for n.\nverification failed.\n", 0, "either", False),
        (SLURM + CLOSED, 0, "target", True),
        (ISSUE + CLOSED, 0, "target", True),
        ("Received disconnect: Too many authentication failures\n" + CLOSED, 0, "either", True),
        ("Unable to negotiate with n: no matching host key type found.\n", 0, "target", True),
        ("kex_exchange_identification: Connection closed by n\n" + CLOSED, 0, "target", True),
        ("channel 0: open failed: connect failed: open failed\n", 0, "target", True),
        ("Maintenance on Monday.\nmpi@n: Permission denied (publickey).\n", 1, "either", False),
        ("ssh: connect to host n port 22: Connection refused\n", 0, "target", True),
        ("ssh: connect to host n port 22: Connection timed out\n", 0, "either", True),
        ("ssh: Could not resolve hostname n: Temporary failure\n", 0, "here", True),
        ("ssh: connect to host n port 22: Network is unreachable\n", 0, "here", True),
        ("Load key /x: invalid format\nmpi@n: Permission denied (publickey).\n", 0, "here", False),
        (CLOSED, 0, "target", True),
        ("first\nodd thing\n", 1, "either", False),
        (POST_QUANTUM, 1, "either", False),
    ],
)
def test_the_line_with_the_cause(printed: str, number: int, side: str, remedy: bool) -> None:
    found = refusal(printed, 7)
    assert (found.line, found.side) == (printed.splitlines()[number], side)
    assert bool(found.remedy) is remedy


def test_a_message_of_the_target_or_none() -> None:
    found = refusal("back at nine\n\n" + CLOSED, 7)
    assert found.line == f"{CLOSED.strip()}, after: back at nine"
    assert (found.side, "nologin" in found.remedy) == ("target", True)
    assert refusal("", 7).line == "ssh: exit status 7"


@pytest.mark.parametrize(
    "printed",
    [
        CLOSED,
        "Your account has expired; please contact your system administrator.\n" + CLOSED,
        "kex_exchange_identification: Connection closed by remote host\n",
        "System is going down.\n" + CLOSED,
    ],
)
def test_remedies_name_the_log_of_both_programs_of_sshd(printed: str) -> None:
    """From OpenSSH 9.8 on sshd-session serves connections and logs under its name."""
    assert "journalctl -t sshd -t sshd-session" in refusal(printed, 255).remedy


def test_output_is_bounded_and_printable() -> None:
    said = "".join(f"\x1b[2J{'x' * 1000}\n" for _each in range(100))
    line = refusal(said + CLOSED, 255).line
    assert "\x1b" not in line and "\n" not in line
    assert len(line) < (BEFORE + 2) * MAX_LINE


def test_a_host_that_fails_at_all_others_is_at_fault() -> None:
    assert blamed("either", "n1", {"n1": "either"}, {"n1", "n2"}) == "n1"
    assert blamed("either", "n1", {"n1": "either", "n2": "either"}, {"n1", "n2"}) == ""
    assert blamed("either", "n1", {"n1": "either", "n2": "target"}, {"n1", "n2"}) == "n1"
    assert blamed("target", "n1", {"n1": "target", "n2": "target"}, {"n1", "n2"}) == "n1"
    assert blamed("here", "n1", {"n1": "here"}, {"n1", "n2"}) == ""

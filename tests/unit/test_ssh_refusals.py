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


@pytest.mark.parametrize(
    ("printed", "line", "side", "by_hand"),
    [
        (
            "Certificate invalid: expired\nNo ED25519 host key is known for node02 and you have"
            " requested strict checking.\nHost key verification failed.\n",
            "Certificate invalid: expired",
            "target",
            False,
        ),
        (
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl\n"
            "Host key verification failed.\n",
            "Host key ED25519-CERT SHA256:Hhf9 revoked by file /etc/x/revoked.krl",
            "target",
            False,
        ),
        (
            "Access denied by pam_slurm_adopt: you have no active jobs on this node\n" + CLOSED,
            "Access denied by pam_slurm_adopt: you have no active jobs on this node",
            "target",
            True,
        ),
        (
            "System is going down. Unprivileged users are not permitted to log in anymore. For"
            " technical details, see pam_nologin(8).\n\n" + CLOSED,
            "System is going down. Unprivileged users are not permitted to log in anymore. For"
            " technical details, see pam_nologin(8).",
            "target",
            True,
        ),
        (
            "back at nine\n\n" + CLOSED,
            f"{CLOSED.strip()}, after: back at nine",
            "target",
            True,
        ),
        (
            "Received disconnect from 10.223.0.11 port 22:2: Too many authentication failures\n"
            "Disconnected from 10.223.0.11 port 22\n",
            "Received disconnect from 10.223.0.11 port 22:2: Too many authentication failures",
            "either",
            False,
        ),
        (
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their"
            " offer: rsa-sha2-512\n",
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their"
            " offer: rsa-sha2-512",
            "target",
            True,
        ),
        (
            "kex_exchange_identification: Connection closed by remote host\n" + CLOSED,
            "kex_exchange_identification: Connection closed by remote host",
            "target",
            True,
        ),
        (
            "channel 0: open failed: connect failed: open failed\n",
            "channel 0: open failed: connect failed: open failed",
            "target",
            True,
        ),
        (
            "Access denied to others. Maintenance on Monday.\n"
            "mpi@n: Permission denied (publickey).\n",
            "mpi@n: Permission denied (publickey).",
            "either",
            False,
        ),
        (
            "ssh: connect to host n port 22: Connection refused\n",
            "ssh: connect to host n port 22: Connection refused",
            "target",
            True,
        ),
        (
            "ssh: connect to host n port 22: Connection timed out\n",
            "ssh: connect to host n port 22: Connection timed out",
            "either",
            True,
        ),
        (
            "ssh: Could not resolve hostname n: Temporary failure in name resolution\n",
            "ssh: Could not resolve hostname n: Temporary failure in name resolution",
            "here",
            False,
        ),
        (CLOSED, CLOSED.strip(), "target", False),
        ("first\nodd thing\n", "odd thing", "either", False),
        (
            "** WARNING: connection is not using a post-quantum key exchange algorithm.\nodd\n"
            "** The server may need to be upgraded. See https://openssh.com/pq.html\n",
            "odd",
            "either",
            False,
        ),
        ("", "ssh: exit status 7", "either", False),
    ],
)
def test_the_line_with_the_cause(printed: str, line: str, side: str, by_hand: bool) -> None:
    found = refusal(printed, 7)
    assert (found.line, found.side, found.by_hand) == (line, side, by_hand)


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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Explain why a login failed: the line with the cause, the end at fault and the remedy.

ssh's last line says that the connection was closed. The cause precedes it: a message from sshd's
PAM, a disconnect text, a warning about a key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..core.text import one_line, shortened

TARGET, HERE, EITHER = "target", "here", "either"
"""The end at fault. EITHER means the target, unless this host fails in this way at all targets."""
RUN = "run --tags"
"""Beginning of a remedy that runs a layer; all others are for the operator."""
MAX_LINE = 300
BEFORE = 2
"""Number of lines shown from before the end of the connection: PAM's message, after a banner."""

NOISE = re.compile(
    r"Warning: Permanently added|setpgid\(|^@+$"
    # sshconnect2.c of OpenSSH 10.1 and later.
    r"|^\*\* (WARNING: connection is not using a post-quantum|This session may be|The server may)"
)
CLOSED = re.compile(r"^(Connection (closed|reset)|Disconnected from|client_loop: send disconnect)")
"""End of a connection, printed after its cause: packet.c, clientloop.c of OpenSSH."""
LOG = "journalctl -t sshd -t sshd-session"
"""From 9.8 on a separate program serves connections and logs results of PAM and keys:
openssh/openssh-portable@03e3de41. EL 10 has 9.9, Ubuntu 26.04 has 10."""
NO_LOGIN = (
    f"remove /etc/nologin or /run/nologin after the announced event; otherwise {LOG} shows which"
    " module of PAM lets only root log in"
)


@dataclass(frozen=True)
class Refusal:
    """Why a login failed. `line` is empty for success."""

    line: str
    side: str = EITHER
    remedy: str = ""
    """What to do; empty if the remedy is to run the role."""


KNOWN = {
    # Slurm: contribs/pam_slurm_adopt/pam_slurm_adopt.c, contribs/pam/pam_slurm.c.
    r"pam_slurm|no active jobs? on this node": (
        TARGET,
        "start MPI through Slurm, or admit the MPI user before pam_slurm in /etc/pam.d/sshd there",
    ),
    # Linux-PAM: modules/pam_nologin; the texts are those of systemd: src/user-sessions, src/login.
    r"not permitted to log in|System is going down": (TARGET, NO_LOGIN),
    # Linux-PAM: modules/pam_unix; sshd sends its message.
    r"account (has )?expired|password (has )?expired": (
        TARGET,
        f"PAM refuses the account: {LOG} shows the module",
    ),
    # OpenSSH, auth.c: each key that a client offers counts for MaxAuthTries.
    r"Too many authentication failures": (
        EITHER,
        "remove IdentityFile from ~/.ssh/config here, or raise MaxAuthTries of sshd there",
    ),
    # OpenSSH: sshconnect.c. The reason precedes "Host key verification failed".
    r"Certificate invalid: not yet valid": (EITHER, "compare the clocks of both hosts"),
    r"Certificate invalid|revoked by file": (TARGET, ""),
    r"IDENTIFICATION HAS CHANGED|host key is known for": (EITHER, ""),
    # OpenSSH: kex.c, packet.c.
    r"Unable to negotiate|no matching (host key type|key exchange|cipher|MAC)|kex error": (
        TARGET,
        "compare sshd -T there with ssh -Q here, and update-crypto-policies --show of both",
    ),
    # OpenSSH: sshd.c drops connections above MaxStartups before or during the key exchange.
    r"kex_exchange_identification|Exceeded MaxStartups|banner exchange": (
        TARGET,
        "sshd there dropped the connection: MaxStartups, PerSourceMaxStartups, PerSourcePenalties,"
        f" or hosts.deny; {LOG} shows which",
    ),
    # OpenSSH: channels.c, session.c: more sessions than MaxSessions.
    r"open failed: (connect failed: open failed|administratively prohibited)": (
        TARGET,
        "raise MaxSessions of sshd there",
    ),
    # OpenSSH: readconf.c, authfile.c, ssh.c.
    r"Load key .*(libcrypto|invalid format|Permission denied)|no such identity": (HERE, ""),
    # getaddrinfo(3), connect(2).
    r"Network is unreachable": (HERE, "this host has no route there: ip route"),
    r"Could not resolve hostname": (HERE, f"{RUN} names"),
    r"Connection refused": (
        TARGET,
        "no sshd listens there on this port (systemctl status ssh sshd), or a firewall rejects it",
    ),
    r"timed out after the connection": (
        TARGET,
        "a .bashrc or profile of the MPI user there waits for input, or the home's server is dead",
    ),
    r"timed out|No route to host": (
        EITHER,
        "check power and cable there, and whether a firewall admits SSH from this host",
    ),
}
"""Side and remedy by pattern of the line with the cause, in the order in which they are tried."""


def refusal(stderr: str, status: int) -> Refusal:
    """Find the cause in ssh's output, the end at fault and the remedy."""
    lines = [shortened(one_line(line), MAX_LINE) for line in stderr.splitlines()]
    lines = [line for line in lines if line and not NOISE.search(line)]
    for pattern, known in KNOWN.items():
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                return Refusal(line, *known)
    messages = [line for line in lines if not CLOSED.search(line)]
    if not lines or not CLOSED.search(lines[-1]):
        return Refusal((messages[-1:] or [f"ssh: exit status {status}"])[0])
    if not messages:
        return Refusal(lines[-1], TARGET, f"{LOG} there shows the cause")
    # The message from PAM on the target.
    text = f"{lines[-1]}, after: {'; '.join(messages[-BEFORE:])}"
    return Refusal(shortened(text, 2 * MAX_LINE), TARGET, NO_LOGIN)


def blamed(side: str, host: str, failed: Mapping[str, str], everyone: Collection[str]) -> str:
    """The host at fault; empty for this one.

    `failed` maps unreachable hosts, among `everyone` that was tried, to their sides. A host that
    fails to reach all others is itself at fault, unless their answers show otherwise.
    """
    if side == HERE:
        return ""
    every = len(everyone) > 1 and set(failed) >= set(everyone)
    return "" if side == EITHER and every and set(failed.values()) == {EITHER} else host

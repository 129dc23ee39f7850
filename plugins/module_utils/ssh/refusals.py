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
MAX_LINE = 300
"""Maximum length of a line."""
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
    "PAM lets only root log in, usually because of /etc/nologin or /run/nologin: remove the file"
    f" after the announced event; otherwise {LOG} shows the module"
)


@dataclass(frozen=True)
class Refusal:
    """Why a login failed. `line` is empty for success."""

    line: str
    side: str = EITHER
    remedy: str = ""
    """What to do; empty if the remedy is to run the role."""
    by_hand: bool = False
    """Whether only the operator can apply it."""


@dataclass(frozen=True)
class KnownRefusal:
    pattern: str
    side: str
    remedy: str = ""
    by_hand: bool = False


KNOWN = (
    # Slurm: contribs/pam_slurm_adopt/pam_slurm_adopt.c, contribs/pam/pam_slurm.c.
    KnownRefusal(
        r"pam_slurm|no active jobs? on this node",
        TARGET,
        "Slurm admits users only to nodes of their jobs: start MPI through Slurm, or admit the MPI"
        " user before pam_slurm there, by pam_access in /etc/pam.d/sshd",
        True,
    ),
    # Linux-PAM: modules/pam_nologin; the texts are those of systemd: src/user-sessions, src/login.
    KnownRefusal(
        r"not permitted to log in|System is going down",
        TARGET,
        NO_LOGIN,
        True,
    ),
    # Linux-PAM: modules/pam_unix; sshd sends its message.
    KnownRefusal(
        r"account (has )?expired|password (has )?expired",
        TARGET,
        f"PAM refuses the account: {LOG} shows the module",
        True,
    ),
    # OpenSSH, auth.c: each key that a client offers counts for MaxAuthTries.
    KnownRefusal(
        r"Too many authentication failures",
        EITHER,
        "more keys were offered than MaxAuthTries allows: IdentityFile lines in ~/.ssh/config here,"
        " or a low MaxAuthTries in sshd's configuration there",
    ),
    # OpenSSH: sshconnect.c (certificates, revocation, host keys).
    KnownRefusal(r"Certificate invalid: not yet valid", EITHER, "compare the clocks of both hosts"),
    KnownRefusal(r"Certificate invalid|revoked by file", TARGET),
    # The reason precedes "Host key verification failed".
    KnownRefusal(
        r"IDENTIFICATION HAS CHANGED|Host key verification failed|host key is known for", EITHER
    ),
    # OpenSSH: kex.c, packet.c.
    KnownRefusal(
        r"Unable to negotiate|no matching (host key type|key exchange|cipher|MAC)|kex error",
        TARGET,
        "sshd there and ssh here have no algorithm in common: compare sshd -T there with ssh -Q"
        " here, and crypto-policies (update-crypto-policies --show) of both",
        True,
    ),
    # OpenSSH: sshd.c drops connections above MaxStartups before or during the key exchange.
    KnownRefusal(
        r"kex_exchange_identification|Exceeded MaxStartups|banner exchange",
        TARGET,
        "sshd accepted the connection and dropped it: MaxStartups, PerSourceMaxStartups or"
        f" PerSourcePenalties of sshd there, or hosts.deny; {LOG} shows which",
        True,
    ),
    # OpenSSH: channels.c, session.c: more sessions than MaxSessions.
    KnownRefusal(
        r"open failed: (connect failed: open failed|administratively prohibited)",
        TARGET,
        "sshd there permits no session: MaxSessions in its configuration",
        True,
    ),
    # OpenSSH: readconf.c, authfile.c, ssh.c.
    KnownRefusal(
        r"Bad owner or permissions|Bad configuration option|terminating, \d+ bad|UNPROTECTED"
        r"|Bad configuration file|unsupported option|keyword .* extra arguments",
        HERE,
        "correct this file of ssh",
        True,
    ),
    KnownRefusal(r"Load key .*(libcrypto|invalid format|Permission denied)|no such identity", HERE),
    # getaddrinfo(3), connect(2).
    KnownRefusal(r"Could not resolve hostname", HERE, "run --tags names"),
    KnownRefusal(r"Network is unreachable", HERE, "this host has no route there: ip route", True),
    KnownRefusal(
        r"Connection refused",
        TARGET,
        "no sshd listens there on this port (systemctl status ssh sshd), or a firewall rejects it",
        True,
    ),
    KnownRefusal(
        r"timed out after the connection",
        TARGET,
        "sshd or the MPI user's shell hangs: a .bashrc or profile waits for input, or the home is"
        " on a dead server",
        True,
    ),
    KnownRefusal(
        r"timed out|No route to host",
        EITHER,
        "no answer: check power, cable, and whether a firewall there admits SSH from this host",
        True,
    ),
    KnownRefusal(r"Permission denied|No more authentication methods", EITHER),
)


def refusal(stderr: str, status: int) -> Refusal:
    """Find the cause in ssh's output, the end at fault and the remedy."""
    lines = [shortened(one_line(line), MAX_LINE) for line in stderr.splitlines()]
    lines = [line for line in lines if line and not NOISE.search(line)]
    for known in KNOWN:
        for line in lines:
            if re.search(known.pattern, line, re.IGNORECASE):
                return Refusal(line, known.side, known.remedy, known.by_hand)
    messages = [line for line in lines if not CLOSED.search(line)]
    if lines and messages and CLOSED.search(lines[-1]):
        # The message from PAM on the target.
        text = f"{lines[-1]}, after: {'; '.join(messages[-BEFORE:])}"
        return Refusal(shortened(text, 2 * MAX_LINE), TARGET, NO_LOGIN, True)
    if lines and CLOSED.search(lines[-1]):
        return Refusal(lines[-1], TARGET, f"{LOG} there shows the cause")
    return Refusal((messages[-1:] or [f"ssh: exit status {status}"])[0])


def blamed(side: str, host: str, failed: Mapping[str, str], everyone: Collection[str]) -> str:
    """The host at fault; empty for this one.

    `failed` maps unreachable hosts, among `everyone` that was tried, to their sides. A host that
    fails to reach all others is itself at fault, unless their answers show otherwise.
    """
    if side == HERE:
        return ""
    every = len(everyone) > 1 and set(failed) >= set(everyone)
    return "" if side == EITHER and every and set(failed.values()) == {EITHER} else host

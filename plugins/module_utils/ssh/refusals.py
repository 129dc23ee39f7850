# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Why ssh did not get to a host: the line that has the cause, the end that differs, the remedy.

ssh ends with what it noticed last, often only that the connection was closed. The cause stands
before: what sshd's PAM says to the user, a disconnect's text, a warning about a key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..core.text import one_line, shortened

TARGET, HERE, EITHER = "target", "here", "either"
"""The end that differs. EITHER is the target, unless this host fails at all of its targets so."""
MOST_CHARACTERS = 300
"""Of a line."""
BEFORE = 2
"""Lines before the end of the connection that are kept: what PAM said, after a site's banner."""

NOISE = re.compile(
    r"Warning: Permanently added|setpgid\(|^@+$"
    # sshconnect2.c of OpenSSH 10.1 and later.
    r"|^\*\* (WARNING: connection is not using a post-quantum|This session may be|The server may)"
)
ENDED = re.compile(r"^(Connection (closed|reset)|Disconnected from|client_loop: send disconnect)")
"""The end, without its cause, which was printed before: packet.c, clientloop.c of OpenSSH."""
LOG = "journalctl -t sshd -t sshd-session"
"""From 9.8 on a separate program serves a connection, and writes what PAM and keys came to:
openssh/openssh-portable@03e3de41. EL 10 has 9.9, Ubuntu 26.04 has 10."""
NO_LOGIN = (
    "PAM lets root log in only, most often by /etc/nologin or /run/nologin: remove the file when"
    f" what it announces is over; else {LOG} has the module"
)


@dataclass(frozen=True)
class Refusal:
    """Why a login failed. Without a line there is none."""

    line: str
    side: str = EITHER
    remedy: str = ""
    """What to do; empty where the role's own run is the remedy."""
    by_hand: bool = False
    """Whether no run of the role can do it."""


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
        "Slurm admits users only to nodes of their jobs: start MPI by Slurm, or admit the MPI user"
        " before pam_slurm there, by pam_access in /etc/pam.d/sshd",
        True,
    ),
    # Linux-PAM: modules/pam_nologin; the texts are those of systemd: src/user-sessions, src/login.
    KnownRefusal(
        r"not permitted to log in|System is going down",
        TARGET,
        NO_LOGIN,
        True,
    ),
    # Linux-PAM: modules/pam_unix; sshd sends what it says.
    KnownRefusal(
        r"account (has )?expired|password (has )?expired",
        TARGET,
        f"PAM refuses the account: {LOG} has the module",
        True,
    ),
    # OpenSSH, auth.c: MaxAuthTries of the server counts each key that a client offers.
    KnownRefusal(
        r"Too many authentication failures",
        EITHER,
        "more keys were offered than MaxAuthTries admits: IdentityFile lines in ~/.ssh/config here,"
        " or a low MaxAuthTries in sshd's configuration there",
    ),
    # OpenSSH: sshconnect.c (certificates, revocation, host keys).
    KnownRefusal(r"Certificate invalid: not yet valid", EITHER, "compare the clocks of both hosts"),
    KnownRefusal(r"Certificate invalid|revoked by file", TARGET),
    # The reason stands in the line before "Host key verification failed".
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
    # OpenSSH: sshd.c drops connections beyond MaxStartups before or while keys are exchanged.
    KnownRefusal(
        r"kex_exchange_identification|Exceeded MaxStartups|banner exchange",
        TARGET,
        "sshd took the connection and dropped it: MaxStartups, PerSourceMaxStartups or"
        f" PerSourcePenalties of sshd there, or hosts.deny; {LOG} has which",
        True,
    ),
    # OpenSSH: channels.c, session.c: a session beyond MaxSessions.
    KnownRefusal(
        r"open failed: (connect failed: open failed|administratively prohibited)",
        TARGET,
        "sshd there admits no session: MaxSessions of its configuration",
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
        "no sshd listens there on this port: systemctl status ssh sshd, or a firewall rejects it",
        True,
    ),
    KnownRefusal(
        r"timed out after the connection",
        TARGET,
        "sshd or the MPI user's shell does not go on: a .bashrc or profile that waits for input, or"
        " a home on a dead server",
        True,
    ),
    KnownRefusal(
        r"timed out|No route to host",
        EITHER,
        "no answer: power, cable, and whether a firewall there lets this host's SSH in",
        True,
    ),
    KnownRefusal(r"Permission denied|No more authentication methods", EITHER),
)


def refusal(stderr: str, status: int) -> Refusal:
    """Of what ssh printed: the line with the cause, which end it points to, and the remedy."""
    lines = [shortened(one_line(line), MOST_CHARACTERS) for line in stderr.splitlines()]
    lines = [line for line in lines if line and not NOISE.search(line)]
    for known in KNOWN:
        for line in lines:
            if re.search(known.pattern, line, re.IGNORECASE):
                return Refusal(line, known.side, known.remedy, known.by_hand)
    told = [line for line in lines if not ENDED.search(line)]
    if lines and told and ENDED.search(lines[-1]):
        # What PAM of the target said, in its own words.
        text = f"{lines[-1]}, after: {'; '.join(told[-BEFORE:])}"
        return Refusal(shortened(text, 2 * MOST_CHARACTERS), TARGET, NO_LOGIN, True)
    if lines and ENDED.search(lines[-1]):
        return Refusal(lines[-1], TARGET, f"{LOG} there has why")
    return Refusal((told[-1:] or [f"ssh: exit status {status}"])[0])


def blamed(side: str, host: str, failed: Mapping[str, str], everyone: Collection[str]) -> str:
    """The host that differs; empty for this one.

    `failed` are the hosts that could not be reached, each with its side, of `everyone` that was
    tried. A host that fails at all others has the fault itself, unless the others say that it is
    theirs.
    """
    if side == HERE:
        return ""
    every = len(everyone) > 1 and set(failed) >= set(everyone)
    return "" if side == EITHER and every and set(failed.values()) == {EITHER} else host

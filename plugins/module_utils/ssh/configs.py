# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The text of every file the trust needs on a node, for sshd and for ssh.

Every setting stands in a block that matches the MPI user only (and, for ssh, the cluster's hosts
only): nobody else's logins are touched, whatever the operator has set for them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..core.files import replace_block, with_header

DROP_IN = "10-baremetal-mpi-roce.conf"
"""Before what distributions and installers put there (50-...): the first value found holds."""
BLOCK = "ssh"
BLOCK_BEGIN = f"# BEGIN baremetal.mpi_roce {BLOCK}"
"""Of the Include in a main file that has none."""


class Places:
    """Where each file is on a node. `root` is `/` but in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        # Keys and lists of ours. Not in a home directory: that may be shared between nodes.
        self.own = own = root / "etc/baremetal-mpi-roce/ssh"
        self.user_key = own / "id_ed25519"
        self.user_certificate = own / "id_ed25519-cert.pub"
        self.host_certificate = own / "ssh_host_ed25519_key-cert.pub"
        self.user_authorities = own / "user_ca.pub"
        self.principals = own / "authorized_principals"
        self.revoked = own / "revoked.krl"
        self.known_hosts = own / "known_hosts"
        self.host_key = root / "etc/ssh/ssh_host_ed25519_key"
        self.sshd_config = root / "etc/ssh/sshd_config"
        self.sshd_drop_in = root / "etc/ssh/sshd_config.d" / DROP_IN
        self.ssh_config = root / "etc/ssh/ssh_config"
        self.ssh_drop_in = root / "etc/ssh/ssh_config.d" / DROP_IN
        # Held while the node is worked on.
        self.lock = root / "run/baremetal-mpi-roce-ssh.lock"
        # There from before sshd's files change until sshd has read them.
        self.reload_pending = root / "var/lib/baremetal-mpi-roce/ssh-reload-pending"


def sshd_text(places: Places, user: str, host_key: str = "") -> str:
    """sshd's drop-in. `host_key` is named only where the operator's own list leaves it out."""
    lines = [f"HostKey {host_key}"] if host_key else []
    lines += [
        f"HostCertificate {places.host_certificate}",
        f"Match User {user}",
        "    PubkeyAuthentication yes",
        f"    TrustedUserCAKeys {places.user_authorities}",
        f"    AuthorizedPrincipalsFile {places.principals}",
        f"    RevokedKeys {places.revoked}",
        "Match all",
    ]
    return with_header("\n".join(lines) + "\n")


def ssh_text(places: Places, user: str, patterns: Sequence[str], *, revocation: bool) -> str:
    """ssh's drop-in: the MPI user among the cluster's hosts; never asks, never accepts unseen."""
    lines = [
        f"Match localuser {user} host {','.join(patterns)}",
        f"    IdentityFile {places.user_key}",
        f"    GlobalKnownHostsFile {places.known_hosts}"
        " /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
        *([f"    RevokedHostKeys {places.revoked}"] if revocation else []),
        "    StrictHostKeyChecking yes",
        "    BatchMode yes",
        "    GSSAPIAuthentication no",
        "Match all",
    ]
    return with_header("\n".join(lines) + "\n")


def authority_lines(authorities: Iterable[str], patterns: Sequence[str]) -> str:
    """known_hosts by authority: as long for 10,000 nodes as for two."""
    hosts = ",".join(patterns)
    return with_header("".join(f"@cert-authority {hosts} {key}\n" for key in authorities))


def includes(main: str, drop_in: Path, base: Path) -> bool:
    """Whether a main configuration file reads our drop-in, for every user and host."""
    for line in main.splitlines():
        words = re.split(r"[\s=]+", line.strip(), maxsplit=1)
        keyword = words[0].lower()
        if keyword in ("match", "host"):
            return False
        if keyword == "include" and len(words) == 2:
            for pattern in words[1].split("#")[0].replace('"', " ").split():
                if fnmatch.fnmatch(str(drop_in), str(base / pattern)):
                    return True
    return False


def with_include(main: str, drop_in: Path, base: Path) -> str:
    """The main file with our drop-in included on top, where no Match or Host block governs it.

    Nothing is added where an Include of the operator or the distribution already covers it.
    """
    if includes(main, drop_in, base):
        return main
    return replace_block("", [f"Include {drop_in}"], BLOCK) + main


def without_include(main: str) -> str:
    """The main file without our block."""
    return replace_block(main, [], BLOCK) if BLOCK_BEGIN in main else main

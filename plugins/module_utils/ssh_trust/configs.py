# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The text of every file the trust needs on a node, for sshd and for ssh.

Every setting stands in a block that matches the MPI user only (and, for ssh, the cluster's hosts
only): nobody else's logins are touched, whatever the operator has set for them.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from ..dataclass import dataclass
from ..files import with_header

DROP_IN = "10-baremetal-mpi-roce.conf"
"""Before what distributions and installers put there (50-...): the first value found holds."""


@dataclass(frozen=True)
class Places:
    """Where each file is on a node. `root` is `/` but in tests."""

    root: Path = Path("/")

    @property
    def own(self) -> Path:
        """Keys and lists of ours. Not in a home directory: that may be shared between nodes."""
        return self.root / "etc/baremetal-mpi-roce/ssh"

    @property
    def user_key(self) -> Path:
        return self.own / "id_ed25519"

    @property
    def user_certificate(self) -> Path:
        return self.own / "id_ed25519-cert.pub"

    @property
    def host_certificate(self) -> Path:
        return self.own / "ssh_host_ed25519_key-cert.pub"

    @property
    def user_authorities(self) -> Path:
        return self.own / "user_ca.pub"

    @property
    def principals(self) -> Path:
        return self.own / "authorized_principals"

    @property
    def revoked(self) -> Path:
        return self.own / "revoked.krl"

    @property
    def known_hosts(self) -> Path:
        return self.own / "known_hosts"

    @property
    def sshd_config(self) -> Path:
        return self.root / "etc/ssh/sshd_config"

    @property
    def sshd_drop_in(self) -> Path:
        return self.root / "etc/ssh/sshd_config.d" / DROP_IN

    @property
    def ssh_config(self) -> Path:
        return self.root / "etc/ssh/ssh_config"

    @property
    def ssh_drop_in(self) -> Path:
        return self.root / "etc/ssh/ssh_config.d" / DROP_IN

    @property
    def host_key(self) -> Path:
        return self.root / "etc/ssh/ssh_host_ed25519_key"

    @property
    def lock(self) -> Path:
        """Held while the node is worked on."""
        return self.root / "run/baremetal-mpi-roce-ssh.lock"

    @property
    def reload_pending(self) -> Path:
        """There from before sshd's files change until sshd has read them."""
        return self.root / "var/lib/baremetal-mpi-roce/ssh-reload-pending"


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


def known_hosts_lines(hosts: Mapping[str, Sequence[str]], keys: Mapping[str, str]) -> list[str]:
    """known_hosts by node, one line each; nodes without a known key are left out."""
    return [f"{','.join(names)} {keys[name]}" for name, names in hosts.items() if keys.get(name)]


def authorized_keys_lines(user: str, hosts: Iterable[str], keys: Mapping[str, str]) -> list[str]:
    """One line for each node's key, with the same rights as a certificate gives."""
    return [f"restrict,pty {keys[name]} {user}@{name}" for name in hosts if keys.get(name)]


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


def values_of(keyword: str, main: Path, *, but: Path, base: Optional[Path] = None) -> list[str]:
    """Every value of an sshd keyword in a file and those it includes, our own drop-in left out.

    For keywords that hold for the whole daemon, so blocks do not matter. `sshd -T` cannot tell:
    it does not say which file a value is from.
    """
    try:
        text = main.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    base = base or main.parent  # relative patterns start where the main file lies
    for line in text.splitlines():
        words = re.split(r"[\s=]+", line.strip(), maxsplit=1)
        if len(words) < 2:
            continue
        if words[0].lower() == keyword.lower():
            found.append(words[1].strip().strip('"'))
        if words[0].lower() == "include":
            for pattern in words[1].replace('"', " ").split():
                for name in sorted(glob.glob(str(base / pattern))):  # noqa: PTH207 may be absolute
                    if Path(name) != but:
                        found += values_of(keyword, Path(name), but=but, base=base)
    return found


INCLUDE_BEGIN = "# BEGIN baremetal.mpi_roce ssh"
INCLUDE_END = "# END baremetal.mpi_roce ssh"


def with_include(main: str, drop_in: Path, base: Path) -> str:
    """The main file with our drop-in included on top, where no Match or Host block governs it.

    Nothing is added where an Include of the operator or the distribution already covers it.
    """
    rest = without_include(main)
    if includes(rest, drop_in, base):
        return rest
    return f"{INCLUDE_BEGIN}\nInclude {drop_in}\n{INCLUDE_END}\n{rest}"


def without_include(main: str) -> str:
    """The main file without our block."""
    lines = main.split("\n")
    if INCLUDE_BEGIN not in lines:
        return main
    start = lines.index(INCLUDE_BEGIN)
    if INCLUDE_END not in lines[start:]:
        raise ValueError(
            f"line {start + 1}: {INCLUDE_BEGIN!r} has no line {INCLUDE_END!r} after it"
        )
    return "\n".join(lines[:start] + lines[lines.index(INCLUDE_END, start) + 1 :])

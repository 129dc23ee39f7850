# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Texts of the files that the layer ssh writes: drop-ins of sshd and ssh, and known_hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.files import with_header
from .keys import HOST, KNOWN_HOSTS, OWN, PORT, REVOKED, USER, USER_CERTIFICATE, USER_KEY

CERTIFICATES = {USER: USER_CERTIFICATE, HOST: f"{OWN}/ssh_host_ed25519_key-cert.pub"}
USER_AUTHORITIES = f"{OWN}/user_ca.pub"
PRINCIPALS = f"{OWN}/authorized_principals"
DECLARED = f"{OWN}/authorized_keys"
"""Keys that the operator declared, for strict nodes. No user can write this file."""


def strict_settings(declared: bool) -> Mapping[str, str]:
    """Settings that ignore key files in home directories."""
    return {
        "AuthorizedKeysFile": DECLARED if declared else "none",
        "AuthorizedKeysCommand": "none",
        "AuthenticationMethods": "publickey",
    }


def sshd_text(user: str, host_key: str = "", strict: Mapping[str, str] = {}) -> str:
    """sshd's drop-in. `host_key` is set only if the operator's list lacks it."""
    lines = [f"HostKey {host_key}"] if host_key else []
    lines += [
        f"HostCertificate {CERTIFICATES[HOST]}",
        f"Match User {user}",
        "    PubkeyAuthentication yes",
        f"    TrustedUserCAKeys {USER_AUTHORITIES}",
        f"    AuthorizedPrincipalsFile {PRINCIPALS}",
        f"    RevokedKeys {REVOKED}",
        *(f"    {name} {value}" for name, value in strict.items()),
        "Match all",
    ]
    return with_header("\n".join(lines) + "\n")


def ssh_text(user: str, authority: Mapping[str, Any]) -> str:
    """ssh's drop-in for logins of the MPI user to hosts of the cluster.

    It permits neither prompts nor unknown hosts. The first value takes effect, so hosts with an
    unusual port come first.
    """
    lines = []
    for port, names in sorted(authority["other_ports"].items()):
        lines += [f"Match localuser {user} host {','.join(names)}", f"    Port {port}"]
    lines += [
        f"Match localuser {user} host {','.join(authority['patterns'])}",
        *([f"    Port {authority['port']}"] if authority["port"] != PORT else []),
        f"    IdentityFile {USER_KEY}",
        # An agent's keys would be offered first, and count towards MaxAuthTries.
        f"    CertificateFile {USER_CERTIFICATE}",
        "    IdentitiesOnly yes",
        f"    GlobalKnownHostsFile {KNOWN_HOSTS}"
        " /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
        f"    RevokedHostKeys {REVOKED}",
        "    StrictHostKeyChecking yes",
        "    BatchMode yes",
        "    GSSAPIAuthentication no",
        "Match all",
    ]
    return with_header("\n".join(lines) + "\n")


def authority_lines(authority: Mapping[str, Any]) -> str:
    """known_hosts with the authorities, independent of the number of nodes.

    For ports other than 22 ssh looks up `[host]:port`: sshd(8).
    """
    ports = sorted({int(port) for port in (authority["port"], *authority["other_ports"])} - {PORT})
    hosts = list(authority["patterns"])
    hosts += [f"[{pattern}]:{port}" for port in ports for pattern in authority["patterns"]]
    return with_header(
        "".join(
            f"@cert-authority {','.join(hosts)} {key}\n" for key in authority["host_authorities"]
        )
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every node gets, built once for the whole cluster, and the certificates that each one needs.

Patterns are the hosts for which the cluster's authority is trusted and its client settings hold.
They are name stems and networks, so they stay short for any number of nodes and do not change when
a node is added.

`ssh-keygen -s` needs one process for each certificate: 6 ms each, two for each node. ansible-core
depends on `cryptography`, which signs the same certificate in 0.2 ms in this process.
"""

from __future__ import annotations

import base64
import functools
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.mpi.hostfile import rail_name
from ...module_utils.ssh.keys import DAY, HOST, KINDS, USER, digest, key_of
from .authority import Authority
from .journal import Issued, Journal

try:
    from cryptography.hazmat.primitives.serialization import (
        SSHCertificateBuilder,
        SSHCertificateType,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError:
    HAS_CRYPTOGRAPHY = False
else:
    HAS_CRYPTOGRAPHY = True

BACKDATED_S = 3600
"""Certificates begin an hour ago, so that a node whose clock is a little late accepts them."""
SERIALS = 2**63 - 1
"""63 bits: some programs take serials for signed numbers."""
COMPUTE, LAUNCHER = "compute", "launcher"


class SigningError(Exception):
    """The authority's private key cannot be used, or a node's public key cannot be signed."""


@functools.cache
def private_key(path: Path) -> Any:
    """An authority's private key, read once."""
    if not HAS_CRYPTOGRAPHY:
        raise SigningError(
            "the controller's Python has no module cryptography with SSH certificates"
            " (version 40 or later): install it where ansible-core is installed"
        )
    try:
        status = path.stat()
        if status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            found = f"mode {status.st_mode & 0o777:04o} owner {status.st_uid}"
            remedy = "chmod 600" if status.st_mode & 0o077 else f"chown {os.geteuid()}"
            raise SigningError(f"{path}: {found}: others may change or read it: {remedy} {path}")
        return load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SigningError(f"{path}: cannot read it: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise SigningError(
            f"{path}: not an OpenSSH private key without passphrase: make it one with"
            " ssh-keygen -p, or name another file"
        ) from error


def sign(authority: Path, certificate: Issued, key_id: str) -> str:
    """The certificate as a line of a `-cert.pub` file."""
    signer = private_key(authority)
    public = load_ssh_public_key(certificate.key.encode())
    host = certificate.kind == HOST
    builder = (
        SSHCertificateBuilder()
        .public_key(public)  # type: ignore[arg-type]
        .serial(certificate.serial)
        .type(SSHCertificateType.HOST if host else SSHCertificateType.USER)
        .key_id(key_id.encode())
        .valid_principals([name.encode() for name in certificate.principals])
        .valid_after(certificate.valid_after)
        .valid_before(certificate.valid_before)
    )
    if not host:
        # A launcher runs commands, an operator needs a terminal; nothing may be forwarded.
        builder = builder.add_extension(b"permit-pty", b"")
        if certificate.sources:
            sources = ",".join(certificate.sources).encode()
            builder = builder.add_critical_option(b"source-address", sources)
    return f"{builder.sign(signer).public_bytes().decode('ascii')} {key_id}\n"


def issue(
    journal: Journal,
    name: str,
    kinds: Mapping[str, str],
    public_keys: Mapping[str, str],
    authority: Mapping[str, Any],
    *,
    user: str,
    host: Mapping[str, Any],
    validity_days: float,
    now: int,
) -> tuple[dict[str, str], dict[str, Issued]]:
    """Certificates of these kinds, each with its reason, for a node, and their records, by kind.

    They are in the journal before they leave. A key is text from a node: the journal and the
    revocation list get it only as one ed25519 key.
    """
    certificates, records = {}, {}
    for kind in kinds:
        key = key_of(str(public_keys.get(kind)))
        if not key or key != public_keys[kind]:
            raise SigningError(f"{name}: its {kind} key is not one ed25519 public key: not signed")
        unsigned = Issued(
            kind,
            1 + secrets.randbelow(SERIALS),
            authority["signs"],
            now + int(validity_days * DAY),
            valid_after=now - BACKDATED_S,
            key=key,
            principals=[host["principal"]] if kind == USER else list(host["names"]),
            sources=list(host["sources"]) if kind == USER else [],
            signer=digest(authority[f"{kind}_authorities"][0]),
        )
        path = Path(authority["private_keys"][kind])
        text = sign(path, unsigned, f"{user}@{name}" if kind == USER else name)
        certificates[kind] = text
        records[kind] = Issued(**{**vars(unsigned), "digest": digest(text)})
    journal.issued(name, list(records.values()), kinds)
    return certificates, records


def members(directory: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of the directory that take part, in the order of the model."""
    return [entry for entry in directory if entry["role"] in (COMPUTE, LAUNCHER)]


def names_of(entry: Mapping[str, Any], domain: str = "") -> list[str]:
    """Everything a node is called by over SSH: these are the principals of its host certificate."""
    name = str(entry["name"])
    names = [name]
    if domain and not name.endswith(f".{domain}"):
        names.append(f"{name}.{domain}")
    names.append(str(entry["management_address"]))
    names += [rail_name(name, str(rail["interface"])) for rail in entry["rails"]]
    return names


def logins_of(
    entry: Mapping[str, Any], account: str, extra_sources: Sequence[str], between_compute: bool
) -> dict[str, Any]:
    """As whom a node logs in, from which addresses, and which nodes it admits.

    A launcher admits launchers only: a compute node cannot start anything there.
    """
    own, launchers = f"{account}/{entry['role']}", f"{account}/{LAUNCHER}"
    peers = [f"{account}/{COMPUTE}"] if entry["role"] == COMPUTE and between_compute else []
    addresses = [entry["management_address"], *(rail["address"] for rail in entry["rails"])]
    return {
        "principal": own,
        "admits": [launchers, *peers],
        "sources": [*map(str, addresses), *extra_sources],
    }


def patterns_of(entries: Sequence[Mapping[str, Any]], management_prefix: int = 24) -> list[str]:
    """Host patterns (`node*`, `192.168.10.*`) that cover every name of every node.

    `management_prefix` is the length of the management network's mask: the pattern covers the
    whole network, so it does not change with its members.
    """
    octets = max(1, min(management_prefix, 24) // 8)
    found = [pattern for entry in entries for pattern in _name_patterns(str(entry["name"]))]
    for entry in entries:
        found.append(".".join([*str(entry["management_address"]).split(".")[:octets], "*"]))
    return list(dict.fromkeys(found))


def _name_patterns(name: str) -> list[str]:
    stem = re.sub(r"\d+$", "", name.split(".")[0])
    # A name that is nothing but digits has no stem to share.
    return [f"{stem}*"] if stem else [name, f"{name}-*", f"{name}.*"]


def probes_of(
    entries: Sequence[Mapping[str, Any]], between_compute: bool = True
) -> dict[str, list[dict[str, str]]]:
    """Which hosts each node has to reach to prove the trust.

    The launcher reaches every compute node. Each compute node reaches the next one in the order of
    the model, by its name and by the name of its first rail (`between_compute`): a ring, so the
    work is linear. By each of its rails it also sends a packet to the next one that has this rail.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    by_name = [{"host": str(each["name"]), "target": str(each["name"])} for each in compute]
    probes = {str(each["name"]): by_name for each in entries if each["role"] == LAUNCHER}
    for index, entry in enumerate(compute):
        neighbour = compute[(index + 1) % len(compute)]
        host = str(neighbour["name"])
        targets = [host, *(rail_name(host, str(rail["interface"])) for rail in neighbour["rails"])]
        probes[str(entry["name"])] = [{"host": host, "target": name} for name in targets[:2]]
        if not between_compute:
            probes[str(entry["name"])] = []
    rings: dict[str, list[str]] = {}
    for entry in compute:
        for rail in entry["rails"]:
            rings.setdefault(str(rail["interface"]), []).append(str(entry["name"]))
    for rail, ring in rings.items():
        for here, host in zip(ring, [*ring[1:], ring[0]]):
            if here != host:
                probe = {"host": host, "target": rail_name(host, rail), "rail": rail}
                probes[here].append(probe)
    return probes


def published(
    entries: Sequence[Mapping[str, Any]],
    authorities: Sequence[Authority],
    krl: bytes,
    management_prefix: int = 24,
) -> dict[str, Any]:
    """What every node gets: a few lines, whatever their number. The first authority signs."""
    first = authorities[0] if authorities else Authority("", {}, {})
    return {
        "patterns": patterns_of(entries, management_prefix),
        "trusted": [each.id for each in authorities],
        "signs": first.id,
        "private_keys": {kind: str(path) for kind, path in first.private.items()},
        "revoked": base64.b64encode(krl).decode("ascii"),
        **{f"{kind}_authorities": [each.public[kind] for each in authorities] for kind in KINDS},
    }

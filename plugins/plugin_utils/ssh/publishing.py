# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every node is told, built once for the whole cluster.

The patterns say for which hosts the cluster's authority is believed and its client settings hold.
They are made of name stems and networks, not of names, so that they stay short for any number of
nodes and do not change when one is added.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.mpi.hostfile import rail_name
from ...module_utils.ssh.certificates import DAY, HOST, USER, PublicKey, digest, parse_public_key
from .authority import Authority
from .journal import Issued, Journal, Node, new_serial

# Signing what a node needs, on the controller, and noting what it has shown.
# `ssh-keygen -s` gives one process, and so one identity and one list of names, to each certificate:
# 6 ms each, two for each node. ansible-core brings the `cryptography` library, which signs the same
# certificate in 0.2 ms in the process that is already running: 10,000 nodes in seconds.


try:
    from cryptography.hazmat.primitives.serialization import (
        SSHCertificateBuilder,
        SSHCertificateType,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError:  # only the controller signs; a node never needs it
    HAS_CRYPTOGRAPHY = False
else:
    HAS_CRYPTOGRAPHY = True

BACKDATED_S = 3600
"""Certificates begin an hour ago, so that a node whose clock is a little late accepts them."""


class SigningError(Exception):
    """The authority's private key cannot be used."""


@functools.cache
def private_key(path: Path) -> Any:
    """An authority's private key, read once."""
    if not HAS_CRYPTOGRAPHY:
        raise SigningError(
            "the controller's Python has no module cryptography with SSH certificates"
            " (version 40 or later): install it where ansible-core is installed"
        )
    try:
        return load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SigningError(f"{path}: cannot read it: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise SigningError(
            f"{path}: not an OpenSSH private key without passphrase: make it one with"
            " ssh-keygen -p, or name another file"
        ) from error


def sign(
    authority: Path,
    kind: str,
    key: PublicKey,
    *,
    key_id: str,
    principals: Sequence[str],
    serial: int,
    now: int,
    validity_s: int,
) -> str:
    """The certificate as a line of a `-cert.pub` file."""
    signer, public = private_key(authority), load_ssh_public_key(key.text.encode())
    builder = (
        SSHCertificateBuilder()
        .public_key(public)  # type: ignore[arg-type]
        .serial(serial)
        .type(SSHCertificateType.HOST if kind == HOST else SSHCertificateType.USER)
        .key_id(key_id.encode())
        .valid_principals([name.encode() for name in principals])
        .valid_after(now - BACKDATED_S)
        .valid_before(now + validity_s)
    )
    if kind == USER:
        # A launcher needs a command run, a person a terminal; nothing is to be forwarded.
        builder = builder.add_extension(b"permit-pty", b"")
    return f"{builder.sign(signer).public_bytes().decode('ascii')} {key_id}\n"


def issue(
    journal: Journal,
    name: str,
    kinds: Sequence[str],
    public_keys: Mapping[str, str],
    told: Mapping[str, Any],
    *,
    user: str,
    names: Sequence[str],
    validity_days: int,
    now: int,
) -> dict[str, str]:
    """Sign the certificates of these kinds for a node, by the authority that every node is told of.

    They are in the journal before they leave.
    """
    certificates, signed = {}, []
    for kind in kinds:
        serial = new_serial()
        text = certificates[kind] = sign(
            Path(told["private_keys"][kind]),
            kind,
            parse_public_key(public_keys[kind]),
            key_id=f"{user}@{name}" if kind == USER else name,
            principals=(told["principal"],) if kind == USER else names,
            serial=serial,
            now=now,
            validity_s=validity_days * DAY,
        )
        ends = now + validity_days * DAY
        signed.append(Issued(kind, serial, told["signs"], ends, digest(text)))
    journal.issued(name, signed)
    return certificates


def remember(
    journal: Journal,
    name: str,
    known: Mapping[str, Any],
    public_keys: Mapping[str, str],
    trusts: Sequence[str],
) -> None:
    """Note what a node has after a run, where that is not known already."""
    shown = {f"{kind}_key": public_keys[kind] for kind in (USER, HOST)}
    if known["shown"] != {**shown, "trusts": list(trusts)}:
        journal.shown(name, {**shown, "trusts": list(trusts)})


COMPUTE, LAUNCHER = "compute", "launcher"


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


def patterns_of(entries: Sequence[Mapping[str, Any]], management_prefix: int = 24) -> list[str]:
    """Host patterns (`node*`, `192.168.10.*`) that cover every name of every node.

    `management_prefix` is the length of the management network's mask: with it the pattern is of
    the network, and the same whoever is in it.
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


def probes_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Whom each node has to reach to prove the trust.

    The launcher reaches every compute node. Each compute node reaches the next one in the order of
    the model, by its name and by the name of its first rail: a ring, so the work is linear.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    by_name = [{"host": str(each["name"]), "target": str(each["name"])} for each in compute]
    probes = {str(each["name"]): by_name for each in entries if each["role"] == LAUNCHER}
    for index, entry in enumerate(compute):
        neighbour = compute[(index + 1) % len(compute)]
        host = str(neighbour["name"])
        targets = [host, *(rail_name(host, str(rail["interface"])) for rail in neighbour["rails"])]
        probes[str(entry["name"])] = [{"host": host, "target": name} for name in targets[:2]]
    return probes


def empty(
    mode: str,
    entries: Sequence[Mapping[str, Any]],
    principal: str,
    management_prefix: int = 24,
) -> dict[str, Any]:
    """What holds in either mode, with nothing yet to be believed."""
    return {
        "mode": mode,
        "principal": principal,
        "patterns": patterns_of(entries, management_prefix),
        "believed": [],
        "signs": "",
        "private_keys": {},
        "user_authorities": [],
        "host_authorities": [],
        "revoked": "",
        "authorized_keys": "",
        "known_hosts": "",
    }


def by_authority(told: dict[str, Any], authorities: Sequence[Authority], krl: bytes) -> None:
    """Certificates: a few lines, whatever the number of nodes. The first authority signs."""
    if authorities:
        first = authorities[0]
        told["signs"] = first.id
        told["private_keys"] = {"user": str(first.user_path), "host": str(first.host_path)}
    told["believed"] = [authority.id for authority in authorities]
    told["user_authorities"] = [authority.user.text for authority in authorities]
    told["host_authorities"] = [authority.host.text for authority in authorities]
    told["revoked"] = base64.b64encode(krl).decode("ascii")


def by_lists(
    told: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    nodes: Mapping[str, Node],
    user: str,
    domain: str,
) -> list[str]:
    """The classic files: a line for each node that was laid. Returns those that were not yet."""
    called = {str(entry["name"]): names_of(entry, domain) for entry in entries}
    laid = [name for name in called if nodes[name].laid]
    told["known_hosts"] = "\n".join(
        f"{','.join(called[name])} {nodes[name].host_key}" for name in laid
    )
    # With the same rights as a certificate gives.
    told["authorized_keys"] = "\n".join(
        f"restrict,pty {nodes[name].user_key} {user}@{name}" for name in laid
    )
    return [name for name in called if not nodes[name].laid]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every node gets, built once for the whole cluster, and the certificates that each one needs.

Patterns are the hosts for which the cluster's authority is trusted and its client settings hold.
They are name stems and networks, so they stay short for any number of nodes and do not change when
a node is added.

ssh-keygen signs, by a key in a file or in the operator's ssh-agent, or a command of the operator
does. Whatever signed, the certificate is read back and compared with what was asked for.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.commands import CommandError, run
from ...module_utils.core.text import one_line
from ...module_utils.names import rail_name
from ...module_utils.ssh.keys import DAY, HOST, KINDS, PORT, USER, digest, key_of
from .authority import Authority, ssh_keygen
from .journal import Issued, Journal, SerialError

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        SSHCertificate,
        load_ssh_public_identity,
    )
except ImportError:
    HAS_CRYPTOGRAPHY = False
else:
    HAS_CRYPTOGRAPHY = True

BACKDATED_S = 3600
"""Certificates begin an hour ago, so that a node whose clock is a little late accepts them."""
SERIALS = 2**63 - 1
"""63 bits: some programs take serials for signed numbers."""
EXTENSIONS: Mapping[str, Mapping[str, str]] = {USER: {"permit-pty": ""}, HOST: {}}
"""A launcher runs commands, an operator needs a terminal; nothing may be forwarded."""
SIGNER_S = 60.0
COMPUTE, LAUNCHER = "compute", "launcher"


class SigningError(Exception):
    """The authority's private key cannot be used, or a node's public key cannot be signed."""


def private_key(path: Path, group: Optional[int]) -> bytes:
    """The file of a private key that its owner alone, or the `group` of operators, may read."""
    try:
        status = path.stat()
        shared = group is not None and status.st_gid == group
        wrong = status.st_mode & (0o007 if shared else 0o077)
        if wrong or (status.st_uid not in (0, os.geteuid()) and not shared):
            found = f"mode {status.st_mode & 0o777:04o} owner {status.st_uid}"
            remedy = "chmod 600" if wrong else f"chown {os.geteuid()}"
            raise SigningError(f"{path}: {found}: others may change or read it: {remedy} {path}")
        return path.read_bytes()
    except OSError as error:
        raise SigningError(f"{path}: cannot read it: {error.strerror}") from error


def _by_openssh(journal: Journal, path: Path, asked: Issued, key_id: str, passphrase: str) -> str:
    """Sign by a private key at `path`, or by that of the agent where `path` is a public key.

    ssh-keygen gets the private key in memory: of a file it refuses what a group may read.
    """
    with (
        tempfile.TemporaryDirectory(dir=journal.directory, prefix=".sign-") as scratch,
        open(os.memfd_create("ca"), "wb") as memory,
    ):
        agent, ca = path.suffix == ".pub", str(path)
        if not agent:
            os.fchmod(memory.fileno(), 0o600)
            memory.write(private_key(path, journal.group()))
            memory.flush()
            ca = f"/dev/fd/{memory.fileno()}"
        times = (asked.valid_after, asked.valid_before)
        valid = ":".join(time.strftime("%Y%m%d%H%M%S", time.gmtime(each)) for each in times)
        options = [f"source-address={','.join(asked.sources)}"] if asked.sources else []
        options = ["clear", *EXTENSIONS[asked.kind], *options] if asked.kind == USER else []
        key = Path(scratch) / "key.pub"
        key.write_text(f"{asked.key} {key_id}\n", "ascii")
        argv = ["-Us" if agent else "-s", ca, "-I", key_id, "-n", ",".join(asked.principals)]
        argv += ["-z", str(asked.serial), "-V", valid, *(f"-O{each}" for each in options)]
        argv += ["-h"] if asked.kind == HOST else []
        argv.append(str(key))
        handles = [memory.fileno()]
        done = ssh_keygen(argv, Path(scratch), passphrase, check=False, pass_fds=handles)
        if done.rc == 0:
            return (Path(scratch) / "key-cert.pub").read_text("ascii")
    why = one_line(done.stderr.replace(ca, str(path)))
    if agent:
        there = os.environ.get("SSH_AUTH_SOCK", "not set")
        raise SigningError(
            f"{path}: {why}: the private half of {asked.signer} has to be in the ssh-agent"
            f" (SSH_AUTH_SOCK: {there}): ssh-add its file, or ssh-add -s the library of its token"
        )
    raise SigningError(
        f"{path}: {why}: not a private key of OpenSSH, or not with this passphrase: set"
        f" ssh_trust_ca_passphrase; or ssh-add {path}, and name {path}.pub"
    )


def _by_command(command: Sequence[str], asked: Issued, key_id: str, signing_key: str) -> str:
    """Have the operator's command sign. docs/ssh-trust.md has what it reads and prints."""
    request = {
        "kind": asked.kind,
        "public_key": asked.key,
        "key_id": key_id,
        "principals": list(asked.principals),
        "serial": asked.serial,
        "valid_after": asked.valid_after,
        "valid_before": asked.valid_before,
        "source_addresses": list(asked.sources),
        "extensions": EXTENSIONS[asked.kind],
        "signing_key": signing_key,
    }
    try:
        return run(command, stdin=json.dumps(request) + "\n", timeout_s=SIGNER_S).stdout
    except CommandError as error:
        raise SigningError(f"ssh_trust_signer: {one_line(str(error))}") from error


def _checked(text: str, asked: Issued, key_id: str) -> tuple[str, Issued]:
    """The certificate as a line of a `-cert.pub` file, and its record, if it is what was asked."""
    if not HAS_CRYPTOGRAPHY:
        raise SigningError(
            "the controller's Python has no module cryptography with SSH certificates"
            " (version 40 or later): install it where ansible-core is installed"
        )

    def line(key: Any) -> str:
        return str(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "ascii")

    try:
        (one,) = text.strip().splitlines()
        words = one.split()[:2]
        found = load_ssh_public_identity(" ".join(words).encode())
        if not isinstance(found, SSHCertificate):
            raise ValueError("a public key")
        found.verify_cert_signature()
        names = sorted(name.decode() for name in found.valid_principals)
        critical = {b"source-address": ",".join(asked.sources).encode()} if asked.sources else {}
        extensions = {key.encode(): each.encode() for key, each in EXTENSIONS[asked.kind].items()}
        compared = {
            "type": (asked.kind, found.type.name.lower()),
            "key": (digest(asked.key), digest(line(found.public_key()))),
            "signing key": (asked.signer, digest(line(found.signature_key()))),
            "principals": (sorted(asked.principals), names),
            "critical options": (critical, dict(found.critical_options)),
            "extensions": (extensions, dict(found.extensions)),
        }
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        shown = one_line(text)[:200] or "nothing"
        why = one_line(str(error)) or "its signature is wrong"
        raise SigningError(f"no certificate of one line ({why}): {shown}") from error
    begin, end = found.valid_after, found.valid_before
    wrong = [f"{what}: wanted {a}, found {b}" for what, (a, b) in compared.items() if a != b]
    if not asked.valid_after <= begin < end <= asked.valid_before:
        within = f"{asked.valid_after} to {asked.valid_before}"
        wrong.append(f"validity: wanted within {within}, found {begin} to {end}")
    # The type of an RSA key that signs is there once, of its signature only by SHA-1.
    if base64.b64decode(words[1]).count(b"\0\0\0\7ssh-rsa") > 1:
        wrong.append("signature: wanted rsa-sha2-256 or -512, found ssh-rsa, which sshd refuses")
    if not found.serial:
        wrong.append("serial: wanted one of its own, by which it can be revoked, found 0")
    if wrong:
        raise SigningError(f"not the certificate that was asked for: {one_line('; '.join(wrong))}")
    kept = f"{words[0]} {words[1]} {key_id}\n"
    return kept, replace(
        asked, serial=found.serial, valid_after=begin, valid_before=end, digest=digest(kept)
    )


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
    passphrase: str = "",
    refused: Sequence[str] = (),
) -> tuple[dict[str, str], dict[str, Issued]]:
    """Certificates of these kinds, each with its reason, for a node, and their records, by kind.

    They are in the journal before they leave. A key is text from a node: the journal and the
    revocation list get it only as one ed25519 key. None of `refused` is signed: a node that shows
    the key of one that was revoked would have it admitted again.
    """
    certificates: dict[str, str] = {}
    records: dict[str, Issued] = {}
    for kind in kinds:
        key = key_of(str(public_keys.get(kind)))
        if not key or key != public_keys[kind]:
            raise SigningError(f"{name}: its {kind} key is not one ed25519 public key: not signed")
        if key in refused:
            raise SigningError(f"{name}: its {kind} key {digest(key)} was revoked: not signed")
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
        path = path.readlink() if path.is_symlink() else path
        key_id = f"{user}@{name}" if kind == USER else name
        if authority["signer"] and path.suffix == ".pub":
            signing_key = authority[f"{kind}_authorities"][0]
            text = _by_command(authority["signer"], unsigned, key_id, signing_key)
        else:
            text = _by_openssh(journal, path, unsigned, key_id, passphrase)
        try:
            certificates[kind], records[kind] = _checked(text, unsigned, key_id)
        except SigningError as error:
            raise SigningError(f"the {kind} certificate of {name} is refused: {error}") from error
    try:
        journal.issued(name, list(records.values()), kinds)
    except SerialError as error:
        raise SigningError(f"the certificates of {name} are refused: {error}") from error
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

    A launcher admits launchers only: a compute node cannot start anything there. Every node admits
    itself, by its addresses: so it proves what a session has.
    """
    own, launchers = f"{account}/{entry['role']}", f"{account}/{LAUNCHER}"
    peers = [f"{account}/{COMPUTE}"] if entry["role"] == COMPUTE and between_compute else []
    addresses = [entry["management_address"], *(rail["address"] for rail in entry["rails"])]
    if entry["role"] == COMPUTE and not between_compute:
        peers = [f'from="{",".join(map(str, addresses))}" {own}']
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
) -> dict[str, list[dict[str, Any]]]:
    """Which hosts each node has to reach to prove the trust.

    The launcher reaches every compute node. Each compute node reaches the next one in the order of
    the model, by its name and by the name of its first rail (`between_compute`): a ring, so the
    work is linear. By each of its rails it also sends packets to the next one that has this rail;
    the one after that is a witness, which tells where packets are lost.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    by_name = [{"host": str(each["name"]), "target": str(each["name"])} for each in compute]
    probes: dict[str, list[dict[str, Any]]] = {
        str(each["name"]): by_name for each in entries if each["role"] == LAUNCHER
    }
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
        for index, here in enumerate(ring):
            host, third = (ring[(index + step) % len(ring)] for step in (1, 2))
            if here != host:
                probe = {"host": host, "target": rail_name(host, rail), "rail": rail}
                if third != here:
                    probe["witness"] = rail_name(third, rail)
                probes[here].append(probe)
    ports = {str(entry["name"]): port_of(entry) for entry in entries}
    for login in (each for of in probes.values() for each in of if "rail" not in each):
        if ports[login["host"]] != PORT:
            login["port"] = ports[login["host"]]
    return probes


def ports_of(entries: Sequence[Mapping[str, Any]], domain: str = "") -> dict[str, Any]:
    """The port of sshd that most hosts have, and the names of hosts with another one, by port."""
    counted = Counter(port_of(entry) for entry in entries)
    most = min(counted, key=lambda port: (-counted[port], port), default=PORT)
    others: dict[str, list[str]] = {}
    for entry in entries:
        if port_of(entry) != most:
            others.setdefault(str(port_of(entry)), []).extend(names_of(entry, domain))
    return {"port": most, "other_ports": others}


def port_of(entry: Mapping[str, Any]) -> int:
    return int(entry.get("ssh_port", PORT))


def addresses_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """The host's own addresses by network, by which those that it logs in to call back."""
    rails = {str(rail["interface"]): str(rail["address"]) for rail in entry["rails"]}
    return {"management": str(entry["management_address"]), **rails}


def published(
    entries: Sequence[Mapping[str, Any]],
    authorities: Sequence[Authority],
    krl: bytes,
    management_prefix: int = 24,
    signer: Sequence[str] = (),
    domain: str = "",
) -> dict[str, Any]:
    """What every node gets: a few lines, whatever their number. The first authority signs."""
    first = authorities[0] if authorities else Authority("", {}, {})
    return {
        "patterns": patterns_of(entries, management_prefix),
        **ports_of(entries, domain),
        "trusted": [each.id for each in authorities],
        "signs": first.id,
        "private_keys": {kind: str(path) for kind, path in first.private.items()},
        "signer": list(signer),
        "revoked": base64.b64encode(krl).decode("ascii"),
        **{f"{kind}_authorities": [each.public[kind] for each in authorities] for kind in KINDS},
    }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign certificates, and compare each with its request before it leaves the controller.

Either ssh-keygen signs, with a key file or a key in the operator's ssh-agent, or the operator's own
command (`ssh_trust_signer`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.commands import CommandError, run
from ...module_utils.core.messages import message
from ...module_utils.core.text import one_line
from ...module_utils.ssh.keys import DAY, HOST, USER, digest, key_of
from .authority import ssh_keygen, supplied_key
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
"""Certificates become valid an hour before signing, so that nodes whose clock is slow accept
them.
"""
SERIALS = 2**63 - 1
"""63 bits: some programs read serials as signed numbers."""
EXTENSIONS: Mapping[str, Mapping[str, str]] = {USER: {"permit-pty": ""}, HOST: {}}
"""Commands and terminals are permitted, forwarding is not."""
SIGNER_S = 60.0
FILES_PER_CALL = 250
COMPUTE, LAUNCHER = "compute", "launcher"


class SigningError(Exception):
    """The authority's private key is unusable, or the request or the certificate is refused."""


def private_key(path: Path, group: Optional[int]) -> bytes:
    """Read a private key. Raises SigningError if others than the owner or `group` may read it."""
    try:
        status = path.stat()
        shared = group is not None and status.st_gid == group
        wrong = status.st_mode & (0o007 if shared else 0o077)
        if wrong or (status.st_uid not in (0, os.geteuid()) and not shared):
            actual = f"mode {status.st_mode & 0o777:04o} owner {status.st_uid}"
            remedy = "chmod 600" if wrong else f"chown {os.geteuid()}"
            raise SigningError(f"{path}: {actual}: others can read or change it: {remedy} {path}")
        return path.read_bytes()
    except OSError as error:
        raise SigningError(f"{path}: cannot read it: {error.strerror}") from error


@contextlib.contextmanager
def _opened(path: Path, group: Optional[int]) -> Iterator[tuple[str, Sequence[int]]]:
    """What names a private key for ssh-keygen, and descriptors to pass: the key itself, in memory
    because ssh-keygen refuses files that a group may read, or a public key that the agent has."""
    with open(os.memfd_create("ca"), "wb") as memory:
        if path.suffix == ".pub":
            yield str(path), ()
            return
        os.fchmod(memory.fileno(), 0o600)
        memory.write(private_key(path, group))
        memory.flush()
        yield f"/dev/fd/{memory.fileno()}", (memory.fileno(),)


def _by_openssh(journal: Journal, path: Path, asked: Issued, key_id: str, passphrase: str) -> str:
    """Sign with the private key at `path`, or with the agent if `path` is a public key."""
    with (
        tempfile.TemporaryDirectory(dir=journal.directory, prefix=".sign-") as scratch,
        _opened(path, journal.group()) as (ca, handles),
    ):
        agent = not handles
        times = (asked.valid_after, asked.valid_before)
        valid = ":".join(time.strftime("%Y%m%d%H%M%S", time.gmtime(second)) for second in times)
        options = [f"source-address={','.join(asked.sources)}"] if asked.sources else []
        options = ["clear", *EXTENSIONS[asked.kind], *options] if asked.kind == USER else []
        key = Path(scratch) / "key.pub"
        key.write_text(f"{asked.key} {key_id}\n", "ascii")
        argv = ["-Us" if agent else "-s", ca, "-I", key_id, "-n", ",".join(asked.principals)]
        argv += ["-z", str(asked.serial), "-V", valid, *(f"-O{option}" for option in options)]
        argv += ["-h"] if asked.kind == HOST else []
        argv.append(str(key))
        done = ssh_keygen(argv, Path(scratch), passphrase, check=False, pass_fds=handles)
        if done.rc == 0:
            return (Path(scratch) / "key-cert.pub").read_text("ascii")
    raise _unusable(path, agent, done.stderr.replace(ca, str(path)), asked.signer)


def file_signatures(
    directory: Path,
    group: Optional[int],
    key: Path,
    namespace: str,
    texts: Sequence[str],
    passphrase: str = "",
) -> list[str]:
    """Signatures of texts with a private key, or a key of the agent if `key` is a public key, for
    `ssh-keygen -Y verify`. `directory`: for the files meanwhile.

    Raises SigningError. A namespace prevents a signature from being taken for another purpose
    (OpenSSH, PROTOCOL.sshsig).
    """
    key = key.readlink() if key.is_symlink() else key
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix=".sign-") as scratch,
        _opened(key, group) as (ca, handles),
    ):
        files = [Path(scratch) / f"file{number}" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, "utf-8")
        for first in range(0, len(files), FILES_PER_CALL):
            argv = ["-Y", "sign", "-f", ca, "-n", namespace]
            argv += [str(file) for file in files[first : first + FILES_PER_CALL]]
            done = ssh_keygen(argv, Path(scratch), passphrase, check=False, pass_fds=handles)
            if done.rc != 0:
                stderr = done.stderr.replace(ca, str(key))
                raise _unusable(key, not handles, stderr, digest(supplied_key(key)))
        return [Path(f"{file}.sig").read_text("ascii") for file in files]


def _unusable(path: Path, agent: bool, stderr: str, signer: str) -> SigningError:
    reason = one_line(stderr)
    if agent:
        return SigningError(
            message(
                "ssh_key_not_in_agent",
                "{path}: {reason}: the ssh-agent must hold the private half of {key}"
                " (SSH_AUTH_SOCK: {socket}): ssh-add its file, or ssh-add -s the library of its"
                " token",
                path=path,
                reason=reason,
                key=signer,
                socket=os.environ.get("SSH_AUTH_SOCK", "not set"),
            )
        )
    return SigningError(
        message(
            "ssh_ca_unusable",
            "{path}: {reason}: not an OpenSSH private key, or another passphrase: set"
            " ssh_trust_ca_passphrase; or ssh-add {path}, and name {path}.pub",
            path=path,
            reason=reason,
        )
    )


def _by_command(command: Sequence[str], asked: Issued, key_id: str, signing_key: str) -> str:
    """Sign with the operator's command; docs/ssh-trust.md describes its input and output."""
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
    """Parse a certificate and compare it with the request.

    Returns the line of a `-cert.pub` file and its record. Raises SigningError, listing every
    deviation.
    """
    if not HAS_CRYPTOGRAPHY:
        raise SigningError(
            "the controller's Python lacks the module cryptography 40 or later (SSH certificates):"
            " install it where ansible-core is installed"
        )

    def line(key: Any) -> str:
        return str(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "ascii")

    try:
        (row,) = text.strip().splitlines()
        words = row.split()[:2]
        certificate = load_ssh_public_identity(" ".join(words).encode())
        if not isinstance(certificate, SSHCertificate):
            raise ValueError("a public key")
        certificate.verify_cert_signature()
        names = sorted(name.decode() for name in certificate.valid_principals)
        critical = {b"source-address": ",".join(asked.sources).encode()} if asked.sources else {}
        extensions = {key.encode(): value.encode() for key, value in EXTENSIONS[asked.kind].items()}
        compared = {
            "type": (asked.kind, certificate.type.name.lower()),
            "key": (digest(asked.key), digest(line(certificate.public_key()))),
            "signing key": (asked.signer, digest(line(certificate.signature_key()))),
            "principals": (sorted(asked.principals), names),
            "critical options": (critical, dict(certificate.critical_options)),
            "extensions": (extensions, dict(certificate.extensions)),
        }
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        shown = one_line(text)[:200] or "nothing"
        reason = one_line(str(error)) or "its signature is wrong"
        raise SigningError(f"no certificate of one line ({reason}): {shown}") from error
    begin, end = certificate.valid_after, certificate.valid_before
    wrong = [
        f"{field}: wanted {desired}, found {actual}"
        for field, (desired, actual) in compared.items()
        if desired != actual
    ]
    if not asked.valid_after <= begin < end <= asked.valid_before:
        within = f"{asked.valid_after} to {asked.valid_before}"
        wrong.append(f"validity: wanted within {within}, found {begin} to {end}")
    if not certificate.serial:
        wrong.append("serial: wanted a unique one, which revocation needs, found 0")
    if wrong:
        raise SigningError(
            f"the certificate differs from the request: {one_line('; '.join(wrong))}"
        )
    signed = f"{words[0]} {words[1]} {key_id}\n"
    return signed, replace(
        asked, serial=certificate.serial, valid_after=begin, valid_before=end, digest=digest(signed)
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
    """Sign certificates for a node; returns them and their records by kind.

    `kinds` maps each kind to the reason for the journal, which records certificates before they
    leave the controller. Raises SigningError for a key that is not exactly one ed25519 key, since
    a node sends it, and for a key in `refused`: a revoked node could otherwise return as another.
    """
    certificates, records = {}, {}
    for kind in kinds:
        key = key_of(str(public_keys.get(kind)))
        if not key or key != public_keys[kind]:
            raise SigningError(
                message(
                    "ssh_key_invalid", "{name}: not one ed25519 {kind} key", name=name, kind=kind
                )
            )
        if key in refused:
            raise SigningError(
                message(
                    "ssh_key_revoked",
                    "{name}: {kind} key {key} was revoked",
                    name=name,
                    kind=kind,
                    key=digest(key),
                )
            )
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

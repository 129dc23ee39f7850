# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On a node: replace its SSH certificates by published ones, which may only be valid for longer.

The controller signs for the key that the node already has. A certificate is installed if it has the
key, names, addresses and permissions of the present one, and one of the authorities that the node
trusts has signed it. Everything else is the layer ssh's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils.core.commands import CommandError, Runner, run
from ...module_utils.core.files import write_atomically
from ...module_utils.core.text import one_line
from ...module_utils.ssh.keys import HOST, KNOWN_HOSTS, USER, digest
from ...module_utils.ssh.sshd import Sshd
from ...module_utils.ssh.texts import CERTIFICATES, USER_AUTHORITIES
from ...module_utils.ssh.trust import SSHD_CONFIG
from .snapshot import SnapshotError

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        SSHCertificate,
        load_ssh_public_identity,
    )
except ImportError as error:
    CRYPTOGRAPHY_MISSING: Any = error
else:
    CRYPTOGRAPHY_MISSING = None


@dataclass(frozen=True)
class Renewed:
    kind: str
    path: Path
    before: str
    after: str


def _certificate(line: str) -> Any:
    made = load_ssh_public_identity(" ".join(line.split()[:2]).encode())
    if not isinstance(made, SSHCertificate):
        raise ValueError("not a certificate")
    return made


def _properties(certificate: Any) -> dict[str, Any]:
    return {
        "kind": certificate.type,
        "key": _line(certificate.public_key()),
        "names": sorted(certificate.valid_principals),
        "addresses": dict(certificate.critical_options),
        "permissions": dict(certificate.extensions),
    }


def _line(key: Any) -> str:
    return str(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "ascii")


def _trusted(root: Path, kind: str) -> set[str]:
    """Fingerprints of the authorities that this node trusts for a kind of certificate."""
    if kind == USER:
        lines = (root / USER_AUTHORITIES.lstrip("/")).read_text("ascii").splitlines()
        return {digest(line) for line in lines} - {""}
    rows = (root / KNOWN_HOSTS.lstrip("/")).read_text("ascii").splitlines()
    keys = [" ".join(row.split()[2:4]) for row in rows if row.startswith("@cert-authority ")]
    return {digest(key) for key in keys} - {""}


def plan(certificates: Mapping[str, str], now: int, root: Path = Path("/")) -> list[Renewed]:
    """What to replace. Raises SnapshotError for a certificate that this node must not have."""
    if CRYPTOGRAPHY_MISSING is not None:
        raise SnapshotError(f"the Python of ansible-playbook lacks {CRYPTOGRAPHY_MISSING.name}")
    found = []
    for kind, after in certificates.items():
        path = root / CERTIFICATES[kind].lstrip("/")
        try:
            before = path.read_text("ascii")
            if digest(before) == digest(after):
                continue
            old, new = _certificate(before), _certificate(after)
            new.verify_cert_signature()
            wrong = [
                name for name, value in _properties(old).items() if _properties(new)[name] != value
            ]
            if digest(_line(new.signature_key())) not in _trusted(root, kind):
                wrong.append("authority")
            if not new.valid_after <= now < new.valid_before:
                wrong.append("time")
        except (OSError, ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
            reason = one_line(str(error)) or "the signature is wrong"
            raise SnapshotError(
                f"the {kind} certificate of the snapshot, for {path}: {reason}: run the layer ssh"
            ) from error
        if wrong:
            raise SnapshotError(
                f"the {kind} certificate of the snapshot differs in {', '.join(wrong)} from {path}:"
                " run the layer ssh on this node"
            )
        if new.valid_before > old.valid_before:  # otherwise the layer ssh was here since
            found.append(Renewed(kind, path, before, after))
    return found


def install(renewed: list[Renewed], root: Path = Path("/"), program: Runner = run) -> None:
    """Write the files; sshd reads its own again, or the former one is restored. Raises OSError and
    SnapshotError."""
    for each in renewed:
        status = each.path.stat()
        write_atomically(each.path, each.after, 0o644, status.st_uid, status.st_gid)
    hosts = [each for each in renewed if each.kind == HOST]
    if not hosts:
        return
    daemon = Sshd(root / SSHD_CONFIG.lstrip("/"), program)
    try:
        fault = daemon.fault()
        if not fault:
            daemon.reload()
    except CommandError as error:
        fault = str(error)
    if fault:
        for each in hosts:
            status = each.path.stat()
            write_atomically(each.path, each.before, 0o644, status.st_uid, status.st_gid)
        raise SnapshotError(f"sshd refuses its new certificate; the former is back: {fault}")

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller does for one node: sign what it needs, and remember it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ...module_utils.dataclass import dataclass
from ...module_utils.ssh_trust.certificates import DAY, KINDS, USER, digest
from ...module_utils.ssh_trust.wire import parse_public_key
from .journal import Issued
from .ledger import Ledger, Node, new_serial
from .signing import Request, Signer


@dataclass(frozen=True)
class Signing:
    """The authority that signs: its name, and where its private keys lie on the controller."""

    authority: str
    paths: Mapping[str, Path]
    believed: tuple[str, ...]
    """Names of all authorities a node believes once it has been told."""


def digests(node: Optional[Node]) -> dict[str, str]:
    """The digests of the certificates a node has to have."""
    latest = [node.latest(kind) for kind in KINDS] if node else []
    return {each.kind: each.digest for each in latest if each}


def issue(
    ledger: Ledger,
    name: str,
    kinds: Sequence[str],
    public_keys: Mapping[str, str],
    signing: Signing,
    *,
    user: str,
    principal: str,
    names: Sequence[str],
    validity_days: int,
    now: int,
    signers: Optional[dict[Path, Signer]] = None,
) -> dict[str, str]:
    """Sign the certificates of these kinds for a node.

    They are in ledger and journal before they leave, so that all that was ever handed out can be
    revoked.
    """
    signers = {} if signers is None else signers
    node = ledger.read(name) or Node(name)
    node.forget_expired(now)
    certificates, signed = {}, []
    for kind in kinds:
        request = Request(
            kind=kind,
            key=parse_public_key(public_keys[kind]),
            key_id=f"{user}@{name}" if kind == USER else name,
            principals=(principal,) if kind == USER else tuple(names),
            serial=new_serial(),
            now=now,
            validity_s=validity_days * DAY,
        )
        path = signing.paths[kind]
        if path not in signers:
            signers[path] = Signer(path)
        text = certificates[kind] = signers[path].sign(request)
        ends = now + request.validity_s
        signed.append(Issued(kind, request.serial, signing.authority, ends, digest(text)))
    node.issued += signed
    ledger.write(node)
    ledger.journal.issued({name: signed})
    return certificates


def remember(
    ledger: Ledger, name: str, public_keys: Mapping[str, str], believed: Sequence[str], now: int
) -> bool:
    """Note what a node has, after it has been told; whether anything of it was new."""
    node = ledger.read(name) or Node(name)
    node.forget_expired(now)
    node.user_key = public_keys.get("user", node.user_key)
    node.host_key = public_keys.get("host", node.host_key)
    node.trusts = list(believed)
    return ledger.write(node)


def signing_of(told: Mapping[str, Any]) -> Signing:
    """From the result of the authority's action."""
    return Signing(
        str(told["signs"]),
        {kind: Path(str(path)) for kind, path in told["private_keys"].items()},
        tuple(told["believed"]),
    )

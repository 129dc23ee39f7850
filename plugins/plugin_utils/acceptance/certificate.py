# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate of an acceptance: a JSON file, its signature, and what verifies it.

The signature is OpenSSH's (PROTOCOL.sshsig), by the user key of the cluster's SSH authority.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE
from ...module_utils.core.commands import CommandError
from ...module_utils.ssh.keys import USER
from ..answers import VERSION, finite, mapping
from ..answers import checks as checks_of
from ..report.reports import save
from ..ssh.authority import AuthorityStore
from ..ssh.journal import Journal
from ..ssh.rotation import AuthorityError
from ..ssh.signing import SigningError, file_signature

SCHEMA = 1
NAMESPACE = "baremetal.mpi_roce.acceptance"
UNSIGNED = "unsigned"
ALLOWED = "allowed_signers"
PASSED, INCOMPLETE = "passed", "incomplete"
MAX_RAILS = 64
MAX_REPORT_BYTES = 64 << 20
PRODUCTS = "burn_products"
BURNED, COMPARED = "__gpu_burn_burned", "__gpu_burn_compared"
"""Variables that the role gpu_burn registers."""
INCASTS = "__rdma_verify_driven", "__rdma_verify_collected"
"""Variables that the incasts of the role rdma_verify register."""


@dataclass(frozen=True)
class Signer:
    """The SSH authority of the cluster."""

    cluster: str
    state_directory: Path
    """Directory of the authority (ssh_trust_state_directory)."""
    passphrase: str = ""

    @property
    def identity(self) -> str:
        return f"acceptance@{self.cluster}"

    def sign(self, text: str) -> tuple[str, str]:
        """Signature of a text, and the line of allowed_signers that verifies it. Raises
        SigningError, which says why it cannot."""
        journal = Journal(self.state_directory)
        store = AuthorityStore(journal, self.passphrase)
        try:
            name = store.rotation().current if self.state_directory.is_dir() else ""
            if not name:
                raise SigningError(
                    f"no SSH authority in {self.state_directory}: run --tags ssh, or set"
                    " ssh_trust_state_directory"
                )
            authority = store.load(name)
            signature = file_signature(journal, authority, NAMESPACE, text, self.passphrase)
        except (AuthorityError, CommandError, OSError) as error:
            raise SigningError(str(error)) from error
        key = authority.public[USER]
        return signature, f'{self.identity} namespaces="{NAMESPACE}" {key}\n'


def command(path: Path, identity: str) -> str:
    """The command that verifies a certificate."""
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(path.with_name(ALLOWED)), "-I", identity]
    argv += ["-n", NAMESPACE, "-s", f"{path}.sig"]
    return f"{shlex.join(argv)} < {shlex.quote(str(path))}"


def write(directory: Path, found: Mapping[str, Any], signer: Signer) -> tuple[Path, str]:
    """Write the certificate and, if possible, its signature; returns its path, and why it is not
    signed. Raises OSError."""
    directory = directory.absolute()
    made = time.gmtime()
    path = directory / f"acceptance-{time.strftime('%Y%m%dT%H%M%SZ', made)}.json"
    content = {"schema": SCHEMA, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", made), **found}
    signature = reason = allowed = ""
    try:
        # The file says how it is signed, so a signature is only known to be possible by making one.
        text = _text({**content, "signature": {"namespace": NAMESPACE, "by": signer.identity}})
        signature, allowed = signer.sign(text)
    except SigningError as error:
        reason = str(error)
        text = _text({**content, "signature": UNSIGNED, "unsigned_because": reason})
    if signature:
        save(directory / ALLOWED, allowed)
        save(Path(f"{path}.sig"), signature)
    save(path, text)
    save(directory / "acceptance-latest.json", text)
    return path, reason


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(finite(content), indent=1) + "\n"


def versions(looked: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Nodes by version, by what has it: `{kernel: {6.8.0: [node01, ...]}, "firmware rail0": ...}`.
    Versions come from nodes."""
    found: dict[str, dict[str, list[str]]] = {}
    for node, result in looked.items():
        given = mapping(mapping(result.get("found")).get("versions"))
        values = {"kernel": given.get("kernel"), "gpu_driver": given.get("gpu_driver")}
        firmware = list(mapping(given.get("firmware")).items())[:MAX_RAILS]
        values.update({f"firmware {VERSION.known(rail)}": version for rail, version in firmware})
        for what, version in values.items():
            if VERSION.known(version):
                found.setdefault(what, {}).setdefault(str(version), []).append(node)
    return found


def latest(directory: Path, layer: str) -> dict[str, Any]:
    """The newest report of a layer; empty if there is none."""
    path = directory / f"{layer}-latest.json"
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return {}
        return dict(mapping(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError):
        return {}


def storage(directory: Path) -> dict[str, Any]:
    """Figures of the newest run of the layer storage, with its date, without those of each host;
    empty if there is none."""
    report = latest(directory, "storage")
    try:
        figures = {
            name: {key: value for key, value in found.items() if key != "by_host"}
            for name, found in report["filesystems"].items()
        }
        return {"made": report["made"], "filesystems": figures} if figures else {}
    except (LookupError, TypeError, AttributeError):
        return {}


def burned(
    directory: Path, results: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]], set[str]]:
    """Figures of the GPUs, the failed checks of nodes, and the nodes whose products were checked.
    `results` are variables of each node."""
    made: list[dict[str, Any]] = []
    nodes: set[str] = set()
    for node, variables in results.items():
        own = mapping(mapping(variables.get(COMPARED)).get("by_host")).get(node) or []
        found = [*checks_of(mapping(variables.get(BURNED)).get("checks") or []), *checks_of(own)]
        own = [check for check in found if check["status"] != NOT_APPLICABLE]
        made += _of(node, own)
        nodes |= {node for check in own if check["name"] == PRODUCTS}
    if not made:
        return {}, [], nodes
    report = latest(directory, "burn")
    return (
        {"made": report.get("made"), "gpus": report.get("gpus"), "checks": len(made)},
        [check for check in made if check["status"] == FAILED],
        nodes,
    )


def congested(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The failed checks of incasts. `results` are variables of each node."""
    return [
        check
        for node, variables in results.items()
        for name in INCASTS
        for check in _of(node, checks_of(mapping(variables.get(name)).get("checks") or []))
        if check["status"] == FAILED
    ]


def _of(node: str, checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**check, "subject": f"{node} {check['subject']}".strip()} for check in checks]


def verdict_of(checks: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> str:
    if any(check["status"] == FAILED for check in checks):
        return FAILED
    return INCOMPLETE if any(not each.get("partial") for each in missing) else PASSED

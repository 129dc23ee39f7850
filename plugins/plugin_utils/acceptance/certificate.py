# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate of an acceptance: a JSON file, its signature, and what verifies it.

The user key of the cluster's SSH authority signs it.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE
from ..answers import VERSION, finite, mapping
from ..answers import checks as checks_of
from ..report.reports import save
from ..ssh.signer import NAMESPACES, NoAuthorityError, Signer

SCHEMA = 1
PURPOSE = "acceptance"
NAMESPACE = f"{NAMESPACES}.{PURPOSE}"
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
STORED = "__shared_storage_write", "__shared_storage_read", "__shared_storage_verdict"
"""Variables that the role shared_storage registers where hosts write and read."""
PARTS = {
    "burn_diag": "diagnostics of GPUs",
    "burn_copies": "copies between GPUs and hosts",
    "burn_nccl": "NCCL within nodes",
}
"""Parts of the load of GPUs, by check."""


def command(path: Path, name: str) -> str:
    """The command that verifies a certificate."""
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(path.with_name(ALLOWED)), "-I", name]
    argv += ["-n", NAMESPACE, "-s", f"{path}.sig"]
    return f"{shlex.join(argv)} < {shlex.quote(str(path))}"


def write(directory: Path, found: Mapping[str, Any], signer: Signer) -> tuple[Path, str]:
    """Write the certificate and its signature; returns its path, and why it is not signed if there
    is no authority. Leaves neither on failure. Raises OSError, and SigningError if the authority
    cannot be used."""
    directory = directory.absolute()
    made = time.gmtime()
    path = directory / f"acceptance-{time.strftime('%Y%m%dT%H%M%SZ', made)}.json"
    content = {"schema": SCHEMA, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", made), **found}
    signature = reason = allowed = ""
    try:
        # The file says how it is signed, so a signature is only known to be possible by making one.
        text = _text({**content, "signature": {"namespace": NAMESPACE, "by": signer.identity}})
        signature, allowed = signer.sign(text)
    except NoAuthorityError as error:
        reason = str(error)
        text = _text({**content, "signature": UNSIGNED, "unsigned_because": reason})
    signed = Path(f"{path}.sig")
    try:
        if signature:
            save(directory / ALLOWED, _allowed(directory / ALLOWED, allowed))
            save(signed, signature)
        save(path, text)
        save(directory / "acceptance-latest.json", text)
    except OSError:
        for file in (path, signed):
            file.unlink(missing_ok=True)
        raise
    return path, reason


def _allowed(path: Path, line: str) -> str:
    """The lines of allowed_signers with this one. Keys of authorities that were replaced verify
    older certificates."""
    known = path.read_text("utf-8").splitlines(keepends=True) if path.is_file() else []
    name = line.partition(" ")[0]
    kept = [one for one in known if one.startswith(f"{name} ") and one.endswith("\n")]
    return "".join(dict.fromkeys([*kept, line]))


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


def unused(results: Mapping[str, Mapping[str, Any]], used: bool) -> list[str]:
    """Hosts that should have used shared storage: those that failed without a check, or all that
    have file systems, if none used one."""
    return [
        host
        for host, variables in results.items()
        if variables.get("cluster_filesystems")
        and (not used or any(_broken(mapping(variables.get(name))) for name in STORED[:2]))
    ]


def _broken(result: Mapping[str, Any]) -> bool:
    return bool(result.get("failed") or result.get("unreachable")) and not result.get("checks")


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
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[tuple[str, str], list[str]]]:
    """Figures of the GPUs, the failed checks of nodes, and the nodes by what was not measured on
    them and why. `results` are variables of each node."""
    made: list[dict[str, Any]] = []
    skipped: dict[tuple[str, str], list[str]] = {}
    for node, variables in results.items():
        own = mapping(mapping(variables.get(COMPARED)).get("by_host")).get(node) or []
        found = [*checks_of(mapping(variables.get(BURNED)).get("checks") or []), *checks_of(own)]
        done = [check for check in found if check["status"] != NOT_APPLICABLE]
        made += _of(node, done)
        names = {check["name"] for check in done}
        if variables.get("cluster_gpus") and PRODUCTS not in names:
            why = next((one["reason"] for one in found if one["name"] == PRODUCTS), "")
            skipped.setdefault(("GPUs under load", why), []).append(node)
        elif PRODUCTS in names:
            for check in found:
                # A part that was measured, and is only compared elsewhere, has a figure.
                if check["found"] is None and check["name"] in PARTS and check not in done:
                    skipped.setdefault((PARTS[check["name"]], check["reason"]), []).append(node)
    if not made:
        return {}, [], skipped
    report = latest(directory, "burn")
    return (
        {"made": report.get("made"), "gpus": report.get("gpus"), "checks": len(made)},
        [check for check in made if check["status"] == FAILED],
        skipped,
    )


def failed(
    results: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> tuple[list[dict[str, Any]], bool]:
    """The failed checks in registered variables of each node, and whether there is any check."""
    found = [
        check
        for node, variables in results.items()
        for name in names
        for check in _of(node, checks_of(mapping(variables.get(name)).get("checks") or []))
    ]
    return [check for check in found if check["status"] == FAILED], bool(found)


def _of(node: str, checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**check, "subject": f"{node} {check['subject']}".strip()} for check in checks]


def verdict_of(checks: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> str:
    if any(check["status"] == FAILED for check in checks):
        return FAILED
    return INCOMPLETE if any(not each.get("partial") for each in missing) else PASSED

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On the controller: what the snapshot of each node contains, and the files with their signatures.

Snapshots may be on shared storage or a web server, so that everyone can read them. A secret in a
variable of a node is refused.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleError

from ...module_utils.core.files import make_directories, write_atomically
from ...module_utils.core.text import some
from ...module_utils.software.software_set import SoftwareSet
from ...module_utils.ssh.keys import DAY, digest
from ..drift.rules import VARIABLE as DRIFT_IGNORE
from ..layers import PULLED, ROLES
from ..model.cluster import NAMES
from ..model.key_files import MAX_KEY_BYTES
from ..model.role_variables import read_specs, values
from ..ssh.journal import Journal
from ..ssh.signer import Signer
from ..ssh.signing import issue
from .snapshot import FILE, MARK, SUFFIX, Snapshot, SnapshotError, of_text, templated

try:
    from ansible._internal._datatag._tags import VaultedValue
except ImportError:  # ansible-core 2.18 does not say which values a vault had
    VaultedValue = None

OTHERS = frozenset(["cluster_asics", "cluster_bmc", "cluster_cabling", "cluster_ports"])
"""Variables of the model that no pulled layer reads."""
READ = ("monitoring_enabled", "monitoring_textfile_directory", "pull_textfile")
"""Options of other roles that the playbook or pulled roles read."""
LAYERS_WITH_KEYS = ("rdma", "gpu")
RENEWED = "its certificate expires soon, and is published for pull"


@cache
def options() -> Mapping[str, Any]:
    """The role options that a snapshot may contain: those of the pulled layers, none secret."""
    prefixes = tuple(f"{ROLES[tag].rpartition('.')[2]}_" for tag in PULLED)
    return {
        name: spec
        for name, spec in read_specs().items()
        if (name.startswith(prefixes) or name in READ) and not spec.get("no_log")
    }


@cache
def known() -> frozenset[str]:
    """The variables that a snapshot may contain."""
    return frozenset([*NAMES, *options(), DRIFT_IGNORE]) - OTHERS


def variables_of(hostvars: Any, name: str, groups: Sequence[str]) -> dict[str, Any]:
    """A host's own variables, with templates resolved. Raises SnapshotError."""
    raw: Mapping[str, Any] = hostvars.raw_get(name)
    model = {each: raw[each] for each in NAMES if each in raw and each not in OTHERS}
    asked = {each for each in raw if each in options() or each == DRIFT_IGNORE}
    found = values(hostvars, name, raw, asked)
    if missing := sorted(asked - found.keys()):
        raise SnapshotError(
            f"{name}: {some(missing, 5)}: a template that the inventory cannot resolve, for example"
            " because it uses facts: write the values, or leave this node out of pull_hosts"
        )
    made: dict[str, Any] = _plain({**model, **found})
    secret = [each for each in asked if _secret(raw[each]) or _secret(found[each])]
    if secret:
        raise SnapshotError(
            f"{name}: {some(sorted(secret), 5)}: from a vault, and everyone can read a snapshot:"
            " write it without a vault, or leave this node out of pull_hosts"
        )
    if wrong := sorted(each for each, value in made.items() if templated(value)):
        raise SnapshotError(f"{name}: {some(wrong, 5)}: braces of a template in a value")
    if DRIFT_IGNORE in made:
        here = ("*", name, *groups)  # on the node, other hosts are unknown
        made[DRIFT_IGNORE] = [rule for rule in made[DRIFT_IGNORE] if rule.get("host") in here]
    return made


def _plain(value: Any) -> Any:
    """Without the types by which Ansible marks where a value came from."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    return value


def _secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_secret, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_secret, value))
    if VaultedValue is not None and VaultedValue.is_tagged_on(value):
        return True
    return hasattr(value, "_ciphertext")


def files_of(software: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """Public keys of repositories, which are files next to the model. A missing one is left to the
    layer that needs it."""
    found = {}
    chosen = SoftwareSet.of(software)
    for layer in LAYERS_WITH_KEYS:
        for name in chosen.repositories_of(layer):
            path = str(chosen.repositories[name].key)
            if FILE.fits(path) and (directory / path).is_file():
                with (directory / path).open("rb") as file:
                    found[path] = base64.b64encode(file.read(MAX_KEY_BYTES)).decode("ascii")
    return found


@dataclass(frozen=True)
class Renewal:
    """How SSH certificates are renewed for nodes that are not logged in to."""

    journal: Journal
    authority: Mapping[str, Any]
    """Result of ssh_authority, as `hosts`."""
    hosts: Mapping[str, Mapping[str, Any]]
    user: str
    validity_days: float
    renew_days: float
    passphrase: str = ""

    def certificates(self, name: str, before: Mapping[str, str], now: int) -> dict[str, str]:
        """Those that the node should have next. Keys are those that the journal has from the node
        itself. Raises SigningError."""
        host = self.hosts.get(name)
        if not host or host["revoked"]:
            return {}
        issued = host["known"]["issued"]
        due = {
            kind: RENEWED
            for kind, record in issued.items()
            if record["valid_before"] - now < self.renew_days * DAY
        }
        found = {
            kind: line
            for kind, line in before.items()
            if kind not in due and digest(line) == issued.get(kind, {}).get("digest")
        }
        if due:
            made, _records = issue(
                self.journal,
                name,
                due,
                {kind: issued[kind]["key"] for kind in due},
                self.authority,
                user=self.user,
                host=host,
                validity_days=self.validity_days,
                now=now,
                passphrase=self.passphrase,
                refused=host["known"]["refused_keys"],
            )
            found.update(made)
        return found


def earlier(path: Path) -> Optional[Snapshot]:
    """The snapshot that was published last; None if there is none that can be read."""
    try:
        return of_text(path.read_text("ascii").partition(MARK)[0], known())
    except (OSError, UnicodeError, SnapshotError):
        return None


def publish(
    folder: Path,
    wanted: Sequence[Snapshot],
    signer: Signer,
    now: int,
    validity_s: int,
    *,
    write: bool = True,
) -> tuple[list[str], list[str]]:
    """Write the snapshots that changed, or whose validity is half over, and remove those of other
    nodes. Returns the names of both. Raises SigningError and OSError."""
    due = []
    for each in wanted:
        before = earlier(folder / f"{each.node}{SUFFIX}")
        if before and before.same(each) and before.expires - now > validity_s // 2:
            continue
        serial = max(now, before.serial + 1 if before else 0)
        due.append(replace(each, serial=serial, made=now, expires=now + validity_s))
    names = {f"{each.node}{SUFFIX}" for each in wanted}
    gone = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.name not in names]
    if write:
        texts = [each.text() for each in due]
        make_directories(folder)
        for each, text, signature in zip(due, texts, signer.sign_all(texts), strict=True):
            path = folder / f"{each.node}{SUFFIX}"
            write_atomically(path, text + signature, 0o644, os.getuid(), os.getgid())
        for path in gone:
            path.unlink()
    return [each.node for each in due], [path.name.removesuffix(SUFFIX) for path in gone]


def resolved(hostvars: Any, groups: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """The variables of each node. `groups` by node. Raises SnapshotError with all that are
    refused."""
    found, refused = {}, []
    for name, own in groups.items():
        try:
            found[name] = variables_of(hostvars, name, own)
        except (SnapshotError, AnsibleError) as error:
            refused.append(str(error))
    if refused:
        raise SnapshotError("\n".join(refused[:20]))
    return found

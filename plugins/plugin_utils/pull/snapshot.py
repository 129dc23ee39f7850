# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The snapshot of a node: its content, what its signature covers, and when a node takes it.

A file is a line of canonical JSON and an OpenSSH signature of that line. The signature says who
wrote it. Everything else here holds even where a signed snapshot is of another node, old, or of
another version of the collection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...module_utils.core.messages import message
from ...module_utils.ssh.keys import KINDS
from ..answers import NAME, AnswerError, Form, shown, whole
from ..model.role_variables import has_template

PURPOSE, FORMAT, SUFFIX = "pull", 1, ".snapshot"
MARK = "-----BEGIN SSH SIGNATURE-----"
MAX_BYTES = 4 << 20
MAX_FILES, MAX_GROUPS, MAX_CERTIFICATE = 16, 200, 8192
LATEST = 1 << 40
"""Largest serial and time in seconds."""
AHEAD_S = 3600
"""How far the node's clock may be behind the controller's."""
PUBLISH = "publish again on the controller (playbooks/pull_publish.yml)"
GROUP = Form("a name of a group", r"[A-Za-z_][A-Za-z0-9_]{0,99}")
FILE = Form(
    "a relative path of plain characters",
    r"([A-Za-z0-9][A-Za-z0-9._+-]{0,99}/){0,4}"
    r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}",
)
KEY = Form("a fingerprint of a key", r"SHA256:[A-Za-z0-9+/]{43}")


class SnapshotError(Exception):
    """A snapshot is refused. The text says which, why, and what to do."""


@dataclass(frozen=True)
class Snapshot:
    cluster: str
    node: str
    serial: int
    """Grows with each snapshot of a node, so that an older one is refused."""
    made: int
    expires: int
    signer: str
    """Fingerprint of the key that signs it."""
    groups: Sequence[str] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Values of the model and options of roles. They are data: no value is a template."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the inventory's directory, in base64: public keys of package repositories."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """New SSH certificates of this node by kind, as lines."""

    def text(self) -> str:
        """The one text of this content. Raises ValueError for values that JSON does not have."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":")) + "\n"

    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()

    def same(self, other: Snapshot) -> bool:
        """Whether only their dates differ."""
        dates = ("serial", "made", "expires")
        names = [each.name for each in fields(self) if each.name not in dates]
        return all(getattr(self, name) == getattr(other, name) for name in names)


def of_text(text: str, known: Collection[str]) -> Snapshot:
    """The snapshot that is written as `text`. `known`: variables of the model and of roles; others
    could change how Ansible works. Raises SnapshotError."""
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or given.pop("format", None) != FORMAT:
            raise AnswerError(f"it is not in format {FORMAT}: install the controller's collection")
        made = Snapshot(**given)
        _check(made, known)
        if made.text() != text:
            raise AnswerError("it is not written canonically")
    except (ValueError, TypeError, RecursionError) as error:
        raise SnapshotError(f"no snapshot: {str(error)[:300]}") from error
    return made


def _check(made: Snapshot, known: Collection[str]) -> None:
    """Raises AnswerError."""
    NAME.of(made.cluster, "cluster")
    NAME.of(made.node, "node")
    KEY.of(made.signer, "signer")
    for name in ("serial", "made", "expires"):
        whole(getattr(made, name), name, LATEST, 1)
    sizes = {
        "groups": (made.groups, list, MAX_GROUPS),
        "variables": (made.variables, dict, len(known)),
        "files": (made.files, dict, MAX_FILES),
        "certificates": (made.certificates, dict, len(KINDS)),
    }
    for name, (value, kind, most) in sizes.items():
        if not isinstance(value, kind) or len(value) > most:
            raise AnswerError(f"{name} is not a {kind.__name__} of at most {most} entries")
    for group in made.groups:
        GROUP.of(group, "a group")
    for name, value in made.variables.items():
        if name not in known:
            raise AnswerError(f"{shown(name)} is no variable of the model or of a role")
        if templated(value):
            raise AnswerError(f"{name} contains a template")
    for path, content in made.files.items():
        FILE.of(path, "a file")
        _bytes(content, path)
    for subject, line in made.certificates.items():
        plain = isinstance(line, str) and len(line) <= MAX_CERTIFICATE
        if subject not in KINDS or not plain or not re.fullmatch(r"[ -~]+\n", line):
            raise AnswerError(f"certificates: {shown(subject)} is not one line for a kind of key")


def templated(value: Any) -> bool:
    """Whether a text in a JSON value, or a key, may be a template. JSON itself has no `{{`."""
    return has_template(json.dumps(value))


def _bytes(content: Any, path: str) -> bytes:
    try:
        return base64.b64decode(str(content), validate=True)
    except binascii.Error as error:
        raise AnswerError(f"{path} is not in base64") from error


def contents(made: Snapshot) -> dict[str, bytes]:
    """The files of a checked snapshot."""
    return {path: _bytes(content, path) for path, content in made.files.items()}


@dataclass(frozen=True)
class Taken:
    """What a node remembers of the last snapshot that it took."""

    serial: int = 0
    sha256: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @classmethod
    def of(cls, text: str, where: str) -> Taken:
        """Raises SnapshotError: without the record, an old snapshot could be taken again."""
        try:
            taken = cls(**json.loads(text))
            whole(taken.serial, "serial", LATEST)
            return taken
        except (ValueError, TypeError, RecursionError) as error:
            raise SnapshotError(
                f"{where}, which records the last snapshot, is damaged ({str(error)[:200]}):"
                " compare the serial of the snapshot with the controller's, and remove the file"
            ) from error


def take(made: Snapshot, node: str, cluster: str, now: int, last: Taken) -> Taken:
    """What to remember after taking it. Raises SnapshotError if this node must not take it."""
    taken = Taken(made.serial, made.digest())
    about = {"serial": made.serial, "node": made.node, "publish": PUBLISH}
    if (made.node, made.cluster) != (node, cluster):
        raise SnapshotError(
            message(
                "pull_other_node",
                "the snapshot {serial} of {node} in {cluster} is not of this node, {here} in"
                " {there}: correct what serves the snapshots",
                cluster=made.cluster,
                here=node,
                there=cluster,
                **about,
            )
        )
    if made.made > now + AHEAD_S:
        raise SnapshotError(
            message(
                "pull_clock",
                "the snapshot {serial} of {node} was made in the future: set this node's clock",
                **about,
            )
        )
    if made.expires <= now:
        raise SnapshotError(
            message(
                "pull_expired",
                "the snapshot {serial} of {node} expired {hours} hours ago: {publish}",
                hours=(now - made.expires) // 3600,
                **about,
            )
        )
    if made.serial < last.serial:
        raise SnapshotError(
            message(
                "pull_older",
                "the snapshot {serial} of {node} is older than {last}, which this node has taken:"
                " {publish}",
                last=last.serial,
                **about,
            )
        )
    if made.serial == last.serial and taken != last:
        raise SnapshotError(
            message(
                "pull_serial_twice",
                "the snapshot {serial} of {node} differs from the one with this serial that this"
                " node has taken: {publish}",
                **about,
            )
        )
    return taken

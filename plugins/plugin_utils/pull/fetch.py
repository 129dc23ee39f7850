# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On a node: read its snapshot from a directory or by HTTPS, and verify the signature.

Whoever serves snapshots may be hostile. Nothing of a file is parsed before its signature is
verified, and no more than MAX_BYTES of it is read.
"""

from __future__ import annotations

import json
import os
import ssl
import stat
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

from ...module_utils.core.commands import CommandError, run
from ...module_utils.core.text import bytes_text, one_line, shortened
from ..answers import NAME, AnswerError
from ..deadline import TimeIsUpError, time_limit
from ..ssh.signer import NAMESPACES
from .snapshot import MARK, MAX_BYTES, PURPOSE, SUFFIX, SnapshotError

FETCH_S, ANSWER_S = 60.0, 20.0
"""Time limits for a file, and for each answer of a server."""


@dataclass(frozen=True)
class Source:
    """Which snapshot this node reads, and where."""

    node: str
    cluster: str
    place: str
    """A directory, or the start of an https URL."""
    ca: str = ""
    """File with the certificates of the only authorities that the server may have; if empty, those
    of the system."""

    @property
    def name(self) -> str:
        return f"{self.place.rstrip('/')}/{self.node}{SUFFIX}"

    @classmethod
    def of(cls, text: str, where: str) -> Source:
        """Raises SnapshotError."""
        try:
            source = cls(**json.loads(text))
            NAME.of(source.node, "node")
            NAME.of(source.cluster, "cluster")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SnapshotError(
                f"{where}: {str(error)[:200]}: run playbooks/pull_publish.yml on the controller"
            ) from error
        return source


def trusted(path: Path) -> str:
    """A file that decides what this node trusts, and that only root may write. Raises
    SnapshotError."""
    try:
        for each in (path, path.parent):
            status = each.stat()
            if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
                raise SnapshotError(
                    f"{each}: others than root can write it: chown root {each}; chmod go-w {each}"
                )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SnapshotError(
            f"{path}: {error}: run playbooks/pull_publish.yml on the controller with pull_from"
        ) from error


def read(source: Source) -> bytes:
    """The file of this node. Raises SnapshotError."""
    try:
        with time_limit(FETCH_S):
            content = _download(source) if "://" in source.place else _file(source)
    except TimeIsUpError:
        raise SnapshotError(f"{source.name}: no complete file within {FETCH_S:.0f} s") from None
    except (OSError, ValueError) as error:  # URLError and SSLError are OSErrors
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise SnapshotError(
            f"{source.name}: {shortened(one_line(str(reason)), 300)}: is it served there, and has"
            " the controller published it?"
        ) from error
    if len(content) > MAX_BYTES:
        raise SnapshotError(f"{source.name}: more than {bytes_text(MAX_BYTES)}")
    return content


def _file(source: Source) -> bytes:
    if not source.place.startswith("/"):
        raise SnapshotError(f"pull_from is {source.place!r}: a directory from / on, or https://")
    # A named pipe must not block the run.
    with open(os.open(source.name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SnapshotError(f"{source.name}: not a file")
        return file.read(MAX_BYTES + 1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> Optional[urllib.request.Request]:
        return None  # its status becomes an error


def _download(source: Source) -> bytes:
    parts = urlsplit(source.name)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.query:
        raise SnapshotError("pull_from: an https URL without user, password and query is needed")
    context = ssl.create_default_context(cafile=source.ca or None)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context),
        _NoRedirect(),
    )
    with opener.open(source.name, timeout=ANSWER_S) as answer:
        content: bytes = answer.read(MAX_BYTES + 1)
        return content


def verified(content: bytes, source: Source, allowed: Path) -> str:
    """The signed text. Raises SnapshotError if no key in `allowed` signed it for this purpose."""
    try:
        text, mark, rest = content.decode("ascii").partition(MARK)
        if not mark:
            raise ValueError("it has no signature")
        with tempfile.TemporaryDirectory(prefix="pull-") as scratch:
            signature = Path(scratch) / "signature"
            signature.write_text(mark + rest, "ascii")
            argv = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-s", str(signature)]
            argv += ["-I", f"{PURPOSE}@{source.cluster}", "-n", f"{NAMESPACES}.{PURPOSE}"]
            done = run(argv, stdin=text, check=False)
        if done.rc != 0:
            raise ValueError(one_line(done.stderr or done.stdout))
    except (ValueError, CommandError, OSError, AnswerError) as error:
        raise SnapshotError(
            f"{source.name}: no key in {allowed} has signed it for the cluster {source.cluster}"
            f" ({shortened(str(error), 200)}). If the controller's key has changed, run"
            " playbooks/pull_publish.yml there; otherwise find out who wrote it"
        ) from error
    return text

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the engine asks of a package manager, and what apt.py and dnf.py share to answer it."""

from __future__ import annotations

import fcntl
import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Optional, Protocol

from ..core.files import FilePlan
from .package import Change, PackageSet, Repository, Stream

WAIT_S = 300
"""As long as apt-get waits by itself (DPkg::Lock::Timeout)."""
ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
_PUBLIC_KEY = (ARMOUR, b"\x98", b"\x99", b"\x9a", b"\xc6")
"""How a key begins; binary, it is a packet of tag 6, in the old format and in the new."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_URL = re.compile(r"(https?://|file:///)[^\s,]+")


class PackageError(Exception):
    """The package manager refused; the text says which package or repository, why, what to do."""


class Manager(Protocol):
    """One node's package manager. Versions are full ones, as the package manager writes them.

    Reading methods change nothing on the node and work in check mode. `layer` (`rdma`, `gpu`) is
    part of the names of files that are planned, so that two layers do not undo each other.
    """

    def busy(self) -> bool:
        """Whether another package manager is at work now: what looks half done is not."""

    def wait(self) -> None:
        """Until it is done. Raises PackageError after the usual limit."""

    def warnings(self) -> Sequence[str]:
        """What the package manager said of repositories that it verified and took all the same."""

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        """What an interrupted transaction left behind, in a line; empty when nothing did.

        With `names`, what concerns these packages alone. Empty while another one is at work.
        """

    def repair(self) -> None:
        """Finish or undo what was interrupted, with what is on the node alone."""

    def repository_files(self, repositories: Sequence[Repository], layer: str) -> list[FilePlan]:
        """Definitions and keys. Raises PackageError for a key whose checksum is another."""

    def refresh(self, repositories: Sequence[Repository]) -> None:
        """Fetch and verify the metadata of these.

        The definitions need not be on the node yet: this is part of planning, in check mode too,
        and writes to the package manager's cache of metadata alone. From here on `available`,
        `offered` and `simulate` know them, beside what the node has. Raises PackageError with the
        repository and, for a bad signature, the key. Not called in an unchanged run.
        """

    def lacking(self, repositories: Sequence[Repository]) -> Sequence[Repository]:
        """Those of them that no layer has defined on the node."""

    def adopt(self, repositories: Sequence[Repository]) -> None:
        """After their definitions were written: use those from here on, and their keys."""

    def installed(self) -> Mapping[str, str]:
        """Every installed package and its version."""

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Versions that the repositories have, newest first; empty for a name nobody has."""

    def offered(
        self, names: Sequence[str], repositories: Sequence[Repository]
    ) -> Mapping[str, Sequence[str]]:
        """The same, of these repositories alone."""

    def needs(self, names: Sequence[str]) -> frozenset[str]:
        """Installed packages that these need, at any depth; without `names` themselves."""

    def lower(self, one: str, other: str) -> bool:
        """Whether one version is lower than the other, by the package manager's own rules."""

    def upstream(self, version: str) -> str:
        """The version without epoch and revision of the package."""

    def stream_changes(self, streams: Sequence[Stream]) -> list[Change]:
        """Module streams that are another one now, or none; always empty for apt."""

    def switch_streams(self, streams: Sequence[Stream]) -> None:
        """Enable these streams, away from others where they are enabled. Installs nothing."""

    def simulate(
        self,
        exact: Mapping[str, str],
        remove: Sequence[str] = (),
        prefer: Optional[Mapping[str, str]] = None,
    ) -> list[Change]:
        """Everything the solver would do for these versions. Raises PackageError when it cannot.

        As if what this layer pinned and held until now were let go, and other holds kept. `prefer`
        are versions of packages that may come in as dependencies; none is installed for its sake.
        """

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        """The same for real, without questions and without touching files an operator changed.

        The pin files are on the node already. Nothing but `remove` may be removed.
        """

    def pin_files(self, pins: Mapping[str, str], wanted: PackageSet, layer: str) -> list[FilePlan]:
        """Files that keep every package of `pins` at its version, whoever asks for an upgrade."""

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """What the pin files of `layer` on the node say now; of all layers without one."""

    def held(self) -> frozenset[str]:
        """Packages that are held now."""

    def hold(self, names: Sequence[str]) -> None:
        """Hold these (apt-mark hold; where pin files hold by themselves: nothing to do)."""

    def release(self, names: Sequence[str]) -> None:
        """Let go of these, for a planned change."""


def check_repository(repository: Repository) -> None:
    """Raises PackageError for what must not come near a package manager or its keyring."""
    where = f"repository {repository.name}"
    if not _NAME.fullmatch(repository.name):
        raise PackageError(f"repository {repository.name!r}: a name is of a-z, 0-9, '.' and '-'")
    if not _URL.fullmatch(repository.url):
        raise PackageError(
            f"{where}: url {repository.url!r} is not https://, http:// or file:/// without blanks "
            "and commas"
        )
    found = hashlib.sha256(repository.key).hexdigest()
    if found != repository.key_sha256.lower():
        raise PackageError(
            f"{where}: its key has sha256 {found}, the set says {repository.key_sha256 or 'none'}. "
            "Nothing was changed. Get the key of the vendor again, compare its fingerprint with "
            "the one that the vendor publishes, then write the sum into the set"
        )
    if not repository.key.lstrip().startswith(_PUBLIC_KEY):
        raise PackageError(f"{where}: its key file is no OpenPGP public key, armoured or binary")


def armoured(repository: Repository) -> bool:
    return repository.key.lstrip().startswith(ARMOUR)


def until_free(busy: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    until = time.monotonic() + wait_s
    while busy():
        if time.monotonic() > until:
            raise PackageError(
                f"another package manager is running for more than {wait_s:g} s. Let it finish, "
                "then run again"
            )
        time.sleep(0.5)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file as apt and dpkg do (fcntl)."""
    with path.open("a") as stream:
        until_free(lambda: not _taken(stream.fileno()))
        yield


def held_by_another(path: Path) -> bool:
    """Whether another program holds the lock file now."""
    try:
        with path.open("r+") as stream:
            return not _taken(stream.fileno())
    except OSError:
        return False  # not there, or not ours to ask


def _taken(handle: int) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True

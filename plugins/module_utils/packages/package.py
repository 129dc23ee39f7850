# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wanted of a package manager, and the interface that apt and dnf have in common."""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional, Protocol

from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.files import FilePlan

WAIT_S = 300
"""As long as apt-get waits by itself (DPkg::Lock::Timeout)."""
ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"


class PackageError(CommandError):
    """Packages cannot be planned or changed: which package or repository, why, the remedy."""


@dataclass(frozen=True)
class Wanted:
    """One package of the set.

    `version` is the upstream version, or a beginning of one (`580.95.05`, `13.0`: `matches`); the
    package manager's epoch and revision (`3:580.95.05-1.el9`, `580.95.05-0ubuntu1`) are found in
    the repository. Empty: the newest at the first installation, then held at what is installed.
    `component` is the key of the set that names the version (`driver`, `cuda`), for messages.
    """

    name: str
    version: str = ""
    component: str = ""


def matches(wanted: str, full: str) -> bool:
    """Whether a full version is the wanted one, or begins with it where a number ends.

    `13.0` is 13.0.2-1, not 13.01-1 and not 13.0rc1-1: a release candidate is another version. It
    may go on into the revision, where one upstream version was built several times
    (`2.28.3-1+cuda13`) or the revision is what matters (`5.14.0-570.12.1.el9_6`).
    """
    bare = full.partition(":")[2] or full
    after = bare[len(wanted) : len(wanted) + 1]
    begins = bare.startswith(wanted) and not (after.isalnum() or after == "~")
    return not wanted or wanted == full or begins


@dataclass(frozen=True)
class Stage:
    """Packages that are installed in one transaction. Stages come one after another, in order."""

    name: str
    packages: Sequence[Wanted]


@dataclass(frozen=True)
class Repository:
    """A signed package repository. `key` is the armoured or binary public key itself.

    `name` is stable and names the files. `url` is the base of the repository; of apt it is a flat
    one. `check_metadata` (dnf): the metadata carry a signature too.
    """

    name: str
    url: str
    key: bytes
    key_sha256: str
    check_metadata: bool = True


@dataclass(frozen=True)
class Stream:
    """A module stream of dnf (`nvidia-driver:580-open`). apt has none."""

    module: str
    stream: str


@dataclass(frozen=True)
class PackageSet:
    """Everything that a layer wants of the package manager.

    `preferred` names the repository of a package that several have: package name or pattern
    (`mft*`) to `Repository.name`, which may be a repository of another layer. `absent` are packages
    that must not be installed, each with the reason; `held` are further packages that are only held
    at the installed version (the kernel).
    """

    repositories: Sequence[Repository] = ()
    streams: Sequence[Stream] = ()
    stages: Sequence[Stage] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> list[Wanted]:
        return [package for stage in self.stages for package in stage.packages]


INSTALL, UPGRADE, DOWNGRADE, REMOVE = "install", "upgrade", "downgrade", "remove"


@dataclass(frozen=True)
class Change:
    """One line of a transaction; `before` and `after` are full versions, empty where not there."""

    kind: str
    name: str
    before: str
    after: str


class Manager(Protocol):
    """One node's package manager. Versions are full ones, as the package manager writes them.

    `layer` (`rdma`, `gpu`) is part of the names of files, so that layers do not undo each other.
    Methods that read work in check mode: they write nothing but the cache of metadata.
    """

    def busy(self) -> bool:
        """Whether another package manager runs now: half-done packages are not interrupted ones."""

    def wait(self) -> None:
        """Until it ended. Raises PackageError after WAIT_S."""

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        """What an interrupted transaction left, in a line; with `names`, of these packages alone.

        Empty while another package manager runs.
        """

    def repair(self) -> None:
        """Finish or undo what was interrupted, with what is on the node alone."""

    def repository_files(self, repositories: Sequence[Repository], layer: str) -> list[FilePlan]:
        """Definitions and keys. Raises PackageError for a key with another checksum."""

    def defined(self, name: str) -> bool:
        """Whether any layer has defined the repository on the node."""

    def refresh(self, repositories: Sequence[Repository]) -> None:
        """Fetch and verify the metadata of these, which are defined on the node."""

    def installed(self) -> Mapping[str, str]:
        """Every installed package and its version."""

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Versions in the repositories, newest first; empty for an unknown name."""

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
        """Module streams that differ; always empty for apt."""

    def switch_streams(self, streams: Sequence[Stream]) -> None:
        """Enable these streams in place of others of their modules. Installs nothing."""

    def simulate(
        self,
        exact: Mapping[str, str],
        remove: Sequence[str] = (),
        prefer: Optional[Mapping[str, str]] = None,
    ) -> list[Change]:
        """The solver's transaction for these versions. Raises PackageError when there is none.

        Pins and holds of this layer do not count, those of others do. `prefer` are versions of
        packages that may come in as dependencies; none is installed for its sake.
        """

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        """The same for real, removing nothing but `remove`. The pin files are on the node."""

    def pin_files(self, pins: Mapping[str, str], wanted: PackageSet, layer: str) -> list[FilePlan]:
        """Files that keep every package of `pins` at its version in any upgrade."""

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """The pins on the node of one layer, or of all."""

    def held(self) -> frozenset[str]: ...

    def hold(self, names: Sequence[str]) -> None: ...

    def release(self, names: Sequence[str]) -> None: ...


def check_key(repository: Repository) -> None:
    """Raises PackageError for a key that is not the one of the set."""
    found = hashlib.sha256(repository.key).hexdigest()
    if found != repository.key_sha256.lower():
        raise PackageError(
            f"repository {repository.name}: its key has sha256 {found}, the set has "
            f"{repository.key_sha256 or 'none'}. Compare the key's fingerprint with the one that "
            "the vendor publishes, then write the sum into the set"
        )


def until_free(busy: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    until = time.monotonic() + wait_s
    while busy():
        if time.monotonic() > until:
            raise PackageError(
                f"another package manager is running for more than {wait_s:g} s. Let it finish, "
                "then run again"
            )
        time.sleep(0.5)


def held_by_another(path: Path) -> bool:
    """Whether another program holds the lock file now, as apt, dpkg and rpm lock (fcntl)."""
    try:
        stream = path.open("r+")
    except OSError:
        return False  # not there, or not readable
    with stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
    return False

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wanted of a package manager, and the interface that apt and dnf have in common."""

from __future__ import annotations

import fcntl
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file

OURS = "baremetal-mpi-roce-"
"""How names of files and repositories begin."""
WAIT_S = 300.0
"""Seconds to wait for another package manager, as apt-get does by itself."""


class PackageError(CommandError):
    """Packages cannot be planned or changed: which package or repository, why, the remedy."""


@dataclass(frozen=True)
class WantedPackage:
    """One package of the set.

    `version` is the upstream version, or a beginning of one (`580.95.05`, `13.0`: `matches`); the
    package manager's epoch and revision (`3:580.95.05-1.el9`, `580.95.05-0ubuntu1`) are found in
    the repository. Empty: the newest at the first installation, then held at what is installed.
    `component` is the key of the set that names the version (`driver`, `cuda`), for messages.
    One that `follows` has no version in the set and goes with the release that its repository has:
    when another package of the set changes, it gets the version that is there then.
    `optional`: left out, with the others of its component, where no repository has the package.
    """

    name: str
    version: str = ""
    component: str = ""
    follows: bool = False
    optional: bool = False


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
    """Packages that are installed in one transaction. Stages come one after another, in order.

    `replaced` are packages, or patterns, that may go with it, as the new ones take their place.
    """

    name: str
    packages: Sequence[WantedPackage]
    replaced: Sequence[str] = ()


@dataclass(frozen=True)
class Repository:
    """A signed package repository. `key` is the armoured public key itself.

    `name` is stable and names the files. `url` is the base of the repository; of apt it is a flat
    one. `check_metadata` (dnf): the metadata carry a signature too.
    """

    name: str
    url: str
    key: bytes
    key_sha256: str
    check_metadata: bool = True


@dataclass(frozen=True)
class Location:
    """Where a repository is asked for its metadata: one of `urls`. An empty `proxy` is that of the
    environment; `ca` and `client` (certificate, key) are files."""

    urls: Sequence[str]
    proxy: str = ""
    ca: str = ""
    client: Sequence[str] = ()
    needed: bool = True


@dataclass(frozen=True)
class ModuleStream:
    """A module stream of dnf (`nvidia-driver:580-open`). apt has none."""

    module: str
    stream: str


@dataclass(frozen=True)
class PackageSet:
    """Everything that a layer wants of the package manager.

    `preferred` names the repository of a package that several have: package name or pattern
    (`mft*`) to `Repository.name`, which may be a repository of another layer. `absent` are packages
    that must not be installed, each with the reason; `held` are further packages that are only held
    at the installed version (the kernel). `kernels` tell what else is, as it would bring another
    kernel: patterns of packages that it depends on (apt), or what it provides (dnf). `claims` are
    files that other packages have as well, without a conflict that the solver would see: path to
    the package of the set's repositories.
    """

    repositories: Sequence[Repository] = ()
    streams: Sequence[ModuleStream] = ()
    stages: Sequence[Stage] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] = ()
    kernels: Sequence[str] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> list[WantedPackage]:
        return [package for stage in self.stages for package in stage.packages]


INSTALL, UPGRADE, DOWNGRADE, REMOVE = "install", "upgrade", "downgrade", "remove"


@dataclass(frozen=True)
class PackageChange:
    """One line of a transaction; `before` and `after` are full versions, empty where not there."""

    kind: str
    name: str
    before: str
    after: str


class Manager(ABC):
    """The package manager of one node, for the set of one layer.

    Versions are full ones, as the package manager writes them. `layer` (`rdma`, `gpu`) is part of
    the names of files, so that layers do not undo each other. Methods that read work in check mode:
    they write nothing but the cache of metadata.
    """

    wait_s = WAIT_S

    def __init__(
        self,
        wanted: PackageSet,
        layer: str,
        run: Runner,
        *,
        root: Path = Path("/"),
        uid: int = 0,
        gid: int = 0,
    ) -> None:
        self.wanted, self.layer, self.run, self.root = wanted, layer, run, root
        self._owner = (uid, gid)

    def _file(self, path: Path, text: Optional[str]) -> FilePlan:
        return plan_file(path, text, uid=self._owner[0], gid=self._owner[1])

    def repository_files(self) -> list[FilePlan]:
        """Keys before the definitions that name them; those of an older set go."""
        repositories = self.wanted.repositories
        keys = [
            self._file(self.key_path(each), each.key.decode("utf-8", "surrogateescape"))
            for each in repositories
        ]
        definitions = [
            self._file(self.definition_path(each.name), self.definition(each))
            for each in repositories
        ]
        kept = {planned.path for planned in (*keys, *definitions)}
        old = [self._file(path, None) for path in self.own_files() if path not in kept]
        return [*keys, *definitions, *old, *self.rivals()]

    def rivals(self) -> list[FilePlan]:
        """Definitions of others that conflict with those of the set, as they become."""
        return []

    def wait(self) -> None:
        """Until no other package manager runs. Raises PackageError after `wait_s`."""
        until = time.monotonic() + self.wait_s
        while self.busy():
            if time.monotonic() > until:
                raise PackageError(
                    f"another package manager is running for more than {self.wait_s:g} s. Let it "
                    "finish, then run again"
                )
            time.sleep(0.5)
            self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Read packages again when they are asked for."""

    @abstractmethod
    def busy(self) -> bool:
        """Whether another package manager runs now."""

    @abstractmethod
    def interrupted(self) -> Mapping[str, str]:
        """What an interrupted transaction left: package to a line about it.

        An empty name is for the package manager itself. Waits while another one runs.
        """

    @abstractmethod
    def repair(self) -> None:
        """Finish or undo what was interrupted, with what is on the node alone."""

    @abstractmethod
    def key_path(self, repository: Repository) -> Path: ...

    @abstractmethod
    def definition_path(self, name: str) -> Path: ...

    @abstractmethod
    def definition(self, repository: Repository) -> str: ...

    @abstractmethod
    def own_files(self) -> Iterable[Path]:
        """Definitions and keys of this layer that are on the node."""

    @abstractmethod
    def defined(self, name: str) -> bool:
        """Whether any layer has defined the repository."""

    @abstractmethod
    def locations(self) -> list[Location]:
        """Of every repository of the node, and of the set's. Fetches nothing."""

    @abstractmethod
    def refresh(self) -> None:
        """Fetch and verify the metadata of the set's repositories, defined on the node."""

    @abstractmethod
    def installed(self) -> Mapping[str, str]: ...

    @abstractmethod
    def available(
        self, names: Sequence[str], repositories: Optional[Sequence[Repository]] = None
    ) -> Mapping[str, Sequence[str]]:
        """Versions in the repositories (all, or these), newest first; empty for an unknown name."""

    @abstractmethod
    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Installed packages that these need, at any depth; without `names` themselves."""

    @abstractmethod
    def bringing(self) -> frozenset[str]:
        """Installed packages that would bring another kernel when they are upgraded, by `kernels`
        of the set and the package manager's own relations."""

    @abstractmethod
    def lower(self, one: str, other: str) -> bool: ...

    @abstractmethod
    def upstream(self, version: str) -> str:
        """The version without epoch and revision of the package."""

    def owner(self, path: str) -> str:
        """The installed package that has the file; empty where none has, or none is known."""
        return ""

    def stream_changes(self) -> list[PackageChange]:
        """Module streams that differ."""
        return []

    @abstractmethod
    def switch_streams(self) -> None:
        """Enable the set's streams in place of others of their modules. Installs nothing."""

    @abstractmethod
    def simulate(
        self, exact: Mapping[str, str], remove: Sequence[str], whole: Mapping[str, str]
    ) -> list[PackageChange]:
        """The solver's transaction for these versions. Raises PackageError when there is none.

        Pins and holds of this layer do not count, those of others do. `whole` is the set: what
        comes in as a dependency has a version of the set where the repositories have it. Half a
        driver of another release would be of no use.
        """

    @abstractmethod
    def apply(self, exact: Mapping[str, str], remove: Sequence[str]) -> None:
        """The same for real, removing nothing but `remove`. The pin file is on the node."""

    @abstractmethod
    def pin_file(self, pins: Mapping[str, str]) -> FilePlan:
        """The file that keeps every package of `pins` at its version in any upgrade."""

    @abstractmethod
    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """The pins on the node of one layer, or of all."""

    @abstractmethod
    def held(self) -> frozenset[str]: ...

    @abstractmethod
    def hold(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def release(self, names: Sequence[str]) -> None: ...


def locked_by_another(path: Path) -> bool:
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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sets, and the interface that apt and dnf implement."""

from __future__ import annotations

import fcntl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file
from ..core.messages import Message
from ..core.waiting import until

OURS = "baremetal-mpi-roce-"
"""Prefix of file names and repository IDs."""
WAIT_S = 300.0
"""Seconds to wait for another package manager."""


class PackageError(CommandError):
    """Packages cannot be planned or changed; the text gives the package, the reason and the remedy.

    `refusals`: the lines of a refused plan.
    """

    def __init__(self, text: str, refusals: Sequence[Message] = ()) -> None:
        super().__init__(text)
        self.refusals = list(refusals)


@dataclass(frozen=True)
class WantedPackage:
    """One package of the set.

    `version`: the upstream version or its beginning (`580.95.05`, `13.0`; see `matches`). Epoch and
    revision (`3:580.95.05-1.el9`, `580.95.05-0ubuntu1`) come from the repository. If empty, the
    first installation takes the newest version, which is then held. `component`: key in the set
    that contains the version (`driver`, `cuda`), for messages. `follows`: the version belongs to
    the repository's release. The package is updated to it whenever another package of the set
    changes. `optional`: left out, with its component, if no repository has the package.
    """

    name: str
    version: str = ""
    component: str = ""
    follows: bool = False
    optional: bool = False


def matches(wanted: str, full: str) -> bool:
    """Whether a full version starts with `wanted`, up to the end of a number.

    `13.0` matches 13.0.2-1, but not 13.01-1 or the release candidate 13.0rc1-1. The revision may be
    part of it, where an upstream version was built several times (`2.28.3-1+cuda13`) or the
    revision is significant (`5.14.0-570.12.1.el9_6`).
    """
    bare = full.partition(":")[2] or full
    after = bare[len(wanted) : len(wanted) + 1]
    begins = bare.startswith(wanted) and not (after.isalnum() or after == "~")
    return not wanted or wanted == full or begins


@dataclass(frozen=True)
class Stage:
    """Packages of one transaction; stages are installed in order.

    `replaced`: names or patterns of packages that the transaction may remove.
    """

    name: str
    packages: Sequence[WantedPackage]
    replaced: Sequence[str] = ()


@dataclass(frozen=True)
class Repository:
    """A signed package repository.

    `name` is stable, as files are named after it. `url` is the base URL; for apt, that of a flat
    repository. `key` is the armoured public key. `check_metadata` (dnf): the metadata are signed.
    """

    name: str
    url: str
    key: bytes
    key_sha256: str
    check_metadata: bool = True


@dataclass(frozen=True)
class Location:
    """The locations of a repository's metadata: any of `urls`.

    An empty `proxy` stands for the environment's; `ca` and `client` (certificate, key) are files.
    """

    urls: Sequence[str]
    proxy: str = ""
    ca: str = ""
    client: Sequence[str] = ()
    needed: bool = True


@dataclass(frozen=True)
class ModuleStream:
    """A module stream of dnf (`nvidia-driver:580-open`); apt has none."""

    module: str
    stream: str


@dataclass(frozen=True)
class PackageSet:
    """Everything that a layer needs from the package manager."""

    repositories: Sequence[Repository] = ()
    streams: Sequence[ModuleStream] = ()
    stages: Sequence[Stage] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Packages that must not be installed, with the reason."""
    held: Sequence[str] = ()
    """Other packages, which are only held at the installed version (the kernel)."""
    kernels: Sequence[str] = ()
    """How to recognise other packages that would install another kernel: patterns of their
    dependencies (apt), or a capability that they provide (dnf).
    """
    preferred: Mapping[str, str] = field(default_factory=dict)
    """Maps a package name or pattern (`mft*`) to `Repository.name`, for packages in several
    repositories. The repository may belong to another layer.
    """
    claims: Mapping[str, str] = field(default_factory=dict)
    """Files that other packages contain too, without a conflict visible to the solver; maps the
    path to the package of the set.
    """

    @property
    def packages(self) -> list[WantedPackage]:
        return [package for stage in self.stages for package in stage.packages]


INSTALL, UPGRADE, DOWNGRADE, REMOVE = "install", "upgrade", "downgrade", "remove"


@dataclass(frozen=True)
class PackageChange:
    """One line of a transaction. `before` and `after` are full versions, empty if absent."""

    kind: str
    name: str
    before: str
    after: str


class Manager(ABC):
    """The package manager of one node, for the set of one layer.

    Versions are complete, as the package manager writes them. File names contain `layer` (`rdma`,
    `gpu`), so that layers do not undo each other. Reading works in check mode: it only writes to
    the metadata cache.
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
        """Plan keys, then definitions that name them; files of a former set are removed."""
        repositories = self.wanted.repositories
        keys = [
            self._file(self.key_path(source), source.key.decode("utf-8", "surrogateescape"))
            for source in repositories
        ]
        definitions = [
            self._file(self.definition_path(source.name), self.definition(source))
            for source in repositories
        ]
        kept = {planned.path for planned in (*keys, *definitions)}
        old = [self._file(path, None) for path in self.own_files() if path not in kept]
        return [*keys, *definitions, *old, *self.rivals()]

    def rivals(self) -> list[FilePlan]:
        """Plan changes to foreign definitions that conflict with the set's."""
        return []

    def wait(self) -> None:
        """Wait until no other package manager runs. Raises PackageError after `wait_s` seconds."""

        def idle() -> bool:
            if not self.busy():
                return True
            self.forget()
            return False

        if not until(idle, self.wait_s):
            raise PackageError(
                f"another package manager is running for more than {self.wait_s:g} s. Let it "
                "finish, then run again"
            )

    @abstractmethod
    def forget(self) -> None:
        """Drop cached answers about packages."""

    @abstractmethod
    def busy(self) -> bool:
        """Return whether another package manager is running."""

    @abstractmethod
    def interrupted(self) -> Mapping[str, str]:
        """Return packages that an interrupted transaction left unfinished, with a description.

        An empty name stands for the package manager itself. Waits while another one runs.
        """

    @abstractmethod
    def repair(self) -> None:
        """Finish or undo an interrupted transaction with packages that are on the node."""

    @abstractmethod
    def key_path(self, repository: Repository) -> Path: ...

    @abstractmethod
    def definition_path(self, name: str) -> Path: ...

    @abstractmethod
    def definition(self, repository: Repository) -> str: ...

    @abstractmethod
    def own_files(self) -> Iterable[Path]:
        """Return definitions and keys of this layer that are on the node."""

    @abstractmethod
    def defined(self, name: str) -> bool:
        """Return whether any layer has the repository defined."""

    @abstractmethod
    def locations(self) -> list[Location]:
        """Return the locations of the node's and the set's repositories, without fetching."""

    @abstractmethod
    def refresh(self) -> None:
        """Fetch and verify metadata of the set's repositories, which must be defined."""

    @abstractmethod
    def installed(self) -> Mapping[str, str]: ...

    @abstractmethod
    def available(
        self, names: Sequence[str], repositories: Optional[Sequence[Repository]] = None
    ) -> Mapping[str, Sequence[str]]:
        """Return versions in all or these repositories, newest first; empty for unknown names."""

    @abstractmethod
    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Return installed packages that `names` depend on at any depth, without `names`."""

    @abstractmethod
    def bringing(self) -> frozenset[str]:
        """Return installed packages whose upgrade would install another kernel (`kernels`)."""

    @abstractmethod
    def lower(self, one: str, other: str) -> bool: ...

    @abstractmethod
    def upstream(self, version: str) -> str:
        """Return the version without epoch and revision."""

    def owner(self, path: str) -> str:
        """Return the installed package that contains the file, or None if it is unknown."""
        return ""

    def stream_changes(self) -> list[PackageChange]:
        """Return the module streams that differ from the set."""
        return []

    @abstractmethod
    def switch_streams(self) -> None:
        """Enable the set's streams instead of other streams of their modules."""

    @abstractmethod
    def simulate(
        self, exact: Mapping[str, str], remove: Sequence[str], whole: Mapping[str, str]
    ) -> list[PackageChange]:
        """Return the solver's transaction for these versions. Raises PackageError if there is none.

        This layer's pins and holds are ignored, those of others are respected. `whole` is the whole
        set: dependencies get its versions where repositories have them, as a driver does not work
        with libraries of another release.
        """

    @abstractmethod
    def apply(self, exact: Mapping[str, str], remove: Sequence[str]) -> None:
        """Carry out that transaction, removing only `remove`. The pin file is already on the
        node.
        """

    @abstractmethod
    def pin_file(self, pins: Mapping[str, str]) -> FilePlan:
        """Plan the file that protects the packages in `pins` from any upgrade."""

    @abstractmethod
    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """Return the pins on the node, of one layer or of all layers."""

    @abstractmethod
    def held(self) -> frozenset[str]: ...

    @abstractmethod
    def hold(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def release(self, names: Sequence[str]) -> None: ...


def locked_by_another(path: Path) -> bool:
    """Return whether another program holds the lock file, which apt, dpkg and rpm lock (fcntl)."""
    try:
        stream = path.open("r+")
    except OSError:
        return False  # missing or unreadable
    with stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
    return False

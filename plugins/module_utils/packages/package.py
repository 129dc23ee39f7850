# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sets, and the interface that apt and dnf implement."""

from __future__ import annotations

import fcntl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file
from ..core.messages import Message
from ..core.waiting import until

OURS = "baremetal-mpi-roce-"
"""Prefix of file names and repository IDs."""
WAIT_S = 300.0


class PackageError(CommandError):
    """Packages cannot be planned or changed. `refusals`: the lines of a refused plan."""

    def __init__(self, text: str, refusals: Sequence[Message] = ()) -> None:
        super().__init__(text)
        self.refusals = list(refusals)


@dataclass(frozen=True)
class WantedPackage:
    """`version`: the upstream version or its beginning (`13.0`; see `matches`), without epoch and
    revision. If empty, the first installation takes the newest version, which is then held.
    `component`: key of the version in the set (`driver`, `cuda`), for messages. `follows`: the
    version belongs to the repository's release; the package is updated to it whenever another one
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
    part of it (`2.28.3-1+cuda13`, `5.14.0-570.12.1.el9_6`).
    """
    bare = full.partition(":")[2] or full
    after = bare[len(wanted) : len(wanted) + 1]
    begins = bare.startswith(wanted) and not (after.isalnum() or after == "~")
    return not wanted or wanted == full or begins


@dataclass(frozen=True)
class Stage:
    """One transaction. `replaced`: names or patterns of packages that it may remove."""

    name: str
    packages: Sequence[WantedPackage]
    replaced: Sequence[str] = ()


@dataclass(frozen=True)
class Repository:
    """Files are named after `name`. `url` is that of a flat repository for apt. `key` is the
    armoured public key. `check_metadata` (dnf): the metadata are signed.
    """

    name: str
    url: str
    key: bytes
    key_sha256: str
    check_metadata: bool = True

    def unverified(self, why: str) -> str:
        return (
            f"repository {self.name} ({self.url}): its metadata could not be fetched and verified "
            f"by the key of the set (sha256 {self.key_sha256}). Check the address, and whether the "
            f"vendor has a new key: {why}"
        )


@dataclass(frozen=True)
class Location:
    """Metadata at any of `urls`. An empty `proxy` stands for the environment's; `ca` and `client`
    (certificate, key) are files.
    """

    urls: Sequence[str]
    proxy: str = ""
    ca: str = ""
    client: Sequence[str] = ()
    needed: bool = True


@dataclass(frozen=True)
class ModuleStream:
    """Of dnf only: `nvidia-driver:580-open`."""

    module: str
    stream: str


@dataclass(frozen=True)
class PackageSet:
    repositories: Sequence[Repository] = ()
    streams: Sequence[ModuleStream] = ()
    stages: Sequence[Stage] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Packages that must not be installed, with the reason."""
    held: Sequence[str] = ()
    """Other packages, which are only held at the installed version (the kernel)."""
    kernels: Sequence[str] = ()
    """How to recognise packages that would install another kernel: patterns of their dependencies
    (apt), or a capability that they provide (dnf)."""
    preferred: Mapping[str, str] = field(default_factory=dict)
    """Package name or pattern (`mft*`) to `Repository.name`, which may belong to another layer."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """Path to the package of the set that contains it, in conflicts that the solver cannot see."""

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
    `gpu`), so that layers do not undo each other. Reading writes only to the metadata cache.
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
        self._file = partial(plan_file, uid=uid, gid=gid)

    def repository_files(self) -> list[FilePlan]:
        """Plan keys, then definitions that name them; files of a former set are removed."""
        sources = self.wanted.repositories
        texts = {
            **{self.key_path(x): x.key.decode("utf-8", "surrogateescape") for x in sources},
            **{self.definition_path(x.name): self.definition(x) for x in sources},
        }
        old = [self._file(path, None) for path in self.own_files() if path not in texts]
        return [*(self._file(*each) for each in texts.items()), *old, *self.rivals()]

    def rivals(self) -> list[FilePlan]:
        """Plan changes to foreign definitions of the set's repositories."""
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
    def forget(self) -> None: ...

    @abstractmethod
    def busy(self) -> bool: ...

    @abstractmethod
    def interrupted(self) -> Mapping[str, str]:
        """Unfinished packages with a description; an empty name stands for the package manager."""

    @abstractmethod
    def repair(self) -> None: ...

    @abstractmethod
    def key_path(self, repository: Repository) -> Path: ...

    @abstractmethod
    def definition_path(self, name: str) -> Path: ...

    @abstractmethod
    def definition(self, repository: Repository) -> str: ...

    @abstractmethod
    def own_files(self) -> Iterable[Path]: ...

    @abstractmethod
    def locations(self) -> list[Location]: ...

    @abstractmethod
    def refresh(self) -> None: ...

    @abstractmethod
    def installed(self) -> Mapping[str, str]: ...

    @abstractmethod
    def available(
        self, names: Sequence[str], repositories: Optional[Sequence[Repository]] = None
    ) -> Mapping[str, Sequence[str]]:
        """Versions in all or these repositories, newest first; empty for unknown names."""

    @abstractmethod
    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Installed packages that `names` depend on at any depth, without `names`."""

    @abstractmethod
    def bringing(self) -> frozenset[str]:
        """Installed packages whose upgrade would install another kernel (`kernels`)."""

    @abstractmethod
    def lower(self, one: str, other: str) -> bool: ...

    @abstractmethod
    def upstream(self, version: str) -> str:
        """The version without epoch and revision."""

    def owner(self, path: str) -> str:
        """The installed package that contains the file, if known."""
        return ""

    def stream_changes(self) -> list[PackageChange]:
        return []

    def switch_streams(self) -> None:
        """Enable the set's streams."""
        return

    @abstractmethod
    def simulate(
        self, exact: Mapping[str, str], remove: Sequence[str], whole: Mapping[str, str]
    ) -> list[PackageChange]:
        """The solver's transaction for these versions, without this layer's pins and holds.

        Raises PackageError if there is none. `whole` is the whole set: dependencies get its
        versions, as a driver does not work with libraries of another release.
        """

    @abstractmethod
    def apply(self, exact: Mapping[str, str], remove: Sequence[str]) -> None:
        """Carry out that transaction, removing only `remove`, with the pin file on the node."""

    @abstractmethod
    def pin_file(self, pins: Mapping[str, str]) -> FilePlan: ...

    @abstractmethod
    def pinned(self, layer: str = "") -> Mapping[str, str]: ...

    @abstractmethod
    def held(self) -> frozenset[str]: ...

    def hold(self, names: Sequence[str]) -> None:
        """Hold packages; the pin file does that with dnf."""
        return

    def release(self, names: Sequence[str]) -> None:
        """Let packages change."""
        return


def locked_by_another(path: Path) -> bool:
    """Whether another program holds the lock file, which apt, dpkg and rpm lock (fcntl)."""
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

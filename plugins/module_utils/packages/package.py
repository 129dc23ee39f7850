# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wanted of a package manager, in words that apt and dnf share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ..core.dataclass import dataclass


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

    `name` is stable and names the files. `url` is `https://`, `http://` or `file:///`, the base of
    the repository. `suites` and `components` are apt's; a flat repository (`/`) has no components.
    `check_metadata` (dnf): the metadata carry a signature too.
    """

    name: str
    url: str
    key: bytes
    key_sha256: str
    suites: Sequence[str] = ("/",)
    components: Sequence[str] = ()
    check_metadata: bool = True


@dataclass(frozen=True)
class Stream:
    """A module stream of dnf (`nvidia-driver:580-open`). apt has none."""

    module: str
    stream: str


@dataclass(frozen=True)
class PackageSet:
    """Everything that a layer wants of the package manager.

    `preferred` says which repository a package comes from when several have it: package name or
    pattern (`mft*`) to `Repository.name`. `beside` are repositories that another layer brings, and
    that packages of this one may come from: they are looked into while planning, also where that
    layer has not run yet, and never defined here. `absent` are packages that must not be there,
    each with the reason; `held` are further packages that are only held at what is installed (the
    kernel).
    """

    repositories: Sequence[Repository] = ()
    streams: Sequence[Stream] = ()
    stages: Sequence[Stage] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[Repository] = ()


INSTALL, UPGRADE, DOWNGRADE, REMOVE = "install", "upgrade", "downgrade", "remove"


@dataclass(frozen=True)
class Change:
    """One line of a transaction; `before` and `after` are full versions, empty where not there."""

    kind: str
    name: str
    before: str
    after: str

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""apt as it would see the node with other repositories, pins and holds, in a directory of its own.

Planning needs the metadata of repositories that are not defined on the node yet, and a solver that
does not know the pins of the set as it was. Both are given to apt by options, in a directory that
is gone afterwards. Of what other programs read only the lists are written, as `apt-get update` does
it: what cannot be fetched or verified changes none of them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..core.commands import CommandError, Runner
from ..core.files import make_directories
from . import apt_preferences, apt_sources
from .manager import PackageError, held_by_another, until_free
from .package import Repository

STRICT = (
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
    "APT::Get::AllowUnauthenticated=false",
)
"""Whatever the operator's own apt.conf allows: of our repositories nothing comes in unverified."""

FETCH = (
    *STRICT,
    "APT::Update::Error-Mode=any",
    "APT::Get::List-Cleanup=false",
    "Acquire::Languages=none",
    # A mirror that was given names of its own; its key is what vouches for it.
    "Acquire::AllowReleaseInfoChange=true",
    "Acquire::Retries=2",
    "Acquire::http::Timeout=30",
    "Acquire::https::Timeout=30",
)

_SIGNATURE = re.compile(
    r"GPG error|NO_PUBKEY|BADSIG|KEYSIG|EXPSIG|is not signed|verified|OpenPGP|gpgv", re.IGNORECASE
)
_TAKEN = re.compile(
    r"Signature by key \S+ uses weak (digest )?algorithm|Conflicting distribution: ", re.IGNORECASE
)
_LISTS_LOCK = "var/lib/apt/lists/lock"
_STATUS = "var/lib/dpkg/status"


def options(settings: Iterable[str]) -> list[str]:
    return [word for setting in settings for word in ("-o", setting)]


class View:
    """The directory. It goes when the object goes."""

    def __init__(self, run: Runner, root: Path) -> None:
        self._run, self._root = run, root
        self._directory = tempfile.TemporaryDirectory(prefix="baremetal-mpi-roce-apt-")
        self.where = Path(self._directory.name)
        self.where.chmod(0o755)  # apt fetches and verifies as a user of its own
        for name in ("sources", "keys", "preferences"):
            make_directories(self.where / name)
        self.warnings: list[str] = []
        """What apt said of repositories that it verified and took all the same."""
        self._database = ""
        self._link("etc/apt/sources.list.d", "sources")
        self.release(())

    def words(self) -> list[str]:
        """Options that send apt-get and apt-cache here."""
        return options(
            (
                f"Dir::Etc::sourceparts={self.where}/sources",
                f"Dir::Etc::preferencesparts={self.where}/preferences",
                f"Dir::State::status={self.where}/status",
                f"Dir::Cache::pkgcache={self.where}/pkgcache.bin",
                f"Dir::Cache::srcpkgcache={self.where}/srcpkgcache.bin",
                "Dir::Log::Planner=/dev/null",
            )
        )

    def _link(self, there: str, here: str) -> None:
        """What the node has stays readable here, unless this has something of that name."""
        directory = self._root / there
        for path in sorted(directory.glob("*")) if directory.is_dir() else ():
            link = self.where / here / path.name
            if path.is_file() and not link.exists():
                link.symlink_to(path)

    def define(self, repositories: Sequence[Repository]) -> None:
        """Fetch and verify these, one after another so that each failure has a name."""
        self._clear("sources")
        for repository in repositories:
            self._fetch(repository)
        for repository in repositories:
            self._define(repository, self.where / "sources")
        self._link("etc/apt/sources.list.d", "sources")
        try:
            self._run(["apt-get", *self.words(), "indextargets"])
        except CommandError as error:
            raise PackageError(
                f"the repositories of the set do not go together with those on the node: {error}. "
                "Nothing was changed. Where a file below /etc/apt/sources.list.d has the same "
                "repository with another key, remove that file (the vendor's keyring package "
                "brings one)"
            ) from error

    def _clear(self, name: str) -> None:
        shutil.rmtree(self.where / name)
        make_directories(self.where / name)

    def _define(self, repository: Repository, directory: Path) -> None:
        key = self.where / "keys" / apt_sources.key_name(repository)
        key.write_bytes(repository.key)
        key.chmod(0o644)
        text = apt_sources.render(repository, key, ())
        (directory / apt_sources.source_name(repository.name)).write_text(text, encoding="utf-8")

    def _fetch(self, repository: Repository) -> None:
        alone = self.where / f"only-{repository.name}"
        alone.mkdir(exist_ok=True)
        self._define(repository, alone)
        words = options(
            (*FETCH, "Dir::Etc::sourcelist=/dev/null", f"Dir::Etc::sourceparts={alone}")
        )
        until_free(lambda: held_by_another(self._root / _LISTS_LOCK))
        try:
            result = self._run(["apt-get", *self.words(), *words, "update"], check=False)
        except CommandError as error:
            raise PackageError(
                f"repository {repository.name} ({repository.url}): {error}"
            ) from error
        told = complaints(result.stdout + result.stderr)
        if result.rc == 0:
            self.warnings += [line for line in told if _only_warns(line)]
            told = [line for line in told if not _only_warns(line)]
            if not told:
                return
        where = f"repository {repository.name} ({repository.url})"
        what = "\n    ".join(told) or f"exit status {result.rc}"
        if any(_SIGNATURE.search(line) for line in told):
            raise PackageError(
                f"{where}: its metadata are not signed by the key of the set (sha256 "
                f"{repository.key_sha256}). Nothing was changed; what was fetched before stays in "
                "use. Find out whether the repository is what it should be; where the vendor has a "
                f"new key, change the key and its sum in the set. apt says:\n    {what}"
            )
        raise PackageError(
            f"{where}: cannot be read. Nothing was changed; what was fetched before stays in use. "
            f"Check the address and whether this node reaches it. apt says:\n    {what}"
        )

    def pin(self, pins: Mapping[str, str], instead_of: str) -> None:
        """These pins in place of those of one layer; everybody else's stay in force."""
        self._clear("preferences")
        self._link(apt_preferences.DIRECTORY, "preferences")
        if instead_of:
            (self.where / "preferences" / instead_of).unlink(missing_ok=True)
        text = apt_preferences.render(pins, {})
        (self.where / "preferences/00-planned.pref").write_text(text, encoding="utf-8")

    def release(self, names: Iterable[str]) -> None:
        """The database of dpkg as if these were not held."""
        text = (self._root / _STATUS).read_text(encoding="utf-8", errors="surrogateescape")
        free = frozenset(names)
        database = "\n\n".join(_released(stanza, free) for stanza in text.split("\n\n"))
        if database != self._database:
            self._database = database
            status = self.where / "status"
            status.write_text(database, encoding="utf-8", errors="surrogateescape")
            (self.where / "pkgcache.bin").unlink(missing_ok=True)  # made from what it was


def _released(stanza: str, names: frozenset[str]) -> str:
    if not names or "\nStatus: hold " not in stanza:
        return stanza
    found = re.match(r"Package: (\S+)", stanza.lstrip("\n"))
    if found is None or found.group(1) not in names:
        return stanza
    return stanza.replace("\nStatus: hold ", "\nStatus: install ", 1)


def complaints(text: str) -> list[str]:
    """apt's warnings and errors. A warning of `update` is a repository that was left out."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith(("E:", "W:")) and not _harmless(line)]


def _only_warns(line: str) -> bool:
    """That apt took a repository although a signature's algorithm is weak, or its Release file
    names another distribution. What it did not take, it says otherwise or is an error."""
    return line.startswith("W:") and bool(_TAKEN.search(line))


def _harmless(line: str) -> bool:
    """That a file: repository is read as root, and that a file is configured twice."""
    return "unsandboxed as root" in line or "configured multiple times" in line


def without_credentials(repository: Repository) -> str:
    """The address as apt prints it."""
    url = re.sub(r"//[^/@]*@", "//", repository.url)
    return re.sub(r"^file:/+", "file:/", url).rstrip("/")

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package manager apt: apt-get, apt-cache, apt-mark, dpkg and dpkg-query, without python3-apt."""

from __future__ import annotations

import fnmatch
import functools
import re
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.commands import Runner, output
from ..core.files import FilePlan, with_header
from . import apt_sources, dpkg
from .apt_failure import AFTERWARDS, refusal, unmet
from .apt_sources import address
from .package import (
    DOWNGRADE,
    INSTALL,
    OURS,
    REMOVE,
    UPGRADE,
    WAIT_S,
    Location,
    Manager,
    PackageChange,
    PackageError,
    PackageSet,
    Repository,
    locked_by_another,
)

TIMEOUT_S = 3600.0
"""Limit of one transaction, in which DKMS may build modules."""
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # needrestart would restart services during the run
}
KEEP_CONFFILES = ("--force-confdef", "--force-confold")
STRICT = (  # overrides a weaker apt.conf
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
    "APT::Get::AllowUnauthenticated=false",
)
TRANSACTION = (
    *STRICT,
    *(f"Dpkg::Options::={word}" for word in KEEP_CONFFILES),
    f"DPkg::Lock::Timeout={WAIT_S:g}",
    "Dpkg::Use-Pty=0",
    "APT::Get::AutomaticRemove=false",
    "Acquire::Retries=2",
)
SOLVER = (
    # Ubuntu 25.10 and later default to solver 3.0, which chooses differently and reports conflicts
    # in another format (linuxconfig.org/what-is-new-in-apt-3-1-on-ubuntu-26-04).
    "APT::Solver=internal",
    # Recommended packages would depend on what other repositories offer.
    "APT::Install-Recommends=false",
    "APT::Install-Suggests=false",
)
FETCH = (
    *STRICT,
    "APT::Update::Error-Mode=any",
    "APT::Get::List-Cleanup=false",
    "Acquire::Languages=none",
    # A mirror may rename its release; the signing key identifies it.
    "Acquire::AllowReleaseInfoChange=true",
    "Acquire::Retries=2",
    "Acquire::http::Timeout=30",
    "Acquire::https::Timeout=30",
    "Dir::Cache::pkgcache=",
    "Dir::Cache::srcpkgcache=",
    "Dir::Etc::sourceparts=/dev/null",
)
QUIET = ("Debug::NoLocking=true", "Dir::Log::Planner=/dev/null")

_INST = re.compile(r"Inst (\S+) (?:\[(\S+)\] )?\((\S+) ")
_REMV = re.compile(r"(?:Remv|Purg) (\S+) \[(\S+)\]")
_ACQUIRE = re.compile(r'^Acquire::(http\S+) "(.+)";$', re.MULTILINE)
_TARGET = "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(SUITE)|$(CODENAME)"
_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock")
"""apt holds the first lock during its whole run, dpkg the second one while it runs."""
SOURCES, KEYRINGS = "etc/apt/sources.list.d", "etc/apt/keyrings"


def options(settings: Iterable[str]) -> list[str]:
    return [word for setting in settings for word in ("-o", setting)]


NODE = functools.partial(commands.run, timeout_s=TIMEOUT_S, env=ENVIRONMENT)


class Apt(Manager):
    _view: Optional[AptView] = None
    _known: Optional[dpkg.DpkgState] = None
    _unmet: Optional[dict[str, str]] = None
    _unrepaired = ""
    """Why `repair` left a package of the set to `apply`."""

    def __init__(self, wanted: PackageSet, layer: str, run: Runner = NODE, **where: Any) -> None:
        super().__init__(wanted, layer, run, **where)

    def forget(self) -> None:
        self._view = self._known = self._unmet = None

    def _state(self) -> dpkg.DpkgState:
        if self._known is None:
            native = self.run(["dpkg", "--print-architecture"]).stdout.strip()
            self._known = dpkg.parse_state(self.run(dpkg.QUERY).stdout, native)
        return self._known

    def installed(self) -> Mapping[str, str]:
        return self._state().installed

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        return self._state().needs(names)

    def bringing(self) -> frozenset[str]:
        return self._state().bringing(self.wanted.kernels)

    def held(self) -> frozenset[str]:
        return frozenset(self._state().held)

    def hold(self, names: Sequence[str]) -> None:
        self._mark("hold", names)

    def release(self, names: Sequence[str]) -> None:
        self._mark("unhold", names)

    def _mark(self, what: str, names: Sequence[str]) -> None:
        there = [name for name in names if name in self.installed()]
        if there:
            self.run(["apt-mark", *options([f"DPkg::Lock::Timeout={WAIT_S:g}"]), what, *there])
            self._known = None

    def available(
        self, names: Sequence[str], repositories: Optional[Sequence[Repository]] = None
    ) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {name: [] for name in names}
        if not names:
            return found
        sites = None if repositories is None else {address(each.url) for each in repositories}
        # One line per version and source.
        for line in self.run(["apt-cache", *self._words(), "madison", *names]).stdout.splitlines():
            name, version, source = (word.strip() for word in line.split("|"))
            site, _blank, index = source.partition(" ")
            if not index.endswith("Packages") or name not in found or version in found[name]:
                continue
            if sites is None or site.rstrip("/") in sites:
                found[name].append(version)
        return found

    def lower(self, one: str, other: str) -> bool:
        return self.run(["dpkg", "--compare-versions", one, "lt", other], check=False).rc == 0

    def upstream(self, version: str) -> str:
        without = version.partition(":")[2] or version
        return without.rpartition("-")[0] or without

    def owner(self, path: str) -> str:
        return dpkg.owner_of(path, self.run(["dpkg-query", "-S", path], check=False).stdout)

    def key_path(self, repository: Repository) -> Path:
        return self.root / KEYRINGS / f"{OURS}{repository.name}.asc"

    def definition_path(self, name: str) -> Path:
        return self.root / SOURCES / f"{OURS}{name}.sources"

    def definition(self, repository: Repository) -> str:
        return with_header(
            f"{self._mine}\nTypes: deb\nURIs: {repository.url}\nSuites: /\n"
            f"Signed-By: {self.key_path(repository)}\n"
        )

    @property
    def _mine(self) -> str:
        return f"# For the layers: {self.layer}"

    def own_files(self) -> Iterable[Path]:
        for path in sorted((self.root / SOURCES).glob(f"{OURS}*.sources")):
            if self._mine in path.read_text(encoding="utf-8").splitlines():
                yield path
                yield from (self.root / KEYRINGS).glob(f"{path.stem}.*")

    def rivals(self) -> list[FilePlan]:
        mine = {address(repository.url) for repository in self.wanted.repositories}
        return [*apt_sources.rivals(self.root, mine)]

    def locations(self) -> list[Location]:
        listed = self.run(["apt-get", *options(QUIET), "update", "--print-uris"], check=False)
        if listed.rc != 0:
            raise PackageError(f"{apt_sources.twice(self.rivals())}{refusal(listed)}")
        bases = re.findall(r"^'(.+/)InRelease' ", listed.stdout, re.MULTILINE)
        bases += [f"{repository.url.rstrip('/')}/" for repository in self.wanted.repositories]
        dump = self.run(["apt-config", "dump", "Acquire"]).stdout
        words = {key.lower(): value for key, value in _ACQUIRE.findall(dump)}
        return [_location(base, words) for base in bases]

    def refresh(self) -> None:
        self._view = None
        for repository in self.wanted.repositories:
            source = self.definition_path(repository.name)
            words = options((*FETCH, f"Dir::Etc::sourcelist={source}"))
            self.wait()
            result = self.run(["apt-get", *words, "update"], check=False)
            if result.rc != 0:
                raise PackageError(repository.unverified(refusal(result)))

    def _words(self) -> list[str]:
        return [] if self._view is None else self._view.words()

    def simulate(
        self, exact: Mapping[str, str], remove: Sequence[str], whole: Mapping[str, str]
    ) -> list[PackageChange]:
        if self._view is None:
            self._view = AptView(self.root)
        pins = {**self._bound(whole), **whole}
        text = dpkg.render_pins(pins, self._preferred(), whole.values())
        self._view.pin(text, self._pins_path(self.layer).name)
        self._view.release([*self.pinned(self.layer), *exact, *remove])
        found = self._solve(exact, remove, self._view.words())
        coming = [change.name for change in found if change.after]
        for pattern, name in self.wanted.preferred.items():
            # dnf's definition excludes such packages; apt would take another repository's.
            if not self.definition_path(name).exists() and fnmatch.filter(coming, pattern):
                where = f"repository {name}, which the node does not define"
                raise PackageError(f"{pattern} must come from {where}: run --tags rdma,gpu")
        return found

    def _bound(self, pins: Mapping[str, str]) -> dict[str, str]:
        """Dependencies of `pins`, at any depth, that accept exactly one version: apt takes their
        newest one, which then conflicts.
        """
        bound: dict[str, str] = {}
        todo = dict(pins)
        while todo:
            argv = ["apt-cache", *self._words(), "show"]
            argv += [f"{name}={version}" for name, version in sorted(todo.items())]
            todo = {}
            for line in self.run(argv, check=False).stdout.splitlines():
                name, _colon, relations = line.partition(": ")
                if name in ("Depends", "Pre-Depends"):
                    todo.update(dpkg.exactly(relations))
            todo = {name: at for name, at in todo.items() if name not in bound and name not in pins}
            bound.update(todo)
        return bound

    def _solve(
        self, exact: Mapping[str, str], remove: Sequence[str], words: Sequence[str]
    ) -> list[PackageChange]:
        settings = options((*SOLVER, *STRICT, *QUIET))
        argv = ["apt-get", *words, *settings, "-s", *self._install(exact, remove)]
        result = self.run(argv, check=False)
        if result.rc != 0:
            raise PackageError(self._cause(refusal(result, self.root)))
        found = []
        for line in result.stdout.splitlines():
            install, removal = _INST.match(line), _REMV.match(line)
            if install:
                name, after = install.group(1), install.group(3)
                before = self.installed().get(name, "")
                if before != after:  # otherwise a reinstallation
                    lower = before and self.lower(after, before)
                    kind = DOWNGRADE if lower else UPGRADE if before else INSTALL
                    found.append(PackageChange(kind, name, before, after))
            elif removal:
                found.append(PackageChange(REMOVE, removal.group(1), removal.group(2), ""))
        return found

    def apply(self, exact: Mapping[str, str], remove: Sequence[str]) -> None:
        planned = self._solve(exact, remove, []) if remove else []
        more = [each.name for each in planned if each.kind == REMOVE and each.name not in remove]
        if more:
            raise PackageError(f"apt would also remove {', '.join(more)}. Remove them first")
        guard = ["--allow-downgrades", *([] if remove else ["--no-remove"])]
        try:
            self._transaction([*guard, *self._install(exact, remove)])
        except PackageError as error:
            raise PackageError(self._cause(str(error))) from error

    def _cause(self, why: str) -> str:
        """The cause of the failed repair, if `why` is only a consequence of it."""
        before = self._unrepaired
        return before if before and AFTERWARDS.search(why) else why

    def _install(self, exact: Mapping[str, str], remove: Sequence[str]) -> list[str]:
        """Arguments of apt-get; broken packages of the desired version are reinstalled."""
        at = {**self.pinned(), **exact}
        broken = {name: at[name] for name in self._state().unfinished if at.get(name)}
        named = [f"{name}={version}" for name, version in sorted({**broken, **exact}.items())]
        return ["install", *(["--reinstall"] if broken else []), *named, *(f"{x}-" for x in remove)]

    def _transaction(self, words: Sequence[str]) -> None:
        self.forget()
        argv = ["apt-get", "-y", "-q", *options((*TRANSACTION, *SOLVER)), *words]
        try:
            result = self.run(argv, check=False)
        finally:
            self.forget()
        if result.rc != 0:
            raise PackageError(refusal(result, self.root))

    def _pins_path(self, layer: str) -> Path:
        return self.root / dpkg.PREFERENCES / f"{dpkg.PINS}{layer}.pref"

    def pin_file(self, pins: Mapping[str, str]) -> FilePlan:
        preferred = self._preferred()
        text = dpkg.render_pins(pins, preferred) if pins or preferred else None
        return self._file(self._pins_path(self.layer), text)

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        return dpkg.pinned(self.root, layer)

    def _preferred(self) -> dict[str, str]:
        """Package pattern to the release fields of its preferred repository, if that is this
        layer's. Without metadata (lists were cleaned), the file's current values stay.
        """
        known = dpkg.records(self._pins_path(self.layer), dpkg.PREFERRED)
        sites = {each.name: address(each.url) for each in self.wanted.repositories}
        mine = {x: sites[name] for x, name in self.wanted.preferred.items() if name in sites}
        terms = self._terms() if mine else {}
        found = {pattern: terms.get(site) or known.get(pattern) for pattern, site in mine.items()}
        return {pattern: term for pattern, term in found.items() if term}

    def _terms(self) -> dict[str, str]:
        argv = ["apt-get", *self._words(), "indextargets", "--format", _TARGET]
        terms = {}
        for line in self.run([*argv, "Created-By: Packages"], check=False).stdout.splitlines():
            site, *values = line.split("|")
            # apt prints the variable itself if the Release file lacks the field.
            fields = [
                f"{key}={value}"
                for key, value in zip("olan", values)
                if value and not value.startswith("$(") and not re.search(r"[,|]", value)
            ]
            if fields:
                terms[site.rstrip("/")] = f"release {','.join(fields)}"
        return terms

    def busy(self) -> bool:
        return any(locked_by_another(self.root / path) for path in _LOCKS)

    def interrupted(self) -> Mapping[str, str]:
        self.wait()
        left = self._state().unfinished
        if left:
            return {name: f"dpkg left {name} half done ({how})" for name, how in left.items()}
        updates = self.root / "var/lib/dpkg/updates"
        if updates.is_dir() and any(path.name.isdigit() for path in updates.iterdir()):
            return {"": "dpkg was interrupted while it wrote its database"}
        if self._unmet is None:
            result = self.run(["apt-get", *options(QUIET), "check"], check=False)
            lines = unmet(result.stdout + result.stderr) if result.rc else []
            self._unmet = {line.split()[0]: f"unmet dependency: {line}" for line in lines}
        return self._unmet

    def repair(self) -> None:
        """Finish packages. One of the set that must be unpacked again is left to `apply`, which
        installs the version desired now.
        """
        self.forget()
        first = self.run(["dpkg", *KEEP_CONFFILES, "--configure", "-a"], check=False)
        reason = ""
        try:
            self._transaction(["install", "-f", "--no-remove"])
        except PackageError as error:
            reason = str(error)
        self.forget()
        self._unrepaired = reason
        left = self._state().unfinished.keys() - self.pinned().keys()
        if left or (reason and not self._state().unfinished):
            raise PackageError(
                f"neither dpkg --configure -a nor apt-get -f install could finish "
                f"{', '.join(sorted(left)) or 'the installation'}: "
                f"{reason or output(first, 1500)}\n"
                "dpkg --remove --force-remove-reinstreq NAME removes a package that cannot be "
                "finished; then run again"
            )


class AptView:
    """apt with different pins and holds, in temporary files that are removed with the object."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = tempfile.TemporaryDirectory(prefix="baremetal-mpi-roce-apt-")
        self.where = Path(self._directory.name)
        self.where.chmod(0o755)  # apt fetches and verifies as an unprivileged user
        (self.where / "preferences").mkdir()
        self._database = ""
        self.release(())

    def words(self) -> list[str]:
        return options(
            (
                f"Dir::Etc::preferencesparts={self.where}/preferences",
                f"Dir::State::status={self.where}/status",
                f"Dir::Cache::pkgcache={self.where}/pkgcache.bin",
                f"Dir::Cache::srcpkgcache={self.where}/srcpkgcache.bin",
                "Dir::Log::Planner=/dev/null",
            )
        )

    def pin(self, text: str, instead_of: str) -> None:
        """Replace one of the node's pin files with `text`; the others stay in force."""
        here = self.where / "preferences"
        for path in here.iterdir():
            path.unlink()
        for path in (self._root / dpkg.PREFERENCES).glob("*"):
            if path.is_file() and path.name != instead_of:
                (here / path.name).symlink_to(path)
        (here / "00-planned.pref").write_text(text, encoding="utf-8")

    def release(self, names: Iterable[str]) -> None:
        """Hide the holds on `names` from apt, using a copy of dpkg's database."""
        path = self._root / "var/lib/dpkg/status"
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        free = frozenset(names)
        database = "\n\n".join(_released(stanza, free) for stanza in text.split("\n\n"))
        if database != self._database:
            self._database = database
            status = self.where / "status"
            status.write_text(database, encoding="utf-8", errors="surrogateescape")
            (self.where / "pkgcache.bin").unlink(missing_ok=True)  # built from the former copy


def _released(stanza: str, names: frozenset[str]) -> str:
    found = re.match(r"\n*Package: (\S+)", stanza)
    if found is None or found.group(1) not in names:
        return stanza
    return stanza.replace("\nStatus: hold ", "\nStatus: install ", 1)


def _location(base: str, words: Mapping[str, str]) -> Location:
    """One address, with the settings of apt-transport-http(1) and -https(1).

    A repository with settings that preflight cannot imitate (proxy auto-detection, a proxy that
    does not speak HTTP, no verification) is not required to respond.
    """
    parts = urllib.parse.urlsplit(base)

    def word(name: str, *kinds: str) -> str:
        keys = [f"{kind}::{name}{of}" for of in (f"::{parts.hostname}", "") for kind in kinds]
        return next((words[key] for key in keys if key in words), "")

    both = ("https", "http") if parts.scheme == "https" else ("http",)
    proxy, client = word("proxy", *both), [word(each, "https") for each in ("sslcert", "sslkey")]
    needed = not (
        (word("proxy-auto-detect", *both) and not proxy)
        or proxy.startswith("socks")
        or "false" in (word("verify-peer", "https"), word("verify-host", "https"))
    )
    urls = [f"{base}InRelease", f"{base}Release"]
    return Location(urls, proxy, word("cainfo", "https"), client if all(client) else (), needed)

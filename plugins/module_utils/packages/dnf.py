# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package manager dnf 4, with rpm: dnf_program.py reads repositories and runs the solver."""

from __future__ import annotations

import configparser
import functools
import json
import pkgutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.files import FilePlan, with_header
from . import dnf_program
from .package import (
    INSTALL,
    OURS,
    REMOVE,
    UPGRADE,
    Location,
    Manager,
    PackageChange,
    PackageError,
    PackageSet,
    Repository,
    WantedPackage,
)
from .planning import any_matches, satisfied
from .rpm import Rpm, split
from .versionlock import CONFIGURATION, VersionLock

INTERPRETER = "/usr/bin/python3"
"""dnf's Python on EL, which has dnf's libraries."""
TIMEOUT_S, QUERY_TIMEOUT_S = 7200.0, 120.0
"""Of dnf, with the build of kernel modules; of rpm, whose database may be locked."""
DEFINITIONS, KEYS = "etc/yum.repos.d", "etc/pki/rpm-gpg"
MODULES = "etc/dnf/modules.d"
NODE = functools.partial(commands.run, timeout_s=TIMEOUT_S)
QUERY = functools.partial(commands.run, timeout_s=QUERY_TIMEOUT_S)


class DnfManager(Manager):
    _directory: Optional[tempfile.TemporaryDirectory[str]] = None

    def __init__(
        self, wanted: PackageSet, layer: str, run: commands.Runner = NODE, *, root: Path = Path("/")
    ) -> None:
        super().__init__(wanted, layer, run, root=root)
        self._rpm, self.locks = Rpm(QUERY if run is NODE else run, root), VersionLock(root)
        self._known: dict[str, list[tuple[str, str]]] = {}

    def forget(self) -> None:
        self._rpm.forget()

    def busy(self) -> bool:
        return self._rpm.busy()

    def interrupted(self) -> Mapping[str, str]:
        self.wait()
        found = {x.name: f"{x.nevra} was being installed by dnf" for x in self._rpm.killed()}
        for kept, old in self._rpm.duplicates():
            found[kept.name] = f"{old.nevra} is still recorded next to {kept.nevra}"
        return found

    def repair(self) -> None:
        """Erase the older of two versions that an upgrade left; rerun unfinished scriptlets."""
        for _kept, old in self._rpm.duplicates():
            self.run([*self._rpm.words, "-e", "--nodeps", old.nevra])
        self.forget()
        killed = self._rpm.killed()
        if not killed:
            return
        # With the streams that are enabled now.
        request = {"packages": [[each.name, each.evr, each.arch] for each in killed], "streams": {}}
        missing = self._ask("reinstall", request, writes=True)["missing"]
        if missing:
            reason = "of a killed transaction: in no repository. Reinstall or remove them"
            raise PackageError(f"{', '.join(missing)} {reason}")

    def _id(self, repository: Repository) -> str:
        """The ID contains the layer, as two layers may define the same repository."""
        return f"{OURS}{self.layer}-{repository.name}"

    def key_path(self, repository: Repository) -> Path:
        return self.root / KEYS / f"RPM-GPG-KEY-{self._id(repository)}"

    def definition_path(self, name: str) -> Path:
        return self.root / DEFINITIONS / f"{OURS}{self.layer}-{name}.repo"

    def definition(self, repository: Repository) -> str:
        lines = [
            f"[{self._id(repository)}]",
            f"name={repository.name} (baremetal.mpi_roce, layer {self.layer})",
            f"baseurl={repository.url}",
            "enabled=1",
            "gpgcheck=1",
            f"repo_gpgcheck={int(repository.check_metadata)}",
            f"gpgkey={self.key_path(repository).as_uri()}",
            "skip_if_unavailable=0",
        ]
        if not self.wanted.streams:
            # A module in another repository must not hide packages of this one.
            lines.append("module_hotfixes=1")
        preferred = self.wanted.preferred.items()
        elsewhere = sorted(pattern for pattern, chosen in preferred if chosen != repository.name)
        if elsewhere:
            lines.append(f"excludepkgs={','.join(elsewhere)}")
        return with_header("\n".join(lines) + "\n")

    def own_files(self) -> Iterable[Path]:
        name = f"{OURS}{self.layer}-*"
        yield from sorted((self.root / DEFINITIONS).glob(f"{name}.repo"))
        yield from sorted((self.root / KEYS).glob(f"RPM-GPG-KEY-{name}"))

    def locations(self) -> list[Location]:
        request = {"urls": [repository.url for repository in self.wanted.repositories]}
        found = self._ask("locations", request)["locations"]
        return [Location(**each) for each in found]

    def refresh(self) -> None:
        self._known = {}
        by_id = {self._id(repository): repository for repository in self.wanted.repositories}
        errors = self._ask("refresh", {"repositories": list(by_id)})["errors"]
        if errors:
            lines = [by_id[name].unverified(text) for name, text in sorted(errors.items())]
            raise PackageError("; ".join(lines))

    def installed(self) -> Mapping[str, str]:
        """Installed packages; of several versions (kernels) the set's, otherwise the newest.

        If the set's version can be installed in parallel, the package counts as not installed.
        """
        there = self._rpm.versions()
        found = {name: self._newest([one.evr for one in same]) for name, same in there.items()}
        for package in self.wanted.packages:
            same = there.get(package.name, [])
            fitting = self._fitting(package, [one.evr for one in same])
            if fitting:
                found[package.name] = fitting
            elif same and self._rpm.parallel(same[0]):
                del found[package.name]
        return found

    def _newest(self, versions: Sequence[str]) -> str:
        return functools.reduce(lambda x, y: y if self.lower(x, y) else x, versions)

    def _fitting(self, package: WantedPackage, found: Iterable[str]) -> str:
        good = [each for each in found if satisfied(package, each)]
        return self._newest(good) if good else ""

    def available(
        self, names: Sequence[str], repositories: Optional[Sequence[Repository]] = None
    ) -> Mapping[str, Sequence[str]]:
        unknown = sorted(set(names) - self._known.keys())
        if unknown:
            self._lock_list("")  # locks hide versions
            answer = self._ask("available", {"names": unknown})["versions"]
            self._known.update(answer)
        ids = None if repositories is None else {self._id(each) for each in repositories}
        return {
            name: [*dict.fromkeys(at for at, of in self._known[name] if ids is None or of in ids)]
            for name in names
        }

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        return self._rpm.needs(names)

    def bringing(self) -> frozenset[str]:
        return self._rpm.providers(self.wanted.kernels)

    def lower(self, one: str, other: str) -> bool:
        return self._rpm.lower(one, other)

    def upstream(self, version: str) -> str:
        return split(version)[1]

    def stream_changes(self) -> list[PackageChange]:
        now = enabled_streams(self.root) if self.wanted.streams else {}
        wanted = {each.module: each.stream for each in self.wanted.streams}
        return [
            PackageChange(
                UPGRADE if name in now else INSTALL, f"module {name}", now.get(name, ""), at
            )
            for name, at in wanted.items()
            if now.get(name) != at
        ]

    def switch_streams(self) -> None:
        self._ask("switch", {}, writes=True)

    def simulate(
        self, exact: Mapping[str, str], remove: Sequence[str], whole: Mapping[str, str]
    ) -> list[PackageChange]:
        if not exact and not remove:
            return []
        # Locks of other layers must not hide a new kernel, which is installed in parallel.
        held = [*self.wanted.held, *self.bringing()]
        free = held if any(any_matches(name, held) for name in exact) else ()
        self._lock_list(self.locks.without(self.layer, free))
        versions = sorted(set(whole.values()))
        request = {"exact": dict(exact), "remove": list(remove), "versions": versions}
        answer = self._ask("simulate", request)
        return [_change(item) for item in answer["changes"] if item["before"] != item["after"]]

    def apply(self, exact: Mapping[str, str], remove: Sequence[str]) -> None:
        # rpm verifies packages with its own keyring. Importing a known key changes nothing.
        for repository in self.wanted.repositories:
            path = self.key_path(repository)
            self._rpm.run(["rpmkeys", *self._rpm.words[1:], "--import", str(path)])
        request = {"exact": dict(exact), "remove": list(remove)}
        self._ask("apply", request, writes=True)

    def pin_file(self, pins: Mapping[str, str]) -> FilePlan:
        if pins and self.locks.off():
            raise PackageError(f"versionlock is off: set enabled = 1 in /{CONFIGURATION}")
        versions = {name: {version} for name, version in pins.items()}
        bringing = self.bringing()
        for package in self._rpm.packages():
            held = any_matches(package.name, self.wanted.held) or package.name in bringing
            if held or (package.name in versions and self._rpm.parallel(package)):
                versions.setdefault(package.name, set()).add(package.evr)
        path, text = self.locks.path, self.locks.with_pins(versions, self.layer)
        return self._file(path, text if text or path.exists() else None)

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """Of several versions of a package the set's, otherwise the newest."""
        wanted = {package.name: package for package in self.wanted.packages}
        return {
            name: (self._fitting(wanted[name], versions) if name in wanted else "")
            or self._newest(versions)
            for name, versions in self.locks.pins(layer).items()
        }

    def held(self) -> frozenset[str]:
        return frozenset(self.locks.pins()) if self.locks.in_force() else frozenset()

    def _private(self) -> Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix=OURS)
            (Path(self._directory.name) / "plugins").mkdir()
        return Path(self._directory.name)

    def _lock_list(self, text: str) -> None:
        plugins = self._private() / "plugins"
        (plugins / "versionlock.list").write_text(text, encoding="utf-8")
        configuration = f"[main]\nlocklist = {plugins}/versionlock.list\n"
        (plugins / "versionlock.conf").write_text(configuration, encoding="utf-8")

    def _ask(self, action: str, more: Mapping[str, Any], *, writes: bool = False) -> dict[str, Any]:
        """Run one action of dnf_program.py, in the private directory unless it `writes`."""
        request = {
            "action": action,
            "root": str(self.root),
            "comment": f"baremetal.mpi_roce: layer {self.layer}",
            "streams": {stream.module: stream.stream for stream in self.wanted.streams},
            # Modules reach a node in an archive, so the program has no file name.
            "program": (pkgutil.get_data(str(__package__), "dnf_program.py") or b"").decode(),
            **more,
        }
        if writes:
            self.wait()
        else:
            request["private"] = str(self._private())
        argv = [INTERPRETER, "-I", "-c", dnf_program.COMMAND]
        try:
            result = self.run(argv, stdin=json.dumps(request), check=False)
        finally:
            if writes:
                self.forget()
        try:
            reply: dict[str, dict[str, Any]] = json.loads(result.stdout)
        except ValueError as error:
            text = commands.output(result, 2000) or "no output"
            how = f"killed by signal {-result.rc}" if result.rc < 0 else f"status {result.rc}"
            raise PackageError(f"dnf ({action}) failed, {how}: {text}") from error
        if "refused" in reply:
            raise PackageError(f"dnf ({action}): {reply['refused']}")
        return reply["done"]


def _change(item: Mapping[str, str]) -> PackageChange:
    before, after = item["before"], item["after"]
    kind = item.get("kind", UPGRADE if before else INSTALL) if after else REMOVE
    return PackageChange(kind, item["name"], before, after)


def enabled_streams(root: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(configparser.Error, UnicodeDecodeError):  # dnf itself reports such a file
        parser.read(sorted((root / MODULES).glob("*.module")), encoding="utf-8")
    return {
        section.get("name", name): section["stream"]
        for name, section in parser.items()
        if section.get("state") == "enabled" and section.get("stream")
    }

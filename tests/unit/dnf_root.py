# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EL-like root directory for the real dnf and rpm, and repositories for it.

Packages contain only scriptlets in Lua, which rpm runs itself, so the root needs no shell. They are
built and signed once for all workers of a test run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.dnf import DnfManager
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageSet,
    Repository,
    Stage,
    WantedPackage,
)

from tests.bed.stand_ins.keys import Key, run

PROGRAMS = ("createrepo_c", "dnf", "gpg", "modifyrepo_c", "rpm", "rpmbuild", "rpmsign")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
PLUGINS = Path("/usr/lib/python3/dist-packages/dnf-plugins")
WHY_NOT = (
    "must be root: rpm changes its root directory"
    if os.geteuid() != 0
    else f"not installed: {', '.join(MISSING)} (requirements/apt-test.txt)"
    if MISSING
    else ""
    if (PLUGINS / "versionlock.py").is_file()
    else "dnf's versionlock plugin is not installed (requirements/apt-test.txt)"
)
ARCHITECTURE = platform.machine()

DIE = 'posix.kill(posix.getprocessid("pid"), 9)'
"""A scriptlet that kills the process that runs the transaction."""


RELATIONS = ("Requires", "Provides", "Conflicts")


@dataclass(frozen=True)
class Rpm:
    """A package to build. `evr` is `[epoch:]version-release`; scriptlets are Lua."""

    name: str
    evr: str
    requires: Sequence[str] = ()
    provides: Sequence[str] = ()
    conflicts: Sequence[str] = ()
    post: str = ""
    stream: str = ""
    """`module:stream` of the package."""
    key: str = "ours"
    """`ours`, `foreign`, or empty for an unsigned package."""

    @property
    def epoch(self) -> str:
        return self.evr.partition(":")[0] if ":" in self.evr else "0"

    @property
    def version(self) -> str:
        return self.evr.split(":")[-1].rpartition("-")[0]

    @property
    def release(self) -> str:
        return self.evr.rpartition("-")[2]

    @property
    def file(self) -> str:
        words = (self.name, self.epoch, self.version, self.release, self.key or "unsigned")
        return f"{'-'.join(words)}.{ARCHITECTURE}.rpm"

    @property
    def artifact(self) -> str:
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{ARCHITECTURE}"

    def specification(self) -> str:
        relations = {name: getattr(self, name.lower()) for name in RELATIONS}
        return "\n".join(
            [
                f"Name: {self.name}",
                *([f"Epoch: {self.epoch}"] if self.epoch != "0" else []),
                f"Version: {self.version}",
                f"Release: {self.release}",
                "Summary: made for a test",
                "License: GPLv3+",
                "AutoReqProv: no",
                # dnf would not accept a package as part of a module without it.
                *([f"ModularityLabel: {self.stream}:1:1"] if self.stream else []),
                *(f"{tag}: {word}" for tag, words in relations.items() for word in words),
                "%description",
                "Made for a test.",
                *([f"%post -p <lua>\n{self.post}"] if self.post else []),
                "%files",
                "",
            ]
        )


class Workshop:
    """Keys and packages, made once in a directory that all workers share."""

    def __init__(self, where: Path) -> None:
        self.where = where
        where.mkdir(parents=True, exist_ok=True)
        with alone(self.where / "lock"):
            self._homes = {name: where / name for name in ("ours", "foreign")}
            for name, home in self._homes.items():
                if not (where / f"{name}.asc").exists():
                    home.mkdir(mode=0o700, exist_ok=True)
                    (where / f"{name}.asc").write_bytes(Key(home, name).public)

    def public(self, name: str = "ours") -> bytes:
        return (self.where / f"{name}.asc").read_bytes()

    def build(self, package: Rpm) -> Path:
        spec = hashlib.sha256(package.specification().encode()).hexdigest()[:16]
        path = self.where / f"{spec}-{package.file}"
        with alone(self.where / "lock"):
            if not path.exists():
                self._build(package, path)
        return path

    def _build(self, package: Rpm, path: Path) -> None:
        work = self.where / "work"
        work.mkdir()
        (work / "a.spec").write_text(package.specification())
        settings = {
            "_topdir": work,
            "_rpmdir": work,
            "_rpmfilename": "built.rpm",
            "__os_install_post": "%{nil}",
            "_build_id_links": "none",
            "debug_package": "%{nil}",
        }
        target = f"--target={ARCHITECTURE}-linux"
        run("rpmbuild", "-bb", "--quiet", target, *defined(settings), work / "a.spec")
        if package.key:
            key = {
                "_gpg_name": package.key,
                "_gpg_path": self._homes[package.key],
                "__gpg": "/usr/bin/gpg",
            }
            run("rpmsign", "--addsign", *defined(key), work / "built.rpm")
        (work / "built.rpm").rename(path)
        shutil.rmtree(work)

    def sign(self, path: Path, name: str = "ours") -> None:
        with alone(self.where / "lock"):
            argv = ["gpg", "--homedir", self._homes[name], "--batch", "--quiet", "--yes"]
            run(*argv, "--local-user", name, "--armor", "--detach-sign", path)

    def end(self) -> None:
        for home in self._homes.values():
            argv = ["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"]
            subprocess.run(argv, check=False, capture_output=True)


def defined(settings: Mapping[str, object]) -> list[str]:
    """Options of rpm that set these macros."""
    return [f"--define={name} {value}" for name, value in settings.items()]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock out other workers; the lock of a dead worker is released."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


class DnfRoot:
    """A node as dnf and rpm see it."""

    def __init__(self, where: Path, workshop: Workshop) -> None:
        self.root, self.repositories, self.workshop = where / "root", where / "repo", workshop
        for folder in ("etc/yum.repos.d", "etc/dnf/plugins", "etc/dnf/vars", "var/tmp", "tmp"):
            (self.root / folder).mkdir(parents=True)
        self.write("etc/os-release", 'ID="rocky"\nVERSION_ID="9.6"\nPLATFORM_ID="platform:el9"\n')
        self.write("etc/dnf/dnf.conf", "[main]\ngpgcheck=1\nbest=True\n")
        self.write("etc/dnf/vars/releasever", "9\n")
        self.plugins = self.root / "usr/lib/python3/dist-packages/dnf-plugins"
        self.plugins.parent.mkdir(parents=True)
        self.plugins.symlink_to(PLUGINS)
        self.locks = self.root / "etc/dnf/plugins/versionlock.list"
        self.write("etc/dnf/plugins/versionlock.list", "")
        self.write(
            "etc/dnf/plugins/versionlock.conf", f"[main]\nenabled = 1\nlocklist = {self.locks}\n"
        )

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def publish(
        self,
        name: str,
        packages: Sequence[Rpm],
        *,
        key: str = "ours",
        modules: Optional[Mapping[str, str]] = None,
    ) -> Repository:
        """Publish a signed repository of exactly these packages. `modules`: default streams."""
        folder = self.repositories / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for package in packages:
            shutil.copy(self.workshop.build(package), folder / package.file)
        run("createrepo_c", "--quiet", "--no-database", "--workers", "1", folder)
        streams: dict[str, list[str]] = {}
        for package in packages:
            if package.stream:
                streams.setdefault(package.stream, []).append(package.artifact)
        if streams:
            (folder / "modules.yaml").write_text(module_metadata(streams, modules or {}))
            run("modifyrepo_c", "--mdtype=modules", folder / "modules.yaml", folder / "repodata")
        self.workshop.sign(folder / "repodata/repomd.xml", key)
        public = self.workshop.public()
        return Repository(name, folder.as_uri(), public, hashlib.sha256(public).hexdigest())

    def manager(self, wanted: PackageSet, layer: str = "gpu") -> DnfManager:
        return DnfManager(wanted, layer, root=self.root)

    def dnf(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """dnf as an operator on the node runs it."""
        root = self.root
        options = {
            "reposdir": f"{root}/etc/yum.repos.d",
            "pluginconfpath": f"{root}/etc/dnf/plugins",
            "cachedir": f"{root}/var/cache/dnf",
            "varsdir": f"{root}/etc/dnf/vars",
        }
        argv = ["dnf", "-y", f"--installroot={root}", f"--config={root}/etc/dnf/dnf.conf"]
        argv += [f"--setopt={name}={value}" for name, value in options.items()]
        environment = {**os.environ, "LC_ALL": "C"}
        quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        done = subprocess.run([*argv, *words], env=environment, **quiet)
        if check and done.returncode:
            raise AssertionError(f"dnf {' '.join(words)}: {done.stdout}\n{done.stderr}")
        return done

    def rpm(self, *words: str) -> str:
        argv = ["rpm", "--root", str(self.root), *words]
        return subprocess.run(argv, capture_output=True, text=True).stdout


def module_metadata(streams: Mapping[str, Sequence[str]], defaults: Mapping[str, str]) -> str:
    """modules.yaml in libmodulemd's format 2."""
    documents = []
    for name, artifacts in streams.items():
        module, _, stream = name.partition(":")
        listed = "".join(f"    - {one}\n" for one in artifacts)
        documents.append(
            "---\ndocument: modulemd\nversion: 2\ndata:\n"
            f'  name: {module}\n  stream: "{stream}"\n  version: 1\n  context: "1"\n'
            f"  arch: {ARCHITECTURE}\n  summary: made for a test\n  description: made for a test\n"
            "  license:\n    module: [MIT]\n"
            f"  artifacts:\n    rpms:\n{listed}...\n"
        )
    for module, stream in defaults.items():
        documents.append(
            "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n"
            f'  module: {module}\n  stream: "{stream}"\n...\n'
        )
    return "".join(documents)


def a_set(
    *repositories: Repository, stages: Mapping[str, Mapping[str, str]], **more: object
) -> PackageSet:
    """`stages`: name to packages and versions."""
    return PackageSet(
        repositories=repositories,
        stages=[
            Stage(name, [WantedPackage(package, version) for package, version in packages.items()])
            for name, packages in stages.items()
        ],
        **more,  # type: ignore[arg-type]
    )

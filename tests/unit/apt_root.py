# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The real apt and dpkg in a separate root directory, with packages and repositories made here.

APT_CONFIG and wrappers in PATH direct the programs to that root, so the code under test runs the
same commands as on a node. Packages are small but real (dpkg-deb); repositories are directories
signed with a key that exists for the test run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt import Apt
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageSet,
    Repository,
)

from tests.waiting import deadline

PROGRAMS = ("apt-get", "apt-cache", "apt-mark", "dpkg", "dpkg-deb", "dpkg-query", "gpg", "gpgv")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
WHY_NOT = f"not on this machine: {', '.join(MISSING)}"

ARCHITECTURE = "amd64"

APT_CONF = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Bin::dpkg "{root}/bin/dpkg";
Dir::Bin::Methods "/usr/lib/apt/methods";
Dir::Etc::parts "{root}/etc/apt/apt.conf.d";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
"""

DPKG = """\
#!/bin/sh
exec /usr/bin/{program} {options} "$@"
"""

DPKG_OPTIONS = (
    "--root={root} --log=/dev/null --force-not-root --force-script-chrootless --force-unsafe-io"
)


class SigningKey:
    """A key pair in a separate keyring."""

    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self._gpg("--quick-generate-key", f"{name} <{name}@example.org>", "ed25519", "sign", "0")
        self.armoured = self._gpg("--armor", "--export")
        self.binary = self._gpg("--export")

    def _gpg(self, *words: str) -> bytes:
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--yes"]
        argv += ["--pinentry-mode", "loopback", "--passphrase", ""]
        return subprocess.run([*argv, *words], check=True, capture_output=True).stdout

    def sign(self, release: Path) -> None:
        self._gpg("--clearsign", "-o", str(release.with_name("InRelease")), str(release))

    def end(self) -> None:
        argv = ["gpgconf", "--homedir", str(self.home), "--kill", "all"]
        subprocess.run(argv, check=False, capture_output=True)


@contextmanager
def signing_keys(*names: str) -> Iterator[list[SigningKey]]:
    """Not below tmp_path: the path of gpg-agent's socket must be short."""
    with tempfile.TemporaryDirectory(prefix="gpg-") as where:
        keys = []
        try:
            for name in names:
                home = Path(where) / name
                home.mkdir(mode=0o700)
                keys.append(SigningKey(home, name))
            yield keys
        finally:
            for key in keys:
                key.end()


class AptRepository:
    """A flat repository in a directory: add packages, then publish."""

    def __init__(self, name: str, where: Path, key: SigningKey, origin: str = "") -> None:
        self.name, self.where, self.key = name, where, key
        self.origin = origin or f"Origin of {name}"
        where.mkdir(parents=True)

    def add(
        self,
        name: str,
        version: str,
        *,
        scripts: Optional[Mapping[str, str]] = None,
        files: Optional[Mapping[str, str]] = None,
        conffiles: Sequence[str] = (),
        **fields: str,
    ) -> None:
        """Add a package; `fields` are those of control (Depends, Conflicts, ...)."""
        tree = self.where.parent / f"{self.name}.build" / f"{name}_{version.replace(':', '%3a')}"
        (tree / "DEBIAN").mkdir(parents=True)
        control = {
            "Package": name,
            "Version": version,
            "Architecture": fields.pop("Architecture", ARCHITECTURE),
            "Maintainer": "Tests <tests@example.org>",
            "Description": "made for a test",
            **{key.replace("_", "-"): value for key, value in fields.items()},
        }
        text = "".join(f"{key}: {value}\n" for key, value in control.items())
        (tree / "DEBIAN/control").write_text(text)
        for path, content in (files or {f"usr/share/test/{name}": version}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(content)
        if conffiles:
            (tree / "DEBIAN/conffiles").write_text("".join(f"/{path}\n" for path in conffiles))
        for script, body in (scripts or {}).items():
            (tree / "DEBIAN" / script).write_text(f"#!/bin/sh\n{body}\n")
            (tree / "DEBIAN" / script).chmod(0o755)
        deb = self.where / f"{tree.name}_{control['Architecture']}.deb"
        argv = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(deb)]
        subprocess.run(argv, check=True, capture_output=True)

    def publish(self, key: Optional[SigningKey] = None) -> None:
        """Write the metadata and sign them."""
        packages = "\n".join(self._stanza(deb) for deb in sorted(self.where.glob("*.deb")))
        (self.where / "Packages").write_text(packages)
        digest = hashlib.sha256(packages.encode()).hexdigest()
        release = self.where / "Release"
        release.write_text(
            f"Origin: {self.origin}\nLabel: {self.name}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
            f"SHA256:\n {digest} {len(packages.encode())} Packages\n"
        )
        (key or self.key).sign(release)

    def _stanza(self, deb: Path) -> str:
        """The package's record, as apt-ftparchive writes it."""
        tree = self.where.parent / f"{self.name}.build" / deb.name.rsplit("_", 1)[0]
        control = (tree / "DEBIAN/control").read_text()
        content = deb.read_bytes()
        return (
            f"{control}Filename: ./{deb.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )

    def repository(self, **changed: object) -> Repository:
        """The repository as in a set."""
        key = self.key.armoured
        wanted = {
            "name": self.name,
            "url": f"file://{self.where}",
            "key": key,
            "key_sha256": hashlib.sha256(key).hexdigest(),
        }
        return Repository(**{**wanted, **changed})  # type: ignore[arg-type]


class AptRoot:
    """A root directory with an empty dpkg database."""

    def __init__(self, where: Path) -> None:
        self.root = where / "root"
        apt = ("apt.conf.d", "sources.list.d", "preferences.d", "keyrings", "trusted.gpg.d")
        state = ("lib/dpkg/info", "lib/dpkg/updates", "lib/dpkg/triggers", "lib/apt/lists/partial")
        more = ("bin", "var/cache/apt/archives/partial", "var/log/apt")
        for name in (*(f"etc/apt/{x}" for x in apt), *(f"var/{x}" for x in state), *more):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        (self.root / "var/lib/dpkg/available").touch()
        (self.root / "etc/apt/sources.list").touch()
        self.config = self.root / "apt.conf"
        self.config.write_text(APT_CONF.format(root=self.root))
        self._wrap("dpkg", DPKG_OPTIONS.format(root=self.root))
        self._wrap("dpkg-query", f"--admindir={self.root}/var/lib/dpkg")
        self.calls: list[list[str]] = []

    def _wrap(self, program: str, options: str) -> None:
        path = self.root / "bin" / program
        path.write_text(DPKG.format(program=program, options=options))
        path.chmod(0o755)

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> commands.Result:
        self.calls.append(list(argv))
        environment = {
            "APT_CONFIG": str(self.config),
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "DPKG_COLORS": "never",
        }
        return commands.run(
            argv, check=check, stdin=stdin, timeout_s=deadline(300), env=environment
        )

    def manager(self, wanted: Optional[PackageSet] = None, layer: str = "gpu") -> Apt:
        """A new manager, as in a new run of the module."""
        owner = {"uid": os.getuid(), "gid": os.getgid()}
        return Apt(wanted or PackageSet(), layer, self.run, root=self.root, **owner)

    def installed(self) -> dict[str, str]:
        return dict(self.manager().installed())

    def held(self) -> set[str]:
        return set(self.manager().held())

    def called(self, program: str, *words: str) -> list[list[str]]:
        """Calls of a program that contain all of these words."""
        return [
            call for call in self.calls if program in call and all(word in call for word in words)
        ]

    def fetched(self) -> bool:
        return bool(self.called("apt-get", "update"))

    def upgrade_everything(self) -> str:
        """Upgrade everything, as an operator does."""
        self.run(["apt-get", "update"])
        return self.run(["apt-get", "-y", "dist-upgrade"]).stdout

    def snapshot(self) -> dict[str, str]:
        """Every file except caches, to show that nothing was written."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            caches = r"cache\.bin$|/lock(-frontend)?$|\.log$|apt/lists/"
            if path.is_file() and not re.search(caches, name):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images of virtual nodes: built once per set of inputs, found again by their digest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, TextIO

from ..commands import Runner

REPOSITORY = "localhost/virtual-node"
KEPT = 4
"""Built images of one family that stay: one for each checkout or variant in use, about."""
LOCK = Path("/run/lock/baremetal-mpi-roce-virtual-image.lock")


class VirtualImageError(Exception):
    """An image could not be made; the text says at which step and where the log lies."""


@dataclass(frozen=True)
class Bootstrap:
    """The Debian every locally built image stands on."""

    suite: str
    mirror: str
    """Empty leaves the choice, updates and security included, to mmdebstrap."""
    packages: tuple[str, ...]

    @property
    def sources(self) -> list[str]:
        if not self.mirror:
            return []
        mirror = self.mirror.rstrip("/")
        security = f"{mirror}-security"
        return [
            f"deb {mirror} {self.suite} main",
            f"deb {mirror} {self.suite}-updates main",
            f"deb {security} {self.suite}-security main",
        ]

    @property
    def image(self) -> str:
        return f"{REPOSITORY}-base:{_digest(['2', *self.sources, *sorted(self.packages)])}"

    def command(self, archive: str) -> list[str]:
        without = ("doc", "man", "locale", "info")
        return [
            "mmdebstrap", "--variant=minbase", "--format=tar",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in without),
            "--dpkgopt=force-unsafe-io",
            f"--include={','.join(self.packages)}",
            self.suite, archive, *self.sources,
        ]  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """A family's image: the Containerfile in `source` on top of `base`."""

    family: str
    base: str
    source: Path
    packages: Mapping[str, Sequence[str]]
    """Build argument -> packages."""

    @property
    def image(self) -> str:
        return f"{REPOSITORY}-{self.family}:{_digest([self.base, *self._inputs()])}"

    def _inputs(self) -> Iterator[str]:
        for name, packages in sorted(self.packages.items()):
            yield f"{name}={' '.join(packages)}"
        for path in sorted(self.source.rglob("*")):
            other = path.relative_to(self.source).parts[0] in {"ubuntu", "el"} - {self.family}
            if other or path.is_dir():
                continue
            yield f"{path.relative_to(self.source)} {os.access(path, os.X_OK)}"
            if path.is_symlink():
                yield str(path.readlink())
            else:
                yield hashlib.sha256(path.read_bytes()).hexdigest()

    def command(self) -> list[str]:
        arguments = [f"BASE={self.base}", f"FAMILY={self.family}"]
        arguments += [f"{name}={' '.join(words)}" for name, words in sorted(self.packages.items())]
        return [
            "podman", "build", "--isolation=chroot", "--network=host", "--layers=false",
            *(f"--build-arg={argument}" for argument in arguments),
            "--tag", self.image, str(self.source),
        ]  # fmt: skip


def _digest(inputs: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Step:
    name: str
    seconds: float


class Builder:
    """Builds what is missing, writing each step and all output to a log as it happens."""

    def __init__(self, run: Runner, log: Path) -> None:
        self._run = run
        self._log = log
        self.steps: list[Step] = []

    def exists(self, image: str) -> bool:
        return self._run(["podman", "image", "exists", image], check=False).rc == 0

    def bootstrap(self, base: Bootstrap) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            archive = str(Path(folder) / "base.tar")
            self._step(f"bootstrap Debian {base.suite}", base.command(archive))
            self._step("import it", ["podman", "import", "--quiet", archive, base.image])

    def pull(self, image: str) -> None:
        try:
            self._step(f"pull {image}", ["podman", "pull", "--quiet", image])
        except VirtualImageError as error:
            raise VirtualImageError(
                f"image {image} is not on this machine and no registry gave it: {error}\n"
                "Where no registry is reachable leave the image's variable empty, and the image "
                "is built here from Debian packages."
            ) from error

    def build(self, recipe: Recipe) -> None:
        self._step(f"build the {recipe.family} image", recipe.command())
        self.forget_old(recipe.image)

    def forget_old(self, image: str) -> None:
        """Keep the latest images of the same name; podman itself keeps those that nodes run on."""
        name = image.rpartition(":")[0]
        order = ["--sort", "created", "--format", "{{.Repository}}:{{.Tag}}"]
        listed = self._run(["podman", "images", "--filter", f"reference={name}", *order])
        for old in listed.stdout.split()[KEPT:]:
            self._run(["podman", "rmi", old], check=False)

    def _step(self, name: str, command: Sequence[str]) -> None:
        started = time.monotonic()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"== {name}\n")
            log.flush()
            code = _run_logged(command, log)
        if code != 0:
            raise VirtualImageError(
                f"could not {name}: {command[0]} ended with {code}:\n{_last_lines(self._log)}\n"
                f"The whole log: {self._log}"
            )
        self.steps.append(Step(name, round(time.monotonic() - started, 1)))


def _run_logged(command: Sequence[str], log: TextIO) -> int:
    environment = {**os.environ, "LC_ALL": "C", "BUILDAH_FORMAT": "oci"}
    try:
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        ).returncode
    except FileNotFoundError as error:
        raise VirtualImageError(f"{command[0]} is not installed") from error


def _last_lines(log: Path, count: int = 8) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-count:])


@contextmanager
def one_builder(path: Optional[Path] = None) -> Iterator[None]:
    """One build at a time on this machine: a second one waits, then finds the image."""
    with (path or LOCK).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

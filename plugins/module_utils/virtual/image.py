# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images of virtual nodes: built once per set of inputs, found again by their digest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.commands import Runner
from .steps import Step, Steps, VirtualImageError

REPOSITORY = "localhost/virtual-node"
KEPT = 4
"""Built images of one family that stay: one for each checkout or variant in use, about."""
SWITCH = "switch"
"""The family of simulated switches, which has the files of every node and a few programs."""
SWITCH_PARTS = ("image/build", "image/common", "switch")
BYTECODE = "__pycache__"
LOCK = Path("/run/lock/baremetal-mpi-roce-virtual-image.lock")


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
        return f"{REPOSITORY}-base:{digest(['2', *self.sources, *sorted(self.packages)])}"

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
    def parts(self) -> tuple[str, ...]:
        """Folders of `source` that go into it."""
        return SWITCH_PARTS if self.family == SWITCH else (".",)

    @property
    def image(self) -> str:
        return f"{REPOSITORY}-{self.family}:{digest([self.base, *self._inputs()])}"

    def _inputs(self) -> Iterator[str]:
        for name, packages in sorted(self.packages.items()):
            yield f"{name}={' '.join(packages)}"
        for part in self.parts:
            yield from tree_inputs(self.source / part, without={"ubuntu", "el"} - {self.family})

    def command(self) -> list[str]:
        arguments = [f"BASE={self.base}", f"FAMILY={self.family}"]
        arguments += [f"{name}={' '.join(words)}" for name, words in sorted(self.packages.items())]
        return [
            "podman", "build", "--isolation=chroot", "--network=host", "--layers=false",
            *(f"--build-arg={argument}" for argument in arguments),
            "--file", str(self.source / self.parts[-1] / "Containerfile"),
            "--tag", self.image, str(self.source),
        ]  # fmt: skip


def tree_inputs(folder: Path, without: Collection[str] = ()) -> Iterator[str]:
    """What is in a folder, name by name; two equal folders give the same."""
    for path in sorted(folder.rglob("*")):
        within = path.relative_to(folder).parts
        if within[0] in without or BYTECODE in within or path.is_dir():
            continue
        yield f"{path.relative_to(folder)} {os.access(path, os.X_OK)}"
        if path.is_symlink():
            yield str(path.readlink())
        else:
            yield hashlib.sha256(path.read_bytes()).hexdigest()


def digest(inputs: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:12]


class Builder:
    """Builds what is missing, writing each step and all output to a log as it happens."""

    def __init__(self, run: Runner, log: Path) -> None:
        self._run = run
        self._steps = Steps(log)

    @property
    def steps(self) -> list[Step]:
        return self._steps.done

    def exists(self, image: str) -> bool:
        return self._run(["podman", "image", "exists", image], check=False).rc == 0

    def bootstrap(self, base: Bootstrap) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            archive = str(Path(folder) / "base.tar")
            self._steps.run(f"bootstrap Debian {base.suite}", base.command(archive))
            self._steps.run("import it", ["podman", "import", "--quiet", archive, base.image])

    def pull(self, image: str) -> None:
        try:
            self._steps.run(f"pull {image}", ["podman", "pull", "--quiet", image])
        except VirtualImageError as error:
            raise VirtualImageError(
                f"image {image} is not on this machine and no registry gave it: {error}\n"
                "Where no registry is reachable leave the image's variable empty, and the image "
                "is built here from Debian packages."
            ) from error

    def build(self, recipe: Recipe) -> None:
        self._steps.run(f"build the {recipe.family} image", recipe.command())
        self.forget_old(recipe.image)

    def forget_old(self, image: str) -> None:
        """Keep the latest images of the same name; podman itself keeps those that nodes run on."""
        name = image.rpartition(":")[0]
        order = ["--sort", "created", "--format", "{{.Repository}}:{{.Tag}}"]
        listed = self._run(["podman", "images", "--filter", f"reference={name}", *order])
        for old in listed.stdout.split()[KEPT:]:
            self._run(["podman", "rmi", old], check=False)


@contextmanager
def one_builder(path: Optional[Path] = None) -> Iterator[None]:
    """One build at a time on this machine: a second one waits, then finds the image."""
    with (path or LOCK).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

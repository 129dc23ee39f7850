# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What virtual nodes start from, built once per set of inputs and found again by their digest.

Containers have images of podman. Machines have a disk: mmdebstrap fills a folder, mkfs.ext4 makes a
file system of it within the disk, and GRUB's two stages are written before it, where grub-install
puts them too. So nothing is mounted and no loop device is needed."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.locks import (
    LOCKS,
    HeldError,
    alone,
)

from .inventory import VirtualError
from .nodes import Module


class Steps:
    """Each step is timed, and all output goes to a log as it happens."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.done: list[dict[str, Any]] = []

    def run(self, name: str, command: Sequence[str]) -> None:
        started = time.monotonic()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"== {name}\n")
            log.flush()
            code = subprocess.run(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", "BUILDAH_FORMAT": "oci"},
                check=False,
            ).returncode
        if code != 0:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = "\n".join(f"  {line}" for line in lines[-8:])
            raise VirtualError(
                f"could not {name}: {command[0]} ended with {code}:\n{last}\n"
                f"The whole log: {self._log}"
            )
        seconds = round(time.monotonic() - started, 1)
        self.done.append({"name": name, "seconds": seconds})


REPOSITORY = "localhost/virtual-node"
IMAGES_KEPT = 4
DISKS_KEPT = 2
"""Built images of a family, and disks beside those in use, that stay: one for each checkout."""
SWITCH_PARTS = ("image/build", "image/common", "switch")
"""A simulated switch has the files of every node."""
BYTECODE = "__pycache__"
LOCK = LOCKS / "virtual-image.lock"
BUILD_S = 3600.0
"""Longer than any image takes to be built."""


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
        return f"{REPOSITORY}-base:{digest_of(['2', *self.sources, *sorted(self.packages)])}"

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
    """A family's image: the Containerfile of its last part, on top of `base`."""

    family: str
    base: Bootstrap
    source: Path
    packages: Mapping[str, Sequence[str]]
    """Build argument -> packages."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Folders of `source` that go into it."""
        return SWITCH_PARTS if self.family == "switch" else ("image",)

    @property
    def image(self) -> str:
        return f"{REPOSITORY}-{self.family}:{digest_of([self.base.image, *self._inputs()])}"

    def _inputs(self) -> Iterator[str]:
        for name, packages in sorted(self.packages.items()):
            yield f"{name}={' '.join(packages)}"
        for part in self.parts:
            yield from tree_inputs(self.source / part, without={"ubuntu", "el"} - {self.family})

    def command(self) -> list[str]:
        arguments = [f"BASE={self.base.image}", f"FAMILY={self.family}"]
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


def digest_of(inputs: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:12]


class Builder:
    def __init__(self, run: Runner, log: Path) -> None:
        self._run = run
        self._steps = Steps(log)

    def exists(self, image: str) -> bool:
        return self._run(["podman", "image", "exists", image], check=False).rc == 0

    def build(self, recipe: Recipe) -> list[dict[str, Any]]:
        if not self.exists(recipe.base.image):
            self._bootstrap(recipe.base)
        if not self.exists(recipe.image):
            self._steps.run(f"build the {recipe.family} image", recipe.command())
            self.forget_old(recipe.image)
        return self._steps.done

    def _bootstrap(self, base: Bootstrap) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            archive = str(Path(folder) / "base.tar")
            self._steps.run(f"bootstrap Debian {base.suite}", base.command(archive))
            self._steps.run("import it", ["podman", "import", "--quiet", archive, base.image])

    def forget_old(self, image: str) -> None:
        """Keep the latest images of the same name; podman itself keeps those that nodes run on."""
        name = image.rpartition(":")[0]
        order = ["--sort", "created", "--format", "{{.Repository}}:{{.Tag}}"]
        listed = self._run(["podman", "images", "--filter", f"reference={name}", *order])
        for old in listed.stdout.split()[IMAGES_KEPT:]:
            self._run(["podman", "rmi", old], check=False)


@contextmanager
def one_builder(path: Optional[Path] = None) -> Iterator[None]:
    """One build at a time on this machine: a second one waits, then finds the image."""
    try:
        with alone(path or LOCK, BUILD_S):
            yield
    except HeldError as error:
        raise VirtualError(f"another build runs: {error}") from None


def build(
    module: Module,
    made: str,
    *,
    exists: Callable[[], bool],
    make: Callable[[], Sequence[dict[str, Any]]],
) -> NoReturn:
    """Return `made` as the image, after `make` has built it, unless it `exists`.

    `make` returns the steps that it took: none where another build came first.
    """
    result: dict[str, Any] = {"diff": {"before": "", "after": f"{made}\n"}, "image": made}
    try:
        if exists():
            module.exit_json(changed=False, build=False, steps=[], image=made)
        if module.check_mode:
            module.exit_json(changed=True, build=True, **result)
        with one_builder():
            steps = list(make())
    except (CommandError, OSError, VirtualError) as error:
        module.fail_json(msg=f"{made} could not be built: {error}")
    module.exit_json(changed=bool(steps), build=bool(steps), steps=steps, **result)


IMAGES = Path("/var/lib/baremetal-mpi-roce/virtual/images")
SECTOR = 512
SIZE = 4 << 30
FIRST = 1 << 20
"""Where the root partition begins; GRUB has the space before it."""
LINUX = 0x83
TABLE = slice(446, 510)
CONTENT = "boot/grub/i386-pc"


@dataclass(frozen=True)
class DiskRecipe:
    """What goes into a disk."""

    base: Bootstrap
    """Its packages are all that stay."""
    build_packages: tuple[str, ...]
    """What the kernel module is built with, and gone from the disk afterwards."""
    source: Path
    """The folder with files of machines, `machine`, and of every node, `image/common`."""

    @property
    def name(self) -> str:
        base = self.base
        inputs = [base.suite, *base.sources]
        inputs += [" ".join(sorted(names)) for names in (base.packages, self.build_packages)]
        for part in ("machine", "image/common"):
            inputs += tree_inputs(self.source / part)
        return f"machine-{digest_of(['1', *inputs])}"

    def command(self, folder: Path) -> list[str]:
        """mmdebstrap, into a folder. Its hooks get the folder as $1."""
        without = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"]
        # Drivers of hardware that no machine here has are half of the kernel's package.
        drivers = ("gpu", "media", "net/wireless", "staging", "iio", "isdn", "hid", "input", "usb")
        without += ["lib/modules/*/kernel/sound"]
        without += [f"lib/modules/*/kernel/drivers/{name}" for name in drivers]
        source = shlex.quote(str(self.source / "machine"))
        common = shlex.quote(str(self.source / "image/common"))
        initramfs = f"{source}/root/etc/tiny-initramfs"
        words = shlex.quote(" ".join(self.build_packages))
        return [
            "mmdebstrap", "--variant=minbase", "--format=directory",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt=path-exclude=/{path}/*" for path in without),
            "--dpkgopt=force-unsafe-io",
            # Its settings have to be there when the kernel's package makes the initramfs.
            f'--setup-hook=mkdir -p "$1/etc" && cp -a {initramfs} "$1/etc/"',
            f"--include={','.join((*self.base.packages, *self.build_packages))}",
            '--customize-hook=mkdir "$1/virtual-node-build"',
            f'--customize-hook=cp -a {source}/. {common} "$1/virtual-node-build/"',
            f'--customize-hook=BUILD_PACKAGES={words} chroot "$1" /virtual-node-build/prepare',
            self.base.suite, str(folder), *self.base.sources,
        ]  # fmt: skip


class DiskBuilder:
    def __init__(self, log: Path, images: Path = IMAGES) -> None:
        self._steps = Steps(log)
        self._images = images

    def disk(self, recipe: DiskRecipe) -> Path:
        """Beside it lies its kernel, which tries out accelerators."""
        return self._images / f"{recipe.name}.raw"

    def exists(self, recipe: DiskRecipe) -> bool:
        disk = self.disk(recipe)
        return disk.exists() and disk.with_suffix(".kernel").exists()

    def build(self, recipe: DiskRecipe, machines: Path) -> list[dict[str, Any]]:
        disk = self.disk(recipe)
        self._images.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._images, prefix="building-") as place:
            root, raw = Path(place, "root"), Path(place, "raw")
            name = f"bootstrap Debian {recipe.base.suite} with its kernel"
            self._steps.run(name, recipe.command(root))
            with raw.open("wb") as stream:
                stream.truncate(SIZE)
            self._steps.run("make its file system", file_system_command(root, raw))
            write_boot_loader(raw, root / CONTENT / "boot.img", root / CONTENT / "core.img")
            kernel = max((root / "boot").glob("vmlinuz-*"))
            shutil.copyfile(kernel, disk.with_suffix(".kernel"))
            raw.replace(disk)
        self.forget_old(machines)
        return self._steps.done

    def forget_old(self, machines: Path) -> None:
        """Remove disks that are neither among the latest nor below some machine's overlay."""
        disks = sorted(self._images.glob("*.raw"), key=lambda path: path.stat().st_mtime)
        used = {path.read_text(encoding="utf-8").strip() for path in machines.glob("*/*/image")}
        for disk in disks[:-DISKS_KEPT]:
            if str(disk) not in used:
                disk.unlink()
                disk.with_suffix(".kernel").unlink(missing_ok=True)
        for left in self._images.glob("building-*"):  # by a build that was killed
            shutil.rmtree(left)


def file_system_command(root: Path, raw: Path) -> list[str]:
    # Whatever is left to the first mount is done by every machine, at every first boot.
    extended = f"offset={FIRST},lazy_itable_init=0,lazy_journal_init=0"
    size = f"{(SIZE - FIRST) // 1024}k"
    return ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", extended, "-d", str(root), str(raw), size]


def write_boot_loader(raw: Path, boot: Path, core: Path) -> None:
    """GRUB's first stage and the partition table into sector 0, its second stage right after."""
    second = core.read_bytes()
    if SECTOR + len(second) > FIRST:
        raise VirtualError(f"GRUB's core image has {len(second)} bytes: no room before 1 MiB")
    with raw.open("r+b") as stream:
        stream.write(first_sector(boot.read_bytes()))
        stream.write(second)


def first_sector(boot: bytes) -> bytes:
    """boot.img with the partition table in the place that its code for floppies had."""
    anywhere = b"\xfe\xff\xff"  # cylinders, heads and sectors, which nothing reads any more
    partition = struct.pack(
        "<B3sB3sII",
        0x80, anywhere, LINUX, anywhere, FIRST // SECTOR, (SIZE - FIRST) // SECTOR,
    )  # fmt: skip
    sector = bytearray(boot[:SECTOR])
    sector[TABLE] = partition.ljust(TABLE.stop - TABLE.start, b"\0")
    return bytes(sector)

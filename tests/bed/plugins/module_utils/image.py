# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build container images and machine disks, once per set of inputs.

The digest of the inputs is part of the name. Containers start from podman images. For machines
mmdebstrap fills a folder, mkfs.ext4 creates a file system from it inside the disk image, and the
two stages of GRUB are written in front of it, at the offsets that grub-install uses. Nothing is
mounted, and no loop device is needed.
"""

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
    """Times each step and logs all output as it is printed."""

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
                f"could not {name}: {command[0]} exited with status {code}:\n{last}\n"
                f"Complete log: {self._log}"
            )
        seconds = round(time.monotonic() - started, 1)
        self.done.append({"name": name, "seconds": seconds})


REPOSITORY = "localhost/virtual-node"
RETAINED_IMAGES = 4
RETAINED_DISKS = 2
"""Number of images per family, and of unused disks, that are retained: one for each checkout."""
SWITCH_PARTS = ("image/build", "image/common", "switch")
"""A simulated switch includes the files of every node."""
BYTECODE = "__pycache__"
LOCK = LOCKS / "virtual-image.lock"
BUILD_S = 3600.0
"""Longer than any image takes to build."""


@dataclass(frozen=True)
class Bootstrap:
    """The Debian that every image is based on."""

    suite: str
    mirror: str
    """Empty: mmdebstrap chooses the mirrors, including updates and security."""
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
    """Image of a family: its Containerfile, on top of `base`."""

    family: str
    base: Bootstrap
    source: Path
    packages: Mapping[str, Sequence[str]]
    """Packages by build argument."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Folders of `source` that the image includes."""
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
    """Describe a folder's content, file by file: equal folders have equal descriptions."""
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
        """Retain the newest images of the same name; podman itself retains those in use."""
        name = image.rpartition(":")[0]
        order = ["--sort", "created", "--format", "{{.Repository}}:{{.Tag}}"]
        listed = self._run(["podman", "images", "--filter", f"reference={name}", *order])
        for old in listed.stdout.split()[RETAINED_IMAGES:]:
            self._run(["podman", "rmi", old], check=False)


@contextmanager
def one_builder(path: Optional[Path] = None) -> Iterator[None]:
    """Hold this machine's build lock, so that a second build finds the finished image."""
    try:
        with alone(path or LOCK, BUILD_S):
            yield
    except HeldError as error:
        raise VirtualError(f"another build is running: {error}") from None


def build(
    module: Module,
    made: str,
    *,
    exists: Callable[[], bool],
    make: Callable[[], Sequence[dict[str, Any]]],
) -> NoReturn:
    """Return `made` as the image; call `make` first unless it `exists`.

    `make` returns the steps that it ran: none if another process built the image in the meantime.
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
        module.fail_json(msg=f"could not build {made}: {error}")
    module.exit_json(changed=bool(steps), build=bool(steps), steps=steps, **result)


IMAGES = Path("/var/lib/baremetal-mpi-roce/virtual/images")
SECTOR = 512
SIZE = 4 << 30
FIRST = 1 << 20
"""Offset of the root partition. GRUB is in front of it."""
LINUX = 0x83
TABLE = slice(446, 510)
CONTENT = "boot/grub/i386-pc"


@dataclass(frozen=True)
class DiskRecipe:
    """Inputs of a disk."""

    base: Bootstrap
    """The final set of packages."""
    build_packages: tuple[str, ...]
    """Packages that the kernel module is built with, and that are removed afterwards."""
    source: Path
    """Folder with the files of machines (`machine`) and of every node (`image/common`)."""

    @property
    def name(self) -> str:
        base = self.base
        inputs = [base.suite, *base.sources]
        inputs += [" ".join(sorted(names)) for names in (base.packages, self.build_packages)]
        for part in ("machine", "image/common"):
            inputs += tree_inputs(self.source / part)
        return f"machine-{digest_of(['1', *inputs])}"

    def command(self, folder: Path) -> list[str]:
        """Return the mmdebstrap command. Its hooks get the folder as $1."""
        without = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"]
        # Drivers of hardware that no machine here has make up half of the kernel package.
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
            # Its settings must exist before the kernel package creates the initramfs.
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
        """Path of the disk. Its kernel, which is used to test accelerators, is next to it."""
        return self._images / f"{recipe.name}.raw"

    def exists(self, recipe: DiskRecipe) -> bool:
        disk = self.disk(recipe)
        return disk.exists() and disk.with_suffix(".kernel").exists()

    def build(self, recipe: DiskRecipe, machines: Path) -> list[dict[str, Any]]:
        disk = self.disk(recipe)
        self._images.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._images, prefix="building-") as folder:
            root, raw = Path(folder, "root"), Path(folder, "raw")
            name = f"bootstrap Debian {recipe.base.suite} with its kernel"
            self._steps.run(name, recipe.command(root))
            with raw.open("wb") as stream:
                stream.truncate(SIZE)
            self._steps.run("create its file system", file_system_command(root, raw))
            write_boot_loader(raw, root / CONTENT / "boot.img", root / CONTENT / "core.img")
            kernel = max((root / "boot").glob("vmlinuz-*"))
            shutil.copyfile(kernel, disk.with_suffix(".kernel"))
            raw.replace(disk)
        self.forget_old(machines)
        return self._steps.done

    def forget_old(self, machines: Path) -> None:
        """Remove disks that are neither among the newest nor used by a machine's overlay."""
        disks = sorted(self._images.glob("*.raw"), key=lambda path: path.stat().st_mtime)
        used = {path.read_text(encoding="utf-8").strip() for path in machines.glob("*/*/image")}
        for disk in disks[:-RETAINED_DISKS]:
            if str(disk) not in used:
                disk.unlink()
                disk.with_suffix(".kernel").unlink(missing_ok=True)
        for left in self._images.glob("building-*"):  # left by a killed build
            shutil.rmtree(left)


def file_system_command(root: Path, raw: Path) -> list[str]:
    # Work left for the first mount would be repeated by every machine at its first boot.
    extended = f"offset={FIRST},lazy_itable_init=0,lazy_journal_init=0"
    size = f"{(SIZE - FIRST) // 1024}k"
    return ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", extended, "-d", str(root), str(raw), size]


def write_boot_loader(raw: Path, boot: Path, core: Path) -> None:
    """Write GRUB's two stages and the partition table to the start of the disk."""
    second = core.read_bytes()
    if SECTOR + len(second) > FIRST:
        raise VirtualError(
            f"GRUB's core image has {len(second)} bytes: too large for the space before 1 MiB"
        )
    with raw.open("r+b") as stream:
        stream.write(first_sector(boot.read_bytes()))
        stream.write(second)


def first_sector(boot: bytes) -> bytes:
    """Return boot.img with the partition table in the bytes reserved for it."""
    anywhere = b"\xfe\xff\xff"  # cylinders, heads and sectors, which are obsolete
    partition = struct.pack(
        "<B3sB3sII",
        0x80, anywhere, LINUX, anywhere, FIRST // SECTOR, (SIZE - FIRST) // SECTOR,
    )  # fmt: skip
    sector = bytearray(boot[:SECTOR])
    sector[TABLE] = partition.ljust(TABLE.stop - TABLE.start, b"\0")
    return bytes(sector)

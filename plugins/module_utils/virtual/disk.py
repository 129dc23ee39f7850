# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The disk machines boot from: Debian with its own kernel and GRUB, built once per set of inputs.

Nothing is mounted and no loop device is needed: mmdebstrap fills a folder, mkfs.ext4 makes a file
system of it in its place within the disk, and GRUB's two stages are written before it, where
grub-install puts them too. Each machine writes to an overlay of its own on top.
"""

from __future__ import annotations

import shlex
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .image import digest, tree_inputs
from .steps import Step, Steps, VirtualImageError

IMAGES = Path("/var/lib/baremetal-mpi-roce/virtual/images")
KEPT = 2
"""Images that stay beside those in use: one for each checkout or variant, about."""
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

    suite: str
    sources: tuple[str, ...]
    """Lines for apt; empty leaves the choice, updates and security included, to mmdebstrap."""
    packages: tuple[str, ...]
    build_packages: tuple[str, ...]
    """What the kernel module is built with, and gone from the disk afterwards."""
    source: Path
    """Files of machines, with the program `prepare`."""
    common: Path
    """Files that containers have as well."""

    @property
    def name(self) -> str:
        return f"machine-{digest(['1', *self._inputs()])}"

    def _inputs(self) -> Iterator[str]:
        yield self.suite
        yield from self.sources
        yield " ".join(sorted(self.packages))
        yield " ".join(sorted(self.build_packages))
        yield from tree_inputs(self.source)
        yield from tree_inputs(self.common)

    def command(self, folder: Path) -> list[str]:
        """mmdebstrap, into a folder. Its hooks get the folder as $1."""
        without = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"]
        # Drivers of hardware that no machine here has are half of the kernel's package.
        drivers = ("gpu", "media", "net/wireless", "staging", "iio", "isdn", "hid", "input", "usb")
        without += ["lib/modules/*/kernel/sound"]
        without += [f"lib/modules/*/kernel/drivers/{name}" for name in drivers]
        source, common = shlex.quote(str(self.source)), shlex.quote(str(self.common))
        initramfs = f"{source}/root/etc/tiny-initramfs"
        words = shlex.quote(" ".join(self.build_packages))
        return [
            "mmdebstrap", "--variant=minbase", "--format=directory",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt=path-exclude=/{path}/*" for path in without),
            "--dpkgopt=force-unsafe-io",
            # Its settings have to be there when the kernel's package makes the initramfs.
            f'--setup-hook=mkdir -p "$1/etc" && cp -a {initramfs} "$1/etc/"',
            f"--include={','.join((*self.packages, *self.build_packages))}",
            '--customize-hook=mkdir "$1/virtual-node-build"',
            f'--customize-hook=cp -a {source}/. {common} "$1/virtual-node-build/"',
            f'--customize-hook=BUILD_PACKAGES={words} chroot "$1" /virtual-node-build/prepare',
            self.suite, str(folder), *self.sources,
        ]  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """A built disk, and the kernel of it that tries out accelerators."""

    path: Path
    kernel: Path

    @classmethod
    def of(cls, recipe: DiskRecipe, images: Path = IMAGES) -> Disk:
        return cls(images / f"{recipe.name}.raw", images / f"{recipe.name}.kernel")

    @property
    def exists(self) -> bool:
        return self.path.exists() and self.kernel.exists()


class DiskBuilder:
    def __init__(self, log: Path, images: Path = IMAGES) -> None:
        self._steps = Steps(log)
        self._images = images

    @property
    def steps(self) -> list[Step]:
        return self._steps.done

    def build(self, recipe: DiskRecipe) -> None:
        disk = Disk.of(recipe, self._images)
        self._images.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._images, prefix="building-") as place:
            root, raw = Path(place, "root"), Path(place, "raw")
            name = f"bootstrap Debian {recipe.suite} with its kernel"
            self._steps.run(name, recipe.command(root))
            with raw.open("wb") as stream:
                stream.truncate(SIZE)
            self._steps.run("make its file system", file_system_command(root, raw))
            write_boot_loader(raw, root / CONTENT / "boot.img", root / CONTENT / "core.img")
            kernels = sorted((root / "boot").glob("vmlinuz-*"))
            if not kernels:
                raise VirtualImageError("the disk has no kernel: is linux-image-amd64 in its list?")
            shutil.copyfile(kernels[-1], disk.kernel)
            raw.replace(disk.path)

    def forget_old(self, machines: Path) -> None:
        """Remove disks that are neither among the latest nor below some machine's overlay."""
        disks = sorted(self._images.glob("*.raw"), key=lambda path: path.stat().st_mtime)
        used = {path.read_text(encoding="utf-8").strip() for path in machines.glob("*/*/image")}
        for disk in disks[:-KEPT]:
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
        raise VirtualImageError(f"GRUB's core image has {len(second)} bytes: no room before 1 MiB")
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

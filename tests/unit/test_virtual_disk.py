# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The disk of machines: found by the digest of its inputs, and bootable by what is written."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.image import (
    FIRST,
    SECTOR,
    SIZE,
    Bootstrap,
    Disk,
    DiskBuilder,
    DiskRecipe,
    file_system_command,
    first_sector,
    write_boot_loader,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.inventory import (
    VirtualError,
)


@pytest.fixture
def recipe(tmp_path: Path) -> DiskRecipe:
    for name in ("machine/prepare", "image/common/etc/sudoers"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    base = Bootstrap("bookworm", "", ("linux-image-amd64", "python3"))
    return DiskRecipe(base, build_packages=("make",), source=tmp_path)


def test_every_input_changes_the_name(recipe: DiskRecipe) -> None:
    base = recipe.base
    names = {
        recipe.name,
        replace(recipe, base=replace(base, suite="trixie")).name,
        replace(recipe, base=replace(base, mirror="http://mirror")).name,
        replace(recipe, base=replace(base, packages=("linux-image-amd64",))).name,
        replace(recipe, build_packages=()).name,
    }
    for name in ("machine/prepare", "image/common/etc/sudoers"):
        (recipe.source / name).write_text("changed")
        names.add(recipe.name)
    (recipe.source / "machine/prepare").chmod(0o755)
    names.add(recipe.name)
    assert len(names) == 8


def test_the_order_of_packages_changes_nothing(recipe: DiskRecipe) -> None:
    other = replace(recipe.base, packages=recipe.base.packages[::-1])
    assert replace(recipe, base=other).name == recipe.name


def test_what_builds_the_module_is_told_what_to_remove(recipe: DiskRecipe) -> None:
    words = recipe.command(Path("/build/root"))
    assert "--include=linux-image-amd64,python3,make" in words
    assert words[-2:] == ["bookworm", "/build/root"]
    assert any("BUILD_PACKAGES=make chroot" in word for word in words)


def test_the_first_sector_starts_grub_and_names_the_partition() -> None:
    boot = bytes(range(256)) * 2
    sector = first_sector(boot[:510] + b"\x55\xaa")
    assert sector[:446] == boot[:446]
    assert sector[510:] == b"\x55\xaa"
    active, kind, start, count = sector[446], sector[450], *struct.unpack("<II", sector[454:462])
    assert (active, kind) == (0x80, 0x83)
    assert start * SECTOR == FIRST
    assert (start + count) * SECTOR == SIZE
    assert sector[462:510] == bytes(48)


def test_the_second_stage_follows_and_the_file_system_is_not_touched(tmp_path: Path) -> None:
    raw, boot, core = tmp_path / "raw", tmp_path / "boot.img", tmp_path / "core.img"
    boot.write_bytes(bytes(510) + b"\x55\xaa")
    core.write_bytes(b"core" * 1000)
    raw.write_bytes(b"x" * (FIRST + 100))
    write_boot_loader(raw, boot, core)
    written = raw.read_bytes()
    assert written[SECTOR : SECTOR + 4000] == b"core" * 1000
    assert written[SECTOR + 4000 :] == b"x" * (FIRST + 100 - SECTOR - 4000)
    core.write_bytes(bytes(FIRST))
    with pytest.raises(VirtualError, match="no room"):
        write_boot_loader(raw, boot, core)


def test_the_file_system_ends_with_the_partition() -> None:
    words = file_system_command(Path("root"), Path("raw"))
    assert words[-1] == f"{(SIZE - FIRST) // 1024}k"
    assert f"offset={FIRST}," in words[words.index("-E") + 1]


def test_a_disk_without_its_kernel_is_none(recipe: DiskRecipe, tmp_path: Path) -> None:
    disk = Disk.of(recipe, tmp_path)
    disk.path.touch()
    assert not disk.exists
    disk.kernel.touch()
    assert disk.exists


def test_old_disks_go_but_not_those_in_use(tmp_path: Path) -> None:
    images, machines = tmp_path / "images", tmp_path / "machines"
    images.mkdir()
    for age, name in enumerate(("used", "old", "newer", "newest")):
        for suffix in (".raw", ".kernel"):
            path = (images / name).with_suffix(suffix)
            path.touch()
            os.utime(path, (age, age))
    (images / "building-1").mkdir()
    (machines / "some/node01").mkdir(parents=True)
    (machines / "some/node01/image").write_text(f"{images / 'used.raw'}\n")
    DiskBuilder(tmp_path / "log", images).forget_old(machines)
    left = {path.name for path in images.iterdir()}
    assert left == {
        f"{name}{end}" for name in ("used", "newer", "newest") for end in (".raw", ".kernel")
    }

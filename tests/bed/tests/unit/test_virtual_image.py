# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images of virtual nodes: found by the digest of their inputs, rebuilt when an input changes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils.image import (
    FIRST,
    SECTOR,
    SIZE,
    Bootstrap,
    Builder,
    DiskBuilder,
    DiskRecipe,
    Recipe,
    Steps,
    first_sector,
    write_boot_loader,
)
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    VirtualError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result

BASE = Bootstrap("bookworm", "http://mirror/debian/", ("python3", "systemd"))


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    for part in ("image/build/prepare", "image/common/file", "image/ubuntu/file", "image/el/file",
                 "switch/sonic/config.py", "machine/prepare"):  # fmt: skip
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_text(part)
    return Recipe("ubuntu", BASE, tmp_path, {"ROLE_PACKAGES": ["one", "two"]})


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("image/build/prepare", {"ubuntu", "el", "switch"}),
        ("image/common/file", {"ubuntu", "el", "switch"}),
        ("image/ubuntu/file", {"ubuntu"}),
        ("switch/sonic/config.py", {"switch"}),
        ("machine/prepare", set()),
        ("image/common/__pycache__/file.pyc", set()),
    ],
)
def test_a_changed_file_is_another_image(recipe: Recipe, name: str, families: set[str]) -> None:
    recipes = {family: replace(recipe, family=family) for family in ("ubuntu", "el", "switch")}
    before = {family: each.image for family, each in recipes.items()}
    (recipe.source / name).parent.mkdir(exist_ok=True)
    (recipe.source / name).write_text("changed")
    assert {family for family in before if recipes[family].image != before[family]} == families


def test_each_family_has_its_containerfile(recipe: Recipe) -> None:
    for family, folder in (("ubuntu", "image"), ("switch", "switch")):
        command = replace(recipe, family=family).command()
        assert command[command.index("--file") + 1] == f"{recipe.source}/{folder}/Containerfile"
        assert command[-1] == str(recipe.source)


def test_packages_base_and_modes_are_inputs(recipe: Recipe) -> None:
    others = {
        replace(recipe, packages={"ROLE_PACKAGES": ["one"]}).image,
        replace(recipe, base=replace(BASE, suite="trixie")).image,
        recipe.image,
    }
    (recipe.source / "image/build/prepare").chmod(0o755)
    assert len({*others, recipe.image}) == 4


def test_a_link_is_an_input_too(recipe: Recipe) -> None:
    before = recipe.image
    (recipe.source / "image/common/link").symlink_to("nowhere-here")
    assert recipe.image != before


def test_the_base_is_named_by_what_it_is_made_of() -> None:
    assert BASE.image == replace(BASE, packages=("systemd", "python3")).image
    assert BASE.image != replace(BASE, suite="trixie").image
    assert "deb http://mirror/debian-security bookworm-security main" in BASE.sources


def test_without_a_mirror_mmdebstrap_takes_its_own() -> None:
    base = replace(BASE, mirror="")
    assert base.command("base.tar")[-2:] == ["bookworm", "base.tar"]
    assert base.image != BASE.image


class FakeEngine:
    def __init__(self, rc: int, shown: str = "") -> None:
        self.rc = rc
        self.shown = shown
        self.calls: list[list[str]] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.calls.append(list(argv))
        return Result(tuple(argv), self.rc, self.shown, "")


def test_old_images_go_and_the_latest_stay() -> None:
    engine = FakeEngine(0, "\n".join(f"localhost/virtual-node-el:{number}" for number in range(6)))
    Builder(engine, Path("/nowhere")).forget_old("localhost/virtual-node-el:0")
    assert "reference=localhost/virtual-node-el" in engine.calls[0]
    removed = [words[-1] for words in engine.calls[1:]]
    assert removed == ["localhost/virtual-node-el:4", "localhost/virtual-node-el:5"]


def test_a_failed_step_shows_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs/build.log"
    steps = Steps(log)
    with pytest.raises(VirtualError, match=r"could not try(?s:.*)the reason(?s:.*)build\.log"):
        steps.run("try", ["sh", "-c", "echo the reason; exit 3"])
    assert "== try\nthe reason\n" in log.read_text()
    steps.run("go on", ["true"])
    assert [step["name"] for step in steps.done] == ["go on"]


@pytest.fixture
def disk_recipe(tmp_path: Path) -> DiskRecipe:
    for name in ("machine/prepare", "image/common/etc/sudoers"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    base = Bootstrap("bookworm", "", ("linux-image-amd64", "python3"))
    return DiskRecipe(base, build_packages=("make",), source=tmp_path)


def test_every_input_changes_the_name(disk_recipe: DiskRecipe) -> None:
    base = disk_recipe.base
    names = {
        disk_recipe.name,
        replace(disk_recipe, base=replace(base, suite="trixie")).name,
        replace(disk_recipe, base=replace(base, mirror="http://mirror")).name,
        replace(disk_recipe, base=replace(base, packages=("linux-image-amd64",))).name,
        replace(disk_recipe, build_packages=()).name,
    }
    for name in ("machine/prepare", "image/common/etc/sudoers"):
        (disk_recipe.source / name).write_text("changed")
        names.add(disk_recipe.name)
    (disk_recipe.source / "machine/prepare").chmod(0o755)
    names.add(disk_recipe.name)
    assert len(names) == 8


def test_what_builds_the_module_is_told_what_to_remove(disk_recipe: DiskRecipe) -> None:
    words = disk_recipe.command(Path("/build/root"))
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
    with pytest.raises(VirtualError, match="too large"):
        write_boot_loader(raw, boot, core)


def test_a_disk_without_its_kernel_is_none(disk_recipe: DiskRecipe, tmp_path: Path) -> None:
    builder = DiskBuilder(tmp_path / "log", tmp_path)
    disk = builder.disk(disk_recipe)
    disk.touch()
    assert not builder.exists(disk_recipe)
    disk.with_suffix(".kernel").touch()
    assert builder.exists(disk_recipe)


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


COMPILED = (
    Path(__file__).resolve().parents[2]
    / "roles/virtual_nodes/files/image/common/usr/lib/python3/dist-packages"
)


def test_a_node_compiles_the_same_source_once(tmp_path: Path) -> None:
    """`compiled` lists the modules that Python compiled, in order."""
    program = (
        f"import os, sys; sys.path[:0] = [{str(COMPILED)!r}, sys.argv[1]]\n"
        "os.geteuid = lambda: 0\nimport virtual_node_compiled as v\n"
        f"v.KEPT = {str(tmp_path / 'kept')!r}\n"
        "compiled, plain = [], v.plain\n"
        "v.plain = lambda path, source: compiled.append(path[-4:]) or plain(path, source)\n"
        "import a, b\nprint(compiled, a.VALUE, b.VALUE, a.f.__code__.co_filename)\n"
    )

    def run(name: str, **sources: str) -> str:
        archive = tmp_path / name
        with zipfile.ZipFile(archive, "w") as into:
            for module, value in sources.items():
                into.writestr(f"{module}.py", f"VALUE = {value}\ndef f(): pass\n")
        argv = [sys.executable, "-B", "-c", program, str(archive)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        return done.stdout.replace(str(tmp_path), "").strip()

    assert run("1.zip", a="1", b="1") == "['a.py', 'b.py'] 1 1 /1.zip/a.py"
    assert run("2.zip", a="1", b="1") == "[] 1 1 /2.zip/a.py"
    assert run("3.zip", a="1", b="2") == "['b.py'] 1 2 /3.zip/a.py"
    for kept in (tmp_path / "kept").iterdir():
        kept.write_bytes(kept.read_bytes()[:20])
    assert run("4.zip", a="1", b="2") == "['a.py', 'b.py'] 1 2 /4.zip/a.py"

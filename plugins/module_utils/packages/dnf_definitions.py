# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Definitions of repositories for dnf, and the files of their keys."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.files import FilePlan, plan_file, with_header
from .dnf_program import OURS
from .manager import ARMOUR, check_repository
from .package import PackageSet, Repository

DEFINITIONS = Path("etc/yum.repos.d")
KEYS = Path("etc/pki/rpm-gpg")


def repository_id(repository: Repository, layer: str) -> str:
    """With the layer in it: two layers may use one repository and define it twice."""
    return f"{OURS}{layer}-{repository.name}"


def definition_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / DEFINITIONS / f"{repository_id(repository, layer)}.repo"


def key_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / KEYS / f"RPM-GPG-KEY-{repository_id(repository, layer)}"


def armour(key: bytes) -> str:
    """The key as text that rpm takes: as it is where it is armoured already."""
    if ARMOUR in key:
        return key.decode("utf-8")
    body = base64.b64encode(key).decode("ascii")
    check = base64.b64encode(_crc24(key).to_bytes(3, "big")).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    end = ARMOUR.decode().replace("BEGIN", "END")
    return "\n".join([ARMOUR.decode(), "", *lines, f"={check}", end, ""])


def _crc24(data: bytes) -> int:
    """RFC 4880, 6.1: rpm reads no armour without it."""
    value = 0xB704CE
    for byte in data:
        value ^= byte << 16
        for _bit in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value & 0xFFFFFF


def definition(repository: Repository, wanted: PackageSet, layer: str, key: Path) -> str:
    """One section of dnf's configuration, every signature checked."""
    name = repository_id(repository, layer)
    lines = [
        f"[{name}]",
        f"name={repository.name} (baremetal.mpi_roce, layer {layer})",
        f"baseurl={repository.url}",
        "enabled=1",
        "gpgcheck=1",
        f"repo_gpgcheck={int(repository.check_metadata)}",
        f"gpgkey={key.as_uri()}",
        "skip_if_unavailable=0",
    ]
    if not wanted.streams:
        # A module that another repository has must not hide a package of this one.
        lines.append("module_hotfixes=1")
    elsewhere = excluded(repository.name, wanted.preferred)
    if elsewhere:
        lines.append(f"excludepkgs={','.join(elsewhere)}")
    return with_header("\n".join(lines) + "\n")


def excluded(name: str, preferred: Mapping[str, str]) -> list[str]:
    """Patterns of packages that come from another repository."""
    return sorted(pattern for pattern, chosen in preferred.items() if chosen != name)


def plan(
    repositories: Sequence[Repository], wanted: PackageSet, layer: str, root: Path
) -> list[FilePlan]:
    """Keys first, then the definitions that name them; those of an older set go."""
    for repository in repositories:
        check_repository(repository)
    plans = []
    for repository in repositories:
        text = armour(repository.key)
        plans.append(plan_file(key_path(repository, layer, root), text))
    for repository in repositories:
        key = key_path(repository, layer, root)
        text = definition(repository, wanted, layer, key)
        plans.append(plan_file(definition_path(repository, layer, root), text))
    kept = {planned.path for planned in plans}
    for folder, pattern in (
        (DEFINITIONS, f"{OURS}{layer}-*.repo"),
        (KEYS, f"RPM-GPG-KEY-{OURS}{layer}-*"),
    ):
        for path in sorted((root / folder).glob(pattern)):
            if path not in kept:
                plans.append(plan_file(path, None))
    return plans


def lacking(repositories: Sequence[Repository], root: Path) -> list[Repository]:
    """Those that no layer has defined on the node."""
    folder = root / DEFINITIONS
    return [each for each in repositories if not [*folder.glob(f"{OURS}*-{each.name}.repo")]]


class Place:
    """A temporary directory with what a plan has dnf read instead of the node's: definitions and
    the list of locks. dnf keeps its state there, and metadata in the node's cache."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="baremetal-mpi-roce-"))
        for name in ("repos.d", "plugins"):
            (self.path / name).mkdir()

    def define(
        self, repositories: Sequence[Repository], wanted: PackageSet, layer: str, root: Path
    ) -> None:
        """All definitions of the node, those of `layer` as they are going to be."""
        folder = self.path / "repos.d"
        for path in sorted((root / DEFINITIONS).glob("*.repo")):
            if not path.name.startswith(f"{OURS}{layer}-"):
                (folder / path.name).write_bytes(path.read_bytes())
        for repository in repositories:
            check_repository(repository)
            name = repository_id(repository, layer)
            key = folder / f"{name}.key"
            key.write_text(armour(repository.key), encoding="utf-8")
            # As the layer that brings it is going to define it: modules are this layer's alone.
            like = replace(wanted, streams=()) if repository in wanted.beside else wanted
            text = definition(repository, like, layer, key)
            (folder / f"{name}.repo").write_text(text, encoding="utf-8")

    def lock_list(self, text: str) -> None:
        """Let versionlock read this list: its configuration is read here last."""
        path = self.path / "plugins/versionlock.list"
        path.write_text(text, encoding="utf-8")
        configuration = self.path / "plugins/versionlock.conf"
        configuration.write_text(f"[main]\nlocklist = {path}\n", encoding="utf-8")

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Definitions of repositories for dnf, and the files of their keys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..files import FilePlan, plan_file, with_header
from . import dnf_keys
from .dnf_program import OURS
from .manager import PackageError
from .package import PackageSet, Repository

DEFINITIONS = Path("etc/yum.repos.d")
KEYS = Path("etc/pki/rpm-gpg")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_URL = re.compile(r"(https?://|file:///)[^\s,]+")


def repository_id(repository: Repository, layer: str) -> str:
    """With the layer in it: two layers may use one repository and define it twice."""
    return f"{OURS}{layer}-{repository.name}"


def definition_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / DEFINITIONS / f"{repository_id(repository, layer)}.repo"


def key_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / KEYS / f"RPM-GPG-KEY-{repository_id(repository, layer)}"


def check(repository: Repository) -> None:
    """Raises PackageError for what must not come near dnf's configuration or rpm's keyring."""
    where = f"repository {repository.name!r}"
    if not _NAME.fullmatch(repository.name):
        raise PackageError(f"{where}: the name may hold letters, digits, '.', '_' and '-' only")
    if not _URL.fullmatch(repository.url):
        raise PackageError(
            f"{where}: url {repository.url!r} is not https://, http:// or file:/// without spaces"
        )
    found = hashlib.sha256(repository.key).hexdigest()
    if found != repository.key_sha256.lower():
        raise PackageError(
            f"{where}: its key has sha256 {found}, the set says {repository.key_sha256}. Compare "
            "the key with what its vendor publishes, then correct the file or key_sha256"
        )
    try:
        dnf_keys.keys(repository.key)
    except ValueError as error:
        raise PackageError(f"{where}: its key cannot be used: {error}") from error


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
        check(repository)
    plans = []
    for repository in repositories:
        text = dnf_keys.armoured(repository.key)
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


def write_private(
    repositories: Sequence[Repository], wanted: PackageSet, layer: str, root: Path, folder: Path
) -> None:
    """All definitions of the node in `folder`, those of `layer` as they are going to be."""
    for path in sorted((root / DEFINITIONS).glob("*.repo")):
        if not path.name.startswith(f"{OURS}{layer}-"):
            (folder / path.name).write_bytes(path.read_bytes())
    for repository in repositories:
        check(repository)
        name = repository_id(repository, layer)
        key = folder / f"{name}.key"
        key.write_text(dnf_keys.armoured(repository.key), encoding="utf-8")
        # As the layer that brings it is going to define it: modules are this layer's alone.
        like = replace(wanted, streams=()) if repository in wanted.beside else wanted
        text = definition(repository, like, layer, key)
        (folder / f"{name}.repo").write_text(text, encoding="utf-8")

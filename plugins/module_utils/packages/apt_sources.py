# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Repository definitions of apt: one deb822 file and one key file for each repository.

Two layers may name the same repository (both want something of it). Its file is one, and says
which layers it is for; a layer that no longer wants it takes its name out, the last one the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan, plan_file, with_header
from .manager import armoured, check_repository
from .package import Repository

PREFIX = "baremetal-mpi-roce-"
SOURCES = "etc/apt/sources.list.d"
KEYRINGS = "etc/apt/keyrings"

_FOR = re.compile(r"^# For the layers: (.*)$", re.MULTILINE)


def render(repository: Repository, key: Path, layers: Sequence[str]) -> str:
    """The definition. Never `Trusted`: apt verifies it by this key and by no other."""
    lines = [
        f"# For the layers: {' '.join(layers)}",
        "Types: deb",
        f"URIs: {repository.url}",
        f"Suites: {' '.join(repository.suites)}",
    ]
    if repository.components:
        lines.append(f"Components: {' '.join(repository.components)}")
    lines.append(f"Signed-By: {key}")
    return with_header("\n".join(lines) + "\n")


def key_name(repository: Repository) -> str:
    """apt tells the two forms of a key apart by the end of the name."""
    return f"{PREFIX}{repository.name}.{'asc' if armoured(repository) else 'gpg'}"


def source_name(name: str) -> str:
    return f"{PREFIX}{name}.sources"


def plan_sources(
    repositories: Sequence[Repository], layer: str, root: Path, uid: int, gid: int
) -> list[FilePlan]:
    """Keys before the definitions that name them, and definitions away before their keys."""
    for repository in repositories:
        check_repository(repository)
    wanted = {repository.name: repository for repository in repositories}

    def file(path: Path, text: Optional[str], secret: bool = False) -> FilePlan:
        return plan_file(path, text, uid=uid, gid=gid, secret=secret)

    keys, sources, gone = [], [], []
    for name, repository in wanted.items():
        path = root / SOURCES / source_name(name)
        layers = sorted({*_layers(path), layer})
        key = root / KEYRINGS / key_name(repository)
        text = repository.key.decode("utf-8", "surrogateescape")
        keys.append(file(key, text, secret=not armoured(repository)))  # no bytes in a diff
        sources.append(file(path, render(repository, key, layers)))
        gone += [file(other, None) for other in _keys(root, name) if other != key]
    for path in sorted((root / SOURCES).glob(source_name("*"))):
        name = path.name[len(PREFIX) : -len(".sources")]
        layers = _layers(path)
        if name in wanted or layer not in layers:
            continue
        others = [each for each in layers if each != layer]
        if others:
            text = _FOR.sub(f"# For the layers: {' '.join(others)}", path.read_text("utf-8"))
            sources.append(file(path, text))
        else:
            sources.append(file(path, None))
            gone += [file(key, None, secret=True) for key in _keys(root, name)]
    return [*keys, *sources, *(each for each in gone if each.changed)]


def lacking(repositories: Sequence[Repository], root: Path) -> list[Repository]:
    """Those that no layer has defined on the node."""
    for repository in repositories:
        check_repository(repository)
    return [each for each in repositories if not (root / SOURCES / source_name(each.name)).exists()]


def _keys(root: Path, name: str) -> list[Path]:
    paths = [root / KEYRINGS / f"{PREFIX}{name}.{end}" for end in ("asc", "gpg")]
    return [path for path in paths if path.exists()]


def _layers(path: Path) -> list[str]:
    """The layers that a definition on the node says it is for."""
    try:
        found = _FOR.search(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return []
    return found.group(1).split() if found else []

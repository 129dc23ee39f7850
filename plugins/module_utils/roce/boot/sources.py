# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules that one module needs, as text: from the checkout or from Ansible's zip on the node.

Whatever loaded this very module gives their source, so what is installed is what runs now.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Optional

_LEVELS = ("ansible_collections", "baremetal", "mpi_roce", "plugins", "module_utils")
PREFIX = ".".join(_LEVELS)
"""All modules of the collection that need nothing but Python."""

_IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+([\w.]+)|from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.+))", re.M
)
"""Parsing them all would take a second on a slow node, in every run; a test compares with that."""
_WORD = re.compile(r"\w+")


class SourceError(Exception):
    """A source cannot be read, or needs something that a node does not have."""


def closure(entry: str) -> dict[str, str]:
    """Path to text of `entry` and of everything that it imports from this collection."""
    # Empty packages on the way, lest a system's own ansible_collections be found instead.
    found = {f"{'/'.join(_LEVELS[: depth + 1])}/__init__.py": "" for depth in range(len(_LEVELS))}
    waiting, seen = [entry], {PREFIX}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None:
            continue
        path, text = _source(name, spec)
        found[path] = text
        waiting += _parents(name)
        waiting += _imported(name, text, is_package=spec.submodule_search_locations is not None)
    return dict(sorted(found.items()))


def digest(files: Mapping[str, str]) -> str:
    """One name for one set of files."""
    total = hashlib.sha256()
    for path, text in sorted(files.items()):
        total.update(f"{path}\0{len(text)}\0{text}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()[:16]


def _spec(name: str) -> Optional[ModuleSpec]:
    """None for what is no module: a class or function imported by name."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


def _source(name: str, spec: ModuleSpec) -> tuple[str, str]:
    getter = getattr(spec.loader, "get_source", None)
    text = getter(name) if getter else None
    if not isinstance(text, str):
        raise SourceError(f"{name}: its source cannot be read where this runs ({spec.origin})")
    package = spec.submodule_search_locations is not None
    return f"{name.replace('.', '/')}{'/__init__' if package else ''}.py", text


def _parents(name: str) -> Iterator[str]:
    while name != PREFIX:
        name = name.rpartition(".")[0]
        yield name


def _imported(name: str, text: str, *, is_package: bool) -> Iterator[str]:
    """Names that may be modules of this collection. Anything of Ansible's is a mistake."""
    for match in _IMPORT.finditer(text):
        plain, base, names = match.groups()
        base = plain or _absolute(name, base, is_package=is_package)
        if base.split(".")[0] == "ansible":
            raise SourceError(f"{name} imports {base}: nodes have no Ansible of their own")
        if base == PREFIX or base.startswith(f"{PREFIX}."):
            yield base
            yield from (f"{base}.{each}" for each in _WORD.findall(names or "") if each.islower())


def _absolute(name: str, base: str, *, is_package: bool) -> str:
    """`..setting` as `name` sees it."""
    rest = base.lstrip(".")
    level = len(base) - len(rest)
    if not level:
        return base
    parts = name.split(".")
    up = level - 1 if is_package else level
    kept = parts[: len(parts) - up] if up else parts
    return ".".join([*kept, *([rest] if rest else [])])

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches (RFC 6902) on CONFIG_DB as JSON, and the patch between two states of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

Config = dict[str, Any]
Operation = dict[str, Any]


class PatchError(Exception):
    """The patch cannot be applied to this document."""


def tokens(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError("Location must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def pointer(parts: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def applied(patch: Sequence[Operation], document: Config) -> Config:
    """What the document becomes; PatchError, and the document as it was, where it cannot be."""
    result = copy.deepcopy(document)
    for operation in patch:
        _apply(operation, result)
    return result


def _apply(operation: Operation, document: Any) -> None:
    try:
        kind, path = operation["op"], tokens(operation["path"])
    except (KeyError, TypeError) as error:
        raise PatchError(f"Operation does not contain {error} member") from error
    if kind in ("add", "replace", "test") and "value" not in operation:
        raise PatchError("The operation does not contain a 'value' member")
    if kind == "add":
        _add(document, path, copy.deepcopy(operation["value"]))
    elif kind == "remove":
        _remove(document, path)
    elif kind == "replace":
        parent, last = _parent(document, path)
        if last not in parent:
            raise PatchError(f"can't replace a non-existent object '{last}'")
        parent[last] = copy.deepcopy(operation["value"])
    elif kind == "test":
        if _found(document, path) != operation["value"]:
            raise PatchError(f"{_found(document, path)!r} is not equal to tested value")
    elif kind in ("move", "copy"):
        source = tokens(operation["from"])
        value = copy.deepcopy(_found(document, source))
        if kind == "move":
            _remove(document, source)
        _add(document, path, value)
    else:
        raise PatchError(f"Unknown operation {kind!r}")


def _parent(document: Any, path: Sequence[str]) -> tuple[dict[str, Any], str]:
    if not path:
        raise PatchError("the whole document cannot be changed")
    parent = _found(document, path[:-1])
    if not isinstance(parent, dict):
        raise PatchError(f"{pointer(path[:-1])} is no object")
    return parent, path[-1]


def _found(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if not isinstance(document, dict) or part not in document:
            raise PatchError(f"member '{part}' not found in {str(document)[:200]}")
        document = document[part]
    return document


def _add(document: Any, path: Sequence[str], value: Any) -> None:
    parent, last = _parent(document, path)
    parent[last] = value


def _remove(document: Any, path: Sequence[str]) -> None:
    parent, last = _parent(document, path)
    if last not in parent:
        raise PatchError(f"can't remove a non-existent object '{last}'")
    del parent[last]


def difference(old: Config, new: Config) -> list[Operation]:
    """As jsonpatch makes it: what goes and comes with the same value elsewhere is a move."""
    gone: dict[str, list[Operation]] = {}
    rest: list[Operation] = []
    for operation in _difference((), old, new):
        if operation["op"] == "remove":
            gone.setdefault(_text(_found(old, tokens(operation["path"]))), []).append(operation)
        else:
            rest.append(operation)
    for number, operation in enumerate(rest):
        same = gone.get(_text(operation["value"])) if operation["op"] == "add" else None
        if same:
            source = same.pop()["path"]
            rest[number] = {"op": "move", "from": source, "path": operation["path"]}
    return [operation for same in gone.values() for operation in same] + rest


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _difference(path: tuple[str, ...], old: Any, new: Any) -> Iterator[Operation]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield {"op": "replace", "path": pointer(path), "value": new}
        return
    for name in old:
        if name not in new:
            yield {"op": "remove", "path": pointer((*path, name))}
    for name, value in new.items():
        if name not in old:
            yield {"op": "add", "path": pointer((*path, name)), "value": value}
        else:
            yield from _difference((*path, name), old[name], value)

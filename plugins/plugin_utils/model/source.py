# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Model files: which files are models, and their YAML as plain values with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Optional

import yaml

from ..schema.findings import Finding, Findings, Path, listed
from .schema import PLUGIN

_NAMED = re.compile(rf"""^[^#\n]*:\s*['"]?{re.escape(PLUGIN)}\b""", re.M)
_PLUGIN = re.compile(r"^plugin\s*:", re.M)
_SECTION = re.compile(r"^(management|rails|addresses|leaves)\s*:", re.M)
_KEY = re.compile(r"^[^\s#-].*:", re.M)
_TOP_KEY = re.compile(r"^\w+\s*:", re.M)
_MOST_KEYS = 1000
"""Top-level keys that are read, so that errors are found in bounded time."""
_DEEPEST = 50
"""Maximum depth; Ansible's code fails at about 200."""
YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DRAFT = "# Draft of a cluster model"
"""Start of the first line of files that playbooks/discover.yml writes."""


class ModelError(Exception):
    """The model is invalid. `findings` lists every error, in the order of the file."""

    def __init__(self, source: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda finding: finding.line or 0))
        super().__init__(listed(f"{source}: this cluster model has", self.findings))


class ModelSource:
    """One model file: its name, its content as Python values, and their positions."""

    def __init__(self, name: str, data: Any, root: Any = None) -> None:
        self.name = name
        self.data = data
        self._root = root
        self._below: dict[int, dict[Any, tuple[int, Any]]] = {}
        """Line and value of each key, by the `id()` of the mapping's node."""

    def line(self, path: Path) -> Optional[int]:
        """The line of the value at `path`, counted from 1, or of the closest parent."""
        _node, line = self._walk(path)
        return line

    def text(self, path: Path) -> Optional[str]:
        """The scalar at `path` as written in the file.

        YAML reads the PCI address `0000:11:00.0` as a base-60 number, and `07` as octal. Keys for
        text use the original.
        """
        node, _line = self._walk(path)
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _walk(self, path: Path) -> tuple[Any, Optional[int]]:
        node = self._root
        if node is None:
            return None, None
        line = node.start_mark.line + 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                if id(node) not in self._below:
                    keys = ((key.value, key.start_mark.line + 1, to) for key, to in node.value)
                    self._below[id(node)] = {name: (at, to) for name, at, to in keys}
                line, node = self._below[id(node)].get(str(part), (line, None))
                if node is None:
                    return None, line
            elif isinstance(node, yaml.SequenceNode) and part in range(len(node.value)):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return None, line
        return node, line


def is_model(path: FilePath) -> bool:
    """Whether the file is a cluster model, or was meant to be one and must be reported as an error:
    several sections of one, as with a misspelt `plugin`, or a `cluster.yml` without `plugin`, or
    without any key.

    Raises OSError if the file cannot be read.
    """
    # UTF-16 has a zero byte between letters.
    text = _content(path).decode("utf-8", "replace").replace("\0", "")
    sections = set(_SECTION.findall(text))
    if _NAMED.search(text) or len(sections) > 2:
        return True
    named = path.stem == "cluster" and not _PLUGIN.search(text)
    return named and (bool(sections) or _KEY.search(text) is None)


def read_file(path: str) -> ModelSource:
    """Parse the file at `path`. Raises ModelError, even if it cannot be read."""
    try:
        text = _content(FilePath(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Check the path and its permissions, and save it as UTF-8"
        line = None
        if isinstance(error, UnicodeDecodeError):
            line = error.object.count(b"\n", 0, error.start) + 1
        finding = Finding("model.cannot_be_read", (), f"cannot be read: {error}", remedy, line)
        raise ModelError(path, [finding]) from error
    return read(path, text)


def _content(path: FilePath) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")  # reading a FIFO would block
    return path.read_bytes()


def read(name: str, text: str) -> ModelSource:
    """Parse `text`. Raises ModelError if it is not YAML or has duplicate keys."""
    findings = Findings()
    beyond = next(islice(_TOP_KEY.finditer(text), _MOST_KEYS, None), None)
    loader = YamlLoader(text[: beyond.start()] if beyond else text)
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
        if data is None:
            findings.add("model.empty", (), "the file is empty", "Describe a cluster in it")
            raise ModelError(name, findings.found)
        _find_repeated(root, (), findings, {})
        if text.startswith(DRAFT) and not findings:
            _find_templates(root, (), findings)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        problem = "not YAML: " + (getattr(error, "problem", None) or str(error))
        if isinstance(error, RecursionError) or "nesting depth" in problem:
            problem = f"nested too deeply, more than {_DEEPEST} levels"
        finding = Finding("model.not_yaml", (), problem, "Correct the syntax", line)
        raise ModelError(name, [finding]) from error
    finally:
        loader.dispose()
    if findings:
        raise ModelError(name, findings.found)
    return ModelSource(name, data, root)


def _below(node: Any, path: Path) -> list[tuple[Path, Any]]:
    """The values in a mapping or list, with their paths."""
    if isinstance(node, yaml.MappingNode):
        return [((*path, key.value), value) for key, value in node.value]
    return [((*path, index), value) for index, value in enumerate(node.value)]


def _find_templates(node: Any, path: Path, findings: Findings) -> None:
    """Reject templates in a draft, whose values come from machines."""
    scalar = isinstance(node, yaml.ScalarNode)
    for text in [*map(str, path[-1:]), *([node.value] if scalar else [])]:
        if re.search(r"{[{%#]", text):
            problem = "is a template, but the first line marks the file as a draft from machines"
            remedy = "Find out where it comes from. If you wrote it, remove the first line"
            line = node.start_mark.line + 1
            finding = Finding("model.draft_template", path, problem, remedy, line, text)
            findings.found.append(finding)
    for place, value in () if scalar else _below(node, path):
        _find_templates(value, place, findings)


_MOST = 10_000_000
"""Maximum number of values with aliases expanded: a hundred for each of 100,000 nodes."""


def _find_repeated(node: Any, path: Path, findings: Findings, sizes: dict[int, int]) -> int:
    """Report duplicate keys, of which YAML silently uses the last one, and recursive aliases.

    Returns the number of values of the node with expanded aliases; `sizes` caches it.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in sizes:
        return sizes[id(node)]
    if len(path) > _DEEPEST:
        raise yaml.MarkedYAMLError(None, None, "nesting depth", node.start_mark)
    sizes[id(node)] = _MOST  # for an alias to itself
    size = 1
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, _value in node.value:
            line, place = key.start_mark.line + 1, (*path, key.value)
            if key.value in first:
                problem = f"is written twice, first in line {first[key.value]}"
                remedy, value_of = "Remove one of them", key.value
                found = Finding("model.key_twice", place, problem, remedy, line, value_of)
                findings.found.append(found)
            first.setdefault(key.value, line)
    size += sum(_find_repeated(value, at, findings, sizes) for at, value in _below(node, path))
    if size > _MOST:
        at = node.start_mark.line + 1
        problem = "aliases (*name) are recursive, or expand to too many values"
        remedy = "Write the value instead"
        findings.found.append(Finding("model.aliases", path, problem, remedy, at))
        size = 1
    sizes[id(node)] = size
    return size

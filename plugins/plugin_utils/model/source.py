# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Model files: which files are models, and their YAML as plain values with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Optional

import yaml

from ...module_utils.core.text import bytes_text, shortened, some
from ..schema.findings import Finding, Findings, Path, listed
from ..schema.kinds import named
from .schema import PLUGIN

_NAMED = re.compile(rf"""^[^#\n]*:\s*['"]?{re.escape(PLUGIN)}\b""", re.M)
_PLUGIN = re.compile(r"^plugin\s*:", re.M)
_SECTION = re.compile(r"^(management|rails|addresses|leaves)\s*:", re.M)
_KEY = re.compile(r"^[^\s#-].*:", re.M)
_TOP_KEY = re.compile(r"^\w+\s*:", re.M)
_MOST_KEYS = 1000
"""Top-level keys that are read, so that errors are found in bounded time."""
MOST_BYTES = 64 << 20
"""Of a file: 100,000 listed nodes with their devices have 40 MB."""
_MOST_VALUES = 600_000
"""Of a file, whose reading takes 10 microseconds and 0.5 KB for each: 32 for each of 18,000 listed
nodes. 10,000 nodes with 16 devices of rails and 8 of GPUs each have 300,000."""
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

    def __init__(
        self, name: str, data: Any, root: Any = None, found: Iterable[Finding] = ()
    ) -> None:
        self.name = name
        self.data = data
        self.found = tuple(found)
        """Errors of single values, which were read as text."""
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
        content = _content(FilePath(path))
        if len(content) > MOST_BYTES:
            raise OSError(f"it is larger than {bytes_text(MOST_BYTES)}")
        text = content.decode("utf-8")
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
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)


def read(name: str, text: str) -> ModelSource:
    """Parse `text`. Raises ModelError if it has no values."""
    findings = Findings()
    if text.removeprefix("\ufeff").startswith("$ANSIBLE_VAULT;"):
        problem = "is encrypted by ansible-vault"
        remedy = f"A model contains no secrets: `ansible-vault decrypt FILE`. {_SECRETS}"
        findings.found.append(Finding("model.encrypted", (), problem, remedy, 1))
        raise ModelError(name, findings.found)
    values = sum(map(text.count, ",\n\r"))
    if values > _MOST_VALUES:
        problem = f"{values} lines and commas, which separate values: more than {_MOST_VALUES}"
        remedy = "Describe equal nodes by count, kinds or aliases, and move variables to "
        remedy += "group_vars and host_vars"
        findings.add("model.too_many_values", (), problem, remedy, values)
        raise ModelError(name, findings.found)
    beyond = next(islice(_TOP_KEY.finditer(text), _MOST_KEYS, None), None)
    text = text[: beyond.start()] if beyond else text
    findings.found += _control_characters(text)
    try:
        if findings:
            raise ModelError(name, findings.found)
        loader = YamlLoader(text)
        try:
            root = loader.get_single_node()
            nodes = _Nodes(loader, findings)
            if root is not None:
                nodes.check(root, ())
            if text.startswith(DRAFT) and not findings:
                _find_templates(root, (), findings)
            data = None if nodes.broken or root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise ModelError(name, _syntax_errors(text, error)) from error
    if data is None and not findings:
        findings.add("model.empty", (), "the file is empty", "Describe a cluster in it")
    if data is None:
        raise ModelError(name, findings.found)
    if isinstance(data, dict):
        data = {key: data[key] for key in data if not str(key).startswith(IGNORED)}
    return ModelSource(name, data, root, findings.found)


IGNORED = "x-"
"""Start of top-level keys that are ignored: a place for anchors."""
_QUOTES = "Write text that begins with a special character, and templates, in quotes"
_SECRETS = "Secrets belong in group_vars/all.yml next to the model, which may be encrypted"
_TAGS = tuple(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "map", "seq", "null", "bool", "int", "float", "timestamp")
)
_VARIABLES = "vars"
_LONGEST = 1000
"""Characters of a number or date."""
_MERGE = "tag:yaml.org,2002:merge"
_MOST = 1_000_000
"""Maximum number of values with aliases expanded: a hundred for each of 10,000 nodes."""


class _Nodes:
    """Checks of YAML's nodes, before merge keys are merged and scalars converted."""

    def __init__(self, loader: Any, findings: Findings) -> None:
        self._loader = loader
        self._findings = findings
        self._sizes: dict[int, int] = {}
        self.broken = False
        """Whether the nodes cannot be converted."""

    def _add(self, code: str, node: Any, path: Path, problem: str, remedy: str, value: Any) -> None:
        line = node.start_mark.line + 1
        self._findings.found.append(Finding(code, path, problem, remedy, line, value))

    def check(self, node: Any, path: Path) -> int:
        """Report keys written twice, recursive aliases, tags, and values that cannot be converted.

        Returns the number of values of the node with expanded aliases.
        """
        if isinstance(node, yaml.ScalarNode):
            if node.tag != _TAGS[0]:
                self._check_scalar(node, path)
            return 1
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if len(path) > _DEEPEST:
            raise yaml.MarkedYAMLError(None, None, "nesting depth", node.start_mark)
        self._sizes[id(node)] = _MOST  # for an alias to itself
        if node.tag not in _TAGS:
            self._refuse_tag(node, path)
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node, path)
        size = 1 + sum(self.check(value, at) for at, value in _below(node, path))
        if size > _MOST:
            problem = "aliases (*name) are recursive, or expand to too many values"
            self._add("model.aliases", node, path, problem, "Write the value instead", None)
            size, self.broken = 1, True
        self._sizes[id(node)] = size
        return size

    def _check_keys(self, node: Any, path: Path) -> None:
        """Check the keys of a mapping, of which YAML silently uses the last one."""
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "a mapping or list is the key of a mapping, as in a template without "
                problem += "quotes: {{ x }}"
                self._add("model.key_not_text", key, path, problem, _QUOTES, None)
                self.broken = True
                continue
            place = (*path, key.value)
            if key.value in first:
                problem = f"is written twice, first in line {first[key.value]}"
                merge = key.tag == _MERGE
                remedy = "Merge a list: <<: [*a, *b]" if merge else "Remove one of them"
                self._add("model.key_twice", key, place, problem, remedy, key.value)
            first.setdefault(key.value, key.start_mark.line + 1)
            if key.tag == _MERGE:
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if not all(isinstance(each, yaml.MappingNode) for each in merged):
                    problem = "is not a mapping, or a list of mappings, to be merged"
                    self._add("model.merge", key, place, problem, "Write <<: *name", None)
                    self.broken = True
            elif key.tag not in _TAGS:
                self._refuse_tag(key, place)
            elif key.tag != _TAGS[0] and _VARIABLES not in path:
                key.tag = _TAGS[0]  # `on` and `1` are names

    def _check_scalar(self, node: Any, path: Path) -> None:
        """Report a value that YAML cannot convert, and read it as text."""
        if node.tag not in _TAGS:
            return self._refuse_tag(node, path)
        try:
            if len(node.value) > _LONGEST:
                raise ValueError("too long")
            self._loader.construct_object(node)
        except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError):
            kind = node.tag.rpartition(":")[2]
            problem = f"{shortened(node.value, 80)!r} is not a valid {kind} of YAML"
            remedy = "Correct it, or write text in quotes"
            self._add("model.impossible_value", node, path, problem, remedy, node.value)
            self._loader.recursive_objects.pop(node, None)
            node.tag = _TAGS[0]

    def _refuse_tag(self, node: Any, path: Path) -> None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        problem = f"has the YAML tag {tag}, which a model cannot have"
        remedy = _SECRETS if tag.startswith("!vault") else f"Remove the tag. {_QUOTES}"
        self._add("model.tag", node, path, problem, remedy, tag)
        kinds = (yaml.ScalarNode, yaml.MappingNode, yaml.SequenceNode)
        node.tag = dict(zip(kinds, _TAGS))[type(node)]


def _below(node: Any, path: Path) -> list[tuple[Path, Any]]:
    """The values in a mapping or list, with their paths."""
    if isinstance(node, yaml.MappingNode):
        return [((*path, str(key.value)), value) for key, value in node.value]
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


# Syntax errors

_LINES = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
"""Line breaks of YAML 1.1."""
_CONTROL = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that YAML excludes, and line breaks of YAML (U+0085, U+2028, U+2029) that editors do
not show.
"""
_TAB = re.compile(r" *\t")
_TEMPLATE = re.compile(r"(^|[:\[{,-])\s*\{[{%]")
_ALIAS = re.compile(r"\*[\w-]*")
_MOST_LINES = 20
"""Lines with the same error that are reported."""


def _syntax_errors(text: str, error: Exception) -> list[Finding]:
    """The error of the parser, and what the lines around it show."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    code, remedy, value = "model.not_yaml", "Correct the syntax", None
    problem = "not YAML: " + str(problem or error)
    line = mark.line + 1 if mark else None
    lines = _LINES.split(text)
    here = lines[line - 1] if line and line <= len(lines) else ""
    at = here[mark.column : mark.column + 1] if mark else ""
    begin, context = getattr(error, "context_mark", None), str(getattr(error, "context", ""))
    if isinstance(error, RecursionError) or "nesting depth" in problem:
        problem = f"nested too deeply, more than {_DEEPEST} levels"
    elif "another document" in problem:
        problem, remedy = "not YAML: a second document begins here", "Remove it, or the line ---"
        value = "---"
    elif at == "\t" or _TAB.match(here):
        also = [number for number, each in enumerate(lines, 1) if _TAB.match(each)]
        problem, value = "not YAML: the line is indented with a tab", "\t"
        remedy = f"Indent with spaces (lines with tabs: {some(also or [line])})"
    elif mark and "undefined alias" in problem:
        problem = f"not YAML: no anchor for {_ALIAS.findall(here[mark.column :])[0]}"
        remedy = "Write the anchor (&name) above its aliases (*name)"
    elif begin and "quoted scalar" in context and "unexpected" in problem:
        line, problem = begin.line + 1, "not YAML: a quotation mark is not closed"
        remedy = "Close it"
    elif line is not None:
        if begin and begin.line + 1 < line:
            problem += f" ({context}, from line {begin.line + 1})"
        before = lines[max(0, line - 2) : line]
        value = next((char for each in before for char in each if not char.isascii()), None)
        if value:
            remedy += f". {named(value)} is in this line or the previous one"
        elif any(map(_TEMPLATE.search, before)):
            value, remedy = "{{", _QUOTES
        elif "cannot start any token" in problem:
            value, remedy = at, f"Write text that begins with {at} in quotes"
        elif "mapping values are not allowed" in problem:
            remedy = "Correct the indentation, or write a value that contains `: ` in quotes"
    return [Finding(code, (), problem, remedy, line, value)]


def _control_characters(text: str) -> Iterator[Finding]:
    for odd in islice(_CONTROL.finditer(text), _MOST_LINES):
        line = text.count("\n", 0, odd.start()) + 1
        column = odd.start() - text.rfind("\n", 0, odd.start())
        problem = f"{named(odd[0])} in column {column} is not allowed"
        value = (odd[0], column)
        yield Finding("model.control_character", (), problem, "Remove it", line, value)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A YAML file with its line numbers: plain values for the schema, places for the messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import yaml  # type: ignore[import-untyped]

from ..schema.findings import Finding, Findings, Path, listed

YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ModelError(Exception):
    """The model cannot be compiled. `findings` has every reason, in the order of the file."""

    def __init__(self, source: str, findings: Iterable[Finding]) -> None:
        self.source = source
        self.findings = tuple(sorted(findings, key=lambda finding: finding.line or 0))
        super().__init__(listed(f"{source}: this cluster model has", self.findings))


class Source:
    """One model file: its name, its content as Python values, and where each value stands."""

    def __init__(self, name: str, data: Any, root: Any = None) -> None:
        self.name = name
        self.data = data
        self._root = root

    def line(self, path: Path) -> Optional[int]:
        """The 1-based line of the value at `path`, or of the nearest thing around it."""
        _node, line = self._walk(path)
        return line

    def text(self, path: Path) -> Optional[str]:
        """The scalar at `path` as it is written in the file.

        YAML reads the PCI address `0000:11:00.0` as a number to base 60 and `07` as an octal one;
        keys that are text take what the operator wrote.
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
                for key, value in node.value:
                    if key.value == str(part):
                        line, node = key.start_mark.line + 1, value
                        break
                else:
                    return None, line
            elif isinstance(node, yaml.SequenceNode) and part in range(len(node.value)):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return None, line
        return node, line


def read(name: str, text: str) -> Source:
    """Parse `text`. Raises ModelError when it is not YAML or writes a key twice."""
    findings = Findings()
    loader = YamlLoader(text)
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
        if data is None:
            findings.add("model.empty", (), "the file is empty", "Describe a cluster in it")
            raise ModelError(name, findings.found)
        _find_repeated(root, (), findings)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        problem = "not YAML: " + (getattr(error, "problem", None) or str(error))
        finding = Finding("model.not_yaml", (), problem, "Correct the syntax there", line)
        raise ModelError(name, [finding]) from error
    finally:
        loader.dispose()
    if findings:
        raise ModelError(name, findings.found)
    return Source(name, data, root)


def _find_repeated(node: Any, path: Path, findings: Findings) -> None:
    """Keys written twice, of which YAML would silently take the last."""
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            line, place = key.start_mark.line + 1, (*path, key.value)
            if key.value in first:
                problem = f"is written twice, first in line {first[key.value]}"
                findings.found.append(
                    Finding("model.key_twice", place, problem, "Keep one of them", line, key.value)
                )
            first.setdefault(key.value, line)
            _find_repeated(value, place, findings)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _find_repeated(value, (*path, index), findings)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A YAML file with its line numbers: plain values for the schema, places for the messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

try:
    import yaml  # type: ignore[import-untyped]

    try:
        from yaml import CSafeLoader as YamlLoader
    except ImportError:
        from yaml import SafeLoader as YamlLoader
except ImportError as error:  # the controller has it: Ansible itself needs it
    YAML_MISSING: Optional[ImportError] = error
else:
    YAML_MISSING = None

from ..schema.findings import SHOWN, Finding, Findings, Path

_PLAIN = "tag:yaml.org,2002:"

REPEATED = 200_000
"""Values that aliases may repeat: ten thousand nodes with their devices do, nested aliases do not
stop there."""


class ModelError(Exception):
    """The model cannot be compiled. `findings` has every reason, in the order of the file."""

    def __init__(self, source: str, findings: Iterable[Finding]) -> None:
        self.source = source
        self.findings = tuple(sorted(findings, key=lambda finding: finding.line or 0))
        super().__init__(self._text())

    def _text(self) -> str:
        count = len(self.findings)
        lines = [finding.text() for finding in self.findings[:SHOWN]]
        if count > SHOWN:
            lines.append(f"... and {count - SHOWN} more.")
        head = f"{self.source}: this cluster model has {count} error{'s' if count != 1 else ''}:"
        return "\n  ".join([head, *lines])


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
        if self._root is None:
            return None
        node, _line = self._walk(path)
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _walk(self, path: Path) -> tuple[Any, Optional[int]]:
        node = self._root
        if node is None:
            return None, None
        line = node.start_mark.line + 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                for key, value in reversed(node.value):
                    if key.value == str(part):
                        line, node = key.start_mark.line + 1, value
                        break
                else:
                    return None, line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    return None, line
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return None, line
        return node, line


def read(name: str, text: str) -> Source:
    """Parse `text`. Raises ModelError when it is not YAML or writes a key twice."""
    if YAML_MISSING is not None:
        raise YAML_MISSING
    loader = YamlLoader(text)
    try:
        root = loader.get_single_node()
        if root is None or root.tag == f"{_PLAIN}null":
            raise ModelError(
                name, [Finding("model.empty", (), "the file is empty", "Describe a cluster in it")]
            )
        findings = Findings()
        _check_aliases(name, root)
        _find_trouble(root, (), findings, set())
        if findings:
            raise ModelError(name, findings.found)
        return Source(name, loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = "not YAML: " + " ".join(filter(None, [error.context, error.problem]))
        raise ModelError(
            name,
            [
                Finding(
                    "model.not_yaml",
                    (),
                    problem,
                    "Correct the syntax there",
                    mark.line + 1 if mark else None,
                )
            ],
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        problem = f"not YAML: {error}"
        raise ModelError(
            name, [Finding("model.yaml_value", (), problem, "Correct the syntax")]
        ) from error
    finally:
        loader.dispose()


def _check_aliases(name: str, root: Any) -> None:
    """Raise ModelError where aliases of aliases make more of the file than a cluster can be."""
    sizes: dict[int, int] = {}
    written = 0

    def size(node: Any) -> int:
        """Values at and below the node, aliases written out; one inside itself counts once."""
        nonlocal written
        if id(node) not in sizes:
            written += 1
            sizes[id(node)] = 1
            below = (
                [part for pair in node.value for part in pair]
                if isinstance(node, yaml.MappingNode)
                else node.value
                if isinstance(node, yaml.SequenceNode)
                else []
            )
            sizes[id(node)] = 1 + sum(map(size, below))
        return sizes[id(node)]

    if size(root) - written > REPEATED:
        raise ModelError(
            name,
            [
                Finding(
                    "model.aliases",
                    (),
                    f"aliases repeat more than {REPEATED} values",
                    "Write out what the aliases stand for, at most one inside another",
                )
            ],
        )


def _find_trouble(node: Any, path: Path, findings: Findings, above: set[int]) -> None:
    """Keys written twice and tags that only Ansible knows: YAML itself would let them pass."""
    if id(node) in above:
        findings.found.append(
            Finding(
                "model.alias_in_itself",
                path,
                "an alias contains itself",
                "Write the value out",
                _line(node),
            )
        )
        return
    above.add(id(node))
    if not node.tag.startswith(_PLAIN):
        findings.found.append(
            Finding(
                "model.tag",
                path,
                f"the tag {node.tag} is not understood in a model",
                "Put secrets and templates into group_vars/ or host_vars/ beside the model",
                _line(node),
                value=node.tag,
            )
        )
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                findings.found.append(
                    Finding(
                        "model.key_not_plain",
                        path,
                        "a key is not a plain word",
                        "Write a name there",
                        _line(key),
                    )
                )
                continue
            if key.value in first:
                findings.found.append(
                    Finding(
                        "model.key_twice",
                        (*path, key.value),
                        f"is written twice, first in line {first[key.value]}",
                        "Keep one of them",
                        _line(key),
                        value=key.value,
                    )
                )
            first.setdefault(key.value, _line(key))
            _find_trouble(value, (*path, key.value), findings, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _find_trouble(value, (*path, index), findings, above)
    above.discard(id(node))


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1

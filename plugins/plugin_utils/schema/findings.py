# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wrong with what somebody wrote: collected first, then told all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Callable, Optional, Union

from ...module_utils.core.dataclass import dataclass

Path = tuple[Union[str, int], ...]
"""Where a value stands: `("nodes", "list", 2, "pci")`."""

SHOWN = 100
"""Findings printed at once: more of them have one cause, and the first hundred show it."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, which value, what about it, and what to do."""

    code: str
    """What is wrong, whatever the words: `qos.rail_mtu`. Programs and tests go by it."""
    path: Path
    problem: str
    remedy: str
    line: Optional[int] = None
    value: Any = field(default=None, repr=False, hash=False)
    """What is wrong there, or those that do not go together. No secret that the problem hides."""

    def text(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        key = f"{dotted(self.path)}: " if self.path else ""
        remedy = f" {self.remedy}." if self.remedy else ""
        return f"{place}{key}{self.problem}.{remedy}"


class RefusedError(ValueError):
    """A variable is refused. `findings` has every reason."""

    what = ""
    """The variable, and what cannot be done with it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = len(self.findings)
        head = f"{self.what}, {count} error{'s' if count != 1 else ''}:"
        super().__init__("\n  ".join([head, *(finding.text() for finding in self.findings)]))


class Findings:
    """A growing list of findings that looks up the line of each.

    `written` gives a scalar as it stands in the file, whatever YAML made of it.
    """

    def __init__(
        self,
        line_of: Optional[Callable[[Path], Optional[int]]] = None,
        written: Optional[Callable[[Path], Optional[str]]] = None,
    ) -> None:
        self.found: list[Finding] = []
        self.written = written or (lambda path: None)
        self._line_of = line_of or (lambda path: None)

    def add(self, code: str, path: Path, problem: str, remedy: str, value: Any = None) -> None:
        self.found.append(Finding(code, path, problem, remedy, self._line_of(path), value))

    def place(self, path: Path) -> str:
        """`nodes.name (line 12)`: another place, as a message names it."""
        line = self._line_of(path)
        return dotted(path) if line is None else f"{dotted(path)} (line {line})"

    def clean(self, *prefixes: Path) -> bool:
        """Whether nothing was found at or below these places: they can be reasoned about."""
        return not any(
            finding.path[: len(prefix)] == prefix or prefix[: len(finding.path)] == finding.path
            for finding in self.found
            for prefix in prefixes
        )

    def __bool__(self) -> bool:
        return bool(self.found)


def dotted(path: Path) -> str:
    """`nodes.list[2].pci`: a path as people write it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text

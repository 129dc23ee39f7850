# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wrong with what an operator wrote: collected first, then reported all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from ...module_utils.core.text import counted

Path = tuple[Union[str, int], ...]
"""Where a value stands: `("nodes", "list", 2, "pci")`."""

SHOWN = 100
"""Findings printed at once: more of them have one cause, and the first hundred show it."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, which value, what about it, and what to do."""

    code: str
    """Identifies what is wrong, for programs and tests: `qos.rail_mtu`."""
    path: Path
    problem: str
    remedy: str
    line: Optional[int] = None
    value: Any = field(default=None, repr=False, hash=False)
    """What is wrong there, or values that exclude each other. No secret that the problem hides."""

    def text(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        key = f"{dotted(self.path)}: " if self.path else ""
        remedy = f" {self.remedy}." if self.remedy else ""
        return f"{place}{key}{self.problem}.{remedy}"


def listed(head: str, findings: Sequence[Finding]) -> str:
    """`HEAD 2 errors:` and a line for each finding, up to SHOWN."""
    lines = [finding.text() for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(f"... and {len(findings) - SHOWN} more.")
    return "\n  ".join([f"{head} {counted(len(findings), 'error')}:", *lines])


class RefusedError(ValueError):
    """A variable is refused. `findings` has every reason."""

    what = ""
    """The variable, and what cannot be done with it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(listed(f"{self.what},", self.findings))


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

    def __bool__(self) -> bool:
        return bool(self.found)


def dotted(path: Path) -> str:
    """`nodes.list[2].pci`: a path in one word."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text

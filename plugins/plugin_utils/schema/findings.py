# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors in an operator's input, collected first and then reported together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from ...module_utils.core.text import counted, printable

Path = tuple[Union[str, int], ...]
"""Position of a value: `("nodes", "list", 2, "pci")`."""

MAX_LISTED = 100
"""Maximum number of findings in one message; more of them usually have a common cause."""


@dataclass(frozen=True)
class Finding:
    """One error: its position, its value, the problem and the remedy."""

    code: str
    """Identifier for programs and tests: `qos.rail_mtu`."""
    path: Path
    problem: str
    remedy: str
    line: Optional[int] = None
    value: Any = field(default=None, repr=False, hash=False)
    """The wrong value, or values that exclude each other; never a secret."""

    def text(self) -> str:
        line = f"line {self.line}: " if self.line is not None else ""
        key = f"{dotted(self.path)}: " if self.path else ""
        remedy = f" {self.remedy}." if self.remedy else ""
        return f"{line}{key}{self.problem}.{remedy}"


def listed(head: str, findings: Sequence[Finding]) -> str:
    """`HEAD 2 errors:` and a line for each finding, up to MAX_LISTED."""
    lines = [finding.text() for finding in findings[:MAX_LISTED]]
    if len(findings) > MAX_LISTED:
        lines.append(f"... and {len(findings) - MAX_LISTED} more.")
    return "\n  ".join([f"{head} {counted(len(findings), 'error')}:", *lines])


class RefusedError(ValueError):
    """A variable is invalid. `findings` lists every reason."""

    what = ""
    """The variable, and what its error prevents."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(listed(f"{self.what},", self.findings))


class Findings:
    """A list of findings that looks up the line of each.

    `written` returns a scalar as written in the file, before YAML converted it.
    """

    def __init__(
        self,
        line_of: Optional[Callable[[Path], Optional[int]]] = None,
        written: Optional[Callable[[Path], Optional[str]]] = None,
    ) -> None:
        self.found: list[Finding] = []
        self.written = written or (lambda path: None)
        self._line_of = line_of or (lambda path: None)
        self._above: Path = ()

    def below(self, path: Path) -> Findings:
        """The same list, for code whose paths are relative to `path`."""
        other = Findings(self._line_of, self.written)
        other.found, other._above = self.found, (*self._above, *path)
        return other

    def add(self, code: str, path: Path, problem: str, remedy: str, value: Any = None) -> None:
        path = (*self._above, *path)
        self.found.append(Finding(code, path, problem, remedy, self._line_of(path), value))

    def place(self, path: Path) -> str:
        """`nodes.name (line 12)`: a reference to another position, for a message."""
        path = (*self._above, *path)
        line = self._line_of(path)
        return dotted(path) if line is None else f"{dotted(path)} (line {line})"

    def __bool__(self) -> bool:
        return bool(self.found)


def dotted(path: Path) -> str:
    """A path as text: `nodes.list[2].pci`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return str(printable(text))

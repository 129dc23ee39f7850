# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A model that cannot be compiled, with every reason."""

from __future__ import annotations

from collections.abc import Iterable

from ..schema.findings import SHOWN, Finding


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

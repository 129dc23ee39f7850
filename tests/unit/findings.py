# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Findings in tests: compared by line, code, path and value, not by their sentences."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import (
    Finding,
    dotted,
)

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
MAKERS = ("Finding", "Invalid", "Fault")
"""Callables whose first argument is a code, in addition to methods named add. Rules for versions
have their own table: test_software_set."""


def codes() -> Counter[str]:
    """Every code in the source, with the number of its occurrences."""
    counts: Counter[str] = Counter()
    for path in PLUGINS.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            code = call.args[0]
            if name in MAKERS or (name in ("add", "_add") and len(call.args) > 3):
                text = code.value if isinstance(code, ast.Constant) else None
                if isinstance(text, str) and re.fullmatch(r"[a-z]+\.[a-z0-9_]+", text):
                    counts[text] += 1
    return counts


def brief(findings: Iterable[Finding], below: int = 0) -> list[str]:
    """`6 qos.rail_mtu rails.mtu (9216, 9198)`. `below`: number of path elements to omit."""
    return [_brief(finding, below) for finding in findings]


def _brief(finding: Finding, below: int) -> str:
    value = finding.value
    # For an unexpected section or list, the type says enough.
    shown = type(value).__name__ if isinstance(value, (dict, list)) else repr(value)
    line = "" if finding.line is None else str(finding.line)
    path = dotted(finding.path[below:])
    return " ".join(filter(None, [line, finding.code, path, "" if value is None else shown]))

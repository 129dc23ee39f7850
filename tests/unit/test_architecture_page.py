# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table "Where is it?" of docs/architecture.md names files and symbols that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| [^|]+ \| `([\w./]+\.py)` \| ([^|]+) \|$",
    PAGE.partition("## Where is it?")[2].partition("\n## ")[0],
    re.MULTILINE,
)


def symbols(text: str) -> set[str]:
    """Functions, classes, methods and constants: `f`, `C`, `C.f`, `LIMIT`."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize(("file", "listed"), ROWS)
def test_symbols_of_the_architecture_page(file: str, listed: str) -> None:
    wanted = set(re.findall(r"`([\w.]+)`", listed))
    assert wanted and wanted <= symbols((ROOT / "plugins" / file).read_text(encoding="utf-8"))


def test_the_table_is_complete() -> None:
    table = PAGE.partition("## Where is it?")[2].partition("\n## ")[0]
    assert len(ROWS) == table.count("\n|") - 2 >= 24, "a row that no test reads"

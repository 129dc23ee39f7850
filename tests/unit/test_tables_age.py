# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of external facts are compared with their sources at least twice a year.

A module with such a table (branches, toolkits, kernels, codes) has a constant whose name ends with
`DATED`: the day of the last comparison.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
MAX_AGE_DAYS = 183
SUFFIX = "DATED"


def dated(source: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of every dated constant of a module."""
    for line in ast.parse(source).body:
        name = getattr(line.targets[0], "id", "") if isinstance(line, ast.Assign) else ""
        if name.endswith(SUFFIX):
            yield name, ast.literal_eval(line.value)


TABLES = [
    (str(path.relative_to(PLUGINS)), name, day)
    for path in sorted(PLUGINS.rglob("*.py"))
    if SUFFIX in (source := path.read_text(encoding="utf-8"))
    for name, day in dated(source)
]


@pytest.mark.parametrize(("module", "name", "day"), TABLES)
def test_tables_are_up_to_date(module: str, name: str, day: str) -> None:
    age = (datetime.date.today() - datetime.date.fromisoformat(day)).days
    assert 0 <= age <= MAX_AGE_DAYS, f"{module}: compare the table of {name} with its source"

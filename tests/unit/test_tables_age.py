# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of external facts become outdated: each has a date, and must be checked again within half
a year.

A module with such a table (branches, toolkits, kernels, codes) has a constant whose name ends with
`DATED`: the day on which the table was last compared with its source.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
MOST_DAYS = 183
ENDS_WITH = "DATED"


def dated(source: str) -> Iterator[tuple[str, str]]:
    """Name and value of every dated constant of a module."""
    for line in ast.parse(source).body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id.endswith(ENDS_WITH):
                value = getattr(line, "value", None)
                assert isinstance(value, ast.Constant), f"{target.id}: write the date as a string"
                yield target.id, str(value.value)


def problem(day: str, today: datetime.date) -> str:
    age = (today - datetime.date.fromisoformat(day)).days
    if age < 0:
        return "it is of the future"
    return f"it is {age} days old: compare it with its source" if age > MOST_DAYS else ""


TABLES = [
    (str(path.relative_to(PLUGINS)), name, day)
    for path in sorted(PLUGINS.rglob("*.py"))
    if ENDS_WITH in (source := path.read_text(encoding="utf-8"))
    for name, day in dated(source)
]


@pytest.mark.parametrize(("module", "name", "day"), TABLES)
def test_no_table_is_older_than_half_a_year(module: str, name: str, day: str) -> None:
    assert problem(day, datetime.date.today()) == "", f"{module}: {name} of {day}"


def test_tables_are_found() -> None:
    assert ("plugin_utils/model/software_rules.py", "DATED") in {each[:2] for each in TABLES}


@pytest.mark.parametrize(
    ("day", "found"),
    [("2026-06-01", ""), ("2026-01-01", "331 days old"), ("2026-12-24", "of the future")],
)
def test_an_old_date_and_one_to_come_are_found(day: str, found: str) -> None:
    assert found in (problem(day, datetime.date(2026, 11, 28)) or "")
    assert bool(found) is bool(problem(day, datetime.date(2026, 11, 28)))


def test_every_form_of_a_constant_is_read() -> None:
    text = 'A_DATED = "2026-01-01"\nB_DATED: str = "2026-01-02"\nOTHER = 1\n'
    assert [*dated(text)] == [("A_DATED", "2026-01-01"), ("B_DATED", "2026-01-02")]

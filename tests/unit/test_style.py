# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Two rules of style that ruff does not have.

Tests assert codes, names and values, not sentences: a sentence may be improved without a change of
tests. Calls take arguments, not an unpacked literal: `f(*("a", "b"))` is `f("a", "b")`.

    python tests/unit/test_style.py

prints every place that breaks a rule.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROSE_WORDS = 4
"""Number of words that make a string in an assert a sentence."""
MOST_WITH_PROSE = 91
"""Number of files with sentences in asserts. It may only shrink."""


def is_sentence(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and sum(map(str.isalpha, node.value.split())) >= PROSE_WORDS
    )


def prose(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of asserts, and of calls with `match`, that contain a sentence."""
    for node in ast.walk(tree):
        compared: list[ast.AST] = []
        if isinstance(node, ast.Assert):
            compared = [node.test]
        elif isinstance(node, ast.Call):
            compared = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
        if any(is_sentence(part) for value in compared for part in ast.walk(value)):
            yield getattr(node, "lineno", 0)


def unpacking(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of unpacked tuples and lists in the arguments of calls."""
    for node in ast.walk(tree):
        for argument in node.args if isinstance(node, ast.Call) else ():
            literal = isinstance(argument, ast.Starred) and argument.value
            if isinstance(literal, (ast.Tuple, ast.List)):
                yield argument.lineno


def report(rule: Callable[[ast.AST], Iterator[int]], *folders: str) -> dict[str, list[int]]:
    """Return the lines that break a rule, by file."""
    names = subprocess.run(
        ["git", "ls-files", "--", *(f"{folder}/**.py" for folder in folders)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert len(names) > 100
    paths = [name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    lines = {name: list(rule(ast.parse((ROOT / name).read_text("utf-8")))) for name in paths}
    return {name: numbers for name, numbers in lines.items() if numbers}


def test_asserts_contain_no_sentences() -> None:
    found = report(prose, "tests/unit")
    assert len(found) <= MOST_WITH_PROSE, sorted(found)


def test_calls_unpack_no_literals() -> None:
    assert report(unpacking, "plugins", "tests", "tools") == {}


@pytest.mark.parametrize(
    ("rule", "text", "broken"),
    [
        (prose, 'assert error == "the port is not up"', True),
        (prose, 'with raises(ValueError, match="the port is not up"):\n    pass', True),
        (prose, 'assert error.code == "port_down", "the port is not up"', False),
        (prose, 'assert argv == ["ip", "link"]', False),
        (unpacking, 'f(*("a", "b"))', True),
        (unpacking, 'f(1, *["a"])', True),
        (unpacking, "f(*names)", False),
        (unpacking, 'x = (*("a", "b"), 1)', False),
    ],
)
def test_rules(rule: Callable[[ast.AST], Iterator[int]], text: str, broken: bool) -> None:
    assert bool(list(rule(ast.parse(text)))) is broken


if __name__ == "__main__":
    broken = {**report(prose, "tests/unit")}
    for name, numbers in report(unpacking, "plugins", "tests", "tools").items():
        broken[name] = sorted({*broken.get(name, []), *numbers})
    sys.stdout.writelines(f"{name}:{n}\n" for name, numbers in broken.items() for n in numbers)
    sys.exit(bool(broken))

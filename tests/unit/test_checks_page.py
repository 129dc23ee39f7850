# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/checks.md has every check that the code makes, and none that it does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAKERS = {"Check", "compare", "not_applicable"}
NAME = re.compile(r"[a-z][a-z0-9_]*")
PREFIXES = ("rail_", "port_", "link_", "sshd_", "wire_")
"""Names that are put together: `rail_` and a setting, `port_` and an aspect; a row each."""
KEYS = {"user_key", "host_key"}
"""The kind of a key pair, and `_key`."""


def documented() -> set[str]:
    text = (ROOT / "docs/checks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([a-z0-9_]+)`", row)}


def made() -> Iterator[tuple[str, str]]:
    """Names of checks that are written out, as a text or as a constant of the same file."""
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = dict(_constants(tree))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else ""
            called = function.id if isinstance(function, ast.Name) else called
            first = node.args[0]
            value = first.value if isinstance(first, ast.Constant) else None
            if isinstance(first, ast.Name):
                value = constants.get(first.id)
            if called in MAKERS and isinstance(value, str) and NAME.fullmatch(value):
                yield value, str(path.relative_to(ROOT))


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, each in zip(names, values):
            if isinstance(name, ast.Name) and isinstance(each, ast.Constant):
                yield name.id, each.value


def test_every_check_has_a_row() -> None:
    names = documented()
    lacking = {each for each in made() if each[0] not in names}
    assert not {each for each in lacking if not each[0].startswith(PREFIXES)}


def test_every_row_is_a_check_of_the_code() -> None:
    sources = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "roles").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    words = set(re.findall(r'"([a-z][a-z0-9_]*)"', text))
    composed = {word for word in documented() if word.startswith(PREFIXES)}
    composed = {word for word in composed if word.partition("_")[2] in {"", *words}}
    assert not documented() - words - composed - KEYS

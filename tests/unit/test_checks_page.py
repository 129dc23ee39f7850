# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers declare every check that the code makes, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKERS = {"Check", "compare", "not_applicable"}
NAME = re.compile(r"[a-z][a-z0-9_]*")
PREFIXES = ("rail_", "port_", "link_", "sshd_", "wire_")
"""Prefixes of composed names, such as `rail_` with a setting. Each has one row."""
KEYS = {"user_key", "host_key"}
"""Names composed of the kind of a key pair and `_key`."""


def declared() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "layers").glob("*.yml"):
        for row in yaml.safe_load(path.read_text(encoding="utf-8")).get("checks", {}):
            names.update(re.findall(r"`([a-z0-9_]+)`", row) if "`" in row else row.split(", "))
    return names


def made() -> Iterator[str]:
    """Yield the names of checks that the code spells out, as literals or module constants."""
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = dict(_constants(tree))
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            maker = getattr(call.func, "attr", getattr(call.func, "id", ""))
            named = [word.value for word in call.keywords if word.arg == "name"]
            for name in [*call.args[:1], *named] if maker in MAKERS else ():
                value = getattr(name, "value", constants.get(getattr(name, "id", "")))
                if isinstance(value, str) and NAME.fullmatch(value):
                    yield value


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, constant in zip(targets, values):
            if isinstance(name, ast.Name) and isinstance(constant, ast.Constant):
                yield name.id, constant.value


def test_every_check_is_declared() -> None:
    undeclared = set(made()) - declared()
    assert not {name for name in undeclared if not name.startswith(PREFIXES)}


def test_every_declared_check_is_made() -> None:
    sources = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "roles").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    literals = set(re.findall(r'"([a-z][a-z0-9_]*)"', text))
    composed = {
        name
        for name in declared()
        if name.startswith(PREFIXES) and name.partition("_")[2] in {"", *literals}
    }
    assert not declared() - literals - composed - KEYS

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Codes of messages are unique, and one golden file per package contains their sentences.

    UPDATE_GOLDEN=1 pytest tests/unit/test_messages.py

writes the golden files after an edit of sentences.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import pickle
from collections import Counter, defaultdict
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.messages import message

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden/messages"


def templates() -> dict[str, list[tuple[str, str]]]:
    """Return (code, sentence) of every call of `message` in plugins/, by package."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        where = path.relative_to(ROOT / "plugins").parts
        package = where[1] if len(where) > 2 else where[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "message":
                code, template = (ast.literal_eval(argument) for argument in node.args)
                found[package].append((code, template))
    return found


def test_codes_are_unique() -> None:
    codes = Counter(code for made in templates().values() for code, _ in made)
    assert [code for code, count in codes.items() if count > 1] == []


def test_sentences() -> None:
    made = {
        f"{package}.txt": "".join(f"{code}: {text}\n" for code, text in sorted(found))
        for package, found in templates().items()
    }
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for old in GOLDEN.glob("*.txt"):
            old.unlink()
        for name, text in made.items():
            (GOLDEN / name).write_text(text, encoding="utf-8")
    golden = {path.name: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt")}
    assert made == golden


def test_a_message_is_text_with_code_and_values() -> None:
    made = message("mtu_small", "{port}: {{mtu}} is {mtu}", port="{x}", mtu=1500)
    assert made == "{x}: {mtu} is 1500"
    assert (made.code, made.values) == ("mtu_small", {"port": "{x}", "mtu": 1500})
    assert json.loads(json.dumps({"a": made})) == {"a": "{x}: {mtu} is 1500"}
    assert copy.deepcopy(made).code == "mtu_small"
    assert pickle.loads(pickle.dumps(made)).values == made.values

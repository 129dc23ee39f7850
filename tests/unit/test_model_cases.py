# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models as operators wrote them, in data/models: what each compiles to, or why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.small_model import compiled, doubts, refused

MODELS = Path(__file__).with_name("data") / "models"
REFUSED: dict[str, list[str]] = {
    "d13-port-of-a-node": ["4 model.unknown_key nodes.list[0].leaf_port"],
}
"""File to its findings: line, code, path, value."""
DOUBTED: dict[str, list[str]] = {
    "d06-two-kinds-of-nodes-as-meant": [],
    "d07-cpu-only-node-as-meant": [],
    "d08-two-launchers": [],
    "d13-port-of-a-node-as-meant": [],
    "d17-node-removed-from-list": [],
    "d17-node-removed-from-list-as-meant": [],
}
"""File that compiles, to its warnings."""


def text(name: str) -> str:
    return (MODELS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert refused(text(name)) == REFUSED[name]


@pytest.mark.parametrize("name", DOUBTED)
def test_compiled(name: str) -> None:
    assert compiled(text(name)).hosts
    assert doubts(text(name)) == DOUBTED[name]

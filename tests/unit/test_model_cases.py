# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models as operators wrote them, in data/models: what each compiles to, or why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.small_model import compiled, doubts, refused

MODELS = Path(__file__).with_name("data") / "models"
REFUSED: dict[str, list[str]] = {
    "d02-superpod-b300-8su-spine-groups": ["8 model.leaf_ports leaves.ports (32, 0)"],
}
"""File to its findings: line, code, path, value."""
DOUBTED: dict[str, list[str]] = {
    "d01-superpod-b300-twin-planar-1su": [],
    "d02-superpod-b300-8su-spine-groups-as-meant": [],
    "d03-three-tiers": [],
    "d16-spine-added": [],
    "d16-spine-added-as-meant": [],
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

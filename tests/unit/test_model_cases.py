# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models as operators wrote them, in data/models: what each compiles to, or why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.small_model import compiled, doubts, refused

MODELS = Path(__file__).with_name("data") / "models"
REFUSED: dict[str, list[str]] = {
    "07-leaf-128x800-on-spectrum4": ["8 model.chip_lanes leaves.ports (128, 800)"],
    "08-leaf-72-ports": ["8 model.chip_lanes leaves.ports (72, 800)"],
    "10-nvue-on-tomahawk": ["8 model.chip_system leaves.asic ('nvue', 'tomahawk5')"],
    "11-eos-on-spectrum": ["8 model.chip_system leaves.asic ('eos', 'spectrum4')"],
    "13-sonic-port-start-1": ["8 model.port_lanes leaves.port_start 'Ethernet1'"],
    "14-nvue-port-step-8": ["8 model.port_beyond leaves.port_step 'swp73'"],
    "15-nvue-ethernet-names": ["8 model.port_form leaves.port 'Ethernet1'"],
    "d04-nvue-breakout-names": ["8 model.pattern leaves.port 'swp{}s{}'"],
    "d12-uplinks-first": ["8 model.unknown_key leaves.uplinks"],
    "d15-infiniband": ["8 model.infiniband leaves.system 'mlnxos'"],
}
"""File to its findings: line, code, path, value."""
DOUBTED: dict[str, list[str]] = {}
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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models as operators wrote them, in data/models: what each compiles to, or why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.small_model import compiled, doubts, refused

MODELS = Path(__file__).with_name("data") / "models"
REFUSED: dict[str, list[str]] = {
    "17-two-servers-one-address": [
        "15 storage.servers_share_address filesystems[1].source ('172.16.0.250', 'storage01')"
    ],
    "18-external-nfs-is-a-rail": ["11 storage.source_address filesystems[0].source '172.16.0.3'"],
    "d18-wekafs": ["11 storage.type_of_others filesystems[0].type 'wekafs'"],
}
"""File to its findings: line, code, path, value."""
DOUBTED: dict[str, list[str]] = {
    "25-ecn-above-any-buffer": [
        "10 qos.above_buffer roce_qos.ecn.maximum_bytes (1073741824, 158229504)"
    ],
    "26-gpu-with-two-rails": ["6 model.gpu_without_rail rails.gpu (6, 7)"],
    "27-numa-contradiction": ["6 model.numa_of_rail rails.numa (0, 0, 8)"],
    "28-idle-leaves": ["8 model.idle_switches leaves.count ('leaf05', 4)"],
    "29-oversubscribed-31-to-1": ["10 model.oversubscribed spines.links_per_leaf '31:1'"],
    "31-drained-and-absent": ["4 model.drained_and_absent nodes.absent[0] 'node02'"],
    "32-rails-called-eth": ["6 model.interface_of_system rails.interface 'eth0'"],
    "d18-wekafs-as-meant": [],
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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Codes of findings are unique, and their sentences are those of golden/findings.txt.

Other tests compare codes, paths and values. tests/conftest.py checks that a test raises each code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import load
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

from tests.unit.file_systems import one, read_filesystems, two
from tests.unit.findings import codes
from tests.unit.small_model import compiled, edited
from tests.unit.software_sets import value

GOLDEN = Path(__file__).parent / "golden/findings.txt"


def test_a_code_means_one_thing() -> None:
    counts = codes()
    assert len(counts) > 100
    assert {code for code, count in counts.items() if count > 1} == set()


def model(edits: str) -> Callable[[], object]:
    return lambda: compiled(edited(edits))


REFUSED: tuple[Callable[[], object], ...] = (
    model("addresses.pol: 1; plugin: baremetal.mpi_roce.clusters; rails; gpus.count: '2'"),
    model("launcher.name: node02; rails.mtu: 9216; nodes.drained: [node3]"),
    model("nodes.count: 60; nodes.management_first: 10.0.0.200; rails.planes: 2"),
    model("leaves.ports: 1; addresses.pool: 10.1.0.0/24; management.interface: rail1"),
    model("nodes.count: four; name: !vault small"),
    model("name: [small"),
    lambda: compiled("# nothing\n"),
    lambda: load("nowhere/cluster.yml"),
    lambda: read_contract({"dscp": 24, "cnp": {"dscp": 26}, "best_effort": {"priority": 9}}),
    lambda: read_software(value(driver__version="570.124.06", dcgm="")),
    lambda: read_filesystems(two(mount="/mnt/checkpoints/old")),
    lambda: read_filesystems(one(options=["noattime", "soft"], nfs=None)),
)


def test_sentences() -> None:
    """One of each kind, as operators read them."""
    sentences = []
    for raised in REFUSED:
        with pytest.raises(Exception) as error:
            raised()
        sentences.append(str(error.value))
    assert "\n\n".join(sentences).splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()

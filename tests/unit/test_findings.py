# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Findings: codes that mean one thing each and that a test raises, and how sentences are made.

Other tests go by codes, places and values. One sentence of each kind is in golden/findings.txt.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    load,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

from tests.unit.file_systems import one, read_filesystems, two
from tests.unit.small_model import compiled, edited
from tests.unit.software_sets import value

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden/findings.txt"
MAKERS = ("Finding", "Wrong", "Exhausted", "report")
"""What is called with a code first, besides methods named add. Rules on versions are a table of
their own: test_software_set."""
OF_PLAYBOOKS = {"inventory.template", "inventory.role_variable"}
"""Tests read what a play prints of these: test_qos_inventory, test_cluster_directory."""


def codes() -> Counter[str]:
    """Every code that is written in the source, and at how many places."""
    found: Counter[str] = Counter()
    for path in (ROOT / "plugins").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            code = call.args[0]
            if name in MAKERS or (name in ("add", "_add") and len(call.args) > 3):
                text = code.value if isinstance(code, ast.Constant) else None
                if isinstance(text, str) and re.fullmatch(r"[a-z]+\.[a-z0-9_]+", text):
                    found[text] += 1
    return found


def test_a_code_means_one_thing() -> None:
    found = codes()
    assert len(found) > 100, "they are found at all"
    assert {code for code, places in found.items() if places > 1} == set()


def test_each_code_is_raised_by_a_test() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parent.glob("*.py")
        if path != Path(__file__)
    )
    raised = set(re.findall(r"[a-z]+\.[a-z0-9_]+", tests)) | OF_PLAYBOOKS
    assert sorted(set(codes()) - raised) == []


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


def test_sentences_are_as_they_were() -> None:
    """What operators read, of every kind: a change is looked at before it is taken over there."""
    sentences = []
    for raised in REFUSED:
        with pytest.raises(Exception) as error:
            raised()
        sentences.append(str(error.value))
    assert "\n\n".join(sentences).splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action cluster_discover as Ansible runs it, on machines that were read already."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import load

from tests.unit.action_plays import ROOT, run_play
from tests.unit.read_machines import Facts, recorded

pytestmark = pytest.mark.slow

PLAY = """\
- hosts: all:!leaf:!spine:!launcher:!storage
  gather_facts: false
  tasks:
    - baremetal.mpi_roce.cluster_discover:
        read: discover_read
        path: draft.yml
      run_once: true
"""


def result(number: int) -> dict[str, Facts]:
    return {"ansible_facts": recorded("b300-8x800g", number)}


def play(tmp_path: Path, inventory: Path, *options: str) -> tuple[int, str]:
    return run_play(tmp_path, PLAY, inventory, *options)


def test_a_draft_is_written_once_and_never_in_check_mode(tmp_path: Path) -> None:
    hosts = {f"10.10.1.{number}": {"discover_read": result(number)} for number in (1, 2)}
    hosts["10.10.1.3"] = {"discover_read": {"unreachable": True}}
    hosts["10.10.1.2"]["discover_read"]["ansible_facts"]["rdma_host"]["interfaces"]["rail1"][
        "mtu"
    ] = 1500
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    draft = tmp_path / "draft.yml"

    status, output = play(tmp_path, inventory, "--check", "--diff")
    assert status == 0, output
    assert "+plugin: baremetal.mpi_roce.cluster" in output
    assert not draft.exists()

    status, output = play(tmp_path, inventory)
    assert status == 0, output
    assert [node.name for node in load(str(draft)).nodes] == ["node01", "node02"]
    assert "discover: 2 nodes read, 1 differ from most of them" in output
    assert "10.10.1.2  rail1  MTU   1500   9000 (1 of 2)" in output
    assert "not read, and skipped: 10.10.1.3" in output

    before = draft.read_text(encoding="utf-8")
    status, output = play(tmp_path, inventory)
    assert status != 0
    assert f"{draft} exists and is not overwritten" in output
    assert draft.read_text(encoding="utf-8") == before


def test_with_a_model_nothing_is_written_and_each_difference_is_shown(tmp_path: Path) -> None:
    variables = tmp_path / "vars.json"
    variables.write_text(json.dumps({"discover_read": result(1)}), encoding="utf-8")
    status, output = play(tmp_path, ROOT / "inventories/b300", "-e", f"@{variables}")
    assert status == 0, output
    assert not (tmp_path / "draft.yml").exists()
    assert "discover: 4 nodes read, 4 differ from the model" in output
    assert re.search(r"node02 +- +host name +node01 +node02 \(model\)", output)
    assert re.search(r"node03 +rail0 +address +10.100.0.11/24 +10.100.0.13/24 \(model\)", output)

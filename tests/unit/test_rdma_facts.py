# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts of a machine, and the model that they suggest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.modules import rdma_facts
from ansible_collections.baremetal.mpi_roce.plugins.modules.rdma_facts import as_facts

from tests.hardware.trees import machine, names
from tests.unit.test_hardware_survey import B300

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("name", names())
def test_facts_are_json_with_exactly_the_documented_keys(name: str) -> None:
    returned = yaml.safe_load(rdma_facts.RETURN)["ansible_facts"]["contains"]
    documented = returned["rdma_hardware"]["contains"]
    keys = set(re.findall(r"C\((\w+)\)", documented["nics"]["description"]))
    facts = json.loads(json.dumps(as_facts(machine(name))))
    assert set(facts) == set(documented)
    for nic in facts["nics"]:
        assert set(nic) == keys
    for gpu in facts["gpus"]:
        assert set(gpu) == set(documented["gpus"]["sample"][0])


def test_model_of_the_reference_machine() -> None:
    inventory = yaml.safe_load((REPOSITORY / "inventories/b300/cluster.yml").read_text())
    model = as_facts(machine(B300))["model"]
    for key, value in model["gpus"].items():
        assert inventory["gpus"][key] == value, key
    for key, value in model["rails"].items():
        assert inventory["rails"][key] == value, key


def test_the_model_read_off_split_ports_has_planes() -> None:
    rails = as_facts(machine("b300-16x400g"))["model"]["rails"]
    assert (rails["count"], rails["planes"], rails["speed_gbps"]) == (8, 2, 400)
    assert rails["pci"][0] == ["0000:11:00.0", "0000:11:00.1"]


def test_no_model_without_a_nic() -> None:
    assert as_facts(machine("b300-missing-nic"))["model"] == {}

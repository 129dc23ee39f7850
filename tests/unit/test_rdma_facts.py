# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts of a machine, and the model that they suggest."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.modules import rdma_facts
from ansible_collections.baremetal.mpi_roce.plugins.modules.rdma_facts import as_facts

from tests.hardware.trees import machine, names, recording
from tests.unit.test_hardware_survey import B300, RAIL0
from tools.record_hardware import build

REPOSITORY = Path(__file__).parents[2]


@functools.cache
def documented() -> dict[str, Any]:
    returned = yaml.safe_load(rdma_facts.RETURN)
    facts: dict[str, Any] = returned["ansible_facts"]["contains"]["rdma_hardware"]["contains"]
    return facts


def without(keys: dict[str, Any], *left_out: str) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key not in left_out}


@pytest.mark.parametrize("name", names())
def test_facts_are_json_with_exactly_the_documented_keys(name: str) -> None:
    facts = json.loads(json.dumps(as_facts(machine(name))))
    assert set(facts) == set(documented())
    for nic in facts["nics"]:
        assert set(nic) == set(documented()["nics"]["contains"])
    for gpu in facts["gpus"]:
        assert set(gpu) == set(documented()["gpus"]["sample"][0])


def test_the_model_read_off_the_reference_machine_is_the_reference_model() -> None:
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


def test_there_is_no_model_where_a_nic_is_missing() -> None:
    assert as_facts(machine("b300-missing-nic"))["model"] == {}


class Ended(Exception):
    """What the module said at its end."""


class Module:
    """Stands in for AnsibleModule."""

    def __init__(self, root: str) -> None:
        self.params = {"root": root}

    def __call__(self, **options: Any) -> Module:
        assert options["supports_check_mode"] is True
        return self

    def exit_json(self, **result: Any) -> None:
        raise Ended(result)

    def fail_json(self, **result: Any) -> None:
        raise Ended(result)


def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(rdma_facts, "AnsibleModule", Module(str(root)))
    with pytest.raises(Ended) as ended:
        rdma_facts.main()
    result: dict[str, Any] = ended.value.args[0]
    return result


def test_the_module_returns_one_fact_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(recording(B300, RAIL0), tmp_path)
    result = run(tmp_path, monkeypatch)
    assert result["changed"] is False
    assert list(result["ansible_facts"]) == ["rdma_hardware"]

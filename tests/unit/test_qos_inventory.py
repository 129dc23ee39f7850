# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract in an inventory: from the model, or by hand; the same on every host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import QUEUE_PAIRS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import model
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

from tests.unit.qos_contracts import STORAGE
from tests.unit.small_model import MODEL, compiled, edited, refused

ROOT = Path(__file__).resolve().parents[2]
FABRIC = MODEL + "spines: {count: 2, ports: 64, management_first: 10.0.0.201}\nroce_qos: {}\n"
B300 = ROOT / "inventories/b300/cluster.yml"


def test_a_model_that_says_nothing_has_the_default_contract() -> None:
    everywhere = compiled(MODEL).group_variables["all"]
    assert everywhere["roce_qos"] == read_contract(None).as_variable()


def test_what_the_reference_says_is_the_default() -> None:
    """Its comment says so, and readers learn the keys from it."""
    text = B300.read_text(encoding="utf-8")
    assert "\nroce_qos:\n" in text
    everywhere = model.inventory_of(model.load(str(B300))).group_variables["all"]
    assert everywhere["roce_qos"] == read_contract(None).as_variable()


def test_a_model_gives_its_contract_whole_and_once() -> None:
    inventory = compiled(MODEL + f"roce_qos: {json.dumps(STORAGE)}\n")
    assert inventory.group_variables["all"]["roce_qos"] == read_contract(STORAGE).as_variable()
    assert all("roce_qos" not in host.variables for host in inventory.hosts)


@pytest.mark.parametrize(
    ("leaves", "mode", "pairs"), [(4, "roce", QUEUE_PAIRS), (2, "roce", 1), (4, "spectrum_x", 1)]
)
def test_queue_pairs_are_several_between_leaf_sets(leaves: int, mode: str, pairs: int) -> None:
    """Spectrum-X has adaptive routing for it."""
    sets = {2: "", 4: "; leaves.nodes_per_set: 1"}[leaves]
    text = edited(f"leaves.count: {leaves}{sets}; roce_qos.fabric_mode: {mode}", FABRIC)
    group = compiled(text).group_variables["compute"]
    assert group["cluster_qos"]["queue_pairs"] == pairs


def test_nccl_has_the_queue_pairs_with_which_the_acceptance_loads_a_path() -> None:
    layer = yaml.safe_load((ROOT / "layers/acceptance.yml").read_text(encoding="utf-8"))
    assert layer["options"]["queue_pairs"]["default"] == QUEUE_PAIRS


def test_one_model_leaves_no_trace_in_the_next() -> None:
    compiled(MODEL + "roce_qos: {roce: {dscp: 24, priority: 4}}\n")
    compiled(MODEL.replace("800}", "800, mtu: 1500}"))
    everywhere = compiled(MODEL).group_variables["all"]
    assert everywhere["roce_qos"] == read_contract(None).as_variable()


@pytest.mark.parametrize(
    ("rails", "path"), [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (1280, 1024)]
)
def test_a_path_mtu_that_nobody_wrote_is_what_the_rails_carry(rails: int, path: int) -> None:
    text = MODEL.replace("speed_gbps: 800", f"speed_gbps: 800, mtu: {rails}")
    assert compiled(text).group_variables["all"]["roce_qos"]["mtu"]["roce_path"] == path


def test_a_path_mtu_that_the_rails_do_not_carry() -> None:
    assert refused(edited("rails.mtu: 4191") + "roce_qos:\n  mtu:\n    roce_path: 4096\n") == [
        "12 qos.path_mtu_above_rail roce_qos.mtu.roce_path (4096, 4191)"
    ]


def test_rails_above_the_fabric() -> None:
    """9216 on both sides is wrong: one counts the frame, the other the IP packet."""
    assert refused(edited("rails.mtu: 9216")) == ["6 qos.rail_mtu rails.mtu (9216, 9198)"]
    fabric = "rails.mtu: 9216; roce_qos: {mtu: {fabric: %d, fabric_layer: ip}}"
    assert refused(edited(fabric % 9214)) == ["6 qos.rail_mtu rails.mtu (9216, 9214)"]
    compiled(edited(fabric % 9216))
    compiled(edited("rails.mtu: 9198"))


def test_a_wrong_mode_has_its_line_and_the_nearest() -> None:
    text = MODEL + "roce_qos:\n  roce: {priority: 3}\n  fabric_mode: spectrumx\n"
    assert refused(text) == ["12 model.not_a_choice roce_qos.fabric_mode 'spectrumx'"]
    with pytest.raises(model.ModelError, match="spectrum_x") as caught:
        compiled(text)
    assert "spectrum_x" in caught.value.findings[0].remedy


def test_a_wrong_contract_has_its_lines() -> None:
    contract = "roce_qos:\n  roce:\n    priority: 6\n  ecn:\n    minimum_bytes: 2000000\n"
    assert refused(MODEL + contract) == [
        "10 qos.number_twice roce_qos.cnp.priority (6, 'roce_qos.roce')",
        "10 qos.number_twice roce_qos.cnp.traffic_class (6, 'roce_qos.roce')",
        "14 qos.ecn_order roce_qos.ecn.minimum_bytes (2000000, 1500000)",
    ]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set in an inventory: from the model with lines, or by hand; alike where a job needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import inventory_of, load
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.unit.small_model import MODEL, compiled, refused
from tests.unit.software_sets import WHOLE

ROOT = Path(__file__).resolve().parents[2]


def test_a_model_without_a_set_has_inbox_and_no_driver() -> None:
    everywhere = compiled(MODEL).group_variables["all"]
    assert everywhere["cluster_software"] == read_software(None).as_variable()
    assert everywhere["cluster_software"]["driver"] is None


def test_a_model_gives_its_set_whole_and_once() -> None:
    inventory = compiled(MODEL + f"software: {json.dumps(WHOLE)}\n")
    everywhere = inventory.group_variables["all"]
    assert everywhere["cluster_software"] == read_software(WHOLE).as_variable()
    assert all("cluster_software" not in host.variables for host in inventory.hosts)


def test_the_reference_has_a_set_and_the_virtual_clusters_have_no_driver() -> None:
    def driver(name: str) -> Any:
        inventory = inventory_of(load(str(ROOT / f"inventories/{name}/cluster.yml")))
        return inventory.group_variables["all"]["cluster_software"]["driver"]

    assert driver("b300")["gpu"] == "B300"
    for name in ("virtual", "virtual-mixed", "virtual-rdma"):
        assert driver(name) is None


def test_versions_are_read_as_they_are_written() -> None:
    """YAML makes 13.1 of 13.10; a model has the file."""
    text = MODEL + 'software: {driver: {version: 590.44.01}, cuda: 13.10, dcgm: "", '
    text += 'repositories: {cuda: {key: a, key_sha256: ""}}}\n'
    assert compiled(text).group_variables["all"]["cluster_software"]["cuda"] == "13.10"


def test_every_finding_has_its_line_in_the_order_of_the_file() -> None:
    text = MODEL + "software:\n  rdma: {source: ofed}\n  driver:\n    version: 580.95.05\n"
    text += "    fabric_manager: 580.95.05\n  cuda: thirteen\n"
    assert refused(text) == [
        "11 model.not_a_choice software.rdma.source 'ofed'",
        "14 model.unknown_key software.driver.fabric_manager",
        "15 model.wrong_form software.cuda 'thirteen'",
    ]


def test_versions_that_do_not_go_together_have_their_line() -> None:
    text = MODEL + "software:\n  driver:\n    version: 570.124.06\n  cuda: 13.0\n"
    text += '  repositories:\n    cuda: {key: keys/cuda.asc, key_sha256: ""}\n'
    assert refused(text) == ["13 software.cuda_driver software.cuda"]

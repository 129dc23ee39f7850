# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set in an inventory: from the model with lines, or by hand; alike where a job needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import inventory_of, load
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_sets import (
    Holder,
    check_sets,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.small_model import MODEL, compiled, directory, edited, refused
from tests.unit.software_sets import WHOLE, value
from tests.unit.told import brief

ROOT = Path(__file__).resolve().parents[2]


def test_a_model_that_says_nothing_has_inbox_and_no_driver() -> None:
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
    text = edited("leaves.ports; leaves.prots: 64")
    text += "software:\n  rdma: {source: ofed}\n  driver:\n    version: 580.95.05\n"
    text += "    fabric_manager: 580.95.05\n  cuda: thirteen\n"
    assert refused(text)[2:] == [
        "11 model.not_a_choice software.rdma.source 'ofed'",
        "14 model.unknown_key software.driver.fabric_manager",
        "15 model.wrong_form software.cuda 'thirteen'",
    ]


def test_versions_that_do_not_go_together_have_their_line() -> None:
    text = MODEL + "software:\n  driver:\n    version: 570.124.06\n  cuda: 13.0\n"
    text += '  repositories:\n    cuda: {key: keys/cuda.asc, key_sha256: ""}\n'
    assert refused(text) == ["13 software.cuda_driver software.cuda"]


def told(*holders: Holder) -> list[str]:
    findings = Findings()
    check_sets(holders, findings)
    return brief(findings.found)


def test_the_same_set_may_be_written_in_several_ways() -> None:
    whole = read_software(WHOLE).as_variable()
    nothing = read_software(None).as_variable()
    assert told(Holder("node01", WHOLE), Holder("node02", whole), Holder("node03", value())) == []
    assert told(Holder("node01", None), Holder("node02", {}), Holder("node03", nothing)) == []


def test_a_launcher_needs_no_driver_and_a_family_has_its_own_kernel_and_repositories() -> None:
    other = value(
        kernel="5.14.0-570.12.1.el9_6.x86_64", repositories__cuda__url="https://mirror/el"
    )
    assert told(Holder("node01", WHOLE), Holder("node02", other)) == []
    assert told(Holder("node01", WHOLE), Holder("launcher01", None, compute=False)) == []


def test_compute_hosts_that_differ_are_told_key_by_key() -> None:
    other = value(driver__version="580.105.08", nccl="2.28.9")
    driver = tuple(read_software(each).as_variable()["driver"] for each in (other, WHOLE))
    assert told(
        Holder("node01", WHOLE),
        Holder("node02", other),
        Holder("node03", WHOLE),
        Holder("node04", other),
        Holder("node05", WHOLE),
    ) == [
        f"software.hosts_differ node02.cluster_software.driver {driver}",
        "software.hosts_differ node02.cluster_software.nccl ('2.28.9', '2.28.3')",
    ]


def test_a_mistake_of_ten_thousand_hosts_is_told_once() -> None:
    wrong = value(driver__modules="proprietary")
    holders = [Holder(f"node{number:05d}", wrong) for number in range(10_000)]
    assert told(*holders, Holder("launcher01", {"cuda": 13}, compute=False)) == [
        "software.blackwell_proprietary node00000.cluster_software.driver.modules",
        "model.wrong_form launcher01.cluster_software.cuda 13",
    ]


def test_what_is_doubtful_is_said_once_and_is_no_finding() -> None:
    findings = Findings()
    other = value(kernel="6.17.0-1014-nvidia")
    lines = check_sets(
        [Holder("node01", WHOLE), Holder("node02", other), Holder("node03", WHOLE)], findings
    )
    assert not findings
    assert [line.split(":")[:2] for line in lines] == [
        ["unknown", " software.rdma.version"],
        ["unknown", " software.kernel"],
    ]


@pytest.mark.slow
def test_the_directory_warns_of_doubts_and_refuses_what_hosts_override(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory"
    (inventory / "host_vars").mkdir(parents=True)
    (inventory / "cluster.yml").write_text(
        MODEL + f"software: {json.dumps(WHOLE)}\n", encoding="utf-8"
    )
    said = directory(tmp_path)
    assert "[WARNING]: unknown: software.rdma.version: 3.2.0 (" in said
    assert "ok=1 " in said

    override = value(driver__version="580.105.08", driver__modules="proprietary")
    text = json.dumps({"cluster_software": override})
    (inventory / "host_vars/node02.json").write_text(text, encoding="utf-8")
    said = directory(tmp_path)
    assert "node02.cluster_software.driver.modules: proprietary (" in said
    assert "failed=1 " in said

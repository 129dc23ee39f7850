# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract in an inventory: from the model, or by hand; the same on every host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    contracts,
    inventory_of,
    load,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.contracts import (
    Holder,
    check_contracts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.qos_contracts import STORAGE
from tests.unit.small_model import MODEL, compiled, edited, refused
from tests.unit.told import brief

ROOT = Path(__file__).resolve().parents[2]
B300 = ROOT / "inventories/b300/cluster.yml"


def test_a_model_that_says_nothing_has_the_default_contract() -> None:
    everywhere = compiled(MODEL).group_variables["all"]
    assert everywhere["roce_qos"] == read_contract(None).as_variable()


def test_what_the_reference_says_is_the_default() -> None:
    """Its comment promises so, and readers learn the keys from it."""
    text = B300.read_text(encoding="utf-8")
    assert "\nroce_qos:\n" in text
    everywhere = inventory_of(load(str(B300))).group_variables["all"]
    assert everywhere["roce_qos"] == read_contract(None).as_variable()


def test_a_model_gives_its_contract_whole_and_once() -> None:
    inventory = compiled(MODEL + f"roce_qos: {json.dumps(STORAGE)}\n")
    assert inventory.group_variables["all"]["roce_qos"] == read_contract(STORAGE).as_variable()
    assert all("roce_qos" not in host.variables for host in inventory.hosts)


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
    """9216 on both sides is the mistake: one counts the frame, the other the packet in it."""
    assert refused(edited("rails.mtu: 9216")) == ["6 qos.rail_mtu rails.mtu (9216, 9198)"]
    fabric = "rails.mtu: 9216; roce_qos: {mtu: {fabric: %d, fabric_layer: ip}}"
    assert refused(edited(fabric % 9214)) == ["6 qos.rail_mtu rails.mtu (9216, 9214)"]
    compiled(edited(fabric % 9216))
    compiled(edited("rails.mtu: 9198"))


def test_a_wrong_contract_is_told_with_its_line_among_other_findings() -> None:
    contract = "roce_qos:\n  roce:\n    priority: 6\n  ecn:\n    minimum_bytes: 2000000\n"
    assert refused(edited("leaves.ports; leaves.prots: 64") + contract) == [
        "8 model.unknown_key leaves.prots",
        "8 model.missing_key leaves.ports",
        "10 qos.cnp_lossless roce_qos.cnp.priority 6",
        "10 qos.cnp_lossless roce_qos.cnp.traffic_class 6",
        "14 qos.ecn_order roce_qos.ecn.minimum_bytes (2000000, 1500000)",
    ]


def told(*holders: Holder) -> list[str]:
    findings = Findings()
    check_contracts(holders, findings)
    return brief(findings.found)


def rails(*mtus: Any) -> list[dict[str, Any]]:
    return [{"interface": f"rail{index}", "mtu": mtu} for index, mtu in enumerate(mtus)]


def test_the_same_contract_may_be_written_in_several_ways() -> None:
    whole = read_contract(None).as_variable()
    assert (
        told(
            Holder("node01", None, rails(9000)),
            Holder("node02", {}, rails(9000)),
            Holder("node03", {"roce": {"dscp": 26}}, rails(9000)),
            Holder("leaf01", whole),
        )
        == []
    )


def test_by_hand_too_a_path_mtu_that_nobody_wrote_is_what_the_rails_carry() -> None:
    """As the model has it; the same inventory by hand is no worse."""
    assert told(Holder("node01", {}, rails(1500)), Holder("node02", {}, rails(1500, 1500))) == []
    written = {"mtu": {"roce_path": 4096}}
    assert told(Holder("node01", written, rails(1500))) == [
        "qos.path_mtu_above_rail node01.roce_qos.mtu.roce_path (4096, 1500)"
    ]
    assert read_contract(None, 1500).mtu.roce_path == 1024


def test_hosts_that_differ_are_told_key_by_key() -> None:
    other = {"roce": {"dscp": 24}, "pfc": {"watchdog": {"enabled": False}}}
    assert told(
        Holder("node01", None),
        Holder("node02", other),
        Holder("node03", {}),
        Holder("leaf01", other),
        Holder("spine01", None),
    ) == [
        "qos.hosts_differ node02.roce_qos.roce.dscp (24, 26)",
        "qos.hosts_differ node02.roce_qos.pfc.watchdog.enabled (False, True)",
    ]


def test_a_contract_that_cannot_be_kept_is_told_once_for_all_who_have_it() -> None:
    wrong = {"roce": {"dscp": 106}}
    assert told(*(Holder(f"node{number:02}", wrong) for number in range(40))) == [
        "qos.dscp_is_byte node00.roce_qos.roce.dscp 106"
    ]


def test_a_wrong_contract_beside_right_ones_is_no_second_finding() -> None:
    assert told(Holder("node01", None), Holder("node02", {"cnp": {"strict": False}})) == [
        "qos.cnp_not_strict node02.roce_qos.cnp.strict False"
    ]


def test_rails_of_a_hand_written_inventory_keep_the_contract() -> None:
    assert told(
        Holder("node01", None, rails(9000, 9216)),
        Holder("node02", None, rails(9216, 1500)),
    ) == [
        "qos.rail_mtu node01.cluster_rails[1].mtu (9216, 9198)",
        "qos.path_mtu_above_rail node02.roce_qos.mtu.roce_path (4096, 1500)",
    ]


@pytest.mark.parametrize("odd", ["x", 7, [1], [{"mtu": "9000"}], [{}], None])
def test_rails_that_are_no_rails_are_told_by_the_directory(odd: Any) -> None:
    assert told(Holder("node01", None, odd)) == []


def test_what_ten_thousand_hosts_have_in_common_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    for name in ("_read", "check_rail"):
        real = getattr(contracts, name)

        def counted(*args: Any, _name: str = name, _real: Any = real) -> Any:
            looked.append(_name)
            return _real(*args)

        monkeypatch.setattr(contracts, name, counted)
    value = read_contract(None).as_variable()
    holders = [Holder(f"node{number}", value, rails(*[9000] * 8)) for number in range(10_000)]
    assert told(*holders) == []
    assert looked == ["_read", "check_rail"]


def play(directory: Path, inventory: Path, group_vars: dict[str, Any]) -> tuple[int, str]:
    """cluster_directory on the reference with variables beside the model."""
    for group, variables in group_vars.items():
        path = inventory / "group_vars" / f"{group}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(variables), encoding="utf-8")
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(program), str(ROOT / "playbooks/model.yml"), "-i", str(inventory)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Path:
    inventory = tmp_path / "site"
    inventory.mkdir()
    (inventory / "cluster.yml").write_text(B300.read_text(encoding="utf-8"), encoding="utf-8")
    return inventory


def test_switches_that_are_told_another_contract_end_the_run(tmp_path: Path, site: Path) -> None:
    status, output = play(tmp_path, site, {"spine": {"roce_qos": {"roce": {"dscp": 24}}}})
    assert status != 0
    assert (
        "spine01.roce_qos.roce.dscp: 24 (also on spine02, spine03, spine04), but 26 on node01, "
        "node02, node03 and 11 more" in output
    )


def test_an_override_may_be_a_template(tmp_path: Path, site: Path) -> None:
    override = {"site_dscp": 24, "roce_qos": {"roce": {"dscp": "{{ site_dscp }}"}}}
    status, output = play(tmp_path, site, {"all": override})
    assert status == 0, output
    override["roce_qos"] = {"roce": {"dscp": "{{ nowhere }}"}}
    status, output = play(tmp_path, site, {"spine": override})
    assert status != 0
    assert "spine01.roce_qos: cannot be templated: 'nowhere' is undefined" in output

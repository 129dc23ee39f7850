# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory: one view of everybody, and a judge of inventories written by hand."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import inventory_of, load
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.directory import (
    ROLES,
    VARIABLES,
    Directory,
    Record,
    build,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.told import brief

ROOT = Path(__file__).resolve().parents[2]
B300 = ROOT / "inventories/b300/cluster.yml"

Variables = dict[str, dict[str, Any]]


def reference() -> list[Record]:
    """The hosts of the reference with all that Ansible would merge for them."""
    inventory = inventory_of(load(str(B300)))
    records = []
    for host in inventory.hosts:
        roles = tuple(group for group in host.groups if group in ROLES)
        if not roles:
            continue
        merged = dict(inventory.group_variables["all"])
        for group in host.groups:
            merged.update(inventory.group_variables[group])
        merged.update(host.variables)
        records.append(Record(host.name, roles, copy.deepcopy(merged)))
    return records


def told(records: list[Record]) -> tuple[Directory, list[str]]:
    findings = Findings()
    directory = build(records, findings)
    return directory, brief(findings.found)


def test_the_reference_in_the_order_of_the_model() -> None:
    directory, findings = told(reference())
    assert findings == []
    assert [(entry["name"], entry["role"]) for entry in directory.entries] == [
        ("node01", "compute"),
        ("node02", "compute"),
        ("node03", "compute"),
        ("node04", "compute"),
        ("launcher01", "launcher"),
        ("storage01", "storage"),
    ]
    assert directory.cluster_name == "b300"
    assert directory.total_slots == 32
    assert directory.compute_hosts == ["node01", "node02", "node03", "node04"]


def test_an_entry_has_the_keys_of_the_contract() -> None:
    directory, _findings = told(reference())
    first = directory.entries[0]
    assert {**first, "rails": first["rails"][:1]} == {
        "name": "node01",
        "role": "compute",
        "management_address": "10.10.1.1",
        "rack": "r01",
        "slots": 8,
        "gpus": 8,
        "drained": False,
        "rails": [
            {
                "rail": 0,
                "plane": 0,
                "interface": "rail0",
                "address": "10.100.0.11",
                "prefix": 24,
                "network": "10.100.0.0/24",
                "speed_gbps": 800,
                "gpu": 0,
                "leaf": "leaf01",
                "numa": 0,
            }
        ],
    }
    assert directory.entries[-1] == {
        "name": "storage01",
        "role": "storage",
        "management_address": "10.10.0.21",
        "rack": "",
        "slots": 0,
        "gpus": 0,
        "drained": False,
        "rails": [],
    }


def test_a_drained_node_is_listed_and_gets_no_ranks() -> None:
    records = reference()
    changed(records, "node02")["cluster_drained"] = True
    directory, findings = told(records)
    assert findings == []
    assert directory.drained_hosts == ["node02"]
    assert directory.total_slots == 24
    assert len(directory.compute_hosts) == 4


def test_compute_hosts_are_ordered_by_their_place_and_not_by_name() -> None:
    records = reference()
    for place, name in enumerate(("node03", "node01", "node04", "node02")):
        changed(records, name)["cluster_index"] = place
    directory, findings = told(records)
    assert findings == []
    assert directory.compute_hosts == ["node03", "node01", "node04", "node02"]


def changed(records: list[Record], name: str) -> dict[str, Any]:
    """The variables of one host, to be changed."""
    variables = next(record.variables for record in records if record.name == name)
    assert isinstance(variables, dict)
    return variables


def rail(records: list[Record], name: str, index: int) -> dict[str, Any]:
    found = changed(records, name)["cluster_rails"][index]
    assert isinstance(found, dict)
    return found


WRONG: list[tuple[Any, ...]] = [
    (
        lambda r: changed(r, "node02")["cluster_rails"].__setitem__(3, 7),
        "inventory.rail_not_a_mapping node02.cluster_rails[3] 7",
    ),
    (lambda r: changed(r, "node02").pop("cluster_slots"), "inventory.not_set node02.cluster_slots"),
    (
        lambda r: changed(r, "node02").update(cluster_slots=0),
        "inventory.too_small node02.cluster_slots 0",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_slots="8"),
        "inventory.wrong_type node02.cluster_slots '8'",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_slots=True),
        "inventory.wrong_type node02.cluster_slots True",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_drained="no"),
        "inventory.wrong_type node02.cluster_drained 'no'",
    ),
    (
        lambda r: changed(r, "launcher01").pop("cluster_management"),
        "inventory.not_set launcher01.cluster_management",
    ),
    (
        lambda r: changed(r, "launcher01").update(cluster_management={"address": "launcher01"}),
        "inventory.management_address launcher01.cluster_management.address 'launcher01'",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_management={"address": "10.10.1.1"}),
        "inventory.address_twice node02 '10.10.1.1'",
    ),
    (
        lambda r: rail(r, "node02", 3).update(address="10.100.3.11"),
        "inventory.address_twice node02.cluster_rails[3] '10.100.3.11'",
    ),
    (
        lambda r: rail(r, "node02", 3).update(address="10.99.3.12"),
        "inventory.outside_network node02.cluster_rails[3].address '10.99.3.12'",
    ),
    (
        lambda r: rail(r, "node02", 3).update(gateway="10.100.4.1"),
        "inventory.outside_network node02.cluster_rails[3].gateway '10.100.4.1'",
    ),
    (
        lambda r: rail(r, "node02", 3).update(prefix=16),
        "inventory.prefix node02.cluster_rails[3].prefix 16",
    ),
    (
        lambda r: rail(r, "node02", 3).update(network="10.100.3.1/24"),
        "inventory.rail_value node02.cluster_rails[3].network '10.100.3.1/24'",
    ),
    (
        lambda r: rail(r, "node02", 3).update(adress=rail(r, "node02", 3)["address"]),
        "inventory.unknown_key node02.cluster_rails[3].adress",
    ),
    (
        lambda r: rail(r, "node02", 3).pop("leaf_port"),
        "inventory.missing_key node02.cluster_rails[3].leaf_port",
    ),
    (
        lambda r: rail(r, "node02", 3).update(interface="rail2"),
        "inventory.interface_twice node02.cluster_rails[3].interface 'rail2'",
        "inventory.rails_differ node02.cluster_rails ([(3, 0, 'rail2')], [(3, 0, 'rail3')])",
    ),
    (
        lambda r: rail(r, "node02", 7).update(rail=8, interface="rail8"),
        "inventory.rails_differ node02.cluster_rails ([(8, 0, 'rail8')], [(7, 0, 'rail7')])",
    ),
    (
        lambda r: rail(r, "node02", 7).update(gpu=8),
        "inventory.no_gpu node02.cluster_rails[7].gpu 8",
    ),
    (lambda r: changed(r, "node02").pop("cluster_index"), "inventory.not_set node02.cluster_index"),
    (
        lambda r: changed(r, "node02").update(cluster_index=0),
        "inventory.index_twice node02.cluster_index 0",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_role="storage"),
        "inventory.role node02.cluster_role 'storage'",
    ),
    (
        lambda r: r.remove(next(record for record in r if record.name == "launcher01")),
        "inventory.no_launcher launcher",
    ),
    (
        lambda r: r.insert(0, Record("node01", ("compute", "launcher"), r.pop(0).variables)),
        "inventory.launchers launcher 2",
    ),
    (
        lambda r: [
            changed(r, e.name).update(cluster_mpi_user="root", cluster_mpi_uid=0) for e in r
        ],
        "inventory.system_account node01.cluster_mpi_user 'root'",
        "inventory.system_uid node01.cluster_mpi_uid 0",
    ),
    (
        lambda r: changed(r, "node02")["cluster_management"].update(interface="rail3"),
        "inventory.rail_is_management node02.cluster_rails[3].interface 'rail3'",
    ),
    (
        lambda r: changed(r, "node02").update(cluster_name="b200"),
        "inventory.hosts_differ node02.cluster_name 'b200'",
    ),
    *(
        (
            lambda r, name=name: rail(r, "node02", 0).update(interface=name),
            f"inventory.rail_value node02.cluster_rails[0].interface {name!r}",
        )
        for name in ("rail/0", "", "a-rail-of-16-char", "0rail", "rail 4")
    ),
    *(
        (
            lambda r, speed=speed: rail(r, "node02", 0).update(speed_gbps=speed),
            f"inventory.rail_value node02.cluster_rails[0].speed_gbps {speed}",
        )
        for speed in (0, -400)
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[1])
def test_what_cannot_be_is_refused(case: tuple[Any, ...]) -> None:
    change, *wanted = case
    records = reference()
    change(records)
    assert told(records)[1] == wanted


def test_all_findings_at_once() -> None:
    records = reference()
    changed(records, "node01").pop("cluster_slots")
    changed(records, "node03").update(cluster_rack=7)
    rail(records, "node04", 0).pop("mtu")
    assert [line.rpartition(" ")[2] for line in told(records)[1]] == [
        *("node01.cluster_slots", "7", "node04.cluster_rails[0].mtu"),
    ]


def test_no_compute_hosts_is_no_cluster() -> None:
    assert told([])[1] == ["inventory.no_compute compute"]
    beside = [record for record in reference() if "compute" not in record.roles]
    assert told(beside)[1] == ["inventory.no_compute compute"]


def test_a_host_of_two_groups_is_there_once() -> None:
    records = [record for record in reference() if record.name != "launcher01"]
    records[0] = Record("node01", ("compute", "launcher"), records[0].variables)
    directory, findings = told(records)
    assert findings == []
    assert [entry["name"] for entry in directory.entries].count("node01") == 1


# Through Ansible itself ---------------------------------------------------------------------

PLAY = """\
- name: The first play of site.yml
  ansible.builtin.import_playbook: {model}

- name: Directory
  hosts: all
  gather_facts: false
  tasks:
    - name: Read
      baremetal.mpi_roce.cluster_directory:
      run_once: true
      register: cluster
    - name: Write
      ansible.builtin.copy:
        content: "{{ cluster | to_json }}"
        dest: "{{ lookup('ansible.builtin.env', 'DIRECTORY_OUT') }}"
        mode: "0600"
      run_once: true
      delegate_to: localhost
"""


def play(tmp_path: Path, inventory: Path, *options: object) -> tuple[int, str, Any]:
    """Exit status, output and the registered result; the settings are Ansible's defaults."""
    text = PLAY.replace("{model}", str(ROOT / "playbooks/model.yml"))
    (tmp_path / "play.yml").write_text(text, encoding="utf-8")
    (tmp_path / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    out = tmp_path / "out.json"
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(program), "-i", str(inventory), *map(str, options), str(tmp_path / "play.yml")],
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "DIRECTORY_OUT": str(out),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(out.read_text(encoding="utf-8")) if out.exists() else None
    return done.returncode, done.stdout + done.stderr, result


def test_ansible_gives_the_same_directory_and_limit_does_not_change_it(tmp_path: Path) -> None:
    wanted, _findings = told(reference())
    inventory = ROOT / "inventories/b300"
    # Without a limit: the inventory written by hand, below.
    status, output, result = play(tmp_path, inventory, "--limit", "node03")
    assert status == 0, output
    assert result["directory"] == wanted.entries
    assert result["total_slots"] == 32
    assert result["changed"] is False


def test_variables_of_roles_are_judged_on_every_host_before_any_is_touched(tmp_path: Path) -> None:
    hosts = hand_written()
    hosts["leaf01"] = {"switch_qos_confirm_s": "soon"}
    hosts["node01"]["roce_rails_backend"] = "{{ ansible_facts.nowhere }}"  # known later, if ever
    for name in ("node02", "node03"):
        hosts[name].update(swap="maybe", os_baseline_swap="{{ swap }}")
    status, output, _result = play(
        *(tmp_path, write_inventory(tmp_path / "hosts.yml", hosts), "--limit=node04"),
        *("-e", '{"mpi_smoke_time_limit_s": "long"}'),
    )
    assert status != 0
    assert "3 errors:" in output
    swap = "value of os_baseline_swap must be one of: off, keep, got: maybe (and on 1 other host)"
    assert f"node02.os_baseline_swap: {swap}. Correct it" in output
    assert "node01.mpi_smoke_time_limit_s: argument 'mpi_smoke_time_limit_s' is of" in output
    assert "leaf01.switch_qos_confirm_s: argument 'switch_qos_confirm_s' is of type" in output


def hand_written() -> Variables:
    """The reference as an inventory without the plugin, with a template in place of an address."""
    hosts: Variables = {}
    for record in reference():
        hosts[record.name] = {
            key: record.variables[key] for key in VARIABLES if key in record.variables
        }
    hosts["node01"]["site_number"] = 11
    hosts["node01"]["cluster_rails"][0]["address"] = "10.100.0.{{ site_number }}"
    return hosts


def write_inventory(path: Path, hosts: Variables) -> Path:
    groups: dict[str, Any] = {}
    for name, variables in hosts.items():
        group = "compute" if name.startswith("node") else name.rstrip("01")
        groups.setdefault(group, {"hosts": {}})["hosts"][name] = variables
    path.write_text(json.dumps({"all": {"children": groups}}), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_hand_written_inventory_works_as_well_templates_included(tmp_path: Path) -> None:
    wanted, _findings = told(reference())
    status, output, result = play(tmp_path, write_inventory(tmp_path / "hosts.yml", hand_written()))
    assert status == 0, output
    assert result["directory"] == wanted.entries


@pytest.mark.slow
def test_a_wrong_hand_written_inventory_fails_with_a_line_for_each_finding(tmp_path: Path) -> None:
    hosts = hand_written()
    del hosts["node02"]["cluster_slots"]
    hosts["node03"]["cluster_rails"][5]["address"] = "{{ nowhere }}"
    hosts["node04"]["cluster_drained"] = "maybe"
    status, output, _result = play(tmp_path, write_inventory(tmp_path / "hosts.yml", hosts))
    assert status != 0
    assert "The inventory describes no possible cluster, 3 errors:" in output
    assert "node02.cluster_slots: is not set. Set it to a whole number from 1 on." in output
    assert "node03.cluster_rails: cannot be templated: 'nowhere' is undefined" in output
    assert "node04.cluster_drained: 'maybe' is not true or false. Correct it." in output


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--limit", "node01"]], ids=["all", "limit"])
def test_a_refused_model_ends_the_run_under_default_settings(
    tmp_path: Path, options: list[str]
) -> None:
    model = tmp_path / "cluster.yml"
    text = B300.read_text(encoding="utf-8")
    model.write_text(text.replace("mtu: 9000", "mtu: 90000"), encoding="utf-8")
    status, output, _result = play(tmp_path, model, *options)
    assert status != 0
    assert "rails.mtu: 90000 is out of range. Write one from 1280 to 9978" in output
    assert output.count("rails.mtu: 90000") == 1
    assert output.rstrip().endswith("(bytes, layer 3)."), "the way out is what one reads last"


@pytest.mark.slow
def test_who_has_no_hosts_is_no_success_and_told_of_each_source(tmp_path: Path) -> None:
    # Not YAML: Ansible gives up before the plugin is asked, warns, and goes on with nobody.
    texts = ["plugin: baremetal.mpi_roce.cluster\nname: [\n", "", "---\n", "# a\n\n---\n# b\n"]
    for place, text in enumerate(texts):
        (tmp_path / f"{place}").mkdir()
        (tmp_path / f"{place}/cluster.yml").write_text(text, encoding="utf-8")
    models = [tmp_path / f"{place}/cluster.yml" for place in range(len(texts))]
    others = [word for path in models for word in ("-i", path)]
    status, output, _result = play(tmp_path, tmp_path / "nowhere", *others)
    assert status != 0
    assert "The inventory has no hosts of a cluster." in output
    assert f"{tmp_path}/nowhere: cannot be read: No such file or directory." in output
    for model in models:
        assert f"{model}: this cluster model has 1 error:" in output
    assert "not YAML" in output
    assert "the file is empty. Describe a cluster in it." in output

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cluster facts, and the rules for the inventory around the model."""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import RENAMED
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    inventory_of,
    inventory_rules,
    load,
    role_variables,
    seal,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import (
    DIGEST,
    NAMES,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.digest import (
    differences,
    digest_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.facts import build
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.action_plays import ROOT, run_play
from tests.unit.findings import brief

B300 = ROOT / "inventories/b300/cluster.yml"


def reference() -> dict[str, dict[str, Any]]:
    """All hosts of the reference with every variable that Ansible merges for them."""
    inventory = seal(inventory_of(load(str(B300))))
    return {host.name: copy.deepcopy(inventory.merged(host)) for host in inventory.hosts}


def test_entries_follow_the_order_of_the_model() -> None:
    entries = build(reference())
    assert [(entry["name"], entry["role"]) for entry in entries] == [
        *((f"node0{number}", "compute") for number in range(1, 5)),
        ("launcher01", "launcher"),
        ("storage01", "storage"),
    ]
    first = entries[0]
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
    assert (entries[-1]["slots"], entries[-1]["gpus"], entries[-1]["rails"]) == (0, 0, [])


def test_compute_hosts_are_ordered_by_index() -> None:
    hosts = reference()
    hosts["node01"]["cluster_index"] = 9
    assert [entry["name"] for entry in build(hosts)][3] == "node01"


Hosts = dict[str, dict[str, Any]]
CHANGES: dict[str, Callable[[Hosts], object]] = {
    "set_by_hand node03.cluster_name 'cluster.local'": lambda hosts: [
        hosts[name].update(cluster_name="cluster.local") for name in ("node03", "node04")
    ],
    "set_by_hand node02.roce_qos dict": lambda hosts: hosts["node02"].update(roce_qos={}),
    "set_by_hand node03.cluster_slots": lambda hosts: hosts["node03"].pop("cluster_slots"),
    "set_by_hand node03.cluster_rails list": lambda hosts: hosts["node03"]["cluster_rails"][
        5
    ].update(mtu=1500),
    "set_by_hand node01.cluster_filesystems list": lambda hosts: [
        of.update(cluster_filesystems=[]) for of in hosts.values()
    ],
    "set_by_hand leaf01.cluster_asic '{{ chip }}'": lambda hosts: hosts["leaf01"].update(
        cluster_asic="{{ chip }}"
    ),
    "not_in_model node99": lambda hosts: hosts.update(node99=hosts["node01"]),
    "not_a_host node04": lambda hosts: hosts.pop("node04"),
}


@pytest.mark.parametrize(("wanted", "change"), CHANGES.items())
def test_an_override_is_reported_by_host_and_variable(
    wanted: str, change: Callable[[Hosts], object]
) -> None:
    hosts = reference()
    assert digest_of(hosts.items()) == hosts["node01"]["cluster_digest"]
    change(hosts)
    assert digest_of(hosts.items()) != hosts["node01"]["cluster_digest"]
    findings = Findings()
    differences(inventory_of(load(str(B300))), hosts, findings)
    assert brief(findings.found) == [f"inventory.{wanted}"]
    assert ("kubespray" in findings.found[0].remedy) == ("cluster_name" in wanted)


@pytest.mark.parametrize(
    ("seen", "code"),
    [({}, "inventory.no_model"), ({"cluster_digest": "0"}, "inventory.changed")],
)
def test_an_inventory_without_its_model(seen: dict[str, Any], code: str) -> None:
    findings = Findings()
    inventory_rules.check_model({"node01": seen}, [], findings)
    assert brief(findings.found) == [code]


def test_the_digest_ignores_the_order_of_hosts_and_keys() -> None:
    """As in an inventory made by `ansible-inventory --list`."""
    hosts = reference()
    listed = json.loads(json.dumps(hosts, sort_keys=True))
    assert digest_of(reversed(listed.items())) == digest_of(hosts.items())


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("rooms/cluster.yml", "inventory.set_by_hand node02.cluster_slots 4"),
        ("rooms/group_vars/cluster.yml", "inventory.changed"),
    ],
)
def test_a_model_is_found_in_subdirectories(tmp_path: Path, model: str, wanted: str) -> None:
    (tmp_path / model).parent.mkdir(parents=True)
    (tmp_path / model).write_text(B300.read_text(encoding="utf-8"), encoding="utf-8")
    hosts, findings = reference(), Findings()
    hosts["node02"]["cluster_slots"] = 4
    inventory_rules.check_model(hosts, [tmp_path], findings)
    assert brief(findings.found) == [wanted]


OF_OTHER_MODELS = {
    *("cluster_rail_networks", "cluster_kind", "cluster_unit", "cluster_set", "cluster_plane"),
    *("cluster_bmc", "cluster_networks", "cluster_management_networks", "cluster_vlans"),
    *("cluster_asn", "cluster_loopback", "cluster_storage_links", "cluster_port_ranges"),
    *("cluster_cabling", "cluster_cpu"),
}
"""Variables that the reference does not need."""


def test_the_digest_covers_every_variable() -> None:
    """Except ansible_host: a site may reach the management address in a different way."""
    names = {name for variables in reference().values() for name in variables}
    assert names - {"ansible_host", DIGEST} == {*NAMES} - OF_OTHER_MODELS


def test_unread_variable_files_are_reported(tmp_path: Path) -> None:
    for name in ("node01.yml", "nod02.yml", "node03/a.yml", "leaf9", ".keep", "b.md"):
        path = tmp_path / "host_vars" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/computer.yml").touch()
    (tmp_path / "group_vars/leaf.yml").touch()
    groups = {"all": ["node01", "node02", "node03"], "compute": [], "leaf": []}
    found = list(inventory_rules.unread_files([tmp_path, tmp_path / "cluster.yml"], groups))
    assert [line.partition(": ")[0].removeprefix(f"{tmp_path}/") for line in found] == [
        "group_vars/computer.yml",
        "host_vars/leaf9",
        "host_vars/nod02.yml",
    ]
    assert "Did you mean 'node02'?" in found[2]


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
    - name: Read less
      baremetal.mpi_roce.cluster_directory:
        directory: false
        needs: launcher
      run_once: true
      register: less
      ignore_errors: true # it fails without a launcher, and what it returns is written below
    - name: Write
      ansible.builtin.copy:
        content: "{{{{ cluster | combine({{'less': less}}) | to_json }}}}"
        dest: {out}
        mode: "0600"
      run_once: true
      delegate_to: localhost
"""


def play(tmp_path: Path, inventory: Path, *options: object) -> tuple[int, str, Any]:
    """Exit status, output and the registered result; the settings are Ansible's defaults."""
    out = tmp_path / "out.json"
    text = PLAY.format(model=ROOT / "playbooks/model.yml", out=out)
    status, output = run_play(tmp_path, text, inventory, *map(str, options))
    return status, output, json.loads(out.read_text(encoding="utf-8")) if out.exists() else None


def test_limit_does_not_change_the_facts(tmp_path: Path) -> None:
    status, output, result = play(tmp_path, ROOT / "inventories/b300", "--limit", "node03")
    assert status == 0, output
    assert result["directory"] == build(reference())
    assert result["less"]["failed"], "its limit excludes the launcher"
    assert result["total_slots"] == 32
    assert result["changed"] is False
    assert result["software_doubts"] == []


@pytest.mark.slow
def test_role_variables_are_validated_on_every_host_first(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "host_vars").mkdir(parents=True)
    (site / "cluster.yml").write_text(B300.read_text(encoding="utf-8"), encoding="utf-8")
    for name, variables in {
        "leaf01": {"switch_qos_confirm_s": "soon"},
        "node01": {
            "roce_rails_backend": "{{ ansible_facts.nowhere }}",  # not defined yet
            "roce_rails_wait": "{{ ansible_facts.nowhere }}",
        },
        "node02": {"swap": "maybe", "os_baseline_swap": "{{ swap }}"},
        "node03": {"swap": "maybe", "os_baseline_swap": "{{ swap }}"},
        "node04": {"cluster_slots": 4},
    }.items():
        (site / f"host_vars/{name}.yml").write_text(json.dumps(variables), encoding="utf-8")
    given = {"mpi_smoke_time_limit_s": "long"}
    needs = json.dumps({**given, "model_needs": "launcher"})
    status, output, _result = play(tmp_path, site, "--limit=node04", "-e", needs)
    assert status != 0 and "--limit node04 excludes launcher01" in output
    limit = "--limit=node04,launcher01"
    status, output, _result = play(tmp_path, site, limit, "-e", json.dumps(given))
    assert status != 0
    assert "5 errors:" in output
    assert "got: maybe (and on 1 other host)" in output
    for variable in (
        "node02.os_baseline_swap",
        "node01.mpi_smoke_time_limit_s",
        "node01.roce_rails_wait",
        "leaf01.switch_qos_confirm_s",
        "node04.cluster_slots",
    ):
        assert f"{variable}: " in output


def test_a_template_that_stays_undefined_is_not_validated() -> None:
    """ansible-core 2.18 returns it unchanged, where later versions raise."""
    variables = {"os_baseline_swap": "{{ later }}", "mpi_stack_python": "/p"}
    hosts, names = {"node01": variables}, list(variables)
    found = role_variables.values(hosts, "node01", variables, names)
    assert found == {"mpi_stack_python": "/p"}


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({"ansible_port": "2222"}, 2222),
        ({"ansible_ssh_port": 2222}, 2222),
        ({"ansible_port": 22}, None),
        ({"ansible_port": None}, None),
        # The port belongs to a gateway that forwards it.
        ({"ansible_port": 2222, "ansible_host": "gateway"}, None),
        *(({"ansible_port": each}, 0) for each in (65536, "22 -o x", "²")),
    ],
)
def test_ports_of_sshd(variables: dict[str, Any], port: object) -> None:
    hosts, findings = copy.deepcopy(reference()), Findings()
    hosts["node02"].update(variables)
    found = inventory_rules.ssh_ports(hosts, hosts, findings)
    assert found == ({"node02": port} if port else {})
    assert [each.code for each in findings.found] == (["inventory.ssh_port"] if port == 0 else [])
    entries = {each["name"]: each for each in build(hosts, found)}
    assert entries["node02"].get("ssh_port") == (port or None)
    assert "ssh_port" not in entries["node01"]


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("ssh_trust_max_removed", "two", True),
        ("os_baseline_firewall", "shut", True),
        ("mpi_job_places", {"node01": 8}, False),
    ],
)
def test_role_variables(name: str, value: object, refused: bool) -> None:
    findings = Findings()
    hosts = {"node01": {name: value}, "node02": {name: value}}
    role_variables.check(role_variables.read_specs(), hosts, findings)
    wanted = [f"inventory.role_variable node01.{name}"] if refused else []
    assert brief(findings.found) == wanted


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_former_names_are_refused_with_the_present_one(old: str, new: str) -> None:
    findings = Findings()
    role_variables.check({}, {"node01": {old: 1}, "node02": {old: 1}}, findings)
    assert brief(findings.found) == [f"inventory.role_variable node01.{old}"]
    assert new in findings.found[0].problem
    assert new in role_variables.read_specs()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--limit", "node01"]], ids=["all", "limit"])
def test_an_invalid_model_stops_the_run(tmp_path: Path, options: list[str]) -> None:
    model = tmp_path / "cluster.yml"
    text = B300.read_text(encoding="utf-8")
    model.write_text(text.replace("mtu: 9000", "mtu: 90000"), encoding="utf-8")
    status, output, _result = play(tmp_path, model, *options)
    assert status != 0
    assert output.count("rails.mtu: 90000") == 1
    assert "rails.mtu: 90000" in output.rstrip().splitlines()[-1], "the error comes last"


@pytest.mark.slow
def test_an_inventory_without_hosts_fails_with_the_reason(tmp_path: Path) -> None:
    # Invalid YAML: Ansible warns before it calls the plugin, and continues without hosts.
    texts = ["plugin: baremetal.mpi_roce.cluster\nname: [\n", "", "---\n", "# a\n\n---\n# b\n"]
    for place, text in enumerate(texts):
        (tmp_path / f"{place}").mkdir()
        (tmp_path / f"{place}/cluster.yml").write_text(text, encoding="utf-8")
    models = [tmp_path / f"{place}/cluster.yml" for place in range(len(texts))]
    others = [word for path in models for word in ("-i", path)]
    status, output, _result = play(tmp_path, tmp_path / "nowhere", *others)
    assert status != 0
    assert "The inventory has no hosts of a cluster." in output
    assert f"No such file or directory: '{tmp_path}/nowhere'" in output
    for model in models:
        assert f"{model}: this cluster model has 1 error:" in output
    assert "not YAML" in output
    assert "the file is empty. Describe a cluster in it." in output


def test_limits_of_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = {resource.RLIMIT_NOFILE: 256, resource.RLIMIT_NPROC: 1200}
    monkeypatch.setattr(resource, "getrlimit", lambda item: (low[item], -1))
    route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    route += "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"
    route += "eth0 0000000A 00000000 0001 0 0 0 0000FFFF 0 0 0\n"  # 10.0.0.0/16
    route += "eth1 0000010A 0200000A 0003 0 0 0 0000FFFF 0 0 0\n"  # 10.1.0.0/16 by a gateway
    for path, text in (
        ("proc/net/route", route),
        (inventory_rules.NEIGHBOURS, "1024\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def found(count: int, forks: int, network: str = "10.0") -> list[str]:
        addresses = [f"{network}.{number // 250}.{number % 250}" for number in range(count)]
        hosts = {each: {"cluster_management": {"address": each}} for each in addresses}
        lines = inventory_rules.controller_limits(hosts, forks, tmp_path)
        return [" ".join(line.split()[:5]) for line in lines]

    assert found(1000, 32) == []
    assert found(1000, 33) == ["the controller's limit of open"]
    assert found(1025, 32) == ["1025 hosts are neighbours of"]
    assert found(1025, 32, network="10.1") == []
    assert found(1100, 32, network="10.1") == ["the controller's limit of processes"]
    low.update(dict.fromkeys(low, resource.RLIM_INFINITY))
    assert found(1100, 500, network="10.1") == []
    (tmp_path / inventory_rules.NEIGHBOURS).unlink()
    assert found(1100, 32) == []  # not Linux, or a container

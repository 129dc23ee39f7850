# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Invalid models: code, line and value of every error. Sentences: golden/findings.txt."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.inventory.cluster import InventoryModule
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    ModelError,
    compile_model,
    is_model,
    load,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import source as model_source
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.schema import LISTED_NODE
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.wiring import MAX_LINKS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import MAX_LISTED
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.small_model import MODEL as BASE
from tests.unit.small_model import compiled, edited, places, refused

ROOT = Path(__file__).resolve().parents[2]
CASES = """
leaves.ports; leaves.prots: 64 -> 8 model.unknown_key leaves.prots | 8 model.missing_key leaves.ports
launcher; luncher: {name: launcher01, management: 10.0.0.10} -> 1 model.launchers launcher | 9 model.unknown_key luncher
rails: ~ -> 6 model.not_a_mapping rails
nodes.count: yes -> 4 model.not_a_number nodes.count True
nodes.count: 0 -> 4 model.no_nodes nodes
nodes.count: -1 -> 4 model.out_of_range nodes.count (-1, 0, 100000)
nodes.count -> 4 model.counted_or_listed nodes (None, None)
nodes.absent: [node01, node02] -> 4 model.no_nodes nodes
rails.mtu: 9979 -> 6 model.out_of_range rails.mtu (9979, 1280, 9978)
management.subnet: 10.0.0.1/24 -> 3 model.network management.subnet '10.0.0.1/24'
management.subnet: 10.0.0.0 -> 3 model.network management.subnet '10.0.0.0'
launcher.management: 10.0.0.300 -> 9 model.address launcher.management '10.0.0.300'
addresses.pool: 10.0.0.0/16 -> 7 model.pool_in_management addresses.pool '10.0.0.0/16'
addresses.pool: 10.1.0.0/24 -> 7 model.pool_without_subnets addresses.pool (2, 1)
addresses.prefix: 30 -> 7 model.subnet_without_addresses addresses.pool (2, 1)
addresses.plan: point_to_point; addresses.pool: 10.1.0.0/30 -> 7 model.pool_without_subnets addresses.pool (4, 2)
addresses.plan: point_to_piont -> 7 model.not_a_choice addresses.plan 'point_to_piont'
addresses.pool: 127.0.0.0/16 -> 7 model.network_without_hosts addresses.pool '127.0.0.0/16'
addresses.pool: 168.0.0.0/7 -> 7 model.network_without_hosts addresses.pool '168.0.0.0/7'
management.subnet: 169.254.3.0/24 -> 3 model.network_without_hosts management.subnet '169.254.3.0/24'
nodes.count: 60; nodes.management_first: 10.0.0.200 -> 4 model.outside_management nodes.management_first ('10.0.0.255', 5)
nodes.management_first: 255.255.255.255 -> 4 model.outside_management nodes.management_first ('255.255.255.255', 2)
nodes.management_first: 255.255.255.255; nodes.overrides: {node01: {position: 7}} -> 4 model.outside_management nodes.management_first ('255.255.255.255 + 1', 2)
launcher.management: 10.0.0.255 -> 9 model.outside_management launcher.management ('10.0.0.255', 1)
launcher.management: 10.0.0.12 -> 4 model.management_address_twice nodes.management_first ('10.0.0.12', 1, 'launcher01')
nodes.count: 40; nodes.management_first: 10.0.0.90 -> 8 model.management_address_twice leaves.management_first ('10.0.0.101', 2, 'node12')
nodes.management_first -> 4 model.no_management_address nodes.management_first ('node01', 2)
launcher.name: node02 -> 9 model.name_taken launcher.name 'node02'
nodes.count; nodes.list: [{name: a}, {name: a}] -> 4 model.name_taken nodes.list[1] 'a'
launcher.name: launcher -> 9 model.name_reserved launcher.name 'launcher'
leaves; switches: {leaf: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.101}, c: {tier: core, count: 1, ports: 64, management_first: 10.0.0.120}}; links: [{from: leaf, to: c, count: 1}]; launcher.name: core -> 8 model.name_reserved launcher.name 'core'
launcher.name: slots -> 9 model.name_reserved launcher.name 'slots'
launcher.name: localhost -> 9 model.name_reserved launcher.name 'localhost'
launcher.name: node02-rail1 -> 9 model.name_of_rail launcher.name 'node02-rail1'
nodes.count; nodes.list: [{name: a}, {name: a-rail0}] -> 4 model.name_of_rail nodes.list[1] 'a-rail0'
nodes.name: "{}" -> 4 model.host_name nodes.name '1'
rails.interface: "rail_{rail}" -> 6 model.rail_name rails.interface 'node01-rail_0'
nodes.name: "node_{}" -> 4 model.host_name nodes.name 'node_1'
nodes.name: "n{}-{}" -> 4 model.pattern nodes.name 'n{}-{}'
nodes.name: node -> 4 model.pattern nodes.name 'node'
nodes.name: "node{:s}" -> 4 model.pattern nodes.name 'node{:s}'
nodes.name: "node{{ x }}{}" -> 4 model.template nodes.name 'node{{ x }}{}'
nodes.drained: [node3] -> 4 model.unknown_node nodes.drained[0] 'node3'
nodes.overrides: {node3: {}} -> 4 model.unknown_node nodes.overrides.node3 'node3'
nodes.overrides: {node02: {pci: [0000:11:00.0, 0000:11:00.0]}} -> 4 model.device_twice nodes.overrides.node02.pci[1] '0000:11:00.0'
nodes.rack: "../r{}" -> 4 model.rack_name nodes.rack '../r1'
nodes.rack: "r1/{}"; nodes.overrides: {node01: {rack: a}} -> 4 model.rack_name nodes.rack 'r1/1'
nodes.overrides: {node01: {rack: r-1}, node02: {rack: r_1}} -> 4 model.racks_of_one_group nodes.overrides.node02.rack ('r_1', 'r-1')
nodes.rack: "r-{}"; nodes.overrides: {node02: {rack: r.1}} -> 4 model.racks_of_one_group nodes.overrides.node02.rack ('r.1', 'r-1')
nodes.count; nodes.list: [{name: a, rack: r_1}, {name: b, rack: r-1}] -> 4 model.racks_of_one_group nodes.list[1].rack ('r-1', 'r_1')
leaves.count: 1 -> 8 model.rail_without_leaf leaves.count (1, 2)
leaves.count: 3 -> 8 model.leaves_no_whole_sets leaves.count (3, 2)
leaves.rail_to_leaf: [0] -> 8 model.rail_to_leaf leaves.rail_to_leaf (1, 2)
leaves.rail_to_leaf: [0, 2] -> 8 model.rail_to_leaf leaves.rail_to_leaf (2, 2)
leaves.ports: 1 -> 8 model.more_nodes_than_ports leaves.count (2, 1)
nodes.count: 65; storage: [{name: s1, management: 10.0.0.99, links: [{leaf: leaf01, port: Ethernet63, interface: e0}]}] -> 8 model.more_nodes_than_ports leaves.count (65, 64)
leaves.asic: [spectrum9, spectrum4]; storage: [{name: s1, management: 10.0.0.99, links: [{leaf: leaf02, port: Ethernet63, interface: e0}]}] -> 8 model.unknown_chip leaves.asic[0] 'spectrum9'
leaves.nodes_per_set: 65 -> 8 model.leaf_ports leaves.nodes_per_set (65, 64)
leaves.name: [tor-a] -> 8 model.values_for_switches leaves.name 1
leaves.name: [tor-a, tor-a] -> 8 model.name_taken leaves.name[1] 'tor-a'
spines: {count: 64, ports: 64, management_first: 10.0.0.200} -> 8 model.leaf_ports leaves.ports (0, 0) | 10 model.outside_management spines.management_first ('10.0.0.255', 9)
spines: {count: 2, ports: 1, management_first: 10.0.0.200} -> 10 model.spine_ports spines.ports (2, 1)
rails.pci: ["0000:11:00.0"] -> 6 model.values_for_devices rails.pci 1
rails.pci: [0000:11:00.0, 0000:11:00.0] -> 6 model.device_twice rails.pci[1] '0000:11:00.0'
rails.planes: 2; rails.pci: [0000:11:00.0, 0000:2f:00.0] -> 6 model.values_for_devices rails.pci[0] 1 | 6 model.values_for_devices rails.pci[1] 1 | 8 model.rail_without_leaf leaves.count (2, 4)
rails.pci: [0000:11:00.0, 0000:2f:00.0]; gpus.pci: [0000:14:00.0, 0000:2f:00.0] -> 5 model.device_twice gpus.pci[1] '0000:2f:00.0'
gpus.numa: [0] -> 5 model.values_for_devices gpus.numa 1
rails.gpu: [0, 2] -> 6 model.no_gpu rails.gpu[1] 2
rails.planes: 2; rails.interface: "r{rail}" -> 6 model.interface_name rails.interface 'r0' | 8 model.rail_without_leaf leaves.count (2, 4)
rails.interface: "verylongname{rail:04d}" -> 6 model.interface_name rails.interface 'verylongname0000'
management.interface: rail1 -> 3 model.management_on_rail management.interface 'rail1'
gpus -> 4 model.no_slots nodes.slots
vars: {all: {a-b: 1}} -> 10 model.variable_name vars.all.a-b
vars: {compute: {cluster_slots: 1}} -> 10 model.variable_of_model vars.compute.cluster_slots
vars: {leaf: {roce_qos: {}}} -> 10 model.variable_of_model vars.leaf.roce_qos
vars: {computes: {x: 1}} -> 10 model.unknown_group vars.computes 'computes'
vars: {all: {x: 2024-13-01}} -> 10 model.impossible_value vars.all.x '2024-13-01'
name: !vault small -> 2 model.tag name '!vault'
storage: {name: s} -> 10 model.not_a_list storage dict
storage: [{name: s1, management: 10.0.0.20}, {name: s1, management: 10.0.0.20}] -> 10 model.name_taken storage[1].name 's1'
mpi: {uid: 999} -> 10 model.out_of_range mpi.uid (999, 1000, 60000)
mpi: {user: root} -> 10 model.wrong_form mpi.user 'root'
plugin: baremetal.mpi_roce.clusters -> 1 model.not_a_choice plugin 'baremetal.mpi_roce.clusters'
nodes.cuont: 2; nodes.count; nodes.management_first: 10.0.0 -> 4 model.unknown_key nodes.cuont | 4 model.address nodes.management_first '10.0.0'
"""  # noqa: E501
"""Edits of the model (small_model.edited), and errors: line, code, path, value."""
BOMB = "".join(
    f"  {name}: &{name} [{', '.join([f'*{of}'] * 99)}]\n" for of, name in ("ab", "bc", "cd")
)
TEXTS = (
    ("hello", "1 model.not_a_mapping 'hello'"),
    ("# nothing\n", "model.empty"),
    (f"{BASE}name: large\n", "10 model.key_twice name 'name'"),
    (f"{BASE}[1]: 2\n", "10 model.key_not_text"),
    (f"\t{BASE}", r"1 model.not_yaml '\t'"),
    (f"- {BASE}".replace("\n", "\n  "), "1 model.not_a_mapping list"),
    (f"{BASE}vars: {'[' * 5000}", "10 model.not_yaml"),
    (f"{BASE}vars: {'[' * 60}{']' * 60}", "10 model.not_yaml"),
    (f"{BASE}vars: {{all: &a {{x: *a}}}}\n", "10 model.aliases vars.all"),
    (f"{BASE}vars:\n  a: &a {[1] * 99}\n{BOMB}", "14 model.aliases vars.d"),
)


def test_an_alias_saves_writing() -> None:
    text = BASE.replace("launcher01, ", "launcher01, vars: &v {a: 1}, ")
    text += "storage: [{name: s1, management: 10.0.0.20, vars: *v}]\n"
    assert compile_model(read("cluster.yml", text)).storage[0].vars == {"a": 1}


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_an_edit_is_refused(case: str) -> None:
    edits, _arrow, wanted = case.partition(" -> ")
    assert refused(edited(edits)) == wanted.split(" | ")


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_a_text_is_refused(text: str, wanted: str) -> None:
    assert refused(text) == [wanted]


def test_findings_are_in_the_order_of_the_file() -> None:
    assert refused(edited("launcher.name: launcher; rails.mtu: 9216; gpus.numa: [0]")) == [
        "5 model.values_for_devices gpus.numa 1",
        "6 qos.rail_mtu rails.mtu (9216, 9198)",
        "9 model.name_reserved launcher.name 'launcher'",
    ]


def test_the_number_of_findings_is_bounded() -> None:
    listed = "\n".join(f"    - {{name: Bad_{number}}}" for number in range(MAX_LISTED + 7))
    text = BASE.replace(
        "nodes: {count: 2, management_first: 10.0.0.11}",
        f"nodes:\n  management_first: 10.0.0.11\n  list:\n{listed}",
    )
    with pytest.raises(ModelError) as refusal:
        compile_model(read("cluster.yml", text))
    lines = str(refusal.value).splitlines()
    assert len(refusal.value.findings) == MAX_LISTED + 7
    assert len(lines) == 1 + MAX_LISTED + 1
    assert lines[-1] == "  ... and 7 more."


def test_a_wrong_pattern_is_reported_once() -> None:
    text = edited(
        "nodes.count: 100; nodes.name: 'node{}'; leaves.ports: 256; leaves.name: 'node{}'"
    )
    assert refused(text)[0] == "8 model.name_taken leaves.name 'node1'"
    assert len(refused(text)) == 2, "and one for all of their addresses"


FULL = yaml.safe_load((ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8"))
FULL["nodes"]["overrides"] = {"node02": {"rack": "a", "slots": 3, "vars": {"x": 1}}}
FULL["nodes"]["absent"] = ["node04"]
FULL["vars"] = {"all": {"x": 1}}
FULL["nodes"]["bmc_first"] = "10.10.3.1"
FULL["nodes"]["networks"] = {"storage": "10.60.0.11"}
FULL["launcher"]["networks"] = {"storage": "10.60.0.5"}
FULL["networks"] = [
    {
        **{
            "name": "storage",
            "subnet": "10.60.0.0/24",
            "interface": "bond0",
            "members": ["a", "b"],
        },
        **{"gateway": "10.60.0.1", "speed_gbps": 400, "leaves": ["sleaf01"], "lossless": True},
    }
]
FULL["filesystems"][0]["options"] = ["remoteports=10.60.0.200-10.60.0.207~10.60.0.210"]


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5000),
        st.floats(allow_nan=False),
        st.text("ab0.:/{}-_ ", max_size=8),
        st.sampled_from(["node01", "10.0.0.0/8", "10.10.1.1", "point_to_point", "leaf{}", "0"]),
        st.dates(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(places(FULL)[1:]), anything), min_size=1, max_size=3))
def test_whatever_stands_anywhere_is_compiled_or_refused(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    data = copy.deepcopy(FULL)
    for path, value in changes:
        inner = data
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change removed the path
    with contextlib.suppress(ModelError):
        compile_model(read("cluster.yml", yaml.safe_dump(data)))


def test_a_file_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(BASE, encoding="utf-8")
    monkeypatch.setattr(model_source, "MOST_BYTES", len(BASE))
    assert model_source.read_file(str(path)).data
    monkeypatch.setattr(model_source, "MOST_BYTES", len(BASE) - 1)
    assert model_source.is_model(path)
    with pytest.raises(ModelError) as refusal:
        model_source.read_file(str(path))
    assert brief(refusal.value.findings) == ["model.cannot_be_read"]


def test_a_file_has_a_bounded_number_of_values() -> None:
    """Counted before YAML is read, which takes memory and time for each."""
    fits = f"{BASE}vars: {{all: {{a: [{'1,' * 1000}]}}}}\n"
    values = sum(map(fits.count, ",\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_source, "_MOST_VALUES", values)
        assert read("cluster.yml", fits).data
        with pytest.raises(ModelError) as refusal:
            read("cluster.yml", fits + "\r\n")
    assert brief(refusal.value.findings) == [f"model.too_many_values {values + 2}"]


def test_a_large_site_has_room_below_the_limits() -> None:
    """10,000 listed nodes with the PCI addresses of two planes of eight rails, and of eight GPUs:
    a comma or a line for each value."""
    values = 10_000 * (2 * 8 + 8 + len(LISTED_NODE.keys))
    assert values < model_source._MOST_VALUES < model_source._MOST
    ports = 10_000 * 8 * 2
    assert 2 * ports < MAX_LINKS


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    # Reading a device, like a FIFO, would block.
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"name: a\n\xff\xfe")
    files = {tmp_path: "", tmp_path / "cluster.yml": "", Path("/dev/null"): "", binary: "2 "}
    for path, line in files.items():
        with pytest.raises(ModelError) as refusal:
            load(str(path))
        assert str(refusal.value).startswith(f"{path}: ")
        assert brief(refusal.value.findings) == [f"{line}model.cannot_be_read"]


def test_a_second_model_in_one_inventory_is_refused() -> None:
    plugin = InventoryModule()
    host = SimpleNamespace(vars={"cluster_management": {}, "inventory_file": "site/cluster.yml"})
    plugin.inventory = SimpleNamespace(hosts={"node01": host})
    plugin._refuse_second(f"{Path.cwd()}/site/cluster.yml")  # the same file
    with pytest.raises(ModelError) as refusal:
        plugin._refuse_second("site/old.yml")
    assert brief(refusal.value.findings) == ["model.second"]


MEANT = (
    ("site.yaml", BASE, True),
    ("site.yml", "\ufeff" + BASE, True),
    ("site.yml", "{'plugin': 'baremetal.mpi_roce.cluster'}", True),
    ("site.yml", "plugn: baremetal.mpi_roce.cluster\n", True),
    ("site.yml", BASE.replace("baremetal.mpi_roce", "baremetal.mpi"), True),
    ("site.yml", BASE.encode("utf-16").decode("latin-1"), True),
    ("cluster.yml", "- rails\n", True),
    ("cluster.yml", "management: {subnet: 10.0.0.0/24}\n", True),
    ("cluster.yml", "plugin: amazon.aws.aws_ec2\nregions: [a]\n", False),
    ("cluster.yml", "all:\n  hosts: {a: {}}\n", False),
    ("site.yml", "# plugin: baremetal.mpi_roce.cluster\nall: {}\n", False),
    ("site.yml", "", False),
)


@pytest.mark.parametrize(("name", "content", "meant"), MEANT)
def test_files_meant_as_models_are_recognized(
    tmp_path: Path, name: str, content: str, meant: bool
) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1" if "\0" in content else "utf-8"))
    assert is_model(tmp_path / name) is meant


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text("\ufeff" + BASE, encoding="utf-8")
    assert load(str(tmp_path / "cluster.yml")).name == "small"


def test_very_many_unknown_keys_are_refused_in_bounded_time() -> None:
    found = refused(BASE + "".join(f"key{number}: 1\n" for number in range(20_000)))
    assert found[0] == "10 model.unknown_key key0" and len(found) < 1001


def test_hints_for_keys_and_characters() -> None:
    text = edited("nodes.count: \uff14; roce_qos: {cpn: {}}")
    with pytest.raises(ModelError) as refusal:
        compile_model(read("cluster.yml", text))
    lines = str(refusal.value).splitlines()
    assert "'\uff14' is U+FF14 (FULLWIDTH DIGIT FOUR)" in lines[1]
    assert "Did you mean 'cnp'?" in lines[2]


@pytest.mark.parametrize(
    ("edits", "code", "remedy"),
    [
        ("management.subnet: 10.0.0.1/24", "model.network", "Write 10.0.0.0/24"),
        ("addresses.pool: 10.1.0.0/255.255.0.0", "model.network", "Write 10.1.0.0/16"),
        ("addresses.pool: 10.1.0.0", "model.network", "Write one such as 10.0.0.0/24"),
        ("launcher.management: 10.0.0.10/24", "model.address", "Write 10.0.0.10"),
        ("launcher.name: Login_1", "model.wrong_form", "Write login-1"),
        (
            "launcher.name: login01.example.net",
            "model.wrong_form",
            "Write login01, and domain: example.net at the top",
        ),
        ("launcher.name: '-'", "model.wrong_form", "Write one such as node01"),
        ("login: []", "model.unknown_key", "several of them as launchers"),
        ("kinds: {x: {rails: {mtu: 1500}}}", "model.unknown_key", "under rails at the top"),
        ("rails.link_layer: ib", "model.unknown_key", "InfiniBand is out of scope"),
        ("subnet_manager: {}", "model.unknown_key", "InfiniBand is out of scope"),
        ("addresses.family: 6", "model.unknown_key", "IPv6 is not supported"),
        ("rails.tagged: true", "model.unknown_key", "Write rails.vlan"),
        ("leaves.ports: {nodes: swp1-32s0-1}", "model.port_range", "swp[1-32]s[0-1]"),
        ("leaves.ports: {nodes: Ethernet1/1-32/1}", "model.port_range", "Ethernet[1-32]/1"),
        ("leaves.links_per_leaf: 4", "model.unknown_key", "It belongs under spines"),
        ("leaves.system: onyx", "model.other_system", "Leave it out"),
        (
            "rails.speed_gbps: 400; leaves.ports: 128; leaves.system: nvue; leaves.asic: spectrum4",
            "model.port_beyond",
            "nodes: 'swp[1-64]s[0-1]'",
        ),
        (
            "storage: [{name: s1, management: 10.0.0.9, managed: false}]",
            "model.unknown_key",
            "only name it in filesystems",
        ),
        (
            "networks: [{name: st, subnet: 10.60.0.0/24, interface: bond0, vlan: 30}]",
            "model.unknown_key",
            "such as bond0.30",
        ),
        ("addresses.pool: 10.1.0.0/25", "model.pool_without_subnets", "another addresses.prefix"),
        (
            "leaves.system: sonic; leaves.asic: spectrum4; storage: [{name: s1, management: "
            "10.0.0.9, links: [{leaf: leaf01, port: Ethernet496, interface: e, "
            "speed_gbps: 1600}]}]",
            "model.storage_speed",
            "Correct the speed",
        ),
        (
            "leaves.system: nvue; leaves.asic: spectrum4; leaves.ports: {nodes: 'swp[1-8]', "
            "storage: swp9}; storage: [{name: s1, management: 10.0.0.9, links: [{leaf: leaf01, "
            "port: swp8, interface: e}]}]",
            "model.port_taken",
            "Free ports: swp9",
        ),
    ],
)
def test_remedies_that_name_the_value(edits: str, code: str, remedy: str) -> None:
    with pytest.raises(ModelError) as caught:
        compiled(edited(edits))
    [finding] = caught.value.findings
    assert finding.code == code
    assert remedy in finding.remedy


def test_another_prefix_is_no_remedy_for_point_to_point() -> None:
    with pytest.raises(ModelError) as caught:
        compiled(edited("addresses.plan: point_to_point; addresses.pool: 10.1.0.0/30"))
    [finding] = caught.value.findings
    assert finding.code == "model.pool_without_subnets"
    assert "prefix" not in finding.remedy

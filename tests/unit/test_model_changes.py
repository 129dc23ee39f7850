# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change of the model means for hosts, addresses and cables, and which moves are refused.

    UPDATE_GOLDEN=1 pytest tests/unit/test_model_changes.py

rewrites golden/model_changes.txt and .json.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import MEASURING, ROLES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    ModelError,
    read,
    versions,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.changes import (
    ModelChanges,
    as_data,
    compare,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import NAMES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.moves import refuse
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.versions import (
    compiled,
    read_earlier,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import model_changes
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.action_plays import ROOT, ansible
from tests.unit.findings import brief
from tests.unit.small_model import MODEL, edited
from tests.unit.test_model_cases import text

GOLDEN = Path(__file__).with_name("golden")
LISTED = "nodes.count; nodes.list: [{name: a}, {name: b}, {name: c}]"
SPINES = "spines: {count: 2, ports: 64, management_first: 10.0.0.201, links_per_leaf: 2}"
BLOCKS = (
    "nodes: [{%s, name: 'a{:02d}', management_first: 10.0.0.11}, "
    "{count: 2, name: 'b{:02d}', management_first: 10.0.0.21}]"
)
NETWORK = (
    "nodes.networks: {st: 10.60.0.%d}; leaves.loopback_first: 10.9.0.%d; "
    "networks: [{name: st, subnet: 10.60.0.0/24, interface: bond0}]"
)
SERVICE = (
    "kinds: {svc: {gpus: {count: 0}, rails: {count: 0}}}; nodes: [{count: 2, management_first: "
    "10.0.0.11}, {count: 1, name: 's{}', management_first: 10.0.0.50, kind: svc, position: %d}]"
)
GROUPS = (
    "leaves; switches: {pod1: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.101, "
    "nodes: 2}, spine: {tier: spine, count: 2, ports: 64, management_first: 10.0.0.201}}; "
    "links: [{from: pod1, to: spine}]"
)
STORAGE = (
    "storage: [{name: s1, management: 10.0.0.9, links: "
    "[{leaf: leaf01, port: Ethernet60, interface: %s}]}]"
)
FULL = f"nodes.count: 70; leaves.count: 4; leaves.nodes_per_set: 60; {SPINES}"


def changes(before: str, after: str) -> tuple[ModelChanges, list[str]]:
    """The changes between two models, and what `refuse` reports, in brief."""
    found, findings = changed(before, after)
    return found, brief(findings.found)


def changed(before: str, after: str) -> tuple[ModelChanges, Findings]:
    old, new = (compiled(read("cluster.yml", text)) for text in (before, after))
    found, findings = compare(old, new), Findings(new.source.line)
    refuse(old, new, found, findings)
    return found, findings


CASES = {
    # What each model of the table has in addition to small_model, before and after.
    "a node at the end": ("", "nodes.count: 3"),
    "the last node": ("nodes.count: 3", ""),
    "a node in the middle, with absent": (LISTED, f"nodes.absent: [b]; {LISTED}"),
    "an absent node returns": (f"nodes.absent: [b]; {LISTED}", LISTED),
    "a node replaced": (LISTED, LISTED.replace("b}", "b2}")),
    "a block of nodes that others follow": (
        BLOCKS % "count: 3",
        BLOCKS.replace("{count: 2", "{count: 2, position: 3") % "count: 2",
    ),
    "a leaf set": (SPINES, f"{SPINES}; leaves.count: 4"),
    "leaves without systems": (SPINES, f"{SPINES}; leaves.system: sonic; leaves.asic: spectrum4"),
    "slots, and a drained node": ("", "nodes.slots: 4; nodes.drained: [node02]"),
    "the operator's variables": ("", "vars: {all: {password: secret}, compute: {x: 1}}"),
    "a launcher": ("", "launcher.name: login01"),
    "PCI addresses": ("", "nodes.overrides: {node01: {pci: ['0000:11:00.0', '0000:12:00.0']}}"),
    "interfaces": ("", "rails.interface: 'gpu{rail}'"),
    "nothing": ("", ""),
}
"""None of these is refused."""
REFUSED = {
    "a node in the middle": (
        LISTED,
        LISTED.replace("{name: b}, ", ""),
        "4 changes.positions nodes ('c', 2, 1)",
    ),
    "a node of the list inserted": (
        LISTED,
        LISTED.replace("{name: b}", "{name: b2}, {name: b}"),
        "4 changes.positions nodes ('b', 1, 2)",
    ),
    "the last node of the list": (
        LISTED,
        LISTED.replace(", {name: c}", ""),
        "4 changes.not_absent nodes.list 'c'",
    ),
    "a counted node in front of another block": (
        BLOCKS % "count: 3",
        BLOCKS % "count: 2",
        "4 changes.positions nodes ('b01', 3, 2)",
    ),
    "the first counted node": (
        "nodes.count: 3",
        "nodes.start: 2; nodes.management_first: 10.0.0.12",
        "4 changes.positions nodes ('node02', 1, 0)",
    ),
    "a spine": (
        SPINES,
        SPINES.replace("2, p", "3, p"),
        "8 changes.switch_cables leaves.uplink_ports (4, 6)",
    ),
    "a spine of the full form": (
        GROUPS,
        GROUPS.replace("spine, count: 2", "spine, count: 3"),
        "9 changes.switch_cables switches.pod1.uplink_ports (2, 3)",
    ),
    "nodes of a group of leaves": (
        GROUPS.replace(
            "nodes: 2}",
            "nodes: 1}, p2: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.111}",
        ).replace("pod1,", "[pod1, p2],"),
        GROUPS.replace(
            "nodes: 2}",
            "nodes: 2}, p2: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.111}",
        ).replace("pod1,", "[pod1, p2],"),
        "9 changes.node_cables switches.pod1.nodes_per_set (2, 1)",
    ),
    "management of a group of leaves": (
        GROUPS,
        GROUPS.replace("10.0.0.101", "10.0.0.111"),
        "9 changes.management switches.pod1.management_first 2",
    ),
    "another interface of a storage host": (
        STORAGE % "ens1",
        STORAGE % "ens2",
        "10 changes.storage_cables storage 1",
    ),
    "another plane": (
        "leaves.nodes_per_set: 9",
        "leaves.nodes_per_set: 9; rails.planes: 2; leaves.count: 4",
        "8 changes.node_cables leaves.nodes_per_set (2, 0)",
    ),
    "one spine less": (
        SPINES,
        SPINES.replace("2, p", "1, p"),
        "8 changes.switch_cables leaves.uplink_ports (4, 2)",
    ),
    "spines in another order": (
        f"{SPINES}; spines.name: [s1, s2]",
        f"{SPINES}; spines.name: [s2, s1]",
        "10 changes.switch_cables spines (4, 4) | 10 changes.management spines.management_first 2",
    ),
    "fewer nodes in a set": (
        FULL,
        FULL.replace("60", "50"),
        "8 changes.node_cables leaves.nodes_per_set (40, 60)",
    ),
    "another pool": (
        "",
        "addresses.pool: 10.2.0.0/16",
        "7 changes.rail_addresses addresses 4",
    ),
    "other addresses in a network, and loopbacks": (
        NETWORK % (11, 1),
        NETWORK % (21, 3),
        "1 changes.addresses 4",
    ),
    "other management addresses": (
        "",
        "nodes.management_first: 10.0.0.51; leaves.management_first: 10.0.0.151; "
        "launcher.management: 10.0.0.9",
        "4 changes.management nodes.management_first 2 | 9 changes.management launcher 1 | "
        "8 changes.management leaves.management_first 2",
    ),
    "a storage host on another port": (
        "storage: [{name: s1, management: 10.0.0.9, links: [{leaf: leaf01, port: Ethernet63, "
        "interface: e0}]}]",
        "storage: [{name: s1, management: 10.0.0.9, links: [{leaf: leaf02, port: Ethernet63, "
        "interface: e0}]}]",
        "10 changes.storage_cables storage 1",
    ),
}


def model(edits: str) -> str:
    return edited(edits) if edits else MODEL


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_what_moves_nothing_is_accepted(before: str, after: str) -> None:
    found, refused = changes(model(before), model(after))
    assert (found.moved, found.addresses, refused) == ([], [], [])
    assert found.any == (before != after)


@pytest.mark.parametrize(("before", "after", "wanted"), REFUSED.values(), ids=REFUSED)
def test_what_moves_hosts_is_refused_with_the_key_that_prevents_it(
    before: str, after: str, wanted: str
) -> None:
    assert " | ".join(changes(model(before), model(after))[1]) == wanted


REMEDIES = {
    "a node in the middle": LISTED.replace("{name: b}, {name: c", "{name: c, position: 2"),
    "a node of the list inserted": LISTED.replace("{name: b}", "{name: b2, position: 3}, {name: b}")
    .replace("b}", "b, position: 1}")
    .replace("c}", "c, position: 2}"),
    "the last node of the list": f"nodes.absent: [c]; {LISTED}",
    "a counted node in front of another block": CASES["a block of nodes that others follow"][1],
    "a spine": f"{SPINES.replace('2, p', '3, p')}; leaves.ports: {{nodes: 'Ethernet[0-57]', "
    "uplinks: ['Ethernet[60-63]', 'Ethernet[58-59]']}",
    "one spine less": f"{SPINES.replace('2, p', '1, p')}; leaves.uplink_ports: 4",
    "fewer nodes in a set": f"{FULL}; leaves.nodes_per_set: 60",
}


@pytest.mark.parametrize("name", REMEDIES)
def test_what_a_refusal_asks_for_moves_nothing(name: str) -> None:
    found, refused = changes(model(REFUSED[name][0]), model(REMEDIES[name]))
    assert (found.moved, found.addresses, refused) == ([], [], [])


def test_the_table_is_that_of_the_golden_file() -> None:
    shown = []
    cases = [*CASES.items(), *((name, of[:2]) for name, of in REFUSED.items())]
    for name, (before, after) in cases:
        found, findings = changed(model(before), model(after))
        steps = model_changes.steps(found, ["inventories/small"])
        shown += [f"== {name}", *model_changes.lines(found, "HEAD~1", steps)]
        shown += [f"refused: {each.text()}" for each in findings.found]
    golden(GOLDEN / "model_changes.txt", "\n".join(shown) + "\n")


def test_the_data_are_those_of_the_golden_file() -> None:
    before, after, _wanted = REFUSED["a node in the middle"]
    found, findings = changed(model(before), model(after))
    data = as_data(found, findings)
    golden(GOLDEN / "model_changes.json", json.dumps(data, indent=1) + "\n")


def golden(path: Path, found: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found.splitlines() == path.read_text(encoding="utf-8").splitlines()


STORAGE = "{name: s%d, management: 10.0.0.%d, links: [%s]}"
LINK = "{leaf: leaf01, port: Ethernet63, interface: e0}"


@pytest.mark.parametrize(
    ("before", "after", "moved", "removed"),
    [
        # The upper end of a cable stays in place, and that of a host.
        (
            SPINES.replace("leaf: 2", "leaf: 1"),
            SPINES,
            ["spine01 Ethernet0", "spine02 Ethernet0", "spine01 Ethernet1", "leaf02 Ethernet63"],
            0,
        ),
        (
            "nodes.count: 4; leaves.nodes_per_set: 4",
            "nodes.count: 4; leaves.nodes_per_set: 2; leaves.count: 4",
            ["node03 rail0", "node04 rail0", "node03 rail1", "node04 rail1"],
            0,
        ),
        # Another host on the same port is not that host's move.
        (
            f"storage: [{STORAGE % (1, 8, LINK)}]",
            f"storage: [{STORAGE % (1, 8, '')}, {STORAGE % (2, 9, LINK)}]",
            [],
            1,
        ),
        # Other names of ports are no moves if every cable is in its place.
        (
            LISTED,
            f"leaves.port: 'swp{{}}'; {LISTED}",
            [],
            0,
        ),
        (
            LISTED,
            f"leaves.port: 'swp{{}}'; {LISTED.replace('a}, {name: b', 'b}, {name: a')}",
            [f"{host} rail{rail}" for rail in (0, 1) for host in "abc"],
            0,
        ),
        (
            "nodes.count: 1",
            "nodes.count: 1; nodes.overrides: {node01: {position: 5}}",
            ["node01 rail0", "node01 rail1"],
            0,
        ),
    ],
)
def test_the_end_of_a_cable_that_stays_is_named(
    before: str, after: str, moved: list[str], removed: int
) -> None:
    found, _refused = changes(model(before), model(after))
    ends = [f"{each.host} {each.what}" for each in found.moved]
    assert (ends, len(found.removed)) == (moved, removed)


def test_values_of_the_operator_are_not_shown() -> None:
    found, findings = changed(model(""), model(CASES["the operator's variables"][1]))
    assert found.site == ["group all", "group compute"]
    assert "secret" not in json.dumps(as_data(found, findings))


@pytest.mark.parametrize(
    ("before", "after", "renamed", "layers"),
    [
        (
            LISTED,
            LISTED.replace("a}", "x}").replace("c}", "z}"),
            {"a": "x", "c": "z"},
            None,
        ),
        ("", "launcher.name: login01", {"launcher01": "login01"}, None),
        (
            SPINES,
            f"{SPINES}; leaves.name: [tor1, leaf02]",
            {"leaf01": "tor1"},
            ["fabric", *MEASURING],
        ),
        (SPINES, SPINES.replace("{c", "{name: 's{:02d}', c"), {"spine01": "s01"}, ["fabric"]),
    ],
)
def test_another_name_moves_no_cable(
    before: str, after: str, renamed: dict[str, str], layers: list[str] | None
) -> None:
    found, refused = changes(edited(before), edited(after))
    assert refused == []
    assert renamed.items() <= found.renamed.items()
    assert (found.come, found.go, found.ports, found.settings) == ({}, {}, {}, [])
    assert (found.addresses, found.moved, found.added, found.removed) == ([], [], [], [])
    tags = model_changes.layers(found)
    assert tags is None if layers is None else (tags or [])[: len(layers)] == layers
    new = [name for name, role in found.roles.items() if name in found.renamed.values()]
    (first, *_steps) = model_changes.steps(found, [])
    assert (first["do"].split(" --limit ")[-1] == ",".join(new)) is (layers is None)


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("", "management.subnet: 10.0.0.0/23", "cluster_management prefix"),
        (
            NETWORK % (11, 1),
            NETWORK.replace("bond0", "bond0, gateway: 10.60.0.1") % (11, 1),
            "cluster_networks [st].gateway",
        ),
        (SERVICE % 90, SERVICE % 91, "cluster_index "),
    ],
)
def test_no_variable_changes_without_a_word(before: str, after: str, key: str) -> None:
    found, refused = changes(edited(before), edited(after))
    assert refused == []
    assert [f"{each.variable} {each.key}" for each in found.settings] == [key]


def test_cables_of_nodes_that_go_are_unplugged_after_their_jobs() -> None:
    for after, jobs in (("nodes.absent: [node02]", True), ("leaves.nodes_per_set: 1", False)):
        spines = "leaves.count: 4; " + SPINES
        found, _refused = changes(edited(spines), edited(f"{spines}; {after}"))
        first = model_changes.steps(found, [])[0]
        assert first["do"].startswith("unplug" if jobs else "move")
        assert ("no job" in first["why"]) is jobs


def test_a_host_at_another_address_is_another_one() -> None:
    other = "launcher: {name: login01, management: 10.0.0.9}"
    found, _refused = changes(edited(""), edited(other))
    assert (found.renamed, found.come, found.go) == (
        *({}, {"login01": "launcher"}, {"launcher01": "launcher"}),
    )


# Reference and operators' models


def reference(*edits: tuple[str, str]) -> str:
    written = (ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in written
        written = written.replace(old, new)
    return written


@pytest.mark.parametrize(
    ("edits", "reasons", "layers"),
    [
        (
            [("595.71.05", "595.99.02"), ("6.8.0-79", "6.8.0-85")],
            [
                "kernel 6.8.0-79-generic to 6.8.0-85-generic",
                "driver.version 595.71.05 to 595.99.02",
            ],
            "rdma gpu links storage node_check verbs smoke",
        ),
        (
            [("version: 3.2.1", "version: 3.2.0")],
            ["rdma.version 3.2.1 to 3.2.0"],
            "rdma gpu links storage mpi node_check verbs smoke",
        ),
        ([("nccl: 2.29.7", "nccl: 2.27.7")], [], "gpu smoke"),
        (
            [
                (
                    "  nccl: 2.29.7",
                    "  nccl: 2.29.7\n  accepted: [{component: runc, version: 1.3.3, reason: a, "
                    "until: 2027-01-31}]",
                )
            ],
            [],
            "",
        ),
        ([("management: 10.10.0.21", "management: 10.10.0.21\n    bmc: 10.10.3.1")], [], ""),
        (
            [("minimum_bytes: 150000", "minimum_bytes: 160000")],
            [],
            "fabric links monitoring verbs smoke",
        ),
        ([("noatime", "nodiratime")], [], "storage mpi"),
        ([("user: mpi", "user: hpc")], [], None),
    ],
)
def test_reboots_and_layers(edits: Any, reasons: list[str], layers: str | None) -> None:
    found, refused = changes(reference(), reference(*edits))
    nodes = ["node01", "node02", "node03", "node04"]
    assert (found.reboots, refused) == (dict.fromkeys(reasons, nodes), [])
    assert model_changes.layers(found) == (None if layers is None else layers.split())
    assert [*model_changes.steps(found, [])] != [] or layers == ""


@pytest.mark.parametrize("order", [1, -1])
def test_rails_that_come_or_go_concern_the_layers_of_nodes(order: int) -> None:
    found, refused = changes(*[edited("rails.count: 1; leaves.count: 1"), edited("")][::order])
    assert (refused, found.addresses, found.addressed) == ([], [], ["cluster_rails"])
    assert {"names", "rails", "mpi"} <= {*(model_changes.layers(found) or ())}


def test_a_driver_where_there_was_none_needs_no_reboot() -> None:
    driver = "  driver: {version: 595.71.05, gpu: B300} # open modules\n"
    without = [
        (driver, ""),
        ('  cuda: "13.2"\n  dcgm: 4.5.3\n  gdrcopy: 2.5.1\n  nccl: 2.29.7\n', ""),
    ]
    assert changes(reference(*without), reference())[0].reboots == {}


def test_every_layer_that_reads_a_variable_applies_its_change() -> None:
    tags = {role.rpartition(".")[2]: tag for tag, role in ROLES.items()}
    readers: dict[str, set[str]] = {}
    for path in (ROOT / "roles").rglob("*.yml"):
        tag = tags.get(path.relative_to(ROOT / "roles").parts[0], "")
        for name in re.findall(r"\b(?:cluster_\w+|roce_qos)\b", path.read_text(encoding="utf-8")):
            readers.setdefault(name, set()).update({tag} - {"", *MEASURING})
    for name in {*NAMES} & {*model_changes.LAYERS}:
        assert readers.get(name, set()) <= {*model_changes.LAYERS[name]}, name
    assert {*model_changes.LAYERS} <= {*NAMES}


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        ("d17-node-removed-from-list", ["4 changes.positions nodes ('node03', 2, 1)"]),
        ("d17-node-removed-from-list-as-meant", []),
    ],
)
def test_a_node_removed_from_a_list_as_an_operator_did(after: str, wanted: list[str]) -> None:
    before = text("d17-node-removed-from-list-as-meant").replace(", absent: [node02]", "")
    found, refused = changes(before, text(after))
    assert (found.go, refused) == ({"node02": "compute"}, wanted)


def test_a_spine_added_as_an_operator_did() -> None:
    after = text("d16-spine-added")
    found, refused = changes(after.replace("count: 5", "count: 4"), after)
    assert (len(found.moved), len(found.added), found.addresses) == (128, 32, [])
    assert refused == ["8 changes.switch_cables leaves.uplink_ports (16, 20)"]

    pinned = after.replace("ports: 64, man", "ports: 64, uplink_ports: 20, man")
    found, refused = changes(pinned.replace("count: 5", "count: 4"), pinned)
    assert (found.moved, len(found.added), refused) == ([], 32, [])


def test_a_spine_that_takes_ports_of_nodes_moves_those_behind() -> None:
    after = text("d16-spine-added").replace("nodes: {count: 4", "nodes: {count: 80")
    after = after.replace("leaves: {count: 8", "leaves: {count: 16")
    found, refused = changes(after.replace("count: 5", "count: 4"), after)
    assert len({each.host for each in found.addresses}) == 36
    assert refused == [
        "8 changes.node_cables leaves.nodes_per_set (288, 48)",
        "8 changes.switch_cables leaves.uplink_ports (16, 20)",
    ]
    pinned = after.replace("leaves: {", "leaves: {nodes_per_set: 44, ")
    found, refused = changes(pinned.replace("count: 5", "count: 4"), pinned)
    assert found.addresses == []
    assert refused == ["8 changes.switch_cables leaves.uplink_ports (16, 20)"]


DIVIDED = (
    "rails.planes: 2; leaves.nodes_per_set: 4; leaves.uplink_ports: 32; leaves.sets_per_unit: 1; "
    "spines: {count: %d, ports: 64, management_first: 10.0.0.201, divided_by: [unit, plane]}; "
)


def test_a_unit_at_the_end_moves_nothing() -> None:
    before = f"{DIVIDED % 4}nodes.count: 4; leaves.count: 4"
    found, refused = changes(
        edited(before), edited(f"{DIVIDED % 8}nodes.count: 8; leaves.count: 8")
    )
    assert (found.moved, found.addresses, refused) == ([], [], [])
    assert len(found.come) == 4 + 4 + 4


def test_a_spine_less_in_each_plane_moves_the_planes_of_others() -> None:
    more, less = (edited(f"{DIVIDED % count}nodes.count: 4; leaves.count: 4") for count in (4, 2))
    assert changes(more, less)[1] == ["10 changes.switch_cables spines (2, 1)"]
    names = less.replace("divided", "name: [spine01, spine03], divided")
    found, refused = changes(more, names)
    assert (found.moved, len(found.removed)) == ([], 4)
    assert refused == ["10 changes.management spines.management_first 1"]


def test_planes_divided_later_are_moves() -> None:
    before = edited(f"{DIVIDED % 4}nodes.count: 4; leaves.count: 4")
    found, refused = changes(before.replace("[unit, plane]", "[]"), before)
    assert found.moved
    assert refused == ["10 changes.switch_cables spines.divided_by (4, 2)"]


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("b300-1su", "b300-4su", "links_per_leaf"),
        ("b300-4su", "b300-8su", "divided_by"),
        ("b300-8su", "b300-16su", "groups"),
        ("b300-twin-1su", "b300-twin-4su", "links_per_leaf"),
    ],
)
def test_a_superpod_of_the_next_size_moves_cables_of_spines_only(
    before: str, after: str, key: str
) -> None:
    models = [
        (ROOT / f"inventories/examples/superpod-{size}/cluster.yml").read_text(encoding="utf-8")
        for size in (before, after)
    ]
    assert all("cables of spines" in model for model in models)
    found, findings = changed(*models)
    assert found.moved and found.addresses == []
    ends = {found.roles[end] for each in found.moved for end in (each.host, each.before.split()[0])}
    assert ends == {"leaf", "spine"}
    assert [(each.code, each.path) for each in findings.found] == [
        ("changes.switch_cables", ("spines", key))
    ]


# Properties

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))


def of_size(nodes: int, sets: int, spines: int, links: int, absent: str = "") -> str:
    return edited(
        f"nodes.count: {nodes}; leaves.count: {2 * sets}; leaves.nodes_per_set: 4; "
        f"nodes.absent: [{absent}]; spines: {{count: {spines}, ports: 64, "
        f"management_first: 10.0.0.201, links_per_leaf: {links}}}"
    )


def fitting(size: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    return (min(size[0], 4 * size[1]), *size[1:])


@given(SIZES, SIZES)
def test_a_change_back_is_the_reverse(first: Any, second: Any) -> None:
    models = [of_size(*fitting(size)[:3], first[3]) for size in (first, second)]
    there, back = changes(models[0], models[1])[0], changes(models[1], models[0])[0]
    assert (there.come, there.go) == (back.go, back.come)
    assert {(each.host, each.what): (each.before, each.after) for each in there.addresses} == {
        (each.host, each.what): (each.after, each.before) for each in back.addresses
    }
    assert sorted(there.moved) == sorted(
        each._replace(before=each.after, after=each.before) for each in back.moved
    )
    assert (sorted(there.added), sorted(there.removed)) == (
        sorted(back.removed),
        sorted(back.added),
    )


@given(SIZES, st.integers(0, 8), st.integers(0, 2), st.sets(st.integers(2, 9)))
def test_nodes_and_leaf_sets_at_the_end_move_nothing(
    size: Any, more_nodes: int, more_sets: int, absent: set[int]
) -> None:
    nodes, sets, spines, links = fitting(size)
    larger = fitting((nodes + more_nodes, sets + more_sets, spines, links))
    gone = ", ".join(f"node{number:02d}" for number in sorted(absent) if number <= nodes)
    found, refused = changes(of_size(nodes, sets, spines, links), of_size(*larger, gone))
    assert (found.moved, found.addresses, refused) == ([], [], [])
    assert len(found.come) == larger[0] - nodes + 2 * more_sets


@given(SIZES)
def test_every_cable_is_counted(size: Any) -> None:
    """From a cluster of one node, one set and one spine, by the numbers of links of each."""
    nodes, sets, spines, links = fitting(size)
    found, _refused = changes(of_size(1, 1, 1, links), of_size(nodes, sets, spines, links))
    total, before = 2 * nodes + 2 * sets * spines * links, 2 + 2 * links
    assert len(found.added) - len(found.removed) == total - before


# Earlier models


def repository(folder: Path) -> Path:
    """A repository with two commits of a model."""
    site = folder / "inventories/small"
    site.mkdir(parents=True)
    git(folder, "init", "-q")
    for number in (2, 3):
        model = edited(f"nodes.count: {number}")
        (site / "cluster.yml").write_text(model, encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "x")
    return site / "cluster.yml"


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.net", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def test_an_earlier_model_is_a_revision_a_file_or_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = repository(tmp_path)
    git(tmp_path, "tag", "v1.0", "HEAD~1")
    for revision, count in (("HEAD", 3), ("HEAD~1", 2), ("v1.0", 2), ("@{0}", 3)):
        assert read_earlier(revision, model).data["nodes"]["count"] == count
    monkeypatch.chdir(tmp_path)
    for path in ("inventories/small", "inventories/small/cluster.yml", str(tmp_path)):
        assert read_earlier(path, model).data["nodes"]["count"] == 3
    monkeypatch.chdir(model.parent)
    assert read_earlier("HEAD~1", Path(model.name)).data["nodes"]["count"] == 2


@pytest.mark.parametrize("against", ["--output=x", "HEAD:x", "$(id)", "HEAD\n", "x" * 300])
def test_git_gets_no_odd_revision(
    tmp_path: Path, against: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions.subprocess, "run", None)
    with pytest.raises(ModelError) as caught:
        read_earlier(against, tmp_path / "cluster.yml")
    assert brief(caught.value.findings) == ["changes.against against"]


@pytest.mark.parametrize(
    "against",
    ["HEAD~7", "--output=x", "HEAD:x", "no such file", "$(id)", "HEAD\n", "x" * 300, "empty"],
)
def test_what_is_no_earlier_model(tmp_path: Path, against: str, monkeypatch: Any) -> None:
    model = repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ModelError) as caught:
        read_earlier(against, model)
    assert brief(caught.value.findings) == ["changes.against against"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_revision_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = repository(tmp_path)
    other = model.with_name("other.yml")
    for limit, name, path in ((99, "MOST_BYTES", model), (30, "TIMEOUT_S", other)):
        monkeypatch.setattr(versions, name, limit)
        with pytest.raises(ModelError) as caught:
            read_earlier("HEAD", path)
        assert brief(caught.value.findings) == ["changes.against against"]
    model.write_bytes(b"\xff" * 9)
    git(tmp_path, "commit", "-qam", "x")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    with pytest.raises(ModelError) as caught:
        read_earlier("HEAD", model)
    assert brief(caught.value.findings) == ["changes.against against"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError) as caught:
        read_earlier("HEAD", model)
    assert brief(caught.value.findings) == ["changes.against against"]


# Through Ansible


def test_the_playbook_refuses_moves_until_they_are_accepted(tmp_path: Path) -> None:
    site = repository(tmp_path)
    site.write_text(edited("nodes.count: 3; nodes.start: 2"), encoding="utf-8")
    result = tmp_path / "changes.json"

    def run(*more: str) -> tuple[int, str, dict[str, Any]]:
        given = ("-e", "against=HEAD", "-e", f"against_json={result}", *more)
        done = ansible("ansible-playbook", "playbooks/model.yml", "-i", site.parent, *given)
        return done.returncode, done.stdout + done.stderr, json.loads(result.read_text("utf-8"))

    status, output, found = run()
    assert status == 2
    assert "moves=accepted" in output
    assert [each["code"] for each in found["refused"]] == ["changes.positions"]
    assert [each["name"] for each in found["hosts"]["go"]] == ["node01"]
    assert found["steps"][-1]["do"].split()[:2] == ["ansible-playbook", "playbooks/verify.yml"]
    status, output, again = run("-e", "moves=accepted")
    assert (status, again) == (0, {**found, "moves": "accepted"})
    for wrong in (
        "moves=yes",
        "against=HEAD~9",
        f"against_json={site}/x",
        "against=",
        "against=' '",
    ):
        assert run("-e", wrong)[0] == 2
    assert run("-e", "against=none")[0] == 0
    result.write_text("0", encoding="utf-8")
    assert run("-e", "moves=accepted", "--check")[::2] == (0, 0)


@pytest.mark.slow
def test_an_inventory_can_ask_for_the_comparison(tmp_path: Path) -> None:
    site = repository(tmp_path)
    (site.parent / "group_vars").mkdir()
    (site.parent / "group_vars/all.yml").write_text("against: HEAD~1\n", encoding="utf-8")
    for limit in ("all", "node03"):
        words = ("playbooks/model.yml", "-i", site.parent, "--limit", limit)
        done = ansible("ansible-playbook", *words)
        assert (done.returncode, "come: 1 compute: node03" in done.stdout) == (0, True)

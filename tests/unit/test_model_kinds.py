# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clusters with several kinds of nodes, blocks of them, and several launchers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.facts import build
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.action_plays import ROOT, run_play
from tests.unit.small_model import MODEL, compiled, doubts, edited, refused

TWO = "[{name: login01, management: 10.0.0.10}, {name: login02, management: 10.0.0.20}]"


@pytest.mark.parametrize("key", ["launcher", "launchers"])
def test_several_launchers(key: str) -> None:
    inventory = compiled(edited(f"launcher; {key}: {TWO}"))
    launchers = [host for host in inventory.hosts if host.groups == ("launcher",)]
    assert [(host.name, host.variables["ansible_host"]) for host in launchers] == [
        ("login01", "10.0.0.10"),
        ("login02", "10.0.0.20"),
    ]
    directory = build({host.name: inventory.merged(host) for host in inventory.hosts})
    assert [each["name"] for each in directory if each["role"] == "launcher"] == [
        "login01",
        "login02",
    ]


def test_one_launcher_is_the_same_in_each_form() -> None:
    one = "{name: launcher01, management: 10.0.0.10}"
    forms = (MODEL, edited(f"launcher: [{one}]"), edited(f"launcher; launchers: [{one}]"))
    first, *others = map(compiled, forms)
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("edits", "findings"),
    [
        ("launcher", ["1 model.launchers launcher"]),
        ("launcher: []", ["9 model.launchers launcher"]),
        (f"launchers: {TWO}", ["10 model.launchers launchers"]),
        ("launcher: [{name: login01}]", ["9 model.missing_key launcher[0].management"]),
        ("launcher; launchers: []", ["9 model.launchers launchers"]),
        ("launcher; launchers: null", ["9 model.launchers launchers"]),
        ("launcher: null", ["9 model.not_a_mapping launcher"]),
        (
            "launcher: [{name: slots, management: 10.0.0.10}]",
            ["9 model.name_reserved launcher[0].name 'slots'"],
        ),
        (
            f"launcher; launchers: {TWO.replace('02', '01').replace('.20', '.10')}",
            [
                "9 model.name_taken launchers[1].name 'login01'",
            ],
        ),
        (
            f"launcher; launchers: {TWO.replace('.20', '.12')}",
            ["4 model.management_address_twice nodes.management_first ('10.0.0.12', 1, 'login02')"],
        ),
    ],
)
def test_wrong_launchers(edits: str, findings: list[str]) -> None:
    assert refused(edited(edits)) == findings


MIXED = """\
plugin: baremetal.mpi_roce.cluster
name: mixed
management: {subnet: 10.0.0.0/24}
kinds:
  h100: {rails: {speed_gbps: 400, count: 2, gpu: [1, 3]}, gpus: {count: 4}}
  cpu: {gpus: {count: 0}, slots: 3}
nodes:
  - {count: 2, management_first: 10.0.0.11}
  - {count: 2, start: 3, management_first: 10.0.0.15, kind: h100}
  - list: [{name: cpu01, management: 10.0.0.20, kind: cpu}]
gpus: {count: 4, numa: [0, 0, 1, 1]}
rails: {count: 4, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 4, ports: 64, management_first: 10.0.0.101, system: sonic, asic: spectrum4}
launcher: {name: launcher01, management: 10.0.0.10}
"""


def of_nodes(text: str) -> dict[str, dict[str, Any]]:
    inventory = compiled(text)
    hosts = {host.name: inventory.merged(host) for host in inventory.hosts}
    return {name: own for name, own in hosts.items() if own["cluster_role"] == "compute"}


def test_each_kind_has_its_gpus_rails_and_slots() -> None:
    found = {
        name: (
            own["cluster_kind"],
            own["cluster_slots"],
            [gpu["numa"] for gpu in own["cluster_gpus"]],
            [(rail["interface"], rail["speed_gbps"], rail["gpu"]) for rail in own["cluster_rails"]],
        )
        for name, own in of_nodes(MIXED).items()
    }
    default = ("default", 4, [0, 0, 1, 1], [(f"rail{n}", 800, n) for n in range(4)])
    h100 = ("h100", 4, [None] * 4, [("rail0", 400, 1), ("rail1", 400, 3)])
    cpu = ("cpu", 3, [], [(f"rail{n}", 800, None) for n in range(4)])
    assert found == {
        **dict.fromkeys(("node01", "node02"), default),
        **dict.fromkeys(("node03", "node04"), h100),
        "cpu01": cpu,
    }


def test_every_node_has_the_place_of_its_number_on_the_leaves() -> None:
    """The kind changes neither ports nor addresses of a node, nor those of others."""
    alike = "".join(line + "\n" for line in MIXED.splitlines() if not line.startswith("  h100"))
    alike = alike.replace("kind: h100", "slots: 4")

    def ends(text: str) -> dict[tuple[str, str], tuple[str, str, str]]:
        return {
            (name, rail["interface"]): (rail["address"], rail["leaf"], rail["leaf_port"])
            for name, own in of_nodes(text).items()
            for rail in own["cluster_rails"]
        }

    every, mixed = ends(alike), ends(MIXED)
    assert every["cpu01", "rail3"] == ("10.1.3.6", "leaf04", "Ethernet32")
    missing = {(node, rail) for node in ("node03", "node04") for rail in ("rail2", "rail3")}
    assert mixed == {end: place for end, place in every.items() if end not in missing}


def test_a_leaf_has_a_group_of_ports_for_each_kind() -> None:
    leaves = {host.name: host.variables for host in compiled(MIXED).hosts}
    assert [
        (group["speed_gbps"], group["address"], group["peers"])
        for group in leaves["leaf02"]["cluster_ports"]
    ] == [
        (800, "10.1.1.1", {"Ethernet0": "node01", "Ethernet8": "node02"}),
        (400, "10.1.1.1", {"Ethernet16": "node03", "Ethernet24": "node04"}),
        (800, "10.1.1.1", {"Ethernet32": "cpu01"}),
    ]
    assert [group["speed_gbps"] for group in leaves["leaf03"]["cluster_ports"]] == [800, 800]


def test_kinds_are_groups() -> None:
    inventory = compiled(MIXED + "vars: {kind_cpu: {os_baseline_swap: keep}}\n")
    groups: dict[str, list[str]] = {}
    for host in inventory.hosts:
        for group in host.groups:
            groups.setdefault(group, []).append(host.name)
    assert groups["kind_h100"] == ["node03", "node04"]
    assert groups["kind_default"] == ["node01", "node02"]
    assert not any(name.startswith("kind_") for name in compiled(MODEL).group_variables)
    assert refused(MIXED + "vars: {kind_b300: {}}\n") == [
        "16 model.unknown_group vars.kind_b300 'kind_b300'"
    ]


FIRST = "{count: 2, management_first: 10.0.0.11}"


def test_one_block_is_the_same_as_a_mapping() -> None:
    assert compiled(edited(f"nodes: [{FIRST}]")) == compiled(MODEL)


def test_a_block_takes_the_places_after_the_one_above() -> None:
    block = "name: 'b{:02d}', count: 1, management_first: 10.0.0.21"
    found = {
        key: of_nodes(edited(f"nodes: [{FIRST}, {{{key}{block}}}]"))["b01"]
        for key in ("", "position: 8, ")
    }
    assert [(own["cluster_index"], own["ansible_host"]) for own in found.values()] == [
        (2, "10.0.0.21"),
        (8, "10.0.0.21"),
    ]


KIND = "kinds: {x: {%s}}; nodes.kind: x"


@pytest.mark.parametrize(
    ("edits", "findings"),
    [
        (KIND % "rails: {count: 3}", ["10 model.kind_above_leaves kinds.x.rails.count 3"]),
        (
            KIND % "rails: {speed_gbps: 1600}",
            ["10 model.kind_above_leaves kinds.x.rails.speed_gbps 1600"],
        ),
        (KIND % "rails: {planes: 2}", ["10 model.kind_planes kinds.x.rails.planes 2"]),
        (KIND % "rails: {mtu: 1500}", ["10 model.unknown_key kinds.x.rails.mtu"]),
        (KIND % "rails: {gpu: [0, 2]}", ["10 model.no_gpu kinds.x.rails.gpu[1] 2"]),
        (
            KIND % "rails: {count: 1, gpu: [0, 1]}",
            ["10 model.values_for_devices kinds.x.rails.gpu 2"],
        ),
        (KIND % "gpus: {numa: [0]}", ["10 model.values_for_devices kinds.x.gpus.numa 1"]),
        (KIND % "gpus: {count: 0}", ["10 model.no_slots kinds.x.slots"]),
        (
            KIND % "rails: {pci: ['0000:11:00.0']}",
            ["10 model.values_for_devices kinds.x.rails.pci 1"],
        ),
        ("nodes.kind: h100", ["4 model.unknown_kind nodes.kind 'h100'"]),
        (
            "nodes.overrides: {node02: {kind: h100}}",
            ["4 model.unknown_kind nodes.overrides.node02.kind 'h100'"],
        ),
        ("kinds: {default: {}}", ["10 model.kind_name kinds.default 'default'"]),
        ("kinds: {b-300: {}}", ["10 model.kind_name kinds.b-300 'b-300'"]),
        (
            "leaves.asic: spectrum4; kinds: {x: {rails: {speed_gbps: 500}}}",
            ["10 model.kind_speed kinds.x.rails.speed_gbps ('spectrum4', 500)"],
        ),
        ("nodes: []", ["4 model.no_nodes nodes"]),
        (
            f"nodes: [{FIRST}, {{count: 1, start: 9, position: 1, management_first: 10.0.0.31}}]",
            ["4 model.position_twice nodes[1].position 1"],
        ),
        (
            f"nodes: [{FIRST}, {{count: 1, management_first: 10.0.0.31, absent: [node02]}}]",
            [
                "4 model.unknown_node nodes[1].absent[0] 'node02'",
                "4 model.name_taken nodes[1].name 'node01'",
            ],
        ),
    ],
)
def test_wrong_kinds_and_blocks(edits: str, findings: list[str]) -> None:
    assert refused(edited(edits)) == findings


@pytest.mark.parametrize("rails", ["", "{mtu: 4200, count: 2}"])
def test_leaf_sets_have_the_rails_of_the_largest_kind(rails: str) -> None:
    """If every node has a kind, the top level needs neither GPUs nor rails."""
    x, y = "{count: 2, speed_gbps: 400}", "{count: 1, speed_gbps: 800}"
    kinds = f"{{x: {{gpus: {{count: 2}}, rails: {x}}}, y: {{slots: 3, rails: {y}}}}}"
    block = "{count: 1, start: 3, kind: y, management_first: 10.0.0.21}"
    nodes = f"nodes: [{FIRST[:-1]}, kind: x}}, {block}]"
    text = edited(f"gpus; rails: {rails}; kinds: {kinds}; {nodes}")
    found = {
        name: [(rail["interface"], rail["speed_gbps"]) for rail in own["cluster_rails"]]
        for name, own in of_nodes(text).items()
    }
    assert found["node02"] == [("rail0", 400), ("rail1", 400)]
    assert found["node03"] == [("rail0", 800)]
    assert refused(text.replace(", kind: y", ", slots: 1")) == [
        "4 model.kind_missing nodes[1].name ('node03', 1)"
    ]


@pytest.mark.parametrize(
    ("rails", "findings"),
    [
        ("{count: 1, speed_gbps: 400}", ["9 model.kind_planes kinds.x.rails.planes 1"]),
        ("{count: 1, speed_gbps: 400, planes: 2}", []),
        ("{count: 0}", []),
    ],
)
def test_a_kind_does_not_have_the_planes_of_another(rails: str, findings: list[str]) -> None:
    y = "{gpus: {count: 2}, rails: {count: 2, speed_gbps: 400, planes: 2}}"
    kinds = f"{{x: {{slots: 1, rails: {rails}}}, y: {y}}}"
    block = "{count: 1, start: 3, kind: y, management_first: 10.0.0.21}"
    nodes = f"nodes: [{FIRST[:-1]}, kind: x}}, {block}]"
    text = edited(f"gpus; rails: {{}}; leaves.count: 4; kinds: {kinds}; {nodes}")
    assert (refused(text) if findings else []) == findings
    assert findings or [len(own["cluster_rails"]) for own in of_nodes(text).values()][-1] == 4


def test_another_kind_has_its_slots_and_not_those_of_the_block() -> None:
    kinds = "kinds: {x: {slots: 1}, y: {gpus: {count: 4}}, z: {gpus: {count: 0}}}"
    nodes = "nodes.slots: 7; nodes.kind: x; nodes.count: 4"
    others = "{node02: {kind: y}, node03: {kind: z}, node04: {kind: x, slots: 9}}"
    found = of_nodes(edited(f"{kinds}; {nodes}; nodes.overrides: {others}"))
    assert [own["cluster_slots"] for own in found.values()] == [7, 4, 7, 9]


def test_a_kind_with_fewer_gpus_has_rails_without_them() -> None:
    text = edited("rails.gpu: [1, 0]; kinds: {x: {gpus: {count: 1}}}; nodes.kind: x")
    assert [rail["gpu"] for rail in of_nodes(text)["node01"]["cluster_rails"]] == [None, 0]


def test_devices_of_another_chassis_are_written_again() -> None:
    pci = "[0000:11:00.0, 0000:12:00.0]"
    text = edited(
        f"rails.pci: {pci}; kinds: {{x: {{rails: {{speed_gbps: 400}}}}, y: {{slots: 1}}}}"
    )
    unused = [f"10 model.kind_unused kinds.{name} '{name}'" for name in "xy"]
    assert doubts(text) == ["10 model.kind_devices kinds.x.rails", *unused]
    found = of_nodes(
        text.replace("nodes: {", "nodes: {overrides: {node01: {kind: x}, node02: {kind: y}}, ")
    )
    assert [rail["pci"] for rail in found["node01"]["cluster_rails"]] == [None, None]
    assert found["node02"]["cluster_rails"][1]["pci"] == "0000:12:00.0"
    assert found["node02"]["cluster_slots"] == 1


RUN = """\
- name: Cluster model
  ansible.builtin.import_playbook: {root}/playbooks/model.yml
  vars:
    model_needs: launcher
- name: Smoke test
  ansible.builtin.import_playbook: {root}/playbooks/smoke.yml
- name: Figures
  ansible.builtin.import_playbook: {root}/playbooks/bench.yml
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "runs", "told"),
    [
        ((), "login01", ""),
        (("--limit=!login01",), "login02", ""),
        (("-e", "mpi_job_launcher=login02"), "login02", ""),
        (("-e", "mpi_job_launcher=login03"), "", "'login03' is not a launcher"),
        (("-e", "mpi_job_launcher=login02", "--limit=login01"), "", "login02 is excluded"),
        (("--limit=node01",), "", "excludes login01, login02"),
    ],
)
def test_one_launcher_runs_it(
    tmp_path: Path, options: tuple[str, ...], runs: str, told: str
) -> None:
    """The plays of smoke and bench, in check mode, on this machine as every launcher."""
    model = edited(f"launcher; launchers: {TWO}")
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    site = tmp_path / "site"
    site.mkdir()
    (site / "cluster.yml").write_text(f"{model}vars: {{all: {local}}}\n", encoding="utf-8")
    _status, output = run_play(tmp_path, RUN.format(root=ROOT), site, "--check", *options)
    other = "" if "--limit=!login01" in options else {"login01": "login02"}.get(runs, "login01")
    assert output.count("would run mpirun") == bool(runs), output
    run = "".join(part for part in output.split("TASK [") if "Reach the launcher" not in part)
    assert run.count("skipping: [") == 2 * bool(runs and other), output
    assert run.count(f"skipping: [{other}]") == 2 * bool(runs and other), output
    assert told in output


BLOCKS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["", "x", "y"])), min_size=1, max_size=4
)
PLAN = "kinds: {x: {rails: {count: 1}}, y: {slots: 9, rails: {speed_gbps: 400}}}; leaves.count: 4"


def ends_of(blocks: list[tuple[int, str]]) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Address and port of each rail."""
    written = [
        f"{{count: {count}, name: 'b{number}-{{}}', management_first: 10.0.0.{20 + 8 * number}"
        f"{f', kind: {kind}' if kind else ''}}}"
        for number, (count, kind) in enumerate(blocks)
    ]
    text = edited(f"{PLAN}; leaves.nodes_per_set: 12; nodes: [{', '.join(written)}]")
    return {
        (name, rail["interface"]): (rail["address"], rail["leaf"], rail["leaf_port"])
        for name, own in of_nodes(text).items()
        for rail in own["cluster_rails"]
    }


@settings(max_examples=40, deadline=None)
@given(BLOCKS, st.integers(0, 3), st.sampled_from(["", "x", "y"]))
def test_another_kind_or_a_larger_last_block_moves_no_rail(
    blocks: list[tuple[int, str]], at: int, kind: str
) -> None:
    before = ends_of(blocks)
    changed = list(blocks)
    changed[at % len(blocks)] = (blocks[at % len(blocks)][0], kind)
    changed[-1] = (changed[-1][0] + 1, changed[-1][1])
    after = ends_of(changed)
    assert {end: place for end, place in before.items() if end in after} == {
        end: place for end, place in after.items() if end in before
    }
    assert {name for name, _rail in before} < {name for name, _rail in after}
    assert len(set(after.values())) == len(after)


SOFTWARE = """\
software:
  rdma: {source: doca, version: 3.2.1}
  driver: {version: 595.71.05}
  cuda: "13.2"
  mpi:
    provider: source
    sources:
      ucx: {url: "https://x.example/ucx-1.19.0.tar.gz", sha256: SUM}
      openmpi: {url: "https://x.example/openmpi-4.1.8.tar.bz2", sha256: SUM}
    mpi4py: 4.1.1
  repositories:
    cuda: {key: keys/cuda.asc, key_sha256: ""}
    doca: {key: keys/doca.asc, key_sha256: ""}
""".replace("SUM", "0" * 64)
OF_H100 = (
    "software: {driver: {gpu: H100, version: 535.309.01}, cuda: '12.2', kernel: 6.8.0-79-generic}"
)
WITH_SOFTWARE = (
    MIXED.replace("h100: {", f"h100: {{{OF_H100}, ").replace(
        "cpu: {gpus: {count: 0}, slots: 3}", "cpu: {gpus: {count: 0}, rails: {count: 0}}"
    )
    + SOFTWARE
)


def test_each_kind_has_its_software_and_all_the_same_mpi() -> None:
    found = {name: own["cluster_software"] for name, own in of_nodes(WITH_SOFTWARE).items()}
    assert {
        name: (
            each["kernel"],
            each["driver"] and (each["driver"]["gpu"], each["driver"]["version"]),
            each["cuda"],
            each["rdma"]["source"],
        )
        for name, each in found.items()
    } == {
        **dict.fromkeys(("node01", "node02"), ("", ("B300", "595.71.05"), "13.2", "doca")),
        **dict.fromkeys(
            ("node03", "node04"), ("6.8.0-79-generic", ("H100", "535.309.01"), "12.2", "doca")
        ),
        "cpu01": ("", None, "", "none"),
    }
    assert len({str(each["mpi"]) for each in found.values()}) == 1
    assert found["node03"]["mpi"]["sources"]["cuda"]
    variables = compiled(WITH_SOFTWARE).group_variables
    assert "cluster_software" not in variables["kind_default"]


@pytest.mark.parametrize(
    ("before", "after", "findings"),
    [
        ("'12.2'", "'13.0'", ["5 software.cuda_driver kinds.h100.software.cuda"]),
        (
            "gpu: H100",
            "gpu: B200",
            ["5 software.blackwell_branch kinds.h100.software.driver.version"],
        ),
        (
            "gpu: H100",
            "gpu: A100",
            ["5 model.not_a_choice kinds.h100.software.driver.gpu 'A100'"],
        ),
        ("kernel: 6.8.0-79-generic", "mpi: {}", ["5 model.unknown_key kinds.h100.software.mpi"]),
    ],
)
def test_software_that_a_kind_cannot_have(before: str, after: str, findings: list[str]) -> None:
    assert refused(WITH_SOFTWARE.replace(before, after)) == findings


def test_a_kind_with_another_source_of_drivers_has_no_version_of_doca() -> None:
    text = WITH_SOFTWARE.replace(
        "driver: {gpu: H100, ", "rdma: {source: inbox}, driver: {gpu: H100, "
    )
    (rdma,) = {
        str(of_nodes(text)[name]["cluster_software"]["rdma"]) for name in ("node03", "node04")
    }
    assert rdma == "{'source': 'inbox', 'version': '', 'profile': '', 'nfs': False}"


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (OF_H100, ["5 software.cuda_floor kinds.h100.software.cuda"]),
        (
            "software: {driver: {gpu: H100}}",
            [],
        ),
        (
            "software: {driver: {gpu: H100, modules: proprietary}}",
            ["5 software.dma_buf_modules kinds.h100.software.driver.modules"],
        ),
        (
            "slots: 4",
            ["5 software.gpu_of_kind kinds.h100 ('H100', 'B300')"],
        ),
    ],
)
def test_software_of_a_kind_that_is_probably_a_mistake(own: str, found: list[str]) -> None:
    assert doubts(WITH_SOFTWARE.replace(OF_H100, own)) == found


def test_a_doubt_about_the_software_of_all_kinds_is_told_once() -> None:
    text = WITH_SOFTWARE.replace(OF_H100, "software: {driver: {gpu: H100}}")
    text = text.replace('cuda: "13.2"', 'cuda: "13.4"')
    (doubt,) = doubts(text)
    assert doubt.split()[1:3] == ["software.cuda_minor", "software.cuda"]


WITHOUT = "kinds: {x: {slots: 1, rails: {count: 0}}}; nodes.overrides: {node02: {kind: x%s}}"


@pytest.mark.parametrize(
    ("hosts", "groups"),
    [
        ("compute", "'compute'"),
        ("kind_x", "'kind_x'"),
        ("rack_r01", "'rack_r01'"),
        ("kind_default", ""),
    ],
)
def test_nfs_over_rdma_is_for_groups_whose_nodes_have_rails(hosts: str, groups: str) -> None:
    nfs = "type: nfs, source: 10.0.0.99:/a, mount: /mnt/a, purpose: datasets"
    mounted = f"filesystems: [{{name: a, {nfs}, nfs: {{transport: rdma}}, hosts: [{hosts}]}}]\n"
    text = edited(WITHOUT % "") + mounted
    if groups:
        code = "storage.groups_without_rails filesystems[0].hosts"
        assert refused(text) == [f"11 {code} ({groups},)"]
    else:
        assert compiled(text).hosts


@pytest.mark.parametrize(
    ("edits", "findings"),
    [
        (
            WITHOUT % ", pci: ['0000:11:00.0']",
            ["4 model.values_for_devices nodes.overrides.node02.pci 1"],
        ),
        (
            "leaves; switches: {a: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.101, "
            "kind: x}}; kinds: {x: {slots: 1, rails: {count: 0}}}; nodes.kind: x",
            ["9 model.leaves_without_rails switches.a.kind 'x'"],
        ),
        ("rails.count: 0", ["6 model.out_of_range rails.count (0, 1, 64)"]),
    ],
)
def test_what_nodes_without_rails_cannot_have(edits: str, findings: list[str]) -> None:
    assert refused(edited(edits)) == findings


def test_a_node_without_rails_may_have_a_place_among_those_of_another_kind() -> None:
    groups = (
        "{a: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.101, nodes: 8, kind: y}, "
        "b: {tier: leaf, count: 2, ports: 64, management_first: 10.0.0.111}}"
    )
    kinds = "{x: {slots: 1, rails: {count: 0}}, y: {slots: 2}}"
    blocks = (
        "[{count: 1, kind: y, management_first: 10.0.0.11}, "
        "{count: 1, start: 2, kind: x, management_first: 10.0.0.12}, "
        "{count: 1, start: 3, position: 8, management_first: 10.0.0.13}]"
    )
    found = of_nodes(edited(f"leaves; switches: {groups}; kinds: {kinds}; nodes: {blocks}"))
    assert [len(own["cluster_rails"]) for own in found.values()] == [2, 0, 2]

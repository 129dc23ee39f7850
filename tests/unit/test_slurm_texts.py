# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm's keys in the model, and the files that they become."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import texts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import (
    Cpu,
    SlurmCluster,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.texts import Settings
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import AnswerError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.differences import (
    of_systems,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.draft import Draft
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import rack_group

from tests.unit.read_machines import machines, recorded
from tests.unit.slurm_cluster import CPU, MIXED, cluster, example, hosts_of, mixed
from tests.unit.small_model import MODEL, edited, refused

GOLDEN = Path(__file__).parent / "golden/slurm"
PROGRAMS = {
    "task_prolog": "/usr/local/libexec/baremetal-mpi-roce/task-prolog",
    "prolog": "/usr/local/libexec/baremetal-mpi-roce/slurm-prolog",
    "epilog": "/usr/local/libexec/baremetal-mpi-roce/slurm-epilog",
    "health_check": "/usr/local/libexec/baremetal-mpi-roce/slurm-health-check",
    "reboot_program": "/sbin/reboot",
}
DEBIAN, UBUNTU_22, NEW = (22, 5), (21, 8), (25, 5)
CPU_TEXT = "nodes.cpu: {sockets: 2, cores: 8, threads: 1, memory_mb: 64000}"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("b300", DEBIAN),
        ("b300", NEW),
        ("examples/superpod-b300-4su", DEBIAN),
        ("examples/superpod-b300-twin-4su", NEW),
        ("examples/unequal-pods", DEBIAN),
        ("mixed", DEBIAN),
        ("mixed", UBUNTU_22),
    ],
)
def test_files_of_a_model(name: str, version: tuple[int, int]) -> None:
    made = mixed() if name == "mixed" else cluster(name)
    found = texts.texts(made, Settings(version, **PROGRAMS))  # type: ignore[arg-type]
    text = "".join(f"==> {file} <==\n{content}\n" for file, content in sorted(found.items()))
    path = GOLDEN / f"{name.rpartition('/')[2]}-{version[0]}.{version[1]:02d}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def lines_of(text: str, key: str) -> list[dict[str, str]]:
    pairs = re.compile(r'(\w+)=("[^"]*"|\S+)')
    found = [dict(pairs.findall(line)) for line in text.splitlines() if not line.startswith("#")]
    return [line for line in found if key in line]


def test_a_line_of_nodes_has_what_the_model_says() -> None:
    made = mixed()
    text = texts.texts(made, Settings(DEBIAN))[texts.NODES]
    lines = {line["NodeName"]: line for line in lines_of(text, "NodeName")}
    assert list(lines) == ["node[01-02]", "node[03-04]", "h9", "h10", "cpu-[01-02]"]
    first = lines["node[01-02]"]
    # Slurm pairs names and addresses by position; a range ends with the octet.
    assert first["NodeAddr"] == "10.0.1.[254-255]"
    assert lines["node[03-04]"]["NodeAddr"] == "10.0.2.[0-1]"
    assert first["Gres"] == "gpu:4" and lines["h9"]["Gres"] == "gpu:h100:4"
    assert "Gres" not in lines["cpu-[01-02]"]
    assert lines["h9"]["Feature"] == f"kind_h100,{rack_group('b.1')}"
    assert [line["State"] for line in lines.values()] == ["UNKNOWN"] * 3 + ["DRAIN", "UNKNOWN"]
    assert lines["h10"]["Reason"] == f'"{texts.MODEL_DRAIN}"'


def test_each_kind_has_a_partition() -> None:
    settings = Settings(DEBIAN, partition="batch")
    lines = lines_of(texts.texts(mixed(), settings)[texts.PARTITIONS], "PartitionName")
    assert [(line["PartitionName"], line["Nodes"], line["Default"]) for line in lines] == [
        ("batch", "node[01-04],h[9-10],cpu-[01-02]", "YES"),
        ("kind_default", "node[01-04]", "NO"),
        ("kind_h100", "h[9-10]", "NO"),
        ("kind_cpu", "cpu-[01-02]", "NO"),
    ]
    # Every CPU with its share of the memory fits on every node.
    assert int(lines[0]["DefMemPerCPU"]) * 128 <= 515_000
    assert len(lines_of(texts.texts(cluster("b300"), settings)[texts.PARTITIONS], "Nodes")) == 1


@pytest.mark.parametrize(
    ("cpu", "cores"),
    [
        ((2, 56, 2, 1), ["0-55", "56-111", ""]),
        ((2, 56, 2, 1, 4), ["0-27", "28-55", "56-83"]),
        ((2, 3, 1, 1, 4), ["", "", ""]),
        ((1, 1, 1, 1), ["0", "", ""]),
    ],
)
def test_cores_of_numa_nodes(cpu: tuple[int, ...], cores: list[str]) -> None:
    """Slurm's numbers: socket by socket, and the NUMA nodes of a socket in order."""
    assert [Cpu(*cpu).cores_of(numa) for numa in range(3)] == cores
    assert Cpu(*cpu).cores_of(None) == ""


def test_gpus_have_their_cores_devices_and_rails() -> None:
    text = texts.texts(mixed(), Settings(DEBIAN, gpu_devices="/srv/gpu"))[texts.GRES]
    near = [line for line in lines_of(text, "Name") if line["NodeName"] == "h[9-10]"]
    assert [(line["File"], line.get("Cores")) for line in near] == [
        ("/srv/gpu0", None),
        ("/srv/gpu1", "24-35"),
        ("/srv/gpu2", None),
        ("/srv/gpu3", "84-95"),
    ]
    assert "# GPU 1: rail0\n" in text and "# GPU 2: no rail\n" in text
    assert "Cores" in lines_of(texts.texts(cluster("b300"), Settings(NEW))[texts.GRES], "Name")[0]


def test_texts_follow_the_version() -> None:
    made = cluster("b300")
    old, debian, new = (texts.texts(made, Settings(each)) for each in (UBUNTU_22, DEBIAN, NEW))
    # Slurm 21.08 has no cgroup v2, the only version of Ubuntu 22.04.
    assert texts.CGROUP not in old and texts.CGROUP in debian
    assert "ProctrackType=proctrack/linuxproc" in old[texts.SETTINGS]
    assert "PrologFlags=Alloc\n" in old[texts.SETTINGS]
    assert "PrologFlags=Alloc,Contain\n" in debian[texts.SETTINGS]
    assert texts.TOPOLOGY_CONF in debian and texts.TOPOLOGY_YAML not in debian
    assert texts.TOPOLOGY_YAML in new and texts.TOPOLOGY_CONF not in new
    assert "TopologyPlugin" in debian[texts.SETTINGS]
    assert "TopologyPlugin" not in new[texts.SETTINGS]
    confined = texts.texts(made, Settings(DEBIAN, cgroups=False))
    assert texts.CGROUP not in confined and "cgroup" not in confined[texts.SETTINGS]


def test_programs_are_named_only_if_they_are_wanted() -> None:
    made = cluster("b300")
    bare = texts.wanted(made, Settings(DEBIAN))
    keys = {"Prolog", "Epilog", "HealthCheckProgram", "HealthCheckInterval", "RebootProgram"}
    keys |= {"TaskProlog", "ResumeTimeout", "SlurmdParameters"}
    assert not keys & {*bare}
    extra: dict[str, object] = {"selecttype": None, "Prolog": "/bin/true", "MaxJobCount": 9}
    full = texts.wanted(made, Settings(DEBIAN, config_overrides=True, extra=extra, **PROGRAMS))  # type: ignore[arg-type]
    assert keys <= {*full}
    assert (full["Prolog"], full["MaxJobCount"], "SelectType" in full) == ("/bin/true", "9", False)
    # A reboot takes longer than Slurm's default of a minute.
    assert int(full["ResumeTimeout"]) > 600


def test_slurm_conf_of_a_cluster_without_one() -> None:
    text = texts.main_text(mixed())
    assert "SlurmctldHost=login01(10.0.0.10)\nSlurmctldHost=login02(10.0.0.20)\n" in text
    assert [line for line in text.splitlines() if line.startswith("Include")] == [
        f"Include {name}" for name in texts.INCLUDED
    ]


# The model


def test_the_text_for_modules_is_the_cluster_and_short() -> None:
    for made in (mixed(), cluster("b300"), cluster("examples/superpod-b300-16su")):
        assert SlurmCluster.of_text(made.as_text()) == made
    assert len(cluster("examples/superpod-b300-16su").as_text()) < 40_000  # 1,024 nodes
    assert facts.slurm(example("b300")) == cluster("b300").as_text()
    assert facts.slurm({**hosts_of(MODEL)}) == ""


def test_variables_of_a_model_with_slurm() -> None:
    hosts = hosts_of(MIXED)
    assert {own["cluster_scheduler"] for own in hosts.values()} == {"slurm"}
    assert hosts["node01"]["cluster_cpu"] == {**CPU}
    assert hosts["h9"]["cluster_cpu"]["numa_nodes"] == 8
    assert "cluster_cpu" not in hosts["login01"]
    directory = facts.build(hosts)
    assert directory[0]["cpu"] == {**CPU} and "cpu" not in directory[-1]


BLOCKS = (
    "kinds: {k: {slots: 3}}; nodes: [{count: 1, management_first: 10.0.0.11, "
    "cpu: {sockets: 2, cores: 8, threads: 1, memory_mb: 64000}}, "
    "{count: 1, kind: k, name: 'k{}', management_first: 10.0.0.21}]"
)


@pytest.mark.parametrize(
    ("edits", "finding"),
    [
        ("", "4 model.no_cpu nodes.cpu ('node01', 2)"),
        (
            CPU_TEXT.replace("64000", "1"),
            "4 model.out_of_range nodes.cpu.memory_mb (1, 128, 1073741824)",
        ),
        (CPU_TEXT.replace("sockets: 2, ", ""), "4 model.missing_key nodes.cpu.sockets"),
        (CPU_TEXT.replace("threads", "cpus: 4, threads"), "4 model.unknown_key nodes.cpu.cpus"),
        (BLOCKS, "4 model.no_cpu nodes[1].cpu ('k1', 1)"),
        ("scheduler: pbs", "10 model.not_a_choice scheduler 'pbs'"),
    ],
)
def test_models_that_slurm_cannot_describe(edits: str, finding: str) -> None:
    assert refused(edited("; ".join(filter(None, ["scheduler: slurm", edits])))) == [finding]


def test_the_kind_of_a_block_may_have_the_processors_of_the_block() -> None:
    text = edited(f"scheduler: slurm; {BLOCKS}")
    of_block = text.replace(
        "kind: k,", "kind: k, cpu: {sockets: 1, cores: 4, threads: 1, memory_mb: 500},"
    )
    of_kind = text.replace(
        "{slots: 3}", "{slots: 3, cpu: {sockets: 1, cores: 4, threads: 1, memory_mb: 500}}"
    )
    wanted = {"sockets": 1, "cores": 4, "threads": 1, "memory_mb": 500}
    for each in (of_block, of_kind):
        hosts = hosts_of(each)
        assert hosts["k1"]["cluster_cpu"] == wanted and hosts["node01"]["cluster_cpu"] != wanted


def test_a_word_of_slurm_is_no_name() -> None:
    nodes = "[{name: default, management: 10.0.0.11}, {name: all1, management: 10.0.0.12}]"
    text = edited(f"scheduler: slurm; nodes.count; nodes.management_first; nodes.list: {nodes}")
    assert any("model.slurm_word" in line for line in refused(text))
    assert not any("slurm_word" in line for line in refused(text.replace("default", "defaults")))


# discover

PROCESSORS = {"sockets": 2, "cores": 56, "threads": 2, "numa_nodes": 2, "memory_mb": 2_100_000}


def drafted(*cpus: dict[str, int]) -> tuple[str, list[str]]:
    """The line of a draft with processors, and hosts that differ from most."""
    facts = {f"10.10.1.{number}": recorded("b300-8x800g", number) for number in range(1, 5)}
    for each, cpu in zip(facts.values(), cpus):
        each["rdma_host"]["cpu"] = cpu
    found = machines(facts)
    lines = [line.strip() for line in Draft(found, {}).text.splitlines() if "cpu:" in line]
    others = [each.host for each in of_systems(found) if each.what == "processors"]
    return lines[0] if lines else "", others


def test_a_draft_has_the_processors_of_most_nodes_and_the_least_memory() -> None:
    less, other = {**PROCESSORS, "memory_mb": 2_000_000}, {**PROCESSORS, "threads": 1}
    text = "cpu: {sockets: 2, cores: 56, threads: 2, memory_mb: %d}"
    assert drafted(*[PROCESSORS] * 4) == (text % 2_058_000, [])
    assert drafted(PROCESSORS, less, PROCESSORS, {**other, "memory_mb": 1000}) == (
        text % 1_960_000,
        ["10.10.1.4"],
    )
    four = {**PROCESSORS, "numa_nodes": 4}
    assert drafted(*[four] * 4)[0].endswith("memory_mb: 2058000, numa_nodes: 4}")
    assert drafted({}, {}, {}, {}) == ("", [])


@pytest.mark.parametrize("bad", [-1, 1 << 40, "2", None, 1.5, [1]])
def test_a_node_cannot_say_anything_of_its_processors(bad: object) -> None:
    with pytest.raises(AnswerError, match=r"cpu\.memory_mb"):
        drafted({**PROCESSORS, "memory_mb": bad})  # type: ignore[dict-item]

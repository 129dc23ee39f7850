# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One node more than 1,000: which hosts have other inputs of a layer's module, or other files.

What a module of a layer is told follows from the variables of its host, which are compared as a
whole, and from data of the whole cluster, of which the roles and actions that use any are listed
here: a new one fails the tests until it is compared as well.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import monitoring, ssh_authority
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.host import Files, Host
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.texts import Settings
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    of_variable,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import slurm
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import MEASURING, ROLES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    facts,
    read,
    versions,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.changes import compare
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import model_changes
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.shared_storage import clients_of

from tests.bench import controller
from tests.bench.inventory import model
from tests.unit.action_plays import ROOT, ansible
from tests.unit.small_model import MODEL, compiled

COUNT = 1000
NEW, LAST, BEFORE_LAST = "node01001", "node01000", "node00999"
LAUNCHER, STORAGE = "launcher01", "storage01"
SCHEDULER = "scheduler: slurm\n"
CPU = "  cpu: {sockets: 2, cores: 56, threads: 2, memory_mb: 2063000}\n"
HOME = """\
filesystems:
  - name: home
    type: nfs
    source: storage01:/export/home
    mount: /home
    purpose: home
    serve: {host: storage01}
"""
DIGEST = "cluster_digest"
"""It seals all variables of the model against changes by hand. No module is told of it."""

EVERY = {
    "names": {"__cluster_hosts_cluster"},
    "fabric": {"__switch_qos_batch", "__switch_qos_order"},
    "storage": {"__shared_storage_cluster"},
    "hostfile": {"__mpi_hostfile_cluster", "groups"},
    "ssh": {
        *("__ssh_trust_cluster", "__ssh_trust_prepared", "__ssh_trust_seen"),
        *("__ssh_trust_authority", "__ssh_trust_reached", "__ssh_trust_only"),
        "groups",
        *("ansible_play_batch", "ansible_play_hosts", "ansible_play_hosts_all"),
    },
    "slurm": {"__slurm_cluster", "ansible_play_hosts", "groups"},
}
"""Variables of roles with data of other hosts. Those of the fabric are the order of its switches,
and hosts of the play follow from --limit; `inputs` has what the others contain."""
OWN = {
    *("__cluster_hosts_all", "__cluster_hosts_set", "__shared_storage_servers"),
    "__ssh_trust_configured",
    *("__ssh_trust_incomplete", "__ssh_trust_lost", "__ssh_trust_outdated"),
    *("__slurm_packages", "__slurm_wanted"),
    # Results of rounds that write and read in each run, and configure nothing.
    *(f"__shared_storage_{step}" for step in ("plan", "write", "read", "report", "verdict")),
}
"""Results and variables of the host itself, as are all of the roles os_baseline and mpi_stack."""
ACTIONS = {"monitoring", "mpi_build", "shared_storage", "storage_use", "switch_qos"}
"""Actions of layers that read variables of other hosts. mpi_build chooses hosts of the play;
storage_use and switch_qos compare results of the run."""


def text(nodes: int) -> str:
    written = model(nodes).replace(f"bench{nodes}", "bench")
    return written.replace("gpus:\n", f"{CPU}gpus:\n", 1) + SCHEDULER + HOME


def cluster(nodes: int) -> dict[str, dict[str, Any]]:
    """The variables of all hosts, by host."""
    inventory = compiled(text(nodes))
    return {host.name: inventory.merged(host) for host in inventory.hosts}


def inputs(
    hosts: Mapping[str, dict[str, Any]], state: Path, mode: str
) -> dict[str, dict[str, Any]]:
    """What the module of each layer is told, by host and layer."""
    directory = facts.build(hosts)
    names = facts.names(directory, "")
    told = ssh_authority.prepare(_authority(directory, state), write=True)
    filesystems = [of_variable(each) for each in hosts[LAUNCHER]["cluster_filesystems"]]
    groups = {
        role: {name for name, own in hosts.items() if own["cluster_role"] == role}
        for role in ("compute", "launcher", "storage")
    }
    found: dict[str, dict[str, Any]] = {}
    for name, own in hosts.items():
        role = own["cluster_role"]
        of = found[name] = {"variables": {k: v for k, v in own.items() if k != DIGEST}}
        if role in groups:
            every = mode == "file" or role == "launcher"
            of["names"] = names["table"] if every else names["essential"], names["own"][name]
            of["names asked"] = {} if every else names["own"][names["next"][name]]
            of["storage"] = clients_of(name, filesystems, directory, groups)
        if role in ("compute", "launcher"):
            mine = dict(told["hosts"][name])
            of["ssh probes"] = mine.pop("probes")
            of["ssh"] = told["authority"], mine
        if role == "launcher":
            of["hostfile"] = directory
            of["monitoring"] = monitoring.of_server(_scraping(), hosts)
    return found


def _authority(directory: list[dict[str, Any]], state: Path) -> dict[str, Any]:
    defaults = {name: spec.get("default") for name, spec in ssh_authority.ARGUMENTS.items()}
    given = {"directory": directory, "cluster_name": "c", "state_directory": str(state)}
    return {**defaults, **given}


def _scraping() -> dict[str, Any]:
    defaults = {name: spec.get("default") for name, spec in monitoring.ARGUMENTS.items()}
    return {**defaults, "thresholds": {}, "interval_s": 300, "alertmanagers": []}


@functools.cache
def clusters() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    return cluster(COUNT), cluster(COUNT + 1)


def differences(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> dict[str, set[str]]:
    """Layers with other inputs, by host; hosts of one model only have none."""
    both = before.keys() & after.keys()
    found = {
        name: {layer for layer, value in after[name].items() if before[name][layer] != value}
        for name in both
    }
    return {name: layers for name, layers in found.items() if layers}


def leaves() -> set[str]:
    return {rail["leaf"] for rail in clusters()[1][NEW]["cluster_rails"]}


@pytest.fixture(params=["resolver", "file"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_only_its_neighbours_and_o1_hosts_have_other_inputs(tmp_path: Path, mode: str) -> None:
    before, after = (inputs(hosts, tmp_path / "ssh-ca", mode) for hosts in clusters())
    assert after.keys() - before.keys() == {NEW}
    assert before.keys() <= after.keys()
    expected = {
        LAUNCHER: {"names", "hostfile", "monitoring", "ssh probes"},
        STORAGE: {"storage"},
        LAST: {"names asked", "ssh probes"},
        BEFORE_LAST: {"ssh probes"},
        **{leaf: {"variables"} for leaf in leaves()},
    }
    if mode == "file":
        for name, own in clusters()[0].items():
            if own["cluster_role"] in ("compute", "launcher", "storage"):
                expected.setdefault(name, set()).add("names")
        expected[LAST].remove("names asked")
    assert differences(before, after) == expected


def test_the_printed_limit_has_every_host_that_is_told_otherwise(tmp_path: Path) -> None:
    """Except the neighbours, which only look up and log in to another node when they are run."""
    before, after = (inputs(hosts, tmp_path / "ssh-ca", "resolver") for hosts in clusters())
    old, new = (versions.compiled(read("cluster.yml", text(n))) for n in (COUNT, COUNT + 1))
    found = model_changes.concerned(compare(old, new))
    assert found == [NEW, "launcher", "storage", *sorted(leaves())]
    limited = {
        name for name, own in clusters()[1].items() if {name, own["cluster_role"]} & set(found)
    }
    assert limited == {NEW, *differences(before, after)} - {LAST, BEFORE_LAST}
    site = [step["do"] for step in model_changes.steps(compare(old, new), [], resolver=True)]
    words = f"--limit {','.join(found)} --skip-tags smoke"
    assert f"ansible-playbook site.yml {words}" in site
    assert "ansible-playbook site.yml --tags slurm" in site
    in_files = [step["do"] for step in model_changes.steps(compare(old, new), [])]
    assert "ansible-playbook site.yml --tags names,slurm" in in_files


@pytest.mark.parametrize(
    "edit",
    [
        ("slots: 8", "slots: 4"),
        ("speed_gbps: 800", "speed_gbps: 400"),
        ("name: launcher01", "name: login01"),
        ("count: 32, management_first: 10.0.80.1", "count: 31, management_first: 10.0.80.1"),
    ],
)
def test_a_change_with_more_than_new_nodes_is_for_all_hosts(edit: tuple[str, str]) -> None:
    before = text(COUNT).replace("  name: node", "  slots: 8\n  name: node")
    after = text(COUNT + 1).replace("  name: node", "  slots: 8\n  name: node")
    assert edit[0] in after
    old, new = (
        versions.compiled(read("cluster.yml", each)) for each in (before, after.replace(*edit))
    )
    assert model_changes.concerned(compare(old, new)) == []


def test_leaves_get_one_port_each() -> None:
    before, after = clusters()
    assert len(leaves()) == len(after[NEW]["cluster_rails"]) == 8
    for leaf in leaves():
        had, has = _ports(before[leaf]), _ports(after[leaf])
        assert had.items() <= has.items()
        (new,) = has.keys() - had.keys()
        assert has[new][0] == NEW
        other = [key for key in after[leaf] if key not in ("cluster_ports", DIGEST)]
        assert {key: before[leaf][key] for key in other} == {key: after[leaf][key] for key in other}


def _ports(own: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What each port of a switch is told, by port."""
    found = {}
    for group in own["cluster_ports"]:
        shared = {key: value for key, value in group.items() if key not in ("peers", "addresses")}
        for port, peer in group["peers"].items():
            found[port] = peer, group.get("addresses", {}).get(port), shared
    return found


@pytest.mark.parametrize("files", [False, True], ids=["configless", "files"])
def test_slurm_has_other_files_only_where_slurm_conf_is(tmp_path: Path, files: bool) -> None:
    """slurmctld sends its files to nodes without slurm.conf."""
    if files:
        (tmp_path / "etc/slurm").mkdir(parents=True)
        (tmp_path / "etc/slurm/slurm.conf").write_text("ClusterName=bench\n")
    node = Node("slurm", tmp_path, run, None, "boot")
    given = {name: spec.get("default") for name, spec in slurm.ARGUMENTS.items()}
    written = [
        Files(
            Host.of({**given, "cluster": facts.slurm(hosts), "host": BEFORE_LAST}),
            Settings((23, 2)),
            node,
        ).texts
        for hosts in clusters()
    ]
    changed = {name for name, text in written[1].items() if written[0].get(name) != text}
    nodes = {f"/etc/slurm/{name}" for name in ("baremetal-nodes.conf", "baremetal-partitions.conf")}
    named = {f"/etc/slurm/{name}" for name in ("gres.conf", "topology.conf")}
    assert changed == (nodes | named if files else set())


def test_every_variable_with_data_of_other_hosts_is_compared() -> None:
    found: dict[str, set[str]] = {}
    for layer, role in ROLES.items():
        if layer in MEASURING:
            continue
        folder = ROOT / "roles" / role.rpartition(".")[2]
        words = set()
        for path in (*folder.glob("tasks/*.yml"), *folder.glob("vars/*.yml")):
            lines = path.read_text(encoding="utf-8").splitlines()
            text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
            words |= set(re.findall(r"\b(?:__\w+|groups(?!:)|hostvars|ansible_play\w*)\b", text))
        host = re.compile(r"__(os_baseline|mpi_stack)_\w+")
        mine = {word for word in words if word not in OWN and not host.fullmatch(word)}
        if mine:
            found[layer] = mine
    assert found == EVERY


def test_every_action_that_reads_other_hosts_is_compared() -> None:
    of_layers = {
        path.stem
        for path in (ROOT / "plugins/action").glob("*.py")
        if re.search(r"task_vars\[\"(hostvars|groups)\"\]", path.read_text(encoding="utf-8"))
    }
    roles = [ROOT / "roles" / ROLES[x].rpartition(".")[2] for x in ROLES if x not in MEASURING]
    called = {
        module
        for role in roles
        for path in role.glob("tasks/*.yml")
        for module in re.findall(r"baremetal\.mpi_roce\.(\w+):", path.read_text(encoding="utf-8"))
    }
    # `inputs` has the directory of both.
    assert of_layers & called - {"cluster_directory", "ssh_authority"} == ACTIONS


# The same with Ansible, for few nodes: whatever modules are told, as they would get it.


TAGS = (*controller.TAGS, "node_check", "slurm", "monitoring")
OF_RUNS = ("now", "clock", "signed", "reached")
"""Arguments with times, or hosts of the run."""


def told(nodes: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Arguments of every execution as text, by host."""
    path = folder / f"arguments{nodes}"
    monkeypatch.setenv("CANNED_ARGUMENTS", str(path))
    monkeypatch.setattr(controller, "model", text)
    variables = f"{controller.VARIABLES}cluster_hosts_mode: resolver\n"
    with monkeypatch.context() as patched:
        patched.setattr(controller, "VARIABLES", variables)
        controller.measure(nodes, TAGS, folder)
    addresses = {own["ansible_host"]: name for name, own in cluster(nodes).items()}
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        address, module, given = json.loads(line)
        own = {k: v for k, v in given.items() if k not in OF_RUNS and not k.startswith("_ansible")}
        if module == "slurm":
            own.pop("cluster")  # compared above, by the files
        found.setdefault(addresses[address], []).append(f"{module} {json.dumps(own)}")
    return {name: sorted(texts) for name, texts in found.items()}


@pytest.mark.slow
def test_ansible_tells_other_hosts_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (told(nodes, tmp_path, monkeypatch) for nodes in (5, 6))
    *others, before_last, last, new = (f"node{number:05d}" for number in range(1, 7))
    assert after.keys() - before.keys() == {new}
    assert {*others, before_last, last, LAUNCHER, STORAGE} == before.keys()
    assert min(len(texts) for texts in before.values()) > 1
    assert {name for name in before if before[name] != after[name]} == {
        *(LAUNCHER, STORAGE, before_last, last)
    }


# Another machine in the place of a node.


def replaced(folder: Path, limit: str, key: str) -> tuple[int, str]:
    """Exit status of the playbook, and the operator's known_hosts after it. No host answers."""
    (folder / "cluster.yml").write_text(MODEL, encoding="utf-8")
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:1 {OLD}\nnode01,x {OLD}\nother {OLD}\n", encoding="ascii")
    unreachable = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    given = {"replace_known_hosts": str(known), "replace_host_key": key, **unreachable}
    options = ["-i", folder / "cluster.yml", "--limit", limit, "-e", json.dumps(given)]
    reports = {"BAREMETAL_MPI_ROCE_REPORTS": str(folder / "reports")}
    done = ansible("ansible-playbook", "playbooks/replace.yml", *options, **reports)
    (folder / "output").write_text(done.stdout + done.stderr, encoding="utf-8")
    return done.returncode, known.read_text(encoding="ascii")


OLD, FRESH = (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 43}" for letter in "AB")


@pytest.mark.slow
def test_known_hosts_has_the_new_machine_only(tmp_path: Path) -> None:
    status, known = replaced(tmp_path, "node01", f"{FRESH} root@node01\n")
    assert (status, known.splitlines()) == (
        2,
        [f"other {OLD}", f"[127.0.0.1]:1 {FRESH} root@node01"],
    )
    assert "node_reached" in (tmp_path / "output").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "key"),
    [
        ("compute", FRESH),
        ("launcher01", FRESH),
        ("node01", "SHA256:abc"),
        ("node01", f"{FRESH}\n* {OLD}"),
    ],
    ids=["two nodes", "no node", "a fingerprint", "two lines"],
)
def test_nothing_is_trusted_otherwise(tmp_path: Path, limit: str, key: str) -> None:
    _status, known = replaced(tmp_path, limit, key)
    assert known.splitlines() == [f"[127.0.0.1]:1 {OLD}", f"node01,x {OLD}", f"other {OLD}"]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack and the GPU stack on nodes of both families, with real package managers.

tests/unit covers the decisions of apt and dnf. These tests cover the whole path: playbook, node,
services, reboot, report. Packages, tools and GPUs are stand-ins (tests/bed/stand_ins/README.md).
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.bed.stand_ins.cluster import STAND_INS
from tests.bed.stand_ins.versions import DOCAS, FIRST, NEXT
from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

PLAYBOOK = "tests/bed/stand_ins/layers.yml"
HOME = "/var/lib/gpu-stand-in"
FIRSTS = {"ubuntu": "node01", "el": "node03"}
"""The node of each family that the tests change; the family's other node stays as it is."""
SECONDS = {"ubuntu": "node02", "el": "node04"}
VERSION_OF = {
    "ubuntu": "dpkg-query -W -f '${{Package}} ${{db:Status-Status}} ${{Version}}\n' {}",
    "el": "rpm -q --qf '%{{NAME}} installed %{{VERSION}}-%{{RELEASE}}\n' {}",
}
OWN_MPI = {
    "ubuntu": "apt-get -q -y install openmpi-bin ucx-utils",
    "el": "dnf -q -y install openmpi ucx ucx-ib",
}
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
FAULTS = {
    "node02": ("ecc", "gpu_ecc", "gpu3", "failed", "dcgmi diag"),
    "node04": ("remap-pending", "gpu_row_remap", "gpu4", "reboot", "takes effect at a reset"),
}
"""A state of tests/hardware/gpu_states.py for a node: its one finding, and words of the remedy."""
MISMATCH = ("gpu_driver_version", "", "reboot")
RECORD = "/var/lib/baremetal-mpi-roce/reboot-required.d/gpu.json"


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    """Four nodes with stand-ins for everything that a B300 node has."""
    nodes = STAND_INS.fresh()
    STAND_INS.used()
    return nodes


@pytest.fixture(scope="module")
def interrupted(nodes: Nodes) -> Run:
    """The first run, in which a package script kills the package manager on FIRSTS while DOCA's
    drivers are installed. SECONDS have the distribution's MPI before."""
    for family, name in SECONDS.items():
        nodes.on(name).check_output(OWN_MPI[family])
    for name in FIRSTS.values():
        nodes.on(name).check_output("touch %s/kill-package-manager", HOME)
    return nodes.play(PLAYBOOK, expect=2)


@pytest.fixture(scope="module")
def installed(nodes: Nodes, interrupted: Run) -> Run:
    return nodes.play(PLAYBOOK)


@pytest.fixture(scope="module")
def upgraded(nodes: Nodes, installed: Run) -> Run:
    """A run with the set of the next branch, which the vendor has published, on FIRSTS only."""
    for name in FIRSTS.values():
        nodes.on(name).check_output("ln -sfn /srv/stand-ins/all /srv/stand-ins/now")
    return nodes.play(PLAYBOOK, limit(*FIRSTS.values()), upgrade(nodes), expect=None)


def upgrade(nodes: Nodes) -> str:
    found = copy.deepcopy(nodes.of("node01")["cluster_software"])
    found["driver"]["version"] = NEXT.version
    found["cuda"] = ".".join(NEXT.cuda.split(".")[:2])
    return f"--extra-vars={json.dumps({'cluster_software': found})}"


def bad(run: Run, name: str) -> list[dict[str, Any]]:
    found = [check for layer in run.report["layers"] for check in run.checks(layer, name)]
    return [check for check in found if check["status"] not in ("ok", "not_applicable")]


def failed(run: Run, name: str) -> list[str]:
    return [check["name"] for check in bad(run, name) if check["status"] == "failed"]


def version(nodes: Nodes, name: str, package: str) -> str:
    """Return the installed version without epoch and revision; empty if it is not installed."""
    command = VERSION_OF[nodes.of(name)["virtual_nodes_family"]].format(package)
    words = str(nodes.on(name).run(command).stdout).split()
    found = words[2] if words[1:2] == ["installed"] else ""
    return found.split(":")[-1].rsplit("-", 1)[0]


def limit(*names: str) -> str:
    return f"--limit={','.join(names)}"


def be(nodes: Nodes, name: str, state: str) -> None:
    """Set the state of a node's GPUs. Unpacking a state takes a moment."""
    nodes.on(name).check_output("[ $(gpu-stand-in) = %s ] || gpu-stand-in state %s", state, state)


def test_an_installation_killed_on_one_node_completes_on_the_others(
    nodes: Nodes, interrupted: Run
) -> None:
    assert interrupted.hosts_with("failed") == {*FIRSTS.values()}, interrupted.output
    for name in FIRSTS.values():
        assert not nodes.on(name).file(f"{HOME}/kill-package-manager").exists
    for name in SECONDS.values():
        assert failed(interrupted, name) == []
        for package in ("nvidia-fabricmanager", "nvidia-imex", "libnvidia-nscq"):
            assert version(nodes, name, package) == FIRST.version


def test_an_interrupted_installation_is_repaired_by_running_again(
    nodes: Nodes, installed: Run
) -> None:
    assert installed.hosts_with("changed") == {*FIRSTS.values()}, installed.output
    assert "SIMULATED" in installed.output
    for name in nodes.group("compute"):
        assert failed(installed, name) == []
        assert nodes.on(name).package("doca-ofed").is_installed
        rails = [
            check for check in installed.checks("rdma", name) if check["name"] == "rdma_device"
        ]
        assert [rail["status"] for rail in rails] == ["ok"] * 8
    left = nodes.on(FIRSTS["ubuntu"]).check_output(
        "dpkg --audit; dpkg -l | grep '^[hi][^i]' || true"
    )
    assert left == ""
    doubled = nodes.on(FIRSTS["el"]).check_output("rpm -qa --qf '%{NAME}\n' | sort | uniq -d")
    assert set(doubled.split()) <= {"gpg-pubkey"}


@pytest.mark.usefixtures("installed")
def test_open_mpi_and_ucx_are_those_of_doca_and_work(nodes: Nodes) -> None:
    """They replace the distribution's, whose programs still work where they are."""
    release = DOCAS[0]
    for family, name in (*FIRSTS.items(), *SECONDS.items()):
        for package, full in (("openmpi", release.openmpi), ("ucx", release.ucx)):
            assert version(nodes, name, package) == full.rpartition("-")[0]
        programs = [f"{release.mpi_prefix}/bin/mpirun"]
        if (family, name) in SECONDS.items() and family == "ubuntu":
            assert not nodes.on(name).package("libucx0").is_installed
            programs.append("/usr/bin/mpirun")
        for program in programs:
            command = f"{AS_ROOT} {program} --oversubscribe -n 2 --host localhost:2 echo here"
            assert nodes.on(name).check_output(command).split() == ["here", "here"]
        assert "Version" in nodes.on(name).check_output("ucx_info -v")


@pytest.mark.usefixtures("installed")
def test_an_unchanged_run_changes_nothing_in_ten_executions(nodes: Nodes) -> None:
    run = nodes.play(PLAYBOOK, limit(*SECONDS.values()))
    assert run.total("changed") == 0, run.output
    line = next(line for line in run.output.splitlines() if "remote module executions" in line)
    assert int(line.split(":")[1].split()[0]) <= 10


@pytest.mark.usefixtures("installed")
def test_every_fault_is_found_once_on_a_node(nodes: Nodes) -> None:
    """Another state on each node at the same time: each has one finding, with its remedy."""
    for name, fault in FAULTS.items():
        be(nodes, name, fault[0])
    words = "--tags=gpu", limit(*FAULTS), "--extra-vars=nvidia_gpu_fabric_wait_s=0"
    run = nodes.play("playbooks/verify.yml", *words, expect=2)
    for name, (_state, *finding, remedy) in FAULTS.items():
        (found,) = bad(run, name)
        assert [found["name"], found["subject"], found["status"]] == finding, run.output
        assert remedy in found["reason"]
        be(nodes, name, "healthy")
    nodes.on("node02").check_output("systemctl stop nvidia-fabricmanager")
    run = nodes.play(PLAYBOOK, *words)
    assert run.hosts_with("changed") == {"node02"}  # a run starts stopped services
    assert [bad(run, name) for name in FAULTS] == [[], []]


def test_an_upgrade_to_the_next_branch_waits_for_the_reboot(nodes: Nodes, upgraded: Run) -> None:
    """On one node of each family first; on the others nothing happens."""
    for name in FIRSTS.values():
        assert version(nodes, name, "nvidia-fabricmanager") == NEXT.version
        assert version(nodes, name, "nvidia-persistenced") == NEXT.version
        assert failed(upgraded, name) == []
        messages = nodes.on(name).run("nvidia-smi")
        order = installed_order(nodes, name)
        assert order.index("nvidia-fabricmanager") < order.index("cuda-toolkit-13-1")
        found = [
            (check["name"], check["subject"], check["status"]) for check in bad(upgraded, name)
        ]
        # DOCA's driver has waited for its reboot since its installation.
        assert [check for check in found if check[0] != "rdma_driver_running"] == [MISMATCH]
        assert (messages.rc, "Driver/library version mismatch" in messages.stdout) == (18, True)
        assert nodes.on(name).file(RECORD).exists
    for name in SECONDS.values():
        assert version(nodes, name, "nvidia-fabricmanager") == FIRST.version


def installed_order(nodes: Nodes, name: str) -> list[str]:
    """Return packages in the order in which the package manager last installed them."""
    if nodes.of(name)["virtual_nodes_family"] == "ubuntu":
        lines = nodes.on(name).check_output("grep ' status installed ' /var/log/dpkg.log")
        words = [line.split()[4].split(":")[0] for line in lines.splitlines()]
    else:
        # By record number, which only increases: timestamps are in whole seconds.
        lines = nodes.on(name).check_output("rpm -qa --qf '%{DBINSTANCE} %{NAME}\\n'")
        numbered = sorted((int(line.split()[0]), line.split()[1]) for line in lines.splitlines())
        words = [word for _number, word in numbered]
    last = {word: index for index, word in enumerate(words)}
    return sorted(last, key=lambda word: last[word])


@pytest.mark.usefixtures("upgraded")
def test_after_the_reboot_everything_is_of_the_next_branch(nodes: Nodes) -> None:
    names = [*FIRSTS.values()]
    nodes.reboot(",".join(names))
    run = nodes.play(PLAYBOOK, limit(*names), upgrade(nodes))
    for name in names:
        assert bad(run, name) == []
        assert not nodes.on(name).file(RECORD).exists
        assert f"Driver Version: {NEXT.version}" in nodes.on(name).check_output("nvidia-smi")


@pytest.mark.long
def test_the_lts_release_replaces_the_distributions_mpi() -> None:
    """DOCA 2.9 on new nodes. Jobs use HPC-X, so Ubuntu's MPI is removed."""
    nodes = STAND_INS.fresh()
    STAND_INS.used()
    release = DOCAS[-1]
    names = [*FIRSTS.values()]
    for family, name in FIRSTS.items():
        nodes.on(name).check_output(OWN_MPI[family])
        nodes.on(name).check_output("ln -sfn /srv/stand-ins/all /srv/stand-ins/now")
    found = copy.deepcopy(nodes.of("node01")["cluster_software"])
    found["rdma"]["version"] = release.version
    found["mpi"]["provider"] = "hpcx"
    words = limit(*names), f"--extra-vars={json.dumps({'cluster_software': found})}"
    run = nodes.play("playbooks/rdma.yml", *words)
    for name in names:
        assert failed(run, name) == []
        assert nodes.on(name).package("doca-ofed").version.startswith(release.version)
        assert version(nodes, name, "ucx") == release.ucx.rpartition("-")[0]
    assert nodes.play("playbooks/rdma.yml", *words).total("changed") == 0

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's Slurm, installed and described by the layer slurm: jobs run and survive changes, and ten
faults made by hand are found, each by its check and on its host."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.munge import digest

from tests import mpi_source, waiting
from tests.bed.instances import describe
from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnslurmrole
scheduler: slurm
management: {subnet: 10.246.0.0/24, interface: mgmt0}
nodes:
  count: 4
  name: node{:02d}
  management_first: 10.246.0.11
  nodes_per_rack: 2
  slots: 8
  cpu: {sockets: 2, cores: 4, threads: 1, memory_mb: 1024}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10}
addresses: {pool: 10.146.0.0/16, prefix: 24}
leaves: {count: 4, management_first: 10.246.0.101, ports: 64, nodes_per_set: 2}
spines: {count: 2, management_first: 10.246.0.121, ports: 64}
launcher: {name: launcher01, management: 10.246.0.10}
"""
LAUNCHER, SLURM = "launcher01", "--tags=slurm"
LIBEXEC = "/usr/local/libexec/baremetal-mpi-roce"
# As the layer mpi, which is not under test.
PROLOG = f"""
    mkdir -p {LIBEXEC}
    printf '#!/bin/sh\\necho export RAILS=2\\n' >{LIBEXEC}/task-prolog
    chmod 755 {LIBEXEC}/task-prolog
"""
TOPOLOGY = """\
SwitchName=set01 Level=0 LinkSpeed=1 Nodes=node[01-02]
SwitchName=set02 Level=0 LinkSpeed=1 Nodes=node[03-04]
SwitchName=fabric01 Level=1 LinkSpeed=1 Nodes=node[01-04] Switches=set[01-02]
"""
FAKETIME = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+10m"
FAULTS = {
    # A node line, and nodes in each other's leaf set, in files that slurmctld has loaded.
    LAUNCHER: """
        sed -i '/node.01-02./s/RealMemory=1024/RealMemory=900/' /etc/slurm/baremetal-nodes.conf
        sed -i 's/node.01-02./node[01,03]/; s/node.03-04./node[02,04]/' /etc/slurm/topology.conf
        systemctl restart slurmctld.service
    """,
    # A limit of locked memory, and a program of jobs that is missing.
    "node01": f"""
        mkdir -p /etc/systemd/system/slurmd.service.d
        printf '[Service]\\nLimitMEMLOCK=1M\\n' >/etc/systemd/system/slurmd.service.d/99-site.conf
        systemctl daemon-reload
        systemctl restart slurmd.service
        mv {LIBEXEC}/task-prolog {LIBEXEC}/task-prolog.away
    """,
    # A GPU less, and another version of slurmd, in which only the version differs.
    "node02": """
        sed -i 's/gpu.0-1./gpu0/' /etc/slurm/gres.conf
        slurmd=$(readlink -f /usr/sbin/slurmd)
        cp -a "$slurmd" /root/slurmd.away
        sed 's/22\\.05\\.8/22.05.7/g' /root/slurmd.away >/root/slurmd.other
        install -m 755 /root/slurmd.other "$slurmd.new"
        mv "$slurmd.new" "$slurmd"
        systemctl restart slurmd.service
    """,
    # munge with another key.
    "node03": """
        cp -a /etc/munge/munge.key /root/munge.key.away
        head --bytes=1024 /dev/urandom >/etc/munge/munge.key
        systemctl restart munge.service
    """,
    # slurmd is dead; munged and Ansible's Python see a clock that is 10 minutes fast.
    "node04": f"""
        systemctl stop slurmd.service
        mkdir -p /etc/systemd/system/munge.service.d
        cd /etc/systemd/system/munge.service.d
        printf '[Service]\\nEnvironment={FAKETIME}\\n' >clock.conf
        systemctl daemon-reload
        systemctl restart munge.service
        printf '#!/bin/sh\\nexec env {FAKETIME} python3.11 "$@"\\n' >/root/python
        chmod 755 /root/python
        mv /root/python /usr/bin/python3
    """,
}
DRAIN = "scontrol update nodename=node01 state=drain reason='looked at by hand'"
UNDO = {
    "node01": f"""
        rm /etc/systemd/system/slurmd.service.d/99-site.conf
        mv {LIBEXEC}/task-prolog.away {LIBEXEC}/task-prolog
        systemctl daemon-reload
        systemctl restart slurmd.service
    """,
    "node02": """
        cp -a /root/slurmd.away "$(readlink -f /usr/sbin/slurmd).new"
        mv "$(readlink -f /usr/sbin/slurmd).new" "$(readlink -f /usr/sbin/slurmd)"
    """,
    "node04": """
        ln -sfn python3.11 /usr/bin/python3
        rm /etc/systemd/system/munge.service.d/clock.conf
        systemctl daemon-reload
        systemctl restart munge.service
    """,
}
FOUND = {
    LAUNCHER: {
        ("file", "/etc/slurm/baremetal-nodes.conf"),
        ("file", "/etc/slurm/topology.conf"),
        ("slurm_topology", "set01"),
        ("slurm_topology", "set02"),
        ("slurm_drained", "node01"),
        ("slurm_drained", "node02"),  # by slurmctld, for its GPU
    },
    "node01": {
        ("slurm_node", "node01"),
        ("slurm_memlock", "slurmd.service"),
        ("slurm_program", f"TaskProlog={LIBEXEC}/task-prolog"),
    },
    "node02": {
        ("file", "/etc/slurm/gres.conf"),
        ("slurm_node", "node02"),
        ("slurm_state", "node02"),
        ("slurm_version", "node02"),
    },
    "node03": {("munge_key", ""), ("slurm_controller", "")},
    "node04": {("slurm_service", "slurmd.service"), ("slurm_clock", ""), ("slurm_controller", "")},
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Four nodes and a launcher on which the layer has installed Slurm."""
    nodes = describe(tmp_path_factory.mktemp("slurm") / "inventory", MODEL)
    with (nodes.inventory / "group_vars/all.yml").open("a", encoding="utf-8") as variables:
        variables.write("slurm_node_check: false\n")  # that layer is not under test
    with nodes.new():
        everywhere(nodes, dict.fromkeys(nodes.group("compute"), PROLOG))
        nodes.play("site.yml", "--tags=names,slurm")
        yield nodes


def everywhere(nodes: Nodes, commands: dict[str, str]) -> None:
    """Run a command on each host, on all at the same time."""
    for name in commands:
        nodes.on(name)
    with ThreadPoolExecutor() as pool:
        list(
            pool.map(
                lambda name: nodes.on(name).check_output(f"set -e\n{commands[name]}"), commands
            )
        )


def states(nodes: Nodes) -> dict[str, str]:
    listed = nodes.on(LAUNCHER).check_output("sinfo --noheader --Node --format='%N %T'")
    return dict(line.split() for line in listed.splitlines())


def all_idle(nodes: Nodes) -> bool:
    return set(states(nodes).values()) == {"idle"}


def failed(run: Run) -> dict[str, set[tuple[str, str]]]:
    hosts = run.report["layers"]["slurm"]["hosts"]
    found = {name: {(x["name"], x["subject"]) for x in run.failed("slurm", name)} for name in hosts}
    return {name: checks for name, checks in found.items() if checks}


def test_a_second_run_changes_nothing_and_shows_no_key(nodes: Nodes) -> None:
    again = nodes.play("site.yml", SLURM, "--diff", "-vvv")
    assert (again.total("changed"), failed(again)) == (0, {})
    quiet = nodes.play("site.yml", SLURM, "--check", "--diff", "--limit=node03")
    assert (quiet.total("changed"), failed(quiet)) == (0, {})
    path = nodes.ssh_config.parent / "munge.key"
    key, shown = path.read_bytes(), again.output + json.dumps(again.report)
    assert (len(key), path.stat().st_mode & 0o777) == (1024, 0o600)
    assert digest(key) in shown and base64.b64encode(key)[:40].decode() not in shown
    command = "stat --format='%a %U' /etc/munge/munge.key && sha256sum /etc/munge/munge.key"
    hosts = [LAUNCHER, *nodes.group("compute")]
    (text,) = {nodes.on(name).check_output(command) for name in hosts}
    assert text.startswith("400 munge\n")


def test_slurm_runs_what_the_model_describes(nodes: Nodes) -> None:
    on = nodes.on(LAUNCHER)
    assert on.check_output("scontrol show topology") + "\n" == TOPOLOGY
    shown = "sh -c 'echo $SLURMD_NODENAME $RAILS'"
    ranks = on.check_output(f"srun --mpi=pmix -n 32 --gres=gpu:2 {shown}")
    names = nodes.group("compute")
    assert sorted(ranks.split("\n")) == sorted(f"{name} 2" for name in names for _rank in range(8))


def test_a_job_survives_a_change_and_a_killed_run_is_completed(
    nodes: Nodes, tmp_path: Path
) -> None:
    """Nodes get more memory, which needs a restart of both daemons, and one is drained."""
    on = nodes.on(LAUNCHER)
    script = "until [ -e /tmp/end ]; do sleep 0.2; done; echo done"
    words = f"--parsable --chdir=/tmp --output=/tmp/job --nodelist=node01 --wrap '{script}'"
    job = on.check_output(f"sbatch {words}")
    state = f"squeue --noheader --jobs={job} --format=%T"
    waiting.until(lambda: on.check_output(state) == "RUNNING", "the job to run")

    def change(model: dict[str, Any]) -> None:
        model["nodes"]["cpu"]["memory_mb"] = 1025
        model["nodes"]["drained"] = ["node04"]

    other = nodes.changed(tmp_path, change)
    try:
        # A run was killed after it had written a file of node02.
        line = "sed -i 's/RealMemory=1024/RealMemory=1025/' /etc/slurm/baremetal-nodes.conf"
        nodes.on("node02").check_output(line)
        assert other.play("site.yml", SLURM).total("changed") == 5
        run = other.play("site.yml", SLURM)
        assert run.total("changed") == 0
        reason = "baremetal.mpi_roce model: drained in cluster.yml"
        assert f"out of service in Slurm: node04: {reason} (root, " in run.output
        assert (states(nodes)["node04"], on.check_output(state)) == ("drained", "RUNNING")
        nodes.on("node01").check_output("touch /tmp/end")
        waiting.until(lambda: nodes.on("node01").run("cat /tmp/job").stdout == "done\n", "its end")
    finally:
        nodes.on("node01").check_output("touch /tmp/end")
        nodes.play("site.yml", SLURM)
    waiting.until(lambda: all_idle(nodes), "every node to be idle")


def test_ten_faults_are_found_each_by_its_check_and_on_its_host(nodes: Nodes) -> None:
    mpi_source.of_debian(nodes, "node04", ["libfaketime"])
    everywhere(nodes, FAULTS)
    waiting.until(lambda: states(nodes)["node02"].startswith("inval"), "node02 to be invalid")
    waiting.until(lambda: "unknown" not in states(nodes).values(), "slurmctld to know its nodes")
    nodes.on(LAUNCHER).check_output(DRAIN)
    found = nodes.play("playbooks/verify.yml", SLURM, expect=2)
    assert failed(found) == FOUND
    assert "out of service in Slurm: node01: looked at by hand (root, " in found.output
    everywhere(nodes, UNDO)
    nodes.play("site.yml", SLURM)
    nodes.on(LAUNCHER).check_output("scontrol update nodename=node[01-02] state=resume")
    waiting.until(lambda: all_idle(nodes), "every node to be idle")
    repaired = nodes.play("playbooks/verify.yml", SLURM)
    assert failed(repaired) == {}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rolling reboots of real nodes: in batches, waiting for a job, stopped by a lost node.

The nodes are a separate cluster. The reasons are recorded for the layer `names`, which is the
quickest to verify, in the format of reboots.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots

from tests import waiting
from tests.bed.instances import describe
from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnreboots
management: {subnet: 10.235.0.0/24, interface: mgmt0}
nodes: {count: 4, name: "node{:02d}", management_first: 10.235.0.11, slots: 1}
gpus: {count: 1}
rails: {count: 1, speed_gbps: 10}
addresses: {pool: 10.135.0.0/16, prefix: 24}
leaves: {count: 1, management_first: 10.235.0.101, ports: 64}
launcher: {name: launcher01, management: 10.235.0.10}
"""
PLAYBOOK = "playbooks/reboot.yml"
COMPUTE = ["node01", "node02", "node03", "node04"]
LAYER = "names"
RECORD = f"/{reboots.DIRECTORY}/{LAYER}.json"
WHY = "a test wants it"
USER = "nobody"
JOB = "hold-the-node"
DEADLINE_S = 600
"""Limit for reboots and jobs: never reached, however busy the machine is."""
OFTEN = ["--extra-vars", "cluster_reboot_min_hours=0 cluster_reboot_max_per_day=0"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("reboots") / "inventory"
    nodes = describe(folder, MODEL)
    variables = folder / "group_vars/all.yml"
    only = f"virtual_nodes_names: [{', '.join(COMPUTE)}]\n"  # the launcher is not needed
    variables.write_text(variables.read_text() + only)
    with nodes.new():
        nodes.play("playbooks/names.yml", "--limit=compute")
        yield nodes


def boot_id(nodes: Nodes, name: str) -> str:
    return nodes.on(name).check_output("cat /proc/sys/kernel/random/boot_id").strip()


def boot_ids(nodes: Nodes) -> dict[str, str]:
    return {name: boot_id(nodes, name) for name in COMPUTE}


def ask(nodes: Nodes, *names: str, boot: str = "") -> None:
    """Record a reason for a reboot on hosts, as a layer does that configured the next boot."""
    for name in names:
        reason = {"subject": "test", "wanted": "1", "running": "0", "reason": WHY}
        reasons = [{**reason, "boot_id": boot or boot_id(nodes, name)}]
        folder, text = RECORD.rpartition("/")[0], json.dumps({"layer": LAYER, "reasons": reasons})
        nodes.on(name).check_output("mkdir -p %s && echo %s > %s", folder, text, RECORD)


def asked(nodes: Nodes, *names: str) -> list[str]:
    return [name for name in names or COMPUTE if nodes.on(name).file(RECORD).exists]


def reboot(nodes: Nodes, *words: str, limit: str = "compute") -> Run:
    return nodes.play(PLAYBOOK, f"--limit={limit}", *words, expect=None)


def rows(run: Run) -> dict[str, str]:
    table = run.output.partition("SUMMARY")[2]
    return {line.split()[0]: line for line in table.splitlines() if line.startswith("node")}


@contextlib.contextmanager
def in_background(nodes: Nodes, until: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = nodes.start(PLAYBOOK, *words)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(until):
            break
    try:
        yield process
    except BaseException:
        process.terminate()
        process.wait()
        raise
    rest = process.stdout.read()
    assert process.wait() == 0, "".join(lines) + rest


def answers(nodes: Nodes, name: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((nodes.of(name)["ansible_host"], 22), timeout=5).close()
        return True
    return False


def test_two_batches_with_a_job_on_one_node(nodes: Nodes) -> None:
    ask(nodes, *COMPUTE)
    before = boot_ids(nodes)
    # A script called mpirun, as Intel's is one.
    nodes.on("node03").check_output(
        "printf '#!/bin/sh\\nsleep 3600\\n:\\n' >/usr/local/bin/mpirun && "
        "chmod +x /usr/local/bin/mpirun && "
        "systemd-run --uid=%s --unit=%s /usr/local/bin/mpirun",
        USER,
        JOB,
    )
    pid = nodes.on("node03").check_output("systemctl show -P MainPID %s", JOB)
    job = f"/bin/sh /usr/local/bin/mpirun (pid {pid}, user {USER})"

    shown = reboot(nodes, "--check", "--extra-vars", "cluster_reboot_batch=2")
    assert re.search(r"batch 1: .*node01, node02\nbatch 2: .*node04\n", shown.output)
    assert job in rows(shown)["node03"] and f"names: {WHY}" in rows(shown)["node01"]
    assert boot_ids(nodes) == before and asked(nodes) == COMPUTE
    assert shown.total("changed") == 0

    run = reboot(nodes, "--extra-vars", "cluster_reboot_batch=2")
    table, after = rows(run), boot_ids(nodes)
    rebooted = ["node01", "node02", "node04"]
    assert [name for name in COMPUTE if after[name] != before[name]] == rebooted, run.output
    assert asked(nodes) == ["node03"] and job in table["node03"]
    assert all("verified: names" in table[name] for name in rebooted)
    assert run.rc != 0 and run.hosts_with("failed") == {"node03"}
    assert run.report["rebooted"]["node01"]["status"] == "verified"


def test_a_job_is_waited_for_by_one_run_at_a_time(nodes: Nodes) -> None:
    wait = ("--limit=node03", "--extra-vars", f"cluster_reboot_wait_s={DEADLINE_S}")
    with in_background(nodes, "batch 1: ", *wait):
        second = reboot(nodes, limit="node03")
        assert "another run" in second.output
        nodes.on("node03").check_output("systemctl stop %s", JOB)
    assert asked(nodes) == []


def test_a_node_that_does_not_come_back_stops_the_rest(nodes: Nodes) -> None:
    """The other node of its batch is completed. node04 is the machine that runs Ansible."""
    own = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    before = boot_ids(nodes)
    nodes.on("node04").check_output("echo %s > /run/virtual-node/boot_id", own)
    ask(nodes, *COMPUTE)
    for unit in ("ssh.service", "sshd.service", "ssh.socket"):
        nodes.on("node02").run("systemctl disable %s", unit)
    # node02 never comes back; the others have as much time as a busy machine needs.
    limit_s = f"{{{{ 15 if inventory_hostname == 'node02' else {DEADLINE_S} }}}}"
    limits = {"cluster_reboot_timeout_s": limit_s, "cluster_reboot_batch": 2}
    run = reboot(nodes, *OFTEN, "--extra-vars", json.dumps(limits))
    nodes.on("node04").check_output("echo %s > /run/virtual-node/boot_id", before["node04"])
    table = rows(run)
    assert "verified: names" in table["node01"], run.output
    assert "15 s" in table["node02"]
    assert re.search(r"not rebooted: .*\(node02\)", table["node03"])
    assert "runs Ansible" in table["node04"]
    assert {name: boot_id(nodes, name) for name in ("node03", "node04")} == {
        name: before[name] for name in ("node03", "node04")
    }
    assert run.hosts_with("failed") == {"node02", "node03"}


def test_an_interrupted_reboot_is_verified_but_not_repeated(
    nodes: Nodes,
) -> None:
    """As after a killed run: the reason is of an earlier boot. node02 is still down."""
    waiting.until(lambda: not answers(nodes, "node02"), "node02 to go", every=0.5)
    ask(nodes, "node03", boot="an-earlier-one")
    ask(nodes, "node04")
    before = {name: boot_id(nodes, name) for name in ("node03", "node04")}
    damage = "cp /etc/hosts /root/hosts && sed -i /node01/d /etc/hosts"
    with nodes.by_hand("node03", damage, "cp /root/hosts /etc/hosts"):
        run = reboot(nodes, *OFTEN)
    table = rows(run)
    assert "FAILED at" in table["node03"] and "/etc/hosts" in table["node03"], run.output
    assert re.search(r"not rebooted: .*\(node03\)", table["node04"])
    assert "not reached" in table["node02"]

    # Losing a whole batch during verification ends all plays; the table is still printed.
    lost = {"ansible_port": "{{ 1 if cluster_reboot_rebooted is defined else 22 }}"}
    run = reboot(nodes, "--extra-vars", json.dumps(lost), limit="node03")
    assert run.hosts_with("unreachable") == {"node03"} and run.rc != 0
    assert "lost" in rows(run)["node03"], run.output
    assert asked(nodes, "node03") == ["node03"]

    # node04 has a reason for a reboot, and was just rebooted.
    run = reboot(nodes, limit="node03,node04")
    table = rows(run)
    assert "had rebooted, verified: names" in table["node03"], run.output
    assert "12 h" in table["node04"]
    assert run.hosts_with("failed") == {"node04"} and asked(nodes, *before) == ["node04"]
    assert {name: boot_id(nodes, name) for name in before} == before

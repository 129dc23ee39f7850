# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node-check under Debian's Slurm: a node that fails in a prolog is drained, its job runs on
others, and the breaker leaves the rest in service.

The timer and the health check run so seldom that only prologs and the test act.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import waiting
from tests.bed.instances import describe
from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vncheck
scheduler: slurm
management: {subnet: 10.239.0.0/24, interface: mgmt0}
nodes:
  count: 4
  name: node{:02d}
  management_first: 10.239.0.11
  slots: 2
  cpu: {sockets: 1, cores: 2, threads: 1, memory_mb: 1024}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10, mtu: 9000}
addresses: {pool: 10.139.0.0/16, prefix: 24}
leaves: {count: 2, management_first: 10.239.0.101, ports: 64}
launcher: {name: launcher01, management: 10.239.0.10}
"""
SEEN = ("--tags=names,os,rails,node_check,slurm",)
SETTINGS = """\
slurm_packages: distribution
slurm_cgroups: false
slurm_config_overrides: true
slurm_health_check_interval_s: 60000
node_check_enabled: true
node_check_drain: true
node_check_interval_s: 86400
"""
LAUNCHER = "launcher01"
LIBEXEC = "/usr/local/libexec/baremetal-mpi-roce"
# As the layer mpi, which is not under test.
TASK_PROLOG = f"""
    mkdir -p {LIBEXEC}
    echo '#!/bin/sh' >{LIBEXEC}/task-prolog
    chmod 755 {LIBEXEC}/task-prolog
"""
REASON = "baremetal.mpi_roce node-check: rail_mtu rail1"
BREAK, REPAIR = "ip link set rail1 mtu 1500", "ip link set rail1 mtu 9000"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = describe(tmp_path_factory.mktemp("node_check") / "inventory", MODEL)
    (nodes.inventory / "group_vars/all").mkdir(exist_ok=True)
    (nodes.inventory / "group_vars/all.yml").rename(nodes.inventory / "group_vars/all/nodes.yml")
    (nodes.inventory / "group_vars/all/node_check.yml").write_text(SETTINGS)
    with nodes.new():
        for name in nodes.group("compute"):
            nodes.on(name).check_output(TASK_PROLOG)
        nodes.play("site.yml", *SEEN)
        waiting.until(lambda: set(states(nodes).values()) == {("idle", "none")}, "the nodes", 120)
        yield nodes


def states(nodes: Nodes) -> dict[str, tuple[str, str]]:
    """State and reason of each node, as slurmctld has them."""
    text = nodes.on(LAUNCHER).check_output("sinfo --noheader --Node --format='%N|%T|%E'")
    rows = (line.split("|", 2) for line in text.splitlines())
    return {name: (state.rstrip("*"), reason) for name, state, reason in rows}


def drained(nodes: Nodes) -> dict[str, str]:
    return {name: why for name, (state, why) in states(nodes).items() if state.startswith("drain")}


def run_job(nodes: Nodes, *words: str) -> dict[str, str]:
    """Submit a job that prints its nodes, wait until it has ended, and return what Slurm says."""
    launcher = nodes.on(LAUNCHER)
    wrap = "srun --mpi=none sh -c 'echo ran on $SLURMD_NODENAME'"
    options = f"--requeue --output=/tmp/job.out {' '.join(words)}"
    job = launcher.check_output(f'cd /tmp && sbatch --parsable {options} --wrap "{wrap}"').strip()

    def told() -> dict[str, str]:
        text = launcher.check_output(f"scontrol --oneliner show job {job}")
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    waiting.until(lambda: told()["JobState"] in ("COMPLETED", "FAILED"), "the job", 240)
    return told()


def check(nodes: Nodes, host: str, name: str) -> str:
    """Run the program by one of its names, as slurmd does."""
    done = nodes.on(host).run(f"SLURMD_NODENAME={host} {LIBEXEC}/{name}")
    assert done.rc == 0, done.stderr
    return str(done.stdout)


def test_a_second_run_changes_nothing(nodes: Nodes) -> None:
    again = nodes.play("site.yml", *SEEN)
    assert again.total("changed") == 0 and again.failed("node_check") == []


def test_a_node_that_fails_in_prolog_is_drained_and_its_job_runs_elsewhere(nodes: Nodes) -> None:
    nodes.on("node01").check_output(BREAK)
    job = run_job(nodes, "--nodes=2", "--ntasks-per-node=1")
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    assert drained(nodes) == {"node01": REASON}
    assert "node01" not in job["NodeList"]


def test_the_breaker_leaves_the_other_faulty_nodes_in_service(nodes: Nodes) -> None:
    for name in ("node02", "node03"):
        nodes.on(name).check_output(BREAK)
    job = run_job(nodes, "--nodes=3", "--ntasks-per-node=1")
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "0")
    assert drained(nodes) == {"node01": REASON}
    assert "max_drained_share" in check(nodes, "node02", "slurm-health-check")
    assert drained(nodes) == {"node01": REASON}


def test_only_own_drains_are_taken_back_and_only_when_all_checks_hold(nodes: Nodes) -> None:
    by_hand = "scontrol update nodename=node04 state=drain reason='disk of node04'"
    nodes.on(LAUNCHER).check_output(by_hand)
    for name in ("node01", "node04"):
        check(nodes, name, "slurm-health-check")
    assert drained(nodes) == {"node01": REASON, "node04": "disk of node04"}
    for name in ("node01", "node02", "node03"):
        nodes.on(name).check_output(REPAIR)
        check(nodes, name, "slurm-health-check")
    assert drained(nodes) == {"node04": "disk of node04"}
    nodes.on(LAUNCHER).check_output("scontrol update nodename=node04 state=resume")


def test_leftovers_of_a_job_are_found_by_its_epilog(nodes: Nodes) -> None:
    """A process with the job's variables that outlives it, made by hand outside of Slurm."""
    start = "SLURM_JOB_ID=4242 setsid --fork setpriv --reuid=2000 --clear-groups sleep 86399"
    with nodes.by_hand("node02", start, "pkill -f 'sleep 86399'") as host:
        told = host.run(f"SLURM_JOB_ID=4242 {LIBEXEC}/slurm-epilog")
        assert told.rc == 0 and "node_leftover_processes" in told.stdout
    assert "healthy" in check(nodes, "node02", "slurm-epilog")


def test_removal_waits_for_slurm_and_leaves_nothing(nodes: Nodes) -> None:
    gone = ("--extra-vars", '{"node_check_enabled": false}')
    nodes.play("site.yml", *SEEN, *gone)
    nodes.play("site.yml", *SEEN, *gone)
    left = "find /usr/local/libexec /etc /var/lib/baremetal-mpi-roce -name '*node*check*'"
    links = f"ls {LIBEXEC}; cat /etc/slurm/*.conf"
    for name in nodes.group("compute"):
        assert nodes.on(name).check_output(left) == ""
        assert "slurm-prolog" not in nodes.on(name).check_output(links)
    assert nodes.play("site.yml", *SEEN, *gone).total("changed") == 0
    job = run_job(nodes, "--nodes=4", "--ntasks-per-node=1")
    assert job["JobState"] == "COMPLETED"

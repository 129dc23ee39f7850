# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node of a real Slurm: a job delays reboots and drivers, Slurm's daemons do not.

Slurm is Debian's, with controller and node on one virtual node of a separate cluster.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import shared

from tests import mpi_source, waiting
from tests.bed.instances import describe
from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnslurm
management: {subnet: 10.237.0.0/24, interface: mgmt0}
nodes: {count: 2, name: "node{:02d}", management_first: 10.237.0.11, slots: 1}
gpus: {count: 1}
rails: {count: 1, speed_gbps: 10}
addresses: {pool: 10.137.0.0/16, prefix: 24}
leaves: {count: 1, management_first: 10.237.0.101, ports: 64}
launcher: {name: launcher01, management: 10.237.0.10}
"""
NODE = "node01"
PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
# For Slurm 22.05.8 (Debian 12). Tasks use no cgroups, independent of the host.
SLURM = f"""\
ClusterName=test
SlurmctldHost={NODE}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=/var/lib/slurm-test/slurmctld
SlurmdSpoolDir=/var/lib/slurm-test/slurmd
SlurmctldPidFile=/run/test-slurmctld.pid
SlurmdPidFile=/run/test-slurmd.pid
NodeName={NODE} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes={NODE} Default=YES MaxTime=INFINITE State=UP
"""
START = """
set -e
systemctl disable --quiet --now slurmctld.service slurmd.service
mkdir -p /etc/slurm /var/lib/slurm-test/slurmctld /var/lib/slurm-test/slurmd
echo %s | base64 -d >/etc/slurm/slurm.conf
echo IgnoreSystemdOnFailure=yes >/etc/slurm/cgroup.conf
systemctl enable --quiet --now munge.service
systemd-run --quiet --unit=test-slurmctld slurmctld -D
systemd-run --quiet --unit=test-slurmd --property=Delegate=yes slurmd -D
"""
# slurmd does this only with cgroup v2. The host may have v1, so the test does it: the program and
# its argument are those of _init_new_scope_dbus in SchedMD/slurm cgroup_v2.c.
FOREVER = """
pgrep -f '^[^ ]*slurmstepd infinity$' ||
systemd-run --quiet --unit=test-infinity /usr/sbin/slurmstepd infinity
"""
STATE = f"sinfo --noheader --nodes={NODE} --format=%T"
JOB = "sbatch --parsable --chdir=/tmp --output=/dev/null --wrap 'sleep 3600'"
PROCESSES = """
python3 - <<'end'
import base64, json, pathlib
found = {}
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        names = ("comm", "cmdline", "environ", "stat")
        files = {name: (folder / name).read_bytes() for name in names}
        found[folder.name] = {name: base64.b64encode(x).decode() for name, x in files.items()}
    except OSError:
        pass  # terminated in the meantime
print(json.dumps(found))
end
"""
LAYER, WHY = "names", "a test wants it"
RECORD = f"/{reboots.DIRECTORY}/{LAYER}.json"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One node that is idle in Slurm and waits for a reboot."""
    folder = tmp_path_factory.mktemp("slurm") / "inventory"
    nodes = describe(folder, MODEL)
    variables = folder / "group_vars/all.yml"
    variables.write_text(variables.read_text() + f"virtual_nodes_names: [{NODE}]\n")
    with nodes.new():
        nodes.play("playbooks/names.yml", f"--limit={NODE}")
        mpi_source.of_debian(nodes, NODE, PACKAGES)
        on = nodes.on(NODE)
        on.check_output(START, base64.b64encode(SLURM.encode()).decode())
        try:
            waiting.until(lambda: on.run(STATE).stdout.strip() == "idle", "Slurm's node to be idle")
        except AssertionError as error:
            log = on.run("journalctl --lines=40 --unit='test-slurm*'").stdout
            raise AssertionError(f"{error}\n{log}") from None
        on.check_output(FOREVER)
        boot = on.check_output("cat /proc/sys/kernel/random/boot_id").strip()
        reason = {"subject": "test", "wanted": "1", "running": "0", "reason": WHY, "boot_id": boot}
        text = json.dumps({"layer": LAYER, "reasons": [reason]})
        on.check_output("mkdir -p %s && echo %s > %s", RECORD.rpartition("/")[0], text, RECORD)
        yield nodes


def plan(nodes: Nodes) -> str:
    return nodes.play("playbooks/reboot.yml", "--check", f"--limit={NODE}", expect=None).output


def users(nodes: Nodes, folder: Path) -> list[str]:
    """Return the processes that prevent the layer gpu from changing a driver."""
    found = json.loads(nodes.on(NODE).check_output(PROCESSES))
    for pid, files in found.items():
        process_folder = folder / "proc" / pid
        process_folder.mkdir(parents=True)
        for name, text in files.items():
            (process_folder / name).write_bytes(base64.b64decode(text))
    assert any("slurmstepd" in comm.read_text(errors="replace") for comm in folder.rglob("comm"))
    return [process.command for process in shared.users(folder)]


def test_an_idle_node_of_slurm_is_rebooted_and_its_driver_changed(
    nodes: Nodes, tmp_path: Path
) -> None:
    """Its slurmstepd never terminates: slurm.schedmd.com/cgroup_v2.html."""
    shown = plan(nodes)
    assert f"batch 1: reboot {NODE}\n" in shown, shown
    assert users(nodes, tmp_path) == []


def test_a_job_of_slurm_keeps_both_back_until_it_ends(nodes: Nodes, tmp_path: Path) -> None:
    on = nodes.on(NODE)
    job = on.check_output(JOB).strip()
    running = f"pgrep -f '^slurmstepd: .{job}.batch.'"
    waiting.until(lambda: on.run(running).rc == 0, "the job's first step")
    try:
        shown = plan(nodes)
        assert f"left: {NODE}: MPI runs on it: " in shown, shown
        assert f"slurmstepd: [{job}.batch] (pid " in shown and "infinity" not in shown
        found = users(nodes, tmp_path)
        assert {f"slurmstepd: [{job}.batch]", "sleep 3600"} <= {*found}
        assert not [line for line in found if line.endswith("infinity")]
    finally:
        on.check_output("scancel %s", job)
    waiting.until(lambda: on.run(STATE).stdout.strip() == "idle", "the job to end")
    assert f"batch 1: reboot {NODE}\n" in plan(nodes)

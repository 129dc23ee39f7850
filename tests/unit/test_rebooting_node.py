# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a reboot on the node: state, drain and reboot, removal of records."""

from __future__ import annotations

import json
import os
import pwd
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.locks import alone
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.reboot import busy, node, slurm
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.state import (
    NodeState,
    SlurmError,
    parse_node,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import guards, planning

BOOT, BEFORE = "1" * 8 + "-0000-0000-0000-" + "1" * 12, "boot-before"
ME = pwd.getpwuid(os.getuid()).pw_name
NOW = 2_000_000.0
# Recorded from scontrol of Slurm 23.11, one line per node, shortened.
SHOWN = (
    "NodeName=node01 Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 RealMemory=2000000 Sockets=2 "
    "State={state} ThreadsPerCore=2 Owner=N/A MCS_label=N/A Partitions=gpu "
    "BootTime=2026-01-05T10:00:00 SlurmdStartTime=2026-01-05T10:01:00 CfgTRES=cpu=224 AllocTRES= "
    "CurrentWatts=0 AveWatts=0{reason}\n"
)


def process(
    root: Path, pid: int, comm: str, *argv: str, state: str = "S", **environment: str
) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm[:15]}\n")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
    (folder / "environ").write_text("".join(f"{k}={v}\0" for k, v in environment.items()))
    start = "0 " * 18 + "400"
    (folder / "stat").write_text(f"{pid} ({comm}) {state} {start} 0\n")


# MPI processes


def test_mpi_processes_are_recognized(tmp_path):
    process(tmp_path, 10, "orted", "/opt/bin/orted", "-mca", "ess", "env")
    process(tmp_path, 11, "mpirun", "/bin/sh", "/opt/intel/mpirun", "-np", "4")
    process(tmp_path, 12, "python3", "/usr/bin/python3", "/usr/bin/mpiexec")
    process(tmp_path, 13, "solver", "./solver", "in.dat", OMPI_COMM_WORLD_RANK="3")
    process(tmp_path, 14, "bash", "bash", SLURM_JOB_ID="77")
    process(tmp_path, 15, "hydra_pmi_proxy", "/x/hydra_pmi_proxy")
    process(tmp_path, 16, "hydra_bstrap_proxy", "/x/hydra_bstrap_proxy")
    process(tmp_path, 17, "slurmstepd", "slurmstepd: [77.0]")
    process(tmp_path, 18, "python3", "python3", "-u", "/opt/x/mpirun")
    process(tmp_path, 20, "bash", "-bash", OMPI_MCA_btl="tcp", UCX_TLS="rc")
    process(tmp_path, 21, "vi", "vi", "mpirun")
    process(tmp_path, 22, "orted", state="Z")
    process(tmp_path, 23, "kworker/0:1")
    process(tmp_path, 25, "bash", "bash", "watch.sh", "mpirun")
    process(tmp_path, 26, "python3", "python3", "-m", "pydoc", "mpirun")
    process(tmp_path, 27, "python3", "python3", "-")
    process(tmp_path, 28, "mpirun_status", "/usr/bin/mpirun_status")
    process(tmp_path, 29, "mpirun.openmpi", "/usr/bin/mpirun.openmpi")
    process(tmp_path, 30, "trainer", "/opt/trainer")
    process(tmp_path, 31, "prted", "prted", "--prtemca", "ess_base_nspace", "prterun-n01-9@0")
    (tmp_path / "proc/24").mkdir()  # terminated meanwhile
    (tmp_path / "proc/sys").mkdir()
    process(tmp_path, 32, "prte", "prte", "--daemonize")  # counts if the operator names it
    found = busy.processes(tmp_path, ["trainer", "prte"])
    assert [each.pid for each in found] == [10, 11, 12, 13, 14, 15, 16, 17, 18, 29, 30, 31, 32]
    assert found[0].text() == f"/opt/bin/orted -mca ess env (pid 10, user {ME})"


PRTED = ("--prtemca", "ess_base_nspace")
"""Precedes the name space of a DVM or job: openpmix/prrte plm_base_launch_support.c."""


@pytest.mark.parametrize(
    ("comm", "argv", "environment"),
    [
        # slurm.schedmd.com/cgroup_v2.html; from ps on a node of CCR Buffalo.
        ("slurmstepd", ["/usr/sbin/slurmstepd", "infinity"], {}),
        ("slurmstepd", ["/opt/slurm/24.05/sbin/slurmstepd", "infinity"], {"SLURM_JOB_ID": "76"}),
        ("prte", ["/usr/bin/prte", "--daemonize"], {}),
        (
            "prte",
            ["prte", "--hostfile", "h", "--prtemca", "oob_tcp_if", "-", "--report-uri", "u"],
            {},
        ),
        ("prted", ["prted", *PRTED, "prte-node01-4711@0"], {}),
        ("prted", ["/opt/prrte/bin/prted", "--bootstrap"], {}),
        ("nvidia-cuda-mps-control", ["nvidia-cuda-mps-control", "-d"], {"SLURM_JOB_ID": "76"}),
        ("nvidia-cuda-mps-server", ["nvidia-cuda-mps-server"], {"PMIX_RANK": "0"}),
        ("dcgm-exporter", ["/usr/bin/dcgm-exporter"], {"SLURM_JOBID": "76"}),  # of a prolog
    ],
)
def test_what_waits_for_jobs_is_no_job(tmp_path, comm, argv, environment):
    process(tmp_path, 9, "slurmstepd", "slurmstepd: [77.extern]")
    process(tmp_path, 10, comm, *argv, **environment)
    assert [each.pid for each in busy.processes(tmp_path)] == [9]


@pytest.mark.parametrize("step", ["0", "batch", "extern", "interactive", "4+1"])
def test_slurm_steps_and_their_processes(tmp_path, step):
    process(tmp_path, 1361, "slurmstepd", "/usr/sbin/slurmstepd", "infinity")
    process(tmp_path, 1400, "slurmstepd", f"slurmstepd: [614.{step}]")
    process(tmp_path, 1401, "bash", "/usr/bin/bash", SLURM_JOB_ID="614")
    process(tmp_path, 1402, "bash", "/usr/bin/bash", SLURM_JOB_ID="61")
    assert [each.pid for each in busy.processes(tmp_path)] == [1400, 1401]


@pytest.mark.parametrize(
    ("comm", "argv"),
    [
        ("slurmstepd", ["/usr/sbin/slurmstepd"]),  # has no title yet
        ("slurmstepd", ["/usr/sbin/slurmstepd", "spank", "prolog"]),
        ("slurmstepd", ["/usr/sbin/slurmstepd", "ns_infinity", "614"]),  # name space of a job
        ("slurmstepd-wlm", ["slurmstepd-wlm: [614.0]"]),
        # Single-use mode: the ranks may be on other nodes.
        ("prte", ["/opt/prrte/bin/prte", "-n", "2", "./a.out"]),
        ("prte", ["/opt/prrte/bin/prte", "--mca", "a", "b", "./a.out", "--mca"]),
    ],
)
def test_other_processes_with_these_names_are_jobs(tmp_path, comm, argv):
    process(tmp_path, 10, comm, *argv)
    assert [each.pid for each in busy.processes(tmp_path)] == [10]


def test_no_command_line_takes_long_to_be_read(tmp_path):
    """Linux allows 128 KiB per argument, and more if a process overwrites its own."""
    process(tmp_path, 10, "x", "slurmstepd" * 30_000)
    process(tmp_path, 11, "slurmstepd", "slurmstepd: [77.0]", *["x" * 1000] * 100)
    process(tmp_path, 12, "prte", "prte", *["--mca", "-a", "-mcamca"] * 20_000, "x", "y")
    started = time.process_time()
    assert [each.pid for each in busy.processes(tmp_path)] == [11, 12]
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("state", "busy_", "drained"),
    [
        ("IDLE", False, False),
        ("IDLE+DRAIN", False, True),
        ("MIXED+DRAIN", True, True),
        ("ALLOCATED", True, False),
        ("IDLE+COMPLETING+DRAIN", True, True),
        ("DOWN*+DRAIN", False, True),
        ("IDLE*", False, False),
        ("UNKNOWN", True, False),
    ],
)
def test_the_states_of_slurm(state, busy_, drained):
    found = parse_node("node01", SHOWN.format(state=state, reason=""))
    assert (found.busy, found.drained, slurm.ours(found)) == (busy_, drained, False)


# Slurm


@pytest.mark.parametrize(
    ("reason", "ours"),
    [(f"{slurm.REASON}: os", True), ("bad DIMM", False)],
)
def test_who_drained_is_told_by_the_reason(reason, ours):
    text = SHOWN.format(state="IDLE+DRAIN", reason=f" Reason={reason} [root@2026-01-05T10:00:00]")
    found = parse_node("node01", text)
    assert found.reason == reason and slurm.ours(found) is ours
    back = parse_node("node01", text.replace("+DRAIN", ""))
    assert not slurm.ours(back), "resumed by others"


def test_a_node_with_another_name_in_slurm():
    def scontrol(argv, *, check=True, stdin=None):
        if argv[-1] == "node01":
            return Result(tuple(argv), 1, "", "Node node01 not found")
        lines = [
            f"NodeName=gpu-{number} NodeHostName=node{number:02d} State={state} Reason=x y [a@b]\n"
            for number, state in ((1, "IDLE+DRAIN"), (2, "IDLE"))
        ]
        return Result(tuple(argv), 0, "".join(lines), "")

    assert slurm.read(scontrol, "node01", "scontrol") == NodeState("gpu-1", "IDLE+DRAIN", "x y")


GONE = "slurm_load_node error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(("rc", "stdout", "stderr"), [(1, "", GONE), (0, "", GONE), (0, "", "")])
def test_a_lost_slurm_controller_is_an_error(rc, stdout, stderr):
    """Otherwise the host would be rebooted without draining."""

    def scontrol(argv, *, check=True, stdin=None):
        if argv[-1] == "node01":
            return Result(tuple(argv), 1, "", "Node node01 not found")
        return Result(tuple(argv), rc, stdout, stderr)

    with pytest.raises(SlurmError, match="scontrol show node: exit status"):
        slurm.read(scontrol, "node01", "scontrol")


# History and guard


@pytest.mark.parametrize(
    ("ago_h", "refused"),
    [
        ([], ""),
        ([1], ""),  # the first known boot is not a reboot
        ([100, 13], ""),
        ([100, 11], "less than 12 h"),
        ([100, 23, 20, 13], "3 times in 24 h"),
        ([100, 25, 20, 13], ""),
    ],
)
def test_the_guard(ago_h, refused):
    reason = planning.too_often([NOW - hours * 3600 for hours in ago_h], NOW, 12, 3)
    assert refused in reason if refused else reason == ""


def test_the_record_of_boots(root):
    path = root / node.RECORD
    (root / "proc/stat").write_text(f"btime {int(NOW) - 5000}\n")
    node.record(here(root, Programs()), "old").apply()
    (root / "proc/stat").write_text(f"btime {int(NOW) + 8 * 86400}\n")
    late = here(root, Programs(), now=NOW + 8 * 86400)
    node.record(late, "new").apply()
    assert list(node.recorded_boots(root)) == ["new"]
    assert node.read(late)["boots"] == [node.began(root)] * 2, "the recorded and the current boot"
    path.write_text('{"boots": [{"boot_id": "new", "began": 9e9}]}')
    assert node.read(late)["boots"] == [node.began(root)] * 2, "recorded by a wrong clock"
    path.write_text("[]")
    with pytest.raises(node.HistoryError, match="remove it"):
        node.recorded_boots(root)


# The steps on the node


@dataclass
class Programs:
    """Fake scontrol and systemd programs."""

    state: str = ""
    reason: str = ""
    said: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=lambda: ["running"])
    broken: str = ""

    def __call__(self, argv, *, check=True, stdin=None):
        line = " ".join(argv)
        self.said.append(line)
        if "show node" in line:
            if self.broken and not ("not found" in self.broken and argv[-1] == "node"):
                return Result(tuple(argv), 1, "", self.broken)
            why = f" Reason={self.reason} [root@2026-01-05T10:00:00]" if self.reason else ""
            return Result(tuple(argv), 0, SHOWN.format(state=self.state, reason=why), "")
        if "state=drain" in line:
            self.state += "+DRAIN"
            self.reason = argv[-1].partition("=")[2]
        if "state=resume" in line:
            self.state, self.reason = self.state.partition("+")[0], ""
        if "is-system-running" in line:
            return Result(tuple(argv), 1, self.systems.pop(0) + "\n", "")
        return Result(tuple(argv), 0, "", "")

    def did(self, word: str) -> bool:
        return any(word in line for line in self.said)


@pytest.fixture
def root(tmp_path):
    for path, text in {
        "proc/sys/kernel/random/boot_id": f"{BOOT}\n",
        "proc/stat": f"cpu 1 2\nbtime {int(NOW) - 5000}\n",
        "run/systemd/container": "podman\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    process(tmp_path, 1, "systemd", "/sbin/init")
    asks(tmp_path, "os", BOOT)
    return tmp_path


def asks(root: Path, record: str, boot_id: str) -> None:
    me = {"root": root, "uid": os.getuid(), "gid": os.getgid()}
    reboots.plan(record, [reboots.Reason("x", "1", "0", "why")], boot_id, **me).apply()


def here(root: Path, programs: Programs, now: float = NOW) -> node.RebootNode:
    clock = iter(range(int(now), int(now) + 10_000))
    return node.RebootNode(
        run=programs,
        root=root,
        uid=os.getuid(),
        gid=os.getgid(),
        find=lambda name: name,
        sleep=lambda seconds: None,
        clock=lambda: float(next(clock)),
        name="node01.example",
    )


def test_reading_changes_nothing(root):
    process(root, 50, "orted", "orted")
    before = sorted(root.rglob("*"))
    found = node.read(here(root, Programs("IDLE")))
    assert sorted(root.rglob("*")) == before
    assert found["reasons"]["os"][0]["boot_id"] == BOOT
    assert found["boots"] == [pytest.approx(NOW - 5000 + 4, abs=300)]
    assert found["processes"][0]["pid"] == 50
    assert found["slurm"]["state"] == "IDLE" and found["problems"] == []
    assert json.loads(json.dumps(found)) == found
    outside = node.read(here(root, Programs(broken="Node node01 not found")))
    assert outside["slurm"] is None and outside["problems"] == []
    (root / reboots.DIRECTORY / "os.json").write_text("{")
    (root / node.RECORD).write_text("{")
    found = node.read(here(root, Programs(broken="Unable to contact slurm controller")))
    for text in ("os.json: not a record", "reboots.json: not a", "Unable to contact slurm"):
        assert any(text in problem for problem in found["problems"])


def test_leave_drains_records_and_reboots(root):
    programs = Programs("IDLE")
    node.leave(here(root, programs), BOOT, ["os: iommu=pt"], 0)
    assert programs.state == "IDLE+DRAIN" and programs.reason.startswith(slurm.REASON)
    assert programs.said[-1].endswith("systemctl reboot")
    assert list(node.recorded_boots(root)) == [BOOT]


@pytest.mark.parametrize("state", ["IDLE", f"IDLE+DRAIN ({slurm.REASON})"])
def test_a_running_job_cancels_the_reboot(root, state):
    process(root, 50, "orted", "orted")
    state, _, reason = state.partition(" ")
    programs = Programs(state, reason.strip("()"))
    with pytest.raises(node.LeaveError, match="MPI runs on it: orted"):
        node.leave(here(root, programs), BOOT, ["os"], 5)
    assert programs.state == "IDLE" and not programs.did("systemctl reboot")
    assert node.recorded_boots(root) == {}
    programs = Programs("ALLOCATED")
    (root / "proc/50/comm").unlink()
    with pytest.raises(node.LeaveError, match="Slurm has it as ALLOCATED"):
        node.leave(here(root, programs), BOOT, ["os"], 5)
    assert programs.state == "ALLOCATED" and not programs.did("systemctl reboot")


def test_a_drain_of_somebody_else_is_theirs(root):
    programs = Programs("IDLE+DRAIN", "bad DIMM")
    node.leave(here(root, programs), BOOT, ["os"], 0)
    assert not programs.did("state=drain") and programs.did("systemctl reboot")
    done = node.finish(here(root, programs), ["os"], BOOT)
    assert not done["resumed"] and programs.state == "IDLE+DRAIN"
    assert done["left"] == {"os": ["why"]} and done["struck"] == [], "recorded in this boot"


def test_it_does_not_reboot_for_removed_reasons(root):
    programs = Programs("IDLE")
    with pytest.raises(node.LeaveError, match="since the plan"):
        node.leave(here(root, programs), BEFORE, ["os"], 0)
    (root / reboots.DIRECTORY / "os.json").unlink()
    with pytest.raises(node.LeaveError, match="reasons"):
        node.leave(here(root, programs), BOOT, ["os"], 0)
    assert not programs.did("systemctl reboot") and not programs.did("state=drain")


def test_two_runs_do_not_leave_at_once(root):
    programs = Programs("IDLE")
    with alone(root / node.LOCK), pytest.raises(node.LeaveError, match="another run"):
        node.leave(here(root, programs), BOOT, ["os"], 0)
    assert not programs.did("systemctl reboot")


def test_finish_clears_reasons_and_resumes(root):
    asks(root, "rails", BEFORE)
    (root / reboots.DIRECTORY / "os.json").unlink()
    asks(root, "os", BEFORE)
    programs = Programs("IDLE+DRAIN", slurm.REASON)
    done = node.finish(here(root, programs), ["os", "rails"], BOOT)
    assert done == {"resumed": True, "struck": ["os", "rails"], "left": {}}
    assert reboots.required(root) == {} and programs.state == "IDLE"


# The lock on the controller


def test_the_lock_is_of_a_process_that_lives(tmp_path):
    process(tmp_path, 70, "ansible", "ansible-playbook")
    process(tmp_path, 71, "ansible", "ansible-playbook")
    state = tmp_path / "state"
    guards.take(state, 70, tmp_path)
    guards.take(state, 70, tmp_path)
    assert state.stat().st_mode & 0o777 == 0o700  # another user could hold the lock otherwise
    with pytest.raises(guards.LockedError, match="process 70"):
        guards.take(state, 71, tmp_path)
    stat = tmp_path / "proc/70/stat"
    stat.write_text(stat.read_text().replace(" 400 ", " 900 "))  # another, of the same id
    guards.take(state, 71, tmp_path)
    (tmp_path / "proc/71/stat").unlink()  # killed
    guards.take(state, 70, tmp_path)
    (state / guards.NAME).write_text("[7")  # killed while writing
    guards.take(state, 70, tmp_path)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ranks started by Slurm: command lines, refusals, the rank that failed, and the end of the job.

The outputs in golden/srun were recorded from Slurm 22.05.8 with Open MPI 4.1.4 (Debian 12).
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import (
    RunPlan,
    command,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.causes import causes
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.environment import (
    PROGRAM_DIRECTORY,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job import plan, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job.readiness import (
    JobStorage,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import slurm, unit
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
    SRUN,
    WAIT_S,
    Srun,
    Start,
    launcher_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (
    LaunchNode,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.readiness import (
    preflight,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi.bench import TAG

GOLDEN = Path(__file__).parent / "golden/srun"
ROOT = Path(__file__).parents[2]
TASK_PROLOG = ROOT / "roles/mpi_stack/files/task-prolog"
BATCH = ROOT / "docs/examples/train.sbatch"
RUN_ID = "0123456789ab"
RAILS = {"networks": ("10.0.0.0/24",), "by_rank": (("rail0",),)}
NODES = (
    LaunchNode("node01", 2, ("rail0",), address="node01-rail0", **RAILS),
    LaunchNode("node02", 1, ("rail0",), address="node02-rail0", **RAILS),
)
SLURM = Srun()


def a_job(folder: Path, **given: Any) -> plan.Job:
    one = plan.Job(
        nodes=NODES,
        program=("python3", "train.py"),
        user="root",
        run_id=RUN_ID,
        directory=folder / "jobs" / RUN_ID,
        hostfile=folder / "hostfile",
        launcher=SLURM,
        time_limit_s=90,
    )
    return replace(one, **given)


def golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def lines_of(argv: Sequence[str]) -> str:
    return "".join(f"{shlex.quote(word)}\n" for word in argv)


@pytest.mark.parametrize("mapping", ["gpu", "node", "core"])
def test_the_command_line_of_a_job(mapping: str) -> None:
    one = a_job(
        Path("/var/lib"),
        mapping=mapping,
        environment={"TOKEN": "secret", "PATH": "/srv/venv/bin:/usr/bin", "UCX_TLS": "tcp"},
        parameters={"pml": "ucx"},
        launcher=Srun(("--partition=batch", "--account=infra")),
    )
    nodes = [replace(node, slurm_gpus=count) for node, count in zip(NODES, (8, 4))]
    argv = one.command(nodes)
    assert "secret" not in " ".join(argv)
    golden(f"command-{mapping}", lines_of(argv))


def test_the_command_line_of_the_smoke_test() -> None:
    smoke = RunPlan(NODES, "tcp", launcher=SLURM, parameters=(("btl_base_verbose", "10"),))
    golden("command-smoke", lines_of(command(smoke, "/tmp/hosts", RUN_ID, 300)))
    tests = replace(smoke, program=("all_reduce_perf", "-g", "1"))
    argv = command(tests, "/tmp/hosts", RUN_ID, 300)
    assert argv[-5:] == ["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", *tests.program]
    assert argv.index("--cpu-bind=none") < argv.index("/usr/bin/env"), "an option of srun"


@pytest.mark.parametrize(
    ("mapping", "hosts"),
    [
        ("gpu", "node01 node01 node02"),
        ("core", "node01 node01 node02"),
        ("node", "node01 node02 node01"),
    ],
)
def test_each_rank_has_a_line_with_slurms_name_of_its_node(
    tmp_path: Path, mapping: str, hosts: str
) -> None:
    one = a_job(tmp_path, mapping=mapping)
    plan.prepare(one, NODES, os.getuid(), os.getgid())
    assert (one.directory / plan.HOSTS).read_text().split() == hosts.split()


def test_intel_mpi_and_other_words_are_refused() -> None:
    assert launcher_of("hpcx") is OPEN_MPI and launcher_of("impi") is HYDRA
    assert launcher_of("distribution", SRUN, ["--qos=high"]) == Srun(("--qos=high",))
    with pytest.raises(PlanError) as caught:
        launcher_of("impi", SRUN)
    assert caught.value.args[0].code == "srun.intel_mpi"
    for word in ("-p", "batch", "--wrap; rm", "--a\n", "--comment=x y"):
        with pytest.raises(PlanError) as caught:
            Srun((word,))
        assert caught.value.args[0].values == {"word": word}
    with pytest.raises(PlanError, match="mpi_smoke_rankfile"):
        RunPlan(NODES, "tcp", launcher=SLURM, rankfile="/r")


@pytest.mark.parametrize(
    "word", ["--job-name=x", "--job-n=x", "--no-shell", "--nodelist=a", "--n=1"]
)
def test_a_run_keeps_the_options_by_which_it_ends_its_job(word: str) -> None:
    """scancel finds the job by its name; salloc --no-shell leaves one behind."""
    with pytest.raises(PlanError) as caught:
        Srun((word,))
    assert caught.value.args[0].code == "srun.own_option"
    assert Srun(("--no-kill", "--time=5")).options


@pytest.mark.parametrize(
    ("name", "rank", "said"),
    [
        ("exit", 3, "3: rank three has enough"),
        ("kill", 3, "srun: error: node02: task 3: Killed"),
        ("abort", 3, "3: MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"),
        ("noprog", 2, "2: /usr/local/libexec/baremetal-mpi-roce/rail-bind: 138: exec: nosuchprog"),
    ],
)
def test_the_rank_that_failed_first_speaks(name: str, rank: int, said: str) -> None:
    output = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    found, lines = run.last_lines(a_job(Path("/jobs")), NODES, output, 143)
    assert found == rank
    assert any(line.startswith(said) for line in lines), lines
    assert not [line for line in lines if line.startswith(("0: ", "1: "))]


def test_without_its_message_the_rank_that_slurm_did_not_stop_failed() -> None:
    output = (GOLDEN / "abort.txt").read_text(encoding="utf-8")
    assert SLURM.failed_rank(output.replace("MPI_ABORT", "x"), {}, "gpu") == 3
    killed = output.replace("MPI_ABORT", "x").replace("Exited with exit code 5", "Killed")
    assert SLURM.failed_rank(killed, {}, "gpu") is None


@pytest.mark.parametrize(
    ("name", "code", "values"),
    [
        ("busy", "srun.waited", {"told": "other jobs are first", "limit_s": WAIT_S}),
        (
            *("partition", "srun.waited"),
            {"told": "Requested partition configuration not available now", "limit_s": WAIT_S},
        ),
        ("exit", "", {}),
        ("abort", "", {}),
        ("cancelled", "srun.stopped", {"reason": "cancelled, as by scancel"}),
        ("time-limit", "srun.stopped", {"reason": "time limit"}),
        ("node-failure", "srun.node_lost", {"nodes": "node02"}),
    ],
)
def test_a_job_that_slurm_did_not_start_or_stopped_has_its_reason(
    name: str, code: str, values: dict[str, Any]
) -> None:
    found = SLURM.scheduler_reason((GOLDEN / f"{name}.txt").read_text(encoding="utf-8"))
    assert (getattr(found, "code", ""), getattr(found, "values", {})) == (code, values)


@pytest.mark.parametrize(
    ("name", "said"), [("node-failure", "Slurm lost node02: "), ("exit", "rank 3 failed first")]
)
def test_a_rank_that_slurm_stopped_did_not_fail(tmp_path: Path, name: str, said: str) -> None:
    one = a_job(tmp_path)
    one.directory.mkdir(parents=True)
    (one.directory / plan.OUTPUT).write_bytes((GOLDEN / f"{name}.txt").read_bytes())
    end = run.JobExit(143, 0.0, 15.0)
    found = run._result(one, NODES, end, JobStorage(), Launcher())
    assert found["checks"][0]["reason"].startswith(said)
    assert found["failed_rank"] == (3 if name == "exit" else None)


@pytest.mark.parametrize(
    ("queue", "reason", "do"),
    [
        ("reason=Resources\n", "Resources", "squeue"),
        ("note\nreason=None\nreason=PartitionDown  \n", "PartitionDown", "state=up"),
        ("reason=ReqNodeNotAvail, UnavailableNodes:n1\n", None, "sinfo -R"),
        ("reason=AssocGrpCpuLimit\n", "AssocGrpCpuLimit", "sacctmgr"),
        ("reason=New \x1b[2J\n", "New \\x1b[2J", "REASON CODES"),
    ],
)
def test_slurms_reason_of_a_job_that_waited_comes_with_a_remedy(queue, reason, do) -> None:
    output = (GOLDEN / "busy.txt").read_text(encoding="utf-8")
    launcher = Launcher(queue=queue)
    found = slurm.scheduler_reason(launcher, "root", SLURM, RUN_ID, output)
    assert found.code == "slurm.pending" and do in found.values["remedy"]
    assert reason in (None, found.values["reason"])
    (asked,) = launcher.asked
    assert f"--name=baremetal-mpi-{RUN_ID}" in asked and "--states=all" in asked


def test_without_slurms_reason_salloc_speaks_and_others_are_not_asked() -> None:
    output = (GOLDEN / "busy.txt").read_text(encoding="utf-8")
    for queue in ("", "reason=None\n"):
        found = slurm.scheduler_reason(Launcher(queue=queue), "root", SLURM, RUN_ID, output)
        assert found.code == "srun.waited"
    for one, text in ((SLURM, "srun: error: node02: task 3: Killed"), (OPEN_MPI, output)):
        launcher = Launcher()
        assert (
            not slurm.scheduler_reason(launcher, "root", one, RUN_ID, text) and not launcher.asked
        )


@pytest.mark.parametrize("name", ["ALL", "None", "all"])
def test_a_variable_that_changes_what_srun_exports_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        a_job(tmp_path, environment={"X": "a,b", name: "1"})
    assert caught.value.args[0].values == {"names": name}
    assert a_job(tmp_path, environment={name: "1"}, launcher=OPEN_MPI)


def test_values_reach_ranks_whatever_they_contain(tmp_path: Path) -> None:
    """srun gets names only: it would split values at commas."""
    values = {"X": "a,ALL,b=c", "Y": "two\nlines 'x' $HOME", "PATH": "/a,b:/usr/bin:/bin"}
    one = a_job(tmp_path, environment=values, program=("env", "-0"))
    script = one.script(NODES).replace("#!/bin/sh -l\n", "")
    tools = tmp_path / "bin"
    tools.mkdir()
    body = """#!/bin/sh
    while [ "$1" != /usr/bin/env ]; do
      case $1 in --export=*) given=${1#*=} ;; esac
      shift
    done
    echo "$given" > "$OUT"
    while [ "$1" != env ]; do case $1 in PATH=*) path=$1 ;; esac; shift; done
    exec /usr/bin/env "$path" "$@"
    """
    (tools / "salloc").write_text(body)
    (tools / "salloc").chmod(0o755)
    env = {"PATH": f"{tools}:/usr/bin:/bin", "OUT": str(tmp_path / "out")}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    found = dict(each.partition("=")[::2] for each in done.stdout.split("\0"))
    assert {name: found[name] for name in values} == values
    exported = (tmp_path / "out").read_text().strip().split(",")
    assert exported[-3:] == ["X", "Y", "MPI_ROCE_KEEP=X Y"]


def test_a_request_that_slurm_refuses_has_its_words() -> None:
    told = "Job submit/allocate failed: Invalid partition name specified"
    found = SLURM.scheduler_reason(f"salloc: error: {told}\n")
    assert (found.code, found.values) == ("srun.refused", {"told": told})
    assert SLURM.scheduler_reason("") == OPEN_MPI.scheduler_reason("salloc: error: x") == ""


def test_causes_leave_out_what_slurm_always_prints() -> None:
    output = (GOLDEN / "noprog.txt").read_text(encoding="utf-8")
    first, *others = causes(output)
    assert first.startswith("/usr/local/libexec/baremetal-mpi-roce/rail-bind: 138: exec: ")
    assert not [line for line in others if "CANCELLED" in line or line.startswith("salloc")]
    aborted = causes((GOLDEN / "abort.txt").read_text(encoding="utf-8"))
    assert aborted[0].startswith("MPI_ABORT") and "step aborted" not in " ".join(aborted)
    nopmix = "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types"
    assert causes(f"salloc: Granted job allocation 1\n{nopmix}\n", known=True) == [nopmix]
    title = "# OSU MPI Latency Test"
    assert TAG.sub("", f"12: {title}") == title
    assert TAG.sub("", " 3: 8  1.23") == "8  1.23" and TAG.sub("", "8  1.23") == "8  1.23"


STATES = (GOLDEN / "nodes.txt").read_text(encoding="utf-8")


class Launcher:
    """Fake programs of Slurm on the launcher, and nodes that respond to ssh."""

    def __init__(self, nodes: str = STATES, test: str = "", rc: int = 0, queue: str = "") -> None:
        self.nodes, self.test, self.rc, self.queue = nodes, test, rc, queue
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        line = argv[-1]
        if line.startswith("echo "):
            return Result(tuple(argv), 0, "mpi-ready daemon yes\nmpi-ready end\n", "")
        if "command -v" in line:
            return Result(tuple(argv), int(self.rc == 127), "", "")
        self.asked.append(line)
        if "scontrol" in line:
            rc = 0 if self.nodes else 1
            wrong = "slurm_load_node error: Unable to contact slurm controller"
            return Result(tuple(argv), rc, self.nodes, "" if self.nodes else wrong)
        if "squeue" in line:
            return Result(tuple(argv), 0, self.queue, "")
        return Result(tuple(argv), self.rc, "", self.test)


def test_nodes_that_slurm_does_not_offer_are_missing_with_the_reason() -> None:
    """node01 runs a job, node02 is drained, node03 is idle, node05 completes a job."""
    nodes = [LaunchNode(f"node0{number}", 1, address=f"n{number}-rail0") for number in range(1, 6)]
    launcher = Launcher(queue="42 alice node[01,09]\n7_3 bob node01\nrubbish\n9 eve node[1-\n")
    found, gpus = slurm.offered(launcher, "root", nodes)
    assert gpus == {"n1-rail0": 0, "n2-rail0": 0, "n3-rail0": 8, "n5-rail0": 0}
    assert set(found) == {"n1-rail0", "n2-rail0", "n4-rail0"}
    codes = {host: (found[host].code, found[host].values) for host in found}
    assert codes["n1-rail0"] == (
        "slurm.allocated",
        {"state": "ALLOCATED", "jobs": "42 of alice, 7_3 of bob"},
    )
    drained = {"state": "IDLE+DRAIN", "reason": "bad cable on rail1"}
    assert codes["n2-rail0"] == ("slurm.closed", drained)
    assert codes["n4-rail0"] == ("slurm.unknown", {"name": "node04"})
    assert "--nodelist=node01" in launcher.asked[-1]
    problems, reported = preflight(launcher, "root", nodes, "tcp", SLURM)
    assert problems == found and [node.slurm_gpus for node in reported] == [0, 0, 8, 0, 0]
    assert preflight(Launcher(), "root", nodes, "tcp")[0] == {}, "mpirun does not ask Slurm"
    dead, _gpus = slurm.offered(Launcher(nodes=""), "root", nodes)
    assert len(dead) == 5 and "slurm_load_node" in dead["n3-rail0"]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        *((word, "slurm.closed") for word in ("DOWN", "FUTURE", "UNKNOWN", "IDLE*", "ALLOCATED*")),
        *((f"IDLE+{word}", "slurm.closed") for word in ("FAIL", "INVALID_REG", "NOT_RESPONDING")),
        *((f"IDLE+POWER{end}", "slurm.closed") for end in ("ED_DOWN", "ING_DOWN", "ING_UP")),
        *((f"IDLE+REBOOT_{end}", "slurm.closed") for end in ("ISSUED", "REQUESTED")),
        ("MIXED", "slurm.allocated"),
        *((word, "") for word in ("IDLE", "IDLE+RESERVED", "MIXED+COMPLETING")),
    ],
)
def test_states_of_nodes_in_which_slurm_starts_no_job(state: str, code: str) -> None:
    launcher = Launcher(nodes=STATES.replace("State=IDLE+DRAIN", f"State={state}"))
    found, _gpus = slurm.offered(launcher, "root", [LaunchNode("node02", 1)])
    assert [getattr(each, "code", "") for each in found.values()] == ([code] if code else [])


def test_a_reason_from_slurm_cannot_control_the_terminal() -> None:
    states = STATES.replace("bad cable on rail1", "bad \x1b[2J")
    found, _gpus = slurm.offered(Launcher(nodes=states), "root", [LaunchNode("node02", 1)])
    assert "\\x1b[2J" in found["node02"] and "\x1b" not in found["node02"]


def test_slurm_is_asked_before_the_job_whether_it_would_start_it() -> None:
    start = Start(RUN_ID, "", 3, 2, 90)
    soon = (datetime.datetime.now() + datetime.timedelta(seconds=5)).isoformat("T", "seconds")
    told = "srun: Job 14 to start at {} using 8 processors on nodes node[01-02] in partition all\n"
    launcher = Launcher(test=told.format(soon))
    assert slurm.refusal(launcher, "root", SLURM, start, NODES) == ""
    (asked,) = launcher.asked
    assert "--test-only --mpi=pmix '--nodelist=node[01-02]'" in asked and "--time=3" in asked
    late = Launcher(test=told.format("2199-11-29T08:57:55"))
    found = slurm.refusal(late, "root", SLURM, start, NODES)
    assert (found.code, found.values["time"]) == ("slurm.later", "2199-11-29T08:57:55")
    refusal = "allocation failure: Invalid partition"
    text = f"srun: error: invalid partition specified: nope\n{refusal}\n"
    refused = slurm.refusal(Launcher(test=text, rc=1), "root", SLURM, start, NODES)
    assert refused.split("; ") == ["srun: invalid partition specified: nope", refusal]
    assert slurm.refusal(late, "root", OPEN_MPI, start, NODES) == ""


def test_exactly_this_job_is_cancelled_whenever_the_unit_has_ended() -> None:
    assert slurm.cancel(OPEN_MPI, "mpi", RUN_ID) == []
    after = slurm.cancel(SLURM, "root", RUN_ID)
    assert after[:4] == ["runuser", "-u", "root", "--"]
    assert f"scancel --quiet --user=root --name=baremetal-mpi-{RUN_ID}" in after[-1]
    assert f"--job-name=baremetal-mpi-{RUN_ID}" in SLURM.start(Start(RUN_ID, "h", 1, 1, 9))
    argv = unit.bounded(["true"], "u", 9, after=["a b", 'c"$d%e\\'])
    assert '--property=ExecStopPost="a b" "c\\"$$d%%e\\\\"' in argv
    assert not [word for word in unit.bounded(["true"], "u", 9) if "ExecStopPost" in word]


class Job:
    """Fake process of a job that is stopped."""

    def __init__(self, ends_within_s: float) -> None:
        self.ends_within_s = ends_within_s
        self.waited: list[float] = []

    def wait(self, timeout: float) -> int:
        self.waited.append(timeout)
        if self.ends_within_s > timeout:
            raise subprocess.TimeoutExpired("job", timeout)
        return 143


@pytest.mark.parametrize("seconds", [1, 60])
def test_ranks_have_time_before_the_unit_is_stopped(tmp_path: Path, seconds: float) -> None:
    ran: list[str] = []

    def here(argv: Sequence[str], **_given: Any) -> Result:
        ran.append("scancel" if "scancel" in argv[-1] else " ".join(argv[:2]))
        return Result(tuple(argv), 0, "", "")

    process: Any = Job(seconds)
    run._stop(a_job(tmp_path), process, here)
    assert ran == ["scancel", "systemctl stop"] and process.waited == [unit.GRACE_S]
    del ran[:]
    run._stop(a_job(tmp_path, launcher=OPEN_MPI), process, here)
    assert ran == ["systemctl stop"] and process.waited == [unit.GRACE_S]


def test_a_job_that_slurm_refuses_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("node01 slots=2\nnode02 slots=1\n", encoding="utf-8")
    launcher = Launcher(test="srun: error: Invalid MPI type 'pmix'\n", rc=1)
    launcher.nodes = STATES.replace("ALLOCATED", "IDLE").replace("+DRAIN", "")
    missing = Launcher(test="", rc=127)
    one = a_job(tmp_path, transport="tcp", storage=False)
    for fake, words in ((launcher, "Invalid MPI type"), (missing, "srun not found")):
        with pytest.raises(PlanError, match=words):
            run.run(one, fake, lambda _text: None, os.getuid(), os.getgid())
    assert not one.directory.exists()


def test_the_task_prolog_leaves_what_the_job_sets(tmp_path: Path) -> None:
    text = TASK_PROLOG.read_text(encoding="utf-8")
    environment = tmp_path / "mpi.env"
    environment.write_text("UCX_TLS=rc\nUCX_IB_SL=3\nUCX_TLS_X=1\n", encoding="utf-8")
    text = text.replace("/etc/baremetal-mpi-roce/mpi.env", str(environment))
    text = text.replace("/etc/profile.d/baremetal-mpi-roce.sh", str(tmp_path / "profile"))
    (tmp_path / "profile").write_text(f"set -a; . {environment}; set +a\n", encoding="utf-8")

    def printed(**given: str) -> list[str]:
        path = {"PATH": os.environ["PATH"], **given}
        done = subprocess.run(
            ["sh", "-c", text], env=path, check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    every = ["export UCX_TLS=rc", "export UCX_IB_SL=3", "export UCX_TLS_X=1"]
    assert printed() == every
    assert printed(UCX_TLS="tcp") == every, "srun passes on the variables of its host"
    assert printed(UCX_TLS="tcp", MPI_ROCE_KEEP="TOKEN UCX_TLS") == every[1:]
    assert printed(UCX_TLS="tcp", MPI_ROCE_KEEP="UCX_TLS_X") == every[:2], "a name, not a part"
    (tmp_path / "profile").unlink()
    assert printed() == [], "Slurm ends tasks whose prolog fails"


@pytest.mark.parametrize(("status", "requeued"), [(0, False), (1, False), (143, True)])
def test_the_example_is_requeued_after_a_checkpoint(
    tmp_path: Path, status: int, requeued: bool
) -> None:
    """With fake programs of Slurm; tests/integration/test_srun.py has the real ones."""
    log = tmp_path / "log"
    for name, code in (("srun", status), ("scontrol", 0)):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{log}\nexit {code}\n')
        program.chmod(0o755)
    text = BATCH.read_text(encoding="utf-8").replace("/etc/profile.d/", f"{tmp_path}/")
    (tmp_path / "baremetal-mpi-roce.sh").write_text("CLUSTER_CHECKPOINT_DIR=/mnt/c\n")
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "run7", "SLURM_JOB_NODELIST": "node01"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **given}
    argv = ["bash", "-c", text, "train.sbatch", "/srv/train.py", "--seed", "x y"]
    done = subprocess.run(argv, env=path, check=False, capture_output=True, text=True)
    started, *others = log.read_text(encoding="utf-8").splitlines()
    assert done.returncode == status and others == ["scontrol requeue 7"] * requeued
    assert started.endswith(" python3 /srv/train.py --seed x y --checkpoints /mnt/c/run7")
    (tmp_path / "baremetal-mpi-roce.sh").write_text("")
    done = subprocess.run(argv, env=path, check=False, capture_output=True, text=True)
    assert done.returncode != 0 and "CLUSTER_CHECKPOINT_DIR" in done.stderr


def test_the_example_starts_ranks_like_a_run() -> None:
    """Slurm chooses its nodes, and ranks get the variables of the script."""
    text = BATCH.read_text(encoding="utf-8").replace("$tools", PROGRAM_DIRECTORY)
    text = text[text.index("\nsrun ") : text.index("\nstatus=")].replace("\\\n", "")
    ours = [word for word in shlex.split(text) if word.startswith("--")]
    argv = [*command(RunPlan(NODES, "tcp", launcher=SLURM), "h", RUN_ID, 9), *SLURM.label]
    own = [word for word in argv[argv.index("srun") :] if word.startswith("--")]
    assert {*ours} - {*own} == {"--checkpoints"}
    differing = {word.partition("=")[0] for word in {*own} - {*ours}}
    chosen = {"--nodelist", "--distribution", "--ntasks", "--overcommit"}
    assert differing == {*chosen, "--export", "--run-id", "--spec"}
    batch = re.findall(r"^#SBATCH (\S+)$", BATCH.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"--exclusive", "--mem=0", "--requeue", "--open-mode=append"} <= {*batch}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the stages of ./test, each with its time and result, and print one table at the end.

Stages with virtual nodes run one by one on the same nodes, and often wait. Stages without
nodes run in parallel, at a lower priority. Virtual machines come after these; they are
separate nodes. Once the first queue is empty, the second one runs two stages at a time. Every stage
runs, whether or not earlier ones passed, so that one run shows all failures.

The last lines list the slowest tests; build/test/times.json has every test. docs/testing.md
explains both.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

from tests import waiting
from tools import bed

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "collections"))

from ansible_collections.baremetal.bed.plugins.modules.virtual_requirements import (  # noqa: E402
    shortages,
)

BIN = TOP / ".venv/bin"
LOGS = TOP / "build/test"
ROOT = Path("/")
"""Root of the file system whose free resources are checked."""
LANES = 2
"""Number of stages of the second queue that run in parallel once the first queue is empty."""
GIVES_WAY = 5
"""Niceness of stages that run next to nodes, whose tests have time limits."""
GIVE_WAY = """
if [ -e /proc/self/autogroup ]; then echo "$0" >/proc/self/autogroup || true; fi
exec nice -n "$0" "$@"
"""
"""Also used for niceness 0, so that a missing program fails only its own stage. Kernels that
group processes by session schedule these groups evenly: niceness counts only within a session.
Each stage is a session, and sets the priority of its group."""
ON_NODES = Path("/run/lock/baremetal.mpi_roce.test")
"""Locked while stages with nodes run: names and networks of nodes exist once per machine."""
PROGRESS_S = 10 if sys.stdout.isatty() else 30
COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(TOP / "build/pycache")}
"""Keep the bytecode of Python and pytest, whatever the caller's environment says: preparing all
test modules takes pytest seconds in each worker."""
LINTED = ("roles", "playbooks", "tests/bed/roles", "tests/bed/playbooks")
"""Paths for ansible-lint. The whole tree takes twice as long and is checked with --all."""
MACHINE_SCENARIOS = ("site_rdma",)
"""Scenarios that always run. The stage integration covers the others, which are for work on one
role and run with --all."""
READ_ONLY_SCENARIOS = (
    "cluster_hosts",
    "mpi_hostfile",
    "mpi_stack",
    "os_baseline",
    "roce_rails",
    "ssh_trust",
)
"""Scenarios whose tests examine the result of a role. They run on the cluster of
tests/integration, after check mode on new nodes. test_drift.py shows that check mode is silent
on converged ones."""
ON_THE_CLUSTER = (
    "molecule/shared/fresh",
    "tests/integration",
    *(f"molecule/{name}/tests" for name in ("site", *READ_ONLY_SCENARIOS, "lustre_client")),
)
BED_UNIT = "test bed"
BED_NODES = "test bed integration"
BED_MACHINES = "test bed machines"
OF_BED = (BED_UNIT, BED_NODES, BED_MACHINES)
"""These stages include long tests, because no other test covers them."""
NEEDED = {"nodes": 5, "switches": 10, "machines": {}}
"""Virtual nodes and switches of the largest cluster of a stage, which has the demo's size."""
TAIL_LINES = 60
TOLD = re.compile(r"(fatal|failed|ERROR)\b.*:")
"""What failed in a play, which the end of a Molecule scenario does not repeat."""
MAX_LINE = 1000
MAX_LISTED_TESTS = 20
"""Number of tests that are listed with their times."""
MAX_LISTED_FAILURES = 10
"""Number of failed tests that are repeated below the table; the log has all of them."""


@dataclass(frozen=True)
class Stage:
    name: str
    argv: Sequence[str]
    fast: bool = True
    nodes: bool = False
    machines: bool = False
    """The nodes are virtual machines, which share nothing with the containers."""
    pytest: bool = False
    """Its tests are counted individually, from pytest's report."""
    minutes: float = 30
    """Time limit on a machine of factor 1 (tests/waiting.py)."""
    long: bool = False
    """Runs with --all, or when selected by --only."""
    needs: str = ""
    """The stage without which this one cannot run."""

    @property
    def in_containers(self) -> bool:
        """Whether it starts virtual nodes that are containers. Building images starts none."""
        return self.nodes and not self.machines and bool(self.needs)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace(' ', '-')}.log"

    @property
    def junit(self) -> Path:
        return self.log.with_suffix(".xml")


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    remark: str = ""
    bad_tests: list[str] = field(default_factory=list)
    tests: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and name of each test, including the fixtures that it used first."""


@dataclass
class Running:
    stage: Stage
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)
    shown: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def tracked(*patterns: str) -> list[str]:
    """List the project's files, including those not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(name for name in set(listed) if (TOP / name).is_file())


def shell_scripts() -> list[str]:
    scripts = []
    for name in tracked("demo", "test", ".ci/*", "*.sh", "tools/*", "*roles/*/files/*"):
        with open(TOP / name, "rb") as stream:
            first = stream.readline()
        if name.endswith(".sh") or (first.startswith(b"#!") and first.rstrip().endswith(b"sh")):
            scripts.append(name)
    return scripts


def pytest(*words: str) -> list[str]:
    return [str(BIN / "pytest"), "-q", "--color=no", *words]


def stages(fast: bool = False, whole: bool = False, bed_differs: bool = True) -> list[Stage]:
    """Return every stage, the long ones of each kind first. `whole`: with tests marked `long`."""
    on_nodes = "nodes" if whole else "nodes and not long"
    unit = "not nodes and not gpu" + (" and not slow" if fast else "")
    lint = ["ansible-lint", "--nocolor", "-q", *([] if whole else LINTED)]
    same_bed = not bed_differs
    return [
        Stage(
            "unit",
            pytest("-n", "2", "-m", unit, "tests/unit"),
            pytest=True,
            minutes=60,
        ),
        Stage(
            BED_UNIT,
            pytest("-n", "2", "-m", unit, bed.UNIT_TESTS),
            pytest=True,
            long=same_bed,
        ),
        Stage(
            "gpu", pytest("-m", "gpu", "tests/gpu"), pytest=True
        ),  # skipped on machines without a GPU
        Stage("ansible-lint", lint, fast=False),
        Stage("mypy", ["mypy"]),
        Stage("yamllint", ["yamllint", "--strict", *tracked("*.yml", "*.yaml")]),
        Stage("shellcheck", ["shellcheck", *shell_scripts()]),
        Stage("ruff check", ["ruff", "check", "--quiet", "."]),
        Stage("ruff format", ["ruff", "format", "--check", "."]),
        Stage("changelog", ["antsibull-changelog", "lint"]),
        Stage("sanity", ["tools/sanity.sh", *(["--all"] if whole else [])], fast=False),
        Stage("package", ["tools/package.sh"], fast=False),
        Stage("images", ["tools/node_images.sh"], fast=False, nodes=True, minutes=15),
        Stage(
            "integration",
            # -vv, so that progress shows the test's name
            pytest("-m", on_nodes, "-vv", *ON_THE_CLUSTER),
            fast=False,
            nodes=True,
            pytest=True,
            minutes=60,
            needs="images",
        ),
        Stage(
            BED_NODES,
            pytest("-m", "nodes", "-vv", bed.INTEGRATION_TESTS),
            fast=False,
            nodes=True,
            pytest=True,
            long=same_bed,
            needs="images",
        ),
        *(
            molecule(name, minutes=20, needs="images")
            for name in sorted(Path(path).parts[1] for path in tracked("molecule/*/molecule.yml"))
            if name not in MACHINE_SCENARIOS
        ),
        *machine_stages(same_bed),
    ]


def molecule(name: str, *, minutes: float, needs: str) -> Stage:
    argv = ["molecule", "test", "--no-command-borders", "--scenario-name", name]
    return Stage(
        f"molecule {name}",
        argv,
        fast=False,
        nodes=True,
        minutes=minutes,
        long=name not in MACHINE_SCENARIOS,
        needs=needs,
    )


def machine_stages(same_bed: bool) -> list[Stage]:
    """Return the stages on virtual machines."""
    images = "machine images"
    return [
        Stage(
            images,
            ["tools/node_images.sh", "machines"],
            fast=False,
            nodes=True,
            machines=True,
            minutes=15,
        ),
        *(
            Stage(
                name,
                pytest("-m", "machines", "-vv", tests),
                fast=False,
                nodes=True,
                machines=True,
                pytest=True,
                minutes=45,
                long=long,
                needs=images,
            )
            for name, tests, long in (
                ("machine integration", "tests/integration", True),  # site_rdma is its shorter case
                (BED_MACHINES, bed.INTEGRATION_TESTS, same_bed),
            )
        ),
        *(
            replace(molecule(name, minutes=30, needs=images), machines=True)
            for name in MACHINE_SCENARIOS
        ),
    ]


def start(stage: Stage, niceness: int = 0) -> Running:
    say(f"      {stage.name} ...")
    argv = [*stage.argv, f"--junitxml={stage.junit}"] if stage.pytest else list(stage.argv)
    argv = ["sh", "-c", GIVE_WAY, str(niceness), *argv]
    stage.junit.unlink(missing_ok=True)
    with open(stage.log, "wb") as log:
        process = subprocess.Popen(
            argv,
            cwd=TOP,
            env={
                **os.environ,
                "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
                "PYTHONUNBUFFERED": "1",
                "NO_COLOR": "1",
                **(COMPILED if stage.pytest and not stage.nodes else {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(stage, process)


def finish(running: Running) -> Outcome:
    stage, code = running.stage, running.process.returncode
    outcome = Outcome(seconds=running.seconds)
    report = report_of(stage)
    if report is not None:
        for suite in report.iter("testsuite"):
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            outcome.failed += bad
            outcome.skipped += skipped
            outcome.passed += int(suite.get("tests", 0)) - bad - skipped
            outcome.bad_tests += bad_tests(suite)
            outcome.tests += [
                (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
                for case in suite.iter("testcase")
            ]
    else:
        outcome.passed = int(code == 0)
    if code != 0 and not outcome.failed:  # even if pytest crashed, or found no test
        outcome.failed = 1
    verdict = "ok  " if code == 0 else "FAIL"
    counts = f", {outcome.passed} passed, {outcome.skipped} skipped" if stage.pytest else ""
    say(f"{verdict}  {stage.name}: {outcome.seconds:.1f} s{counts}")
    for line in outcome.bad_tests:
        say(f"      FAILED {line}")
    for line in lines_of(stage):
        if line.startswith(("skipped: ", "SKIPPED ")):
            say(f"      {line}")
    if code != 0:
        outcome.remark = f"exit status {code}, see {stage.log.relative_to(TOP)}"
        lines = lines_of(stage)
        told = [line for line in lines[:-TAIL_LINES] if not stage.pytest and TOLD.match(line)]
        for line in (*told[:MAX_LISTED_FAILURES], *lines[-TAIL_LINES:]):
            say(f"      | {line[:MAX_LINE]}")
    return outcome


def report_of(stage: Stage) -> Optional[ElementTree.Element]:
    """Return pytest's report. None if there is none, or if pytest was killed while writing it."""
    if not stage.pytest or not stage.junit.exists():
        return None
    try:
        return ElementTree.parse(stage.junit).getroot()
    except ElementTree.ParseError:
        return None


def bad_tests(suite: ElementTree.Element) -> list[str]:
    """Return the failed tests of a suite, each with the first line of its message."""
    failed = []
    for case in suite.iter("testcase"):
        for problem in (*case.iter("failure"), *case.iter("error")):
            first = (problem.get("message") or "").partition("\n")[0]
            failed.append(f"{case.get('classname')}::{case.get('name')}: {first}"[:300])
    return failed


def lines_of(stage: Stage) -> list[str]:
    return stage.log.read_text(encoding="utf-8", errors="replace").splitlines()


@dataclass
class NodesLock:
    """The lock for the names and networks of virtual nodes, which exist once per machine."""

    lock: Path
    file: int = -1

    def acquire(self) -> bool:
        """Acquire the lock until the end of this run. Returns whether it is held."""
        first = self.file < 0
        if first:
            self.file = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if first:
                say(f"      Another ./test uses the nodes of this machine ({self.lock}): waiting.")
            return False
        return True


@dataclass
class Lane:
    """A queue of stages, of which `width` run in parallel, but only one with nodes."""

    queue: list[Stage]
    nodes_lock: Optional[NodesLock] = None
    """Lock that stages with nodes wait for."""
    niceness: int = 0
    """Niceness of stages without nodes."""
    width: int = 1
    alone: int = 1
    """The width once the other lanes are finished."""
    active: list[Running] = field(default_factory=list)

    def next(self, outcomes: dict[str, Outcome]) -> None:
        """Start stages while the lane has capacity. A stage whose requirement failed has failed."""
        while self.queue and len(self.active) < self.width:
            stage = self.queue[0]
            if stage.nodes and any(running.stage.nodes for running in self.active):
                return
            if stage.nodes and self.nodes_lock is not None and not self.nodes_lock.acquire():
                return
            self.queue.pop(0)
            remark = ""
            if stage.needs in outcomes and outcomes[stage.needs].failed:
                remark = f"could not run without {stage.needs}"
            elif stage.in_containers and os.geteuid() == 0:
                remark = "; ".join(shortages(NEEDED, ROOT))
            if remark:
                outcomes[stage.name] = Outcome(failed=1, remark=remark)
                say(f"FAIL  {stage.name}: {remark}")
            else:
                self.active.append(start(stage, 0 if stage.nodes else self.niceness))

    def poll(self, outcomes: dict[str, Outcome]) -> None:
        for running in list(self.active):
            if running.process.poll() is not None:
                self.active.remove(running)
                outcomes[running.stage.name] = finish(running)
            else:
                watch(running)


def lanes(queue: Sequence[Stage]) -> list[Lane]:
    containers = [stage for stage in queue if stage.nodes and not stage.machines]
    others = [stage for stage in queue if not stage.nodes]
    machines = [stage for stage in queue if stage.machines]
    nodes_lock = (
        NodesLock(ON_NODES) if os.geteuid() == 0 else None
    )  # without root no node can be started
    niceness = GIVES_WAY if containers or machines else 0
    both = [
        Lane(containers, nodes_lock),
        Lane([*others, *machines], nodes_lock, niceness, alone=LANES),
    ]
    return [lane for lane in both if lane.queue]


def run(every: Sequence[Lane], outcomes: dict[str, Outcome]) -> None:
    """Run the stages of each lane in order, and the lanes in parallel."""
    try:
        while any(lane.queue or lane.active for lane in every):
            for lane in every:
                if not any(other.queue or other.active for other in every if other is not lane):
                    lane.width = lane.alone
                lane.next(outcomes)
            time.sleep(0.05)
            for lane in every:
                lane.poll(outcomes)
    finally:
        with signals_ignored():
            for lane in every:
                for running in lane.active:
                    end(running)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore further signals while stages are terminated, so that none is left running."""
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in both]
    try:
        yield
    finally:
        for number, handler in zip(both, before):
            signal.signal(number, handler)


def watch(running: Running) -> None:
    """Show progress of a long stage, and terminate a stage that exceeds its limit."""
    limit_s = waiting.deadline(running.stage.minutes * 60)
    if running.seconds > limit_s:
        with open(running.stage.log, "a", encoding="utf-8") as log:
            log.write(f"\nTerminated after its limit of {limit_s:.0f} s.\n")
        end(running)
    elif time.monotonic() - running.shown >= PROGRESS_S:
        running.shown = time.monotonic()
        last = next((line for line in reversed(lines_of(running.stage)) if line.strip()), "")
        say(f"      {running.stage.name}: {running.seconds:.0f} s, {last.strip()[:100]}")


def end(running: Running) -> None:
    """Terminate a stage and all its child processes."""
    started = descendants(running.process.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, number)
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(timeout=10)


def descendants(pid: int) -> list[int]:
    """Return a process and its descendants. Ansible's workers have separate sessions and groups."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(descendant for child in children for descendant in descendants(int(child)))]


def say(line: str) -> None:
    print(line, flush=True)


def close(outcomes: dict[str, Outcome], seconds: float) -> int:
    """Print times, the table, and the totals. Returns the exit status."""
    tests = sorted(
        ((took, name, test) for name, outcome in outcomes.items() for took, test in outcome.tests),
        reverse=True,
    )
    times = {
        "seconds": round(seconds, 1),
        "machine_factor": round(waiting.factor(), 2),
        "stages": {name: round(outcome.seconds, 1) for name, outcome in outcomes.items()},
        "tests": [{"seconds": took, "stage": name, "test": test} for took, name, test in tests],
    }
    (LOGS / "times.json").write_text(json.dumps(times, indent=1), encoding="utf-8")
    if tests:
        say("")
        say(f"The {min(MAX_LISTED_TESTS, len(tests))} slowest of {len(tests)} tests:")
        for took, name, test in tests[:MAX_LISTED_TESTS]:
            say(f"      {took:7.1f} s  {name}: {test}"[:150])
    say("")
    for name, outcome in outcomes.items():
        verdict = "FAIL" if outcome.failed else "ok"
        took = f"{outcome.seconds:7.1f} s {outcome.seconds / seconds:5.0%}"
        say(f"{verdict:4}  {took}  {name}  {outcome.remark}".rstrip())
        for line in outcome.bad_tests[:MAX_LISTED_FAILURES]:
            say(f"                 FAILED {line}")
    say(f"      {seconds:7.1f} s        in total, on a machine of factor {waiting.factor():.2f}")
    say("")
    total = {
        kind: sum(getattr(outcome, kind) for outcome in outcomes.values())
        for kind in ("passed", "failed", "skipped")
    }
    say("{passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return int(total["failed"] > 0 or total["passed"] == 0)


def chosen(every: Iterable[Stage], options: argparse.Namespace) -> list[Stage]:
    every = list(every)
    if options.fast:
        every = [stage for stage in every if stage.fast]
    if options.only:
        names = {stage.name for stage in every}
        wanted = [
            stage
            for stage in every
            if any(
                word == stage.name if word in names else word in stage.name for word in options.only
            )
        ]
        needed = {stage.needs for stage in wanted}
        every = [stage for stage in every if stage in wanted or stage.name in needed]
    elif not options.all:
        every = [stage for stage in every if not stage.long]
    return every


def main() -> int:
    parser = argparse.ArgumentParser(prog="./test")
    parser.add_argument("--fast", action="store_true", help="only stages without virtual nodes")
    parser.add_argument("--all", action="store_true", help="include long stages")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="stages named WORD, or with WORD in their name"
    )
    parser.add_argument("--list", action="store_true", help="list the stages")
    options = parser.parse_args()
    bed_differs = bed.differs()
    queue = chosen(stages(options.fast, options.all, bed_differs), options)
    if not queue:
        parser.error("no such stage; ./test --list names them")
    if options.list:
        for stage in queue:
            say(stage.name)
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    if options.fast:
        os.environ.setdefault("HYPOTHESIS_PROFILE", "fast")  # tests/unit/conftest.py
        say("      fast: fewer random examples, without slow unit tests;")
        say("      ./test --only unit runs all of them")
    if options.all:
        os.environ.setdefault("HYPOTHESIS_PROFILE", "random")
    os.environ.setdefault(waiting.VARIABLE, f"{waiting.factor():.3f}")
    say(f"      This machine: factor {waiting.factor():.2f}; time limits are multiplied by it.")
    bed_state = "changed since its tests last passed: they run" if bed_differs else "is unchanged"
    say(f"      The test bed {bed_state} ({bed.RECORD}).")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Terminated by SIGTERM."))
    began = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    run(lanes(queue), outcomes)
    in_order = {stage.name: outcomes[stage.name] for stage in queue}
    of_bed = [in_order.get(name) for name in OF_BED]
    if all(outcome is not None and not outcome.failed for outcome in of_bed) and bed.passed():
        say(f"      The tests of the test bed passed: commit {bed.RECORD} with the change.")
    return close(in_order, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program node-check: modes, exit statuses, outputs, what it remembers and what hangs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.bounded import WorkResult
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
    Result,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (
    CHECK,
    LINKS,
    PERIODIC,
    PROLOG,
    SETTINGS,
    STATE,
    drain,
    parallel,
    program,
    verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.parallel import Look
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.settings import (
    Settings,
    SettingsError,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_node_check_drain import Slurm, cluster

LINK = Check("rail_link", "up", "no carrier", FAILED, "rail0", "check the cable")
FILE = Check("file", "as written", "edited", FAILED, "/etc/x", "run: site.yml --tags mpi")
GOOD = Check("node_space", "x", "x", OK, "/")


@dataclass
class Machine:
    """A node whose looks give these checks, by the name of the look."""

    root: Path
    slurm: Slurm
    seen: dict[str, list[Check]] = field(default_factory=dict)
    quick: set[str] = field(default_factory=lambda: {"rails"})
    now: float = 1_800_000_000.0
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> int:
        settings = Settings(host="node01", **self.settings)
        path = self.root / SETTINGS
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings.text())
        clock = lambda sight: replace(sight, now=lambda: self.now)  # noqa: E731
        words = (*words, "--root", str(self.root))
        return program.main(words, self.environment, change=clock)

    def looks(self, sight: Any) -> list[Look]:
        names = self.quick if sight.mode == PROLOG else {*self.seen, *self.quick}
        return [Look(name, lambda _run, n=name: self.of(n)) for name in sorted(names)]

    def of(self, name: str) -> tuple[Sequence[Check], dict[str, Any]]:
        state = {"rail0 node_link_downs": ["b", 1, 5, []]} if name == "rates" else {}
        return self.seen.get(name, [GOOD]), state

    def state(self, name: str) -> Any:
        return json.loads((self.root / STATE / name).read_text())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("boot-1\n")
    made = Machine(tmp_path, cluster(4))
    monkeypatch.setattr(program, "looks", made.looks)
    monkeypatch.setattr(parallel, "bounded_runner", lambda *_args: made.slurm.run)
    yield made


# Modes and exit statuses


@pytest.mark.parametrize(
    ("checks", "status"), [([GOOD], 0), ([FILE], 0), ([LINK], 1), ([LINK, FILE], 1)]
)
def test_warnings_are_no_faults(checks: list[Check], status: int, machine: Machine, capsys) -> None:
    machine.seen["rails"] = checks
    assert machine.run("node-check") == status
    out = capsys.readouterr().out
    assert ("FAULT rail_link rail0" in out) is (LINK in checks)
    assert ("warning file /etc/x" in out) is (FILE in checks)


def test_unreadable_settings(machine: Machine, capsys: Any) -> None:
    for name, status in (("node-check", 2), *((link, 0) for link in LINKS)):
        assert program.main([name, "--root", str(machine.root)], {}) == status
    assert program.main(["node-check", "--nagios", "--root", str(machine.root)], {}) == 3
    assert "run the role node_check" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(LINKS))
def test_no_error_of_its_own_takes_a_node_out(
    name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Each may be the same on all nodes, and Slurm counts no nodes that their prolog drains."""
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]
    for what in ("sinfo", "scontrol", "update"):
        machine.slurm.fails[what] = PermissionError(errno.EACCES, "Permission denied")
    assert machine.run(name) == 0 and machine.slurm.updates == []
    machine.slurm.fails.clear()
    machine.settings["drain"] = False
    odd = {"boot": "boot-1", "at": machine.now - 1, "looks": {"x": 5, "y": [{"status": "failed"}]}}
    path = machine.root / STATE / program.LAST
    path.parent.mkdir(parents=True, exist_ok=True)
    for text in (json.dumps(odd), "[]", "{", "\0"):
        path.write_text(text)
        (path.parent / parallel.LEFT).write_text('{"rails": [[Infinity, "1"]]}')
        assert machine.run(name) == 0 and "Traceback" not in capsys.readouterr().err
    for content in (b"\xff\xfe{", b"[" * 100_000):
        (machine.root / SETTINGS).write_bytes(content)
        assert program.main([name, "--root", str(machine.root)], {}) == 0
        assert program.main(["node-check", "--root", str(machine.root)], {}) == 2
    monkeypatch.setattr(program, "checked", lambda *_args: 1 / 0)
    assert machine.run(name) == 0 and "ZeroDivisionError" in capsys.readouterr().err


def test_a_closed_output_changes_no_exit_status(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]

    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    assert machine.run("slurm-prolog") == 1 and machine.slurm.ours == ["node01"]


@pytest.mark.parametrize("name", sorted(LINKS))
def test_slurm_takes_no_node_out_without_consent(name: str, machine: Machine) -> None:
    """Slurm drains a node whose prolog or epilog fails, and retries a failing health check."""
    machine.seen["rails"] = machine.seen["leftovers"] = [LINK]
    assert machine.run(f"/usr/local/libexec/x/{name}") == 0
    assert machine.slurm.updates == []


def test_a_prolog_drains_with_consent_and_fails(machine: Machine, capsys: Any) -> None:
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]
    machine.environment["SLURMD_NODENAME"] = "node03"
    assert machine.run("slurm-prolog") == 1
    assert machine.slurm.nodes["node03"] == f"{drain.REASON} rail_link rail0"
    machine.environment["SLURMD_NODENAME"] = "node02"
    assert machine.run("slurm-prolog") == 0  # the breaker
    assert machine.slurm.ours == ["node03"] and "1 of 4 nodes" in capsys.readouterr().out


def test_a_health_check_drains_and_resumes_but_never_fails(machine: Machine) -> None:
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]
    assert machine.run("slurm-health-check") == 0 and machine.slurm.ours == ["node01"]
    assert machine.run("slurm-prolog") == 1  # drained before
    machine.seen["rails"] = [FILE]
    assert machine.run("slurm-prolog") == 0 and machine.slurm.ours == ["node01"]
    assert machine.run("slurm-health-check") == 0 and machine.slurm.ours == []


def test_no_node_is_resumed_while_a_look_cannot_read_it(machine: Machine) -> None:
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]
    machine.run("node-check", "--periodic")
    machine.seen["rails"] = [Check(parallel.UNREAD, "reads the node", "error", FAILED, "rails")]
    assert machine.run("node-check", "--periodic") == 0 and machine.slurm.ours == ["node01"]
    machine.seen["rails"] = [GOOD]
    assert machine.run("node-check", "--periodic") == 0 and machine.slurm.ours == []


def test_a_check_by_hand_neither_drains_nor_remembers(machine: Machine) -> None:
    machine.settings["drain"] = True
    machine.seen["rails"] = [LINK]
    before = sorted(machine.root.rglob("*"))
    assert machine.run("node-check", "--json") == 1
    (machine.root / SETTINGS).unlink()
    (machine.root / SETTINGS).parent.rmdir()
    (machine.root / "etc").rmdir()
    assert machine.slurm.updates == [] and sorted(machine.root.rglob("*")) == before


# What a periodic run tells the next prolog


def test_a_prolog_knows_what_the_last_periodic_run_found(machine: Machine, capsys: Any) -> None:
    gpu = Check("gpu_ecc", 0, 1, FAILED, "gpu3")
    machine.seen.update(gpus=[gpu, GOOD], rails=[LINK])
    machine.run("node-check", "--periodic")
    machine.seen["rails"] = [GOOD]  # repeated by the prolog itself
    capsys.readouterr()

    def found(status: int, *, after_s: float = 0.0) -> list[str]:
        machine.now += after_s
        assert machine.run("node-check", "--prolog", "--json") == status
        return [each["name"] for each in json.loads(capsys.readouterr().out)["findings"]]

    assert found(1) == ["gpu_ecc"]
    assert found(0, after_s=3 * 300 + 1) == []  # too old
    machine.run("node-check", "--periodic")
    capsys.readouterr()
    assert found(1) == ["gpu_ecc"]
    assert found(0, after_s=-10_000.0) == []  # of the future
    machine.now += 10_000.0
    (machine.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert found(0) == []


def test_a_look_that_is_late_is_no_fault_in_a_prolog_unless_the_last_periodic_run_found_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real = parallel.look_all
    late = Check("storage_mount", parallel.ANSWERS, "no answer", FAILED, "/shared")
    seen = {"rails": parallel.Seen([late], late=True)}
    slow = lambda *_args: seen  # noqa: E731

    def found(mode: str, status: int) -> list[tuple[str, str]]:
        capsys.readouterr()
        assert machine.run("node-check", mode, "--json") == status
        listed = json.loads(capsys.readouterr().out)["findings"]
        return [(each["name"], each["subject"]) for each in listed]

    monkeypatch.setattr(parallel, "look_all", slow)
    assert found("--prolog", 0) == [("node_look_error", "/shared")]
    assert found("--periodic", 1) == [("storage_mount", "/shared")]
    assert ("storage_mount", "/shared") in found("--prolog", 1)
    monkeypatch.setattr(parallel, "look_all", real)  # it is back
    assert found("--prolog", 0) == []


@given(st.dictionaries(st.sampled_from(["boot", "at", "looks", "x"]), st.none() | st.text()))
def test_a_state_of_another_form_finds_nothing(last: dict[str, Any]) -> None:
    class Sight:
        settings = Settings()
        now = staticmethod(lambda: 0.0)

        class node:
            boot_id = "b"

    assert program.standing({**last, "boot": "b"}, set(), Sight) == []  # type: ignore[arg-type]


# Outputs


def outputs(*checks: Check, **more: Any) -> verdict.NodeVerdict:
    return verdict.judge("node01", CHECK, [GOOD, *checks], at=7, seconds=0.25, **more)


HOSTILE = Check("rail_link", "up", 'x"y\\z', FAILED, 'r"a\\i\nl|0', 'bad | "quoted" \\ \n\x1b[2J')


def test_json_has_the_next_step(machine: Machine) -> None:
    told = json.loads(verdict.as_json(outputs(LINK, FILE), 1))
    assert (told["verdict"], told["exit_status"], told["host"]) == ("fault", 1, "node01")
    assert told["checks"] == {"ok": 1, "failed": 2, "not_applicable": 0}
    assert [(x["name"], x["severity"], x["next"]) for x in told["findings"]] == [
        ("rail_link", "fault", "cable"),
        ("file", "warning", "run_layer"),
    ]
    assert "--tags mpi --limit node01" in told["findings"][1]["next_step"]


@pytest.mark.parametrize(
    ("checks", "status", "word"), [([], 0, "OK"), ([FILE], 1, "WARNING"), ([LINK], 2, "CRITICAL")]
)
def test_nagios(checks: list[Check], status: int, word: str, machine: Machine, capsys: Any) -> None:
    assert verdict.nagios(outputs(*checks))[0] == status
    machine.seen["rails"] = checks or [GOOD]
    assert machine.run("node-check", "--nagios") == status
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"NODE {word} - ") and first.count("|") == 1


def test_metrics(machine: Machine, tmp_path: Path) -> None:
    target = tmp_path / "node_exporter/check.prom"
    machine.settings["textfile"] = str(target)
    machine.seen.update(rates=[GOOD], rails=[LINK, LINK, FILE])
    machine.run("node-check", "--periodic")
    lines = target.read_text().splitlines()
    assert "baremetal_node_check_healthy 0" in lines
    assert f"baremetal_node_check_time_seconds {int(machine.now)}" in lines
    assert 'baremetal_node_link_downs_total{rail="rail0"} 5' in lines
    found = [line for line in lines if line.startswith("baremetal_node_check_finding{")]
    assert found == [
        'baremetal_node_check_finding{check="rail_link",subject="rail0",severity="fault",'
        'next="cable"} 1',
        'baremetal_node_check_finding{check="file",subject="/etc/x",severity="warning",'
        'next="run_layer"} 1',
    ]
    assert [path.name for path in target.parent.iterdir()] == ["check.prom"]  # atomic
    machine.run("node-check", "--textfile", str(tmp_path / "by_hand.prom"))
    assert (tmp_path / "by_hand.prom").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="makes files of other users")
def test_metrics_lead_root_to_no_other_file(machine: Machine, tmp_path: Path, capsys: Any) -> None:
    top, theirs = tmp_path / "theirs", tmp_path / "theirs/metrics"
    theirs.mkdir(parents=True)
    os.chown(theirs, 1000, 1000)
    mine = tmp_path / "mine"
    mine.write_text("root's")
    target = theirs / "x.prom"

    def written(path: Path) -> bool:
        capsys.readouterr()
        machine.run("node-check", "--textfile", str(path))
        said = capsys.readouterr().err
        assert mine.read_text() == "root's" and said.count("\n") == (0 if path.is_file() else 1)
        return path.is_file() and not path.is_symlink()

    target.symlink_to(mine)
    assert written(target) and [path.name for path in theirs.iterdir()] == ["x.prom"]
    theirs.chmod(0o1777)
    assert written(target)
    target.unlink()
    theirs.chmod(0o777)
    assert not written(target)
    (top / "link").symlink_to("metrics")
    theirs.chmod(0o755)
    assert written(top / "link/x.prom")
    os.lchown(top / "link", 1000, 1000)
    target.unlink()
    assert not written(top / "link/x.prom") and not written(top / "link/new/x.prom")


def test_hostile_values_stay_in_their_line() -> None:
    told = outputs(HOSTILE)
    metric = verdict.metrics(told, {('r"\n', "node_link_downs"): 1})
    sample = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? [0-9.]+|# (TYPE|HELP) .*')
    assert all(sample.fullmatch(line) for line in metric.splitlines())
    assert verdict.nagios(told)[1].splitlines()[0].count("|") == 1
    assert "\x1b" not in verdict.text(told) and json.loads(verdict.as_json(told, 1))
    assert re.fullmatch(r"[ -~]*", verdict.reason(told.findings))
    assert not set("\"'`\\\n") & set(verdict.reason(told.findings))


@given(st.lists(st.text(), max_size=30))
def test_a_reason_for_slurm_is_one_short_plain_line(subjects: list[str]) -> None:
    checks = [Check("gpu_xid", "none", 1, FAILED, subject) for subject in subjects]
    found = verdict.reason(outputs(*checks).findings)
    assert len(found) < 170 and re.fullmatch(r"[ -~]*", found) and not set("\"'`\\") & set(found)


@pytest.mark.parametrize(
    ("check", "step"),
    [
        (Check("gpu_recovery", "None", "Node Reboot", REBOOT, "gpu0"), "reboot"),
        (Check("gpu_recovery", "None", "Drain and Reset", REBOOT, "gpu0"), "reset_gpu"),
        (Check("gpu_driver", "x", "nvidia-smi: no answer within 7 s", FAILED), "drain"),
        (Check("rail_link", "up", "down", FAILED, "rail0"), "run_layer"),
        (Check("rail_nic", "x", "y", FAILED, "rail0"), "rma"),
        (Check("storage_mount", "x", "no answer", FAILED, "/shared"), "drain"),
        (Check("rail_pfc", 1, 2, FAILED, "rail0"), "run_layer"),
        (Check("node_link_downs", 1, 9, FAILED, "rail0"), "cable"),
    ],
)
def test_next_steps(check: Check, step: str) -> None:
    (finding,) = outputs(check).findings
    assert finding.step == step and finding.next_step("node01")


def test_what_does_not_apply_is_no_finding() -> None:
    aside = Check("rail_arp", 1, None, NOT_APPLICABLE, "rail0", "in a container")
    told = outputs(aside)
    assert (told.word, told.findings) == ("healthy", [])


def test_the_operator_may_turn_a_fault_into_a_warning(machine: Machine) -> None:
    machine.settings["warnings"] = ["rail_link"]
    machine.seen["rails"] = [LINK]
    assert machine.run("node-check") == 0


# Settings


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"interval_s": 5}, "interval_s"),
        ({"interval_s": True}, "interval_s"),
        ({"max_drained_share": 0}, "max_drained_share"),
        ({"max_drained_share": 1.5}, "max_drained_share"),
        ({"drain": "yes"}, "drain"),
        ({"mounts": ["shared"]}, "absolute"),
        ({"mounts": ["/a/../b"]}, "absolute"),
        ({"textfile": "x.prom"}, "absolute"),
        ({"thresholds": {"flaps": 1}}, "flaps"),
        ({"thresholds": {"shm_mib": -1}}, "shm_mib"),
        ({"rails_options": {"color": 1}}, "color"),
        ({"rails": "rail0"}, "rails"),
    ],
)
def test_settings_are_refused_by_name(given: dict[str, Any], word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        Settings(**given)


def test_settings_survive_their_file() -> None:
    made = Settings(host="n", mounts=["/home"], thresholds={"shm_mib": 5}, drain=True)
    assert Settings.parse(made.text()).text() == made.text()


@given(st.one_of(st.text(), st.from_regex(r'\{"(host|drain|rails)": .{0,9}\}', fullmatch=True)))
def test_any_settings_file_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SettingsError):
        Settings.parse(text)


# What hangs


def checks_of(seen: parallel.Seen) -> list[tuple[str, str, str]]:
    return [(each.name, each.subject, each.status) for each in seen.checks]


def test_a_look_that_hangs_stops_no_other_and_names_its_check() -> None:
    def hangs(_run: Runner) -> Any:
        time.sleep(600)

    def good(_run: Runner) -> Any:
        return [GOOD], {"a": 1}

    def fails(error: Exception) -> Callable[[Runner], Any]:
        def act(_run: Runner) -> Any:
            raise error

        return act

    made = [
        Look("mount /shared", hangs, "storage_mount", "/shared"),
        Look("hardware", hangs),
        Look("space", good),
        Look("broken", lambda _run: 1 / 0),  # type: ignore[arg-type, return-value]
        Look("missing", fails(CommandError("ip: not installed")), "time_sync"),
        Look("asked", fails(NoAnswerError("ip", 7.0)), "time_sync"),
        Look("disk", fails(OSError(errno.EIO, "Input/output error"))),
        Look("gpus", good, "gpu_driver"),
    ]
    seen = parallel.look_all(made, 0.4, {"gpus": "process 9 hangs"})
    assert {name: checks_of(each) for name, each in seen.items()} == {
        "mount /shared": [("storage_mount", "/shared", FAILED)],
        "hardware": [("node_look", "hardware", FAILED)],
        "space": [("node_space", "/", OK)],
        "broken": [("node_look_error", "broken", FAILED)],
        "missing": [("node_look_error", "missing", FAILED)],
        "asked": [("time_sync", "", FAILED)],
        "disk": [("node_look", "disk", FAILED)],
        "gpus": [("gpu_driver", "", FAILED)],
    }
    late = {name for name, each in seen.items() if each.late}
    assert late == {"mount /shared", "hardware", "asked"}
    assert seen["space"].state == {"a": 1}
    assert "process 9 hangs" in seen["gpus"].checks[0].reason


@pytest.mark.parametrize(("state", "late"), [("D", False), ("R", True), ("Z", True), ("", True)])
def test_only_what_waits_in_the_kernel_is_no_work_of_a_busy_node(
    state: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process needs a CPU to end."""
    if state:
        (tmp_path / "7").mkdir()
        (tmp_path / "7/stat").write_text(f"7 (a) R (b) {state} 1" + " 5" * 40)
    assert parallel.stuck(7, tmp_path) is not late
    monkeypatch.setattr(parallel, "stuck", lambda pid: pid == 7 and not late)
    result = WorkResult(left_behind=7)
    monkeypatch.setattr(parallel, "all_within", lambda *_args, **_more: {"x": result})
    seen = parallel.look_all([Look("x", lambda _run: ([], {}))], 1.0, {})["x"]
    assert (seen.late, list(seen.left)) == (late, [] if late else [7])


class Time:
    """A clock that programs advance."""

    def __init__(self, hang: Callable[[str], bool]) -> None:
        self.now, self.hang = 0.0, hang
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], *, timeout_s: float, **_more: Any) -> Result:
        self.asked.append(argv[0])
        if self.hang(argv[0]):
            self.now += timeout_s
            raise NoAnswerError(argv[0], timeout_s)
        return Result(tuple(argv), 0, "", "")


@given(st.lists(st.sampled_from(["dcb", "ip", "nvidia-smi", "mlxlink"]), max_size=40))
def test_however_many_programs_hang_the_time_is_kept_and_none_is_asked_twice(names) -> None:
    clock = Time(lambda _name: True)
    run = parallel.bounded_runner(14.0, lambda _step: None, clock.run, lambda: clock.now)
    for name in names:
        with pytest.raises(NoAnswerError):
            run([name])
    assert clock.now < 14.0 and len(clock.asked) == len(set(clock.asked))


def test_a_program_that_answers_is_asked_again_and_the_step_is_reported() -> None:
    clock, steps = Time(lambda _name: False), []
    run = parallel.bounded_runner(14.0, steps.append, clock.run, lambda: clock.now)
    run(["/sbin/ip", "-j", "link"])
    run(["/sbin/ip", "-j", "rule"])
    assert steps == [{"step": "/sbin/ip -j link"}, {"step": "/sbin/ip -j rule"}]


def test_what_no_signal_ends_is_not_started_again(tmp_path: Path) -> None:
    """In this process's own place: its start is known, and it is alive."""
    pid = os.getpid()
    content = parallel.leftovers({"gpus": parallel.Seen(left=[pid]), "rails": parallel.Seen()})
    assert list(content) == ["gpus"] and content["gpus"][0][0] == pid
    (tmp_path / parallel.LEFT).write_text(json.dumps(content))
    assert list(parallel.hanging(tmp_path)) == ["gpus"]
    content["gpus"][0][1] = "1"  # another process with this number
    (tmp_path / parallel.LEFT).write_text(json.dumps(content))
    assert parallel.hanging(tmp_path) == {}
    for text in ("[]", '{"gpus": 7}', '{"gpus": [[1]]}', '{"gpus": [["x", "y"]]}', "{"):
        (tmp_path / parallel.LEFT).write_text(text)
        assert parallel.hanging(tmp_path) == {}


def test_a_hanging_look_is_remembered_until_it_is_gone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    sleeper = os.fork()
    if not sleeper:
        time.sleep(600)
        os._exit(0)
    try:
        real = parallel.look_all
        found = {"rails": parallel.Seen([LINK], left=[sleeper])}
        monkeypatch.setattr(parallel, "look_all", lambda *_args: found)
        machine.run("node-check")
        assert not (machine.root / STATE).exists()
        machine.run("node-check", "--prolog")
        assert machine.state(parallel.LEFT)["rails"][0][0] == sleeper
        monkeypatch.setattr(parallel, "look_all", real)
        capsys.readouterr()
        assert machine.run("node-check", "--prolog") == 1
        assert f"process {sleeper} hangs" in capsys.readouterr().out
    finally:
        os.kill(sleeper, 9)
        os.waitpid(sleeper, 0)
    assert machine.run("node-check", "--prolog") == 0
    assert machine.state(parallel.LEFT) == {}


def test_only_periodic_runs_remember(machine: Machine) -> None:
    machine.seen["rates"] = [GOOD]
    machine.run("node-check", "--prolog")
    assert not (machine.root / STATE).exists()
    machine.run("node-check", "--periodic")
    assert machine.state(program.RATES) == {"rail0 node_link_downs": ["b", 1, 5, []]}
    assert machine.state(program.LAST)["boot"] == "boot-1"
    assert PERIODIC in LINKS.values()

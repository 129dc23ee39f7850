# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Controller side of the smoke test: arguments, watching the module, result and report."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_allreduce as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import traffic
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.gpu import GpuOptions
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import HYDRA
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import nodes_of
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce as module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import detached
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.marked import MARK

ROOT = Path(__file__).parents[2]
MORE = "tail -n +2 {} 2>/dev/null || true"


def test_only_what_is_used_is_sent() -> None:
    kept = {"rail": 0, "interface": "rail0", "network": "10.1.0.0/24", "gpu": 0, "speed_gbps": 800}
    entry = {"name": "node01", "role": "compute", "slots": 8, "drained": False}
    more = {"management_address": "10.0.0.1", "rack": "r1", "gpus": 8}
    sent = action.needed({**entry, **more, "rails": [{**kept, "address": "10.1.0.1"}]})
    assert sent == {**entry, "rails": [kept]}


def test_kinds_of_nodes_are_sent_where_the_model_has_them() -> None:
    entry = {"name": "cpu01", "role": "compute", "slots": 2, "drained": False, "rails": []}
    (node,) = nodes_of([action.needed({**entry, "kind": "cpu", "gpus": 0})])
    assert (node.kind, node.gpus_expected) == ("cpu", False)
    (node,) = nodes_of([action.needed({**entry, "kind": "b300", "gpus": 8})])
    assert (node.kind, node.gpus_expected) == ("b300", True)
    (node,) = nodes_of([action.needed({**entry, "gpus": 0})])
    assert (node.kind, node.gpus_expected) == ("", True)


def test_launchers_storage_and_drained_nodes_run_no_ranks() -> None:
    entries = [
        {"name": "launcher01", "role": "launcher", "slots": 0},
        {"name": "node01", "role": "compute", "slots": 8, "drained": True},
        {"name": "node02", "role": "compute", "slots": 4, "rails": [{"interface": "rail0"}]},
        {"name": "store01", "role": "storage", "slots": 0},
    ]
    nodes = nodes_of([action.needed(entry) for entry in entries])
    assert [(node.name, node.slots, node.rails) for node in nodes] == [("node02", 4, ("rail0",))]


@pytest.mark.parametrize(
    ("gpus", "by_rank", "given"),
    [
        (range(4), (("rail0",), ("rail1",)), 2),
        ([None] * 4, (("rail0", "rail2"), ("rail1", "rail3")), 4),
    ],
)
def test_each_rank_has_the_rails_of_its_gpu(gpus: Any, by_rank: Any, given: int) -> None:
    rails = [{"interface": f"rail{n}", "gpu": gpu, "speed_gbps": 400} for n, gpu in enumerate(gpus)]
    [node] = nodes_of([action.needed({"name": "node01", "slots": 2, "rails": rails})])
    assert node.line_rate_gbytes_s == 200 and len(node.rails) == 4
    assert node.by_rank == by_rank and len(node.given) == given


def test_options_of_the_module_are_those_of_the_test() -> None:
    defaults = {name: of.get("default") for name, of in module.ARGUMENTS.items()}
    given = {"user": "mpi", "run_id": "r", "provider": "impi", "parameters": {"I_MPI_DEBUG": 3}}
    nodes = [{"name": "node01", "role": "compute", "slots": 2, "drained": False, "rails": []}]
    test = module.smoke_test({**defaults, **given, "nodes": nodes, "max_tcp_retries": 0.5})
    assert (test.user, test.run_id, test.hostfile.name) == ("mpi", "r", "hostfile")
    assert test.tolerances == traffic.Tolerances(max_tcp_retries=0.5)
    assert test.gpu == GpuOptions() and [node.name for node in test.plan.nodes] == ["node01"]
    assert (test.plan.launcher, test.plan.max_bytes) == (HYDRA, 1 << 26)
    assert test.plan.parameters == (("I_MPI_DEBUG", "3"),)


def test_the_checksum_is_that_of_the_installed_program() -> None:
    """As the lookup `file` strips it, and the module writes it with one line feed."""
    source = (ROOT / "roles/mpi_stack/files/allreduce.py").read_text(encoding="utf-8")
    installed = hashlib.sha256((source.rstrip() + "\n").encode()).hexdigest()
    assert action._installed_sha256(action.PROGRAM) == installed


def test_a_malformed_answer_is_a_failure() -> None:
    found = detached.result_of("smoke", "Traceback (most recent call last):\nMemoryError\n")
    assert found["failed"]
    assert "MemoryError" in found["msg"]
    assert "nothing" in detached.result_of("smoke", "")["msg"]
    assert detached.result_of("smoke", "[1]")["failed"]
    assert detached.result_of("smoke", "[" * 100_000)["failed"]


def test_a_record_adds_no_host_group_or_variable() -> None:
    """Ansible removes these from results of modules, but not from a record."""
    node = {"host_name": "launcher01", "host_vars": {"ansible_connection": "local"}}
    answer = {
        "add_host": node,
        "add_group": "compute",
        "ansible_facts": {"os_family": "../x"},
        "ansible_stats": {"data": {"x": 1}},
        "_ansible_notify": ["x"],
        "_ansible_delegated_vars": {"ansible_delegated_host": "launcher01"},
        "ansible_job_id": "j1",
        "rc": 0,
    }
    assert detached.result_of("smoke", json.dumps(answer)) == {"rc": 0}


@pytest.mark.parametrize("record", ["/a'b", "/a/../../b", "a", "/a\n/b", ["/a"], {"a": "/b"}, 7])
def test_a_record_is_at_a_plain_path(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = action.ActionModule.__new__(action.ActionModule)
    one._task = SimpleNamespace(async_val=0)
    monkeypatch.setattr(one, "_execute_module", lambda *_a, **_k: {"results_file": record})
    monkeypatch.setattr(
        one, "_low_level_execute_command", lambda *_a: pytest.fail("it was looked for")
    )
    with pytest.raises(AnsibleActionFail, match="record of the job"):
        one.run_detached({"run_id": "0"}, {}, 1, 1)


def test_the_record_of_an_earlier_run_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, [DONE])
    watched.run()

    def interrupted(*_all: Any, **_given: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(watched.plugin, "_execute_module", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watched.run()
    assert watched.plugin.record == ""


def test_the_report_omits_the_arguments(tmp_path: Path) -> None:
    found = {"figures": {"ranks": 4}, "invocation": {"module_args": {}}, "layer": "smoke"}
    result = action.ActionModule._report(None, tmp_path, found)
    saved = json.loads((tmp_path / "smoke-latest.json").read_text(encoding="utf-8"))
    assert saved.pop("made").rstrip("Z") in result["report"]
    assert saved == {"figures": {"ranks": 4}, "layer": "smoke"}
    failed = {**found, "failed": True, "lanes": ["ep_cfg"]}
    shown = action.ActionModule._report(None, tmp_path, failed)
    assert not {"lanes", "invocation"} & set(shown), "they are only in the report"


def look(job: Path, progress: Path) -> list[str]:
    script = f"{detached.WAIT}\n{MORE.format(progress)}"
    argv = ["/bin/sh", "-c", script, "sh", str(job), str(progress), "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_look_distinguishes_running_finished_and_killed(tmp_path: Path) -> None:
    job, progress = tmp_path / "job", tmp_path / "progress"
    job.write_text('{"started": 1, "finished": 0, "ansible_job_id": "j1.2"}')
    assert look(job, progress) == ["running"]
    progress.write_text(f"{os.getpid()}\nallreduce: 2 of 7 sizes, 8 s\n")
    assert look(job, progress) == ["running", "allreduce: 2 of 7 sizes, 8 s"]
    ended = subprocess.Popen(["true"])
    ended.wait()
    progress.write_text(f"{ended.pid}\nallreduce: 2 of 7 sizes, 8 s\n")
    assert look(job, progress) == ["died"]
    job.write_text('{"changed": false}')
    assert look(job, progress) == ["finished", '{"changed": false}']


SLOW = AnsibleConnectionFailure("Timeout (12s) waiting for privilege escalation prompt: \x9b2J")
REFUSED = {"rc": 255, "stdout": "", "stderr": "connection refused"}
DONE = 'finished\n{"changed": false, "ansible_job_id": "j1.2"}'
Answer = Union[str, Exception, dict[str, Any]]


class Watched:
    """The action, with a launcher that gives a sequence of answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: Sequence[Answer]) -> None:
        self.now = 0.0
        self.looks = list(looks)
        self.did: list[str] = []
        self.shown: list[str] = []
        self.before = ""
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(detached, "time", clock)
        monkeypatch.setattr(detached.display, "display", self.shown.append)
        self.plugin = action.ActionModule.__new__(action.ActionModule)
        self.plugin._task = SimpleNamespace(async_val=0)
        monkeypatch.setattr(self.plugin, "_execute_module", self.module, raising=False)
        monkeypatch.setattr(self.plugin, "_low_level_execute_command", self.look, raising=False)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def module(self, _name: str, *, wrap_async: bool, **_given: Any) -> dict:
        assert wrap_async
        return {"results_file": "/root/.ansible_async/j1.2"}

    def look(self, command: str) -> Any:
        self.did.append("remove" if command.startswith("rm ") else "look")
        self.now += 12
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, dict):
            return found
        return {"rc": 0, "stdout": f"{self.before}{MARK}\n{found}", "stderr": ""}

    def run(self) -> dict[str, Any]:
        arguments = {"run_id": "abc123", "time_limit_s": 100}
        return self.plugin._run_detached(arguments, {})


def test_slow_and_failed_looks_are_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """56 ranks on two cores: the launcher responds later than ssh waits, and the ranks continue."""
    running = "running\nallreduce: 2 of 7 sizes, 8 s"
    watched = Watched(monkeypatch, [SLOW, running, REFUSED, SLOW, running, DONE, SLOW])
    assert watched.run() == {"changed": False}
    assert watched.did == [*["look"] * 6, "remove"], "none is lost"
    assert [text for text in watched.shown if "Timeout (12s)" in text]
    assert all(text.isprintable() for text in watched.shown)
    assert [text for text in watched.shown if "connection refused" in text]
    assert watched.shown.count("allreduce: 2 of 7 sizes, 8 s") == 1


def test_a_worker_whose_ansible_playbook_was_killed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would wait for hours, with inherited files open."""
    watched = Watched(monkeypatch, [SLOW])
    monkeypatch.setattr(detached.os, "getppid", lambda: 1 if watched.now > 30 else 2)
    with pytest.raises(KeyboardInterrupt):
        watched.run()
    assert watched.now < 60


def test_the_result_is_found_after_output_of_sudo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = {f"node{number:05d}": {"packets": [number] * 20} for number in range(10_000)}
    done = json.dumps({"nodes": nodes, "msg": "\x1b[2J"})
    looks = ["running\r\nallreduce: 2 of 7 sizes, 8 s\r\n", f"finished\r\n{done}"]
    watched = Watched(monkeypatch, looks)
    watched.before = "\r\nSorry, try again.\r\n"
    assert len(done) > 1_000_000 and watched.run() == {"nodes": nodes, "msg": "\\x1b[2J"}
    assert watched.shown == ["allreduce: 2 of 7 sizes, 8 s"]


LOOKING = "running\nallreduce: 2 of 7 sizes, 8 s"


@pytest.mark.parametrize(
    ("looks", "why", "least_s"),
    [
        ([LOOKING, SLOW], "did not answer", 160),
        ([LOOKING, REFUSED], "did not answer", 160),
        ([LOOKING, "died"], "the module was killed on the launcher", 0),
        ([LOOKING], "not finished within", 1000),
    ],
)
def test_silent_killed_and_hanging_modules_are_given_up(
    monkeypatch: pytest.MonkeyPatch, looks: list[Answer], why: str, least_s: float
) -> None:
    watched = Watched(monkeypatch, looks)
    with pytest.raises(AnsibleActionFail, match=why) as failure:
        watched.run()
    assert least_s <= watched.now <= least_s + (300 if least_s == 1000 else 50)
    assert "last seen: allreduce: 2 of 7 sizes, 8 s" in str(failure.value)
    assert "pkill -f abc123" in str(failure.value)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's side of the smoke test: what it sends, what it makes of the answer, reports."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_allreduce as action
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce as module

ROOT = Path(__file__).parents[2]


def test_only_what_is_used_is_sent() -> None:
    entry = {
        "name": "node01",
        "role": "compute",
        "management_address": "10.0.0.1",
        "rack": "r1",
        "slots": 8,
        "gpus": 8,
        "drained": False,
        "rails": [
            {
                "rail": 0,
                "interface": "rail0",
                "address": "10.1.0.1",
                "network": "10.1.0.0/24",
                "speed_gbps": 800,
                "gpu": 0,
            }
        ],
    }
    assert action._needed(entry) == {
        "name": "node01",
        "role": "compute",
        "slots": 8,
        "drained": False,
        "management_address": "10.0.0.1",
        "rails": [
            {
                "rail": 0,
                "interface": "rail0",
                "network": "10.1.0.0/24",
                "gpu": 0,
                "speed_gbps": 800,
            }
        ],
    }


def test_launchers_storage_and_drained_nodes_run_no_ranks() -> None:
    entries = [
        {"name": "launcher01", "role": "launcher", "slots": 0},
        {"name": "node01", "role": "compute", "slots": 8, "drained": True},
        {"name": "node02", "role": "compute", "slots": 4, "rails": [{"interface": "rail0"}]},
        {"name": "store01", "role": "storage", "slots": 0},
    ]
    nodes = module.nodes_of([action._needed(entry) for entry in entries])
    assert [(node.name, node.slots, node.rails) for node in nodes] == [("node02", 4, ("rail0",))]


def test_nodes_that_mount_no_checkpoints_are_said_to() -> None:
    fs = {"name": "c", "type": "nfs", "source": "10.0.0.9:/c", "mount": "/mnt/c"}
    fs = {**fs, "purpose": "checkpoints", "hosts": ["rack01"]}
    nodes = [{"name": "node01", "slots": 1}, {"name": "node02", "slots": 1}]
    arguments = {"filesystems": [fs], "nodes": nodes}
    action._say_who_has_checkpoints(arguments, {"rack01": ["node02"], "compute": ["node01"]})
    assert [node.checkpoints for node in module.nodes_of(nodes)] == [False, True]
    broken = {"filesystems": [{"name": "c"}], "nodes": [{"name": "node01", "slots": 1}]}
    action._say_who_has_checkpoints(broken, {})  # the module tells what is wrong with it
    assert module.nodes_of(broken["nodes"])[0].checkpoints


def test_each_rank_has_the_rails_of_its_gpu() -> None:
    entry = {
        "name": "node01",
        "slots": 2,
        "management_address": "10.0.0.1",
        "rails": [{"interface": f"rail{number}", "gpu": number} for number in range(4)],
    }
    for rail in entry["rails"]:
        rail["speed_gbps"] = 400
    node = module.nodes_of([action._needed(entry)])[0]
    assert node.line_rate_gbytes_s == 200
    assert node.rails == ("rail0", "rail1", "rail2", "rail3")
    assert node.by_rank == (("rail0",), ("rail1",))
    assert node.given == ("rail0", "rail1")
    assert node.management == "10.0.0.1"
    for rail in entry["rails"]:
        rail["gpu"] = None
    node = module.nodes_of([action._needed(entry)])[0]
    assert node.by_rank == (("rail0", "rail2"), ("rail1", "rail3"))
    assert set(node.given) == set(node.rails)


def test_a_report_that_cannot_be_saved_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports").write_text("not a directory")
    told: list[str] = []
    monkeypatch.setattr(action.display, "warning", told.append)
    found = {"figures": {"ranks": 4}, "checks": [], "traffic": [], "failed": True}
    result = dict(found)
    action.ActionModule._report(None, tmp_path / "reports", found, result)
    assert result == found, "nothing is left to the report that is not there"
    assert str(tmp_path / "reports") in told[0]
    assert "File exists" in told[0] or "Not a directory" in told[0]


@pytest.mark.parametrize(
    ("program", "source"),
    [
        (action.PROGRAM, "roles/mpi_stack/files/allreduce.py"),
        (action.PROBE, "plugins/module_utils/storage/use/probe.py"),
    ],
)
def test_the_checksum_is_that_of_the_installed_program(program: Path, source: str) -> None:
    """As the file lookup (it strips) and the module (it ends in one line feed) write it."""
    installed = (ROOT / source).read_text(encoding="utf-8").rstrip() + "\n"
    assert action._installed_sha256(program) == hashlib.sha256(installed.encode()).hexdigest()


def test_what_the_role_installs_is_what_is_compared() -> None:
    tasks = (ROOT / "roles/mpi_stack/tasks/main.yml").read_text(encoding="utf-8")
    assert "/".join(action.PROBE.parts[-5:]) in tasks


def test_an_answer_that_is_none_is_a_failure_with_what_came() -> None:
    found = action._result("Traceback (most recent call last):\nMemoryError\n")
    assert found["failed"]
    assert "MemoryError" in found["msg"]
    assert "nothing" in action._result("")["msg"]
    assert action._result("[1]")["failed"]


def test_an_answer_is_passed_on_without_ansibles_job() -> None:
    text = json.dumps({"changed": False, "layer": "smoke", "ansible_job_id": "j1.2"})
    assert action._result(text) == {"changed": False, "layer": "smoke"}


def test_the_report_has_the_result_without_the_arguments(tmp_path: Path) -> None:
    found = {"figures": {"ranks": 4}, "invocation": {"module_args": {}}, "layer": "smoke"}
    result: dict[str, str] = {}
    action.ActionModule._report(None, tmp_path, found, result)
    saved = json.loads((tmp_path / "smoke-latest.json").read_text(encoding="utf-8"))
    assert saved.pop("made") in result["report"]
    assert saved == {"figures": {"ranks": 4}, "layer": "smoke"}


def test_seconds_survive_what_the_module_will_refuse() -> None:
    assert action._seconds({"time_limit_s": "12.5"}, "time_limit_s", 1) == 12.5
    assert action._seconds({"time_limit_s": "soon"}, "time_limit_s", 300) == 300
    assert action._seconds({}, "time_limit_s", 300) == 300


def look(job: Path, progress: Path) -> list[str]:
    script = action.WAIT.format(job=job, progress=progress, seconds=0)
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_looking_tells_running_finished_and_killed_apart(tmp_path: Path) -> None:
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

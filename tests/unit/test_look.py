"""The look: records of what was asked, the program on nodes, keys, patterns and hostile answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.baremetal.mpi_roce.plugins.action.cluster_look import ActionModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import asked
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.look import program
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import look
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import LOOK
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.marked import MARK

SPEC = {"size": {"type": "int"}, "password": {"type": "str", "no_log": True}}
WRONG = {"name": "x", "subject": "", "wanted": 1, "found": 2, "status": "failed", "reason": ""}
OK = {"changed": False, "layer": "os", "checks": []}


# What was asked


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    asked.remember("os", "k1", {"size": 3, "password": "secret"}, SPEC, tmp_path)
    return tmp_path


def test_a_record_is_for_its_key_and_has_no_secret(root: Path) -> None:
    path = root / asked.DIRECTORY / "os.json"
    assert asked.recall("os", "k1", root) == {"size": 3}
    assert asked.recall("os", "k2", root) is asked.recall("gpu", "k1", root) is None
    assert path.stat().st_mode & 0o777 == 0o600
    assert "secret" not in path.read_text()
    asked.forget("os", root)
    asked.forget("os", root)
    assert asked.recall("os", "k1", root) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": "k1"}', '{"key": "k1", "params": 3}'])
def test_a_damaged_record_is_none(root: Path, text: str) -> None:
    (root / asked.DIRECTORY / "os.json").write_text(text)
    assert asked.recall("os", "k1", root) is None


def test_another_system_has_no_records(root: Path) -> None:
    (root / "etc/os-release").write_text("ID=debian\nVERSION_ID=13\n")
    assert asked.recall("os", "k1", root) is None


# The program


def test_the_look_stops_at_the_first_layer_that_differs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for layer in ("rdma", "gpu"):
        asked.remember(layer, "k1", {"layer": layer, "now": 5.0}, {}, root)
    ran: list[Any] = []

    def of_module(name: str, options: Any) -> dict[str, Any]:
        ran.append((name, options))
        return {**OK, "changed": name == "m2"}

    monkeypatch.setattr(program, "of_module", of_module)
    layers = [("os", "m1", "k1"), ("rdma", "m2", "k1"), ("gpu", "m3", "k1")]
    said = program.look({"layers": layers, "now": 9.0}, root)
    assert (list(said["layers"]), said["stopped"]) == (["os"], ["rdma", program.DIFFERS])
    assert ran == [("m1", {"size": 3}), ("m2", {"layer": "rdma", "now": 9.0})]
    said = program.look({"layers": [("os", "m1", "other"), *layers], "now": 9.0}, root)
    assert (said["layers"], said["stopped"]) == ({}, ["os", program.NEW])


@pytest.mark.parametrize(
    ("result", "good"),
    [
        (OK, True),
        ({**OK, "changed": True}, False),
        ({**OK, "failed": True}, False),
        ({"changed": False}, False),
        ({**OK, "checks": [{"name": "package_installed", "status": "ok"}]}, True),
        ({**OK, "checks": [{"name": "package_installed", "status": "not_applicable"}]}, False),
    ],
)
def test_what_is_unchanged(result: dict[str, Any], good: bool) -> None:
    assert program.unchanged(result) is good


def test_the_program_has_all_that_its_modules_import(tmp_path: Path) -> None:
    """The nodes' interpreter sees only the zip and its standard library."""
    path = tmp_path / "look"
    path.write_bytes(look.made())
    names = [f"{program.MODULES}.{module}" for module, _kind in LOOK.values()]
    script = f"import sys; sys.path.insert(0, {str(path)!r}); import importlib\n"
    script += f"for name in {names!r}: importlib.import_module(name).main"
    subprocess.run([sys.executable, "-IS", "-c", script], check=True)
    said = subprocess.run(
        [sys.executable, "-IS", path],
        input='{"layers": [["os", "os_baseline", "no such key"]], "now": 1}',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(said.stdout)["stopped"] == ["os", program.NEW]


# Keys and patterns


class Templar:
    def template(self, value: Any) -> Any:
        return json.loads(json.dumps(value).replace("{{ x }}", "7"))


def test_a_key_follows_what_roles_read() -> None:
    given = {"os_baseline_swap": "{{ x }}", "cluster_name": "a", "mpi_smoke_warmup": 1}
    key = look.of_host(Templar(), given)
    assert key == look.of_host(Templar(), dict(reversed(given.items())))
    assert key == look.of_host(Templar(), {**given, "mpi_smoke_warmup": 2, "ansible_limit": "a"})
    assert key == look.of_host(Templar(), {**given, "os_baseline_swap": "7"})
    for other in ({"os_baseline_swap": "off"}, {"cluster_name": "b"}, {"gpu": 1, "roce_qos": {}}):
        assert key != look.of_host(Templar(), {**given, **other})


def test_a_key_follows_the_files_of_the_collection(tmp_path: Path) -> None:
    (tmp_path / "roles").mkdir()
    path = tmp_path / "roles/a.yml"
    path.write_text("1")
    first = look.of_files([tmp_path / "roles", tmp_path / "absent"])
    assert first == look.of_files([tmp_path / "roles"])
    path.write_text("2")
    assert first != look.of_files([tmp_path / "roles"])


@pytest.mark.parametrize(
    ("run", "skip", "groups", "tags"),
    [
        (["all"], [], ["compute"], [tag for tag in LOOK if tag != "hostfile"]),
        (["all"], ["gpu", "mpi"], ["storage"], ["names", "storage"]),
        (["hostfile", "ssh"], [], ["launcher"], ["hostfile"]),
        (["ssh"], [], ["compute"], []),
    ],
)
def test_layers_of_a_run(
    run: list[str], skip: list[str], groups: list[str], tags: list[str]
) -> None:
    names = {"ansible_run_tags": run, "ansible_skip_tags": skip, "group_names": groups}
    assert look.wanted(names) == tags


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(C, "DEFAULT_LOCAL_TMP", str(tmp_path))


@pytest.mark.usefixtures("kept")
def test_a_play_has_the_hosts_that_are_not_unchanged() -> None:
    groups = {"compute": ["n1", "n2", "n3"], "launcher": ["n3", "l1"]}
    assert look.pattern("os", groups) == "compute:launcher"
    look.keep("n1", {"os": OK})
    assert look.pattern("os", groups) == "compute:launcher:!n1"
    assert look.pattern("gpu", groups) == "compute"
    look.keep("n3", {"os": OK})
    look.keep("l1", {"os": OK})
    assert look.pattern("os", groups) == "n2"
    look.keep("n2", {"os": OK, "rdma": OK})
    assert (look.pattern("os", groups), look.state("n2", "rdma")) == ("!all", OK)


# The action


def asking(said: list[Any], tags: str = "all") -> tuple[ActionModule, dict[str, Any], list[Any]]:
    """The action on a host of group compute whose connection says this, and what it was sent."""
    action = ActionModule.__new__(ActionModule)
    plan = {"program": __file__, "sha256": "0" * 64, "files": "f", "cluster": "c"}
    action._task = SimpleNamespace(args={"step": "look", "plan": plan}, check_mode=False)
    action._templar, sent = Templar(), []

    def execute(command: str, in_data: bytes) -> dict[str, Any]:
        sent.append((command, in_data))
        found = said.pop(0)
        if isinstance(found, Exception):
            raise found
        return {"rc": 0, "stdout": f"\n{MARK}\n{found}\n", "stderr": ""}

    action._low_level_execute_command = execute
    variables = {
        "ansible_run_tags": [tags],
        "ansible_skip_tags": [],
        "group_names": ["compute"],
        "inventory_hostname": "n1",
    }
    return action, variables, sent


@pytest.mark.usefixtures("kept")
def test_a_host_without_the_program_gets_it_first() -> None:
    answer = json.dumps({"layers": {"names": OK}, "stopped": ["os", "new"], "seconds": {"x": 1}})
    action, variables, sent = asking(["absent", "", answer])
    result = action.act(variables)
    assert (result["unchanged"], result["stopped"], result["seconds"]) == (
        ["names"],
        ["os", "new"],
        {},
    )
    assert [data == Path(__file__).read_bytes() for _command, data in sent] == [False, True, False]
    assert (result["sent"], action._executions) == (True, 3)
    asked_for = json.loads(sent[0][1])["layers"]
    assert [tag for tag, _module, _key in asked_for] == [tag for tag in LOOK if tag != "hostfile"]
    assert {key for _tag, _module, key in asked_for} == {result["host"], result["whole"]}


@pytest.mark.parametrize("reads", ["check", "strict"])
@pytest.mark.usefixtures("kept")
def test_a_run_that_only_reads_sends_no_program(reads: str) -> None:
    action, variables, sent = asking(["absent"])
    action._task.check_mode = reads == "check"
    action._task.args["strict"] = reads == "strict"
    assert action.act(variables)["unchanged"] == []
    assert len(sent) == 1


@pytest.mark.parametrize(
    "said",
    [
        "",
        "null",
        "[" * 100_000,
        '{"layers": 3}',
        json.dumps({"layers": {"os": OK}}),  # without the layer before it
        json.dumps({"layers": {"names": {**OK, "changed": True}}}),
        json.dumps({"layers": {"names": {**OK, "checks": 3}}}),
        json.dumps({"layers": {"names": {**OK, "checks": [3]}}}),
        json.dumps({"layers": {"names": {**OK, "checks": [WRONG]}}}),
        "x" * (9 << 20),
        AnsibleError("no shell"),
    ],
    ids=range(11),
)
@pytest.mark.usefixtures("kept")
def test_an_unusable_answer_is_of_a_changed_host(said: Any) -> None:
    action, variables, _sent = asking([said])
    assert action.act(variables)["unchanged"] == []
    assert look.kept("n1") == {}


@pytest.mark.usefixtures("kept")
def test_an_answer_counts_for_layers_that_were_asked_for() -> None:
    action, variables, _sent = asking([json.dumps({"layers": {"os": OK, "gpu": OK}})], "gpu")
    assert action.act(variables)["unchanged"] == ["gpu"]
    assert look.kept("n1") == {"gpu": OK}


@pytest.mark.usefixtures("kept")
def test_an_unreachable_host_is_unreachable() -> None:
    action, variables, _sent = asking([AnsibleConnectionFailure("no route")])
    with pytest.raises(AnsibleConnectionFailure):
        action.act(variables)

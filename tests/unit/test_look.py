"""The look: records of what was asked, the program on nodes, keys, patterns and hostile answers."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2.meta
import pytest
import yaml
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.baremetal.mpi_roce.plugins.action import slurm
from ansible_collections.baremetal.mpi_roce.plugins.action.cluster_look import ActionModule
from ansible_collections.baremetal.mpi_roce.plugins.lookup import layer_hosts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import asked
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.look import program
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import munge
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import look
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import LOOK, ROLES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.marked import MARK

from tests.unit.action_plays import run_play

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


def test_what_each_run_determines_is_not_recorded(root: Path) -> None:
    asked.remember("os", "k1", {"size": 3}, SPEC, root, of_run=["size"])
    assert asked.recall("os", "k1", root) == {"size": True}


def test_a_record_is_for_its_key_and_has_no_secret(root: Path) -> None:
    path = root / asked.DIRECTORY / "os.json"
    assert asked.recall("os", "k1", root) == {"size": 3}
    assert asked.recall("os", "k2", root) is asked.recall("gpu", "k1", root) is None
    assert path.stat().st_mode & 0o777 == 0o600
    assert "secret" not in path.read_text()
    asked.remember("os", "k1", {"size": 3, "password": "large"}, SPEC, root, public=["password"])
    assert asked.recall("os", "k1", root) == {"size": 3, "password": "large"}
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


def test_without_the_record_of_its_files_a_layer_runs_again(root: Path) -> None:
    path = root / "var/lib/baremetal-mpi-roce/written.d/os.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    asked.remember("os", "k1", {"size": 3}, SPEC, root)
    path.with_name("gpu.json").write_text("{}")
    assert asked.recall("os", "k1", root) == {"size": 3}
    path.unlink()
    assert asked.recall("os", "k1", root) is None


def test_only_options_of_large_size_are_public() -> None:
    public = {
        (module, name)
        for module, _kind in LOOK.values()
        for name in importlib.import_module(f"{program.MODULES}.{module}").LAYER.public
    }
    assert public == {("nvidia_gpu", "nvml_bindings")}


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
    assert ran == [("m1", {"size": 3}), ("m2", {"layer": "rdma", "now": pytest.approx(9.0, 0.1)})]
    said = program.look({"layers": [("os", "m1", "other"), *layers], "now": 9.0}, root)
    assert (said["layers"], said["stopped"]) == ({}, ["os", program.NEW])


def test_the_time_passes_during_a_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.remember("slurm", "k1", {"now": 5.0}, {}, root)
    times = iter([100.0, 100.0, 100.0, 130.0, 130.0, 130.0, 130.0])
    monkeypatch.setattr(program.time, "monotonic", lambda: next(times))
    ran: list[Any] = []
    monkeypatch.setattr(program, "of_module", lambda _name, options: ran.append(options) or OK)
    layers = [("os", "m1", "k1"), ("slurm", "m2", "k1")]
    program.look({"layers": layers, "now": 9.0}, root)
    assert ran == [{"size": 3}, {"now": 39.0}]


def test_values_of_this_run_replace_recorded_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(program, "of_module", lambda _name, options: ran.append(options) or OK)
    request = {"layers": [("slurm", "m", "k1")], "now": 9.0}
    request["current"] = {"slurm": {"reached": ["n1"], "munge_digest": "new"}}
    for recorded in ({"reached": ["n1", "n2"], "munge_digest": "old"}, {"munge_digest": ""}):
        asked.remember("slurm", "k1", recorded, {}, root)
        program.look(request, root)
    assert ran == [{"reached": ["n1"], "munge_digest": "new"}, {"munge_digest": ""}]


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


def test_the_program_has_the_variables_that_its_modules_read() -> None:
    read = {
        name
        for path, text in look.collection_files().items()
        if "/modules/" in path
        for name in re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", text)
    }
    assert read == {*look.OF_ENVIRONMENT}
    start = zipfile.ZipFile(io.BytesIO(look.made())).read("__main__.py").decode()
    assert repr(look.OF_ENVIRONMENT) in start


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


@pytest.mark.parametrize("path", sorted((look.PLUGINS.parent / "playbooks").glob("*.yml")))
def test_a_key_is_the_same_in_all_playbooks(path: Path) -> None:
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        given = play.get("vars", {})
        assert look.of_host(Templar(), given) == look.of_host(Templar(), {}), given


OF_RUNS = {
    *("ansible_check_mode", "ansible_facts", "ansible_play_hosts", "groups", "inventory_dir"),
    *(
        "ansible_play_batch",
        "ansible_play_hosts_all",
        "item",
        "lookup",
        "omit",
    ),
}
"""Names that roles read and that no inventory sets. Groups, and files of the inventory, have a part
of the key; facts follow from the system (core/asked.py); hosts of the play are `current`."""
EXPRESSIONS = ("when", "failed_when", "changed_when", "until", "loop")


class Whatever(dict[str, Any]):
    """Filters and tests of Ansible."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, _name: str) -> Any:
        return print

    def get(self, name: str, _default: Any = None) -> Any:
        return self[name]


def templates(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from templates(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from templates(item, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in EXPRESSIONS and "{{" not in value else value


@pytest.mark.parametrize("tag", LOOK)
def test_every_variable_that_a_role_reads_is_part_of_a_key(tag: str) -> None:
    environment = jinja2.Environment(autoescape=False)
    environment.filters = environment.tests = Whatever()
    role = look.PLUGINS.parent / "roles" / ROLES[tag].rpartition(".")[2]
    read: set[str] = set()
    for folder in ("tasks", "handlers", "vars", "defaults"):
        for path in role.glob(f"{folder}/*.yml"):
            for text in templates(yaml.safe_load(path.read_text(encoding="utf-8"))):
                read |= jinja2.meta.find_undeclared_variables(environment.parse(text))
    assert len(read) > 1
    of_inventory = {name for name in read - OF_RUNS if not name.startswith("__")}
    unkeyed = [
        name
        for name in of_inventory
        if look.of_host(Templar(), {name: 1}) == look.of_host(Templar(), {name: 2})
    ]
    assert {*unkeyed} <= look._UNTOLD


def test_a_key_follows_the_files_of_the_collection(tmp_path: Path) -> None:
    (tmp_path / "roles").mkdir()
    path = tmp_path / "roles/a.yml"
    path.write_text("1")
    first = look.of_files([tmp_path / "roles", tmp_path / "absent"])
    assert first == look.of_files([tmp_path / "roles"])
    path.write_text("2")
    assert first != look.of_files([tmp_path / "roles"])
    assert look.of_files([path]) != look.of_files([tmp_path / "other.yml"])


def test_files_of_operators_are_those_of_the_inventory_and_the_software_set() -> None:
    software = {
        "mpi": {"provider": "impi", "wheels": "of_mpi"},
        "repositories": {"cuda": {"key": "../shared/cuda.gpg"}, "doca": None},
    }
    hosts = [{"inventory_dir": "/a", "cluster_software": software}, {"inventory_dir": "/b"}, {}]
    found = [str(path) for path in look.files_of_operator(hosts)]
    bindings = importlib.util.find_spec("pynvml")
    assert bindings and found.pop() == bindings.origin
    own = ["/a/keys", "/a/wheels", "/a/of_mpi", "/a/../shared/cuda.gpg"]
    assert found == [*own, "/b/keys", "/b/wheels", "keys", "wheels"]


class HostVars(dict[str, Any]):
    def raw_get(self, name: str) -> Any:
        return self[name].raw


class Variables(dict[str, Any]):
    """Of a host: templated, and as they are written."""

    def __init__(self, raw: dict[str, Any], **templated: Any) -> None:
        super().__init__(templated)
        self.raw = raw

    def __missing__(self, name: str) -> Any:
        raise AnsibleError(name)


def test_a_key_follows_what_templates_of_other_hosts_read() -> None:
    raw = {"cluster_management": "{{ mine }}", "cluster_x": ["{{ absent }}"], "mine": 1}
    found = {
        look.of_cluster(HostVars(n1=Variables(raw, cluster_management=mine)), {"compute": ["n1"]})
        for mine in ("10.0.0.1", "10.0.0.2", "10.0.0.2")
    }
    assert len(found) == 2


@pytest.mark.parametrize(
    ("run", "skip", "groups", "tags"),
    [
        (["all"], [], ["compute"], [tag for tag in LOOK if tag != "hostfile"]),
        (["all"], ["gpu", "mpi"], ["storage"], ["names", "storage"]),
        (["hostfile", "links"], [], ["launcher"], ["hostfile"]),
        (["links"], [], ["compute"], []),
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
def test_a_play_has_the_hosts_that_are_not_unchanged_and_one_that_is() -> None:
    groups = {"compute": ["n1", "n2", "n3", "n4"], "launcher": ["n3", "l1"]}
    assert look.pattern("os", {}) == look.pattern("os", groups) == "compute:launcher"
    look.keep("n1", {"os": OK})
    assert look.pattern("os", groups) == "compute:launcher"
    look.keep("n3", {"os": OK})
    assert look.pattern("os", groups) == "compute:launcher:!n3"
    assert look.pattern("gpu", groups) == "compute"
    look.keep("n4", {"os": OK})
    look.keep("l1", {"os": OK})
    assert look.pattern("os", groups) == "n1:n2"
    look.keep("n2", {"os": OK, "rdma": OK})
    assert (look.pattern("os", groups), look.state("n2", "rdma")) == ("!all", OK)


KEEP = """\
from ansible.plugins.lookup import LookupBase
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import look


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        look.keep("n1", {"os": {}})
        return ["kept"]
"""


@pytest.mark.slow
def test_a_host_that_fails_alone_in_its_play_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "lookup_plugins").mkdir()
    (tmp_path / "lookup_plugins/keep.py").write_text(KEEP)
    (tmp_path / "hosts").write_text("[compute]\nn1\nn2\n[launcher]\n")
    (play,) = yaml.safe_load((look.PLUGINS.parent / "playbooks/os.yml").read_text("utf-8"))
    play["tasks"][1:] = [{"ansible.builtin.fail": {"msg": "it fails here"}}]
    del play["environment"]
    shown = ["{{ lookup('keep') }}", "on {{ ansible_play_hosts | join(' ') }}"]
    first, last = (
        {"hosts": "n1", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": text}}]}
        for text in shown
    )
    status, output = run_play(tmp_path, json.dumps([first, play, last]), tmp_path / "hosts")
    assert (status, "it fails here" in output, "on n1" in output) == (2, True, True)
    assert "fatal: [n1]" not in output


@pytest.mark.parametrize(
    ("of_model", "pattern"), [([], "!all"), (["home"], "storage:compute:launcher")]
)
def test_no_host_uses_storage_of_a_model_without_any(of_model: list[str], pattern: str) -> None:
    of_host = {"n1": {"cluster_filesystems": of_model}, "l1": {}}
    hostvars = SimpleNamespace(raw_get=of_host.__getitem__)
    variables = {"groups": {"compute": ["n1"], "launcher": ["l1"]}, "hostvars": hostvars}
    lookup = layer_hosts.LookupModule()
    given = {"needs": "cluster_filesystems", "whole": True}
    assert lookup.run(["storage"], variables, **given) == [pattern]
    del variables["hostvars"]  # as for --list-hosts
    assert lookup.run(["storage"], variables, **given) == ["storage:compute:launcher"]


@pytest.mark.usefixtures("kept")
def test_a_host_that_has_the_name_of_a_group_excludes_no_other() -> None:
    groups = {"launcher": ["launcher", "l2", "l3"], "compute": []}
    for name in ("l2", "l3"):
        look.keep(name, {"hostfile": OK})
    assert look.pattern("hostfile", groups) == "launcher:!l3"
    action, variables, sent = asking([])
    action.act({**variables, "inventory_hostname": "launcher", "groups": groups})
    assert (look.kept("launcher"), sent) == ({}, [])


# The action


def asking(
    said: list[Any], tags: str = "all", *, check_mode: bool = False, **given: Any
) -> tuple[ActionModule, dict[str, Any], list[Any]]:
    """The action on a host of group compute whose connection says this, and what it was sent."""
    action = ActionModule.__new__(ActionModule)
    plan = {"program": __file__, "sha256": "0" * 64, "files": "f", "cluster": "c"}
    args = {"step": "look", "plan": plan, "munge_key": "/no/such/key", **given}
    action._task = SimpleNamespace(args=args, check_mode=check_mode)
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
        "groups": {"compute": ["n1", "n2"], "launcher": ["l1"]},
        "ansible_play_hosts": ["n1", "l1", "s1"],
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
    missing = {"hostfile", "ssh"}  # of another host, and without what the authority holds
    assert [tag for tag, _module, _key in asked_for] == [x for x in LOOK if x not in missing]
    assert {key for _tag, _module, key in asked_for} == {result["host"], result["whole"]}


@pytest.mark.parametrize("how", [{"check_mode": True}, {"strict": True}])
@pytest.mark.usefixtures("kept")
def test_a_run_that_changes_nothing_sends_no_program(how: dict[str, bool]) -> None:
    action, variables, sent = asking(["absent"], **how)
    result = action.act(variables)
    assert (result["unchanged"], result["sent"], len(sent)) == ([], False, 1)


def test_a_look_that_takes_too_long_ends_and_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(look, "LIMIT_S", 0.2)
    waits = tmp_path / f"look-{'0' * 16}"
    waits.write_text("#!/bin/sh\nexec sleep 60\n")
    waits.chmod(0o755)
    found = []

    def command(script: str, content: bytes) -> str:
        done = subprocess.run(["sh", "-c", script], input=content, capture_output=True, timeout=30)
        found.append(done.returncode)
        return done.stdout.decode()

    assert look.ask(command, {"sha256": "0" * 64}, {}, send=False) == (None, False)
    assert found == [124]  # of timeout(1)


@pytest.mark.usefixtures("kept")
def test_a_look_forgets_the_answers_of_an_earlier_playbook() -> None:
    look.keep("n1", {"names": OK})
    action, variables, _sent = asking([AnsibleConnectionFailure("no route")])
    with pytest.raises(AnsibleConnectionFailure):
        action.act(variables)
    assert look.kept("n1") == {}


@pytest.mark.parametrize(
    ("host", "reached"), [("n1", ["l1"]), ("l1", ["n1", "l1"]), ("n2", ["l1"])]
)
@pytest.mark.usefixtures("kept")
def test_slurm_is_asked_with_the_key_and_the_hosts_of_this_run(
    host: str, reached: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "munge.key"
    path.write_bytes(b"k" * 64)
    path.chmod(0o600)
    for digest in (munge.digest(b"k" * 64), slurm.UNUSABLE):
        action, variables, sent = asking(["{}"], "slurm", munge_key=str(path))
        action.act({**variables, "inventory_hostname": host})
        current = json.loads(sent[0][1])["current"]
        assert current == {"slurm": {"munge_digest": digest, "reached": reached}}
        path.chmod(0o640)


KNOWN = {"issued": {}, "refused_keys": [], "pending": False, "trusts": ["g1"]}
KRL = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of no bytes
AUTHORITY = {"revoked": "", "trusted": ["g1"], "private_keys": {"user": "/ca"}, "signer": ["x"]}


@pytest.mark.parametrize(
    ("known", "host", "asked_for"),
    [
        ({}, {}, True),
        ({"pending": True}, {}, False),
        ({"trusts": ["g0"]}, {}, False),
        ({"krl": "0" * 64}, {}, False),
        ({}, {"revoked": True}, False),
        ({}, None, False),
    ],
)
@pytest.mark.usefixtures("kept")
def test_ssh_is_asked_of_nodes_for_which_the_authority_has_nothing_to_do(
    known: dict[str, Any], host: dict[str, Any] | None, asked_for: bool
) -> None:
    own = {"known": {**KNOWN, "krl": KRL, **known}, "revoked": False, **(host or {})}
    seen = {"authority": AUTHORITY, "hosts": {"n2" if host is None else "n1": own}}
    action, variables, sent = asking([json.dumps({"layers": {"ssh": OK}})], "ssh")
    result = action.act({**variables, "__ssh_trust_seen": seen})
    assert result["unchanged"] == (["ssh"] if asked_for else [])
    if asked_for:
        current = json.loads(sent[0][1])["current"]["ssh"]
        assert abs(current["signed"].pop("now") - time.time()) < 60
        assert current == {
            "authority": {"revoked": "", "trusted": ["g1"]},
            "host": own,
            "signed": {"issued": {}, "refused_keys": []},
        }
    else:
        assert sent == []


@pytest.mark.usefixtures("kept")
def test_a_play_for_all_hosts_follows_if_an_action_asks_for_it() -> None:
    lookup = layer_hosts.LookupModule()
    assert lookup.run(["ssh"], {}, again=True) == ["!all"]
    look.again("ssh")
    assert lookup.run(["ssh"], {}, again=True) == ["compute:launcher"]
    look.forget()
    assert lookup.run(["ssh"], {}, again=True) == ["!all"]


def test_the_munge_key_of_the_look_is_that_of_the_role() -> None:
    root = look.PLUGINS.parent
    (play,) = yaml.safe_load((root / "playbooks/look.yml").read_text(encoding="utf-8"))
    given = play["tasks"][-1]["baremetal.mpi_roce.cluster_look"]["munge_key"]
    text = (root / "roles/slurm/defaults/main.yml").read_text(encoding="utf-8")
    names = {"cluster_name": "c"}
    of_role = yaml.safe_load(text)["slurm_munge_key"]
    made = [jinja2.Template(text).render(names) for text in (given, of_role)]
    assert made[0] == made[1]
    assert jinja2.Template(given).render(names, slurm_munge_key="/k") == "/k"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "null",
        "[" * 100_000,
        '{"layers": 3}',
        json.dumps({"layers": {"os": OK}}),  # without the layer before it
        json.dumps({"layers": {"names": {**OK, "changed": True}}}),
        json.dumps({"layers": {"names": {**OK, "sign": {"user": "there is none"}}}}),
        json.dumps({"layers": {"names": {**OK, "checks": 3}}}),
        json.dumps({"layers": {"names": {**OK, "checks": [3]}}}),
        json.dumps({"layers": {"names": {**OK, "checks": [WRONG]}}}),
        "x" * (9 << 20),
        AnsibleError("no shell"),
    ],
    ids=range(12),
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

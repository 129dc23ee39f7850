# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Two execution nodes, which are virtual nodes, reach two racks over SSH.

They have Python, ansible-core and ansible-runner in an environment, and nothing else of this
project.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nodes import TOP, Cluster, Nodes, Run
from tests.share import digest, found
from tests.waiting import until

pytestmark = [pytest.mark.nodes, pytest.mark.long]

NAME = "virtual-share"
EXECUTION = ("exec01", "exec02")
ENVIRONMENT = "/opt/share"
STATE = f".local/state/baremetal.mpi_roce/{NAME}"
FILES = {"share_files": [f"~/{STATE}/{name}" for name in ("id_ed25519", "known_hosts")]}
PROGRAM = f"""\
#!{ENVIRONMENT}/bin/python
import sys
from ansible.cli.playbook import main
sys.exit(main())
"""


def inventory(folder: Path) -> Path:
    path = folder / NAME
    shutil.copytree(TOP / "inventories/virtual-mixed", path)
    model = yaml.safe_load((path / "cluster.yml").read_text(encoding="utf-8"))
    text = json.dumps(model).replace("10.241.", "10.248.").replace("10.141.", "10.148.")
    model = json.loads(text)
    model["name"] = NAME
    model["nodes"] = {**model["nodes"], "count": 2, "nodes_per_rack": 1, "slots": 1}
    del model["nodes"]["overrides"]
    model["gpus"] = {"count": 1, "numa": [0]}
    model["rails"]["count"] = model["leaves"]["count"] = 1
    model["storage"] = [
        {"name": name, "management": f"10.248.0.{number}"}
        for number, name in enumerate(EXECUTION, 8)
    ]
    (path / "cluster.yml").write_text(yaml.safe_dump(model), encoding="utf-8")
    execution(path)
    return path


def execution(path: Path, **changes: dict[str, Any]) -> None:
    hosts = {
        name: {
            "share_racks": [f"r0{number}"],
            "share_python": f"{ENVIRONMENT}/bin/python",
            **changes.get(name, {}),
        }
        for number, name in enumerate(EXECUTION, 1)
    }
    text = yaml.safe_dump({"execution": {"hosts": hosts}})
    (path / "execution.yml").write_text(text, encoding="utf-8")


def packages(*names: str) -> set[str]:
    """Distributions with those that they need."""
    done: set[str] = set()
    todo = list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for other versions of Python
            continue
        if name not in done:
            done.add(name)
            todo += [re.split(r"[ ;<>=!~(\[]", one)[0] for one in needed if "extra ==" not in one]
    return done


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as packed:
        for name in sorted(packages("ansible-core", "ansible-runner")):
            for file in metadata.files(name) or []:
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    packed.add(str(file.locate()), f"site-packages/{file}")
    return made.getvalue()


def in_node(name: str, *argv: str, content: bytes = b"") -> str:
    command = ["podman", "exec", "--interactive", f"{NAME}.{name}", *argv]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    cluster = Cluster(inventory(tmp_path_factory.mktemp("share")))
    try:
        nodes = cluster.fresh()
        packed = archive()
        for name in EXECUTION:
            in_node(name, "python3", "-m", "venv", "--without-pip", ENVIRONMENT)
            python = in_node(name, "sh", "-c", f"echo {ENVIRONMENT}/lib/python3*").strip()
            in_node(name, "tar", "--extract", f"--directory={python}", content=packed)
            target = f"{ENVIRONMENT}/bin/ansible-playbook"
            script = f"cat >{target} && chmod 755 {target}"
            in_node(name, "sh", "-c", script, content=PROGRAM.encode())
        yield nodes
    finally:
        cluster.down()


def share(nodes: Nodes, *words: str, expect: int = 0) -> Run:
    return nodes.play("playbooks/share.yml", "-e", json.dumps(FILES), *words, expect=expect)


def test_execution_nodes_install_the_site(nodes: Nodes) -> None:
    run = share(nodes)
    assert run.report["execution"]["lost"] == {}
    places = {each["node"] for each in run.report["execution"]["runs"]}
    assert places == {*EXECUTION, ""}
    assert not [check for layer in run.report["layers"] for check in run.failed(layer)]


@pytest.mark.parametrize("playbook", ["site", "verify"])
def test_they_find_what_one_controller_finds(nodes: Nodes, playbook: str) -> None:
    one = nodes.play(f"playbooks/{playbook}.yml").report
    many = share(nodes, "-e", f"share_playbook={playbook}").report
    assert found(many) == found(one)
    assert digest(many) == digest(one)


def test_no_secret_stays_on_a_node(nodes: Nodes) -> None:
    key = (Path.home() / STATE / "id_ed25519").read_text(encoding="ascii").splitlines()[2]
    for name in EXECUTION:
        listed = in_node(name, "find", "/dev/shm", "/tmp", "/home/ops", "-name", "*baremetal*")
        assert re.fullmatch(r"(/dev/shm/\.baremetal-share-\d+-\S+\.lock\n)?", listed)
        search = (
            f"grep --recursive --files-with-matches --fixed-strings '{key}' /dev/shm /tmp /home"
        )
        assert in_node(name, "sh", "-c", f"{search} || true") == ""


def test_hosts_of_a_killed_worker_run_on_the_other_node(nodes: Nodes) -> None:
    words = ("-e", json.dumps(FILES), "--tags", "names,os,rails")
    process = nodes.start("playbooks/share.yml", *words)
    kill = "pkill -KILL -f '[a]nsible_runner worker' && echo killed || true"
    until(lambda: in_node("exec01", "sh", "-c", kill), "a worker on exec01", 180)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    path = re.findall(r"^report: (.+\.json)$", output, re.MULTILINE)[-1]
    report = json.loads((TOP / path).read_text(encoding="utf-8"))
    assert set(report["execution"]["lost"]) == {"exec01"}
    for layer in ("names", "os", "rails"):
        assert {"node01", "node02"} <= set(report["layers"][layer]["hosts"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ansible_ssh_private_key_file": "/dev/null"}, "Permission denied"),
        ({"share_directory": "/run/full"}, "exec02: "),
        ({"share_python": "/usr/bin/python3"}, "ansible-core"),
    ],
)
def test_a_node_that_cannot_work_is_named_before_any_host(
    nodes: Nodes, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    mount = "mkdir -p /run/full && mount -t tmpfs -o size=1m,mode=1777 none /run/full"
    in_node("exec02", "sh", "-c", f"mountpoint -q /run/full || {{ {mount}; }}")
    changed = Nodes(tmp_path / NAME)
    shutil.copytree(nodes.inventory, changed.inventory)
    execution(changed.inventory, exec02=change)
    run = share(changed, expect=2)
    assert reason in run.output and "exec02" in run.output
    assert run.report["playbook"] == "share.yml"  # of the refusal


def test_a_wrong_password_is_named_and_changes_nothing(nodes: Nodes) -> None:
    rule = "/etc/sudoers.d/ops"
    in_node("node02", "sh", "-c", f"sed -i 's/NOPASSWD: //' {rule}; touch /etc/sysctl.d/zz-mark")
    before = in_node("node02", "find", "/etc", "-newer", "/etc/sysctl.d/zz-mark", "-type", "f")
    try:
        words = ["-e", json.dumps({**FILES, "ansible_become_password": "wrong"})]
        run = nodes.play("playbooks/share.yml", *words, "--tags", "names,os", expect=None)
        assert run.rc in (2, 4)
        wrong = {**run.report["failed"], **run.report["unreachable"]}
        assert set(wrong) == {"node02"}
        assert "wrong" not in json.dumps(run.report["failed"])
        assert set(run.report["layers"]["os"]["hosts"]) >= {"node01"}
        after = in_node("node02", "find", "/etc", "-newer", "/etc/sysctl.d/zz-mark", "-type", "f")
        assert after == before
    finally:
        in_node("node02", "sh", "-c", f"sed -i 's/ALL$/NOPASSWD: ALL/' {rule}")

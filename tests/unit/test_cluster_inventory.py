# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory plugin in Ansible's programs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.action_plays import ROOT, ansible

pytestmark = pytest.mark.slow

VARS = """
vars:
  all: {where: "{{ cluster_name }} in {{ site }}"}
  compute: {site: Berlin}
  launcher: {site: Paris}
"""


def printed(program: str, *arguments: str) -> str:
    done = ansible(program, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_groups_and_plain_values() -> None:
    listed = json.loads(printed("ansible-inventory", "-i", "inventories/b300", "--list"))
    hosts = {group: members.get("hosts", []) for group, members in listed.items()}
    assert hosts["compute"] == ["node01", "node02", "node03", "node04"]
    assert hosts["spine"] == [f"spine0{number}" for number in range(1, 5)]
    assert hosts["rack_r02"] == ["node03", "node04"]
    rail = listed["_meta"]["hostvars"]["node02"]["cluster_rails"][3]
    assert (rail["address"], rail["leaf_port"]) == ("10.100.3.12", "Ethernet8")
    assert "__ansible_unsafe" not in json.dumps(listed)


def test_site_variables_may_be_templates(
    tmp_path: Path,
) -> None:
    model = (ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8")
    (tmp_path / "cluster.yml").write_text(model + VARS, encoding="utf-8")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/node02.yml").write_text("site: Rome\ncluster_slots: 4\n")
    shown = printed(
        "ansible",
        "node01:node02:launcher",
        "-i",
        str(tmp_path),
        "-m",
        "ansible.builtin.debug",
        "-a",
        "msg='{{ where }} {{ cluster_slots | default(0) }}'",
    )
    said = dict(
        re.findall(r'(\w+) \| SUCCESS => \{\s*(?:"changed": false,\s*)?"msg": "(.*)"', shown)
    )
    assert said == {
        "node01": "b300 in Berlin 8",
        "node02": "b300 in Rome 4",
        "launcher01": "b300 in Paris 0",
    }


@pytest.mark.parametrize("name", ["rooms/cluster.yml", "cluster.yml~", "cluster.yml.bak"])
def test_a_second_model_is_an_error(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / name, tmp_path / "cluster.yml"):
        path.parent.mkdir(exist_ok=True)
        path.write_text((ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8"))
    done = inventory(tmp_path)
    if name.endswith(("~", ".bak")):  # Ansible ignores these
        assert done.returncode == 0
    else:
        assert done.returncode == 4
        assert {f"{tmp_path}/cluster.yml", f"{tmp_path}/{name}"} <= set(
            re.findall(r"[^\s:]+", done.stderr)
        )


def test_a_doubt_is_a_warning(tmp_path: Path) -> None:
    text = (ROOT / "inventories/virtual-mixed/cluster.yml").read_text(encoding="utf-8")
    (tmp_path / "cluster.yml").write_text(text.replace("10.141.", "11.141."), encoding="utf-8")
    done = inventory(tmp_path)
    assert done.returncode == 0
    assert "addresses.pool: 11.141.0.0/16 " in " ".join(done.stderr.split())


def inventory(path: Path) -> subprocess.CompletedProcess[str]:
    return ansible("ansible-inventory", "-i", path, "--graph")


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("plugin: baremetal.mpi_roce.cluster\nname: [\n", "Correct the syntax."),
        ("plugin: baremetal.mpi_roce.cluster\nname: UP\n", "Write up."),
        ("# later\n---\n", "the file is empty. Describe a cluster in it."),
        ("plugn: baremetal.mpi_roce.cluster\nname: UP\n", "Add it: baremetal.mpi_roce.cluster."),
    ],
)
def test_an_invalid_model_is_reported_once(tmp_path: Path, text: str, last: str) -> None:
    (tmp_path / "cluster.yml").write_text(text, encoding="utf-8")
    done = inventory(tmp_path)
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.startswith(f"[ERROR]: {tmp_path}/cluster.yml: this cluster model has ")
    assert done.stderr.count(last) == 1
    if "UP" not in text:
        assert done.stderr.rstrip().endswith(last)

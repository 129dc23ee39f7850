# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The playbooks of docs/variables.md run in a new site, and write what its model says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import site_folder

from tests.unit.action_plays import ROOT, ansible

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/variables.md").read_text(encoding="utf-8")
PLAYBOOKS = dict(
    re.findall(r"^## ([^\n]*)\n(?:(?!```).)*```yaml\n(.*?)```", PAGE, re.M | re.DOTALL)
)
LLDP = """\
#!/usr/bin/env python3
for number in range({rails}):
    print(f"lldp.rail{{number}}.chassis.name=leaf{{number + 1:02d}}")
"""


def run(folder: Path, *titles: str, rails: int = 8) -> subprocess.CompletedProcess[str]:
    """Run the playbooks under these headings in a new site."""
    site_folder.write(folder, site_folder.content("b300"))
    inventory = folder / "inventory"
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars/node02.yml").write_text('mac: "02:00:00:00:00:02"\n', encoding="utf-8")
    model = inventory / "cluster.yml"
    text = model.read_text(encoding="utf-8").replace("drained: []", "drained: [node03]")
    text = text.replace("  planes: 1", "  vlan: 100\n  planes: 1")
    text = text.replace("  count: 4\n", "  count: 4\n  bmc_first: 10.10.3.1\n", 1)
    model.write_text(text, encoding="utf-8")
    lldpcli = folder / "bin/lldpcli"
    lldpcli.parent.mkdir()
    lldpcli.write_text(LLDP.format(rails=rails), encoding="utf-8")
    lldpcli.chmod(0o755)
    names = [f"{number}.yml" for number in range(len(titles))]
    for name, title in zip(names, titles):
        (folder / name).write_text(PLAYBOOKS[title], encoding="utf-8")
    path = f"{lldpcli.parent}:{os.environ['PATH']}"
    local = ("-c", "local", "-e", f"ansible_python_interpreter={sys.executable}")
    return ansible("ansible-playbook", *local, *names, cwd=folder, PATH=path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variables")
    done = run(folder, *PLAYBOOKS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stderr and "[DEPRECATION" not in done.stderr, done.stderr
    return folder


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_the_page_has_ten() -> None:
    assert len(PLAYBOOKS) == 10 == len(re.findall("```yaml", PAGE))


def test_gateways(written: Path) -> None:
    ports = "Ethernet0 Ethernet8 Ethernet16 Ethernet24"
    assert lines(written, "gateways.txt")[2] == f"leaf03 VLAN 100 10.100.2.1/24: {ports}"


def test_cables(written: Path) -> None:
    head, *cables = lines(written, "cables.csv")
    assert len(head.split(",")) == 5
    assert len(cables) == len(set(cables)) == 4 * 8 + 8 * 4 * 4 + 1
    assert "leaf02,Ethernet8,node02,rail1,800" in cables
    assert "leaf01,Ethernet256,storage01,ens1f0np0,800" in cables


def test_targets(written: Path) -> None:
    targets = yaml.safe_load((written / "targets.yml").read_text(encoding="utf-8"))
    assert targets[3] == {
        "targets": ["10.10.1.4:9100", "10.10.1.4:9400"],
        "labels": {"cluster": "b300", "node": "node04", "rack": "r02"},
    }


def test_zone(written: Path) -> None:
    head, *records = lines(written, "b300.example.net.zone")
    assert head == "$ORIGIN b300.example.net."
    assert len(records) == 4 * 9 + 8 + 4 + 2
    assert {"node01 IN A 10.10.1.1", "node01-rail7 IN A 10.100.7.11"} <= set(records)
    assert "leaf08 IN A 10.10.2.8" in records


def test_small_files(written: Path) -> None:
    reservation = "dhcp-host=02:00:00:00:00:02,10.10.1.2,node02"
    assert lines(written, "reservations.conf")[1:] == [reservation]
    assert "10.10.0.10 launcher01 launcher01.b300.example.net" in lines(written, "hosts")
    assert lines(written, "bmc.txt")[1:] == [
        f"node0{number} 10.10.3.{number}" for number in range(1, 5)
    ]


def test_descriptions(written: Path) -> None:
    leaf = json.loads((written / "descriptions-leaf01.json").read_text(encoding="utf-8"))["PORT"]
    assert leaf["Ethernet0"] == {"description": "node01 rail0"}
    assert len(leaf) == 4 + 16 + 1
    spine = json.loads((written / "descriptions-spine01.json").read_text(encoding="utf-8"))["PORT"]
    assert len(spine) == 8 * 4


def test_a_missing_neighbour_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "Neighbours by LLDP", rails=7)
    assert done.returncode == 2 and "lldp.rail7.chassis.name=leaf08" in done.stdout
    assert "lldp.rail6" not in done.stdout

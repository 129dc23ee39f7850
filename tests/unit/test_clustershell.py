# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Groups of the inventory for ClusterShell, read by the real one where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import clustershell
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.clustershell import Groups
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node

DIRECTORY = [{"name": f"node{number:02d}"} for number in (1, 2, 3, 10)]
DIRECTORY += [{"name": "launcher01"}, {"name": "storage01"}]
INVENTORY = {
    "all": ["every", "host"],
    "compute": ["node10", "node01", "node02", "node03"],
    "launcher": ["launcher01"],
    "storage": ["storage01"],
    "leaf": ["leaf01"],
    "rack_r01": ["node01", "node02"],
    "rack_r'2: {}": ["node03"],
    "unit_1": ["leaf01", "node01", "node02"],
    "unit_9": ["leaf09"],
    "kind_h100": ["node10"],
    "of_the_site": ["node01"],
}
FOUND = clustershell.members(DIRECTORY, INVENTORY)
# /etc/clustershell of Debian's clustershell 1.9.1.
MAIN = "[Main]\n# Default group source\ndefault: local\nautodir: $CFGDIR/groups.d\n"
LOCAL = """\
[local]
map: sed -n 's/^$GROUP:\\(.*\\)/\\1/p' $CFGDIR/groups.d/local.cfg
list: sed -n 's/^\\([0-9A-Za-z_-]*\\):.*/\\1/p' $CFGDIR/groups.d/local.cfg
"""
EXAMPLES = "# comment\nadm: example0\noss: example4 example5\nall: example[4-6,32-159]\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "etc/clustershell/groups.d"
    place.mkdir(parents=True)
    (place / "local.cfg").write_text(EXAMPLES, encoding="utf-8")
    (place.parent / "groups.conf").write_text(MAIN + LOCAL, encoding="utf-8")
    return tmp_path


def clustershells(root: Path, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CLUSTERSHELL_CFGDIR": str(root / "etc/clustershell")}
    return subprocess.run(list(argv), env=environment, capture_output=True, text=True, check=False)


def a_node(root: Path, answer: Optional[str] = None, **more: Any) -> Node:
    """A node on which `nodeset` is the real one, or prints `answer`."""

    def run(argv: Sequence[str], **_more: Any) -> Result:
        if answer is not None:
            return Result(tuple(argv), 0, answer, "")
        done = clustershells(root, argv)
        return Result(tuple(argv), done.returncode, done.stdout, done.stderr)

    return Node("hostfile", root, run, None, "b", uid=os.getuid(), gid=os.getgid(), **more)


ALL = "\n".join(FOUND["all"])


def statuses(node: Node, wanted: Optional[bool] = None) -> dict[str, str]:
    outcome = settle([Groups(FOUND, wanted)], node)
    return {check.name: check.status for check in outcome.checks if check.name != "file"}


def written(root: Path) -> Any:
    return yaml.safe_load((root / clustershell.FILE).read_text(encoding="utf-8"))


def test_groups_are_those_of_hosts_in_the_order_of_the_model() -> None:
    assert yaml.safe_load(clustershell.render(FOUND)) == {
        "baremetal": {
            "all": "node[01-03,10],launcher01,storage01",
            "compute": "node[01-03,10]",
            "kind_h100": "node10",
            "launcher": "launcher01",
            "rack_r'2: {}": "node03",
            "rack_r01": "node[01-02]",
            "storage": "storage01",
            "unit_1": "node[01-02]",
        }
    }


@pytest.mark.skipif(not shutil.which("nodeset"), reason="clustershell is not installed")
def test_clush_reads_them(root: Path) -> None:
    assert statuses(a_node(root)) == {"clush_groups": "ok", "clush_default": "ok"}
    clush = ["clush", "-R", "exec", "-N", "-g", "rack_r01", "echo", "on", "%h"]
    done = clustershells(root, clush)
    assert sorted(done.stdout.splitlines()) == ["on node01", "on node02"], done.stderr
    nodes = clustershells(root, ["nodeset", "-f", "@compute!@kind_h100"])
    assert nodes.stdout == "node[01-03]\n"
    (root / clustershell.FILE).write_text("baremetal: {all: node01}\n", encoding="utf-8")
    [groups, _default] = Groups(FOUND, None).verify(a_node(root)).checks
    assert (groups.status, groups.wanted, groups.found) == ("failed", "6 hosts", "1 hosts")
    (root / clustershell.FILE).write_text("baremetal: [", encoding="utf-8")
    [groups, _default] = Groups(FOUND, None).verify(a_node(root)).checks
    assert groups.status == "failed" and groups.reason


@pytest.mark.parametrize(
    ("directory", "wanted", "expected"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_they_follow_the_package_unless_asked(
    root: Path, directory: bool, wanted: Optional[bool], expected: bool
) -> None:
    if not directory:
        shutil.rmtree(root / "etc/clustershell")
    found = statuses(a_node(root, ALL), wanted)
    assert (root / clustershell.FILE).exists() is expected
    assert found.get("clush_groups") == (
        None if not expected else "ok" if directory else "not_applicable"
    )
    assert not settle([Groups(FOUND, wanted)], a_node(root, ALL)).changed


def test_they_are_removed_and_the_default_with_them(root: Path) -> None:
    statuses(a_node(root, ALL))
    configuration = root / clustershell.CONFIGURATION
    assert "\ndefault: baremetal\n" in configuration.read_text(encoding="utf-8")
    assert statuses(a_node(root, ALL), False) == {}
    assert configuration.read_text(encoding="utf-8") == MAIN + LOCAL
    (root / clustershell.FILE).write_text("of: {the: site}\n", encoding="utf-8")
    statuses(a_node(root, ALL), False)
    assert written(root) == {"of": {"the": "site"}}


@pytest.mark.parametrize(
    ("configuration", "local"),
    [(MAIN, "login: login[01-02]\n"), (MAIN.replace("local", "slurm"), EXAMPLES)],
)
def test_the_default_of_a_site_stays(root: Path, configuration: str, local: str) -> None:
    (root / clustershell.CONFIGURATION).write_text(configuration, encoding="utf-8")
    (root / "etc/clustershell/groups.d/local.cfg").write_text(local, encoding="utf-8")
    found = statuses(a_node(root, ALL))
    assert found == {"clush_groups": "ok", "clush_default": "not_applicable"}
    assert (root / clustershell.CONFIGURATION).read_text(encoding="utf-8") == configuration


def test_check_mode_shows_the_difference(root: Path) -> None:
    found = statuses(a_node(root, "", check_mode=True))
    assert found == {"clush_groups": "pending", "clush_default": "pending"}
    assert not (root / clustershell.FILE).exists()

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch system is a package that registers itself; nothing else names one."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
FABRIC = PLUGINS / "plugin_utils/fabric"
NAMED = re.compile(rf"(?<![a-z])({'|'.join(SYSTEMS)})(?![a-z-])", re.IGNORECASE)
TEST_BED = re.compile(r"virtual")


def documentation(node: ast.AST) -> set[int]:
    """Docstrings, of attributes too: they may cite the sources of a figure."""
    body = getattr(node, "body", [])
    return {
        id(statement.value)
        for statement in (body if isinstance(body, list) else [])
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }


def names(path: Path) -> Iterator[str]:
    """Every identifier and string of a file that names a switch system."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    cited: set[int] = set().union(*(documentation(node) for node in ast.walk(tree)))
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and id(node) not in cited and NAMED.search(value):
                yield f"{path.name}: {field} {value[:60]!r}"


def test_only_its_own_package_names_a_system() -> None:
    files = [
        path
        for path in PLUGINS.rglob("*.py")
        if not TEST_BED.search(str(path.relative_to(ROOT)))
        and not any(path.is_relative_to(FABRIC / system) for system in SYSTEMS)
    ]
    assert [name for path in files for name in names(path)] == []
    roles = [
        path
        for path in (ROOT / "roles").rglob("*.yml")
        if not TEST_BED.search(str(path.relative_to(ROOT)))
    ]
    assert [path for path in roles if NAMED.search(path.read_text(encoding="utf-8"))] == []


def test_the_search_finds_a_name(tmp_path: Path) -> None:
    source = tmp_path / "plugin.py"
    name = next(iter(SYSTEMS))
    source.write_text(f'"""Of {name}."""\nX = "{name}"\n{name}_queue = Y.{name}\n')
    assert sorted(names(source)) == [
        f"plugin.py: attr '{name}'",
        f"plugin.py: id '{name}_queue'",
        f"plugin.py: value '{name}'",
    ]


def test_the_page_describes_every_system() -> None:
    page = (ROOT / "docs/fabric.md").read_text(encoding="utf-8")
    for name, system in SYSTEMS.items():
        assert f"| [`{name}`](#{system.title.lower()})" in page
        assert f"\n## {system.title}\n" in page


USE = """
import json, sys
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import port_checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    Completed, compile_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    compile_model, inventory_of, read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

model = sys.stdin.read()
inventory = inventory_of(compile_model(read("cluster.yml", model)))
leaf = next(host.variables for host in inventory.hosts if host.name == "leaf01")
intent = compile_switch(
    "leaf01", leaf["cluster_system"], leaf["cluster_asic"], {}, leaf["cluster_ports"],
    read_contract({"mtu": {"fabric": 9100, "fabric_layer": "ip"}}),
    leaf.get("cluster_port_step", 0),
)


class Shell:
    config = {f"{port.name} {key}": "1500" for port in intent.ports for key in ("mtu", "pfc")}

    def run(self, command, stdin="", timeout_s=60):
        for line in stdin.splitlines():
            path, _blank, value = line.rpartition(" ")
            self.config[path] = value
        return Completed(0, "".join(f"{path} {v}\\n" for path, v in self.config.items()), "")


driver = SYSTEMS["tiny"].driver
result = session.run(
    driver, driver.connect(Shell()), intent, apply=True, confirm_s=60, allowed="bounce"
)
checks = port_checks(intent, result.report, result.remaining, check_mode=False)
print(json.dumps({
    "systems": list(SYSTEMS),
    "ports": [port.name for port in intent.ports],
    "changed": len(result.difference.changes),
    "left": len(result.remaining.changes),
    "error": result.error,
    "mtu": [check.status for check in checks if check.name == "port_mtu"],
}))
"""
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11, slots: 1}
rails: {count: 1, speed_gbps: 400, mtu: 9000}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 1, ports: 64, management_first: 10.0.0.101, system: tiny}
launcher: {name: launcher01, management: 10.0.0.10}
roce_qos: {mtu: {fabric: 9100, fabric_layer: ip}}
"""


def test_a_fourth_system_is_only_a_package(tmp_path: Path) -> None:
    """It plans, applies and reads back over a fake shell; nothing else in the tree changes."""
    collection = tmp_path / "ansible_collections/baremetal/mpi_roce"
    shutil.copytree(PLUGINS, collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    fabric = collection / "plugins/plugin_utils/fabric"
    shutil.copytree(Path(__file__).parent / "fourth_system", fabric / "tiny")
    done = subprocess.run(
        [sys.executable, "-c", USE],
        input=MODEL,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result == {
        "systems": sorted([*SYSTEMS, "tiny"]),
        "ports": ["port1", "port3"],
        "changed": 4,
        "left": 0,
        "error": "",
        "mtu": ["ok"],
    }

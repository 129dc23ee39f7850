# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""layers/*.yml: the generated files are committed, and every declared option is used."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULES = "ansible_collections.baremetal.mpi_roce.plugins.modules."
DECLARED = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "layers").glob("*.yml"))
    if path.stem not in ("order", "shared")
}


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools/generate_layers.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def brought(options: dict[str, Any], below: str) -> dict[str, Any]:
    """What an options' documentation or specification says, in the same form for both."""
    return {
        name: {
            **{key: of.get(key) for key in ("type", "elements", "choices", "default")},
            "required": bool(of.get("required")),
            "below": brought(of.get(below) or {}, below),
        }
        for name, of in options.items()
    }


def test_every_module_documents_its_arguments() -> None:
    modules = {
        path.stem: importlib.import_module(MODULES + path.stem)
        for path in (ROOT / "plugins/modules").glob("*.py")
    }
    assert set(modules) == {
        name for layer in DECLARED.values() for name in layer.get("modules", {})
    }
    names = [f"baremetal.mpi_roce.{name}" for name in modules]
    command = [sys.executable, "-m", "ansible", "doc", "--json", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    pages = json.loads(done.stdout)
    for name, module in modules.items():
        options = pages[f"baremetal.mpi_roce.{name}"]["doc"]["options"]
        assert all(option["description"] for option in options.values())
        documented = brought(options, "suboptions")
        arguments = getattr(module, "ARGUMENTS", None)
        assert documented and (arguments is None or documented == brought(arguments, "options"))


def test_a_module_reports_the_layer_that_declares_it() -> None:
    for tag, declared in DECLARED.items():
        for name in declared.get("modules", {}):
            layer = getattr(importlib.import_module(MODULES + name), "LAYER", tag)
            assert getattr(layer, "tag", layer) == tag, name


def options() -> list[tuple[str, str]]:
    return [
        (layer["role"], key)
        for layer in DECLARED.values()
        for key, option in layer.get("options", {}).items()
        if not key.startswith(("cluster_", "roce_qos"))
    ]


def keys(options: dict[str, Any] | None) -> set[str]:
    """Every key below options and their suboptions."""
    entries = [option for option in (options or {}).values() if isinstance(option, dict)]
    below = [keys(option.get("suboptions", {})) for option in entries]
    return set().union(*entries, *below)


def test_options_have_only_keys_of_the_readme() -> None:
    """A comma in an unquoted text within braces would make its rest a key."""
    page = (ROOT / "layers/README.md").read_text(encoding="utf-8")
    known = {
        key
        for row in re.findall(r"^\| (`.*?) \|", page.partition("## An option")[2], re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    }
    shared = yaml.safe_load((ROOT / "layers/shared.yml").read_text(encoding="utf-8"))
    declared = [shared, *(layer.get("options", {}) for layer in DECLARED.values())]
    declared += [
        module for layer in DECLARED.values() for module in layer.get("modules", {}).values()
    ]
    assert set().union(*map(keys, declared)) - known == {"of"}


def test_every_option_is_used_outside_its_declaration() -> None:
    hand_written = [
        *(ROOT / "roles").glob("*/tasks/*.yml"),
        *(ROOT / "roles").glob("*/vars/*.yml"),
        *(ROOT / "plugins").glob("*/*.py"),
        *(ROOT / "plugins/plugin_utils").rglob("*.py"),
        *(ROOT / "playbooks").glob("*.yml"),
    ]
    text = "".join(path.read_text(encoding="utf-8") for path in hand_written)
    used = set(re.findall(r"\w+", text))
    assert {f"{role}_{key}" for role, key in options()} - used == set()


TRANSPORTS = {
    layer["role"]: yaml.safe_load(
        (ROOT / f"roles/{layer['role']}/defaults/main.yml").read_text(encoding="utf-8")
    )[f"{layer['role']}_transport"]
    for layer in DECLARED.values()
    if "transport" in layer.get("options", {})
}


@pytest.mark.parametrize("role", TRANSPORTS)
def test_mpi_runs_over_rdma_unless_tcp_is_chosen(role: str) -> None:
    template = jinja2.Template(TRANSPORTS[role])
    assert template.render() == "rc"
    if role != "mpi_stack":
        assert template.render(mpi_stack_transport="tcp") == "tcp"

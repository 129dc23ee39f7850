# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The keys of a model in editors (JSON Schema) and in ansible-doc are those of the schema."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import ModelError, schema
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema import kinds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import dotted

from tests.unit.action_plays import ROOT, ansible
from tests.unit.programs import program
from tests.unit.small_model import MODEL, compiled, edited

FILE = ROOT / "docs/cluster.schema.json"
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
MODELS = sorted((ROOT / "inventories").glob("**/cluster.yml"))
WRITTEN = sorted((ROOT / "tests/unit/data/models").glob("*.txt"))
ESCAPES = re.compile(r"(?:[^\\]|\\[\\^$.*+?()\[\]{}|/dDsSwW-])*")
"""Text with the escapes of ECMA-262, in patterns of JSON Schema."""
FOREIGN = re.compile(r"\(\?[<P#(]|\[\^?\]")
"""What Python understands, and ECMA-262 not or in another way."""


class Loader(yaml.SafeLoader):
    """YAML as editors read it: version 1.2 has no dates."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def faults(text: str) -> list[str]:
    """Paths that an editor marks."""
    data = yaml.load(text, Loader)
    return sorted(dotted(tuple(fault.path)) for fault in VALIDATOR.iter_errors(data))


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a JSON Schema."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            yield from walk(item)
    if isinstance(value, dict):
        yield value


def test_the_file_is_not_stale() -> None:
    written = FILE.read_text(encoding="utf-8")
    assert written == program("docs/generate_cluster_model.py").json_schema(), (
        "run docs/generate_cluster_model.py"
    )


def test_it_is_a_json_schema_for_every_editor() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    patterns = [of["pattern"] for of in walk(SCHEMA) if isinstance(of.get("pattern"), str)]
    assert len(patterns) > 50
    for pattern in patterns:
        assert ESCAPES.fullmatch(pattern) and not FOREIGN.search(pattern), pattern
        assert re.compile(pattern)


def test_every_key_has_a_text_and_a_type() -> None:
    keys = [key for of in walk(SCHEMA) for key in of.get("properties", {}).items()]
    assert len(keys) > 100
    for name, of in keys:
        assert of.get("description") and {"type", "enum", "anyOf"} & set(of), f"{name}: {of}"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_inventories_name_it_and_follow_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    first, _, _ = text.partition("\n")
    relative = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / relative).resolve() == FILE
    assert faults(text) == []


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_model_that_compiles_is_not_marked(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    with contextlib.suppress(ModelError):
        assert compiled(text).hosts
        assert faults(text) == []


@pytest.mark.parametrize(
    "edits",
    [
        "leaves.ports: {nodes: 'swp[1-32]s[0-1]', uplinks: ['swp[33-64]']}; leaves.system: nvue",
        "launcher: [{name: login01, management: 10.0.0.10}]; rails.vlan: 900; storage: null",
        "nodes.drained: [node01]; nodes.rack: 'r{:d}'; domain: example.net; x-racks: {a: [1]}",
        "leaves.asic: [spectrum4,spectrum4]; leaves.system: sonic; spines: null",
        "rails.pci: ['0000:1A:00.0','0000:1b:00.0']; gpus.numa: [0,1]; rails.gpu: [null,0]",
        "nodes.overrides: {node01: {rack: 1, vars: {a: {b: [1]}}}}; vars: {all: {x: 1.5}}",
        "rails.interface: 'r{rail}p{plane}'; software: {cuda: 13.0}; nodes.rack: '{}'",
        "gpus; rails; kinds: {x: {slots: 1, rails: {count: 2, speed_gbps: 400}}}; nodes.kind: x",
        "rails: {mtu: 4200}; kinds: {x: {rails: {count: 2, speed_gbps: 400}}}; nodes.kind: x",
    ],
)
def test_valid_values_are_not_marked(edits: str) -> None:
    text = edited(edits)
    with contextlib.suppress(ModelError):
        assert compiled(re.sub(r"(?m)^x-.*\n", "", text)).hosts
    assert faults(text) == []


@pytest.mark.parametrize(
    ("edits", "marked"),
    [
        ("nodes.cuont: 2", ["nodes"]),
        ("nodes.count: four", ["nodes.count"]),
        ("nodes.count: 2.5", ["nodes.count"]),
        ("rails.mtu: 90000", ["rails.mtu"]),
        ("rails.speed_gbps", ["rails"]),
        ("rails.interface: rail", ["rails.interface"]),
        ("rails.interface: '{rail}{rail}'", ["rails.interface"]),
        ("rails.pci: ['0000:11:00']", ["rails.pci[0]"]),
        ("nodes.name: 'node {}'", ["nodes.name"]),
        ("name: UP", ["name"]),
        ("plugin: other", ["plugin"]),
        ("addresses.plan: both", ["addresses.plan"]),
        ("addresses.pool: 10.1.0.0", ["addresses.pool"]),
        ("management.subnet: fd00::/64", ["management.subnet"]),
        ("leaves.system: [sonic, other]", ["leaves.system"]),
        ("leaves.ports: {node: 'swp[1-32]'}", ["leaves.ports"]),
        ("leaves.ports: {nodes: 'swp 1'}", ["leaves.ports.nodes"]),
        ("gpus: 8; xracks: 1", ["", "gpus"]),
        ("filesystems: [{name: a, type: nfs, nfs: {version: 4.0}}]", ["filesystems[0]"] * 3),
        ("asics: {a: {headroom: 1}}; nodes.overrides: {a: {b: 1}}", []),
        ("rails", [""]),
        ("kinds: {x: {rails: {count: -1}}}", ["kinds.x.rails.count"]),
    ],
)
def test_wrong_values_are_marked(edits: str, marked: list[str]) -> None:
    text = edited(edits)
    with pytest.raises(ModelError):
        compiled(text)
    found = faults(text)
    assert found and found[: len(marked)] == marked, found


def options(of: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, option in of.items():
        yield (*path, name)
        yield from options(option.get("suboptions", {}), (*path, name))


def keys(section: kinds.Section, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key in section.keys:
        yield (*path, key.name)
        if below := kinds.section_in(key.kind):
            yield from keys(below, (*path, key.name))


@pytest.mark.slow
def test_ansible_doc_shows_every_key() -> None:
    shown = ansible("ansible-doc", "--json", "-t", "inventory", schema.PLUGIN)
    assert shown.returncode == 0 and not shown.stderr, shown.stderr
    doc = json.loads(shown.stdout)[schema.PLUGIN]["doc"]["options"]
    assert sorted(options(doc)) == sorted(keys(schema.MODEL))
    count, ports = doc["nodes"]["suboptions"]["count"], doc["addresses"]["suboptions"]["plan"]
    assert (count["type"], ports["choices"]) == ("int", ["subnet_per_rail", "point_to_point"])
    assert doc["rails"]["required"] and doc["mpi"]["suboptions"]["uid"]["default"] == 2000
    assert doc["storage"]["elements"] == doc["nodes"]["type"] == "dict"
    assert doc["leaves"]["suboptions"]["asic"]["type"] == "raw"
    nfs = doc["filesystems"]["suboptions"]["nfs"]["suboptions"]["version"]
    assert (nfs["type"], nfs["choices"]) == ("str", ["4.2", "4.1", "3"])
    path = doc["roce_qos"]["suboptions"]["mtu"]["suboptions"]["roce_path"]
    assert path["type"] == "int" and 4096 in path["choices"]
    assert MODEL.startswith(f"plugin: {doc['plugin']['choices'][0]}")

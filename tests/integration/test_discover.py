# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A model drafted from running nodes: it compiles, and site.yml changes nothing with it.

The bridges that act as leaves pass no LLDP: a fake lldpcli reports the neighbours.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

PLAYBOOK = "playbooks/discover.yml"
LLDPCLI = "/usr/local/sbin/lldpcli"


@pytest.fixture
def machines(nodes: Nodes, tmp_path: Path) -> Nodes:
    """The same nodes by address, in an inventory that only has their logins."""
    state = nodes.ssh_config.parent
    hosts = nodes.group("compute", "launcher", "storage")
    inventory = {
        "all": {
            "hosts": {nodes.of(name)["ansible_host"]: {} for name in hosts},
            "vars": {
                "ansible_user": "ops",
                "ansible_ssh_private_key_file": f"{state}/id_ed25519",
                "ansible_ssh_common_args": "-o IdentitiesOnly=yes -o StrictHostKeyChecking=yes "
                f"-o UserKnownHostsFile={state}/known_hosts",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_timeout": 60,
            },
        }
    }
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
    return Nodes(path)


def draft(machines: Nodes) -> tuple[dict[str, Any], str]:
    path = machines.inventory.with_name("cluster.draft.yml")
    done = machines.play(PLAYBOOK, f"--extra-vars=discover_file={path}")
    text = path.read_text(encoding="utf-8")
    path.unlink()
    return yaml.safe_load(text), done.output


def test_site_changes_nothing_by_the_draft(nodes: Nodes, machines: Nodes, tmp_path: Path) -> None:
    drafted, output = draft(machines)
    rails = len(nodes.of(nodes.group("compute")[0])["cluster_rails"])
    assert (drafted["nodes"]["count"], drafted["rails"]["count"]) == (4, rails)
    assert f"discover: {len(nodes.group('compute'))} nodes read" in output

    def complete(model: dict[str, Any]) -> None:
        """Fill in the lines marked CHECK: racks, GPUs of the rank plan, file systems, variables."""
        known = {key: model[key] for key in ("name", "gpus", "filesystems", "vars")}
        of_nodes = {key: model["nodes"][key] for key in ("nodes_per_rack", "overrides")}
        model.clear()
        model.update({**drafted, **known, "nodes": {**drafted["nodes"], **of_nodes}})

    done = nodes.changed(tmp_path, complete).play("site.yml")
    assert done.total("changed") == 0, done.output


def test_a_missing_rail_and_another_mtu_are_named(nodes: Nodes, machines: Nodes) -> None:
    first, second = nodes.group("compute")[:2]
    address = {name: nodes.of(name)["ansible_host"] for name in (first, second)}
    nodes.on(first).check_output("ip link set rail2 down && ip link set rail2 name away")
    nodes.on(second).check_output("ip link set rail1 mtu 1500")
    try:
        drafted, output = draft(machines)
        compared = nodes.play(PLAYBOOK).output
    finally:
        nodes.on(first).check_output("ip link set away name rail2 && ip link set rail2 up")
        nodes.on(second).check_output("ip link set rail1 mtu 9000")
        nodes.play("playbooks/rails.yml", f"--limit={first},{second}")
    assert drafted["rails"]["mtu"] == 9000
    for text, names in ((output, address), (compared, {first: first, second: second})):
        assert re.search(rf"{names[first]} +rail2 +NIC +missing +rail2", text), text
        assert re.search(rf"{names[second]} +rail1 +MTU +1500 +9000 \(", text), text
    # With its model, the rails of a healthy host are not listed.
    assert not re.search(rf"{nodes.group('compute')[2]} +rail", compared)


@pytest.fixture
def cabled(nodes: Nodes) -> Iterator[list[str]]:
    """Compute nodes that hear their leaves; on the second node two of them are swapped."""
    names = nodes.group("compute")
    for index, name in enumerate(names):
        rails = nodes.of(name)["cluster_rails"]
        heard = {rail["interface"]: (rail["leaf"], rail["leaf_port"]) for rail in rails}
        if index == 1:
            heard["rail0"], heard["rail1"] = heard["rail1"], heard["rail0"]
        # The format is that of lldpd: tests/unit/test_hardware_host.py.
        interfaces = [
            {
                "name": interface,
                "via": "LLDP",
                "chassis": [{"name": [{"value": leaf}], "descr": [{"value": "a switch"}]}],
                "port": [{"id": [{"type": "ifname", "value": port}]}],
            }
            for interface, (leaf, port) in heard.items()
        ]
        answer = json.dumps({"lldp": [{"interface": interfaces}]})
        program = f"#!/bin/sh\necho {shlex.quote(answer)}\n"
        nodes.on(name).check_output(f"printf %s {shlex.quote(program)} >{LLDPCLI}")
        nodes.on(name).check_output(f"chmod +x {LLDPCLI}")
    yield names
    for name in names:
        nodes.on(name).check_output(f"rm {LLDPCLI}")


def test_swapped_cables_are_named(nodes: Nodes, machines: Nodes, cabled: list[str]) -> None:
    drafted, output = draft(machines)
    assert drafted["leaves"]["name"] == nodes.group("leaf")
    swapped = r" +rail0 +cable +leaf02 \S+, swapped with rail1 +leaf01 "
    assert re.search(nodes.of(cabled[1])["ansible_host"] + swapped, output), output
    assert re.search(cabled[1] + swapped, nodes.play(PLAYBOOK).output)
    assert output.count(" cable ") == 1

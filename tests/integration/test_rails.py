# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails on nodes of both families.

A change affects only its rail, survives a reboot, and is undone if the rail does not come up.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from tests.nodes import CLUSTER, Nodes, Run
from tests.waiting import until

pytestmark = [pytest.mark.nodes, pytest.mark.long]

PLAYBOOK = "playbooks/rails.yml"
CLAIMS = {
    "ubuntu": (
        "/etc/netplan/99-mine.yaml",
        "network:\n  version: 2\n  ethernets:\n    rail2: {dhcp4: true}\n",
    ),
    "el": (
        "/etc/NetworkManager/system-connections/mine.nmconnection",
        "[connection]\nid=mine\ntype=ethernet\ninterface-name=rail2\n",
    ),
}
"""An operator's file that claims rail2, by family."""

KILLER = """until test -e {note}; do :; done
for process in /proc/[0-9]*; do
    test "$(tr -d '\\0' <$process/cmdline)" = /usr/bin/python3 && kill -9 "${{process#/proc/}}"
done
"""
"""Kills the module, which Python reads from standard input, when it records a change."""


@pytest.fixture(scope="module")
def nodes(fresh_nodes: Nodes) -> Nodes:
    """Nodes with configured rails; the state of other layers does not matter here."""
    CLUSTER.used()
    fresh_nodes.play(PLAYBOOK)
    return fresh_nodes


@pytest.fixture(params=["ubuntu", "el"])
def node(request: pytest.FixtureRequest, nodes: Nodes) -> Iterator[str]:
    """One compute node of each family. Its rails are reset to the model afterwards."""
    names = [
        name
        for name in nodes.group("compute")
        if nodes.of(name).get("virtual_nodes_family") == request.param
    ]
    if not names:
        pytest.skip(f"the inventory has no {request.param} node")
    yield names[0]
    nodes.play(PLAYBOOK, f"--limit={names[0]}")


def play(
    nodes: Nodes,
    name: str,
    rails: Optional[list[dict[str, Any]]] = None,
    *words: str,
    expect: int = 0,
) -> Run:
    """Run the rails playbook on one node, optionally with rails that differ from the model's."""
    given = [f"--extra-vars={json.dumps({'cluster_rails': rails})}"] if rails else []
    return nodes.play(PLAYBOOK, f"--limit={name}", *given, *words, expect=expect)


def links(nodes: Nodes, name: str) -> dict[str, dict[str, Any]]:
    """Return per interface what a change must not disturb: identity, addresses, MTU, and flaps."""
    on = nodes.on(name)
    answer = json.loads(on.check_output("ip -j -d address show"))
    flaps = on.check_output("grep . /sys/class/net/*/carrier_changes")
    count = {line.split("/")[4]: line.rsplit(":", 1)[1] for line in flaps.splitlines()}
    return {
        link["ifname"]: {
            "index": link["ifindex"],
            "mtu": link["mtu"],
            "flags": link["flags"],
            "carrier_changes": count.get(link["ifname"]),
            "addresses": [info["local"] for info in link["addr_info"]],
        }
        for link in answer
    }


def test_a_change_of_one_rail_leaves_traffic_on_the_others_alone(nodes: Nodes, node: str) -> None:
    rails = copy.deepcopy(nodes.of(node)["cluster_rails"])
    rails[1]["mtu"] = 8000
    before, on = links(nodes, node), nodes.on(node)
    ping = f"ping -i 0.01 -q -w 60 -I {rails[0]['address']} {rails[0]['gateway']}"
    on.check_output(f"sh -c '{ping} >/tmp/ping 2>&1 & echo $! >/tmp/ping.pid'")
    run = play(nodes, node, rails)
    on.check_output("kill -INT $(cat /tmp/ping.pid)")
    after = links(nodes, node)
    assert run.total("changed") == 1
    assert after.pop("rail1")["mtu"] == 8000
    assert before.pop("rail1")["mtu"] == 9000
    assert after == before
    output = until(
        lambda: re.search("[^ ]+% packet loss", on.check_output("cat /tmp/ping")), "ping"
    )
    assert output[0] == "0% packet loss"


def test_a_rail_that_leaves_the_model_is_bare_again(nodes: Nodes, node: str) -> None:
    rails = nodes.of(node)["cluster_rails"]
    play(nodes, node, rails[:-1])
    last, on = rails[-1], nodes.on(node)
    assert last["address"] not in links(nodes, node)[last["interface"]]["addresses"]
    assert last["address"] not in on.check_output("ip rule show")
    files = on.check_output("find /etc -name '*baremetal-mpi-roce*rail*' -type f")
    texts = [on.file(path).content_string for path in files.splitlines()]
    assert texts
    assert not [text for text in texts if last["interface"] in text]
    assert play(nodes, node, rails[:-1]).total("changed") == 0


def test_a_file_that_claims_a_rail_is_named(nodes: Nodes, node: str) -> None:
    path, text = CLAIMS[nodes.of(node)["virtual_nodes_family"]]
    nodes.on(node).check_output("ip link set rail3 mtu 1500")
    claim = f"printf %s {shlex.quote(text)} >{path} && chmod 600 {path}"
    with nodes.by_hand(node, claim, f"rm {path}"):
        run = play(nodes, node, expect=2)
    (check,) = run.failed("rails", node)
    assert (check["name"], check["subject"]) == ("rail_claim", "rail2")
    assert path in check["found"][0]
    assert links(nodes, node)["rail3"]["mtu"] == 9000


def test_a_rail_that_does_not_come_up_is_undone(nodes: Nodes, node: str) -> None:
    """Its interface is on the management bridge, whose MTU is 1500."""
    rails = copy.deepcopy(nodes.of(node)["cluster_rails"])
    extra = {**rails[0], "rail": 60, "interface": "railx", "mtu": 9000, "gateway": None}
    extra.update(address="10.254.254.2", prefix=24, network="10.254.254.0/24")
    rails[1]["mtu"] = 8000
    add = "ip link add railx link mgmt0 type macvlan mode bridge"
    with nodes.by_hand(node, add, "ip link del railx") as on:
        run = play(nodes, node, [*rails, extra], "--extra-vars=roce_rails_wait_s=5", expect=2)
        found = links(nodes, node)
        assert {check["subject"] for check in run.failed("rails", node)} == {"railx"}
        assert found["rail1"]["mtu"] == 8000
        assert "10.254.254.2" not in found["railx"]["addresses"]
        assert on.check_output("grep -rl railx /etc").split() in (
            [],
            ["/etc/sysctl.d/60-baremetal-mpi-roce-rails.conf"],
        )


def test_a_run_that_is_killed_on_the_node_is_repaired(nodes: Nodes, node: str) -> None:
    rails = copy.deepcopy(nodes.of(node)["cluster_rails"])
    rails[1]["mtu"] = rails[2]["mtu"] = 8000
    on = nodes.on(node)
    note = "/run/baremetal-mpi-roce/rails-in-progress.json"
    on.check_output("printf %s > /run/killer", KILLER.format(note=note))
    on.check_output("setsid timeout 60 sh /run/killer >/dev/null 2>&1 </dev/null &")
    play(nodes, node, rails, expect=2)
    assert on.file(note).exists
    play(nodes, node, rails)
    assert not on.file(note).exists
    found = links(nodes, node)
    assert [found[name]["mtu"] for name in ("rail0", "rail1", "rail2")] == [9000, 8000, 8000]
    assert play(nodes, node, rails).total("changed") == 0


def test_rails_hold_over_a_reboot(nodes: Nodes) -> None:
    """Run on all compute nodes in parallel. Check mode finds no change afterwards."""
    nodes.reboot("compute")
    run = nodes.play(PLAYBOOK, "--check")
    assert run.total("changed") == 0
    assert {check["status"] for check in run.checks("rails")} <= {"ok", "not_applicable"}


def test_management_is_as_it_was(nodes: Nodes) -> None:
    for name in nodes.group("compute"):
        management = nodes.of(name)["cluster_management"]
        found = links(nodes, name)[management["interface"]]
        assert management["address"] in found["addresses"]
        assert not [
            path
            for path in nodes.on(name).check_output("find /etc -name '*baremetal*'").split()
            if management["interface"] in nodes.on(name).run("cat %s", path).stdout
        ]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A routed fabric: rails reach each other over leaf, spine and leaf, or not at all.

The bed's code creates the fabric and its routes. The nodes are plain namespaces whose rails get the
addresses of the model: this tests the fabric and the address plan, not the roles.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils.cabling import (
    NetworkPlan,
    plan_network,
)
from ansible_collections.baremetal.bed.plugins.module_utils.host_network import (
    HostNetwork,
    NetworkJournal,
    create,
    destroy,
)
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    node_namespace,
    parse_nodes,
    router_namespace,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    compile_model,
    inventory_of,
    read,
)

from tests import waiting

pytestmark = pytest.mark.nodes

CLUSTER = "vnrouted"
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: %(cluster)s
management: {subnet: 172.30.238.0/24}
nodes: {count: 2, management_first: 172.30.238.11, slots: 2}
rails: {count: 2, speed_gbps: 10, mtu: 9000}
addresses: {plan: %(plan)s, pool: 10.151.0.0/16%(prefix)s}
leaves: {count: 2, ports: 8, management_first: 172.30.238.101}
spines: {count: 2, ports: 8, management_first: 172.30.238.121}
launcher: {name: launcher01, management: 172.30.238.10}
"""
PLANS = {"subnet_per_rail": ", prefix: 24", "point_to_point": ""}


def lacking() -> str:
    """Return the requirement of a routed fabric that this machine lacks; empty if there is none."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ping") is None:
        return "ping is not installed (iputils-ping)"
    return ""


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    reason = lacking()
    if reason:
        pytest.skip(reason)


class Routed:
    """Create the virtual network of a model, with addresses on the rails."""

    def __init__(self, plan: str) -> None:
        values = {"cluster": CLUSTER, "plan": plan, "prefix": PLANS[plan]}
        inventory = inventory_of(compile_model(read("cluster.yml", MODEL % values)))
        self.point_to_point = plan == "point_to_point"
        self.variables = {host.name: host.variables for host in inventory.hosts}
        self.networks = inventory.group_variables["all"].get("cluster_rail_networks") or []
        self.rails: dict[str, list[dict[str, Any]]] = {
            name: [dict(rail) for rail in self.variables[name]["cluster_rails"]]
            for name in ("node01", "node02")
        }
        self.switches = {
            name: self.variables[name]["cluster_ports"]
            for name in ("leaf01", "leaf02", "spine01", "spine02")
        }
        self.host, self.journal = HostNetwork(run), NetworkJournal(CLUSTER)

    def plan(self) -> NetworkPlan:
        management = {name: self.variables[name]["cluster_management"] for name in self.rails}
        return plan_network(
            CLUSTER,
            parse_nodes(management, self.rails),
            point_to_point=self.point_to_point,
            switches=self.switches,
        )

    def up(self, *, check_mode: bool = False) -> tuple[str, ...]:
        return create(self.plan(), self.host, self.journal, check_mode=check_mode)

    def down(self) -> None:
        destroy(CLUSTER, self.host, self.journal, check_mode=False)

    def address_rails(self) -> None:
        """Configure a rail as the role roce_rails does: address, MTU, and a route by its
        gateway."""
        for name, rails in self.rails.items():
            for rail in rails:
                table = str(1000 + rail["rail"])
                for words in (
                    f"link set {rail['interface']} mtu {rail['mtu']} up",
                    f"address replace {rail['address']}/{rail['prefix']} dev {rail['interface']}",
                    f"route replace default via {rail['gateway']} table {table}",
                    f"rule add from {rail['address']} table {table}",
                ):
                    self.ip(node_namespace(CLUSTER, name), *words.split())

    def ip(self, namespace: str, *words: str) -> str:
        done = subprocess.run(
            ["ip", "-n", namespace, *words], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{namespace}: ip {' '.join(words)}: {done.stderr}"
        return done.stdout

    def ping(self, source: tuple[str, int], target: tuple[str, int], size: int = 56) -> bool:
        """Return whether a full-size packet from one rail to another is answered."""
        here, there = (self.rails[name][number] for name, number in (source, target))
        done = subprocess.run(
            [
                "ip", "netns", "exec", node_namespace(CLUSTER, source[0]),
                "ping", "-n", "-c1", "-W1", "-M", "do", "-s", str(size),
                "-I", here["address"], there["address"],
            ],
            check=False,
            capture_output=True,
        )  # fmt: skip
        return done.returncode == 0

    def reaches(self, source: tuple[str, int], target: tuple[str, int]) -> bool:
        """Wait for links to come up. A ping without an answer takes a second."""
        return waiting.until(lambda: self.ping(source, target), f"{source} to reach {target}", 10)

    def paths(self, leaf: str, network: str, wanted: list[str]) -> bool:
        """Verify that the leaf reaches a destination over these ports, and no others."""
        found = f"{leaf} to have {wanted} to {network}"
        return waiting.until(lambda: self._paths(leaf, network) == wanted, found, 10)

    def _paths(self, leaf: str, network: str) -> list[str]:
        routes = json.loads(
            self.ip(router_namespace(CLUSTER, leaf), "-json", "route", "show", network)
        )
        return sorted(
            hop["dev"]
            for route in routes
            for hop in route.get("nexthops", [route])
            if "linkdown" not in hop["flags"]
        )


@pytest.fixture(params=PLANS)
def routed(request: pytest.FixtureRequest) -> Iterator[Routed]:
    network = Routed(request.param)
    yield network
    network.down()


def traces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    folders = [str(path) for path in Path("/run/baremetal-mpi-roce/virtual").rglob(f"{CLUSTER}*")]
    return [*(name for name in listed.stdout.split() if CLUSTER in name), *folders]


def test_rails_of_different_leaves_connect_over_any_spine(
    routed: Routed,
) -> None:
    assert any("-n vnrouted.router.leaf01 route" in line for line in routed.up(check_mode=True))
    assert traces() == [], "check mode makes nothing"
    routed.up()
    routed.address_rails()
    assert routed.up() == (), "a second run has nothing to do"
    here, there = ("node01", 0), ("node02", 1)
    assert routed.reaches(here, there)
    assert routed.ping(here, there, size=9000 - 28), "a whole packet of the rail's MTU"
    network = routed.rails["node02"][1]["network"]
    assert routed.paths("leaf01", network, ["Ethernet6", "Ethernet7"])
    for interface in ("Ethernet0", "Ethernet1"):
        routed.ip(router_namespace(CLUSTER, "spine01"), "link", "set", interface, "down")
    assert routed.reaches(here, there), "by the other spine"
    assert routed.paths("leaf01", network, ["Ethernet7"])
    assert routed.up() != ()
    assert routed.reaches(here, there)
    routed.down()
    assert traces() == []


def wrong_gateway(network: Routed) -> None:
    """Give the leaf another address than the gateway of its nodes."""
    for rails in network.rails.values():
        rails[1]["gateway"] = rails[1]["gateway"].rpartition(".")[0] + ".99"


def prefix_too_long(network: Routed) -> None:
    """Give the leaf a longer prefix, so that some nodes are outside its network."""
    for rails in network.rails.values():
        base = rails[1]["network"].partition("/")[0]
        rails[1]["network"] = f"{base}/31"


@pytest.mark.parametrize("mistake", [wrong_gateway, prefix_too_long])
def test_a_wrong_address_plan_shows_as_no_connectivity(mistake: Any) -> None:
    network = Routed("subnet_per_rail")
    right = {name: [dict(rail) for rail in rails] for name, rails in network.rails.items()}
    try:
        mistake(network)
        network.up()
        network.rails = right
        network.address_rails()
        assert network.reaches(("node01", 0), ("node02", 0)), "the other leaf is right"
        # With a correct plan they reach each other within two seconds: five tries take five.
        assert not any(network.ping(("node01", 0), ("node02", 1)) for _try in range(5))
    finally:
        network.down()

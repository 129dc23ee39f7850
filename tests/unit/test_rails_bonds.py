# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails that are bonds: compared with the model, never configured, and refused by other layers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Layer, carry_out
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.modules import roce_rails
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import aspects
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import (
    nic_end,
    node_state,
)

from tests.unit.ended import Ended, Module
from tests.unit.host import Host
from tests.unit.rails_host import FakeHost, rail
from tests.unit.test_rails_module import GIVEN

MEMBERS = ("rail0p0", "rail0p1")
RAIL = rail(0, members=[{"plane": n, "interface": name} for n, name in enumerate(MEMBERS)])


@pytest.fixture
def host(tmp_path):
    """A host whose bond is as in the model."""
    host = FakeHost(tmp_path, ("rail0", *MEMBERS))
    for link in list(host.links.values())[1:]:
        link.update(up=True, mtu=9000)
    host.links["rail0"]["addresses"] = ["10.100.0.11/24"]
    host.write("sys/class/net/rail0/bonding/mode", "802.3ad 4\n")
    host.write("sys/class/net/rail0/bonding/ad_aggregator", "1\n")
    for number, name in enumerate(MEMBERS):
        host.links[name]["master"] = "rail0"
        host.write(f"sys/class/net/{name}/bonding_slave/ad_aggregator_id", "1\n")
        host.write(f"sys/class/net/{name}/bonding_slave/perm_hwaddr", f"02:aa:00:00:00:0{number}\n")
    return host


def settled(host, check_mode=False):
    return roce_rails.converged({**GIVEN, "rails": [RAIL]}, host.node(check_mode))


def failed(host) -> list[tuple[str, str, Any]]:
    found = settled(host).outcome.checks
    return [(one.name, one.subject, one.found) for one in found if one.status == "failed"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_bond_as_in_the_model_is_not_touched(host, check_mode):
    before = Host.snapshot(host)
    result = settled(host, check_mode)
    assert not failed(host) and not result.outcome.changed and Host.snapshot(host) == before
    assert {command[0] for command in host.commands} == {"ip"}
    assert {one.name for one in result.outcome.checks if one.status == "not_applicable"} == {
        "rail_settings"
    }
    member = result.returned["rails"]["rail0p1"]
    assert (member["mac"], member["mtu"], member["carrier"]) == ("02:aa:00:00:00:01", 9000, True)


@pytest.mark.parametrize(
    ("path", "text", "check"),
    [
        ("rail0/bonding/mode", "balance-xor 2\n", ("rail_bond", "rail0", "balance-xor")),
        ("rail0p1/bonding_slave/ad_aggregator_id", "2\n", ("rail_lacp", "rail0p1", "2")),
        ("rail0p1/bonding_slave/ad_aggregator_id", "N/A\n", ("rail_lacp", "rail0p1", "N/A")),
    ],
)
def test_a_bond_that_differs_is_a_failure(host, path, text, check):
    host.write(f"sys/class/net/{path}", text)
    [(name, subject, found)] = failed(host)
    shown = found["mode"] if isinstance(found, dict) else found
    assert (name, subject, shown) == check
    assert settled(host, check_mode=True).outcome.checks == settled(host).outcome.checks


@pytest.mark.parametrize(
    ("link", "change", "check"),
    [
        ("rail0p0", {"carrier": False}, ("rail_link", "rail0p0", "no carrier")),
        ("rail0p0", {"up": False}, ("rail_link", "rail0p0", "down")),
        ("rail0", {"mtu": 1500}, ("rail_mtu", "rail0", 1500)),
        ("rail0", {"addresses": []}, ("rail_address", "rail0", [])),
        (
            *("rail0p1", {"master": "rail1"}),
            ("rail_bond", "rail0", {"mode": "802.3ad", "members": ["rail0p0"]}),
        ),
    ],
)
def test_links_of_a_bond(host, link, change, check):
    host.links[link].update(change)
    assert failed(host) == [check]


def test_a_host_without_the_bond(tmp_path):
    names = [name for name, _subject, _found in failed(FakeHost(tmp_path, ("ens1", "ens2")))]
    assert names == [
        *("rail_bond", "rail_link", "rail_link", "rail_lacp", "rail_lacp"),
        *("rail_link", "rail_mtu", "rail_address"),
    ]


def test_former_files_of_the_collection_are_named(host):
    host.write("etc/systemd/network/10-baremetal-mpi-roce-rail0p0.network", "[Match]\n")
    with pytest.raises(PlanError, match="rail0p0"):
        settled(host)


def test_links_compare_members_without_their_settings(host):
    result = settled(host)
    answer = {**result.returned, "checks": [vars(one) for one in result.outcome.checks]}
    wanted, found = nic_end(node_state(answer), "rail0p0", 400, 9000)
    assert found[aspects.UP] == wanted[aspects.UP] and found[aspects.MTU] == 9000
    assert not found[aspects.SETTINGS].fault


@pytest.mark.parametrize("tag", ["rdma", "gpu", "storage", "mpi"])
def test_other_layers_refuse_bonds_before_they_begin(tag):
    begun = []
    with pytest.raises(Ended) as caught:
        carry_out(Module(rails=[RAIL]), Layer(tag, 1.0), begun.append)
    assert caught.value.failed and not begun
    assert all(word in caught.value.result["msg"] for word in ("rail0", f"layer {tag}"))

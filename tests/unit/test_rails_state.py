# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's network from recorded output of `ip -j` and networkctl, and rails by PCI address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import iproute
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.iproute import (
    MAIN_TABLE,
    IpLink,
    NetworkState,
    Route,
    SourceRule,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import backends, naming
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails

from tests.unit.rails_host import rail

GOLDEN = Path(__file__).parent / "golden/rails"


def recorded(name):
    return json.loads((GOLDEN / name).read_text())


def test_links_as_recorded():
    links = iproute.parse_links(recorded("ip_address.json"))
    rail = links["rail0"]
    assert (rail.mtu, rail.up, rail.carrier) == (9000, True, True)
    # The link-local address of the kernel does not count.
    assert rail.addresses == ("10.77.0.11/24",)
    assert rail.mac.count(":") == 5


def test_routes_as_recorded():
    routes = iproute.parse_routes(recorded("ip_route.json"))
    # Routes that the kernel derives from an address do not count.
    assert routes["rail0"] == (
        Route(1000, "10.77.0.0/24"),
        Route(1000, "default", "10.77.0.1"),
    )


def test_networkctl_as_recorded():
    text = (GOLDEN / "networkctl_status.txt").read_text()
    files = backends.parse_status(text)
    assert files["rail0"] == "/run/systemd/network/10-netplan-rail0.network"
    assert files["rail1"] == "/run/systemd/network/10-netplan-rail1.network"


def test_a_failed_link_is_not_taken_for_configured():
    text = "* 3: rail0\n  Network File: /etc/a.network\n  State: routable (failed)\n"
    assert backends.parse_status(text) == {"rail0": "/etc/a.network, routable (failed)"}


def test_metrics_matter_in_the_main_table_only():
    by = {"gateway": "10.0.0.1", "dev": "rail0"}
    routes = iproute.parse_routes(
        [
            {"dst": "default", **by, "metric": 104, "table": "1000"},
            {"dst": "10.0.0.0/8", **by, "metric": 1000},
            {"dst": "10.9.9.9", "dev": "rail0"},
        ]
    )
    assert set(routes["rail0"]) == {
        Route(1000, "default", "10.0.0.1"),
        Route(MAIN_TABLE, "10.0.0.0/8", "10.0.0.1", 1000),
        Route(MAIN_TABLE, "10.9.9.9/32", None, 0),
    }


def test_rules_without_a_source_are_ignored():
    rules = iproute.parse_rules(
        [
            {"priority": 1000, "src": "all", "table": "255"},
            {"priority": 5, "src": "10.0.0.0", "srclen": 8, "table": "7"},
        ]
    )
    assert rules == (SourceRule(5, "10.0.0.0/8", 7),)


def test_what_a_vlan_or_a_route_uses_is_in_use():
    lower = {"ifname": "ens1", "ifindex": 2, "mtu": 1500}
    links = iproute.parse_links([lower, {**lower, "ifname": "ens1.7", "link": "ens1"}])
    routes = {"ens2": (Route(MAIN_TABLE, "default", "10.0.0.1"),)}
    assert NetworkState(links, routes).in_use == {"ens1", "ens2"}


# Names by PCI address: found, renamed, left for the reboot or refused

PCI = "0000:5d:00.0"


def add(root, name, *steps, port=None):
    """Create an interface in sysfs, below the given PCI path from the root complex."""
    device_path = root.joinpath("sys/devices/pci0000:50", *steps)
    device_path.mkdir(parents=True, exist_ok=True)
    net = root / "sys/class/net" / name
    net.mkdir(parents=True)
    (net / "device").symlink_to(device_path)
    if port:
        (net / "phys_port_name").write_text(f"{port}\n")


def link(name, **more):
    values = {"mtu": 1500, "up": False, "carrier": False, "mac": "", "addresses": ()}
    return IpLink(name, **{**values, **more})


def name_of(links, by_pci, routes=(), pci=PCI):
    (plan,) = plan_rails([rail(3, pci=pci)])
    found = {name: (Route(MAIN_TABLE, "10.0.0.0/8"),) for name in routes}
    return naming.rail_name(
        plan, NetworkState({each.name: each for each in links}, found), by_pci, {}
    )


def test_interfaces_are_found_by_the_last_pci_address_on_their_way(tmp_path):
    add(tmp_path, "ens5f0", "0000:50:01.0", PCI)
    add(tmp_path, "eth7", "0000:50:02.0", "0000:60:00.0", "virtio3")
    (tmp_path / "sys/class/net/lo").mkdir()
    assert naming.interfaces_by_pci(tmp_path) == {PCI: ["ens5f0"], "0000:60:00.0": ["eth7"]}


@pytest.mark.parametrize("port", ["pf0vf0", "pf1vf12", "c1pf0vf3", "pf0sf88", "pf0hpf", "pf0"])
def test_representors_are_no_ports(tmp_path, port):
    add(tmp_path, "rep", "0000:50:01.0", PCI, port=port)
    assert naming.interfaces_by_pci(tmp_path) == {}


def test_without_a_pci_address_the_name_must_exist():
    assert name_of([link("rail3")], {}, pci=None).action == naming.NAMED
    missing = name_of([link("lo"), link("eth0")], {}, pci=None)
    assert missing.action == naming.REFUSED
    assert "no interface rail3" in missing.reason
    assert "eth0" in missing.reason


def test_an_idle_interface_is_renamed():
    found = name_of([link("ens5f0", up=True)], {PCI: ["ens5f0"]})
    assert (found.action, found.interface) == (naming.RENAME, "ens5f0")


@pytest.mark.parametrize(
    ("links", "routes", "why"),
    [
        ([link("ens5f0", addresses=("10.1.1.1/24",))], (), "carries 10.1.1.1/24"),
        ([link("ens5f0", master="bond0")], (), "belongs to bond0"),
        ([link("ens5f0")], ("ens5f0",), "is used by another interface or a route"),
        ([], (), "is not visible to ip"),
    ],
)
def test_an_interface_in_use_waits_for_the_reboot(links, routes, why):
    found = name_of(links, {PCI: ["ens5f0"]}, routes)
    assert found.action == naming.AT_BOOT
    assert why in found.reason
    assert "becomes rail3" in found.reason


def test_a_name_at_another_address_is_refused():
    found = name_of([link("rail3"), link("ens5f0")], {"0000:aa:00.0": ["rail3"], PCI: ["ens5f0"]})
    assert found.action == naming.REFUSED
    for part in ("rail3 is at 0000:aa:00.0", f"the model has {PCI}", "ens5f0"):
        assert part in found.reason


def test_a_missing_nic_is_refused_and_the_others_are_listed():
    found = name_of([link("ens1")], {"0000:aa:00.0": ["ens1"]})
    assert found.action == naming.REFUSED
    assert f"PCI address {PCI}" in found.reason
    assert "0000:aa:00.0 (ens1)" in found.reason

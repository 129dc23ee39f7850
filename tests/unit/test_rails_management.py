# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interface through which a host is reached never becomes a rail."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.processes import login_address
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.iproute import (
    IpLink,
    NetworkState,
    parse_routes,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.management import (
    ManagementNetwork,
)

from tests.unit.rails_host import FakeHost, rail

MANAGEMENT = ManagementNetwork.of({"address": "10.10.1.1", "prefix": 22, "interface": ""})
PCI = "0000:5d:00.0"


def link(name, *addresses, **more):
    return IpLink(name, 1500, True, True, "", addresses, **more)


def state(*links, routes=()):
    return NetworkState({each.name: each for each in links}, parse_routes(list(routes)))


def files_of(host, name):
    return [path for path in host.root.glob("etc/**/*") if path.is_file() and name in path.name]


@pytest.mark.parametrize(
    ("management", "login", "routes", "why"),
    [
        ({"address": "10.10.1.1", "prefix": 22}, "", [], "10.10.1.1, the management address"),
        ({"address": "10.10.3.9", "prefix": 22}, "", [], "in the management network 10.10.0.0/22"),
        ({}, "10.10.1.1", [], "10.10.1.1, where the SSH connection of this run arrives"),
        ({}, "", [{"dst": "default", "dev": "mgmt0"}], "has this host's default route"),
    ],
)
@pytest.mark.parametrize("pci", [None, PCI])
def test_a_name_that_is_the_management_interface_is_refused(
    tmp_path, management, login, routes, why, pci
):
    host = FakeHost(tmp_path, names=("rail0",))
    if pci:
        host.add_pci("mgmt0", pci)
    host.routes += routes
    wanted = [rail(0), rail(1, interface="mgmt0", pci=pci)]
    guard = ManagementNetwork.of(management, login)
    for check_mode in (True, False):
        outcome = host.converge(wanted, management=guard, check_mode=check_mode)
        (failed,) = [check for check in outcome.checks if check.status == "failed"]
        assert (failed.name, failed.subject) == ("rail_name", "mgmt0")
        assert why in failed.reason
        assert "in the model" in failed.reason
    assert host.links["mgmt0"]["addresses"] == ["10.10.1.1/22"]
    # The other rails are not affected.
    assert host.touched == ["rail0"]
    assert files_of(host, "mgmt0") == []
    assert [route for route in host.routes if route["dev"] == "mgmt0"] == routes
    assert not host.converge(wanted, management=guard).changed


def test_the_management_nic_is_refused(tmp_path):
    host = FakeHost(tmp_path, names=("rail0",))
    host.add_pci("mgmt0", PCI)
    outcome = host.converge([rail(0), rail(1, pci=PCI)], management=MANAGEMENT)
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject) == ("rail_name", "rail1")
    assert all(part in failed.reason for part in (PCI, "mgmt0", "10.10.1.1", "rail1"))
    assert files_of(host, "rail1") == []
    assert not (tmp_path / "var/lib/baremetal-mpi-roce/reboot-required.d/rails.json").exists()


@pytest.mark.parametrize("address", ["10.10.1.1", "10.10.3.9"])
def test_a_rail_with_an_address_of_the_management_network_is_refused(tmp_path, address):
    host = FakeHost(tmp_path)
    host.links["mgmt0"]["addresses"].clear()
    wanted = [rail(0), rail(1, address=address, prefix=22, gateway=None)]
    outcome = host.converge(wanted, management=MANAGEMENT)
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject) == ("rail_name", "rail1")
    assert address in failed.reason and "management" in failed.reason
    assert host.touched == ["rail0"] and files_of(host, "rail1") == []


def test_a_management_address_that_comes_to_a_rail_is_not_removed(tmp_path):
    """It may be added while the run is in progress."""
    host = FakeHost(tmp_path)
    host.converge([rail(0)])
    host.links["rail0"]["mtu"] = 1500
    host.forget_commands()
    real = host.run

    def run(argv, **more):
        answer = real(argv, **more)
        if tuple(argv[:2]) == ("networkctl", "reconfigure"):
            host.links["rail0"]["addresses"].append("10.10.1.1/22")
        return answer

    host.run = run
    host.converge([rail(0)], management=MANAGEMENT)
    assert "10.10.1.1/22" in host.links["rail0"]["addresses"]


def test_a_former_rail_that_became_the_management_interface_keeps_its_address(tmp_path):
    host = FakeHost(tmp_path)
    host.converge([rail(0), rail(1)])
    host.converge(
        [rail(0)], management=ManagementNetwork.of({"address": "10.100.1.11", "prefix": 24})
    )
    assert host.links["rail1"]["addresses"] == ["10.100.1.11/24"]


def test_ports_and_lower_interfaces_of_the_management_interface_count():
    bridge, vlan = link("br0", "10.10.1.1/22"), link("bond0.7", master="br0", lower="bond0")
    port = link("ens5f0", master="bond0")
    found = MANAGEMENT.interfaces(state(bridge, vlan, link("bond0"), port, link("ens6f0")))
    assert set(found) == {"br0", "bond0.7", "bond0", "ens5f0"}
    assert "10.10.1.1" in found["ens5f0"]


def test_a_late_default_route_makes_no_management_interface_of_a_rail():
    routes = [{"dst": "default", "dev": name} for name in ("mgmt0", "rail1")]
    both = state(link("mgmt0"), link("rail1"), routes=routes)
    assert set(ManagementNetwork().interfaces(both, ["rail1"])) == {"mgmt0"}
    assert set(ManagementNetwork().interfaces(both)) == {"mgmt0", "rail1"}
    alone = state(link("mgmt0"), link("rail1"), routes=routes[1:])
    assert set(ManagementNetwork().interfaces(alone, ["rail1"])) == {"rail1"}


def test_a_link_local_login_names_its_interface():
    found = ManagementNetwork(None, "fe80::1%mgmt0").interfaces(state(link("mgmt0"), link("gmt0")))
    assert set(found) == {"mgmt0"}


def process(proc, number, parent, environment=b""):
    directory = proc / str(number)
    directory.mkdir()
    (directory / "environ").write_bytes(environment)
    (directory / "stat").write_text(f"{number} (a ) b) S {parent} 1 1\n")


def test_the_login_is_found_above_sudo(tmp_path):
    process(tmp_path, 10, 1, b"A=1\0SSH_CONNECTION=192.0.2.9 50000 10.10.1.1 22\0")
    process(tmp_path, 20, 10)
    process(tmp_path, 30, 20, b"SUDO_USER=admin\0")
    process(tmp_path, 40, 1)
    process(tmp_path, 50, 40, b"SSH_CONNECTION=broken\0")
    found = {number: login_address(tmp_path, number) for number in (30, 40, 50, 99)}
    assert found == {30: "10.10.1.1", 40: "", 50: "", 99: ""}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names by PCI address: found, renamed, left for the reboot or refused, and never guessed."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import device
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.state import Link

from tests.unit.rails_host import rail

PCI = "0000:5d:00.0"


def add(root, name, *steps, port=None):
    """An interface in sysfs, below the given steps of its way from the root complex."""
    device_path = root.joinpath("sys/devices/pci0000:50", *steps)
    device_path.mkdir(parents=True, exist_ok=True)
    net = root / "sys/class/net" / name
    net.mkdir(parents=True)
    (net / "device").symlink_to(device_path)
    if port:
        (net / "phys_port_name").write_text(f"{port}\n")


def link(name, **more):
    values = {"index": 2, "mtu": 1500, "up": False, "carrier": False, "mac": "", "addresses": ()}
    return Link(name, **{**values, **more})


def naming(links, by_pci, in_use=(), pci=PCI):
    (plan,) = plan_rails([rail(3, pci=pci)])
    return device.naming(plan, {each.name: each for each in links}, by_pci, frozenset(in_use))


def test_interfaces_are_found_by_the_last_pci_address_on_their_way(tmp_path):
    add(tmp_path, "ens5f0", "0000:50:01.0", PCI)
    add(tmp_path, "eth7", "0000:50:02.0", "0000:60:00.0", "virtio3")
    (tmp_path / "sys/class/net/lo").mkdir()
    assert device.interfaces_by_pci(tmp_path) == {PCI: ["ens5f0"], "0000:60:00.0": ["eth7"]}


@pytest.mark.parametrize("port", ["pf0vf0", "pf1vf12", "c1pf0vf3", "pf0sf88", "pf0hpf", "pf0"])
def test_representors_are_no_ports(tmp_path, port):
    add(tmp_path, "rep", "0000:50:01.0", PCI, port=port)
    assert device.interfaces_by_pci(tmp_path) == {}


def test_without_pci_address_the_name_has_to_be_there():
    assert naming([link("rail3")], {}, pci=None).verdict == device.NAMED
    missing = naming([link("lo"), link("eth0")], {}, pci=None)
    assert missing.verdict == device.REFUSED
    assert "no interface rail3" in missing.reason
    assert "eth0" in missing.reason


def test_an_idle_interface_is_renamed():
    found = naming([link("ens5f0", up=True)], {PCI: ["ens5f0"]})
    assert (found.verdict, found.interface) == (device.RENAME, "ens5f0")


@pytest.mark.parametrize(
    ("links", "in_use", "told"),
    [
        ([link("ens5f0", addresses=("10.1.1.1/24",))], (), "carries 10.1.1.1/24"),
        ([link("ens5f0", master="bond0")], (), "belongs to bond0"),
        ([link("ens5f0")], ("ens5f0",), "is used by another interface or a route"),
        ([], (), "is not visible to ip"),
    ],
)
def test_an_interface_in_use_waits_for_the_reboot(links, in_use, told):
    found = naming(links, {PCI: ["ens5f0"]}, in_use)
    assert found.verdict == device.REBOOT
    assert told in found.reason
    assert "becomes rail3 at the next boot" in found.reason


def test_the_name_at_another_place_is_refused_naming_both():
    found = naming([link("rail3"), link("ens5f0")], {"0000:aa:00.0": ["rail3"], PCI: ["ens5f0"]})
    assert found.verdict == device.REFUSED
    for part in ("rail3 is at 0000:aa:00.0", f"the model has {PCI}", "ens5f0"):
        assert part in found.reason


def test_a_virtual_interface_with_the_name_is_refused():
    found = naming([link("rail3")], {PCI: ["ens5f0"]})
    assert found.verdict == device.REFUSED
    assert "no PCI address (a virtual interface)" in found.reason


def test_a_missing_nic_is_refused_and_the_others_are_listed():
    found = naming([link("ens1")], {"0000:aa:00.0": ["ens1"]})
    assert found.verdict == device.REFUSED
    assert f"no network interfaces at PCI address {PCI}" in found.reason
    assert "0000:aa:00.0 (ens1)" in found.reason


def test_two_interfaces_at_one_place_are_not_chosen_from():
    found = naming([link("a"), link("b")], {PCI: ["a", "b"]})
    assert found.verdict == device.REFUSED
    assert "2 network interfaces" in found.reason

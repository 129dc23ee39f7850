# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of each network service, and files of the operator that claim a rail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.iproute import IpLink
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import arp, naming
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.backends import (
    AUTO,
    BACKENDS,
    backend_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.survey import find_claims

from tests.unit.rails_host import rail

GOLDEN = Path(__file__).parent / "golden/rails"
SOURCE = plan_rails([rail(0), rail(3, pci="0000:5d:00.0")])
LINKS = plan_rails(
    [
        rail(k, address=f"10.0.{k}.1", prefix=31, network=f"10.0.{k}.0/31", gateway=f"10.0.{k}.0")
        for k in range(2)
    ],
    networks=["10.0.0.0/16"],
)
FLAT = plan_rails([rail(0, gateway=None)], routing="arp")
PLANS = {"source": SOURCE, "links": LINKS, "flat": FLAT}


def silent(argv, **more):
    return Result(tuple(argv), 0, "", "")


def node(root, run=silent):
    return Node("rails", root, run, None, "boot-1", uid=os.getuid(), gid=os.getgid())


def backend(name, root, run=silent):
    return backend_of(name, node(root, run))


def blocks(each, rails):
    return {plan.interface: each.render(plan) for plan in rails}


def compare(text, path):
    """Compare with a recorded file, which `GOLDEN=1 pytest` updates."""
    if os.environ.get("GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("scheme", PLANS)
@pytest.mark.parametrize("name", BACKENDS)
def test_files_are_as_recorded(name, scheme, tmp_path):
    each = backend(name, tmp_path)
    plans = each.files(blocks(each, PLANS[scheme]))
    assert all(plan.mode == 0o600 for plan in plans if plan.path.suffix == ".nmconnection")
    recorded = GOLDEN / name / scheme
    for plan in plans:
        compare(plan.after, recorded / plan.path.name)
    assert sorted(plan.path.name for plan in plans) == sorted(
        path.name for path in recorded.iterdir()
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_files_are_read_back_and_stale_ones_removed(name, tmp_path):
    each = backend(name, tmp_path)
    wanted = blocks(each, SOURCE)
    for plan in each.files(wanted):
        plan.apply()
    assert each.read() == wanted
    assert not any(plan.changed for plan in each.files(wanted))
    stranger = tmp_path / "etc/systemd/network/20-storage.network"
    stranger.parent.mkdir(parents=True, exist_ok=True)
    stranger.write_text("[Match]\nName=ens9\n")
    kept = blocks(each, SOURCE[:1])
    for plan in each.files(kept):
        plan.apply()
    assert each.read() == kept
    for plan in each.files({}):
        plan.apply()
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["20-storage.network"]


def test_link_files_use_pci_addresses(tmp_path):
    (plan,) = naming.plan_link_files(SOURCE, (), node(tmp_path))
    assert plan.path.name == "10-baremetal-mpi-roce-rail3.link"
    compare(plan.after, GOLDEN / "link/10-baremetal-mpi-roce-rail3.link")
    plan.apply()
    assert naming.plan_link_files([], ("rail3",), node(tmp_path)) == []
    (gone,) = naming.plan_link_files([], (), node(tmp_path))
    assert gone.after is None


def test_arp_settings_of_every_rail_in_one_file(tmp_path):
    plan = arp.plan_arp_file(["rail0", "rail1"], arp.ARP_DEFAULTS, node(tmp_path))
    compare(plan.after, GOLDEN / "sysctl/60-baremetal-mpi-roce-rails.conf")
    assert arp.plan_arp_file([], arp.ARP_DEFAULTS, node(tmp_path)).after is None


# Which files claim a rail

MAC = "a0:88:c2:00:00:03"
LINK = {"rail3": IpLink("rail3", 1500, False, False, MAC, ())}
YAML, PROFILE = (
    "etc/netplan/50-cloud-init.yaml",
    "etc/NetworkManager/system-connections/a.nmconnection",
)
IFCFG = "etc/sysconfig/network-scripts/ifcfg-old"
NETWORKD = "etc/systemd/network"
ETHERNETS = "network:\n  ethernets:\n"


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (YAML, f"{ETHERNETS}    rail3:\n      dhcp4: true\n", 3),
        (YAML, f"{ETHERNETS}    nic:\n      match: {{name: 'rail*'}}\n", 4),
        (YAML, f"{ETHERNETS}    nic:\n      match:\n        macaddress: {MAC.upper()}\n", 5),
        (YAML, "network:\n  bonds:\n    bond0:\n      interfaces: [ens1, rail3]\n", 4),
        (YAML, f"{ETHERNETS}    # rail3: was here\n    ens1: {{dhcp4: true}}\n", None),
        (YAML, f"{ETHERNETS}    rail33:\n      dhcp4: true\n", None),
        (YAML, f"{ETHERNETS}    nic:\n      match: {{name: 'en*'}}\n", None),
        (f"{NETWORKD}/20-x.network", "[Match]\nName=ens1 rail3\n", 2),
        (f"{NETWORKD}/05-all.network", "[Match]\nName=*\n", 2),
        (f"{NETWORKD}/05-mac.network", f"[Match]\nMACAddress={MAC}\n", 2),
        (f"{NETWORKD}/05-pci.network", "[Match]\nPath=pci-0000:5d:*\n", 2),
        (f"{NETWORKD}/05-not.network", "[Match]\nName=!rail3 ens*\n", None),
        (f"{NETWORKD}/99-all.network", "[Match]\nName=*\n", None),
        (f"{NETWORKD}/70-name.link", "[Match]\nMACAddress=a\n[Link]\nName=rail3\n", 4),
        (f"{NETWORKD}/05-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", 2),
        (f"{NETWORKD}/70-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", None),
        (PROFILE, "[connection]\nid=a\ninterface-name=rail3\n", 3),
        (PROFILE, f"[connection]\nid=b\n[ethernet]\nmac-address={MAC.upper()}\n", 4),
        ("etc/network/interfaces", "auto lo\niface rail3 inet dhcp\n", 2),
        ("etc/network/interfaces.d/rails", "iface rail3 inet dhcp\n", 1),
        (IFCFG, '# DEVICE=rail3\nDEVICE="rail3"\n', 2),
        (IFCFG, f"HWADDR={MAC.upper()}\n", 1),
    ],
)
def test_a_file_of_the_operators_claims_a_rail_by_a_line(tmp_path, path, text, line):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    found = find_claims(SOURCE, LINK, tmp_path).get("rail3", ())
    assert [each.partition(": ")[0] for each in found] == ([f"/{path} line {line}"] if line else [])


# Which service a system uses


@pytest.mark.parametrize(
    ("paths", "units", "found"),
    [
        (("etc/netplan/0.yaml", "usr/sbin/netplan"), ("NetworkManager.service",), "networkd"),
        (("etc/netplan/00.yaml",), ("NetworkManager.service",), "networkmanager"),
        ((), ("NetworkManager.service",), "networkmanager"),
        ((), (), "networkd"),
    ],
)
def test_the_service_is_the_one_the_system_uses(tmp_path, paths, units, found):
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    run = lambda argv, **more: Result(tuple(argv), 0 if argv[-1] in units else 3, "", "")  # noqa: E731
    assert backend(AUTO, tmp_path, run).name == found


def test_networkmanager_activates_only_changed_rails(tmp_path):
    commands = []

    def run(argv, **more):
        commands.append(" ".join(argv))
        return Result(tuple(argv), 0, "", "")

    each = backend("networkmanager", tmp_path, run)
    for plan in each.files(blocks(each, SOURCE)):
        plan.apply()
    each.apply(["rail3", "rail7"], ["rail0"])
    ran = "\n".join(commands)
    (load,) = [command for command in commands if "connection load" in command]
    # The file of rail0 is not new.
    assert load.split()[3:] == [str(tmp_path / each.file("rail3"))]
    assert f"delete uuid {each.owner('rail7')}" in ran
    for name in ("rail0", "rail3"):
        assert f"up uuid {each.owner(name)} ifname {name}" in ran
    # A reload of all profiles would activate the operator's files.
    assert "connection reload" not in ran

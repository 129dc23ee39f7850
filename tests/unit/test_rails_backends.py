# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each network service is given, file by file, and whom else's files claim a rail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import (
    device,
    networkmanager,
    state,
    survey,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.claims import find_claims
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.state import Link

from tests.unit.rails_host import FakeHost, rail

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
BACKENDS = ("netplan", "networkd", "networkmanager")


def silent(argv, **more):
    return Result(tuple(argv), 0, "", "")


def backend(name, root, run=silent):
    return survey.backend_named(name, run, root)


def blocks(each, rails):
    return {plan.interface: each.render(plan) for plan in rails}


def compare(text, path):
    """With the recorded file; `GOLDEN=1 pytest` records anew."""
    if os.environ.get("GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("scheme", PLANS)
@pytest.mark.parametrize("name", BACKENDS)
def test_files_are_as_recorded(name, scheme, tmp_path):
    each = backend(name, tmp_path)
    plans = each.files(blocks(each, PLANS[scheme]))
    modes = {plan.path.suffix: plan.mode for plan in plans}
    assert modes.get(".yaml", modes.get(".nmconnection", 0o600)) == 0o600
    recorded = GOLDEN / name / scheme
    for plan in plans:
        compare(plan.after, recorded / plan.path.name)
    assert sorted(plan.path.name for plan in plans) == sorted(
        path.name for path in recorded.iterdir()
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_what_was_written_is_read_back_and_changes_no_more(name, tmp_path):
    each = backend(name, tmp_path)
    wanted = blocks(each, SOURCE)
    for plan in each.files(wanted):
        own(plan).apply()
    assert each.read() == wanted
    assert not any(own(plan).changed for plan in each.files(wanted))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_rail_that_is_gone_loses_its_file_and_nobody_else(name, tmp_path):
    each = backend(name, tmp_path)
    for plan in each.files(blocks(each, SOURCE)):
        own(plan).apply()
    stranger = tmp_path / "etc/systemd/network/20-storage.network"
    stranger.parent.mkdir(parents=True, exist_ok=True)
    stranger.write_text("[Match]\nName=ens9\n")
    kept = blocks(each, SOURCE[:1])
    for plan in each.files(kept):
        own(plan).apply()
    assert each.read() == kept
    for plan in each.files({}):
        own(plan).apply()
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["20-storage.network"]


def own(plan):
    """The plan with files owned by whoever runs the tests."""
    from dataclasses import replace

    return replace(plan, uid=os.getuid(), gid=os.getgid())


def test_link_files_name_by_pci_address(tmp_path):
    plans = device.plan_link_files(SOURCE, (), tmp_path)
    assert [plan.path.name for plan in plans] == ["10-baremetal-mpi-roce-rail3.link"]
    compare(plans[0].after, GOLDEN / "link/10-baremetal-mpi-roce-rail3.link")


def test_a_link_file_of_a_rail_that_must_not_be_touched_stays(tmp_path):
    for plan in device.plan_link_files(SOURCE, (), tmp_path):
        own(plan).apply()
    assert device.plan_link_files([], ("rail3",), tmp_path) == []
    (gone,) = device.plan_link_files([], (), tmp_path)
    assert gone.after is None


def test_arp_settings_of_every_rail_in_one_file(tmp_path):
    node = FakeHost(tmp_path).node()
    plan = state.plan_arp_file(["rail0", "rail1"], state.ARP_DEFAULTS, node)
    compare(plan.after, GOLDEN / "sysctl/60-baremetal-mpi-roce-rails.conf")
    assert state.plan_arp_file([], state.ARP_DEFAULTS, node).after is None


# Whose files claim a rail

MAC = "a0:88:c2:00:00:03"
LINK = {"rail3": Link("rail3", 5, 1500, False, False, MAC, ())}
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
        (YAML, f"{ETHERNETS}    nic:\n      set-name: rail3\n", 4),
        (YAML, f"{ETHERNETS}    mgmt0:\n      addresses: [10.0.0.1/24]\n", None),
        (YAML, f"{ETHERNETS}    # rail3: was here\n    ens1: {{dhcp4: true}}\n", None),
        (YAML, f"{ETHERNETS}    rail33:\n      dhcp4: true\n", None),
        (YAML, f"{ETHERNETS}    nic:\n      match: {{name: 'en*'}}\n", None),
        (f"{NETWORKD}/20-x.network", "[Match]\nName=ens1 rail3\n", 2),
        (f"{NETWORKD}/05-all.network", "[Match]\nName=*\n", 2),
        (f"{NETWORKD}/05-mac.network", f"[Match]\nMACAddress={MAC}\n", 2),
        (f"{NETWORKD}/05-pci.network", "[Match]\nPath=pci-0000:5d:*\n", 2),
        (f"{NETWORKD}/05-not.network", "[Match]\nName=!rail3 ens*\n", None),
        (f"{NETWORKD}/99-all.network", "[Match]\nName=*\n", None),
        ("usr/lib/systemd/network/80-x.network", "[Match]\nName=ve-*\n", None),
        (f"{NETWORKD}/70-name.link", "[Match]\nMACAddress=a\n[Link]\nName=rail3\n", 4),
        (f"{NETWORKD}/05-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", 2),
        (f"{NETWORKD}/70-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", None),
        (PROFILE, "[connection]\nid=a\ninterface-name=rail3\n", 3),
        (PROFILE, f"[connection]\nid=b\n[ethernet]\nmac-address={MAC.upper()}\n", 4),
        (PROFILE, "[connection]\nid=c\ninterface-name=mgmt0\n", None),
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


def active(*units):
    return lambda argv, **more: Result(tuple(argv), 0 if argv[-1] in units else 3, "", "")


def touch(root, *paths):
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


@pytest.mark.parametrize(
    ("paths", "units", "found"),
    [
        (("usr/sbin/netplan", "etc/netplan/00.yaml"), ("systemd-networkd",), "netplan"),
        (("usr/sbin/netplan", "etc/netplan/00.yaml"), ("NetworkManager",), "netplan"),
        (("usr/sbin/netplan",), ("NetworkManager",), "networkmanager"),
        ((), ("NetworkManager",), "networkmanager"),
        (("usr/sbin/netplan", "lib/systemd/systemd-networkd"), ("systemd-networkd",), "netplan"),
        (("usr/lib/systemd/systemd-networkd",), (), "networkd"),
        (("lib/systemd/systemd-networkd",), (), "networkd"),
    ],
)
def test_the_service_is_the_one_the_system_uses(tmp_path, paths, units, found):
    touch(tmp_path, *paths)
    assert survey.detect(active(*units), tmp_path) == found


def test_a_system_without_any_service_is_told(tmp_path):
    with pytest.raises(CommandError, match="no network service found"):
        survey.detect(active(), tmp_path)


# How netplan is driven


def test_netplan_publishes_the_changed_rails_files_alone(tmp_path):
    commands = []

    def run(argv, **more):
        commands.append(argv)
        if argv[:2] == ("netplan", "generate"):
            target = Path(argv[3]) / "run/systemd/network"
            target.mkdir(parents=True)
            for name in ("mgmt0", "rail0", "rail3"):
                (target / f"10-netplan-{name}.network").write_text(f"new {name}\n")
        return Result(tuple(argv), 0, "", "")

    each = backend("netplan", tmp_path, run)
    for plan in each.files(blocks(each, SOURCE)):
        own(plan).apply()
    generated = tmp_path / "run/systemd/network"
    generated.mkdir(parents=True)
    (generated / "10-netplan-mgmt0.network").write_text("old mgmt0\n")
    each.apply(["rail3"], [])
    assert {path.name: path.read_text() for path in generated.iterdir()} == {
        "10-netplan-mgmt0.network": "old mgmt0\n",
        "10-netplan-rail3.network": "new rail3\n",
    }
    assert ("networkctl", "reload") in commands
    assert not any("apply" in argv for argv in commands)
    assert not list((tmp_path / "run/baremetal-mpi-roce").iterdir()), "nothing is left behind"


def test_networkmanager_loads_and_raises_the_changed_rails_alone(tmp_path):
    commands = []

    def run(argv, **more):
        commands.append(" ".join(argv))
        return Result(tuple(argv), 0, "", "")

    each = backend("networkmanager", tmp_path, run)
    for plan in each.files(blocks(each, SOURCE)):
        own(plan).apply()
    each.apply(["rail3", "rail7"], ["rail0"])
    told = "\n".join(commands)
    assert "load" in told
    assert "rail3.nmconnection" in told
    assert "rail0.nmconnection" not in told, "a rail that drifted has no new file"
    assert f"delete uuid {networkmanager.profile_uuid('rail7')}" in told
    for name in ("rail0", "rail3"):
        assert f"up uuid {networkmanager.profile_uuid(name)} ifname {name}" in told
    assert "connection reload" not in told, "that would take over everybody's files"

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


def claims(name, root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return [str(claim) for claim in backend(name, root).conflicts(SOURCE, LINK)]


@pytest.mark.parametrize(
    "text",
    [
        "network:\n  ethernets:\n    rail3:\n      dhcp4: true\n",
        "network:\n  ethernets:\n    nic:\n      match: {name: 'rail*'}\n",
        f"network:\n  ethernets:\n    nic:\n      match:\n        macaddress: {MAC.upper()}\n",
        "network:\n  bonds:\n    bond0:\n      interfaces: [ens1, rail3]\n",
        "network:\n  ethernets:\n    nic:\n      set-name: rail3\n",
    ],
)
def test_a_netplan_file_that_claims_a_rail_is_named_with_its_line(tmp_path, text):
    found = claims("netplan", tmp_path, "etc/netplan/50-cloud-init.yaml", text)
    assert any("/etc/netplan/50-cloud-init.yaml line " in each for each in found)
    assert any("claims rail3" in each for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "network:\n  ethernets:\n    mgmt0:\n      addresses: [10.0.0.1/24]\n",
        "network:\n  ethernets:\n    # rail3: was here\n    ens1: {dhcp4: true}\n",
        "network:\n  ethernets:\n    rail33:\n      dhcp4: true\n",
        "network:\n  ethernets:\n    nic:\n      match: {name: 'en*'}\n",
    ],
)
def test_other_netplan_files_are_none_of_our_business(tmp_path, text):
    assert claims("netplan", tmp_path, "etc/netplan/50-cloud-init.yaml", text) == []


@pytest.mark.parametrize(
    ("path", "text", "claimed"),
    [
        ("etc/systemd/network/20-x.network", "[Match]\nName=ens1 rail3\n", True),
        ("etc/systemd/network/05-all.network", "[Match]\nName=*\n", True),
        ("etc/systemd/network/05-ether.network", "[Match]\nType=ether\n", True),
        ("etc/systemd/network/05-mac.network", f"[Match]\nMACAddress={MAC}\n", True),
        ("etc/systemd/network/05-pci.network", "[Match]\nPath=pci-0000:5d:*\n", True),
        ("etc/systemd/network/05-veth.network", "[Match]\nKind=veth\nName=*\n", False),
        ("etc/systemd/network/05-not.network", "[Match]\nName=!rail3 ens*\n", False),
        ("etc/systemd/network/99-all.network", "[Match]\nName=*\n", False),
        ("usr/lib/systemd/network/80-x.network", "[Match]\nName=ve-*\n", False),
    ],
)
def test_networkd_files_that_win_over_ours_claim_a_rail(tmp_path, path, text, claimed):
    found = claims("networkd", tmp_path, path, text)
    assert any(path in each and "rail3" in each for each in found) == claimed


@pytest.mark.parametrize(
    ("path", "text", "claimed"),
    [
        ("a.nmconnection", "[connection]\nid=a\ninterface-name=rail3\n", True),
        ("b.nmconnection", f"[connection]\nid=b\n[ethernet]\nmac-address={MAC.upper()}\n", True),
        ("c.nmconnection", "[connection]\nid=c\ninterface-name=mgmt0\n", False),
        ("d.nmconnection", "[connection]\nid=anything\n", False),
    ],
)
def test_networkmanager_profiles_for_a_rail_claim_it(tmp_path, path, text, claimed):
    where = f"etc/NetworkManager/system-connections/{path}"
    found = claims("networkmanager", tmp_path, where, text)
    assert any(f"/{where}" in each and "rail3" in each for each in found) == claimed


def test_ifupdown_claims_a_rail_by_its_stanza(tmp_path):
    for where in ("etc/network/interfaces", "etc/network/interfaces.d/rails"):
        text = "auto lo rail0\niface lo inet loopback\niface rail3 inet dhcp\n"
        found = claims("networkd", tmp_path / where.replace("/", "_"), where, text)
        assert found == [f"/{where}: 'iface rail3 inet dhcp' claims rail3"]


@pytest.mark.parametrize("line", ['DEVICE="rail3"', f"HWADDR={MAC.upper()}"])
def test_an_ifcfg_file_claims_a_rail(tmp_path, line):
    where = "etc/sysconfig/network-scripts/ifcfg-old"
    (found,) = claims("networkmanager", tmp_path, where, f"# DEVICE=mgmt0\n{line}\n")
    assert f"/{where}" in found and "rail3" in found


@pytest.mark.parametrize(
    ("name", "text", "claimed"),
    [
        ("70-name.link", "[Match]\nMACAddress=a\n[Link]\nName=rail3\n", True),
        ("05-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", True),
        ("70-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nName=ib0\n", False),
        ("05-pci.link", "[Match]\nPath=pci-0000:5d:00.0\n[Link]\nWakeOnLan=off\n", False),
    ],
)
def test_link_files_of_others_that_name_a_rail_claim_it(tmp_path, name, text, claimed):
    directory = tmp_path / "etc/systemd/network"
    directory.mkdir(parents=True)
    (directory / name).write_text(text)
    found = device.link_file_conflicts(SOURCE, tmp_path)
    assert [each.interface for each in found] == (["rail3"] if claimed else [])


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

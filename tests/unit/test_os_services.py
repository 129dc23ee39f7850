# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""chrony's file, service and tracking; irqbalance; swap."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import services
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.os_tree import IN_STEP, LOST, Tree, found

LINES = st.lists(
    st.sampled_from(
        ["pool a iburst", "server b", " peer c", "driftfile /x", "# pool d", "", "makestep 1 3"]
    )
)


@pytest.fixture(params=["ubuntu", "rocky"])
def tree(request, tmp_path):
    return Tree(request.param, tmp_path)


@given(LINES, st.lists(st.sampled_from(["10.0.0.1", "time.example.org"]), unique=True))
def test_without_servers_the_distributions_file_comes_back(lines, servers):
    text = "".join(f"{line}\n" for line in lines)
    ours = services.with_servers(text, servers)
    assert services.with_servers(ours, servers) == ours
    assert services.with_servers(ours, []) == text
    asked = [line for line in ours.splitlines() if line.split()[:1] in (["pool"], ["server"])]
    if servers:
        assert asked == [f"server {server} iburst" for server in servers]


def test_our_servers_are_asked_instead_of_the_distributions(tree):
    tree.settle(time=True, time_servers=["10.0.0.1", "10.0.0.2"])
    name = "etc/chrony.conf" if tree.root.name == "rocky" else "etc/chrony/chrony.conf"
    lines = tree.read(name).splitlines()
    assert "server 10.0.0.1 iburst" in lines
    assert not any(line.startswith("pool") for line in lines)
    assert tree.ran("systemctl", "restart")


CHRONY_26_04 = "confdir /etc/chrony/conf.d\nsourcedir /etc/chrony/sources.d\nsourcedir /run/x\n"
"""chrony.conf of Ubuntu 25.10 and later has no server: another file is copied to sources.d."""


def test_ubuntu_s_servers_in_sources_d(tmp_path):
    tree = Tree("ubuntu", tmp_path)
    tree.write("etc/chrony/chrony.conf", CHRONY_26_04)
    tree.settle(time=True, time_servers=["10.0.0.1"])
    kept = tree.read("etc/chrony/chrony.conf").splitlines()
    assert "sourcedir /etc/chrony/sources.d" in kept, "what an operator has there stays"
    tree.write("usr/share/chrony/ubuntu-ntp-pools.sources", "pool 1.ntp.ubuntu.com iburst nts\n")
    tree.settle(time=True, time_servers=["10.0.0.1"])
    lines = tree.read("etc/chrony/chrony.conf").splitlines()
    assert "sourcedir /etc/chrony/sources.d" not in lines
    assert {"server 10.0.0.1 iburst", "sourcedir /run/x", "confdir /etc/chrony/conf.d"} <= {*lines}
    tree.settle(time=True, time_servers=[])
    assert tree.read("etc/chrony/chrony.conf") == CHRONY_26_04


def test_a_service_older_than_its_file_is_restarted(tree):
    wanted = {"time": True, "time_servers": ["10.0.0.1"]}
    tree.settle(**wanted)
    tree.services_started = 1.0
    tree.calls.clear()
    assert tree.settle(**wanted).changed
    assert tree.ran("systemctl", "restart")


def test_a_stopped_service_is_started_and_enabled(tree):
    unit = "chronyd.service" if tree.root.name == "rocky" else "chrony.service"
    tree.states[unit] = "disabled, inactive"
    seen = tree.settle(check_mode=True, time=True)
    assert found(seen, "time_service")[""].status == "pending"
    assert found(tree.settle(time=True), "time_service")[""].status == "ok"


def test_the_figures_of_the_clock_are_returned(tree):
    check = found(tree.settle(time=True), "time_sync")[""]
    assert check.status == "ok"
    assert check.found == {
        "synchronised": True,
        "source": "10.0.0.1",
        "stratum": 3,
        "offset_s": 0.000012,
    }


@pytest.mark.parametrize("tracking", [LOST, IN_STEP.replace("-0.000012", "-0.25"), "", "506 x"])
def test_unsynchronised_clock_fails(tree, tracking):
    tree.tracking = tracking
    check = found(tree.settle(time=True), "time_sync")[""]
    assert check.status == "failed"
    assert "servers that this node can reach" in check.reason


def test_check_mode_does_not_wait_for_synchronisation(tree):
    tree.tracking = LOST
    tree.settle(check_mode=True, time=True)
    assert not tree.ran("chronyc", "waitsync")
    tree.settle(time=True)
    assert tree.ran("chronyc", "waitsync", "1", "0.1")


def test_missing_chrony_fails_a_run_and_is_pending_in_check_mode(tree):
    for path in tree.root.glob("usr/lib/systemd/system/chrony*"):
        path.unlink()
    with pytest.raises(PlanError, match="chrony is not installed"):
        tree.settle(time=True)
    seen = tree.settle(check_mode=True, time=True)
    assert seen.changed
    assert found(seen, "time_service")[""].status == "pending"


def test_irqbalance_is_stopped_started_or_was_never_there(tmp_path):
    tree = Tree("ubuntu", tmp_path)
    assert found(tree.settle(irqbalance="on"), "irqbalance")[""].status == "ok"
    tree.settle(irqbalance="off")
    assert tree.ran("systemctl", "disable", "--now", "irqbalance.service")
    assert not tree.settle(irqbalance="off").changed
    bare = Tree("rocky", tmp_path)
    assert found(bare.settle(irqbalance="off"), "irqbalance")[""].status == "ok"
    assert not bare.calls or not bare.ran("systemctl", "disable")


@pytest.fixture
def ubuntu(tmp_path):
    return Tree("ubuntu", tmp_path)


@pytest.fixture
def rocky(tmp_path):
    return Tree("rocky", tmp_path)


def test_only_swap_lines_change():
    text = (
        "# /swap none swap\n\n/dev/sda1 / ext4 x 0 1\r\nUUID=1 none swap sw 0 0\n/swap swap ext4\n"
    )
    after = services.without_swap(text)
    assert after == text.replace("UUID=1", f"{services.MARKER}UUID=1")
    assert services.without_swap(after) == after


def test_fstab_keeps_its_mode(ubuntu):
    (ubuntu.root / "etc/fstab").chmod(0o600)
    ubuntu.settle(swap="off")
    assert (ubuntu.root / "etc/fstab").stat().st_mode & 0o777 == 0o600
    assert "\n/swap.img" not in ubuntu.read("etc/fstab")


def test_every_device_is_switched_off_by_name(rocky):
    rocky.settle(swap="off")
    assert rocky.ran("swapoff", "/dev/dm-1")
    assert rocky.ran("swapoff", "/dev/zram0")
    assert services.swaps(rocky.node()) == {}


def test_swap_units(rocky):
    rocky.settle(swap="off")
    assert rocky.ran("systemctl", "daemon-reload")
    assert rocky.ran("systemctl", "mask", "dev-zram0.swap")
    assert not any("rl" in word for call in rocky.calls for word in call if "mask" in call)


def test_zram_services_are_masked(ubuntu):
    ubuntu.write("usr/lib/systemd/system/zramswap.service", "[Service]\n")
    ubuntu.settle(swap="off")
    assert ubuntu.ran("systemctl", "mask", "zramswap.service")
    assert not ubuntu.settle(swap="off").changed


def test_swap_in_use_is_refused(ubuntu):
    ubuntu.write("proc/meminfo", "MemAvailable:    1023 kB\n")
    before = ubuntu.snapshot()
    with pytest.raises(PlanError, match="1024 KiB are in use and only 1023"):
        ubuntu.settle(swap="off")
    assert ubuntu.snapshot() == before


def test_interrupted_dpkg_is_reported(tree):
    seen = tree.settle()
    if tree.root.name == "rocky":
        assert not found(seen, "packages_interrupted")
        return
    assert found(seen, "packages_interrupted")[""].status == "ok"
    database = tree.root / "var/lib/dpkg/status"
    stanza = "\nPackage: {}\nStatus: {}\nArchitecture: amd64\nVersion: 1\n"
    with database.open("a", encoding="utf-8") as stream:
        stream.write(stanza.format("half", "install ok half-configured"))
        stream.write(stanza.format("broken", "install reinstreq unpacked"))
        stream.write(stanza.format("waiting", "install ok triggers-pending"))
        stream.write(stanza.format("gone", "deinstall ok config-files"))
    check = found(tree.settle(), "packages_interrupted")[""]
    assert (check.status, check.by_hand) == ("failed", "dpkg --configure -a")
    assert check.found == "half (half-configured), broken (unpacked, reinstreq)"


def test_unfinished_packages_of_a_set_are_left_to_its_layer(tree):
    """Otherwise a second run would stop here, before its layer finishes them."""
    if tree.root.name == "rocky":
        return
    stanza = "\nPackage: {}\nStatus: install ok unpacked\nArchitecture: amd64\nVersion: 1\n"
    pins = "\nPackage: doca-ofed\nPin: version 3.2.1\nPin-Priority: 1001\n"
    tree.write("etc/apt/preferences.d/00-baremetal-mpi-roce-rdma.pref", pins)
    database = tree.root / "var/lib/dpkg/status"
    with database.open("a", encoding="utf-8") as stream:
        stream.write(stanza.format("doca-ofed"))
    check = found(tree.settle(), "packages_interrupted")[""]
    assert (check.status, check.found) == ("ok", "")
    assert "doca-ofed" in check.reason
    with database.open("a", encoding="utf-8") as stream:
        stream.write(stanza.format("other"))
    check = found(tree.settle(), "packages_interrupted")[""]
    assert (check.status, check.found) == ("failed", "other (unpacked)")

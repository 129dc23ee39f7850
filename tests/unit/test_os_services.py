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
    done = tree.settle(time=True)
    assert found(done, "time_service")[""].status == "ok"
    check = found(done, "time_sync")[""]
    figures = {"synchronised": True, "source": "10.0.0.1", "stratum": 3, "offset_s": 0.000012}
    assert (check.status, check.found) == ("ok", figures)


@pytest.mark.parametrize("tracking", [LOST, IN_STEP.replace("-0.000012", "-0.25"), "", "506 x"])
def test_unsynchronised_clock_fails(tree, tracking):
    tree.tracking = tracking
    tree.settle(check_mode=True, time=True)
    assert not tree.ran("chronyc", "waitsync")
    check = found(tree.settle(time=True), "time_sync")[""]
    assert check.status == "failed"
    assert "servers that this node can reach" in check.reason
    assert bool(tree.ran("chronyc", "waitsync", "1", "0.1")) == ("Normal" not in tracking)


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


def test_devices_and_units_of_swap(rocky):
    rocky.settle(swap="off")
    assert rocky.ran("swapoff", "/dev/dm-1") and rocky.ran("swapoff", "/dev/zram0")
    assert services.swaps(rocky.node()) == {}
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


STANZA = "\nPackage: {}\nStatus: {}\nArchitecture: amd64\nVersion: 1\n"
PINS = "\nPackage: doca-ofed\nPin: version 3.2.1\nPin-Priority: 1001\n"


def unfinished(tree, **packages):
    with (tree.root / "var/lib/dpkg/status").open("a", encoding="utf-8") as stream:
        for name, state in packages.items():
            stream.write(STANZA.format(name.replace("_", "-"), state))
    return found(tree.settle(), "packages_interrupted")[""]


def test_interrupted_dpkg_is_reported(ubuntu, rocky):
    assert not found(rocky.settle(), "packages_interrupted")
    assert found(ubuntu.settle(), "packages_interrupted")[""].status == "ok"
    # The layer of a set finishes its packages.
    ubuntu.write("etc/apt/preferences.d/00-baremetal-mpi-roce-rdma.pref", PINS)
    check = unfinished(ubuntu, doca_ofed="install ok unpacked")
    assert (check.status, check.found) == ("ok", "") and "doca-ofed" in check.reason
    check = unfinished(
        ubuntu,
        half="install ok half-configured",
        broken="install reinstreq unpacked",
        waiting="install ok triggers-pending",
        gone="deinstall ok config-files",
    )
    assert (check.status, check.by_hand) == ("failed", "dpkg --configure -a")
    assert check.found == "half (half-configured), broken (unpacked, reinstreq)"

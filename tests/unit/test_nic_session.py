# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NIC settings within a run of the rails: when they are read, when they are set, and on what."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine, RdmaDevice
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import engine, request
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import (
    FIRMWARE,
    Reading,
    Setting,
)

from tests.unit.nic_host import FakeEthtool, FakeNode, kernel_writes
from tests.unit.qos_contracts import compiled
from tests.unit.rails_host import FakeHost, NoNics, rail

PCI = "0000:{:02x}:00.0"


class Recorder(NoNics):
    """Stands in for the NIC settings; notes what is asked of it, and when."""

    def __init__(self, host, *, differs=(), after=None):
        self.host, self.differs, self.after = host, list(differs), after
        self.asked = []
        self.seen_reconfigured = None

    def look(self, interfaces, reached_by):
        self.asked.append(("look", dict(interfaces), sorted(reached_by)))

    @property
    def diff(self):
        return [
            {"before_header": name, "after_header": name, "before": "a", "after": "b"}
            for name in self.differs
        ]

    def act(self):
        self.asked.append(("act",))
        self.seen_reconfigured = list(self.host.touched)
        if self.after:
            self.after()
        return self.differs

    def rail_checks(self, later, *, check_mode):
        self.asked.append(("checks", dict(later), check_mode))
        return [Check("nic", 1, 1, "ok", "rail0")]


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


RAILS = [rail(0), rail(1)]


def test_settings_are_read_first_and_set_before_the_network_service_acts(host):
    nic = Recorder(host, differs=["rail1"])
    outcome = host.converge(RAILS, nics=nic)
    assert [step[0] for step in nic.asked] == ["look", "act", "checks"]
    assert nic.seen_reconfigured == []
    assert outcome.changed
    assert Check("nic", 1, 1, "ok", "rail0") in outcome.checks
    assert nic.asked[0] == ("look", {"rail0": "rail0", "rail1": "rail1"}, [])


def test_a_rail_that_is_named_at_the_next_boot_waits_for_it(tmp_path):
    host = FakeHost(tmp_path, names=())
    host.add_link("ens5f0", PCI.format(16))
    host.links["ens5f0"].update(up=True, addresses=["192.0.2.7/24"])
    nic = Recorder(host)
    host.converge([rail(0, pci=PCI.format(16))], nics=nic)
    assert nic.asked[0][1] == {}
    assert "next boot" in nic.asked[-1][1]["rail0"]


def test_a_link_that_goes_down_for_a_moment_is_waited_for(host):
    """PFC takes a ConnectX's link down and up."""
    host.converge(RAILS)
    since = host.now

    def bounce():
        host.links["rail1"]["carrier"] = False

    def sleep(seconds):
        host.now += seconds
        if host.now - since > 3:
            host.links["rail1"]["carrier"] = True

    host.sleep = sleep
    outcome = host.converge(RAILS, nics=Recorder(host, differs=["rail1"], after=bounce))
    assert host.now - since > 3
    assert {check.status for check in outcome.checks} <= {"ok", "not_applicable"}


# The session itself


class Machines:
    """What sysfs says of the NICs, look after look."""

    def __init__(self, ports):
        self.ports, self.looks = ports, 0

    def __call__(self, _root):
        self.looks += 1
        return Machine(tuple(self.ports))


def boot_id(root):
    path = root / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("boot-1\n")


@pytest.fixture
def nics(tmp_path, monkeypatch):
    """Two rails on a host with two ConnectX, and what reads them."""
    kernel_writes(monkeypatch)
    node = FakeNode(tmp_path)
    host = FakeHost(tmp_path, names=("rail0", "rail1"))
    node.host_ip = host
    boot_id(tmp_path)
    ports = [
        RdmaDevice(
            "rail", f"mlx5_{n}", netdev=f"rail{n}", pci=PCI.format(16 + n), driver="mlx5_core"
        )
        for n in range(2)
    ]
    node.machines = Machines(ports)
    monkeypatch.setattr(engine, "machine_of", node.machines)
    monkeypatch.setattr(engine, "compare_with_model", lambda *_given, **_more: [])
    return node


def run(node, check_mode=False, **given):
    wanted = request.Request.read({"qos": compiled(), "firmware": False, **given})
    nic = engine.Nics(wanted, node.host(), RAILS)
    return node.host_ip.converge(RAILS, nics=nic, check_mode=check_mode), nic


def test_a_run_sets_rails_and_nics_and_the_next_changes_nothing(nics):
    outcome, nic = run(nics)
    assert outcome.changed
    assert {check.status for check in outcome.checks} == {"ok", "not_applicable"}
    assert nic.settings(check_mode=False)["rail1"]["pfc"]["status"] == "set"
    assert not run(nics)[0].changed


def test_settings_go_to_the_rail_under_its_new_name(tmp_path, monkeypatch):
    node = FakeNode(tmp_path, 1)
    pci = PCI.format(16)
    host = FakeHost(tmp_path, names=())
    (tmp_path / "sys/bus/pci/devices" / pci).rename(tmp_path / "sys/bus/pci/devices/x")
    host.add_link("ens5f0", pci)
    (tmp_path / "sys/bus/pci/devices/x").rename(tmp_path / "sys/bus/pci/devices" / pci)
    node.ports["ens5f0"] = node.ports["rail0"]
    for known in (node.ethtool.drivers, node.ethtool.ring, node.ethtool.paused):
        known["ens5f0"] = known["rail0"]

    def machine_of(root):
        name = "rail0" if (root / "sys/class/net/rail0").exists() else "ens5f0"
        return Machine((RdmaDevice("rail", "mlx5_0", netdev=name, pci=pci),))

    monkeypatch.setattr(engine, "machine_of", machine_of)
    monkeypatch.setattr(engine, "compare_with_model", lambda *_given, **_more: [])
    wanted = request.Request.read({"qos": compiled(), "firmware": False})
    rails = [rail(0, pci=pci)]
    boot_id(tmp_path)
    nic = engine.Nics(wanted, node.host(), rails)
    outcome = host.converge(rails, nics=nic)
    assert [diff["before_header"] for diff in outcome.diff][-1] == "rail0 (settings)"
    assert node.writes()
    assert not [argv for argv in node.writes() if "ens5f0" in argv]
    assert nic.settings(check_mode=False)["rail0"]["pfc"]["status"] == "set"


def test_check_mode_shows_the_settings_of_each_rail(nics):
    run(nics)
    nics.ports["rail1"]["pfc"] = set()
    before = nics.snapshot()
    outcome, _nic = run(nics, check_mode=True)
    (diff,) = outcome.diff
    assert (diff["before_header"], diff["before"], diff["after"]) == (
        "rail1 (settings)",
        "pfc: []\n",
        "pfc: [3]\n",
    )
    assert nics.snapshot() == before


def test_a_nic_that_fails_keeps_no_rail_from_its_address(nics):
    nics.broken["pfc set rail0"] = "no\n"
    outcome, nic = run(nics)
    failed = {(check.subject, check.name) for check in outcome.checks if check.status == "failed"}
    assert ("rail0", "rail_pfc") in failed
    assert {subject for subject, _name in failed} == {"rail0"}
    assert nic.rolled_back == ["rail0"]
    assert nics.host_ip.links["rail0"]["addresses"] == ["10.100.0.11/24"]


class Waiting(Setting):
    """Firmware that has taken a value for its next reset."""

    name, rail, wanted, persistence, tool = "firmware_x", "rail0", 0, FIRMWARE, "mlxconfig"

    def __init__(self):
        self.pending = None
        self.found = 1

    def read(self):
        return Reading(self.found, pending=self.pending)

    def set(self, value):
        self.pending = value


def test_what_waits_for_a_reset_is_a_reason_until_it_holds(nics, monkeypatch):
    firmware = Waiting()
    original = request.Request.providers
    monkeypatch.setattr(
        request.Request,
        "providers",
        lambda *given: [
            *original(*given),
            lambda rail: [firmware] if rail.name == "rail0" else [],
        ],
    )

    def reasons(check_mode=False):
        outcome, nic = run(nics, check_mode)
        found = [(each.subject, each.wanted) for each in nic.resets(check_mode=check_mode)]
        return outcome, found

    waits = [("rail0 firmware_x", "0")]
    assert reasons(check_mode=True)[1] == waits and firmware.pending is None
    outcome, found = reasons()
    assert found == waits
    assert [c.status for c in outcome.checks if c.name == "rail_firmware_x"] == ["reboot"]
    assert not reasons()[0].changed
    firmware.found, firmware.pending = 0, None
    outcome, found = reasons()
    assert not found and not outcome.changed


def test_veth_rails_cost_no_program(tmp_path, monkeypatch):
    host = FakeHost(tmp_path, names=("rail0", "rail1"))
    ethtool = FakeEthtool()
    ethtool.drivers = {"rail0": "veth", "rail1": "veth"}

    def no_program(argv, **_more):
        raise AssertionError(argv)

    boot_id(tmp_path)
    reading = request.Host(no_program, tmp_path, ethtool, lambda _name: None, *ids(host))
    nic = engine.Nics(request.Request.read({"qos": compiled()}), reading, RAILS)
    outcome = host.converge(RAILS, nics=nic)
    checks = [check for check in outcome.checks if check.name == "rail_settings"]
    assert [(check.subject, check.status) for check in checks] == [
        ("rail0", "not_applicable"),
        ("rail1", "not_applicable"),
    ]
    assert {check.reason for check in checks} == {
        "not applicable on what is no RoCE NIC (driver veth)"
    }


def ids(host):
    return host.node().uid, host.node().gid

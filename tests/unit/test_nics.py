# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a rail as a unit: without and within a run of the rails, and by vendor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import act
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, Plan, Step
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine, RdmaDevice
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import nics as nics_module
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import (
    FIRMWARE,
    RUNTIME,
    NicSetting,
    RailNic,
    Reading,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.nic_host import PCI, FakeNode, converge, kernel_writes
from tests.unit.rails_host import FakeHost, NoNics, rail

NIC = RdmaDevice("rail", "mlx5_0", pci="0000:5d:00.0")
RXE = RdmaDevice("software", "rxe0")


class Dial(NicSetting):
    """A setting that is a number in a dictionary."""

    def __init__(self, store, rail, name, wanted, unit=RUNTIME):
        self.store, self.rail, self.name, self.wanted = store, rail, name, wanted
        self.unit = unit
        self.key = (rail, name)

    def read(self):
        value = self.store.values.get(self.key, 0)
        if isinstance(value, Exception):
            raise value
        pending = self.store.pending.get(self.key)
        return value if isinstance(value, Reading) else Reading(value, pending=pending)

    def apply(self):
        self.store.log.append(("write", *self.key))
        self.set(self.wanted)

    def restore(self):
        self.store.log.append(("restore", *self.key))
        self.store.values[self.key] = self.before.found

    def set(self, value):
        if self.key in self.store.failing:
            self.store.values[self.key] = 99  # it may have half finished
            raise CommandError("dial: exit status 1: no")
        if self.unit == FIRMWARE:
            self.store.pending[self.key] = value
        else:
            self.store.values[self.key] = value


class Store:
    def __init__(self, device=NIC, rails=2, dials=("a", "b", "c"), firmware=()):
        self.values, self.pending, self.log = {}, {}, []
        self.failing = set()
        self.rails = [
            RailNic(f"rail{number}", f"rail{number}", "mlx5_core", None, device)
            for number in range(rails)
        ]
        self.dials, self.firmware = dials, firmware

    def provider(self, rail):
        if rail.device is None:
            return []
        names = [(name, RUNTIME) for name in self.dials] + [(n, FIRMWARE) for n in self.firmware]
        return [Dial(self, rail.name, name, 1, kind) for name, kind in names]

    def converge(self, check_mode=False):
        return converge(self.rails, [self.provider], check_mode=check_mode)


def of(outcome, rail, name):
    return outcome.settings[rail][name]


def statuses(outcome, rail):
    return {name: state["status"] for name, state in outcome.settings[rail].items()}


def test_a_rail_that_disappears_after_the_plan_is_skipped():
    store = Store()
    node = Node("rails", Path("/"), None, None, "")
    nics = nics_module.Nics({}, node)
    nics.read(store.rails, [store.provider])
    steps, errors = nics.steps(), []
    nics.read(store.rails[1:], [store.provider])  # as after interfaces were renamed
    act([Plan(steps=steps)], node, errors)
    assert (nics.written, errors) == (["rail1"], [])


def test_a_failure_restores_only_its_rail():
    store = Store()
    store.values["rail0", "a"] = 7
    store.failing.add(("rail0", "b"))
    outcome = store.converge()
    # in reverse order, including the one that failed half-way
    assert store.log[:4] == [
        ("write", "rail0", "a"),
        ("write", "rail0", "b"),
        ("restore", "rail0", "b"),
        ("restore", "rail0", "a"),
    ]
    assert store.values["rail0", "a"] == 7
    assert store.values["rail0", "b"] == 0
    assert outcome.rolled_back == ["rail0"]
    assert statuses(outcome, "rail1") == {"a": "ok", "b": "ok", "c": "ok"}
    assert statuses(outcome, "rail0") == {"a": "failed", "b": "failed", "c": "failed"}
    assert "could not be set: dial" in of(outcome, "rail0", "b")["reason"]
    assert of(outcome, "rail0", "a")["reason"].endswith(": see b")
    assert of(outcome, "rail0", "a")["found"] == 7


@pytest.mark.parametrize(
    "value",
    [
        CommandError("dcb: not installed"),
        OSError(13, "Permission denied", "/sys/x"),
        Reading(None, "no such thing", "failed"),
        Reading(5, refused="in use"),
    ],
)
def test_a_nic_with_a_fault_is_not_changed(value):
    store = Store()
    store.values["rail0", "b"] = value
    outcome = store.converge()
    assert [entry for entry in store.log if entry[1] == "rail0"] == []
    assert statuses(outcome, "rail0") == {"a": "failed", "b": "failed", "c": "failed"}
    assert statuses(outcome, "rail1") == {"a": "ok", "b": "ok", "c": "ok"}
    assert [entry["after_header"] for entry in outcome.diff] == ["rail1 (settings)"]
    assert statuses(store.converge(check_mode=True), "rail0")["a"] == "failed"


@pytest.mark.parametrize(
    ("device", "reading"),
    [
        (RXE, Reading(None, "no such thing", "failed")),
        (NIC, Reading(None, "firmware has it", "not_applicable")),
    ],
)
def test_unsupported_settings_that_are_no_failure(device, reading):
    store = Store(device=device, rails=1)
    store.values["rail0", "b"] = reading
    outcome = store.converge()
    assert statuses(outcome, "rail0") == {"a": "ok", "b": "not_applicable", "c": "ok"}
    assert [check.status for check in outcome.checks] == ["ok", "not_applicable", "ok"]


def test_firmware_waits_for_its_reset():
    store = Store(rails=1, firmware=("f",))
    assert of(store.converge(check_mode=True), "rail0", "f")["status"] == "pending"
    assert [reason.subject for reason in store.converge(check_mode=True).resets] == ["rail0 f"]
    outcome = store.converge()
    assert of(outcome, "rail0", "f")["status"] == "reboot"
    assert [check.status for check in outcome.checks] == ["ok", "ok", "ok", "reboot"]
    assert [(r.subject, r.wanted, r.running) for r in outcome.resets] == [("rail0 f", "1", "0")]
    again = store.converge()
    assert not again.changed
    assert of(again, "rail0", "f")["status"] == "reboot"
    assert [reason.subject for reason in again.resets] == ["rail0 f"]
    store.values["rail0", "f"] = 1
    del store.pending["rail0", "f"]
    assert of(store.converge(), "rail0", "f")["status"] == "ok"
    assert store.converge().resets == []


def test_runtime_and_firmware_settings_fail_separately():
    store = Store(rails=2, dials=("a", "b"), firmware=("f", "g"))
    store.values["rail0", "f"] = Reading(None, "not in this firmware", "failed")
    store.failing.add(("rail1", "a"))
    outcome = store.converge()
    assert list(statuses(outcome, "rail0").values()) == ["ok", "ok", "failed", "failed"]
    assert list(statuses(outcome, "rail1").values()) == ["failed", "failed", "reboot", "reboot"]
    assert store.pending == {("rail1", "f"): 1, ("rail1", "g"): 1}
    assert of(outcome, "rail0", "g")["reason"].endswith("see f")

    store.values["rail1", "b"] = Reading(5, refused="in use")
    assert set(statuses(store.converge(), "rail1").values()) == {"failed", "reboot"}
    store.pending.clear()
    store.converge()
    # A refusal applies to the whole rail.
    assert store.pending == {}


def test_a_value_lost_at_the_next_reset_is_written():
    store = Store(rails=1, dials=(), firmware=("f",))
    store.values["rail0", "f"], store.pending["rail0", "f"] = 1, 3
    outcome = store.converge()
    assert outcome.diff[0]["before"] == "f: 3\n"
    assert store.pending["rail0", "f"] == 1
    assert of(outcome, "rail0", "f")["status"] == "ok"


@pytest.mark.parametrize(
    ("driver", "status"), [("veth", "not_applicable"), ("mlx5_core", "failed")]
)
def test_a_rail_without_rdma_device_is_one_check_by_its_driver(driver, status):
    store = Store(rails=0)
    store.rails = [RailNic("rail0", "ens5f0", driver)]
    outcome = store.converge()
    (check,) = outcome.checks
    assert (check.name, check.subject, check.status) == ("rail_settings", "rail0", status)
    assert driver in check.reason and outcome.settings == {"rail0": {}}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["rail0", "rail1"]), st.sampled_from("abc")), st.integers(0, 2)
    ),
    st.sets(st.tuples(st.sampled_from(["rail0", "rail1"]), st.sampled_from("abc"))),
)
def test_a_rail_is_all_wanted_or_all_as_it_was(values, failing):
    store = Store()
    store.values, store.failing = dict(values), failing
    before = {(r.name, n): values.get((r.name, n), 0) for r in store.rails for n in "abc"}
    store.converge()
    for name in ("rail0", "rail1"):
        now = [store.values.get((name, dial), 0) for dial in "abc"]
        assert now in ([1, 1, 1], [before[name, dial] for dial in "abc"])
    store.failing = set()
    store.converge()
    assert not store.converge().changed


# Within a run of the rails

RAILS = [rail(0), rail(1)]


class Recorder(NoNics):
    """A fake of the NICs that records its calls."""

    def __init__(self, host, *, differs=(), after=None):
        self.host, self.differs, self.after = host, list(differs), after
        self.asked = []

    def look(self, interfaces, reached_by):
        self.asked.append(("look", dict(interfaces), sorted(reached_by)))

    @property
    def diff(self):
        return [
            {"before_header": name, "after_header": name, "before": "a", "after": "b"}
            for name in self.differs
        ]

    def steps(self):
        return [Step("rails", "a", "b", self.act, shown=self.diff, silent=not self.diff)]

    def act(self):
        self.asked.append(("act", list(self.host.touched)))
        self.written = self.differs
        if self.after:
            self.after()

    def rail_checks(self, later, *, check_mode, quiet):
        self.asked.append(("checks", dict(later), check_mode, quiet))
        return [Check("nic", 1, 1, "ok", "rail0")]


def test_settings_are_read_first_and_set_before_the_network_service_acts(tmp_path):
    host = FakeHost(tmp_path)
    nics = Recorder(host, differs=["rail1"])
    outcome = host.converge(RAILS, nics=nics)
    assert outcome.changed and Check("nic", 1, 1, "ok", "rail0") in outcome.checks
    assert nics.asked == [
        ("look", {"rail0": "rail0", "rail1": "rail1"}, []),
        ("act", []),
        ("checks", {}, False, False),
    ]
    again = host.converge(RAILS, nics=Recorder(host, differs=["rail1"]), check_mode=True)
    assert [diff["before_header"] for diff in again.diff] == ["rail1"]


def test_a_rail_named_at_the_next_boot_waits(tmp_path):
    host = FakeHost(tmp_path, names=())
    host.add_link("ens5f0", PCI.format(16))
    host.links["ens5f0"].update(up=True, addresses=["192.0.2.7/24"])
    nics = Recorder(host)
    host.converge([rail(0, pci=PCI.format(16))], nics=nics)
    assert nics.asked[0][1] == {}
    assert "next boot" in nics.asked[-1][1]["rail0"]


def test_a_link_that_goes_down_for_a_moment_is_waited_for(tmp_path):
    """Setting PFC takes the link of a ConnectX down for a moment."""
    host = FakeHost(tmp_path)
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


def machine(monkeypatch, names):
    """Replace the survey by RDMA devices of interfaces by PCI address."""

    def survey(sys):
        ports = [
            RdmaDevice("rail", f"mlx5_{number}", netdev=name, pci=pci, driver="mlx5_core")
            for number, (pci, of) in enumerate(names.items())
            for name in of
            if (sys / "class/net" / name).exists()
        ]
        return Machine(tuple(ports))

    monkeypatch.setattr(nics_module, "survey", survey)
    monkeypatch.setattr(nics_module, "compare_with_model", lambda *_given, **_more: [])


def test_a_nic_that_fails_does_not_affect_addresses(tmp_path, monkeypatch):
    kernel_writes(monkeypatch)
    node, host = FakeNode(tmp_path), FakeHost(tmp_path, names=("rail0", "rail1"))
    machine(monkeypatch, {PCI.format(16 + n): [f"rail{n}"] for n in range(2)})
    node.broken["pfc set rail0"] = "no\n"
    nics = node.nics(RAILS)
    outcome = host.converge(RAILS, nics=nics)
    failed = {(check.subject, check.name) for check in outcome.checks if check.status == "failed"}
    assert ("rail0", "rail_pfc") in failed and {subject for subject, _name in failed} == {"rail0"}
    assert nics.rolled_back == ["rail0"]
    assert nics.settings(check_mode=False)["rail1"]["pfc"]["status"] == "ok"
    assert host.links["rail0"]["addresses"] == ["10.100.0.11/24"]

    node.broken.clear()
    outcome = host.converge(RAILS, nics=node.nics(RAILS))
    assert {check.status for check in outcome.checks} == {"ok", "not_applicable"}
    assert not host.converge(RAILS, nics=node.nics(RAILS)).changed


def test_settings_go_to_the_rail_under_its_new_name(tmp_path, monkeypatch):
    node = FakeNode(tmp_path, 1)
    pci = PCI.format(16)
    host = FakeHost(tmp_path, names=())
    host.add_link("ens5f0", pci)
    node.ports["ens5f0"] = node.ports["rail0"]
    for known in (node.ethtool.drivers, node.ethtool.ring, node.ethtool.paused):
        known["ens5f0"] = known["rail0"]
    machine(monkeypatch, {pci: ["rail0", "ens5f0"]})
    rails = [rail(0, pci=pci)]
    nics = node.nics(rails)
    outcome = host.converge(rails, nics=nics)
    assert [diff["before_header"] for diff in outcome.diff][-1] == "rail0 (settings)"
    assert node.writes()
    assert not [argv for argv in node.writes() if "ens5f0" in argv]
    assert nics.settings(check_mode=False)["rail0"]["pfc"]["status"] == "ok"


@pytest.mark.parametrize(("numbers", "shared"), [((0, 0), True), ((), True), ((0, 1), False)])
def test_a_plane_takes_the_rdma_device_of_the_first_function(
    tmp_path, monkeypatch, numbers, shared
):
    """The first function of its card and rail has DCQCN (nic-configuration-operator 632f1295)."""
    node, pci = FakeNode(tmp_path, count=1), PCI.format(16)
    first = RdmaDevice("rail", "mlx5_0", netdev="rail0p0", pci=pci, driver="mlx5_core")
    second = replace(first, name="", netdev="rail0p1", pci=f"{pci[:-1]}1")
    monkeypatch.setattr(nics_module, "survey", lambda _sys: Machine((first, second)))
    model = [
        {"interface": port.netdev, "pci": port.pci, "rail": number}
        for port, number in zip((first, second), numbers)
    ]
    node.ethtool.drivers = dict.fromkeys(("rail0p0", "rail0p1"), "mlx5_core")
    nics = node.nics(model)
    nics.look({"rail0p0": "rail0p0", "rail0p1": "rail0p1"})
    one, two = (run.rail for run in nics._rails.values())
    assert (one.shared, two.shared, two.pci) == (False, shared, second.pci)
    # The boot waits for devices of these rails.
    assert nics.with_rdma == ("rail0p0",)
    names = {setting.name for setting in nics._rails["rail0p1"].settings}
    if shared:
        assert two.device.name == "mlx5_0" and two.device.pci == second.pci
        assert "pfc" in names and not names & {"ecn_np", "roce_mode", "cnp_dscp"}
    else:
        assert two.device is None and not names & {"pfc"}


# Vendors


@pytest.mark.parametrize("driver", ["ice", "bnxt_en"])
def test_a_nic_without_a_vendor_fails(tmp_path, driver):
    """Neither tools nor files of mlx5 are used for it."""
    node = FakeNode(tmp_path, tools=("dcb", "mlxconfig", "mlxreg"))
    node.rails = [replace(rail, driver=driver) for rail in node.rails]
    nic = {"adaptive_routing": True, "congestion_control": {"roce_rp": {"rpg_ai_rate": 9}}}
    outcome = node.converge(firmware=True, nic=nic)
    failed = {name for name, status in statuses(outcome, "rail0").items() if status == "failed"}
    assert failed >= {"traffic_class", "pfc"}
    reason = of(outcome, "rail0", "traffic_class")["reason"]
    assert driver in reason and "only mlx5_core is supported" in reason
    assert not [name for name in outcome.settings["rail0"] if name.startswith("firmware")]
    assert node.writes() == []
    node.rails = [replace(rail, shared=True) for rail in node.rails]
    assert "traffic_class" not in statuses(node.converge(), "rail0")


def test_a_second_vendor_is_a_package_and_an_entry(tmp_path, monkeypatch):
    store = Store()

    def provider(options):
        wanted = options.contract.cnp_dscp
        return lambda rail: [Dial(store, rail.name, "cnp_dscp", wanted)]

    monkeypatch.setitem(nics_module.VENDORS, "bnxt_en", provider)
    node = FakeNode(tmp_path, count=1)
    node.rails = [replace(node.rails[0], driver="bnxt_en")]
    found = node.converge().settings["rail0"]
    assert found["cnp_dscp"]["status"] == found["pfc"]["status"] == "ok"
    assert store.values["rail0", "cnp_dscp"] == 48


def test_hardware_is_read_again_after_a_change(tmp_path, monkeypatch):
    surveys = []
    monkeypatch.setattr(nics_module, "survey", lambda sys: surveys.append(sys) or Machine())
    nics = FakeNode(tmp_path, count=0).nics()
    nics.look({})
    for quiet, count in ((True, 1), (False, 2)):
        nics.rail_checks({}, check_mode=False, quiet=quiet)
        assert len(surveys) == count

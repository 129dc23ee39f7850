# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract on simulated NICs: tools, settings, drift, and missing support."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import port_settings
from ansible_collections.baremetal.mpi_roce.plugins.modules import roce_rails

from tests.unit.nic_host import PCI, FakeNode, config_space, kernel_writes
from tests.unit.qos_contracts import compiled

GOLDEN = Path(__file__).parent / "golden"
MAP = "0-25:0 26:3 27-47:0 48:6 49-63:0"


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    kernel_writes(monkeypatch)


@pytest.fixture(params=["inbox", "doca", "soft"])
def node(request, tmp_path):
    return {
        "inbox": lambda: FakeNode(tmp_path),
        "doca": lambda: FakeNode(tmp_path, tools=("dcb", "mlxreg"), doca=True),
        "soft": lambda: FakeNode(tmp_path, driver="virtio_net"),
    }[request.param]()


@pytest.fixture
def inbox(tmp_path):
    return FakeNode(tmp_path)


@pytest.fixture
def doca(tmp_path):
    return FakeNode(tmp_path, tools=("dcb", "mlxreg"), doca=True)


def reason(outcome, name, rail="rail0"):
    return outcome.settings[rail][name]["reason"]


def status(outcome, rail="rail0"):
    return {name: state["status"] for name, state in outcome.settings[rail].items()}


def failed(outcome):
    return {
        (check.subject, check.name): check.reason
        for check in outcome.checks
        if check.status == "failed"
    }


def test_a_bare_nic_gets_the_contract(node):
    outcome = node.converge()
    assert failed(outcome) == {}
    state = node.ports["rail0"]
    assert dict(state["app"])[26] == 3
    assert dict(state["app"])[48] == 6
    assert len(state["app"]) == 64
    assert state["pfc"] == {3}
    assert (state["prio_tc"], state["bw"]) == ([0, 0, 0, 3, 0, 0, 6, 0], [50, 0, 0, 50, 0, 0, 0, 0])
    assert (state["tsa"][3], state["tsa"][6]) == ("ets", "strict")
    shown = {name: entry["found"] for name, entry in outcome.settings["rail0"].items()}
    assert (shown["roce_mode"], shown["cma_roce_tos"]) == ("RoCE v2", 106)
    if node.physical:
        assert node.ethtool.paused["rail0"] == (False, False)
        assert read_request(node) == 4096
        assert state["cable"] == 50
        assert (shown["cnp_dscp"], shown["cnp_priority"]) == (48, 6)


def test_the_second_run_asks_little_and_changes_nothing(node):
    node.converge()
    node.commands.clear()
    before = node.snapshot()
    outcome = node.converge()
    assert (outcome.changed, outcome.diff) == (False, [])
    assert node.writes() == []
    assert node.snapshot() == before
    assert len(node.commands) == len(node.rails) * (5 if node.physical else 4)


def dcb_drift(node):
    return {
        "trust": node["app"].clear,
        "dscp_to_priority": lambda: node["app"].symmetric_difference_update({(26, 3), (26, 0)}),
        "priority_to_tc": lambda: node["prio_tc"].__setitem__(5, 3),
        "ets": lambda: node.update(bw=[90, 0, 0, 10, 0, 0, 0, 0]),
        "pfc": lambda: node["pfc"].add(4),
        "cable_length": lambda: node.update(cable=7),
        "dcbx": lambda: node["dcbx"].update(host=False),
    }


FILES = {
    "roce_mode": ("sys/kernel/config/rdma_cm/*_1/ports/1/default_roce_mode", "IB/RoCE v1"),
    "cma_roce_tos": ("sys/kernel/config/rdma_cm/*_1/ports/1/default_roce_tos", "96"),
    "traffic_class": ("sys/class/infiniband/*_1/tc/1/traffic_class", "96"),
    "ecn_np": ("sys/class/net/rail1/ecn/roce_np/enable/3", "0"),
    "ecn_rp": ("sys/class/net/rail1/ecn/roce_rp/enable/3", "0"),
    "cnp_dscp": ("sys/class/net/rail1/ecn/roce_np/cnp_dscp", "46"),
    "cnp_priority": ("sys/class/net/rail1/ecn/roce_np/cnp_802p_prio", "0"),
}


def drift(node, name):
    """Change one setting of rail1 by hand."""
    if name in FILES:
        file(node, *FILES[name])
    elif name == "link_pause":
        node.ethtool.paused.update(rail1=(True, False))
    elif name == "max_read_request_bytes":
        config(node, 17).write_bytes(config_space(512))
    else:
        dcb_drift(node.ports["rail1"])[name]()


DRIFT = (*dcb_drift({"app": set()}), *FILES, "link_pause", "max_read_request_bytes")


def config(node, bus):
    return node.root / "sys/bus/pci/devices" / PCI.format(bus) / "config"


def read_request(node):
    """The largest read request of rail0 in bytes."""
    return port_settings.MaxReadRequest(node.rails[0], 4096, node.root).read().found


def file(node, pattern, text):
    (path,) = node.root.glob(pattern)
    path.write_text(f"{text}\n")


@pytest.mark.parametrize("name", DRIFT)
def test_drift_of_one_setting_repairs_only_it(doca, name):
    doca.converge()
    settled, other = doca.snapshot("rail1"), doca.snapshot("rail0")
    drift(doca, name)
    assert doca.snapshot("rail1") != settled
    doca.commands.clear()
    shown = doca.converge(check_mode=True)
    (diff,) = shown.diff
    assert diff["before_header"] == "rail1 (settings)"
    named = [line.split(":")[0] for line in diff["after"].splitlines()]
    # without an entry for a DSCP nothing is mapped either
    assert named == (["trust", "dscp_to_priority"] if name == "trust" else [name])
    assert status(shown, "rail1")[name] == "pending"
    assert doca.writes() == []
    outcome = doca.converge()
    assert status(outcome, "rail1")[name] == "ok"
    assert outcome.written == ["rail1"]
    assert not [argv for argv in doca.writes() if "rail0" in argv]
    assert (doca.snapshot("rail1"), doca.snapshot("rail0")) == (settled, other)
    assert not doca.converge().changed


def test_a_second_priority_for_a_dscp_is_taken_away(tmp_path):
    node = FakeNode(tmp_path, driver="virtio_net")
    node.converge()
    node.ports["rail0"]["app"].add((26, 0))
    outcome = node.converge(check_mode=True)
    assert outcome.diff[0]["before"] == f"dscp_to_priority: {MAP.replace('26:3', '26:0+3')}\n"
    node.converge()
    assert not node.converge().changed


@pytest.mark.parametrize(
    ("broken", "culprit"),
    [("pfc set rail0", "pfc"), ("ets set rail0", "priority_to_tc"), ("app add rail0", "trust")],
)
def test_a_rail_on_which_a_program_fails_is_as_before(inbox, broken, culprit):
    inbox.ethtool.paused["rail0"] = (True, False)
    before = inbox.snapshot("rail0")
    inbox.broken[broken] = "Attribute write: Device or resource busy\n"
    outcome = inbox.converge()
    assert inbox.snapshot("rail0") == before
    assert outcome.rolled_back == ["rail0"]
    assert set(status(outcome, "rail1").values()) == {"ok", "not_applicable"}
    assert "resource busy" in failed(outcome)["rail0", f"rail_{culprit}"]
    assert "put back" in failed(outcome)["rail0", f"rail_{culprit}"]
    inbox.broken.clear()
    assert failed(inbox.converge()) == {}


def test_a_cable_length_that_cannot_be_set_affects_no_other_setting(inbox):
    for name, text in (("speed", "800000\n"), ("mtu", "9198\n")):
        inbox._write(f"sys/class/net/rail1/{name}", text)
    inbox.broken["delay rail0"] = "Attribute write: Cannot allocate memory\n"
    outcome = inbox.converge()
    assert list(failed(outcome)) == [("rail0", "rail_cable_length")]
    why = failed(outcome)["rail0", "rail_cable_length"]
    assert "Cannot allocate memory" in why and inbox.ports["rail0"]["pfc"] == {3}
    # 50 m at 800 Gb/s, MTU 9198: 352218 after a pause, and a frame of 9978 and a cell of 128 bytes
    needs = "receive buffer 1 (priority 3) has 220896 bytes; the driver needs 362324 for 50 m"
    assert needs in reason(outcome, "cable_length", "rail1")
    assert "dev rail1 buffer-size 1:362324" in reason(outcome, "cable_length", "rail1")
    inbox.objects -= {"buffer", "dcbx"}
    outcome = inbox.converge()
    assert failed(outcome) == {}
    lacking = {name for name, each in status(outcome).items() if each == "not_applicable"}
    assert lacking >= {"cable_length", "dcbx"}


def test_a_setting_without_effect_is_restored(doca):
    before = doca.snapshot("rail0")
    doca.deaf.add("pfc set rail0 3:on")
    outcome = doca.converge()
    assert failed(outcome)["rail0", "rail_pfc"].partition(";")[0].endswith(" []")
    assert doca.snapshot("rail0") == before
    assert failed(outcome).keys() & {("rail1", "rail_pfc")} == set()


def test_a_missing_tool_is_pending_in_check_mode(tmp_path):
    node = FakeNode(tmp_path, 1)
    asked = {"nic": {"adaptive_routing": True}}
    checked = status(node.converge(check_mode=True, **asked))
    assert checked["accelerations"] == checked["pfc"] == "pending"
    assert status(node.converge(**asked))["accelerations"] == "failed"


def test_one_reason_gives_one_check(tmp_path):
    node = FakeNode(tmp_path, 1, tools=())
    before, outcome = node.snapshot(), node.converge()
    assert "iproute2 (Debian, Ubuntu) or iproute (EL)" in reason(outcome, "pfc")
    assert node.snapshot() == before
    missing, others = [check for check in outcome.checks if check.status == "failed"]
    assert (missing.name, missing.subject) == ("rail_dcbx", "rail0")
    names = {"dcbx", "trust", "dscp_to_priority", "priority_to_tc", "ets", "pfc", "cable_length"}
    assert set(missing.wanted) == set(missing.found) == names
    assert missing.wanted["pfc"] == [3]
    unit = ["dcbx", "trust", "dscp_to_priority", "priority_to_tc", "ets", "pfc"]
    assert others.reason.endswith(f": see {', '.join(unit)}")
    assert "link_pause" in others.wanted


def test_rdma_cm_is_loaded(tmp_path):
    node = FakeNode(tmp_path, rdma_cm=False)
    shown = node.converge(check_mode=True)
    assert status(shown)["cma_roce_tos"] == "pending"
    assert node.writes() == []
    outcome = node.converge()
    assert ("modprobe", "rdma_cm") in node.commands
    assert status(outcome)["cma_roce_tos"] == "ok"


def test_ecn_on_more_priorities_than_the_contract_is_left(doca):
    for priority in range(8):
        file(doca, f"sys/class/net/rail0/ecn/roce_np/enable/{priority}", "1")
    outcome = doca.converge()
    assert status(outcome)["ecn_np"] == "ok"
    assert (doca.root / "sys/class/net/rail0/ecn/roce_np/enable/5").read_text() == "1\n"


def test_a_file_that_doca_lacks_fails(doca):
    shutil.rmtree(doca.root / "sys/class/infiniband/mlx5_0/tc")
    outcome = doca.converge()
    assert "although DOCA-OFED is installed" in reason(outcome, "traffic_class")
    assert status(outcome)["traffic_class"] == "failed"


def test_another_contract_gives_other_settings(doca):
    qos = compiled({"roce": {"dscp": 24, "priority": 5}, "cnp": {"dscp": 46, "priority": 7}})
    outcome = doca.converge(qos=qos)
    shown = {name: entry["found"] for name, entry in outcome.settings["rail0"].items()}
    assert failed(outcome) == {}
    assert (shown["pfc"], shown["traffic_class"], shown["ecn_rp"]) == ([5], 98, [5])
    assert (shown["cnp_dscp"], shown["cnp_priority"]) == (46, 7)
    assert shown["dscp_to_priority"] == "0-23:0 24:5 25-45:0 46:7 47-63:0"


# Options


def test_options_are_set_where_they_are_asked_for(doca):
    nic = {
        "rings": {"rx": "8192"},
        "adaptive_routing": True,
        "accelerations": {"roce_adp_retrans_en": 1},
        "congestion_control": {"roce_rp": {"rpg_ai_rate": "20"}},
        "max_read_request_bytes": None,
    }
    outcome = doca.converge(nic=nic)
    assert failed(outcome) == {}
    assert doca.ethtool.ring["rail0"] == {"rx": 8192, "tx": 1024}
    fields = doca.registers[PCI.format(16)]
    assert (fields["adaptive_routing_forced_en"], fields["roce_adp_retrans_en"]) == (1, 1)
    assert (doca.root / "sys/class/net/rail0/ecn/roce_rp/rpg_ai_rate").read_text() == "20\n"
    assert "max_read_request_bytes" not in outcome.settings["rail0"]
    assert read_request(doca) == 512
    assert not doca.converge(nic=nic).changed


def test_kernel_lockdown_prevents_no_setting_of_the_contract(doca, monkeypatch):
    def locked(_setting, _value):
        raise PermissionError(errno.EPERM, "Operation not permitted", "config")

    monkeypatch.setattr(port_settings.MaxReadRequest, "set", locked)
    for nic, words in (({}, "Operation not permitted"), ({"max_read_request_bytes": 5000}, "5000")):
        outcome = doca.converge(nic=nic)
        for rail in ("rail0", "rail1"):
            assert words in failed(outcome).pop((rail, "rail_max_read_request_bytes"))
        assert len(failed(outcome)) == 2
        assert outcome.rolled_back == [] and doca.ports["rail0"]["pfc"] == {3}


def test_an_option_with_a_default_may_be_null():
    options = {"nic": roce_rails.ARGUMENTS["nic"]}
    checked = ArgumentSpecValidator(options).validate({"nic": {"max_read_request_bytes": None}})
    assert checked.error_messages == []
    assert checked.validated_parameters["nic"]["max_read_request_bytes"] is None


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ({"rings": {"rx": 16384}}, "Invalid argument"),
        ({"rings": {"both": 1024}}, "KeyError('both')"),
        ({"accelerations": {"selective_repeat_forced_en": 1}}, "no selective_repeat_forced_en"),
        ({"accelerations": {"no_such_field": 1}}, "no no_such_field"),
        ({"congestion_control": {"roce_rp": {"nonsense": 1}}}, "nonsense is missing"),
    ],
)
def test_an_unsupported_option_changes_nothing(doca, nic, words):
    before = doca.snapshot()
    outcome = doca.converge(nic=nic)
    assert any(words in reason for reason in failed(outcome).values())
    assert doca.snapshot() == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nic": {"rings": {"rx": "many"}}}, "rings.rx is 'many'"),
        ({"firmware_parameters": {"SRIOV_EN": 1}}, "remove SRIOV_EN"),
        ({"firmware_parameters": {"ATS_ENABLED": "no"}}, "ATS_ENABLED is 'no'"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_read(inbox, given, words):
    with pytest.raises(PlanError, match=words):
        inbox.converge(**{"firmware": True, **given})
    assert inbox.commands == []


# What cannot be read


def test_debugfs_closed_by_lockdown_leaves_cnps_to_the_firmware(inbox, monkeypatch):
    plain = Path.read_text

    def read_text(path, *given, **more):
        if "kernel/debug" in str(path):
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        return plain(path, *given, **more)

    monkeypatch.setattr(Path, "read_text", read_text)
    outcome = inbox.converge()
    assert outcome.written == ["rail0", "rail1"] and not failed(outcome)
    assert status(outcome)["cnp_dscp"] == "not_applicable"
    assert "lockdown" in reason(outcome, "cnp_dscp") and "CNP_DSCP_P1" in reason(
        outcome, "cnp_dscp"
    )
    outcome = inbox.converge(nic={"congestion_control": {"roce_rp": {"rpg_ai_rate": 7}}})
    assert any("roce_rails_nic.congestion_control" in why for why in failed(outcome).values())


# PCI


@pytest.mark.parametrize("size", port_settings.SIZES)
def test_only_the_read_size_changes_in_configuration_space(inbox, size):
    path = config(inbox, 16)
    setting = port_settings.MaxReadRequest(inbox.rails[0], size, inbox.root)
    setting.write()
    assert setting.read().found == size
    assert path.read_bytes() == config_space(size)
    # Only the header is readable, no capability, and a loop of capabilities.
    loop = bytes(0x34) + b"\x40" + bytes(11) + b"\x01\x40" + bytes(190)
    for space in (bytes(64), bytes(256), loop):
        path.write_bytes(space)
        with pytest.raises(OSError, match="PCI Express"):
            setting.read()

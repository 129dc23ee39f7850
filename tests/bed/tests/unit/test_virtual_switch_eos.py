# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The simulated EOS switch rejects, commits, waits, rolls back and fails as EOS does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.bed.simulators.parts import eos_config, eos_grammar, hardware
from tests.bed.simulators.process import VirtualSwitch
from tests.unit.https_server import Authority
from tests.waiting import until

PORTS = [
    {
        "name": "Ethernet1/1",
        "speed_gbps": 400,
        "peer": "node01",
        "peer_interface": "rail0",
        "peer_mac": "9C:63:C0:00:00:01",
    },
    {"name": "Ethernet2/1", "speed_gbps": 800, "peer": "spine01", "peer_interface": "Ethernet7/1"},
    {"name": "Ethernet10/1", "speed_gbps": 800, "peer": "", "peer_interface": ""},
]
PROFILE = [
    "qos profile LOSSLESS",
    "qos trust dscp",
    "priority-flow-control on",
    "priority-flow-control priority 3 no-drop",
    "tx-queue 3",
    "no priority",
    "bandwidth percent 50",
    "random-detect ecn minimum-threshold 150000 bytes maximum-threshold 1500000 bytes "
    "max-mark-probability 100",
    "exit",
    "tx-queue 6",
    "priority strict",
    "exit",
    "exit",
]
Make = Callable[..., "Api"]


class Refusal(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.errors = error.get("data", [{}])[-1].get("errors", [])
        self.place = len(error.get("data", []))


class Api:
    """A client of eAPI."""

    def __init__(self, switch: VirtualSwitch) -> None:
        self.switch = switch
        self.client = switch.client()

    def call(self, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "method": "runCmds", "params": params, "id": "1"}
        answer = self.client.post("/command-api", json=body)
        assert answer.status_code == 200
        if "error" in answer.json():
            raise Refusal(answer.json()["error"])
        return answer.json()["result"]

    def text(self, *commands: str) -> str:
        """Return the output of the last command."""
        response = self.call(version=1, cmds=["enable", *commands], format="text")
        return str(response[-1]["output"])

    def json(self, *commands: str) -> Any:
        return self.call(version=1, cmds=["enable", *commands])[-1]

    def configure(self, *lines: str) -> None:
        self.text("configure", *lines)

    @property
    def running(self) -> list[str]:
        return self.text("show running-config").splitlines()

    def mtu(self, port: str = "Ethernet1/1") -> int:
        block = self.running[self.running.index(f"interface {port}") + 1 :]
        block = block[: block.index("!")]
        return next((int(line.split()[1]) for line in block if line.startswith("   mtu ")), 1500)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Api]]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    made = []

    def one(release: str = "") -> Api:
        directory = tmp_path_factory.mktemp("eos") / "switch"
        described = {"name": "leaf05", "system": "eos", "asic": "tomahawk5", "ports": PORTS}
        made.append(VirtualSwitch(directory, authority, {**described, "release": release}))
        return Api(made[-1])

    yield one
    for switch in made:
        switch.stop()


@pytest.fixture(scope="module")
def shared(make: Make) -> Api:
    return make()


@pytest.fixture
def api(shared: Api) -> Iterator[Api]:
    """Verify that the switch is in its initial state, apart from completed sessions."""
    yield shared
    shared.switch.heal()
    for name, session in shared.json("show configuration sessions")["sessions"].items():
        if session["state"] != "completed":
            shared.text(f"configure session {name} abort")
    shared.text(f"configure session clean-{time.monotonic_ns()}", "rollback clean-config", "commit")


def entered(*lines: str) -> list[str]:
    """Return the configuration that these lines produce on a new switch, without a server."""
    switch = hardware("eos", PORTS)
    config = eos_grammar.factory(switch)
    modes = [eos_grammar.Mode("configure", config.top)]
    for line in lines:
        eos_grammar.enter(config, modes, line, switch)
    return [str(line) for line in eos_config.written(config)]


def test_what_needs_privileges_says_so(api: Api) -> None:
    for command in (
        "show running-config",
        "configure session one",
        "copy running-config startup-config",
    ):
        with pytest.raises(Refusal) as refused:
            api.call(version=1, cmds=[command])
        assert refused.value.code == 1002
        assert "privileged mode required" in refused.value.errors[0]
    assert api.call(version=1, cmds=["show version"])


WATCHDOG = "priority-flow-control pause watchdog"
REFUSED = (
    (["foo"], "Invalid input (at token 0: 'foo')"),
    (["qos map dscp 64 to traffic-class 3"], "Invalid input (at token 3: '64')"),
    (["qos map dscp 26 to"], "Incomplete command (at token 5: None)"),
    (["interface Ethernet99/1"], "Invalid input (at token 1: 'Ethernet99/1')"),
    (["mtu 9000"], "Invalid input (at token 0: 'mtu')"),
    ([f"{WATCHDOG} default timeout 0.001"], "Invalid input (at token 5: '0.001')"),
    (["interface Ethernet1/1", "mtu 9216"], "Invalid input (at token 1: '9216')"),
    (["qos profile A", "bandwidth percent 5"], "Invalid input (at token 0: 'bandwidth')"),
    (["qos profile A", "tx-queue 3", "bandwidth percent 101"], "Invalid input (at token 2: '101')"),
    (
        ["qos profile A", "priority-flow-control priority 8 no-drop"],
        "Invalid input (at token 2: '8')",
    ),
)


@pytest.mark.parametrize(("lines", "error"), REFUSED)
def test_a_line_that_its_mode_lacks_is_refused(lines: list[str], error: str) -> None:
    with pytest.raises(eos_grammar.Refused) as refused:
        entered(*lines)
    assert str(refused.value) == error


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            [
                "priority-flow-control pause watchdog default timeout 0.20",
                "priority-flow-control pause watchdog default polling-interval 0.11",
            ],
            "half of the timeout",
        ),
        (
            [
                "qos profile A",
                "tx-queue 3",
                "random-detect ecn minimum-threshold 2000 bytes maximum-threshold 1000 bytes "
                "max-mark-probability 5",
            ],
            "less than or equal to maximum",
        ),
    ],
)
def test_values_that_contradict_each_other(lines: list[str], error: str) -> None:
    with pytest.raises(eos_grammar.Failed, match=error):
        entered(*lines)


def test_an_invalid_line_stops_a_session_that_stays_pending(api: Api) -> None:
    with pytest.raises(Refusal) as refused:
        api.text("configure session one", "interface Ethernet1/1", "mtu 9000", "mtu high")
    assert refused.value.code == 1002
    assert str(refused.value) == "CLI command 5 of 5 'mtu high' failed: invalid command"
    assert refused.value.errors == ["Invalid input (at token 1: 'high')"]
    assert refused.value.place == 5
    assert api.json("show configuration sessions")["sessions"]["one"]["state"] == "pending"
    assert api.mtu() == 1500


def test_it_writes_as_eos_does() -> None:
    written = entered(
        *PROFILE,
        "interface Ethernet2/1",
        "mtu 9000",
        "no switchport",
        "service-profile LOSSLESS",
        "interface Ethernet1/1",
        "description to node01 rail0",
        "qos map dscp 9 8 10 to traffic-class 3",
        "qos map dscp 26 to traffic-class 3",
        "qos map dscp 0 to traffic-class 0",
        "qos map traffic-class 5 to tx-queue 0",
        "priority-flow-control pause watchdog default timeout 0.20",
        "priority-flow-control pause watchdog default polling-interval 0.10",
        "priority-flow-control pause watchdog action drop",
    )
    assert "\n".join(written) == (
        """\
!
hostname leaf01
!
qos profile LOSSLESS
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   !
   tx-queue 3
      no priority
      bandwidth percent 50
      random-detect ecn minimum-threshold 150000 bytes maximum-threshold 1500000 bytes """
        """max-mark-probability 100
   !
   tx-queue 6
      priority strict
!
interface Ethernet1/1
   description to node01 rail0
!
interface Ethernet2/1
   mtu 9000
   no switchport
   service-profile LOSSLESS
!
interface Ethernet10/1
!
qos map dscp 0 to traffic-class 0
qos map dscp 8 9 10 to traffic-class 3
qos map traffic-class 5 to tx-queue 0
!
priority-flow-control pause watchdog default timeout 0.20
priority-flow-control pause watchdog default polling-interval 0.10
priority-flow-control pause watchdog action drop
!
management api http-commands
   no shutdown
!"""
    )


def test_what_it_wrote_can_be_given_back_to_it() -> None:
    written = entered(*PROFILE, "vlan 100", "name theirs", "interface Ethernet1/1", "mtu 9000")
    assert entered(*written) == written


PUBLISHED = """\
platform trident mmu queue profile mc_example_profile
   ingress threshold 1/16
   ingress headroom 165100
   egress unicast queue 1 reserved bytes 0
   egress unicast queue 2 threshold 1/8
interface defaults
   mtu 9214
   ethernet
      shutdown
qos profile test_with_pfc
   qos dscp 46
   no qos trust
   priority-flow-control priority 1 drop
   priority-flow-control pause watchdog port timer timeout 0.05 polling-interval auto
   uc-tx-queue 4
      bandwidth guaranteed percent 10
      random-detect ecn minimum-threshold 320 segments maximum-threshold 320 segments weight 10
      random-detect ecn count
interface Ethernet1/1
   speed 400g-4
   error-correction encoding reed-solomon
   no switchport
   vrf TENANT
   ip ospf area 0.0.0.0
   dot1x pae authenticator
   service-profile test_with_pfc
interface Ethernet1/1.100
   encapsulation dot1q vlan 100
interface Port-Channel5
   qos trust cos
   mlag 5
qos map traffic-class 1 to dscp 56
qos map traffic-class 5 to uc-tx-queue 3
qos rewrite dscp
qos random-detect ecn allow non-ect chip-based
priority-flow-control all off
platform trident mmu queue profile mc_example_profile apply
"""
"""aristanetworks/avd 3cac535c, eos_cli_config_gen; docs.habana.ai, Arista switch configuration."""


def test_lines_of_published_configurations_are_taken_and_kept() -> None:
    lines = PUBLISHED.splitlines()
    written = entered(*lines)
    assert [line for line in lines if line not in written] == []
    assert entered(*written) == written


def test_one_profile_of_buffers_is_applied_at_a_time() -> None:
    lines = [f"platform trident mmu queue profile {name}" for name in ("A", "B")]
    both = entered(*lines, f"{lines[0]} apply", f"{lines[1]} apply")
    assert f"{lines[1]} apply" in both and f"{lines[0]} apply" not in both
    assert f"{lines[1]} apply" not in entered(*lines, f"{lines[1]} apply", f"no {lines[1]} apply")


def test_no_and_default_take_lines_away() -> None:
    begin = [*PROFILE, "interface Ethernet1/1", "mtu 9000", "service-profile LOSSLESS", "exit"]
    undone = entered(
        *begin,
        "qos map dscp 26 to traffic-class 5",
        "no qos map dscp 26",
        "no qos profile LOSSLESS",
        "interface Ethernet1/1",
        "no mtu",
        "default service-profile",
    )
    assert undone == entered()
    assert entered(*begin, "default interface Ethernet1/1", "no qos profile LOSSLESS") == undone
    within = entered(
        *begin,
        "qos profile LOSSLESS",
        "no priority-flow-control priority 3 no-drop",
        "no tx-queue 3",
    )
    assert "   priority-flow-control priority 3 no-drop" not in within
    assert "   tx-queue 3" not in within
    assert "   tx-queue 6" in within


def test_other_lines_of_an_operator_are_stored_unchanged() -> None:
    lines = [
        "ntp server 10.0.0.1 prefer",
        "router bgp 65001",
        "   neighbor 10.1.1.1 remote-as 65000",
        "   network 10.1.0.0/16",
    ]
    written = entered(*lines, "interface Ethernet1/1", "mtu 9000")
    assert [line for line in lines if line not in written] == []
    assert "   mtu 9000" in written
    gone = entered(*lines, "exit", "no ntp server 10.0.0.1", "no router bgp 65001")
    assert gone == entered()


def test_a_session_changes_nothing_until_it_is_committed(api: Api) -> None:
    differences = api.text(
        "configure session one", "interface Ethernet1/1", "mtu 9000", "show session-config diffs"
    )
    assert differences.splitlines()[:2] == [
        "--- system:/running-config",
        "+++ session:/one-session-config",
    ]
    assert "+   mtu 9000" in differences.splitlines()
    assert api.mtu() == 1500
    api.text("configure session one", "commit")
    assert api.mtu() == 9000
    assert api.json("show configuration sessions")["sessions"]["one"]["state"] == "completed"
    with pytest.raises(Refusal, match="could not run command"):
        api.text("configure session one")


def timed(api: Api, timer: str = "01:00:00", mtu: int = 9000) -> None:
    """Use a timer longer than any test, for cases in which it must not expire."""
    api.text(
        "configure session timed", "interface Ethernet1/1", f"mtu {mtu}", "exit",
        "interface Ethernet2/1", f"mtu {mtu}", f"commit timer {timer}",
    )  # fmt: skip


def test_a_second_commit_keeps_it(api: Api) -> None:
    timed(api)
    assert api.mtu() == 9000
    facts = api.json("show configuration sessions detail")
    assert facts["commitTimerSessionName"] == "timed"
    assert facts["sessions"]["timed"]["state"] == "pending"
    assert 0 < facts["commitTimerExpireTime"] - time.time() <= 3600
    with pytest.raises(Refusal) as refused:
        api.text("configure session other", "commit")
    assert "waiting for its commit timer" in refused.value.errors[0]
    api.text("configure session timed commit")
    assert "commitTimerSessionName" not in api.json("show configuration sessions detail")
    assert api.mtu() == 9000
    assert api.json("show configuration sessions")["sessions"]["timed"]["state"] == "completed"


def test_what_was_not_saved_is_lost_in_a_reboot(make: Make) -> None:
    api = make(release="4.30.1F")
    api.configure("interface Ethernet1/1", "mtu 9000")
    assert api.text("copy running-config startup-config") == "Copy completed successfully.\n"
    api.configure("interface Ethernet1/1", "mtu 8000")
    timed(api, mtu=7000)
    session = api.json("show configuration sessions detail")["sessions"]["timed"]
    assert session["state"] == "pendingCommitTimer"
    assert "   mtu 9000" in api.text("show startup-config").splitlines()
    api.switch.reboot()
    api = Api(api.switch)
    assert (api.mtu(), api.mtu("Ethernet2/1")) == (9000, 1500)
    assert api.json("show configuration sessions")["sessions"] == {}


def test_links_and_neighbours_are_those_of_its_description(api: Api) -> None:
    rows = api.json("show interfaces status")["interfaceStatuses"]
    assert {name: (row["linkStatus"], row["bandwidth"]) for name, row in rows.items()} == {
        "Ethernet1/1": ("connected", 400 * 10**9),
        "Ethernet2/1": ("connected", 800 * 10**9),
        "Ethernet10/1": ("notconnect", 0),
    }
    api.switch.fault(lldp={"Ethernet2/1": {"system": "spine02", "port": "Ethernet8/1"}})
    heard = {row["port"]: row for row in api.json("show lldp neighbors")["lldpNeighbors"]}
    assert heard["Ethernet1/1"]["neighborPort"] == "9c63.c000.0001"
    assert (heard["Ethernet2/1"]["neighborDevice"], heard["Ethernet2/1"]["neighborPort"]) == (
        "spine02",
        "Ethernet8/1",
    )
    api.configure("interface Ethernet1/1", "shutdown")
    rows = api.json("show interfaces status")["interfaceStatuses"]
    assert rows["Ethernet1/1"]["linkStatus"] == "disabled"


ROLLED_BACK = "rolled_back session=timed by=timer"


def test_left_alone_it_takes_a_commit_back(api: Api) -> None:
    timed(api, "00:00:01")
    until(lambda: api.switch.log[-1] == ROLLED_BACK, ROLLED_BACK)
    assert "in_force session=timed timer_s=1" in api.switch.log
    assert api.mtu() == 1500


def test_a_wrong_read_back(api: Api) -> None:
    api.configure(*PROFILE, "interface Ethernet1/1", "mtu 9000")
    true = api.running
    api.switch.fault(read="wrong", times=1)
    wrong = api.running
    assert set(true) - set(wrong) == {"   mtu 9000", "   priority-flow-control priority 3 no-drop"}
    assert api.running == true


def test_a_full_disk_when_saving(api: Api) -> None:
    saved = api.text("show startup-config")
    api.configure("interface Ethernet1/1", "mtu 9000")
    api.switch.fault(apply="disk_full")
    with pytest.raises(Refusal) as refused:
        api.text("copy running-config startup-config")
    assert "No space left on device" in refused.value.errors[0]
    assert api.text("show startup-config") == saved

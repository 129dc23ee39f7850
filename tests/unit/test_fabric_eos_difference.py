# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences of an EOS switch, in any form of its configuration."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Headroom
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import Present
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import DRIVER
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bed.simulators.parts import eos_config, eos_grammar, hardware
from tests.unit.eos_intents import CONTRACTS, OTHER, TOMAHAWK5, leaf
from tests.unit.eos_switch import CLASSES, DSCPS, Tree, empty, show, typed

OWNED = "qos profile BAREMETAL_MPI_ROCE"


def present(tree: Tree, **how: bool) -> Present:
    text = show(tree, **how)
    interfaces = {
        f"Ethernet{number}/1": {"linkStatus": "connected", "bandwidth": 800 * 10**9}
        for number in range(1, 4)
    }
    return Present("simulation 4.33.1F", text, text, interfaces, ())


def difference(contract: dict[str, Any], tree: Tree, **how: bool) -> system.Difference:
    intent = leaf(contract)
    return DRIVER.difference(intent, DRIVER.wanted(intent), present(tree, **how))


def converged(contract: dict[str, Any], tree: Tree) -> Tree:
    return typed(tree, list(difference(contract, tree).steps))


# --- any configuration -----------------------------------------------------------------------

PROFILE_LINES = st.sampled_from(
    (
        "qos trust cos",
        "no qos trust",
        "qos cos 3",
        "priority-flow-control on",
        "priority-flow-control priority 3 no-drop",
        "priority-flow-control priority 5 no-drop",
        "shape rate 40 percent",
        "service-policy type qos input OPS-CLASSIFY",
    )
)
QUEUE_LINES = st.sampled_from(
    (
        "no priority",
        "priority strict",
        "bandwidth percent 30",
        "random-detect ecn count",
        "random-detect ecn minimum-threshold 128 kbytes maximum-threshold 256 kbytes "
        "max-mark-probability 5 weight 0",
    )
)
INTERFACE_LINES = st.sampled_from(
    (
        "description to node01",
        "no switchport",
        "mtu 9214",
        "mtu 1500",
        "ip address 10.0.0.1/31",
        "service-profile OPS",
        "service-profile BAREMETAL_MPI_ROCE",
        "service-profile BAREMETAL_MPI_ROCE_OLD",
        "qos trust dscp",
        "qos trust cos",
        "priority-flow-control priority 3 no-drop",
        "priority-flow-control priority 4 no-drop",
        "no priority-flow-control pause watchdog",
    )
)
SWITCH_LINES = st.sampled_from(
    (
        "hostname leaf01",
        "qos rewrite dscp",
        "priority-flow-control all off",
        "priority-flow-control pause watchdog default timeout 5.00",
        "priority-flow-control pause watchdog default recovery-time 10.0",
        "priority-flow-control pause watchdog default polling-interval 0.100",
        "priority-flow-control pause watchdog action notify-only",
        "ip routing",
        "qos random-detect ecn allow non-ect",
    )
)


@st.composite
def configurations(draw: st.DrawFn) -> Tree:
    """Lines of operators and earlier contracts, typed one by one."""
    lines = draw(st.lists(SWITCH_LINES, max_size=6))
    for _map in range(draw(st.integers(0, 4))):
        dscps = draw(st.lists(st.integers(0, 63), min_size=1, max_size=9, unique=True))
        suffix = draw(st.sampled_from(("", " drop-precedence 2")))
        target = draw(st.integers(0, 7))
        lines.append(f"qos map dscp {' '.join(map(str, dscps))} to traffic-class {target}{suffix}")
    if draw(st.booleans()):
        lines.append(f"qos map traffic-class 3 5 to tx-queue {draw(st.integers(0, 6))}")
    lines += ["router bgp 65000", "neighbor 10.0.0.0 remote-as 65001", "exit"]
    for name in ("OPS", "BAREMETAL_MPI_ROCE", "BAREMETAL_MPI_ROCE_OLD"):
        if draw(st.booleans()):
            lines += [f"qos profile {name}", *draw(st.lists(PROFILE_LINES, max_size=4))]
            lines += [*draw(_queues()), "exit"]
    for name in ("Ethernet1/1", "Ethernet2/1", "Ethernet3/1", "Port-Channel7"):
        lines += [f"interface {name}", *draw(st.lists(INTERFACE_LINES, max_size=5))]
        lines += [*draw(_queues()), "exit"]
    return typed(empty(), lines)


@st.composite
def _queues(draw: st.DrawFn) -> list[str]:
    lines = []
    for queue in draw(st.sets(st.sampled_from((0, 3, 5, 6)), max_size=3)):
        lines += [f"tx-queue {queue}", *draw(st.lists(QUEUE_LINES, max_size=3)), "exit"]
    return lines


def operators(tree: Tree, classes: set[int]) -> Tree:
    """Settings that only the operator may change, by description."""
    rest = copy.deepcopy(tree)
    del rest[DSCPS]
    rest[CLASSES] = [queue for number, queue in enumerate(tree[CLASSES]) if number not in classes]
    for line in list(rest):
        watched = "priority-flow-control", "qos rewrite dscp", OWNED
        if line.startswith(watched):
            del rest[line]
        elif line.startswith("interface ") and line[10:] in ("Ethernet1/1", "Ethernet2/1"):
            rest[line] = {below for below in rest[line] if _is_not_contract(below)}
        elif line.startswith("interface "):
            own = "service-profile BAREMETAL"
            rest[line] = {b: v for b, v in rest[line].items() if not b.startswith(own)}
    return {line: below for line, below in rest.items() if below != set()}


def _is_not_contract(line: str) -> bool:
    return line.startswith(("description", "no switchport", "ip address"))


@settings(max_examples=40, deadline=None)
@given(configurations(), st.sampled_from(CONTRACTS), st.booleans(), st.booleans())
def test_after_the_lines_nothing_differs_and_the_operator_has_what_he_had(
    tree: Tree, contract: dict[str, Any], grouped: bool, defaults: bool
) -> None:
    first = difference(contract, tree, grouped=grouped, defaults=defaults)
    after = typed(tree, list(first.steps))
    for shown in (True, False):
        assert not difference(contract, after, grouped=shown, defaults=not shown)
    classes = {queue.traffic_class for queue in leaf(contract).fabric.queues}
    assert operators(after, classes) == operators(tree, classes)


# --- single findings ---------------------------------------------------------------------------


def drifted(*lines: str) -> system.Difference:
    return difference({}, typed(converged({}, empty()), list(lines)))


WATCHDOG = "priority-flow-control pause watchdog default"
DRIFT = {
    "dscp": (["qos map dscp 26 to traffic-class 0"], "", "qos map dscp 26 to traffic-class 3"),
    "drop precedence": (
        ["qos map dscp 48 to traffic-class 6 drop-precedence 2"],
        *("", "qos map dscp 48 to traffic-class 6"),
    ),
    "queue map": (
        ["qos map traffic-class 3 to tx-queue 1"],
        *("", "qos map traffic-class 3 to tx-queue 3"),
    ),
    "second lossless priority": (
        [OWNED, "priority-flow-control priority 4 no-drop"],
        *(f"{OWNED} priority-flow-control priority 4", None),
    ),
    "PFC off": (["priority-flow-control all off"], "priority-flow-control all off", None),
    "CNP shared": (
        [OWNED, "tx-queue 6", "no priority"],
        *(f"{OWNED} tx-queue 6 priority", "priority strict"),
    ),
    "remarking": (["qos rewrite dscp"], "qos rewrite dscp", None),
    "mtu": (["interface Ethernet2/1", "mtu 9000"], "interface Ethernet2/1 mtu", "mtu 9198"),
    "profile of the operator": (
        ["interface Ethernet1/1", "service-profile OPS"],
        *("interface Ethernet1/1 service-profile", "service-profile BAREMETAL_MPI_ROCE"),
    ),
    "trust of the port itself": (
        ["interface Ethernet1/1", "qos trust cos"],
        *("interface Ethernet1/1 qos trust", None),
    ),
    "watchdog": ([f"{WATCHDOG} timeout 2.00"], f"{WATCHDOG} timeout", f"{WATCHDOG} timeout 0.2"),
    "port that left the model": (
        ["interface Ethernet3/1", "service-profile BAREMETAL_MPI_ROCE"],
        *("interface Ethernet3/1 service-profile", None),
    ),
}


@pytest.mark.parametrize(("lines", "path", "wanted"), DRIFT.values(), ids=DRIFT)
def test_drift_is_one_change_with_both_values(
    lines: list[str], path: str, wanted: Optional[str]
) -> None:
    found = drifted(*lines)
    path = path or lines[0].partition(" to ")[0]
    assert [(one.path, one.found, one.wanted) for one in found.changes] == [
        (path, lines[-1], wanted)
    ]
    assert found.impact.level == "loss"
    assert lines[-1] in found.before and (wanted or "") in found.after


def test_an_old_object_goes() -> None:
    (change,) = drifted(f"{OWNED}_OLD", "qos cos 3").changes
    assert (change.path, change.wanted) == (f"{OWNED}_OLD", None)


SAME = {
    "as EOS may write a number": [
        "priority-flow-control pause watchdog default timeout 0.20",
        "priority-flow-control pause watchdog default polling-interval 0.100",
    ],
    "thresholds in another unit": [
        OWNED,
        "tx-queue 3",
        "random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes "
        "max-mark-probability 100 weight 0",
    ],
    "polling left out": ["no priority-flow-control pause watchdog default polling-interval"],
    "the profile's line again": ["interface Ethernet1/1", "qos trust dscp"],
    "counting marks": ["interface Ethernet1/1", "tx-queue 3", "random-detect ecn count"],
    "what the operator has": [
        "qos profile OPS",
        "qos cos 5",
        "exit",
        "interface Ethernet3/1",
        "service-profile OPS",
        "mtu 1400",
    ],
}


@pytest.mark.parametrize("lines", SAME.values(), ids=SAME)
def test_what_says_the_same_is_no_difference(lines: list[str]) -> None:
    assert not drifted(*lines)


def test_the_switch_s_queue_keyword_overrides_the_model() -> None:
    intent = leaf()
    assert intent.asic.options["eos_queue"] == "tx-queue"
    found = replace(present(empty()), queue="uc-tx-queue")
    lines = DRIVER.difference(intent, DRIVER.wanted(intent), found).steps
    assert "uc-tx-queue 3" in lines and "tx-queue 3" not in lines


def test_a_port_that_left_the_model_loses_profile_and_mtu() -> None:
    port = ["interface Ethernet3/1", "service-profile BAREMETAL_MPI_ROCE"]
    left = drifted(*port, "mtu 9198")
    assert list(left.steps) == [port[0], f"no {port[1]}", "no mtu 9198", "exit"]
    assert list(drifted(*port, "mtu 4000").steps) == [port[0], f"no {port[1]}", "exit"]
    assert not drifted(port[0], "mtu 9198")


def test_a_bundle_set_by_hand_with_our_profile_stays() -> None:
    """The remedy for a storage link in a port channel: outside the model, by hand."""
    profile = "service-profile BAREMETAL_MPI_ROCE"
    assert not drifted("interface Port-Channel5", profile, "mtu 9198")
    assert not drifted("interface Ethernet3/1", profile, "channel-group 5 mode active")


def test_a_banner_is_no_configuration() -> None:
    tree = converged({}, empty())
    text = show(tree).replace(
        "!\nend\n", "banner motd\ninterface Ethernet1/1\n   mtu 68\nEOF\n!\nend\n"
    )
    intent = leaf()
    found = Present("", text, text, {port.name: {} for port in intent.ports}, ())
    assert not DRIVER.difference(intent, DRIVER.wanted(intent), found)


def test_dscps_that_move_together_are_one_line_of_the_diff() -> None:
    after = difference({}, empty()).after.splitlines()
    assert sum(line.startswith("qos map dscp") for line in after) == 1


def test_objects_come_before_their_users_and_go_after_them() -> None:
    tree = typed(
        empty(), [f"{OWNED}_OLD", "qos cos 3", "interface Ethernet1/1", f"service-{OWNED[4:]}_OLD"]
    )
    lines = list(difference({}, tree).steps)
    assert (
        lines.index(OWNED) < lines.index("interface Ethernet1/1") < lines.index(f"no {OWNED}_OLD")
    )


def test_a_new_profile_is_typed_in_full() -> None:
    """A chip whose defaults differ from the documented ones gets the contract too."""
    lines = difference({}, empty()).steps
    assert "priority strict" in lines
    assert "qos map traffic-class 0 to tx-queue 0" in lines


def test_the_cost_names_ports_and_what_is_not_known() -> None:
    losses = " / ".join(difference({}, empty()).impact.losses)
    assert "2 ports (Ethernet1/1, Ethernet2/1)" in losses
    assert "MTU of 2 ports" in losses
    assert "not document" in losses
    assert f"{system.UNDER_TRAFFIC[system.DSCP_MAP]}, for ports outside the model too" in losses


def test_a_port_of_a_port_channel_is_refused() -> None:
    tree = typed(empty(), ["interface Ethernet2/1", "channel-group 7 mode active"])
    with pytest.raises(system.SwitchError, match=r"Ethernet2/1 .* Port-Channel7"):
        difference({}, tree)


@pytest.mark.parametrize("line", ["flowcontrol receive on", "flowcontrol send desired"])
def test_a_port_that_pauses_the_whole_link_is_refused(line: str) -> None:
    tree = converged({}, empty())
    with pytest.raises(system.SwitchError, match=r"Ethernet2/1 pauses .*no flowcontrol"):
        difference({}, typed(tree, ["interface Ethernet2/1", line]))
    assert not difference({}, typed(tree, ["interface Ethernet9/1", line]))
    off = f"{line.rpartition(' ')[0]} off"
    assert not difference({}, typed(tree, ["interface Ethernet2/1", off]))


def test_what_is_in_force_and_not_saved_is_a_change_without_cost() -> None:
    intent = leaf()
    tree = converged({}, empty())
    found = present(tree)
    unsaved = Present(found.version, found.running, show(empty()), found.interfaces, ())
    change = DRIVER.difference(intent, DRIVER.wanted(intent), unsaved)
    assert [one.path for one in change.changes] == ["startup-config"]
    assert change.impact.level == "none"
    waiting = Present(found.version, found.running, show(empty()), found.interfaces, (), True)
    assert not DRIVER.difference(intent, DRIVER.wanted(intent), waiting)


def test_headroom_under_our_name_is_applied_and_goes_with_the_values() -> None:
    asic = replace(TOMAHAWK5, values={(800, 50): Headroom(500000, 20000, 480000)})
    intent = leaf(asic=asic)
    wanted = DRIVER.wanted(intent)
    first = DRIVER.difference(intent, wanted, present(empty()))
    tree = typed(empty(), list(first.steps))
    assert not DRIVER.difference(intent, wanted, present(tree))
    assert any("whole switch" in loss for loss in first.impact.losses)
    gone = typed(tree, list(difference({}, tree).steps))
    assert "mmu" not in show(gone)


# --- what published configurations have -----------------------------------------------------------
#
# docs.habana.ai, Arista Switch L2 and L3 Configuration Example (7060DX4-32, 7060PX5-64E), with the
# placeholders filled in, and `random-detect ecn` in segments as clusters in public have it.

GAUDI = """\
platform trident mmu queue profile PFC_Profile
   ingress threshold 1
   ingress headroom {headroom}
!
interface defaults
   mtu 9214
!
interface Ethernet1/1
   mtu 9198
   speed 400g-4
   error-correction encoding reed-solomon
   no switchport
   ip address 10.0.0.1/30
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 0 no-drop
   priority-flow-control priority 3 no-drop
   !
   uc-tx-queue 3
      no priority
      random-detect ecn minimum-threshold 2000 segments maximum-threshold 10000 segments \
max-mark-probability 20 weight 0
!
interface Ethernet2/1
   speed 400g-4
   no switchport
!
qos rewrite dscp
priority-flow-control all off
!
platform trident mmu queue profile PFC_Profile apply
!
end
"""
BUFFERS = "platform trident mmu queue profile"
ROOM = replace(TOMAHAWK5, values={(800, 50): Headroom(500000, 20000, 480000)})


class Simulated:
    def __init__(self, text: str = "", queue: str = "uc-tx-queue") -> None:
        ports = [
            {"name": f"Ethernet{one}/1", "speed_gbps": 800, "peer": "", "peer_interface": ""}
            for one in (1, 2, 3)
        ]
        self.queue = queue
        self.hardware = hardware("eos", ports)
        self.config = eos_grammar.factory(self.hardware)
        self.type(text.splitlines())

    def type(self, lines: Iterable[str]) -> None:
        modes = [eos_grammar.Mode("configure", self.config.top)]
        for line in lines:
            eos_grammar.enter(self.config, modes, line, self.hardware)

    @property
    def text(self) -> str:
        return "\n".join([*eos_config.written(self.config), "end", ""])

    def present(self) -> Present:
        interfaces = {port.name: {} for port in self.hardware.ports}
        return Present("simulation", self.text, self.text, interfaces, (), queue=self.queue)

    def converge(self, intent: system.SwitchIntent) -> system.Difference:
        first = DRIVER.difference(intent, DRIVER.wanted(intent), self.present())
        self.type(first.steps)
        again = DRIVER.difference(intent, DRIVER.wanted(intent), self.present())
        assert again.changes == ()
        return first


def test_a_published_configuration_is_brought_to_the_contract_on_the_simulated_switch() -> None:
    switch = Simulated(GAUDI.format(headroom=64000))
    switch.converge(leaf(asic=ROOM))
    lines = switch.text.splitlines()
    assert "   ip address 10.0.0.1/30" in lines and "   speed 400g-4" in lines
    assert lines.count("   error-correction encoding reed-solomon") == 1
    assert "   mtu 9198" in lines[lines.index("interface Ethernet2/1") :], "default is 9214"
    for gone in ("qos rewrite dscp", "priority-flow-control all off"):
        assert gone not in lines
    assert "segments" not in switch.text


def test_an_mtu_from_interface_defaults_is_no_difference() -> None:
    switch = Simulated("interface defaults\n   mtu 9214\n")
    switch.converge(leaf(OTHER))
    assert leaf(OTHER).fabric.mtu_ip == 9214 and "   mtu 9214\n" in switch.text
    assert switch.text.count("mtu 9214") == 1
    switch.converge(leaf())
    assert switch.text.count("   mtu 9198\n") == 2
    switch.converge(leaf(OTHER))


@pytest.mark.parametrize("word", ["tx-queue", "uc-tx-queue"])
def test_each_word_for_a_queue_is_taken_by_the_simulated_switch(word: str) -> None:
    switch = Simulated(queue=word)
    switch.type([f"qos map traffic-class 3 to {word} 1"])
    assert f"qos map traffic-class 3 to {word} 1" in switch.converge(leaf()).before
    assert f"   {word} 3" in switch.text.splitlines()


def test_the_operator_s_other_lines_of_the_buffers_come_with_the_headroom() -> None:
    switch = Simulated(GAUDI.format(headroom=64000))
    first = switch.converge(leaf(asic=ROOM))
    assert f"{BUFFERS} BAREMETAL_MPI_ROCE ingress threshold" in [one.path for one in first.changes]
    text = switch.text
    assert f"{BUFFERS} PFC_Profile\n   ingress threshold 1\n   ingress headroom 64000\n" in text
    ours = (
        f"{BUFFERS} BAREMETAL_MPI_ROCE\n   ingress threshold 1\n   ingress headroom bytes 480000\n"
    )
    assert ours in text and f"{BUFFERS} BAREMETAL_MPI_ROCE apply\n" in text
    switch.type([f"{BUFFERS} BAREMETAL_MPI_ROCE", "ingress threshold 1/8"])
    switch.converge(leaf(asic=ROOM))
    assert "   ingress threshold 1/8\n" in switch.text
    gone = switch.converge(leaf())
    assert f"no {BUFFERS} BAREMETAL_MPI_ROCE" in gone.steps
    assert f"{BUFFERS} PFC_Profile\n" in switch.text


@pytest.mark.parametrize("headroom", ["480000", "bytes 480000", "600000"])
def test_an_operator_s_profile_with_the_headroom_stays(headroom: str) -> None:
    switch = Simulated(GAUDI.format(headroom=headroom))
    first = switch.converge(leaf(asic=ROOM))
    assert not any("mmu" in line for line in first.steps)
    report = DRIVER.report(leaf(asic=ROOM), switch.present())
    assert report.ports[0].headroom_bytes == int(headroom.split()[-1])


def test_an_operator_s_profile_in_cells_is_not_compared_with_bytes() -> None:
    switch = Simulated(GAUDI.format(headroom="cells 600000"))
    switch.converge(leaf(asic=ROOM))
    assert f"{BUFFERS} BAREMETAL_MPI_ROCE apply\n" in switch.text


@pytest.mark.parametrize("line", ["ingress headroom 480000", "ingress headroom bytes 480000"])
def test_headroom_is_the_same_with_and_without_its_unit(line: str) -> None:
    switch = Simulated()
    switch.converge(leaf(asic=ROOM))
    switch.type([f"{BUFFERS} BAREMETAL_MPI_ROCE", line])
    wanted = DRIVER.wanted(leaf(asic=ROOM))
    assert line in switch.text
    assert not DRIVER.difference(leaf(asic=ROOM), wanted, switch.present())

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One switch and every fault: the former state is back, or the message says that it is not."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Asic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.session import (
    Interrupted,
    SessionOutcome,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    SwitchError,
    SwitchIntent,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_switch import FakeSwitch, FakeSystem, Fault, Time

INTENT = SwitchIntent("leaf01", "sonic", Asic("none"), qos.fabric_intent(qos.read_contract({})), ())
FORMER = {"Ethernet0": "default", "Ethernet8": "default", "ecn": "off", "hostname": "theirs"}
WANTED = {"Ethernet0": "ours", "Ethernet8": "ours", "ecn": "on"}
AFTER = {**FORMER, **WANTED}
CONFIRM_S = 300


# Faults at a step.


def refused(switch: FakeSwitch) -> None:
    """Refuse the change, with nothing in force."""
    raise SwitchError("10.0.0.1: it says no")


def refused_disarmed(switch: FakeSwitch) -> None:
    switch.undo_at = None
    raise SwitchError("10.0.0.1: it says no")


def partly(switch: FakeSwitch) -> None:
    """Fail with half of the change in force; the timer undoes it."""
    switch.state["Ethernet0"] = "ours"
    raise SwitchError("10.0.0.1: Ethernet8: disk full")


def partly_for_good(switch: FakeSwitch) -> None:
    switch.undo_at = None
    partly(switch)


def cut(switch: FakeSwitch) -> None:
    """Act, and lose the answer and the connection for a while."""
    switch.unreachable_until = switch.time.now_s + 60
    raise SwitchError("10.0.0.1: connection lost")


def cut_for_good(switch: FakeSwitch) -> None:
    switch.unreachable_until = float("inf")
    raise SwitchError("10.0.0.1: connection lost")


def applied_then_cut(switch: FakeSwitch) -> None:
    switch.state.update(WANTED)
    cut(switch)


def kept_then_cut(switch: FakeSwitch) -> None:
    """Keep the change, and lose the answer."""
    switch.undo_at = None
    cut(switch)


def slow(switch: FakeSwitch) -> None:
    switch.time.now_s += CONFIRM_S - 1


def expired(switch: FakeSwitch) -> None:
    switch.time.now_s += CONFIRM_S + 1


def expired_and_refused(switch: FakeSwitch) -> None:
    expired(switch)
    switch.tick()
    raise SwitchError("10.0.0.1: there is nothing to confirm")


def wrong(switch: FakeSwitch) -> None:
    """Apply a value other than the accepted one."""
    switch.state["ecn"] = "half"


def never_undone(switch: FakeSwitch) -> None:
    switch.undo_at = None
    raise SwitchError("10.0.0.1: rollback refused")


def undone_but_not_really(switch: FakeSwitch) -> None:
    switch.former = None


def bug(switch: FakeSwitch) -> None:
    raise KeyError("unexpected")


def interrupt(switch: FakeSwitch) -> None:
    raise Interrupted


def fake(**faults: list[Optional[Fault]]) -> FakeSwitch:
    return FakeSwitch(dict(FORMER), Time(), dict(faults))


def run(
    switch: FakeSwitch, *, output: Optional[list[str]] = None, **options: Any
) -> SessionOutcome:
    lines: list[str] = [] if output is None else output
    system = FakeSystem(options.pop("wanted", WANTED), options.pop("findings", ()))
    return session.run(
        system,
        switch,
        INTENT,
        apply=options.pop("apply", True),
        confirm_s=CONFIRM_S,
        display=lines.append,
        clock=switch.time.clock,
        **options,
    )


def settle(switch: FakeSwitch) -> dict[str, Any]:
    switch.time.now_s += 10 * CONFIRM_S
    switch.tick()
    return switch.state


def test_a_change_is_read_back_over_a_new_connection_and_then_kept() -> None:
    switch = fake()
    outcome = run(switch)
    assert switch.calls == ["read", "apply", "read", "confirm"]
    assert settle(switch) == AFTER
    assert outcome.changed and not outcome.error and outcome.restored is None
    assert len(outcome.difference.changes) == 3 and not outcome.remaining


def test_a_switch_that_has_it_all_is_only_read() -> None:
    switch = FakeSwitch(dict(AFTER), Time())
    outcome = run(switch)
    assert switch.calls == ["read"]
    assert outcome == SessionOutcome(outcome.difference, outcome.difference, outcome.report)
    assert not outcome.difference


def test_links_that_went_down_are_up_again_before_a_change_is_kept() -> None:
    switch = fake()
    switch.links_take_s = session.LINKS_S - 1
    outcome = run(switch)
    assert not outcome.error and switch.state == AFTER
    assert [port.up for port in outcome.report.ports] == [True, False]
    assert switch.calls.count("confirm") == 1 and switch.calls[-1] == "confirm"


def test_links_that_stay_down_undo_the_change_that_took_them_down() -> None:
    switch = fake()
    switch.links_take_s = 10 * session.LINKS_S
    outcome = run(switch)
    assert "stay down: Ethernet0." in outcome.error
    assert outcome.restored is True and switch.state == FORMER
    assert "confirm" not in switch.calls


def test_one_dark_link_of_many_is_reported_and_kept() -> None:
    switch, output = fake(), []
    switch.further_links = 9
    switch.links_take_s = 10 * session.LINKS_S
    wanted = {f"Ethernet{port}": "ours" for port in range(0, 100, 8)}
    outcome = run(switch, output=output, wanted=wanted)
    assert not outcome.error and switch.calls[-1] == "confirm"
    assert len(output) == 1 and output[0].startswith("leaf01: Ethernet0 ")


def test_a_plan_touches_nothing_and_says_the_cost() -> None:
    switch = fake()
    outcome = run(switch, apply=False)
    assert switch.calls == ["read"] and switch.state == FORMER
    assert not outcome.changed and not outcome.error
    assert outcome.remaining.impact.ports_down == ("Ethernet0", "Ethernet8")


def test_what_no_switch_can_keep_is_told_before_one_is_spoken_to() -> None:
    switch = fake()
    outcome = run(switch, findings=("one thing", "another"))
    assert outcome.error == "one thing.\nanother." and switch.calls == []


def test_a_switch_that_cannot_be_read_is_not_touched() -> None:
    switch = fake(read=[cut])
    outcome = run(switch)
    assert outcome.error == "leaf01 cannot be planned: 10.0.0.1: connection lost."
    assert switch.calls == ["read"] and outcome.difference is None and not outcome.changed


@pytest.mark.parametrize("confirm_s", [-5, 0, 9, 86401])
@pytest.mark.parametrize("apply", [False, True])
def test_no_timer_and_one_that_is_no_use_are_refused(confirm_s: int, apply: bool) -> None:
    switch = fake()
    outcome = session.run(FakeSystem(WANTED), switch, INTENT, apply=apply, confirm_s=confirm_s)
    assert f"switch_qos_confirm_s is {confirm_s}" in outcome.error
    assert switch.calls == [] and switch.state == FORMER


@pytest.mark.parametrize("step", ["wanted", "difference", "report"])
def test_an_error_of_ours_is_told_and_not_raised(step: str, monkeypatch: Any) -> None:
    def broken(*_words: Any) -> None:
        raise AttributeError("'list' object has no attribute 'items'")

    monkeypatch.setattr(FakeSystem, step, broken)
    switch = fake()
    outcome = run(switch)
    assert "leaf01 cannot be planned" in outcome.error and "AttributeErr" in outcome.error
    assert switch.state == FORMER and not outcome.changed and "apply" not in switch.calls


@pytest.mark.parametrize("fault", [cut_for_good, partly_for_good])
def test_the_run_waits_as_long_as_undoing_may_take(fault: Fault) -> None:
    """A rollback may take longer than an hour."""
    switch = fake(apply=[fault])
    switch.undone_within_s = 20000
    began = switch.time.now_s
    outcome = run(switch)
    waited = switch.time.now_s - began
    assert 20000 <= waited <= 20000 + session.MARGIN_S + 10
    assert "By now the" in outcome.error


def test_the_run_waits_for_a_slow_undo() -> None:
    """The timer expires after 300 s, and undoing takes 20 minutes more."""

    def begun(switch: FakeSwitch) -> None:
        switch.undo_at = switch.time.now_s + 1200
        raise SwitchError("the connection was lost")

    switch = fake(read=[None, wrong], rollback=[begun])
    switch.undone_within_s = 1500
    outcome = run(switch)
    assert outcome.restored is True and switch.state == FORMER


@pytest.mark.parametrize(
    ("wanted", "allowed", "refusal"),
    [
        (WANTED, "bounce", ""),
        (WANTED, "loss", "2 port(s) would go down and come up again, and switch_qos_allowed_"),
        (WANTED, "none", "Allow bounce"),
        ({"pfc": "on"}, "loss", ""),
        ({"pfc": "on"}, "none", "packets can be lost, and switch_qos_allowed_impact is none"),
        ({"ecn": "on"}, "none", ""),
    ],
)
@pytest.mark.parametrize("apply", [False, True])
def test_a_greater_cost_than_allowed_is_refused(
    wanted: dict[str, Any], allowed: str, refusal: str, apply: bool
) -> None:
    switch = fake()
    outcome = run(switch, wanted=wanted, allowed=allowed, apply=apply)
    if refusal:
        assert refusal in outcome.error and switch.calls == ["read"]
        assert outcome.difference  # so that the operator can see the planned change
    else:
        assert not outcome.error
        assert ("apply" in switch.calls) == apply


FAULTS: dict[str, dict[str, list[Optional[Fault]]]] = {
    "refused": {"apply": [refused]},
    "refused, timer gone": {"apply": [refused_disarmed]},
    "partly applied": {"apply": [partly]},
    "applied, connection cut": {"apply": [applied_then_cut]},
    "read-back cut": {"read": [None, cut]},
    "read-back cut, rollback too": {"read": [None, cut], "rollback": [cut]},
    "read-back differs": {"apply": [None], "read": [None, wrong]},
    "too slow to be kept": {"read": [None, slow], "confirm": [expired_and_refused]},
    "timer ran out": {"read": [None, expired]},
    "confirm refused": {"confirm": [refused]},
    "confirm lost": {"confirm": [cut]},
    "kept, answer lost": {"confirm": [kept_then_cut]},
    "rollback refused, timer undoes": {"read": [None, wrong], "rollback": [refused]},
    "a bug in the read-back": {"read": [None, bug]},
    "a bug in apply": {"apply": [bug]},
    "a bug in confirm": {"confirm": [bug]},
    "a bug in rollback": {"confirm": [refused], "rollback": [bug]},
}


@pytest.mark.parametrize("name", FAULTS)
def test_after_a_fault_the_former_state_is_back(name: str) -> None:
    switch = fake(**{step: list(faults) for step, faults in FAULTS[name].items()})
    outcome = run(switch)
    if name == "kept, answer lost":
        # Not reachable at first, so it cannot be undone either: the message must say so.
        assert switch.state == AFTER and outcome.restored is False
        assert not outcome.remaining.changes
        return
    assert switch.state == FORMER
    assert outcome.restored is True and not outcome.changed
    assert outcome.error.startswith("leaf01: ")
    assert outcome.error.endswith("(read back).")
    assert outcome.remaining.changes == outcome.difference.changes


def test_a_read_slower_than_the_timer_undoes_the_change() -> None:
    switch = fake(read=[None, expired])
    outcome = run(switch)
    assert "confirm" not in switch.calls
    assert "raise switch_qos_confirm_s" in outcome.error and switch.state == FORMER


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"apply": [partly_for_good]}, ["a part of the change is in force", "Ethernet8: wanted"]),
        (
            {"read": [None, wrong], "rollback": [never_undone]},
            ["wanted on, found half", "rollback refused", "Still to change: ecn"],
        ),
        (
            {"confirm": [refused], "rollback": [never_undone]},
            ["the whole change is in force", "save the configuration", "rollback refused"],
        ),
        (
            {"confirm": [refused], "rollback": [undone_but_not_really]},
            ["the whole change is in force"],
        ),
    ],
)
def test_what_cannot_be_undone_is_said_loudly_with_what_is_in_force(
    faults: dict[str, list[Optional[Fault]]], words: list[str]
) -> None:
    switch = fake(**faults)
    outcome = run(switch)
    assert settle(switch) != FORMER
    assert outcome.restored is False and outcome.changed
    assert "IS NOT BACK" in outcome.error
    for word in words:
        assert word in outcome.error


def test_the_run_waits_for_the_timer_of_a_lost_switch() -> None:
    switch, output = fake(read=[None, cut_for_good]), []
    began = switch.time.now_s
    outcome = run(switch, output=output)
    waited = switch.time.now_s - began
    assert CONFIRM_S + session.MARGIN_S <= waited < CONFIRM_S + session.MARGIN_S + 10
    assert "IS NOT KNOWN" in outcome.error and "over its console" in outcome.error
    assert outcome.restored is False and outcome.remaining is None
    assert len(output) == 1 and "reading again" in output[0]
    assert settle(switch) == FORMER


@pytest.mark.parametrize("step", ["read", "confirm"])
def test_an_interrupted_run_undoes_what_is_in_force(step: str) -> None:
    faults = {"read": [None, interrupt]} if step == "read" else {"confirm": [interrupt]}
    switch, output = fake(**faults), []
    with pytest.raises(Interrupted):
        run(switch, output=output)
    assert switch.state == FORMER and "rollback" in switch.calls
    assert len(output) == 1
    assert "interrupted" in output[0] and output[0].endswith("(read back).")


@pytest.mark.parametrize("within_s", [0, 5000])
def test_interrupted_while_applying_it_is_left_to_the_timer_and_said(within_s: int) -> None:
    switch, output = fake(apply=[interrupt]), []
    switch.undone_within_s = within_s
    with pytest.raises(Interrupted):
        run(switch, output=output)
    assert f"within {max(within_s, CONFIRM_S)} s" in output[0]
    assert settle(switch) == FORMER


ANY: list[Optional[Fault]] = [
    *(None, None, refused, partly, partly_for_good, cut, cut_for_good, kept_then_cut, slow),
    *(expired, wrong, never_undone, undone_but_not_really, bug, interrupt),
]


@given(
    first=st.lists(st.sampled_from(ANY), max_size=2),
    apply=st.lists(st.sampled_from(ANY), max_size=1),
    later=st.lists(st.sampled_from(ANY), max_size=4),
    confirm=st.lists(st.sampled_from(ANY), max_size=1),
    rollback=st.lists(st.sampled_from(ANY), max_size=2),
)
def test_whatever_goes_wrong_where_the_verdict_is_true(
    first: list[Optional[Fault]],
    apply: list[Optional[Fault]],
    later: list[Optional[Fault]],
    confirm: list[Optional[Fault]],
    rollback: list[Optional[Fault]],
) -> None:
    reads = list(itertools.chain([fault for fault in first if fault in (None, slow)], later))
    switch = fake(read=[None, *reads], apply=apply, confirm=confirm, rollback=rollback)
    began = switch.time.now_s
    try:
        outcome = run(switch)
    except Interrupted:
        return
    spent = switch.time.now_s - began
    calls = len(switch.calls)
    assert spent <= session.LINKS_S + CONFIRM_S + session.MARGIN_S + (CONFIRM_S + 2) * calls
    if not outcome.error:
        assert outcome.changed and switch.calls[-1] == "confirm"
        assert not outcome.remaining
    elif outcome.restored:
        assert settle(switch) == FORMER, "it stays as it was read back"
        assert outcome.error.endswith("(read back).")
    else:
        assert outcome.changed
        assert "NOT" in outcome.error

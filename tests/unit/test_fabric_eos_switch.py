# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Changing an EOS switch: after any fault it has the whole change or none of it."""

from __future__ import annotations

import copy
from typing import Any, Optional

import httpx
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import (
    DRIVER,
    SAVE,
    EosSwitch,
)

from tests.unit.eos_intents import leaf
from tests.unit.eos_switch import FakeEos, empty, typed

LOGIN = system.SwitchLogin("192.0.2.1", user="ops", password="horse-staple", timeout_s=1)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def switch(fake: FakeEos, when: Optional[Time] = None) -> EosSwitch:
    when = when or Time()
    return EosSwitch(LOGIN, fake.transport, sleep=when.sleep, clock=when.clock)


def difference(one: Any) -> system.Difference:
    intent = leaf()
    return DRIVER.difference(intent, DRIVER.wanted(intent), one.read())


@pytest.fixture
def fake() -> FakeEos:
    operators = ["hostname leaf01", "router bgp 65000", "neighbor 10.0.0.0 remote-as 65001"]
    return FakeEos(typed(empty(), operators))


@pytest.mark.parametrize("old", [False, True], ids=["4.32 and later", "before 4.32"])
def test_a_change_is_applied_proved_and_saved(fake: FakeEos, old: bool) -> None:
    fake.old = old
    one = switch(fake)
    applied = one.apply(difference(one), 3605)
    assert fake.typed("commit timer") == ["commit timer 01:00:05"]
    assert fake.startup != fake.running
    assert not difference(one)
    applied.confirm()
    assert fake.timer is None
    assert fake.startup == fake.running
    assert not difference(switch(fake))


@pytest.mark.parametrize("answer", [{}, {"result": None}, {"result": [{}]}])
def test_an_answer_of_another_shape_aborts_the_session(
    fake: FakeEos, answer: dict[str, Any]
) -> None:
    def transport(request: httpx.Request) -> httpx.Response:
        output = fake._answer(request)
        return httpx.Response(200, json=answer) if b"commit timer" in request.content else output

    before = copy.deepcopy(fake.running)
    planned = difference(switch(fake))
    with pytest.raises(system.SwitchError, match="Nothing of it"):
        EosSwitch(LOGIN, httpx.MockTransport(transport)).apply(planned, 300)
    assert fake.running == before
    assert fake.timer is None


QUEUES = "show running-config all | include tx-queue"


@pytest.mark.parametrize("target", ["tx-queue", "uc-tx-queue"])
def test_the_map_of_classes_can_have_another_word_than_the_queues(
    fake: FakeEos, target: str
) -> None:
    """Guides for EOS 4.36 have `uc-tx-queue 3` below a port, and `tx-queue 3` in the map."""
    lines = [f"qos map traffic-class {number} to {target} {number}\n" for number in range(7)]
    lines += [f"   uc-tx-queue {number}\n" for number in range(8)]
    fake.lies[QUEUES] = {"output": "".join(lines)}
    fake.running = typed(fake.running, ["interface Ethernet2/1", "uc-tx-queue 3", "no priority"])
    found = switch(fake).read()
    assert (found.queue, found.mapped) == ("uc-tx-queue", target)
    steps = DRIVER.difference(leaf(), DRIVER.wanted(leaf()), found).steps
    assert "uc-tx-queue 3" in steps and f"qos map traffic-class 3 to {target} 3" in steps
    fake.running = typed(fake.running, list(steps))
    fake.calls.clear()
    switch(fake).read()
    assert not any(QUEUES in call for call in fake.calls), "long, and of no use any more"


@pytest.mark.parametrize("word", ["tx-queue", "uc-tx-queue", ""])
def test_how_a_switch_calls_its_queues_is_asked_from_it(fake: FakeEos, word: str) -> None:
    fake.queue = word
    assert switch(fake).read().queue == word


def test_rollback_brings_the_former_state_and_may_be_asked_twice(fake: FakeEos) -> None:
    before = copy.deepcopy(fake.running)
    one = switch(fake)
    first = difference(one)
    applied = one.apply(first, 300)
    applied.rollback()
    applied.rollback()
    assert fake.running == fake.startup == before
    assert difference(one).changes == first.changes


def test_an_abort_that_leaves_the_change_in_force_is_no_rollback(fake: FakeEos) -> None:
    one = switch(fake)
    applied = one.apply(difference(one), 300)
    fake.faults = {"ignores abort"}
    with pytest.raises(system.SwitchError, match=r"session baremetal-\w+ was aborted"):
        applied.rollback()
    assert fake.timer is not None


def test_a_failed_session_that_cannot_be_aborted_is_not_called_gone(fake: FakeEos) -> None:
    fake.faults = {"lost after commit timer", "ignores abort"}
    one = switch(fake)
    with pytest.raises(system.SwitchError, match="Whether anything") as at:
        one.apply(difference(one), 300)
    assert "was aborted" in str(at.value)


STATUS, SESSIONS = "show interfaces status", "show configuration sessions detail"
LLDP = "show lldp neighbors"


def test_a_refused_line_leaves_nothing_and_is_told_in_eos_words(fake: FakeEos) -> None:
    before = copy.deepcopy(fake.running)
    fake.faults = {"refuses service-profile"}
    one = switch(fake)
    with pytest.raises(system.SwitchError) as error:
        one.apply(difference(one), 300)
    text = str(error.value)
    assert "192.0.2.1 port 443: EOS refuses `service-profile BAREMETAL_MPI_ROCE`" in text
    assert "Invalid input (at token 0: 'service-profile')" in text
    assert "Nothing of it" in text
    assert fake.running == before
    assert "pending" not in fake.sessions.values()


def test_a_switch_that_stays_away_is_asked_for_a_while(fake: FakeEos) -> None:
    when = Time()
    one = switch(fake, when)
    applied = one.apply(difference(one), 300)
    fake.faults = {"dead"}
    with pytest.raises(system.SwitchError, match=r"timed out|no connection"):
        applied.rollback()
    assert 60 < when.now < 200


def test_a_full_disk_leaves_the_change_in_force_unsaved(fake: FakeEos) -> None:
    one = switch(fake)
    startup = copy.deepcopy(fake.startup)
    applied = one.apply(difference(one), 300)
    fake.faults = {"full"}
    with pytest.raises(system.SwitchError, match=r"did not save .*No space left.*flash"):
        applied.confirm()
    applied.rollback()
    assert fake.timer is None and fake.startup == startup
    assert [change.path for change in difference(switch(fake)).changes] == ["startup-config"]


def test_a_confirmation_whose_answer_is_lost_is_asked_for_again(fake: FakeEos) -> None:
    one = switch(fake)
    applied = one.apply(difference(one), 300)
    fake.faults = {"lost after confirm"}
    applied.confirm()
    assert fake.timer is None and fake.startup == fake.running
    assert not difference(switch(fake))


def test_a_confirmation_that_does_not_stick_is_an_error(fake: FakeEos) -> None:
    one = switch(fake)
    applied = one.apply(difference(one), 300)
    fake.faults = {"confirm lost"}
    with pytest.raises(system.SwitchError, match="still waits"):
        applied.confirm()
    applied.rollback()
    assert fake.timer is None


def test_what_its_timer_has_undone_is_not_confirmed(fake: FakeEos) -> None:
    before = copy.deepcopy(fake.running)
    one = switch(fake)
    applied = one.apply(difference(one), 300)
    fake.timer_ends()
    with pytest.raises(system.SwitchError, match="EOS has undone it"):
        applied.confirm()
    assert not fake.typed(SAVE)
    applied.rollback()
    assert fake.running == fake.startup == before


def test_a_timer_that_ends_at_the_confirmation_is_seen(fake: FakeEos) -> None:
    """For any answer of EOS to a commit of a finished session."""
    before = copy.deepcopy(fake.running)
    one = switch(fake)
    applied = one.apply(difference(one), 300)
    fake.faults = {"timer ends at confirm"}
    with pytest.raises(system.SwitchError, match="EOS has undone it"):
        applied.confirm()
    assert not fake.typed(SAVE) and fake.running == before


def test_an_earlier_run_whose_timer_still_runs_is_no_success(fake: FakeEos) -> None:
    killed = switch(fake)
    killed.apply(difference(killed), 300)
    with pytest.raises(system.SwitchError, match=r"earlier run .*baremetal-.*run again"):
        switch(fake).read()
    assert not difference(killed)


def test_abandoned_sessions_of_ours_are_aborted_and_no_others(fake: FakeEos) -> None:
    fake.sessions = {"baremetal-dead": "pending", "ops": "pending"}
    one = switch(fake)
    one.apply(difference(one), 300)
    assert fake.sessions["baremetal-dead"] == "aborted"
    assert fake.sessions["ops"] == "pending"


def test_somebody_elses_timer_is_respected(fake: FakeEos) -> None:
    one = switch(fake)
    first = difference(one)
    fake.timer = ("ops", fake.running)
    with pytest.raises(system.SwitchError, match="session ops"):
        one.apply(first, 300)
    assert fake.timer is not None


def test_what_is_in_force_is_only_saved(fake: FakeEos) -> None:
    one = switch(fake)
    one.apply(difference(one), 300).confirm()
    fake.startup = empty()
    fake.calls.clear()
    unsaved = difference(one)
    applied = one.apply(unsaved, 300)
    assert fake.startup == fake.running
    assert fake.typed("configure") == []
    assert not difference(one)
    applied.confirm()
    applied.rollback()
    assert fake.startup == fake.running


def test_a_switch_without_lldp_is_read_all_the_same(fake: FakeEos) -> None:
    fake.faults = {"no lldp"}
    assert switch(fake).read().neighbours is None


def test_a_user_without_privileges_is_told_what_is_missing(fake: FakeEos) -> None:
    fake.faults = {"no enable"}
    with pytest.raises(system.SwitchError, match=r"refuses `enable`: .*privilege 15"):
        switch(fake).read()

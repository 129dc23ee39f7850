# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Revisions of an NVUE switch: applied under a timer, confirmed, undone, and every way to fail."""

from __future__ import annotations

import copy
import traceback
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.switch import (
    DRIVER,
    NvueApplied,
    NvueSwitch,
)

from tests.unit.nvue_switch import PASSWORD, FakeNvue, intent, merged

CONFIRM_S = 300
ONE = intent()
WANTED = DRIVER.wanted(ONE)
OPERATORS: dict[str, Any] = {"interface": {"swp1": {"description": "to node01"}}}


@pytest.fixture
def fake() -> FakeNvue:
    return FakeNvue(config=OPERATORS)


def planned(switch: NvueSwitch) -> system.Difference:
    return DRIVER.difference(ONE, WANTED, switch.read())


def applied(fake: FakeNvue) -> tuple[NvueSwitch, system.Applied]:
    switch = fake.switch()
    return switch, switch.apply(planned(switch), CONFIRM_S)


def failing(fake: FakeNvue) -> str:
    switch = fake.switch()
    difference = planned(switch)
    with pytest.raises(system.SwitchError) as caught:
        switch.apply(difference, CONFIRM_S)
    whole = "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in whole and "Authorization" not in whole
    return str(caught.value)


def bodies(fake: FakeNvue, path: str) -> list[Any]:
    return [body for method, asked, body in fake.asked if method == "PATCH" and asked == path]


def test_a_change_is_applied_read_back_and_kept(fake: FakeNvue) -> None:
    switch, change = applied(fake)
    assert fake.states["2"] == "confirm" and fake.startup == OPERATORS
    assert bodies(fake, "/nvue_v1/revision/2") == [
        {
            "state": "apply",
            "auto-prompt": {"ays": "ays_yes"},
            "state-controls": {"confirm": CONFIRM_S},
        }
    ]
    assert not planned(switch), "the timer runs"
    change.confirm()
    assert fake.states["2"] == "applied_and_saved" and fake.startup == fake.config
    assert merged(fake.config, OPERATORS) == fake.config


def test_it_is_saved_where_the_switch_does_not_save_by_itself(fake: FakeNvue) -> None:
    fake.auto_save = False
    _switch, change = applied(fake)
    assert fake.startup == OPERATORS
    change.confirm()
    assert fake.startup == fake.config != OPERATORS


def killed_before_it_was_saved(fake: FakeNvue) -> NvueSwitch:
    """A change that was confirmed but not saved, because the run was killed."""
    fake.auto_save = False
    _switch, change = applied(fake)
    change._keep()  # type: ignore[attr-defined]
    assert fake.states["2"] == "applied" and fake.startup == OPERATORS
    return fake.switch()


def test_what_is_in_force_and_not_saved_differs_until_it_is_saved(fake: FakeNvue) -> None:
    """It has no impact, and verify reports it."""
    switch = killed_before_it_was_saved(fake)
    difference = planned(switch)
    assert [(c.path, c.found, c.wanted) for c in difference.changes] == [
        ("startup", "not saved", "as applied")
    ]
    assert difference.impact.level == "none" and not difference.steps
    assert "nv set qos roce mode lossless\n" in difference.after and difference.before == ""
    made = list(fake.made)
    change = switch.apply(difference, CONFIRM_S)
    assert fake.startup == fake.config and fake.made == made
    assert not planned(switch)
    change.confirm()
    change.rollback()
    assert fake.startup == fake.config and not planned(fake.switch())


def test_what_cannot_be_saved_is_an_error_and_stays_a_difference(fake: FakeNvue) -> None:
    switch = killed_before_it_was_saved(fake)
    fake.refuses = {"PATCH /nvue_v1/revision/applied": 500}
    assert "HTTP 500: not today" in failing(fake)
    assert planned(switch)


def test_what_an_operator_did_not_save_is_nothing_that_differs(fake: FakeNvue) -> None:
    applied(fake)[1].confirm()
    fake.startup = merged(fake.config, {"interface": {"swp1": {"description": "another"}}})
    assert not planned(fake.switch())


def test_a_release_that_does_not_show_what_is_saved(fake: FakeNvue) -> None:
    switch = killed_before_it_was_saved(fake)
    fake.shows_startup = False
    assert not planned(switch)


def test_somebody_else_s_change_that_waits_is_respected_between_plan_and_apply(
    fake: FakeNvue,
) -> None:
    """Saving, which a different message would suggest, would make an unverified change
    permanent.
    """
    late = fake.switch()
    difference = planned(late)
    applied(fake)
    with pytest.raises(system.SwitchError, match="revision 2 waits") as caught:
        late.apply(difference, CONFIRM_S)
    assert "nv config save" not in str(caught.value)
    assert fake.made == ["/nvue_v1/revision"] and fake.states["2"] == "confirm"


def test_rollback_while_the_timer_runs(fake: FakeNvue) -> None:
    switch, change = applied(fake)
    change.rollback()
    assert fake.config == OPERATORS == fake.startup and fake.states["2"] == "confirm_fail"
    change.rollback()
    assert fake.config == OPERATORS
    assert planned(switch)


@pytest.mark.parametrize("auto_save", [True, False])
def test_what_was_saved_goes_back_too(fake: FakeNvue, auto_save: bool) -> None:
    fake.auto_save = auto_save
    _switch, change = applied(fake)
    change.confirm()
    change.rollback()
    assert fake.startup == OPERATORS


def test_a_later_revision_of_another_user_is_not_undone(fake: FakeNvue) -> None:
    _switch, change = applied(fake)
    change.confirm()
    theirs = merged(fake.config, {"interface": {"eth0": {"description": "theirs"}}})
    fake.configs["3"], fake.states["3"], fake.applied = theirs, "applied_and_saved", "3"
    with pytest.raises(system.SwitchError, match=r"revision 3 was"):
        change.rollback()
    assert fake.config == theirs


def test_rollback_after_the_timer_is_done_already(fake: FakeNvue) -> None:
    _switch, change = applied(fake)
    fake.time_out()
    change.rollback()
    assert fake.config == OPERATORS and fake.made == ["/nvue_v1/revision"]


def test_a_change_that_timed_out_is_not_called_kept(fake: FakeNvue) -> None:
    _switch, change = applied(fake)
    fake.time_out()
    with pytest.raises(system.SwitchError, match=r"'confirm_fail' and not kept"):
        change.confirm()


@pytest.mark.parametrize("state", ["invalid", "apply_fail", "ready_error", "ays_fail"])
def test_a_rejected_apply_says_why_and_leaves_nothing(fake: FakeNvue, state: str) -> None:
    fake.ends = state
    message = failing(fake)
    assert f"revision 2 was not applied ({state}): the hardware says no" in message
    assert "192.0.2.7" in message and fake.config == OPERATORS
    if state == "invalid":
        assert "Nothing of it" in message and "2" not in fake.states
    else:
        assert "Revision 1" in message


def test_a_question_on_the_way_is_answered(fake: FakeNvue) -> None:
    fake.ends = "ays"
    applied(fake)
    assert fake.states["2"] == "confirm"


@pytest.mark.parametrize("asks_before", [False, True])
@pytest.mark.parametrize("kept", [True, False])
def test_ays_after_the_change_waits_for_the_verification(
    fake: FakeNvue, kept: bool, asks_before: bool
) -> None:
    """NVIDIA's client treats `ays` as a change that waits for confirmation."""
    fake.waits, fake.ends = "ays", "ays" if asks_before else ""
    switch, change = applied(fake)
    assert fake.states["2"] == "ays", "the switch undoes it"
    assert not planned(switch), "reading is possible"
    if kept:
        change.confirm()
        assert fake.states["2"] == "applied_and_saved" and fake.config != OPERATORS
    else:
        change.rollback()
        assert fake.states["2"] == "confirm_fail" and fake.config == OPERATORS


@pytest.mark.parametrize(
    "refused", ["POST /nvue_v1/revision", "PATCH /nvue_v1/", "PATCH /nvue_v1/revision/2"]
)
def test_a_refusal_on_the_way_leaves_nothing(fake: FakeNvue, refused: str) -> None:
    fake.refuses = {refused: 507}
    message = failing(fake)
    assert f"{refused}: HTTP 507: not today" in message
    assert fake.config == OPERATORS and list(fake.states) == ["1"]


def test_a_release_without_a_cable_length_beside_roce_gets_the_rest(fake: FakeNvue) -> None:
    fake.refuses = {"PATCH /nvue_v1/": 400}
    switch, _change = applied(fake)
    (body,) = bodies(fake, "/nvue_v1/")
    assert "cable-length" not in body["qos"]["roce"] and body["qos"]["roce"]["mode"] == "lossless"
    assert body["qos"]["pfc"]["default-global"]["cable-length"] == 100
    assert not planned(switch)


def test_an_apply_whose_answer_is_lost_is_looked_for(fake: FakeNvue) -> None:
    fake.silent = ["PATCH /nvue_v1/revision/2"]
    applied(fake)
    assert fake.states["2"] == "confirm"


@pytest.mark.parametrize("lost", ["silent", "deaf"])
def test_a_confirmation_that_is_lost_is_repeated(fake: FakeNvue, lost: str) -> None:
    _switch, change = applied(fake)
    setattr(fake, lost, ["PATCH /nvue_v1/revision/2"])
    change.confirm()
    assert fake.states["2"] == "applied_and_saved"


def test_a_release_that_confirms_in_other_words(fake: FakeNvue) -> None:
    _switch, change = applied(fake)
    fake.refuses = {"PATCH /nvue_v1/revision/2": 400}
    change.confirm()
    assert fake.states["2"] == "applied_and_saved"
    assert bodies(fake, "/nvue_v1/revision/2")[-1] == {
        "state": "apply",
        "auto-prompt": {"ays": "ays_yes", "confirm": "confirm_yes"},
    }


def test_an_apply_that_never_ends_is_given_up(fake: FakeNvue) -> None:
    fake.slow = 10**9
    message = failing(fake)
    assert "state 'apply' after 480 s" in message
    assert len(fake.asked) < 150, "with growing pauses"


def test_a_switch_that_comes_back_after_its_timer(fake: FakeNvue) -> None:
    fake.ends = "confirm_fail"
    message = failing(fake)
    assert "for the 300 s" in message and "switch_qos_confirm_s" in message
    assert fake.config == OPERATORS


def test_a_waiting_change_of_another_run_is_refused(fake: FakeNvue) -> None:
    """Killed between apply and confirm: the change is in force until the timer expires."""
    switch, _change = applied(fake)
    switch.read()
    with pytest.raises(system.SwitchError, match=r"revision 2 .*Run again"):
        fake.switch().read()
    fake.time_out()
    assert planned(fake.switch())


def test_the_revision_to_go_back_to_is_the_one_that_is_applied(fake: FakeNvue) -> None:
    """The highest revision may have been undone."""
    fake.configs["2"], fake.states["2"] = {"qos": {"roce": {"enable": "off"}}}, "applied"
    _switch, change = applied(fake)
    change.confirm()
    change.rollback()
    assert fake.applied == "1" and fake.config == OPERATORS


def test_without_anything_to_go_back_to_nothing_is_begun(fake: FakeNvue) -> None:
    fake.configs["2"], fake.states["2"] = copy.deepcopy(OPERATORS), "pending"
    fake.states["1"] = "inactive"
    fake.startup = {}
    message = failing(fake)
    assert "could not be undone" in message and "nv config save" in message
    assert fake.made == []


@pytest.mark.parametrize(
    ("asked", "status"), [("GET /nvue_v1/interface", 400), ("GET /nvue_v1/qos", 404)]
)
def test_releases_that_know_less_are_read_all_the_same(
    fake: FakeNvue, asked: str, status: int
) -> None:
    """No `include`; no operational `qos`."""
    applied(fake)[1].confirm()
    fake.refuses = {asked: status}
    if status == 404:
        fake.refuses_operational = True
    assert not planned(fake.switch())
    assert fake.refuses == {}


@pytest.mark.parametrize("asked", ["GET /nvue_v1/interface", "GET /nvue_v1/qos"])
def test_what_cannot_be_read_is_no_empty_answer(fake: FakeNvue, asked: str) -> None:
    fake.refuses = {asked: 503}
    fake.refuses_operational = True
    with pytest.raises(system.SwitchError, match="HTTP 503"):
        fake.switch().read()


@pytest.mark.parametrize("asked", ["GET /nvue_v1/ applied", "GET /nvue_v1/interface"])
def test_an_answer_that_is_no_object_is_an_error(fake: FakeNvue, asked: str) -> None:
    fake.lies = {asked: ((), ["swp1"])}
    with pytest.raises(system.SwitchError, match="port 8765: GET"):
        fake.switch().read()


def test_a_revision_name_is_quoted_in_the_remedy(fake: FakeNvue) -> None:
    name = "1; reboot"
    fake.configs[name], fake.states[name], fake.ends = fake.configs["1"], "pending", "invalid"
    with pytest.raises(system.SwitchError, match="nv config apply '1; reboot'"):
        NvueApplied(fake.switch(), "2", name).go_back()

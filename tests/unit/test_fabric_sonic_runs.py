# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Concurrent and interrupted runs on a SONiC switch."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session, system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import (
    switch as driver,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.switch import (
    DRIVER,
    SonicApplied,
    SonicSwitch,
)

from tests.unit.sonic_switch import Config, FakeShell, after, new_switch, present, small

pytestmark = pytest.mark.slow

CONFIRM_S = 300


def plan(switch: SonicSwitch) -> system.Difference:
    intent = small()
    return DRIVER.difference(intent, DRIVER.wanted(intent), switch.read())


def run(shell: FakeShell, *, apply: bool = True, allowed: str = "none") -> session.Outcome:
    return session.run(
        DRIVER, DRIVER.connect(shell), small(), apply=apply, confirm_s=CONFIRM_S, allowed=allowed
    )


@pytest.fixture
def shell(tmp_path: Path) -> FakeShell:
    return FakeShell(tmp_path, new_switch(2))


def save(shell: FakeShell, text: str) -> None:
    (shell.root / "etc/sonic/config_db.json").write_text(text)


def done() -> Config:
    intent, config = small(), new_switch(2)
    return after(config, DRIVER.difference(intent, DRIVER.wanted(intent), present(config)).steps)


def interrupt() -> None:
    raise session.Interrupted


class TestSaved:
    """Killed before saving, or changed by hand: a restart would lose it."""

    @pytest.mark.parametrize("saved", [json.dumps(new_switch(2)), '{"PORT": {', "[]", "{}"])
    def test_an_unsaved_contract_is_found_and_saved(self, shell: FakeShell, saved: str) -> None:
        shell.state = done()
        save(shell, saved)
        found = run(shell, apply=False)
        assert found.remaining is not None and found.remaining
        (change,) = found.remaining.changes
        assert (change.path, change.found) == ("/etc/sonic/config_db.json", "not saved")
        assert found.remaining.impact.level == "none"
        outcome = run(shell)
        assert not outcome.error and outcome.changed and not outcome.remaining
        assert shell.saved == shell.state == done()
        assert not any("apply-patch" in line for line in shell.programs())
        assert not run(shell, apply=False).remaining
        assert (shell.units, shell.checkpoints) == ([], [])
        assert len(list((shell.root / "etc/sonic").iterdir())) == 2

    def test_the_diff_shows_what_a_restart_would_lose(self, shell: FakeShell) -> None:
        saved = done()
        saved["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] = "3,4"
        shell.state = done()
        save(shell, json.dumps(saved))
        found = plan(DRIVER.connect(shell))
        assert found.before == "PORT_QOS_MAP|Ethernet0 pfc_enable: 3,4\n"
        assert found.after == "PORT_QOS_MAP|Ethernet0 pfc_enable: 3\n"

    def test_what_the_operator_did_not_save_is_no_business_of_ours(self, shell: FakeShell) -> None:
        saved = done()
        shell.state = done()
        saved["PORT"]["Ethernet0"]["admin_status"] = "down"
        saved["SCHEDULER"]["scheduler.0"]["weight"] = "15"
        save(shell, json.dumps(saved))
        assert not plan(DRIVER.connect(shell))

    def test_what_cannot_be_saved_is_said_and_found_again(self, shell: FakeShell) -> None:
        shell.state = done()
        shell.fail("save", "No space left on device")
        outcome = run(shell)
        assert "status 76" in outcome.error and "No space left" in outcome.error
        assert shell.saved == new_switch(2)
        assert run(shell, apply=False).remaining
        assert shell.units == []

    def test_a_change_that_is_being_proved_is_not_saved_yet_and_right(
        self, shell: FakeShell
    ) -> None:
        outcome = run(shell, allowed="bounce")
        assert not outcome.error and shell.saved == shell.state == done()
        switch = DRIVER.connect(shell)
        shell.state = new_switch(2)
        switch.apply(plan(switch), CONFIRM_S)
        assert switch.read().unconfirmed and not plan(switch)

    def test_a_saved_copy_of_a_run_that_was_cut_off_goes(self, shell: FakeShell) -> None:
        save(shell, json.dumps(new_switch(2)))
        left = shell.root / "etc/sonic/config_db.json.baremetal-mpi-roce-backup"
        left.write_text("{}")
        run(shell, allowed="bounce")
        assert not left.exists()


class TestTwoControllers:
    @pytest.mark.parametrize("words", ["list-units --all", 'apply-patch "$f.4" &&'])
    def test_the_second_is_refused_wherever_the_first_is(
        self, shell: FakeShell, words: str
    ) -> None:
        """The checkpoint of the first run stays."""
        first, second = DRIVER.connect(shell), DRIVER.connect(shell)
        second.owner = "run of eve on ctl02"
        first.owner = "run of adam on ctl01"
        difference, refused = plan(first), []

        def meanwhile() -> None:
            with pytest.raises(system.SwitchError) as caught:
                second.apply(difference, CONFIRM_S)
            refused.append(str(caught.value))
            with pytest.raises(system.SwitchError) as caught:
                DRIVER.connect(shell).read()
            refused.append(str(caught.value))

        shell.at(words, meanwhile)
        before = shell.state
        applied = first.apply(difference, CONFIRM_S)
        assert len(refused) == 2
        for message in refused:
            assert "run of adam on ctl01" in message and "is changing this switch" in message
        assert len(shell.checkpoints) == len(difference.steps)
        applied.rollback()
        assert shell.state == before

    def test_nothing_to_go_back_to_is_not_called_a_way_back(self, shell: FakeShell) -> None:
        switch = DRIVER.connect(shell)
        difference = plan(switch)

        def lose() -> None:
            for path in (shell.root / "checkpoints").iterdir():
                path.unlink()
            shell.fail("apply-patch", "Failed to apply patch: error")

        shell.at('apply-patch "$f.4" &&', lose)
        with pytest.raises(system.SwitchError) as caught:
            switch.apply(difference, CONFIRM_S)
        assert "not found" in str(caught.value)
        assert "rolled back" not in str(caught.value)


def test_a_controller_lost_when_it_had_saved_leaves_nothing_for_long(shell: FakeShell) -> None:
    """The next change removes its checkpoints."""

    shell.at("; confirm ", interrupt, before=False)
    switch = DRIVER.connect(shell)
    applied = switch.apply(plan(switch), CONFIRM_S)
    with pytest.raises(session.Interrupted):
        applied.confirm()
    assert shell.saved == done()
    assert shell.units == [] and len(shell.checkpoints) == 10
    assert len(list((shell.root / "etc/sonic").iterdir())) == 2
    shell.state = new_switch(2)
    assert not run(shell, allowed="bounce").error
    assert shell.checkpoints == []


class TestInterrupted:
    """Ctrl-C during `apply-patch`, which takes minutes."""

    def test_the_switch_undoes_it_at_once_and_alone(self, shell: FakeShell) -> None:
        before = shell.state

        shell.at('apply-patch "$f.4" &&', interrupt, before=False)
        with pytest.raises(session.Interrupted):
            run(shell, allowed="bounce")
        assert shell.state == shell.saved == before
        assert (shell.units, shell.checkpoints) == ([], [])
        undoing = [line for line in shell.log if "-undoing" in line]
        assert len(undoing) == 1 and undoing[0].startswith("systemd-run ")
        assert "--on-active" not in undoing[0].split("/bin/sh")[0]

    def test_before_its_timer_nothing_is_left(self, shell: FakeShell) -> None:
        shell.at("arm applying", interrupt, before=False)
        with pytest.raises(session.Interrupted):
            run(shell, allowed="bounce")
        assert shell.state == new_switch(2)
        assert (shell.units, shell.checkpoints) == ([], [])

    def test_a_patch_that_is_still_applied_ends_before_it_is_undone(self, shell: FakeShell) -> None:
        switch, before = DRIVER.connect(shell), shell.state
        applied = switch.apply(plan(switch), CONFIRM_S)
        changed = shell.root / "next.4.json"
        (shell.root / "bin/pgrep").write_text(
            f'#!/bin/sh\n[ ! -e "$ROOT/once" ] || {{ mv {changed} "$ROOT/state.json"; exit 1; }}\n'
            'echo "$*" > "$ROOT/once"\n'
        )
        (shell.root / "bin/pgrep").chmod(0o755)
        applied.rollback()
        assert (shell.root / "once").read_text() == "-f [c]onfig apply-patch\n"
        assert not changed.exists() and shell.state == before

    def test_without_a_connection_its_timer_is_left(self, shell: FakeShell) -> None:
        def lose() -> None:
            with contextlib.suppress(system.SwitchError):
                shell.lose()
            raise session.Interrupted

        shell.at('apply-patch "$f.4" &&', lose)
        with pytest.raises(session.Interrupted):
            run(shell, allowed="bounce")
        (unit,) = shell.units
        assert unit.endswith("-applying-next")
        shell.fire(unit)
        assert shell.state == new_switch(2)


def test_going_back_prints_nothing_of_what_others_changed(shell: FakeShell) -> None:
    """`config rollback` prints its patch."""
    program = (shell.root / "bin/config").read_text()
    (shell.root / "bin/config").write_text(f"{program}\necho 'Patch: s3cret'\n")
    switch = DRIVER.connect(shell)
    applied = switch.apply(plan(switch), CONFIRM_S)
    assert isinstance(applied, SonicApplied)
    answer = shell.run(applied.going_back())
    assert (answer.rc, answer.stdout) == (0, "")


def test_the_script_can_be_the_command_of_a_timer() -> None:
    """systemd writes it into a line of a unit file, and expands variables in braces."""
    assert "\n" not in driver.functions()
    assert "${" not in driver.functions() and "$$" not in driver.functions()
    assert subprocess.run(["/bin/sh", "-nc", driver.functions()], check=False).returncode == 0


def test_a_command_without_a_patch_is_not_taken_for_one() -> None:
    """`pgrep` searches whole command lines, those of a rollback included."""
    command = driver.calling("go_back 30", name="run", script="")
    assert not re.search("[c]onfig apply-patch", command)


def test_the_script_and_its_caller_agree_on_exit_statuses() -> None:
    for name in ("TOO_LATE", "NOT_SAVED", "GONE"):
        assert f"{name}={getattr(driver, name)};" in driver.functions()

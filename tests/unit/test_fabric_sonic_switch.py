# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC switch over its shell: every way in which a change can fail, and its end state."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Headroom
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading, steps
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import (
    switch as driver,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.reading import (
    lookup_of,
    parsed,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.switch import (
    DRIVER,
    SonicApplied,
    SonicSwitch,
)

from tests.bed.simulators.parts import sonic_updater
from tests.unit.sonic_switch import Config, FakeShell, after, new_switch, present, small

CONFIRM_S = 300
cost: Any = sonic_updater.cost
"""Duration of a patch upstream, as the simulated switch computes it."""


def plan(config: Config) -> system.Difference:
    intent = small()
    return DRIVER.difference(intent, DRIVER.wanted(intent), present(config))


@pytest.fixture
def shell(tmp_path: Path) -> FakeShell:
    return FakeShell(tmp_path, new_switch(2))


@pytest.fixture
def switch(shell: FakeShell) -> SonicSwitch:
    return DRIVER.connect(shell)


def rebinding(shell: FakeShell) -> system.Difference:
    state = after(shell.state, plan(shell.state).steps)
    (name,) = [name for name in state["BUFFER_PROFILE"] if name.startswith("BAREMETAL")]
    state["BUFFER_PROFILE"][name]["xon"] = "1"
    shell.state = state
    return plan(state)


def apply(switch: SonicSwitch, shell: FakeShell) -> SonicApplied:
    applied = switch.apply(plan(shell.state), CONFIRM_S)
    assert isinstance(applied, SonicApplied)
    return applied


def killed() -> None:
    raise SystemExit


class TestRead:
    def test_one_command_reads_everything(self, switch: SonicSwitch, shell: FakeShell) -> None:
        read = switch.read()
        assert (len(shell.log), shell.reconnects) == (1, 1)
        assert read.config == shell.state
        assert (read.version, read.asic_type) == ("simulation.1", "mellanox")
        assert read.ports == {}
        assert read.neighbours == {}

    def test_the_state_of_ports_and_neighbours(self, switch: SonicSwitch, shell: FakeShell) -> None:
        value = '{"type": "hash", "value": {"oper_status": "up"}}'
        (shell.root / "ports.json").write_text(f'{{"PORT_TABLE:Ethernet0": {value}}}')
        (shell.root / "lldp.json").write_text(f'{{"LLDP_ENTRY_TABLE:Ethernet0": {value}}}')
        read = switch.read()
        assert read.ports == read.neighbours == {"Ethernet0": {"oper_status": "up"}}

    def test_what_the_platform_makes_itself_is_read_in_the_traditional_model(
        self, tmp_path: Path
    ) -> None:
        shell = FakeShell(tmp_path, new_switch(1, model="traditional"))
        assert DRIVER.connect(shell).read().lookup == {}
        assert shell.log[-1].endswith(
            "/usr/share/sonic/device/x86_64-nvidia_sn5600-r0/ACS-SN5600/pg_profile_lookup.ini"
        )
        rows = "# speed cable size xon xoff threshold\n 800000 40m 410624 38912 362496 0\n"
        assert lookup_of(rows) == {(800, 40): Headroom(410624, 38912, 362496, 0)}

    @pytest.mark.parametrize(
        ("said", "listed"), [("True\n", True), ("False\n", False), ("", None), ("0", None)]
    )
    def test_whether_upstream_lists_the_sku_is_asked_of_the_switch(
        self, switch: SonicSwitch, shell: FakeShell, said: str, listed: Any
    ) -> None:
        (shell.root / "listed").write_text(said)
        assert switch.read().listed is listed
        (shell.root / "listed").unlink()
        assert switch.read().listed is None

    def test_neighbours_are_not_needed(self, switch: SonicSwitch, shell: FakeShell) -> None:
        (shell.root / "lldp.json").unlink()
        assert switch.read().neighbours is None


class TestApply:
    def test_in_force_then_kept(self, switch: SonicSwitch, shell: FakeShell) -> None:
        before = shell.state
        wanted = after(before, plan(before).steps)
        applied = apply(switch, shell)
        assert shell.state == wanted
        assert shell.saved == before
        assert len(shell.checkpoints) == len(plan(before).steps) == 10
        (unit,) = shell.units
        assert unit.endswith("-confirm")
        applied.confirm()
        assert shell.saved == shell.state == wanted
        assert (shell.units, shell.checkpoints) == ([], [])
        assert list((shell.root / "tmp").iterdir()) == []
        assert [path.name for path in (shell.root / "etc/sonic").iterdir()] == [
            "config_db.json",
            "sonic_version.yml",
        ]

    def test_the_timer_undoes_what_nobody_confirmed(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        before = shell.state
        applied = apply(switch, shell)
        assert f"--on-active={CONFIRM_S}s" in shell.programs()[-3]
        shell.fire(shell.units[0])
        assert shell.state == before
        assert shell.checkpoints == []
        with pytest.raises(system.SwitchError, match="undone it already"):
            applied.confirm()
        assert shell.saved == before
        applied.rollback()

    def test_an_interval_of_ours_is_undone_too(self, switch: SonicSwitch, shell: FakeShell) -> None:
        apply(switch, shell)
        assert "DEL 'PFC_WD|GLOBAL'" in (shell.root / "units" / shell.units[0]).read_text()

    def test_rolled_back_as_often_as_one_likes(self, switch: SonicSwitch, shell: FakeShell) -> None:
        before = shell.state
        applied = apply(switch, shell)
        applied.rollback()
        applied.rollback()
        assert shell.state == before
        assert (shell.units, shell.checkpoints) == ([], [])

    def test_what_was_saved_comes_back_where_the_answer_to_confirm_was_lost(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        before = shell.state
        applied = apply(switch, shell)
        shell.cut_at = "config save"
        with pytest.raises(system.SwitchError, match="connection was lost"):
            applied.confirm()
        assert shell.saved != before
        shell.cut_at = ""
        applied.rollback()
        assert shell.state == shell.saved == before
        assert (shell.units, shell.checkpoints) == ([], [])


class TestFailures:
    @pytest.mark.parametrize(
        ("program", "message", "words"),
        [
            (
                "dry-run",
                "Failed to apply patch due to: Modification of PFC_WD table is illegal- "
                "validating function returned False",
                "nothing was changed",
            ),
            ("checkpoint", "No space left on device", "nothing was changed"),
            ("systemd-run", "Failed to start transient timer unit", "nothing was changed"),
            ("apply-patch", "Failed to apply patch: error", "was rolled back"),
            ("list-checkpoints", "Root privileges are required", "nothing was changed"),
        ],
    )
    def test_each_step_leaves_the_switch_as_it_was(
        self, switch: SonicSwitch, shell: FakeShell, program: str, message: str, words: str
    ) -> None:
        difference = rebinding(shell)
        before = shell.state
        shell.fail(program, message)
        with pytest.raises(system.SwitchError) as caught:
            switch.apply(difference, CONFIRM_S)
        assert message in str(caught.value)
        assert words.lower() in str(caught.value).lower()
        shell.mend()
        assert shell.state == before
        assert (shell.units, shell.checkpoints) == ([], [])
        assert list((shell.root / "tmp").iterdir()) == []

    def test_the_last_patch_is_refused(self, switch: SonicSwitch, shell: FakeShell) -> None:
        difference = rebinding(shell)
        before = shell.state
        shell.at('"op": "remove"', lambda: shell.fail("apply-patch", "it is still bound"))
        with pytest.raises(system.SwitchError) as caught:
            switch.apply(difference, CONFIRM_S)
        assert "still bound" in str(caught.value)
        assert "was rolled back" in str(caught.value)
        assert shell.state == before
        assert (shell.units, shell.checkpoints) == ([], [])

    def test_a_connection_that_comes_back_undoes_what_its_loss_left(
        self, switch: SonicSwitch, shell: FakeShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(driver, "RETRY_S", 0)
        ran, before, lost = shell.run, shell.state, []

        def run(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            answer = ran(command, stdin, timeout_s)
            if 0 < len(lost) < 3 or ("take 001;" in command and not lost):
                lost.append(command)
                raise system.SwitchError("the connection was lost")
            return answer

        shell.run = run  # type: ignore[method-assign]
        with pytest.raises(system.SwitchError, match=r"connection was lost. .*rolled back"):
            apply(switch, shell)
        assert (shell.state, shell.units, shell.checkpoints) == (before, [], [])

    def test_the_connection_is_lost_for_good(
        self, switch: SonicSwitch, shell: FakeShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command finishes on the switch, and the timer undoes it."""
        monkeypatch.setattr(driver, "LOST_S", 0)
        before = shell.state
        shell.at("arm confirm 300", shell.lose, before=False)
        with pytest.raises(system.SwitchError) as caught:
            apply(switch, shell)
        assert "Undoing it failed" in str(caught.value)
        assert shell.state != before
        (unit,) = shell.units
        assert unit.endswith("-confirm")
        shell.fire(unit)
        assert shell.state == before

    @pytest.mark.parametrize("program", ["save", "json"])
    def test_an_unsaved_change_is_undone(
        self, switch: SonicSwitch, shell: FakeShell, program: str
    ) -> None:
        before = shell.state
        applied = apply(switch, shell)
        shell.fail(program, "No space left on device")
        with pytest.raises(system.SwitchError, match=r"`config save -y` .*status 76"):
            applied.confirm()
        assert shell.saved == before
        (unit,) = shell.units
        assert unit.endswith("-unsaved")
        applied.rollback()
        assert shell.state == shell.saved == before
        assert (shell.units, shell.checkpoints) == ([], [])

    def test_undoing_that_fails_says_what_to_do(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        before, applied = shell.state, apply(switch, shell)
        shell.fail("rollback", "Failed to rollback config: error")
        with pytest.raises(system.SwitchError) as caught:
            applied.rollback()
        assert len(shell.checkpoints) == 10
        assert "-i /BUFFER_PG` on the switch" in str(caught.value)
        (unit,) = shell.units
        shell.mend()
        shell.fire(unit)
        assert (shell.state, shell.units, shell.checkpoints) == (before, [], [])

    def test_a_truncated_checkpoint_is_not_restored(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        before, shell.full_at = shell.state, "002"
        with pytest.raises(system.SwitchError, match=r"status 1: full. .* was rolled back"):
            apply(switch, shell)
        assert (shell.state, shell.units, shell.checkpoints) == (before, [], [])

    def test_no_patch_while_a_timer_undoes(self, switch: SonicSwitch, shell: FakeShell) -> None:
        """systemd reports a timer as active until its service has finished."""
        ran, before = shell.run, shell.state

        def run(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            if "take 002;" not in command:
                return ran(command, stdin, timeout_s)
            (shell.root / "undoing").touch()
            answer = ran(command, stdin, timeout_s)
            (shell.root / "undoing").unlink()
            shell.fire(shell.units[0])
            return answer

        shell.run = run  # type: ignore[method-assign]
        with pytest.raises(system.SwitchError, match=r"status 75 \(its timer ran out"):
            apply(switch, shell)
        assert (shell.state, shell.units, shell.checkpoints) == (before, [], [])

    def test_a_timer_waits_for_the_patch_that_is_being_applied(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        apply(switch, shell)
        (shell.root / "patching").touch()
        shell.fire(shell.units[0])
        assert not (shell.root / "patching").exists()

    def test_an_interruption_after_it_was_kept_undoes_nothing(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        applied = apply(switch, shell)
        shell.at('eval "$script"; forget_checkpoints', killed)
        applied.confirm()
        assert shell.saved == shell.state and shell.units == []

    def test_the_dry_run_counts_in_the_time_until_it_is_undone(
        self, switch: SonicSwitch, shell: FakeShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0]
        monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
        shell.at("apply-patch -d", lambda: now.append(now.pop() + 200))
        applied = apply(switch, shell)
        assert switch.undone_within_s == 200 + CONFIRM_S + applied.undoing_s


class TestLeftovers:
    def test_a_run_that_was_killed_is_waited_for(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        apply(switch, shell)
        switch.read()
        with pytest.raises(system.SwitchError, match="about to undo it"):
            DRIVER.connect(shell).read()
        shell.fire(shell.units[0])
        DRIVER.connect(shell).read()

    def test_undoing_that_failed_is_not_passed_over(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        (shell.root / "bin/systemctl").write_text(
            "#!/bin/sh\necho '● baremetal-mpi-roce-1-confirm.service loaded failed failed sh'\n"
        )
        with pytest.raises(system.SwitchError, match="reset-failed baremetal-mpi-roce-1"):
            switch.read()

    def test_checkpoints_of_ours_go_and_those_of_the_operator_stay(
        self, switch: SonicSwitch, shell: FakeShell
    ) -> None:
        for name in ("baremetal-mpi-roce-20260101T000000-aa", "before-upgrade"):
            (shell.root / "checkpoints" / f"{name}.json").write_text("{}")
        apply(switch, shell).confirm()
        assert shell.checkpoints == ["before-upgrade"]


def test_the_patch_is_on_no_command_line(switch: SonicSwitch, shell: FakeShell) -> None:
    apply(switch, shell)
    assert not any("BAREMETAL_MPI_ROCE" in line for line in shell.log)
    assert all("umask 077" in line for line in shell.log if 'apply-patch "$f' in line)


class TestPace:
    """Limits follow from the duration of a dry run."""

    @pytest.fixture
    def slow(
        self, switch: SonicSwitch, shell: FakeShell, monkeypatch: pytest.MonkeyPatch
    ) -> dict[str, float]:
        """Seconds to start `config` and to sort in the dry run; number of changes."""
        ran, now = shell.run, [0.0]
        monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
        takes = {"start": 2.0, "sort": 60.0, "changes": 40.0}

        def run(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            answer = ran(command, stdin, timeout_s)
            tried = "apply-patch -d" in command
            now[0] += takes["start"] + (takes["sort"] if tried else 0)
            said = f"Patch Applier: The localhost patch was converted into {takes['changes']:.0f} "
            return replace(answer, stdout=f"{said}changes:\n") if tried else answer

        shell.run = run  # type: ignore[method-assign]
        return takes

    @pytest.mark.parametrize(("sort", "changes"), [(60, 40), (2, 3), (600, 900)])
    def test_of_each_operation(
        self,
        switch: SonicSwitch,
        shell: FakeShell,
        slow: dict[str, float],
        sort: float,
        changes: float,
    ) -> None:
        slow |= {"sort": sort, "changes": changes}
        planned: list[steps.Step] = plan(shell.state).steps
        operations = len(steps.trial_of(planned).operations)
        pace = switch._measured(planned)
        assert pace.call_s == 2 * 2 + driver.LOAD_S
        applied_s = min(changes, operations) * driver.APPLY_S
        assert pace.change_s == pytest.approx((sort + applied_s) / operations)

    def test_a_slow_switch_gets_longer_limits(
        self, switch: SonicSwitch, shell: FakeShell, slow: dict[str, float]
    ) -> None:
        """No fixed 120 s: on 202511 a port was sorted for 40 s, on a core that may be faster."""
        slow["sort"] = 900
        planned = plan(shell.state).steps
        applied = apply(switch, shell)
        applying = re.compile(r"timeout ([0-9]+) config apply-patch \"")
        limits = [int(limit) for line in shell.log for limit in applying.findall(line)]
        pace = switch._measured(planned)
        expected = [step.takes_s(pace) for step in planned if isinstance(step, steps.Patch)]
        assert limits == [max(120, 5 * seconds) for seconds in expected]
        assert max(limits) > 1000
        assert f"rollback_s={max(limits)};" in applied.going_back()


def test_tables_of_ports_go_through_i_and_come_back_so(
    switch: SonicSwitch, shell: FakeShell
) -> None:
    """The options of `config apply-patch` and `config rollback` of 202511, 202605 and master."""
    planned = plan(shell.state).steps
    applied = apply(switch, shell)
    ignoring = "-i /PORT_QOS_MAP -i /QUEUE -i /BUFFER_PG"
    calls = [line for line in shell.programs() if line.startswith("config apply-patch /")]
    patches = [step for step in planned if isinstance(step, steps.Patch)]
    assert [line.endswith(ignoring) for line in calls] == [step.unordered for step in patches]
    applied.rollback()
    back = [line for line in shell.programs() if line.startswith("config rollback")]
    assert len(back) == len(planned) and all(line.endswith(ignoring) for line in back)


@pytest.mark.slow
class TestManyPorts:
    @pytest.fixture
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "LINKS_S", 0)

    @pytest.fixture
    def shell(self, tmp_path: Path) -> FakeShell:
        shell = FakeShell(tmp_path, new_switch(24))
        shell.links(f"Ethernet{8 * place}" for place in range(24))
        return shell

    @pytest.fixture
    def difference(self, shell: FakeShell) -> system.Difference:
        intent = small(ports=4)
        names = [replace(intent.ports[0], name=f"Ethernet{8 * place}") for place in range(24)]
        intent = replace(intent, ports=tuple(names))
        ports = {f"Ethernet{8 * place}": {"oper_status": "up"} for place in range(24)}
        return DRIVER.difference(intent, DRIVER.wanted(intent), present(shell.state, ports=ports))

    @pytest.mark.parametrize(("release", "most"), [("202605", 120), ("202511", 320)])
    def test_there_and_back_group_by_group(
        self,
        switch: SonicSwitch,
        shell: FakeShell,
        difference: system.Difference,
        release: str,
        most: int,
    ) -> None:
        before = shell.state
        applied = switch.apply(difference, CONFIRM_S)
        taken = [shell.root / f"checkpoints/{name}.json" for name in shell.checkpoints]
        states = [*(json.loads(path.read_text()) for path in taken), shell.state]
        costs = [cost(*pair, steps.UNORDERED, release) for pair in zip(states, states[1:])]
        assert sum(each.seconds for each in costs) < most
        assert cost(states[0], states[-1], (), release).seconds > 20 * 60
        applied.rollback()
        assert shell.state == before and (shell.units, shell.checkpoints) == ([], [])
        went = [line for line in shell.programs() if line.startswith("config rollback")]
        numbers = [line.split(" -i")[0].rpartition("-")[2] for line in went]
        assert numbers == [f"{n:03}" for n in range(len(difference.steps) - 1, -1, -1)]

    def stays_down(self, shell: FakeShell, *ports: str) -> None:
        """Their links stay down after the first bounce."""
        for port in ports:
            shell.at(f"/{port}/admin_status", partial(shell.links, [port], "down"))

    @pytest.mark.usefixtures("impatient")
    def test_the_first_link_that_stays_down_costs_no_other_port(
        self, switch: SonicSwitch, shell: FakeShell, difference: system.Difference
    ) -> None:
        before = shell.state
        self.stays_down(shell, "Ethernet0")
        with pytest.raises(system.SwitchError, match=r"stay down: Ethernet0; .*was rolled back"):
            switch.apply(difference, CONFIRM_S)
        assert (shell.state, shell.units, shell.checkpoints) == (before, [], [])
        lowered = [line for line in shell.stdin if '"admin_status", "value": "down"' in line]
        assert len(lowered) <= 2 and not any("Ethernet8/" in line for line in shell.stdin)
        undone = [line for line in shell.programs() if line.startswith("config rollback")]
        assert len(undone) == 6, "only what was applied"
        first, pace = steps.batches_of(difference.steps)[0], steps.Pace(driver.LOAD_S, 1)
        armed_s = steps.most_of(first, steps.ONE_BY_ONE) + driver.SLACK_S
        whole_s = steps.SLOWER * sum(step.takes_s(pace) for step in difference.steps)
        assert armed_s < switch.undone_within_s < armed_s + whole_s / 2

    @pytest.mark.usefixtures("impatient")
    def test_a_tenth_of_the_links_so_far_may_stay_down(
        self, switch: SonicSwitch, shell: FakeShell, difference: system.Difference
    ) -> None:
        self.stays_down(shell, "Ethernet40", "Ethernet168")
        switch.apply(difference, CONFIRM_S)
        assert [re.sub(", [0-9]+ s at most$", "", line) for line in shell.said] == [
            "batch 1 of 4: objects and 1 port (Ethernet0)",
            "batch 2 of 4: 4 ports (Ethernet8, Ethernet16, Ethernet24, Ethernet32)",
            "batch 3 of 4: 16 ports (Ethernet40, Ethernet48, Ethernet56, Ethernet64 and 12 more)",
            "batch 4 of 4: 3 ports (Ethernet168, Ethernet176, Ethernet184)",
        ]

    def test_a_controller_that_is_lost_leaves_no_port_of_its_group_down(
        self, switch: SonicSwitch, shell: FakeShell, difference: system.Difference
    ) -> None:
        """A group is one command line, which finishes on the switch."""
        ran = shell.run

        def run(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            if "Ethernet40/admin_status" in stdin and "apply-patch -d" not in command:
                ran(command, stdin, timeout_s)
                raise SystemExit  # as good as killed
            return ran(command, stdin, timeout_s)

        shell.run = run  # type: ignore[method-assign]
        with pytest.raises(SystemExit), pytest.MonkeyPatch.context() as patched:
            patched.setattr(SonicApplied, "undo_soon", lambda _applied: None)
            switch.apply(difference, CONFIRM_S)
        assert {row["admin_status"] for row in shell.state["PORT"].values()} == {"up"}
        assert shell.state["PORT_QOS_MAP"]["Ethernet40"]["pfc_enable"] == "3"
        assert shell.state["PORT_QOS_MAP"]["Ethernet168"]["pfc_enable"] == "3,4"

    @pytest.mark.usefixtures("impatient")
    def test_what_was_accepted_and_is_not_there_stops_it(
        self, switch: SonicSwitch, shell: FakeShell, difference: system.Difference
    ) -> None:
        before = shell.state

        def change() -> None:
            state = shell.state
            state["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] = "5"
            shell.state = state

        shell.at("PORT_QOS_MAP/Ethernet0/pfc_enable", change, before=False)
        with pytest.raises(system.SwitchError, match=r"accepted: PORT_QOS_MAP\|Ethernet0\."):
            switch.apply(difference, CONFIRM_S)
        assert shell.state == before

    def test_a_controller_that_is_lost_costs_one_batch(
        self,
        switch: SonicSwitch,
        shell: FakeShell,
        difference: system.Difference,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        before = shell.state
        shell.at("take 014", killed)
        monkeypatch.setattr(SonicApplied, "undo_soon", lambda _applied: None)
        with pytest.raises(SystemExit):
            switch.apply(difference, CONFIRM_S)
        (unit,) = shell.units
        assert unit.endswith("-applying-next") and len(shell.checkpoints) == 14
        assert switch.undone_within_s < 3600
        shell.fire(unit)
        assert shell.state == before and shell.checkpoints == []


SECRET = "s3cret-of-the-operator"
SECRETS: Config = {
    "TACPLUS": {"global": {"passkey": SECRET}},
    "SNMP_COMMUNITY": {SECRET: {"TYPE": "RO"}},
    "BGP_NEIGHBOR": {"10.0.0.1": {"asn": "65100", "auth_password": SECRET}},
    "PORTCHANNEL": {"PortChannel1": {"description": SECRET}},
}


class Overheard(FakeShell):
    output = ""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
        answer = super().run(command, stdin, timeout_s)
        self.output += f"{command}{stdin}{answer.stdout}{answer.stderr}"
        return answer


@pytest.fixture
def overheard(tmp_path: Path) -> Overheard:
    return Overheard(tmp_path, {**new_switch(2), **SECRETS})


def test_passwords_of_other_tables_stay_on_the_switch(overheard: Overheard) -> None:
    """At -vvv Ansible shows all output over SSH."""
    switch, intent = DRIVER.connect(overheard), small()
    read = switch.read()
    assert read.config == new_switch(2)
    switch.apply(DRIVER.difference(intent, DRIVER.wanted(intent), read), 300).confirm()
    switch.read()
    assert SECRET not in overheard.output and "pfc_enable" in overheard.output
    assert overheard.saved["TACPLUS"] == SECRETS["TACPLUS"]


@pytest.mark.parametrize("text", [f"Traceback {SECRET}", f'["{SECRET}"]', f'"{SECRET}"', ""])
def test_what_is_no_json_is_not_shown(overheard: Overheard, text: str) -> None:
    (overheard.root / "state.json").write_text(text)
    with pytest.raises(system.SwitchError, match=r"sonic-cfggen -d --print-data`.*printed no JSON"):
        DRIVER.connect(overheard).read()
    assert SECRET not in overheard.output


def test_what_a_switch_reports_only_prints() -> None:
    hostile = "spine01\x1b[2J\u202e"
    tables = json.dumps({"PORT": {hostile: {hostile: [hostile]}}}, ensure_ascii=False)
    state = json.dumps({f"LLDP:{hostile}": {"value": {"lldp_rem_sys_name": hostile}}})
    said = {
        **dict.fromkeys(("config", "saved"), tables),
        **dict.fromkeys(("ports", "neighbours"), state),
        "version": f"build_version: {hostile}\nasic_type: x",
        "units": hostile,
    }
    out = "".join(f"{text}\n{reading.MARK} {name} 0\n" for name, text in said.items())
    shown = repr(parsed(system.Completed(0, out, "")))
    assert shown.count(r"spine01\\x1b[2J\\u202e") == 3 + 3 + 2 + 2 + 1 + 1


def test_the_status_of_the_program_that_failed_is_kept(overheard: Overheard) -> None:
    (overheard.root / "bin/sonic-cfggen").write_text("#!/bin/sh\necho 'no redis' >&2\nexit 42\n")
    with pytest.raises(system.SwitchError, match="status 42: no redis"):
        DRIVER.connect(overheard).read()

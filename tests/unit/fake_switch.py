# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch without a system: settings as a dictionary, a timer, and faults on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.session import SessionClock
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Finding

Fault = Callable[["FakeSwitch"], None]
"""Called where a real step could fail; raises, or changes the switch."""


@dataclass
class Time:
    """Time that passes only during sleeps and operations of the switch."""

    now_s: float = 1000.0

    @property
    def clock(self) -> SessionClock:
        return SessionClock(lambda: self.now_s, self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


class FakeSystem:
    """Desired settings are `wanted`; others belong to the operator."""

    name = "fake"

    def __init__(self, wanted: dict[str, Any], findings: tuple[str, ...] = ()) -> None:
        self._wanted = wanted
        self._findings = findings

    def wanted(self, intent: system.SwitchIntent) -> dict[str, Any]:
        if self._findings:
            raise WantedError([Finding("fake", (), each, "") for each in self._findings])
        return self._wanted

    def difference(
        self, intent: system.SwitchIntent, wanted: Any, present: Any
    ) -> system.Difference:
        changes = tuple(
            system.Change(key, present.get(key), value)
            for key, value in sorted(wanted.items())
            if present.get(key) != value
        )
        ports = tuple(change.path for change in changes if change.path.startswith("Ethernet"))
        losses = ("packets can be lost",) if any(c.path == "pfc" for c in changes) else ()
        before = {change.path: change.found for change in changes}
        after = {change.path: change.wanted for change in changes}
        return system.Difference(
            changes, system.Impact(ports, losses), f"{before}\n", f"{after}\n", after
        )

    def report(self, intent: system.SwitchIntent, present: Any) -> system.SwitchReport:
        ports = tuple(system.PortReport(name, True, up=up) for name, up in present["links"].items())
        return system.SwitchReport(intent.name, self.name, "simulation", ports, lldp=False)


@dataclass
class FakeSwitch:
    state: dict[str, Any]
    time: Time
    faults: dict[str, list[Optional[Fault]]] = field(default_factory=dict)
    """Faults by step (read, apply, confirm, rollback), one per call; None: no fault."""
    calls: list[str] = field(default_factory=list)
    former: Optional[dict[str, Any]] = None
    undo_at: Optional[float] = None
    unreachable_until: float = 0.0
    undone_within_s: int = 0
    links_take_s: float = 0.0
    """Time that links are down after a change; one of the two was never up."""
    further_links: int = 0
    _up_at: float = 0.0

    def _step(self, name: str) -> None:
        self.calls.append(name)
        self.tick()
        if self.time.now_s < self.unreachable_until:
            self.time.now_s += 1
            raise system.SwitchError("10.0.0.1: no answer")
        waiting = self.faults.get(name)
        fault = waiting.pop(0) if waiting else None
        if fault:
            fault(self)

    def tick(self) -> None:
        """The timer of the switch, which runs even if the switch is unreachable."""
        if self.undo_at is not None and self.time.now_s >= self.undo_at:
            self.undo()

    def undo(self) -> None:
        if self.former is not None:
            self.state = dict(self.former)
        self.undo_at = None

    def read(self) -> dict[str, Any]:
        self._step("read")
        up = self.time.now_s >= self._up_at
        further = {f"Ethernet{16 + 8 * port}": True for port in range(self.further_links)}
        return {**self.state, "links": {"Ethernet0": up, "Ethernet8": False, **further}}

    def apply(self, difference: system.Difference, confirm_s: int) -> FakeApplied:
        self.former = dict(self.state)
        self.undo_at = self.time.now_s + confirm_s
        self._step("apply")
        self.undo_at = self.time.now_s + confirm_s
        self.state.update(difference.steps)
        self._up_at = self.time.now_s + self.links_take_s
        return FakeApplied(self)


@dataclass
class FakeApplied:
    switch: FakeSwitch

    def confirm(self) -> None:
        self.switch._step("confirm")
        self.switch.undo_at = None

    def rollback(self) -> None:
        self.switch._step("rollback")
        self.switch.undo()

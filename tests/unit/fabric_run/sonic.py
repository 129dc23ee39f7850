# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A system whose switches are files: `ADDRESS.json` with settings, `faults` and a log of calls.

The effect of a role on a fabric can thus be tested without switches.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system

from tests.waiting import until


class FileSystem:
    underlay = counters = None

    def connect(self, shell: Any) -> FileSwitch:
        address = shell._action._play_context.remote_addr
        return FileSwitch(Path(os.environ["SWITCH_FILES"]) / f"{address}.json")

    def wanted(self, intent: system.SwitchIntent) -> dict[str, str]:
        return {port.name: "lossless" for port in intent.ports}

    def difference(
        self, intent: system.SwitchIntent, wanted: Any, present: Any
    ) -> system.Difference:
        ports = present["ports"]
        changes = tuple(
            system.Change(name, ports.get(name), value)
            for name, value in wanted.items()
            if ports.get(name) != value
        )
        return system.Difference(
            changes,
            system.Impact(tuple(change.path for change in changes)),
            "".join(f"{change.path} {change.found}\n" for change in changes),
            "".join(f"{change.path} {change.wanted}\n" for change in changes),
            {change.path: change.wanted for change in changes},
            expected_s=839,
        )

    def report(self, intent: system.SwitchIntent, present: Any) -> system.SwitchReport:
        fabric = intent.fabric
        ecn = {
            queue.traffic_class: system.EcnReport(**vars(queue.ecn))
            for queue in fabric.queues
            if queue.ecn
        }
        ports = tuple(
            system.PortReport(
                port.name,
                present=True,
                up=port.name not in present.get("dark", []),
                speed_gbps=present.get("speed_gbps") or port.speed_gbps,
                mtu_ip=fabric.mtu_ip,
                trust=fabric.trust,
                dscp_to_traffic_class=fabric.dscp_to_traffic_class,
                pfc_priorities=fabric.pfc_priorities
                if present["ports"].get(port.name) == "lossless"
                else (),
                strict_queues=tuple(q.traffic_class for q in fabric.queues if q.strict),
                ecn=ecn,
            )
            for port in intent.ports
        )
        return system.SwitchReport(intent.name, "sonic", "simulation", ports, lldp=False)


@dataclass
class FileSwitch:
    path: Path
    undone_within_s: int = 0

    def _step(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        faults = found.get("faults", {}).get(name) or []
        fault = None
        if faults:
            fault = faults.pop(0)
            self._write(found)
        if fault == "hang":
            self.path.with_suffix(".pid").write_text(f"{os.getpid()}")
        # Last, because a test stops the run when it reads this, and a fault occurs only once.
        with self.path.with_suffix(".log").open("a") as log:
            log.write(f"{name}\n")
        if fault == "hang":
            threading.Event().wait()
        elif fault == "pause":
            until(self.path.with_suffix(".go").exists, "the test's leave to go on", 300)
        elif fault:
            raise system.SwitchError(f"{self.path.stem}: {fault}")
        return found

    def _write(self, state: dict[str, Any]) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.replace(self.path)  # a test may read it at any time

    def read(self) -> Any:
        return self._step("read")

    def apply(self, difference: system.Difference, confirm_s: int) -> FileApplied:
        state = self._step("apply")
        former = dict(state["ports"])
        state["ports"].update(difference.steps)
        self._write(state)
        return FileApplied(self, former)


@dataclass
class FileApplied:
    switch: FileSwitch
    former: dict[str, str]

    def confirm(self) -> None:
        self.switch._step("confirm")

    def rollback(self) -> None:
        state = self.switch._step("rollback")
        self.switch._write({**state, "ports": self.former})


DRIVER = FileSystem()

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration of Tiny OS: `PORT SETTING` and a value for each."""

from __future__ import annotations

from typing import Any

from ...schema.findings import Findings
from ..asics import WantedError
from ..base import SystemDriver
from ..system import (
    Change,
    Difference,
    Impact,
    PortReport,
    Saved,
    Shell,
    SwitchIntent,
    SwitchReport,
    check_mtu,
    check_ports,
)


def wanted(intent: SwitchIntent) -> dict[str, str]:
    findings = Findings()
    check_mtu(intent, findings)
    if findings:
        raise WantedError(findings.found)
    pfc = ",".join(map(str, intent.fabric.pfc_priorities))
    settings = {"mtu": str(intent.fabric.mtu_ip), "pfc": pfc}
    return {f"{port.name} {key}": value for port in intent.ports for key, value in settings.items()}


def difference(intent: SwitchIntent, wanted: dict[str, str], present: dict[str, str]) -> Difference:
    check_ports(intent, {path.split()[0] for path in present}, {})
    changes = tuple(
        Change(path, present[path], value)
        for path, value in wanted.items()
        if present[path] != value
    )
    steps = [f"{change.path} {change.wanted}" for change in changes]
    return Difference(changes, Impact(), "", "", steps)


def report(intent: SwitchIntent, present: dict[str, str]) -> SwitchReport:
    ports = (
        PortReport(port.name, True, mtu_ip=int(present[f"{port.name} mtu"]))
        for port in intent.ports
    )
    return SwitchReport(intent.name, intent.system, "1.0", tuple(ports), lldp=False)


class TinySwitch:
    undone_within_s = 0

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def read(self) -> dict[str, str]:
        lines = self._shell.run("show").stdout.splitlines()
        return {path: value for path, _blank, value in (line.rpartition(" ") for line in lines)}

    def apply(self, difference: Difference, confirm_s: int) -> Any:
        self._shell.run("set", stdin="\n".join(difference.steps))
        return Saved()


DRIVER = SystemDriver(wanted, difference, report, TinySwitch)

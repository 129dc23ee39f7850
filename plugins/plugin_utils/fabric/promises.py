# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of one switch: each promise of the contract once for all ports that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ...module_utils.core.checks import FAILED, OK, PENDING, Check
from ...module_utils.core.text import counted
from . import ends
from .ends import SwitchEnds, Unread, show
from .system import Difference, SwitchIntent, SwitchReport

NOT_OURS = (ends.UP,)
"""Whether a link is up depends on its other end too: the layer `links`."""
VERIFIED = (ends.PORT, ends.SPEED)
"""Read and never set: optics and breakout are the operator's."""
RUNS_SHOWN = 6


def checks(
    intent: SwitchIntent, report: SwitchReport, remaining: Optional[Difference], check_mode: bool
) -> list[Check]:
    """`remaining`: what differs now, None if unknown."""
    differs = remaining is None or bool(remaining)
    found = [_configuration(remaining, check_mode)]
    names = [port.name for port in intent.ports]
    for (aspect, wanted, value), ports in _groups(intent, report).items():
        status, reason = FAILED, ""
        if wanted == value:
            status = OK
        elif aspect in VERIFIED:
            reason = "verified, never set: correct the port, or the model"
        elif check_mode and differs:
            status = PENDING
        elif not differs:
            reason = "its configuration is as wanted, the port is not"
        name = "port" if aspect == ends.PORT else f"port_{aspect}"
        found.append(Check(name, wanted, value, status, ports_text(ports, names), reason))
    return found


def _configuration(remaining: Optional[Difference], check_mode: bool) -> Check:
    """In the switch's own syntax: covers also what has no name in the contract."""
    name, wanted = "configuration", "0 values differ"
    if remaining is None:
        return Check(name, wanted, None, FAILED, "", "it could not be read")
    count = len(remaining.changes)
    if not count:
        return Check(name, wanted, wanted, OK)
    found = f"{counted(count, 'value')} {'differs' if count == 1 else 'differ'}"
    first = remaining.changes[0]
    more = f", and {count - 1} more" if count > 1 else ""
    reason = f"{first.path}: wanted {first.wanted}, found {first.found}{more}"
    return Check(name, wanted, found, PENDING if check_mode else FAILED, "", reason)


def _groups(intent: SwitchIntent, report: SwitchReport) -> dict[tuple[str, str, str], list[str]]:
    """By aspect, wanted and found: the ports."""
    switch = SwitchEnds(intent.system, intent.asic, report.as_dict(), intent.fabric)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for port in intent.ports:
        wanted = switch.wanted(port.kind, port.speed_gbps)
        for aspect, value in switch.found(port.name, wanted).items():
            goal = wanted[aspect]
            if aspect in NOT_OURS or isinstance(goal, Unread):
                continue
            if isinstance(value, Unread):
                if not value.fault:
                    continue  # the comparison of its configuration covers it
                value = f"not known: {value.reason}"
            key = (aspect, show(aspect, goal), show(aspect, value))
            groups.setdefault(key, []).append(port.name)
    return groups


def ports_text(ports: Sequence[str], every: Sequence[str]) -> str:
    """`Ethernet0-Ethernet504 (64 ports)`: a dash spans neighbours among all ports in use."""
    place = {name: number for number, name in enumerate(every)}
    runs: list[list[str]] = []
    for name in sorted(ports, key=lambda port: place[port]):
        if runs and place[runs[-1][-1]] == place[name] - 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    texts = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    if len(texts) > RUNS_SHOWN:
        texts = [*texts[:RUNS_SHOWN], "..."]
    text = ", ".join(texts)
    return text if len(ports) == 1 else f"{text} ({len(ports)} ports)"

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of one switch: each promise of the contract once for all ports that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, OK, PENDING, Check
from .headroom import headroom
from .intent import SwitchIntent
from .links import said
from .links.cabling import Switch
from .links.said import DscpTexts, Unsaid
from .links.switch_end import SwitchEnds
from .report import SwitchReport
from .system import Difference, WantedError

NOT_OURS = (said.UP,)
"""Whether a link is up says its other end too: the layer `links`."""
VERIFIED = (said.PORT, said.SPEED)
"""Read and never set: optics and breakout are the operator's."""
RUNS_SHOWN = 6


def checks(
    intent: SwitchIntent, report: SwitchReport, remaining: Optional[Difference], check_mode: bool
) -> list[Check]:
    """What the switch promised and does. `remaining` is what differs now, None if unknown."""
    differs = remaining is None or bool(remaining)
    found = [_configuration(remaining, check_mode)]
    for (aspect, wanted, value), ports in _groups(intent, report).items():
        subject = ports_text(ports, [port.name for port in intent.ports])
        name = "port" if aspect == said.PORT else f"port_{aspect}"
        if wanted == value:
            found.append(Check(name, wanted, value, OK, subject))
        elif aspect in VERIFIED:
            reason = "verified, never set: correct the port, or the model"
            found.append(Check(name, wanted, value, FAILED, subject, reason))
        elif check_mode and differs:
            found.append(Check(name, wanted, value, PENDING, subject))
        else:
            reason = "" if differs else "its configuration has what is wanted, the port does not"
            found.append(Check(name, wanted, value, FAILED, subject, reason))
    return found


def _configuration(remaining: Optional[Difference], check_mode: bool) -> Check:
    """The switch's own words, so that nothing is left out that has no name in the contract."""
    name, wanted = "configuration", "0 values differ"
    if remaining is None:
        return Check(name, wanted, None, FAILED, "", "it could not be read")
    count = len(remaining.changes)
    found = f"{count} values differ" if count != 1 else "1 value differs"
    if not count:
        return Check(name, wanted, wanted, OK)
    first = remaining.changes[0]
    more = f", and {count - 1} more" if count > 1 else ""
    reason = f"{first.path}: wanted {first.wanted}, found {first.found}{more}"
    return Check(name, wanted, found, PENDING if check_mode else FAILED, "", reason)


def _groups(intent: SwitchIntent, report: SwitchReport) -> dict[tuple[str, Any, Any], list[str]]:
    """By promise, wanted and found: the ports."""
    asic = intent.asic

    def room(_asic: str, speed_gbps: float, metres: int) -> Optional[int]:
        try:
            return headroom(asic, int(speed_gbps), metres, intent.fabric.mtu_frame).xoff_bytes
        except WantedError:
            return None

    ends = SwitchEnds(
        Switch(intent.name, intent.role, (), intent.system, asic.name, report.as_dict()),
        intent.fabric,
        DscpTexts(intent.fabric),
        room,
    )
    groups: dict[tuple[str, Any, Any], list[str]] = {}
    for port in intent.ports:
        wanted = ends.wanted(port.kind, port.speed_gbps)
        says = ends.says(port.name, wanted)
        for aspect, value in says.items():
            goal = wanted.get(aspect)
            if aspect in NOT_OURS or goal is None or isinstance(goal, Unsaid):
                continue
            if isinstance(value, Unsaid):
                if not value.fault:
                    continue  # the comparison of its configuration holds for it
                value = f"not known: {value.reason}"
            groups.setdefault((aspect, goal, value), []).append(port.name)
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

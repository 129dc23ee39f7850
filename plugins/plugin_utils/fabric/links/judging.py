# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends of one link against the contract: which end is wrong, and what repairs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ....module_utils.core.checks import FAILED, PENDING, Check
from . import said
from .cabling import End, Link
from .said import Said, Unsaid

WHY = {
    said.PORT: "the model has a cable here",
    said.UP: "no packet passes",
    said.SPEED: "headroom and ECN thresholds are made for another speed",
    said.MTU: "packets that one end sends whole vanish at the other",
    said.TRUST: "packets are not sorted by DSCP",
    said.ROCE_DSCP: "RoCE data is not in the lossless class",
    said.CNP_DSCP: "CNP wait in a queue of other packets",
    said.OTHER_DSCPS: "packets of other classes are in the wrong queue",
    said.PRIORITY: "a pause stops the wrong packets, or none",
    said.PFC: "a pause has to mean the same priority at both ends, and no other",
    said.LOSSLESS: "PFC without a lossless buffer behind it loses what it has paused too late",
    said.QUEUES: "CNP have to be served before all that they slow down, and nothing else may",
    said.WEIGHTS: "classes get other shares of a full link than they shall",
    said.ECN: "senders are not told to slow down before the link is paused",
    said.CABLE: "the buffer for what is under way is made for another cable",
    said.HEADROOM: "what is under way after a pause does not fit",
    said.WATCHDOG: "one stuck queue can hold the whole fabric",
    said.MARKING: "switches sort by this DSCP",
    said.CNP_MARKING: "switches do not know these CNP",
    said.ECN_POINTS: "marks of the switches have no effect",
}
"""What comes of it when an aspect is not as the contract has it."""

BY_HAND = {
    said.PORT: "Compare the model's names of ports and rails with those that are there",
    said.UP: "Look at cable, transceivers and both ports",
    said.SPEED: "Set the port's speed and breakout by hand, or correct the model",
}
"""What no command of ours repairs."""


class Mismatch(NamedTuple):
    check: Check
    wrong: tuple[End, ...]
    """The ends that differ from the contract."""


class Verdict(NamedTuple):
    mismatches: tuple[Mismatch, ...]
    unsaid: tuple[tuple[End, str, str], ...]
    """End, aspect, and why it is not said."""


def command(end: End, switches: Mapping[str, object]) -> str:
    """What repairs an end."""
    tag = "fabric" if end.host in switches else "rails"
    return f"ansible-playbook site.yml --tags {tag} --limit {end.host}"


class Side(NamedTuple):
    """An end with what it shall say and says; `said` is None where it was not read."""

    end: End
    wanted: Said
    said: Optional[Said]


def judge(
    link: Link,
    sides: tuple[Side, ...],
    switches: Mapping[str, object],
    *,
    check_mode: bool = False,
) -> Verdict:
    """`sides`: those that were read or should have been.

    In check mode what a run would set right is pending.
    """
    mismatches: list[Mismatch] = []
    unsaid: list[tuple[End, str, str]] = []
    wrong: dict[str, list[Side]] = {}
    for side in sides:
        if side.said is None or side.said == side.wanted:
            continue
        for aspect, found in side.said.items():
            if isinstance(found, Unsaid) and not found.fault:
                unsaid.append((side.end, aspect, found.reason))
            elif isinstance(side.wanted[aspect], Unsaid):
                unsaid.append((side.end, aspect, side.wanted[aspect].reason))  # type: ignore[union-attr]
            elif found != side.wanted[aspect]:
                wrong.setdefault(aspect, []).append(side)
    for aspect, there in wrong.items():
        mismatches.append(_mismatch(link, aspect, there, sides, switches, check_mode))
    return Verdict(tuple(mismatches), tuple(unsaid))


def _mismatch(
    link: Link,
    aspect: str,
    wrong: list[Side],
    sides: tuple[Side, ...],
    switches: Mapping[str, object],
    check_mode: bool,
) -> Mismatch:
    shown = [side for side in sides if side.said is not None and aspect in side.wanted]
    wanted = [_text(side.wanted[aspect]) for side in shown]
    alike = len(set(wanted)) == 1
    check = Check(
        f"link_{aspect}",
        wanted[0]
        if alike
        else "; ".join(f"{side.end.host}: {text}" for side, text in zip(shown, wanted)),
        "; ".join(f"{side.end}: {_found(side, aspect)}" for side in shown),
        FAILED if not check_mode or _by_hand(aspect, wrong) else PENDING,
        str(link),
        f"{_who(aspect, wrong, sides, alike)}: {WHY[aspect]}. {_repair(aspect, wrong, switches)}",
    )
    return Mismatch(check, tuple(side.end for side in wrong))


def _text(value: object) -> str:
    return value.reason if isinstance(value, Unsaid) else str(value)


def _found(side: Side, aspect: str) -> str:
    return _text((side.said or {}).get(aspect, "not asked"))


def _who(aspect: str, wrong: list[Side], sides: tuple[Side, ...], alike: bool) -> str:
    if len(wrong) == 1:
        unread = [side.end.host for side in sides if side.said is None]
        also = f" ({', '.join(unread)} was not read)" if unread else ""
        return f"{wrong[0].end.host} is wrong{also}"
    if alike and len({_found(side, aspect) for side in wrong}) == 1:
        return "both ends agree with each other and not with the contract"
    return "both ends are wrong"


def _by_hand(aspect: str, wrong: list[Side]) -> bool:
    """Whether no command of ours repairs it. A rail that is not set up yet is none of these."""
    not_set_up = aspect == said.UP and all(
        _found(side, aspect) == said.NOT_SET_UP for side in wrong
    )
    return aspect in BY_HAND and not not_set_up


def _repair(aspect: str, wrong: list[Side], switches: Mapping[str, object]) -> str:
    if _by_hand(aspect, wrong):
        return BY_HAND[aspect]
    commands = dict.fromkeys(command(side.end, switches) for side in wrong)
    return "Repair: " + "; ".join(commands)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs between the objects wanted and those of a switch.

Compared are the values that are written, not those that defaults fill in; and what the chip does,
as far as the switch reports it: an apply can be accepted and carried out by half. Beyond the wanted
values only what stands against them goes: a second PFC priority, a share for a queue that nothing
leads to, another profile on a port of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....module_utils.core.text import some
from .. import asics
from ..asics import Asic
from ..system import Change, Difference, Impact, SwitchError, SwitchIntent
from .objects import LOSSLESS_POOL, LOSSY_POOL, MODE, PROFILE
from .reading import Present
from .tree import (
    Path,
    Spelling,
    Tree,
    at,
    ends,
    expanded,
    is_switch,
    natural,
    number,
    objects_at,
    same,
    words,
)

# ECN thresholds that the hardware rounds, as NVUE writes them.

THRESHOLDS = ("min-threshold", "max-threshold")


def rounded(asic: Asic, wanted: Any, found: Any) -> bool:
    """Whether the chip makes `found` of `wanted`."""
    asked, got = number(wanted), number(found)
    return asked is not None and got is not None and asics.rounded(asic, asked, got)


# What applying a difference costs.
#
# NVUE reloads switchd, and no port goes down for it. Forwarding is touched where the buffers of
# the chip are laid out anew: NVIDIA names PFC, link pause and whatever changes qos_infra.conf.

_BUFFERS = {
    "roce": "RoCE",
    "pfc": "PFC",
    "traffic-pool": "traffic pools",
    "egress-queue-mapping": "queue mapping",
    "link-pause": "link pause",
}
"""Branches of qos that lay out the buffers anew."""


def impact(paths: Iterable[Path]) -> Impact:
    paths = tuple(paths)
    losses: list[str] = []
    buffers = {
        _BUFFERS[path[1]]: None for path in paths if path[0] == "qos" and path[1] in _BUFFERS
    }
    if buffers:
        losses.append(
            f"buffers of the whole switch are laid out anew ({', '.join(buffers)}): packets can be "
            "lost for a moment on all of its ports"
        )
    bound = _ports(path for path in paths if path[2:4] in (("qos", "pfc"), ("qos", "link-pause")))
    if bound:
        losses.append(f"PFC changes on {_listed(bound)}: packets can be lost there for a moment")
    sized = _ports(path for path in paths if path[2:4] == ("link", "mtu"))
    if sized:
        losses.append(
            f"the MTU changes on {_listed(sized)}: until both ends of a link have the same, "
            "packets of a size between the two are lost"
        )
    return Impact(losses=tuple(losses))


def _ports(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple({path[1]: None for path in paths if path[0] == "interface"})


def _listed(ports: tuple[str, ...]) -> str:
    if len(ports) <= 4:
        return ", ".join(ports)
    return f"{len(ports)} ports ({ports[0]} to {ports[-1]})"


_WHOLE = (
    ("pfc", PROFILE, "switch-priority"),
    ("egress-scheduler", PROFILE, "traffic-class"),
    ("congestion-control", PROFILE, "traffic-class"),
    ("traffic-pool", LOSSLESS_POOL, "switch-priority"),
    ("traffic-pool", LOSSY_POOL, "switch-priority"),
)
"""Collections in qos that hold what is wanted and nothing else."""

_PAUSED: Path = ("qos", "pfc", PROFILE, "switch-priority")
"""What else is paused by the chip is a difference too, whatever is written."""

_NOTHING_ELSE_THAN = {
    "rx": "enable",
    "tx": "enable",
    "red": "disable",
    "profile": PROFILE,
    "rewrite": "l2",
}
"""Where nothing is wanted, this may stand all the same: it is what nothing means."""


_WORDS = {
    "trust": ("l2", "l3", "both", "port"),
    "mode": ("dwrr", "strict", MODE, "lossless-single-ipool", "lossy", "lossy-multi-tc"),
    "rewrite": ("l2", "l3", "both"),
}


def difference(intent: SwitchIntent, wanted: Tree, present: Present) -> Difference:
    _check_ports(intent, present)
    running: Tree = {"qos": present.running_qos, "interface": present.ports}
    values, found = _differing(intent, wanted, present.explicit, running)
    spelling = Spelling(present.filled_qos, present.release)
    if not values and present.startup is not None:
        values, found = _differing(intent, wanted, present.startup, {})
        if values:
            return _unsaved(values, found, spelling)
    changes, before, after = _compared(values, found, spelling)
    return Difference(
        changes=tuple(changes),
        impact=impact(sorted(values, key=natural)),
        before=_text(before),
        after=_text(after),
        steps=spelling.tree(values),
    )


def _unsaved(values: dict[Path, Any], found: dict[Path, Any], spelling: Spelling) -> Difference:
    """All is in force, and would be gone after a restart: a run was killed before it saved."""
    _changes, before, after = _compared(values, found, spelling)
    return Difference(
        changes=(Change("startup", "not saved", "as applied"),),
        impact=impact(()),
        before=_text(before),
        after=_text(after),
        steps={},
    )


def _differing(
    intent: SwitchIntent, wanted: Tree, explicit: Tree, running: Tree
) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """By path, what is wanted there and what was found instead."""
    values: dict[Path, Any] = {}
    found: dict[Path, Any] = {}
    for path, value in ends(wanted):
        written = at(explicit, *path)
        if not _kept(intent, path, value, written):
            values[path], found[path] = value, written
        elif _contradicts(intent, path, value, running):
            values[path], found[path] = value, at(running, *path)
    for collection in _WHOLE:
        place: Path = ("qos", *collection)
        needed = objects_at(wanted, *place)
        written = objects_at(explicit, *place)
        done = objects_at(running, *place) if place == _PAUSED else {}
        for key, held in {**done, **written}.items():
            if key not in needed:
                path = (*place, key)
                values[path], found[path] = None, held
    return values, found


def _compared(
    values: dict[Path, Any], found: dict[Path, Any], spelling: Spelling
) -> tuple[list[Change], list[str], list[str]]:
    """Changes, and what is there of them and will be, as lines."""
    changes, before, after = [], [], []
    for path in sorted(values, key=natural):
        there, sent = spelling.of(path, values[path])
        changes.append(Change(words(there), _shown(found[path]), _shown(sent)))
        before += [] if found[path] is None else _lines(there, found[path])
        after += [] if sent is None else _lines(there, sent)
    return changes, before, after


def _kept(intent: SwitchIntent, path: Path, value: Any, found: Any) -> bool:
    leaf = path[-1]
    if value is None:
        return found is None or same(leaf, found, _NOTHING_ELSE_THAN.get(leaf))
    if found is None:
        return False
    if leaf in THRESHOLDS and rounded(intent.asic, value, found):
        return True
    return same(leaf, value, found)


def _contradicts(intent: SwitchIntent, path: Path, value: Any, running: Tree) -> bool:
    """Whether the switch does something else. What it does not report contradicts nothing."""
    leaf, found = path[-1], at(running, *path)
    if value == {}:
        among = objects_at(running, *path[:-1])
        return bool(among) and leaf not in among
    if value is None:
        value = _NOTHING_ELSE_THAN.get(leaf)
    if value is None or found is None:
        return False
    if not _understood(leaf, value, found):
        return False
    return not same(leaf, value, found) and not (
        leaf in THRESHOLDS and rounded(intent.asic, value, found)
    )


def _understood(leaf: str, value: Any, found: Any) -> bool:
    """Whether it is written as in a configuration. Much is worded for people: 1.43 MB, pcp,dscp."""
    if isinstance(value, int):
        return number(found) is not None
    if is_switch(leaf, value):
        return is_switch(leaf, found)
    return leaf not in _WORDS or str(found) in _WORDS[leaf]


def _check_ports(intent: SwitchIntent, present: Present) -> None:
    missing = [port.name for port in intent.ports if port.name not in present.ports]
    if missing:
        raise SwitchError(
            f"{intent.name}: the switch has no port {some(missing, 8)}. Correct the model, or the "
            "breakout of the switch's ports."
        )
    bonded = {
        member: bond
        for bond, settings in present.explicit.get("interface", {}).items()
        for member in expanded(objects_at(settings, "bond", "member"))
    }
    for port in intent.ports:
        if port.name in bonded:
            raise SwitchError(
                f"{intent.name}: {port.name} belongs to {bonded[port.name]}, and has the MTU of "
                "that. A rail is one link: take the port out of the bond, or out of the model."
            )


def _shown(value: Any) -> Any:
    return "set" if value == {} else value


def _lines(path: Path, value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [f"nv set {words((*path, *rest), end)}" for rest, end in ends(value)]
    return [f"nv set {words(path, value)}"]


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences between desired and current configuration, limited to lines that the collection owns.

These are objects whose name begins with OWNED; on ports in the model, the lines that affect the
contract; the map of all DSCPs, the queues of the contract's classes, and SWITCH_WIDE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ....module_utils.core.text import some
from ...answers import amount, mapping
from .. import system
from ..port_order import PortRow, check_order
from ..systems import SYSTEMS
from . import QUEUE as QUEUE_KEY
from . import QUEUES
from .reading import Present
from .render import EosConfiguration, with_queue
from .settings import (
    CHANNEL_GROUP,
    DEFAULTS_MTU,
    DSCP,
    FLOWCONTROL,
    HEADROOM,
    INTERFACE,
    MMU_APPLIED,
    MMU_PROFILE,
    MTU,
    PFC_ALL_OFF,
    PROFILE,
    QUEUE,
    REWRITE_DSCP,
    SERVICE_PROFILE,
    SWITCH_WIDE,
    TRAFFIC_CLASS,
    WATCHDOG,
    WATCHDOG_POLLING,
    Path,
    Settings,
    default_mtu,
    default_of,
    headroom_of,
    meaning,
    read_settings,
)

OVERRIDING = (
    "qos trust",
    "priority-flow-control",
    "priority-flow-control priority",
    WATCHDOG,
    "service-policy type qos input",
)
"""Lines of an interface that override its profile."""
OVERRIDING_QUEUE = (
    "priority",
    "bandwidth percent",
    "bandwidth guaranteed",
    "random-detect ecn",
    "random-detect drop",
)


@dataclass(frozen=True)
class Item:
    path: Path
    found: Optional[str]
    wanted: Optional[str]


def compare(wanted: EosConfiguration, found: Settings) -> list[Item]:
    """Differences in a stable order: as in the desired configuration, then removals."""
    new = {path[0] for path in wanted.settings if is_object(path) and path not in found}
    items = [
        Item(path, found.get(path), line)
        for path, line in wanted.settings.items()
        if meaning(path, found.get(path)) != meaning(path, line) or _is_written_out(path, new)
    ]
    if [item.path for item in items] == [(WATCHDOG_POLLING,)] and items[0].found is None:
        # EOS omits the default, which polls at least twice within the shorter of the times; those
        # are as desired.
        items = []
    left, bundled = _left(wanted, found), _bundled(found)
    items += [
        Item(path, line, None)
        for path, line in found.items()
        if path not in wanted.settings
        and path[0] not in bundled
        and meaning(path, line) is not None
        and (path in left or _is_ours(path, line, wanted))
    ]
    return items


def _left(wanted: EosConfiguration, found: Settings) -> set[Path]:
    """MTU lines of ports that left the model and still have the contract's value and profile."""
    set_here = {line for path, line in wanted.settings.items() if is_mtu(path)}
    bound = {
        path[0]
        for path, line in found.items()
        if path[1:] == (SERVICE_PROFILE,) and line.split()[-1].startswith(system.OWNED)
    }
    paths = ((block, MTU) for block in bound if port_of((block,)) not in wanted.ports)
    return {path for path in paths if found.get(path) in set_here}


def _bundled(found: Settings) -> set[str]:
    """Port channels and their members, which the operator configures, whatever their profile."""
    channel = f"{INTERFACE}Port-Channel"
    return {p[0] for p in found if p[0].startswith(channel) or p[1:] == (CHANNEL_GROUP,)}


def _is_written_out(path: Path, new: set[str]) -> bool:
    """Whether the line belongs to a new profile, for which even defaults are typed."""
    return path[0] in new or (
        f"{PROFILE}{system.OWNED}" in new and path[0].startswith(TRAFFIC_CLASS)
    )


def is_object(path: Path) -> bool:
    return len(path) == 1 and path[0].startswith((PROFILE, MMU_PROFILE)) and path != MMU_APPLIED


def _is_ours(path: Path, line: str, wanted: EosConfiguration) -> bool:
    block = path[0]
    if block in SWITCH_WIDE:
        return True
    if path == MMU_APPLIED:
        return line[len(MMU_PROFILE) :].startswith(system.OWNED)
    for kind in (PROFILE, MMU_PROFILE):
        if block.startswith(kind):
            # Other lines that divide the buffers belong to the operator.
            set_here = len(path) == 1 or kind == PROFILE or path[1] == HEADROOM
            return set_here and block[len(kind) :].startswith(system.OWNED)
    if not block.startswith(INTERFACE):
        return False
    if block[len(INTERFACE) :] in wanted.ports:
        return _overrides(path) and not _repeats(path, line, wanted)
    return path[1] == SERVICE_PROFILE and line.split()[-1].startswith(system.OWNED)


def _overrides(path: Path) -> bool:
    if QUEUE.match(path[1]):
        return not path[1].startswith("mc-") and path[2] in OVERRIDING_QUEUE
    return any(path[1] == word or path[1].startswith(f"{word} ") for word in OVERRIDING)


def _repeats(path: Path, line: str, wanted: EosConfiguration) -> bool:
    of_profile = (f"{PROFILE}{system.OWNED}", *path[1:])
    desired = wanted.settings.get(of_profile)
    return desired is not None and meaning(of_profile, desired) == meaning(of_profile, line)


def port_of(path: Path) -> str:
    return path[0][len(INTERFACE) :] if path[0].startswith(INTERFACE) else ""


def is_mtu(path: Path) -> bool:
    return bool(port_of(path)) and path[1:] == (MTU,)


def commands(items: Sequence[Item]) -> list[str]:
    """Lines in order: objects, lines that refer to them, removal of unused objects."""
    gone = {item.path[0] for item in items if is_object(item.path) and item.wanted is None}
    applied = [item for item in items if item.path == MMU_APPLIED]
    kept = [item for item in items if item.path[0] not in gone and item.path != MMU_APPLIED]
    ports = [item for item in kept if item.path[0].startswith(INTERFACE)]
    objects = [item for item in kept if item.path[0].startswith((PROFILE, MMU_PROFILE))]
    blocks = (INTERFACE, PROFILE, MMU_PROFILE)
    rest = [item for item in kept if not item.path[0].startswith(blocks)]
    lines = [*_blocks(objects), *_top(rest), *_blocks(ports), *_top(applied)]
    return lines + [f"no {header}" for header in sorted(gone)]


def _top(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if item.path == (WATCHDOG_POLLING,) and item.found:
            # EOS caps it at half of the other times, which this change may shorten.
            yield undo(item.found)
    # A map is reset by typing its default, because such lines can be grouped, unlike those with
    # `no`.
    yield from grouped(
        item.wanted or default_of(item.path) or undo(item.found or "") for item in items
    )


def grouped(lines: Iterable[str]) -> Iterator[str]:
    """Join lines that map one DSCP each, as EOS shows them."""
    together: dict[str, list[str]] = {}
    others = []
    for line in lines:
        if line.startswith(DSCP):
            dscp, _to, target = line[len(DSCP) :].partition(" to ")
            together.setdefault(target, []).append(dscp)
        else:
            others.append(line)
    for target, dscps in together.items():
        yield f"{DSCP}{' '.join(sorted(dscps, key=int))} to {target}"
    yield from others


def _blocks(items: Sequence[Item]) -> Iterator[str]:
    for header in dict.fromkeys(item.path[0] for item in items):
        yield header
        within = [item for item in items if item.path[0] == header and len(item.path) > 1]
        yield from _lines([item for item in within if not QUEUE.match(item.path[1])])
        for queue in dict.fromkeys(item.path[1] for item in within if QUEUE.match(item.path[1])):
            yield queue
            yield from _lines([item for item in within if item.path[1] == queue])
            yield "exit"
        yield "exit"


def _lines(items: Sequence[Item]) -> Iterator[str]:
    yield from (undo(item.found or "") for item in items if item.wanted is None)
    yield from (item.wanted for item in items if item.wanted is not None)


def undo(line: str) -> str:
    if line.startswith("no "):
        return f"default {line[3:]}"
    if line.startswith(TRAFFIC_CLASS):
        return f"no {line.rpartition(' ')[0]}"
    return f"no {line}"


def as_text(items: Sequence[Item], side: str) -> str:
    """One side of the items as lines with their block, for a unified diff."""
    lines = []
    for item in items:
        line = getattr(item, side) or default_of(item.path)
        if line is not None:
            block = " ".join(item.path[:-1])
            lines.append(f"{block}: {line}" if block else line)
    return "".join(f"{line}\n" for line in grouped(lines))


def _table(
    intent: system.SwitchIntent, interfaces: Mapping[str, Mapping[str, Any]]
) -> Iterator[PortRow]:
    """Ports of the front, which exist for lanes that another port uses too. Only of connected ones
    is it certain which lanes they use."""
    naming = SYSTEMS[intent.system].naming
    places = {name: place for name in interfaces if (place := naming.lanes(name, 1)) is not None}
    users: dict[tuple[int, int], str] = {}
    for name, shown in interfaces.items():
        status = mapping(shown)
        gbps = int(amount(status.get("bandwidth"), 1e15) or 0) // 10**9
        if status.get("linkStatus") == "connected" and gbps:
            front, lanes = naming.lanes(name, intent.asic.fewest_lanes(gbps)) or (0, range(0))
            users.update(((front, lane), name) for lane in lanes)
    for name, (front, lanes) in places.items():
        user = users.get((front, lanes.start), name)
        yield PortRow(name, front, used_by="" if user == name else user)


def difference(
    intent: system.SwitchIntent, wanted: EosConfiguration, present: Present
) -> system.Difference:
    found = read_settings(present.running)
    groups = {
        port_of(path): f"Port-Channel{line.split()[1]}"
        for path, line in found.items()
        if port_of(path) and path[1] == CHANNEL_GROUP
    }
    system.check_ports(intent, present.interfaces, groups)
    check_order(intent, _table(intent, present.interfaces))
    pausing = {
        port_of(path)
        for path, line in found.items()
        if line.startswith(f"{FLOWCONTROL} ") and line.split()[-1] in ("on", "desired")
    }
    paused = [port for port in wanted.ports if port in pausing]
    if paused:
        raise system.SwitchError(
            f"{intent.name}: {some(paused, 8)} pauses every class of the link "
            "(`flowcontrol`): `no flowcontrol receive`, `no flowcontrol send`."
        )
    word = present.queue or intent.asic.options.get(QUEUE_KEY)
    if not word:
        chip = intent.asic.name or "<chip>"
        raise system.SwitchError(
            f"{intent.name}: `show running-config all | include tx-queue` shows no name of "
            f"unicast queues. Write asics: {{{chip}: {{{QUEUE_KEY}: "
            f"{' or '.join(QUEUES)}}}}}, as `qos map traffic-class 0 to ?` has it on the switch"
        )
    wanted = _with_operators_buffers(with_queue(intent, word, present.mapped), found)
    items = shown = compare(wanted, _with_mtu(wanted, found))
    changes = tuple(_changes(items))
    if not items and not present.unconfirmed:
        shown = compare(wanted, _with_mtu(wanted, read_settings(present.startup)))
        if shown:
            changes = (system.Change("startup-config", "not saved", "as running-config"),)
    before, after = as_text(shown, "found"), as_text(shown, "wanted")
    # Without lines to type, the configuration only needs to be saved.
    return system.Difference(changes, _impact(items, wanted), before, after, tuple(commands(items)))


def _with_mtu(wanted: EosConfiguration, found: Settings) -> Settings:
    """Add the MTU that ports inherit from `interface defaults`."""
    if DEFAULTS_MTU not in found:
        return found
    line = f"{MTU} {default_mtu(found)}"
    return {**{(f"{INTERFACE}{port}", MTU): line for port in wanted.ports}, **found}


def _with_operators_buffers(wanted: EosConfiguration, found: Settings) -> EosConfiguration:
    """Respect a buffer profile applied by the operator, since a switch has only one.

    A profile with at least the contract's headroom stays applied. Otherwise the collection's
    profile takes over its other lines, such as `ingress threshold`.
    """
    ours = f"{MMU_PROFILE}{system.OWNED}"
    needed = headroom_of(wanted.settings.get((ours, HEADROOM), ""))
    applied = found.get(MMU_APPLIED, "").rpartition(" apply")[0]
    if needed is None or not applied or applied.startswith(ours):
        return wanted
    settings = dict(wanted.settings)
    if (headroom_of(found.get((applied, HEADROOM), "")) or 0) >= needed:
        for path in ((ours,), (ours, HEADROOM), MMU_APPLIED):
            del settings[path]
    else:
        kept = [path for path in found if path[0] == applied and path[1:] not in ((), (HEADROOM,))]
        settings.update({(ours, *path[1:]): found[path] for path in kept})
    return replace(wanted, settings=settings)


def _changes(items: Sequence[Item]) -> Iterator[system.Change]:
    removed = {item.path[0] for item in items if len(item.path) == 1 and item.wanted is None}
    for item in items:
        if len(item.path) == 1 or item.path[0] not in removed:
            found = item.found or default_of(item.path)
            yield system.Change(" ".join(item.path), found, item.wanted)


_PARTS = {
    DSCP: system.DSCP_MAP,
    REWRITE_DSCP: system.DSCP_MAP,
    TRAFFIC_CLASS: system.QUEUE_MAP,
    WATCHDOG: system.WATCHING,
    "priority": system.SHARES,
    "bandwidth": system.SHARES,
    "random-detect": system.MARKING,
}
"""Part of the contract by the start of a line of the switch or of a queue."""


def _part_of(path: Path) -> str:
    line = path[-1] if len(path) == 1 or QUEUE.match(path[1]) else ""
    return next((part for start, part in _PARTS.items() if line.startswith(start)), "")


def _impact(items: Sequence[Item], wanted: EosConfiguration) -> system.Impact:
    losses = []
    blocks = {item.path[0] for item in items}
    changing = {_part_of(item.path) for item in items}
    losses += [
        f"{system.UNDER_TRAFFIC[part]}, for ports outside the model too"
        for part in (system.DSCP_MAP, system.QUEUE_MAP)
        if part in changing
    ]
    losses += [
        system.UNDER_TRAFFIC[part] for part in (system.SHARES, system.MARKING) if part in changing
    ]
    if system.WATCHING in changing:
        losses.append(system.UNDER_TRAFFIC[system.WATCHING].format("every port"))
    if any(block == PFC_ALL_OFF for block in blocks):
        losses.append("PFC changes for every port of the switch")
    if any(block.startswith(MMU_PROFILE) for block in blocks):
        losses.append(
            "the buffers of the whole switch are divided again: every port can lose packets; the "
            "duration is not documented"
        )
    new_profile = [
        port_of(item.path) for item in items if port_of(item.path) and not is_mtu(item.path)
    ]
    if any(len(item.path) > 1 and item.path[0].startswith(PROFILE) for item in items):
        new_profile += wanted.ports
    if new_profile:
        losses.append(
            f"PFC and queues change on {system.named_ports(new_profile)}: packets can be lost for "
            "a moment"
        )
    new_mtu = [port_of(item.path) for item in items if is_mtu(item.path)]
    if new_mtu:
        losses.append(
            f"the MTU of {system.named_ports(new_mtu)} changes: longer packets are dropped until "
            "the other end has it too. Whether the link goes down is not documented"
        )
    return system.Impact(losses=tuple(losses))

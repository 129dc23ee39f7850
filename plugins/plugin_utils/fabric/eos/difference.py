# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs on a switch, what it costs to change it, and the lines that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....module_utils.core.dataclass import dataclass
from ..intent import SwitchIntent
from ..system import Change, Difference, Impact, SwitchError
from .compare import Item, compare, is_mtu, is_object, port_of
from .present import Present
from .render import Wanted
from .settings import (
    CHANNEL_GROUP,
    DSCP,
    FLOWCONTROL,
    INTERFACE,
    MMU_APPLIED,
    MMU_PROFILE,
    PROFILE,
    QUEUE,
    REWRITE_DSCP,
    TRAFFIC_CLASS,
    WATCHDOG,
    WATCHDOG_POLLING,
    Path,
    default_of,
    read_settings,
)

# What has to be typed in a configuration session so that what differs no longer does.


INDENT = "   "


def commands(items: Sequence[Item]) -> list[str]:
    """Objects first, then who refers to them, then what nobody refers to any longer."""
    gone = {item.path[0] for item in items if is_object(item.path) and item.wanted is None}
    applied = [item for item in items if item.path == MMU_APPLIED]
    kept = [item for item in items if item.path[0] not in gone and item.path != MMU_APPLIED]
    ports = [item for item in kept if item.path[0].startswith(INTERFACE)]
    objects = [item for item in kept if item.path[0].startswith((PROFILE, MMU_PROFILE))]
    blocks = (INTERFACE, PROFILE, MMU_PROFILE)
    rest = [item for item in kept if not item.path[0].startswith(blocks)]
    lines = [*_blocks(objects), *_top(rest), *_blocks(ports), *_top(applied)]
    return lines + [f"no {header}" for header in sorted(gone)]


def _top(items: Iterable[Item]) -> Iterator[str]:
    items = list(items)
    for item in items:
        if item.path == (WATCHDOG_POLLING,) and item.found:
            # EOS never lets it be more than half of the times, which may just become shorter.
            yield undo(item.found)
    yield from grouped(_target(item) for item in items)


def _target(item: Item) -> str:
    """A map is set to its default by writing that out: the same as `no`, and it groups."""
    return item.wanted or default_of(item.path) or undo(item.found or "")


def grouped(lines: Iterable[str]) -> Iterator[str]:
    """Lines that map one DSCP each, joined as EOS shows them."""
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
    for header, block in _by_header(items).items():
        yield header
        within = [item for item in block if len(item.path) > 1]
        yield from _lines([item for item in within if not QUEUE.match(item.path[1])])
        for queue in dict.fromkeys(item.path[1] for item in within if QUEUE.match(item.path[1])):
            yield queue
            yield from _lines([item for item in within if item.path[1] == queue])
            yield "exit"
        yield "exit"


def _by_header(items: Iterable[Item]) -> dict[str, list[Item]]:
    blocks: dict[str, list[Item]] = {}
    for item in items:
        blocks.setdefault(item.path[0], []).append(item)
    return blocks


def _lines(items: Sequence[Item]) -> Iterator[str]:
    yield from (undo(item.found or "") for item in items if item.wanted is None)
    yield from (item.wanted for item in items if item.wanted is not None)


def undo(line: str) -> str:
    """What takes a line out of the configuration."""
    if line.startswith("no "):
        return f"default {line[3:]}"
    if line.startswith(TRAFFIC_CLASS):
        return f"no {line.rpartition(' ')[0]}"
    return f"no {line}"


def as_text(items: Sequence[Item]) -> str:
    """The found side of items as EOS would show it, for a unified diff."""
    there = [item for item in items if item.found is not None]
    top = [
        item.found or default_of(item.path) or ""
        for item in items
        if len(item.path) == 1 and not is_object(item.path)
    ]
    lines = list(grouped(line for line in top if line))
    for header, block in _by_header(item for item in there if _is_block(item.path)).items():
        lines += ["!", header]
        within = [item for item in block if len(item.path) > 1]
        queue = ""
        for item in within:
            if len(item.path) > 2 and item.path[1] != queue:
                queue = item.path[1]
                lines += [f"{INDENT}!", f"{INDENT}{queue}"]
            lines.append(INDENT * (len(item.path) - 1) + (item.found or ""))
    return "".join(f"{line}\n" for line in lines)


def _is_block(path: Path) -> bool:
    return len(path) > 1 or is_object(path)


SHOWN = 8
"""Ports that a message names before it counts."""


@dataclass(frozen=True)
class Steps:
    lines: tuple[str, ...]
    """To be typed in a session. Empty: all is in force, and only not saved."""
    undo: tuple[str, ...]
    """Lines that bring back what was there, for when the session itself can no longer."""


def difference(intent: SwitchIntent, wanted: Wanted, present: Present) -> Difference:
    missing = [port for port in wanted.ports if port not in present.interfaces]
    if missing:
        raise SwitchError(
            f"{intent.name} has no port {_names(missing)}. Break the ports out as the model says, "
            "or write their names into the model (leaves.ports, spines.ports)."
        )
    found = read_settings(present.running)
    bundled = [port for port in wanted.ports if (f"{INTERFACE}{port}", CHANNEL_GROUP) in found]
    if bundled:
        raise SwitchError(
            f"{intent.name}: {_names(bundled)} belongs to a port channel (`channel-group`), and "
            "EOS takes QoS from that. A rail is one link: take it out of the port channel."
        )
    pausing = {port_of(path) for path, line in found.items() if _is_link_pause(line)}
    paused = [port for port in wanted.ports if port in pausing]
    if paused:
        raise SwitchError(
            f"{intent.name}: {_names(paused)} pauses the whole link (`flowcontrol`), and so every "
            "class of it, with PFC or in its place. Take it out of the port: `no flowcontrol "
            "receive`, `no flowcontrol send`."
        )
    items = compare(wanted, found)
    changes = tuple(_changes(items))
    before, after = as_text(items), as_text([item.reversed() for item in items])
    if not items and not present.unconfirmed:
        unsaved = compare(wanted, read_settings(present.startup))
        if unsaved:
            changes = (Change("startup-config", "not saved", "as running-config"),)
            before = as_text(unsaved)
            after = as_text([item.reversed() for item in unsaved])
    steps = Steps(
        tuple(commands(items)), tuple(commands([item.reversed() for item in reversed(items)]))
    )
    return Difference(changes, _impact(items, wanted), before, after, steps)


def _is_link_pause(line: str) -> bool:
    return line.startswith(f"{FLOWCONTROL} ") and line.split()[-1] in ("on", "desired")


def _changes(items: Sequence[Item]) -> Iterator[Change]:
    removed = {item.path[0] for item in items if len(item.path) == 1 and item.wanted is None}
    for path, found, wanted in _grouped_maps(items):
        yield Change(path, found, wanted)
    for item in items:
        if item.path[0].startswith(DSCP) or (len(item.path) > 1 and item.path[0] in removed):
            continue
        yield Change(" ".join(item.path), item.found, item.wanted)


def _grouped_maps(items: Sequence[Item]) -> Iterator[tuple[str, str, str]]:
    """DSCPs that go from one class to another together are one change."""
    ways: dict[tuple[str, str], list[str]] = {}
    for item in items:
        if item.path[0].startswith(DSCP):
            now = (item.found or default_of(item.path) or "").partition(" to ")[2]
            then = (item.wanted or "").partition(" to ")[2]
            ways.setdefault((now, then), []).append(item.path[0])
    for (now, then), paths in ways.items():
        (together,) = grouped(f"{path} to x" for path in paths)
        yield together.partition(" to ")[0], now, then


def _impact(items: Sequence[Item], wanted: Wanted) -> Impact:
    """By rule: Arista documents for none of these changes how long it is felt."""
    losses = []
    blocks = {item.path[0] for item in items}
    if any(block.startswith((DSCP, TRAFFIC_CLASS, REWRITE_DSCP)) for block in blocks):
        losses.append(
            "the maps of the whole switch change, for ports outside the model too: packets can be "
            "sorted into the wrong queue for a moment"
        )
    if any(block.startswith("priority-flow-control") for block in blocks):
        losses.append(f"`{WATCHDOG}` and PFC change for every port of the switch")
    if any(block.startswith(MMU_PROFILE) for block in blocks):
        losses.append(
            "the buffers of the whole switch are divided anew: every port can lose packets, for "
            "how long EOS does not say"
        )
    new_profile = [
        port_of(item.path) for item in items if port_of(item.path) and not is_mtu(item.path)
    ]
    if any(len(item.path) > 1 and item.path[0].startswith(PROFILE) for item in items):
        new_profile += wanted.ports
    if new_profile:
        losses.append(
            f"PFC and queues are set anew on {_ports(new_profile)}: packets can be lost for a "
            "moment"
        )
    new_mtu = [port_of(item.path) for item in items if is_mtu(item.path)]
    if new_mtu:
        losses.append(
            f"the MTU of {_ports(new_mtu)} changes: longer packets are dropped until the other end "
            "has it too. Whether the link goes down for it EOS does not say"
        )
    return Impact(losses=tuple(losses))


def _ports(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    count = len(different)
    return f"{count} port{'s' if count > 1 else ''} ({_names(different)})"


def _names(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")

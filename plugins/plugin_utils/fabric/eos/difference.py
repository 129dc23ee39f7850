# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs on a switch, what it costs to change it, and the lines that do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....module_utils.dataclass import dataclass
from ....module_utils.fabric.intent import SwitchIntent
from ..system import Change, Difference, Impact, SwitchError
from .commands import as_text, commands, grouped
from .compare import Item, compare, is_mtu, port_of
from .present import Present
from .render import Wanted
from .settings import (
    CHANNEL_GROUP,
    DSCP,
    FLOWCONTROL,
    INTERFACE,
    MMU_PROFILE,
    PROFILE,
    REWRITE_DSCP,
    TRAFFIC_CLASS,
    WATCHDOG,
    default_of,
    read_settings,
)

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

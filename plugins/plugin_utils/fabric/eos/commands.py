# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What has to be typed in a configuration session so that what differs no longer does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .compare import Item, is_object
from .settings import (
    DSCP,
    INTERFACE,
    MMU_APPLIED,
    MMU_PROFILE,
    PROFILE,
    QUEUE,
    TRAFFIC_CLASS,
    WATCHDOG_POLLING,
    Path,
    default_of,
)

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

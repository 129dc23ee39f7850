# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs between the wanted configuration and one that was read, of what is ours to change.

Ours are: objects whose name begins with OWNED; on ports of the model the lines that keep or break
the contract; the map of all DSCPs, the queues of the contract's classes, and the few lines for the
whole switch that would undo it. Everything else is the operator's.
"""

from __future__ import annotations

from typing import Optional

from ....module_utils.core.dataclass import dataclass
from ..system import OWNED
from .render import Wanted
from .settings import (
    INTERFACE,
    MMU_APPLIED,
    MMU_PROFILE,
    MTU,
    PROFILE,
    QUEUE,
    SERVICE_PROFILE,
    SWITCH_WIDE,
    TRAFFIC_CLASS,
    WATCHDOG,
    WATCHDOG_POLLING,
    Path,
    Settings,
    meaning,
)

OVERRIDING = (
    "qos trust",
    "priority-flow-control",
    "priority-flow-control priority",
    WATCHDOG,
    "service-policy type qos input",
)
"""What an interface says itself comes before what its profile says."""
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

    def reversed(self) -> Item:
        return Item(self.path, self.wanted, self.found)


def compare(wanted: Wanted, found: Settings) -> list[Item]:
    """In a stable order: as the wanted configuration has it, then what goes."""
    new = {path[0] for path in wanted.settings if is_object(path) and path not in found}
    items = [
        Item(path, found.get(path), line)
        for path, line in wanted.settings.items()
        if meaning(path, found.get(path)) != meaning(path, line) or _is_written_out(path, new)
    ]
    if [item.path for item in items] == [(WATCHDOG_POLLING,)] and items[0].found is None:
        # EOS leaves its default out. The times themselves are right, and EOS never polls less
        # often than twice within the shorter of them.
        items = []
    items += [
        Item(path, line, None)
        for path, line in found.items()
        if path not in wanted.settings
        and meaning(path, line) is not None
        and _is_ours(path, line, wanted)
    ]
    return items


def _is_written_out(path: Path, new: set[str]) -> bool:
    """With a new profile every line is typed once, also what EOS is said to do by itself."""
    return path[0] in new or (f"{PROFILE}{OWNED}" in new and path[0].startswith(TRAFFIC_CLASS))


def is_object(path: Path) -> bool:
    """Whether it is an object with a name itself, not a line of it."""
    return len(path) == 1 and path[0].startswith((PROFILE, MMU_PROFILE)) and path != MMU_APPLIED


def _is_ours(path: Path, line: str, wanted: Wanted) -> bool:
    block = path[0]
    if block in SWITCH_WIDE:
        return True
    if path == MMU_APPLIED:
        return line[len(MMU_PROFILE) :].startswith(OWNED)
    for kind in (PROFILE, MMU_PROFILE):
        if block.startswith(kind):
            return block[len(kind) :].startswith(OWNED)
    if not block.startswith(INTERFACE):
        return False
    if block[len(INTERFACE) :] in wanted.ports:
        return _overrides(path) and not _says_the_same(path, line, wanted)
    return path[1] == SERVICE_PROFILE and line.split()[-1].startswith(OWNED)


def _overrides(path: Path) -> bool:
    if QUEUE.match(path[1]):
        return not path[1].startswith("mc-") and path[2] in OVERRIDING_QUEUE
    return any(path[1] == word or path[1].startswith(f"{word} ") for word in OVERRIDING)


def _says_the_same(path: Path, line: str, wanted: Wanted) -> bool:
    """What repeats the profile does no harm."""
    of_profile = (f"{PROFILE}{OWNED}", *path[1:])
    said = wanted.settings.get(of_profile)
    return said is not None and meaning(of_profile, said) == meaning(of_profile, line)


def port_of(path: Path) -> str:
    """Empty where the item is about no interface."""
    return path[0][len(INTERFACE) :] if path[0].startswith(INTERFACE) else ""


def is_mtu(path: Path) -> bool:
    return bool(port_of(path)) and path[1] == MTU

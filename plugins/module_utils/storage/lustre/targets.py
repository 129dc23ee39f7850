# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a client tells of the servers' targets: connections, room, quotas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from ...dataclass import dataclass
from . import block_yaml

FULL, IDLE = "FULL", "IDLE"
WELL = (FULL, IDLE)
"""An object target that nothing was asked of for a while is left, and connected when needed."""
INACTIVE = "inactive"
EVICTED = "EVICTED"

REMEDIES = {
    INACTIVE: "somebody switched it off here (lctl set_param osc.*.active=0, or the mount option "
    "exclude): switch it on again, or take the target out of the file system",
    EVICTED: "the servers ended this client, and what programs had not written is lost: see "
    "LustreError in dmesg, look at the network of the rails, and start the jobs anew",
    "DISCONN": "the client lost its server, and every access to it waits: is the server up "
    "(lctl ping NID), and the target mounted on it or on its partner",
    "CONNECTING": "it is being connected, and jobs wait meanwhile. If it stays so, its server is "
    "down, or in none of this node's networks of LNet",
    "NEW": "it was never connected: is its server up, and the target mounted there",
    "CLOSED": "the connection was closed: unmount and mount the file system",
}
_RECOVERING = "the server recovers its clients, and jobs wait until it is through (minutes at most)"
_PARAMETER = re.compile(r"^(?P<name>\S+?)\.(?P<what>import|state)=\s*$", re.MULTILINE)
_EVENT = re.compile(r"\[\s*(\d+),\s*([A-Z_]+)\s*\]")
_CHECKED = re.compile(r"check '?(?P<name>[^'\s:]+)'?: (?P<why>.+)$")


@dataclass(frozen=True)
class Import:
    """A connection of this client to one target."""

    name: str
    target: str
    """`lustre-OST0003`; `MGS` of the management service."""
    state: str
    connection: str = ""
    """NID of the server that was spoken to last."""
    inactive: bool = False

    @property
    def trouble(self) -> str:
        """What is wrong; empty where nothing is."""
        if self.inactive:
            return INACTIVE
        return "" if self.state in WELL else self.state

    @property
    def remedy(self) -> str:
        return REMEDIES.get(self.trouble, _RECOVERING)

    @property
    def found(self) -> str:
        return f"{self.trouble} ({self.connection})" if self.connection else self.trouble


def read_imports(text: str) -> list[Import]:
    """Of `lctl get_param *.*.import`."""
    found = []
    for _name, chunk in _parameters(text, "import"):
        tree = block_yaml.load(chunk)
        told = tree.get("import") if isinstance(tree, dict) else None
        if not isinstance(told, dict) or not told.get("state"):
            continue
        connection = told.get("connection")
        nid = connection.get("current_connection") if isinstance(connection, dict) else ""
        flags = told.get("import_flags")
        found.append(
            Import(
                str(told.get("name") or ""),
                str(told.get("target") or "").removesuffix("_UUID"),
                str(told["state"]),
                "" if nid in (None, "<none>") else str(nid),
                isinstance(flags, list) and "deactive" in flags,
            )
        )
    return found


def read_evictions(text: str) -> dict[str, int]:
    """Of `lctl get_param *.*.state`: name of the connection to the time of its last eviction."""
    found = {}
    for name, chunk in _parameters(text, "state"):
        times = [int(time) for time, state in _EVENT.findall(chunk) if state == EVICTED]
        if times:
            found[name.partition(".")[2]] = max(times)
    return found


def read_check(stdout: str, stderr: str) -> dict[str, str]:
    """Of `lfs check servers`: target to what is wrong with it."""
    found = {}
    for line in f"{stdout}\n{stderr}".splitlines():
        name, _blank, state = line.strip().rpartition(" ")
        failed = _CHECKED.search(line)
        if failed is not None:
            found[target_of(failed["name"])] = failed["why"].strip()
        elif state.rstrip(".") == INACTIVE and name:
            found[target_of(name)] = INACTIVE
    return found


def target_of(device: str) -> str:
    """`lustre-OST0003` of `lustre-OST0003-osc-ffff9c5c`."""
    matched = re.match(r"(.+-(?:OST|MDT)[0-9a-f]{4})-", device)
    return matched[1] if matched else device


def file_system_of(target: str) -> str:
    """`lustre` of `lustre-OST0003`; empty for the management service."""
    matched = re.match(r"(.+)-(?:OST|MDT)[0-9a-f]{4}$", target)
    return matched[1] if matched else ""


@dataclass(frozen=True)
class Room:
    target: str
    used_percent: int


def read_df(text: str) -> list[Room]:
    """Of `lfs df`, a line per target; those that do not answer have other lines."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 6 or not words[0].endswith("_UUID") or not words[4].endswith("%"):
            continue
        numbers = words[1:4]
        if not all(number.isdigit() for number in numbers):
            continue
        used, free = int(numbers[1]), int(numbers[2])
        # As df does: of what anybody but root may have.
        percent = -(-100 * used // (used + free)) if used + free else 0
        found.append(Room(words[0].removesuffix("_UUID"), percent))
    return found


@dataclass(frozen=True)
class Quota:
    """`over`: what is beyond a limit; empty where nothing is."""

    over: tuple[str, ...] = ()


def read_quota(text: str) -> Optional[Quota]:
    """Of `lfs quota -u USER MOUNT`; None where it tells none. A star marks what is beyond."""
    lines = text.splitlines()
    heads = [place for place, line in enumerate(lines) if line.split()[:1] == ["Filesystem"]]
    if not heads:
        return None
    words = " ".join(lines[heads[0] + 1 :]).split()[1:9]
    if len(words) < 8:
        return None
    over = []
    for what, place in (("KiB", 0), ("files", 4)):
        if words[place].endswith("*"):
            used, soft, hard = (word.rstrip("*") for word in words[place : place + 3])
            over.append(f"{used} {what} (quota {soft}, limit {hard}, grace {words[place + 3]})")
    return Quota(tuple(over))


def _parameters(text: str, what: str) -> Iterable[tuple[str, str]]:
    """Name and value of each parameter that lctl printed."""
    starts: Sequence[Any] = list(_PARAMETER.finditer(text))
    for place, start in enumerate(starts):
        if start["what"] == what:
            end = starts[place + 1].start() if place + 1 < len(starts) else len(text)
            yield start["name"], text[start.end() : end]

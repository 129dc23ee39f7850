# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a configuration sets of all that the contract is about: one line per thing that is set.

Wanted and present configuration are read by the same code, so that neither the order of lines, nor
how EOS groups DSCPs, nor how it writes a number makes a difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from ...qos.contract import DSCPS

BANNER_END = "EOF"

Path = tuple[str, ...]
"""Where a line stands and what it sets: `("interface Ethernet1/1", "mtu")`."""
Settings = dict[Path, str]
"""Lines by what they set, in the order of the configuration."""

PROFILE, INTERFACE = "qos profile ", "interface "
MMU_PROFILE = "platform trident mmu queue profile "
MMU_APPLIED: Path = ("platform trident mmu queue profile applied",)
HEADROOM, THRESHOLD = "ingress headroom", "ingress threshold"
DEFAULTS_MTU: Path = ("interface defaults", "mtu")
"""The MTU of ports that have no line of their own."""
DSCP, TRAFFIC_CLASS = "qos map dscp ", "qos map traffic-class "
PFC_ALL_OFF = "priority-flow-control all off"
REWRITE_DSCP = "qos rewrite dscp"
WATCHDOG = "priority-flow-control pause watchdog"
WATCHDOG_TIMEOUT = f"{WATCHDOG} default timeout"
WATCHDOG_RECOVERY = f"{WATCHDOG} default recovery-time"
WATCHDOG_POLLING = f"{WATCHDOG} default polling-interval"
WATCHDOG_ACTION = f"{WATCHDOG} action"

SWITCH_WIDE = (
    REWRITE_DSCP,
    PFC_ALL_OFF,
    WATCHDOG_TIMEOUT,
    WATCHDOG_RECOVERY,
    WATCHDOG_POLLING,
    WATCHDOG_ACTION,
)
"""Lines of the whole switch that keep or break the contract. Others are the operator's."""

FLOWCONTROL = "flowcontrol"
SERVICE_PROFILE, MTU, CHANNEL_GROUP = "service-profile", "mtu", "channel-group"

_WORDS = (
    "qos trust",
    "qos cos",
    "qos dscp",
    "shape rate",
    f"{WATCHDOG} port timer",
    f"{WATCHDOG} port action",
    WATCHDOG,
    "service-policy type qos input",
    "bandwidth guaranteed",
    "bandwidth percent",
    "random-detect ecn count",
    "random-detect ecn",
    "random-detect drop",
    "priority-flow-control priority",
    "priority-flow-control",
    "priority",
    SERVICE_PROFILE,
    MTU,
    HEADROOM,
    THRESHOLD,
    CHANNEL_GROUP,
)
"""What a line sets, longest first where one begins with another; the rest of it is the value."""

QUEUE = re.compile(r"(uc-|mc-)?tx-queue \d+$")
_DSCP_MAP = re.compile(r"qos map dscp ([\d ,-]+) to traffic-class (\d+(?: drop-precedence \d+)?)$")
_CLASS_MAP = re.compile(r"qos map traffic-class ([\d ,-]+) to ((?:uc-)?tx-queue \d+)$")
_PFC_PRIORITY = re.compile(r"priority-flow-control priority (\d)\b")
_ECN = re.compile(
    r"random-detect ecn minimum-threshold (\d+) (\w+) maximum-threshold (\d+) (\w+)"
    r"(?: max-mark-probability (\d+))?(?: weight (\d+))?$"
)
_HEADROOM = re.compile(rf"{HEADROOM} (?:bytes )?(\d+)$")
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
_NUMBER = re.compile(r"\d+(\.\d+)?")

LONGEST_LINE = 1000
"""Of a setting; longer ones are no lines of QoS."""

UNITS = {"bytes": 1, "kbytes": 1000, "mbytes": 1_000_000}
"""Thresholds are also in `segments`, whose size differs from chip to chip."""

DEFAULT_MTU = 1500


def read_settings(configuration: str) -> Settings:
    """What is indented below a line belongs to it. The text of a banner is not configuration."""
    settings: Settings = {}
    blocks: list[tuple[int, str]] = []
    in_banner = False
    for raw in configuration.splitlines():
        text = raw.strip()
        if in_banner:
            in_banner = text != BANNER_END
            continue
        in_banner = raw.startswith("banner ")
        if not text or text.startswith("!") or raw == "end" or len(text) > LONGEST_LINE:
            continue
        indent = len(raw) - len(raw.lstrip())
        while blocks and blocks[-1][0] >= indent:
            blocks.pop()
        settings.update(_settings_of(tuple(block for _indent, block in blocks), text))
        blocks.append((indent, text))
    return settings


def _settings_of(above: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Of one line below others."""
    if above:
        own = above[0].startswith((PROFILE, MMU_PROFILE, INTERFACE))
        if own and all(map(QUEUE.match, above[1:])) and not QUEUE.match(text):
            yield (*above, subject_of(text)), text
    elif text.startswith((PROFILE, MMU_PROFILE)):
        yield MMU_APPLIED if text.endswith(" apply") else (text,), text
    elif text.startswith((DSCP, TRAFFIC_CLASS)):
        yield from _map(text)
    else:
        for word in SWITCH_WIDE:
            if text == word or text.startswith(f"{word} "):
                yield (word,), text


def _map(text: str) -> Iterator[tuple[Path, str]]:
    """A map line of many DSCPs or classes as one line for each."""
    for start, pattern in ((DSCP, _DSCP_MAP), (TRAFFIC_CLASS, _CLASS_MAP)):
        match = pattern.match(text)
        if match:
            target = "traffic-class " if start == DSCP else ""
            for number in _numbers(match[1]):
                yield (f"{start}{number}",), f"{start}{number} to {target}{match[2]}"


def _numbers(text: str) -> Iterator[int]:
    """Of a line of another form, those that are numbers."""
    for part in re.split(r"[ ,]+", text.strip()):
        match = _RANGE.fullmatch(part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            yield from range(first, min(last, DSCPS - 1) + 1)


def subject_of(text: str) -> str:
    """What a line of a block sets: `no qos trust` and `qos trust dscp` set the same."""
    bare = text[3:] if text.startswith("no ") else text
    priority = _PFC_PRIORITY.match(bare)
    if priority:
        return priority[0]
    for words in _WORDS:
        if bare == words or bare.startswith(f"{words} "):
            return words
    return bare


class Threshold(NamedTuple):
    """ECN marking of a queue. None: in a unit that is no number of bytes."""

    minimum_bytes: Optional[int]
    maximum_bytes: Optional[int]
    probability_percent: int
    weight: int


def ecn_of(text: str) -> Optional[Threshold]:
    """None where the line sets no thresholds."""
    match = _ECN.match(text)
    if match is None:
        return None
    low, high = (
        int(match[place]) * UNITS[match[place + 1]] if match[place + 1] in UNITS else None
        for place in (1, 3)
    )
    return Threshold(low, high, int(match[5] or 100), int(match[6] or 0))


def headroom_of(text: str) -> Optional[int]:
    """In bytes, which EOS may leave out: `ingress headroom 64000` (docs.habana.ai, switch
    configuration of Gaudi: 250 cells of 254 bytes). None for cells, and for any other line."""
    match = _HEADROOM.match(text)
    return int(match[1]) if match else None


def meaning(path: Path, text: Optional[str]) -> object:
    """What two lines have in common that set the same; None for what EOS does by itself.

    EOS leaves out of its running-config what is set to a default.
    """
    if text is None:
        return default_of(path)
    bare = " ".join(text.split())
    if path[0].startswith(TRAFFIC_CLASS):
        queue = queue_number(bare)
        return None if path[0] == f"{TRAFFIC_CLASS}{queue}" else queue
    if bare in ("priority strict", "no priority-flow-control", f"{WATCHDOG_ACTION} errdisable"):
        return None
    if path[-1] == MTU and bare == f"{MTU} {DEFAULT_MTU}":
        return None
    if path[0].startswith(WATCHDOG):
        return _NUMBER.sub(lambda number: f"{float(number[0]):g}", bare)
    threshold = ecn_of(bare)
    if threshold is not None and None not in threshold:
        return threshold
    room = headroom_of(bare)
    return bare if room is None else (HEADROOM, room)


def default_of(path: Path) -> Optional[str]:
    """EOS's default map, the same on all its platforms."""
    if path[0].startswith(DSCP):
        dscp = int(path[0][len(DSCP) :])
        traffic_class = {0: 1, 1: 0}.get(dscp // 8, dscp // 8)
        return f"{DSCP}{dscp} to traffic-class {traffic_class}"
    return None


def default_mtu(settings: Settings) -> int:
    """Of a port of this switch without a line for it."""
    words = settings.get(DEFAULTS_MTU, "").split()
    return int(words[1]) if len(words) == 2 and words[1].isdecimal() else DEFAULT_MTU


def queue_number(text: str) -> int:
    return int(text.rsplit(" ", 1)[1])

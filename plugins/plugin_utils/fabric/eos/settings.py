# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parse the settings of a configuration, desired or current, that concern the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from ...qos.contract import DSCPS

Path = tuple[str, ...]
"""Block and subject of a line: `("interface Ethernet1/1", "mtu")`."""
Settings = dict[Path, str]

PROFILE, INTERFACE = "qos profile ", "interface "
MMU_PROFILE = "platform trident mmu queue profile "
MMU_APPLIED: Path = ("platform trident mmu queue profile applied",)
HEADROOM, THRESHOLD = "ingress headroom", "ingress threshold"
DEFAULTS_MTU: Path = ("interface defaults", "mtu")
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
"""Switch-wide lines that affect the contract. Others belong to the operator."""

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
"""Subjects of lines, longest first; the rest of a line is the value."""

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

MAX_LINE = 1000
"""Longer lines do not concern QoS."""

UNITS = {"bytes": 1, "kbytes": 1000, "mbytes": 1_000_000}
"""Thresholds may also be in `segments`, whose size depends on the chip."""

DEFAULT_MTU = 1500


def read_settings(configuration: str) -> Settings:
    """Parse a configuration: indented lines belong to the line above, and banners are skipped."""
    settings: Settings = {}
    blocks: list[tuple[int, str]] = []
    in_banner = False
    for raw in configuration.splitlines():
        text = raw.strip()
        if in_banner:
            in_banner = text != "EOF"
            continue
        in_banner = raw.startswith("banner ")
        if not text or text.startswith("!") or raw == "end" or len(text) > MAX_LINE:
            continue
        indent = len(raw) - len(raw.lstrip())
        while blocks and blocks[-1][0] >= indent:
            blocks.pop()
        settings.update(_settings_of(tuple(block for _indent, block in blocks), text))
        blocks.append((indent, text))
    return settings


def _settings_of(above: Path, text: str) -> Iterator[tuple[Path, str]]:
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
    """Split a map line of several DSCPs or classes into one line for each."""
    for start, pattern in ((DSCP, _DSCP_MAP), (TRAFFIC_CLASS, _CLASS_MAP)):
        match = pattern.match(text)
        if match:
            target = "traffic-class " if start == DSCP else ""
            for number in _numbers(match[1]):
                yield (f"{start}{number}",), f"{start}{number} to {target}{match[2]}"


def _numbers(text: str) -> Iterator[int]:
    """The numbers in a list; other parts are ignored."""
    for part in re.split(r"[ ,]+", text.strip()):
        match = _RANGE.fullmatch(part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            yield from range(first, min(last, DSCPS - 1) + 1)


def subject_of(text: str) -> str:
    """The same for `no qos trust` and `qos trust dscp`."""
    bare = text[3:] if text.startswith("no ") else text
    priority = _PFC_PRIORITY.match(bare)
    if priority:
        return priority[0]
    for words in _WORDS:
        if bare == words or bare.startswith(f"{words} "):
            return words
    return bare


class Threshold(NamedTuple):
    """ECN marking of a queue; None if the unit is not bytes."""

    minimum_bytes: Optional[int]
    maximum_bytes: Optional[int]
    probability_percent: int
    weight: int


def ecn_of(text: str) -> Optional[Threshold]:
    """The thresholds in a line; None if it sets none."""
    match = _ECN.match(text)
    if match is None:
        return None
    low, high = (
        int(match[group]) * UNITS[match[group + 1]] if match[group + 1] in UNITS else None
        for group in (1, 3)
    )
    return Threshold(low, high, int(match[5] or 100), int(match[6] or 0))


def headroom_of(text: str) -> Optional[int]:
    """Headroom in bytes; None for cells and other lines. EOS may omit the unit (docs.habana.ai,
    switch configuration of Gaudi: `ingress headroom 64000`)."""
    match = _HEADROOM.match(text)
    return int(match[1]) if match else None


def meaning(path: Path, text: Optional[str]) -> object:
    """A value that is equal for equivalent lines; None for a default, which EOS omits."""
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
    size = headroom_of(bare)
    return bare if size is None else (HEADROOM, size)


def default_of(path: Path) -> Optional[str]:
    """The line of a default, from EOS's DSCP map, which is the same on all platforms."""
    if path[0].startswith(DSCP):
        dscp = int(path[0][len(DSCP) :])
        traffic_class = {0: 1, 1: 0}.get(dscp // 8, dscp // 8)
        return f"{DSCP}{dscp} to traffic-class {traffic_class}"
    return None


def default_mtu(settings: Settings) -> int:
    words = settings.get(DEFAULTS_MTU, "").split()
    return int(words[1]) if len(words) == 2 and words[1].isdecimal() else DEFAULT_MTU


def queue_number(text: str) -> int:
    return int(text.rsplit(" ", 1)[1])

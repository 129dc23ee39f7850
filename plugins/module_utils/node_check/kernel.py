# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel messages of NICs and GPUs, from the kernel's own buffer: no program is needed, and reading
it never waits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..core.checks import FAILED, OK, Check
from ..core.text import some

NIC = "node_nic_messages"
KMSG = "dev/kmsg"
MOST = 200_000
MOST_BYTES = 64 << 20
WINDOW_S = 3600.0
"""Seconds for which a message counts."""
MOST_KEPT = 50
LONGEST = 200

CABLE, FIRMWARE, HEAT = "cable", "firmware", "heat"
# Messages of Linux, drivers/net/ethernet/mellanox/mlx5/core: health.c and cmd.c, events.c
# (02039fb659b3, port_module and temp_warn).
KINDS: Mapping[str, re.Pattern[str]] = {
    CABLE: re.compile(r"Port module event\[error\]"),
    FIRMWARE: re.compile(
        r"health compromised|Fatal error|synd(?:rome)? 0x[0-9a-f]+: (?!unrecognized)"
        r"|Will cause a leak of a command resource|error state",
        re.IGNORECASE,
    ),
    HEAT: re.compile(r"High temperature", re.IGNORECASE),
}
WHAT: Mapping[str, str] = {
    CABLE: "its module reports an error: replace cable or transceiver",
    FIRMWARE: (
        "its firmware failed: drain the node and reboot it; if it happens again, have the NIC "
        "replaced"
    ),
    HEAT: "it is too hot: check fans and airflow",
}
WORDS = ("mlx5_core", "NVRM", "Xid")
"""One of these is in every message of a NIC, the GPUs' driver or an NVSwitch."""
_OF_NIC = re.compile(r"\bmlx5_core ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b(.*)", re.DOTALL)
_RECORD = re.compile(r"(\d{1,3}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)


class Message(NamedTuple):
    sequence: int
    at_s: float
    """Seconds since boot."""
    text: str


@dataclass(frozen=True)
class NicEvent:
    sequence: int
    at_s: float
    pci: str
    kind: str
    text: str


def read(root: Path) -> list[Message]:
    """All messages in the buffer, oldest first. Raises OSError."""
    handle = os.open(root / KMSG, os.O_RDONLY | os.O_NONBLOCK)
    data: list[bytes] = []
    size = 0
    try:
        while len(data) < MOST and size < MOST_BYTES:
            try:
                record = os.read(handle, 1 << 14)
            except BrokenPipeError:  # it was overwritten before it could be read
                continue
            except BlockingIOError:
                break
            if not record:
                break
            data.append(record)
            size += len(record)
    finally:
        os.close(handle)
    return parse(b"".join(data).decode("utf-8", "replace"))


def parse(text: str) -> list[Message]:
    """Lines as in Documentation/ABI/testing/dev-kmsg: `6,339,5140900,-;text`, then properties.
    Messages of others are left out."""
    of_interest = (line for line in text.split("\n") if any(word in line for word in WORDS))
    found = (_RECORD.fullmatch(line) for line in of_interest)
    return [Message(int(m[2]), int(m[3]) / 1e6, m[4]) for m in found if m is not None]


def nic_events(messages: Iterable[Message]) -> list[NicEvent]:
    found = []
    for message in messages:
        match = _OF_NIC.search(message.text)
        kinds = (k for k, pattern in KINDS.items() if match and pattern.search(match[2]))
        kind = next(kinds, None)
        if match and kind:
            words = " ".join(match[2].split())[:LONGEST]
            found.append(NicEvent(message.sequence, message.at_s, match[1], kind, words))
    return found


def merged(
    known: Mapping[str, Any], events: Sequence[NicEvent], boot: str, uptime_s: float
) -> list[NicEvent]:
    """New events, and those of the state in the same boot that still count: the buffer may have
    been overwritten since."""
    before = []
    if known.get("boot") == boot:
        for each in known.get("events") or ():
            try:
                number, at_s, pci, kind, text = each
                if kind in KINDS:
                    before.append(NicEvent(int(number), float(at_s), str(pci), kind, str(text)))
            except (TypeError, ValueError):
                continue
    every = {(each.sequence, each.pci): each for each in (*before, *events)}
    recent = [each for each in every.values() if each.at_s > uptime_s - WINDOW_S]
    return sorted(recent, key=lambda each: each.sequence)[-MOST_KEPT:]


def remembered(events: Sequence[NicEvent], boot: str) -> dict[str, Any]:
    rows = [[each.sequence, each.at_s, each.pci, each.kind, each.text] for each in events]
    return {"boot": boot, "events": rows}


def judge(events: Sequence[NicEvent], rails: Mapping[str, str]) -> list[Check]:
    """One check per NIC with messages, or one for all. `rails`: interface by PCI address."""
    wanted = "none in the last hour"
    if not events:
        return [Check(NIC, wanted, "none", OK)]
    checks = []
    for pci in sorted({event.pci for event in events}):
        own = [event for event in events if event.pci == pci]
        kind = next(k for k in (FIRMWARE, CABLE, HEAT) if any(each.kind == k for each in own))
        texts = list(dict.fromkeys(event.text for event in own))
        reason = f"{pci}: {WHAT[kind]}. The kernel reports: {some(texts, 3)}"
        checks.append(Check(NIC, wanted, kind, FAILED, rails.get(pci, pci), reason))
    return checks

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Action that an Xid of a GPU or an SXid of an NVSwitch requires, from NVIDIA's catalogue.

The catalogue is Xid-Catalog.xlsx, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html: its
immediate action, and for Xids 144 to 150 its table for decoding them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from .reading import Xid

CATALOGUE_DATED = "2026-11-28"
NEWEST = 172
"""Last Xid in the catalogue; later ones are unknown."""

HARMLESS, RESET, REBOOT, SUPPORT, UNKNOWN = "harmless", "reset", "reboot", "support", "unknown"
ORDER = (REBOOT, RESET, UNKNOWN, SUPPORT)

CAUSED, CHANGED, NVLINK5, FATAL_MSE = 45, 154, range(144, 151), 150


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for word in text.split():
        first, _, last = word.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


ACTIONS: Mapping[str, frozenset[int]] = {
    # IGNORE and RESTART_APP. 45 and 154 follow another Xid; 171 and 172 explain a 48; 162 to 165
    # concern power smoothing.
    HARMLESS: _numbers(
        "8 11 13 14 25 31 32 37-41 43-45 60 63 66-72 75-77 80 82-86 88 89 92-94 96-108 121 126-135 "
        "137 139 141 152-154 157 160-165 171 172"
    ),
    # RESET_GPU, WORKFLOW_XID_48, CHECK_UVM.
    RESET: _numbers("46 48 62 64 74 95 109 110 119 120 136 140 143 155 156 158 159"),
    # RESTART_BM, RESTART_VM.
    REBOOT: _numbers("79 151"),
    # Listed without an action.
    UNKNOWN: _numbers("0 166-170"),
}
"""All others up to NEWEST are CONTACT_SUPPORT or equivalent."""

DECODED: Sequence[tuple[str, int, int]] = (
    ("SAW_MVB", 0x3F, 0x12),
    ("RLW_CTRL", 0x80000000, 0),
    ("RLW_REMAP", 0x800003FF, 0xC0),
    ("RLW_RSPCOL", 0x80000003, 0x2),
    ("RLW_RXPIPE", 0x8000000F, 0),
    ("RLW_SRC_TRACK", 0x8000003F, 0x31),
    ("RLW_TAGSTATE", 0x80130003, 0x120002),
    ("TLW_", 0x80000007, 0x4),
    ("TREX", 0x80000001, 0),
    ("NVLPW", 0x80000000, 0),
)
"""Subcode of Xids 144 to 148: bits of the error status in the table, bits that require a reset.
Other rows are IGNORE, or XID_154_EVAL, for which the recovery action decides."""
DOWN_AND_WELL = (0b100110, 0b101000)
"""Harmless causes of a link that is down (intrInfo[25:20], IGNORE): by software, by the host."""

# The name of a process precedes the error, and may contain any text.
_PROCESS = re.compile(r"pid=.*, ")
_NVLINK5 = re.compile(r"(\w+)[^,]* \((0x[0-9a-f]{1,8}) (0x[0-9a-f]{1,8})", re.IGNORECASE)
_SEVERITY = re.compile(r"\b(non-?fatal|correctable|fatal)\b", re.IGNORECASE)
_CONTAINED = re.compile(r"\bRST: (Yes|No), D-RST: (Yes|No)$")
_OF_SWITCH = re.compile(r"Severity \d|Data \{|.*\b(thermal|temperature)\b", re.IGNORECASE)
"""Lines of an SXid without a severity: details, and overheating, which other Xids report."""
_CAUSE = re.compile(r"caused by previous Xid (\d{1,6})$")
_CHANGED = re.compile(r"changed from \w+ \([^()]*\) to \w+ \(([^()]+)\)$")


def standing(found: Sequence[Xid], recovery: str) -> Sequence[Xid]:
    """Xids of one GPU, in order, without those that the driver later cleared.

    The driver does not log (Xid 154) that a reset changed the recovery action to `None`: a request
    that nvidia-smi no longer reports was fulfilled, unless it was for a reboot.
    """
    for at in reversed(range(len(found))):
        changed = _CHANGED.search(found[at].text) if found[at].number == CHANGED else None
        if changed and changed[1] == "None":
            return found[at + 1 :]
        if changed and recovery == "None" and "reboot" not in changed[1].lower():
            return ()
    return found


def causes(found: Sequence[Xid], there: Collection[int]) -> list[Xid]:
    """Errors that Xid 45 names as its cause, except those already in the log (`there`)."""
    named = [(each, _CAUSE.search(each.text)) for each in found if each.number == CAUSED]
    return [
        each._replace(number=int(match[1]), text=f"named by Xid {CAUSED}: {each.text}")
        for each, match in named
        if match and int(match[1]) not in there
    ]


def action(xid: Xid) -> str:
    if xid.switch:
        return HARMLESS if _OF_SWITCH.match(xid.text) else _by_severity(xid.text)
    contained = _CONTAINED.search(xid.text)  # in 94 and 95
    if contained and "Yes" in contained.groups():
        return RESET
    if xid.number in NVLINK5:
        return _of_nvlink5(xid)
    changed = _CHANGED.search(xid.text) if xid.number == CHANGED else None
    if changed and changed[1] != "None":
        return REBOOT if "reboot" in changed[1].lower() else RESET
    known = next((name for name, numbers in ACTIONS.items() if xid.number in numbers), SUPPORT)
    return UNKNOWN if xid.number > NEWEST else known


def _by_severity(text: str) -> str:
    match = _SEVERITY.search(text)
    if match is None:
        return UNKNOWN
    return RESET if match[1].lower() == "fatal" else HARMLESS


def _of_nvlink5(xid: Xid) -> str:
    """By subcode, intrInfo and error status; outside the table, by the severity in the line."""
    text = _PROCESS.sub("", xid.text)
    match = _NVLINK5.match(text)
    if match is None or xid.number == FATAL_MSE:
        return RESET if xid.number == FATAL_MSE else _by_severity(text)
    name, info, status = match[1].upper(), int(match[2], 16), int(match[3], 16)
    if name in ("NETIR", "NETIR_INT"):
        return RESET
    if name in ("NETIR_LINK_EVT", "NETIR_LINK_DOWN"):
        return HARMLESS if info >> 20 & 0x3F in DOWN_AND_WELL else RESET
    if name == "NETIR_BER_EVENT":
        return HARMLESS
    if name == "NETIR_MFDE_EVENT" and status in (1, 3, 4, 5, 7):
        return HARMLESS if status == 3 else RESET
    if name == "RLW_RXPIPE" and info & (0x80 if info & 0x7F == 6 else 0x400) and status & 0x7:
        return RESET  # promoted to a fatal error
    for subcode, known, fatal in DECODED:
        if name.startswith(subcode) and status and not status & ~known:
            return RESET if status & fatal else HARMLESS
    return _by_severity(text)

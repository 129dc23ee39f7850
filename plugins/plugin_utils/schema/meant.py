# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an invalid value probably means, in the notation of a model: `AF31` is DSCP 26, `800G` is
800 Gb/s, and nvidia-smi writes `00000000:11:00.0` for 0000:11:00.0.

Each function returns the value to write, or None.
"""

from __future__ import annotations

import re
from typing import Any, Optional

_MULTIPLES = {
    **{"": 1, "k": 1000, "m": 10**6, "g": 10**9},
    **{"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30},
}
_DSCPS = {"EF": 46, "VA": 44, "LE": 1}
"""Names of other DSCPs: RFC 3246, 5865 and 8622."""
_WORDS = {"jumbo": 9000}


def number(value: Any, unit: str) -> Optional[float]:
    """`08`, `0o17`, `1e3`, `"4"`, `4.0`, and numbers with a unit: `800G`, `1.6T`, `150KiB`, `9k`,
    `50%`, `5 m`."""
    text = str(value).strip().removeprefix("" if unit else "/")  # /24
    if re.fullmatch(r"0o[0-7]{1,9}", text):
        return int(text, 8)
    match = re.fullmatch(
        r"([0-9]{1,12}(?:\.[0-9]{0,9})?(?:[eE][-+]?[0-9])?)\s*([A-Za-z/%]{0,9})", text
    )
    if match is None:
        return _WORDS.get(text.lower()) if unit.startswith("bytes") else None
    factor = _factor(match[2].lower(), unit)
    found = float(match[1]) * (factor or 0)
    return None if factor is None else int(found) if found.is_integer() else found


def _factor(suffix: str, unit: str) -> Optional[int]:
    if not suffix:
        return 1
    if unit == "Gb/s":
        speed = re.fullmatch(r"([gt])(b|be|bps|b/s|bit|bit/s|bits)?", suffix)
        return {"g": 1, "t": 1000}[speed[1]] if speed else None
    if unit.startswith("bytes"):
        return _MULTIPLES.get(re.sub(r"(bytes|byte|b)$", "", suffix))
    own = {"percent": ("%", "percent"), "metres": ("m", "metres", "meters")}
    return 1 if suffix in own.get(unit, ()) else None


def in_gbps(value: Any) -> Optional[int]:
    """800000, which is the speed of a SONiC or Linux port in Mb/s."""
    mbps = value if isinstance(value, int) else 0
    return mbps // 1000 if mbps >= 10_000 and mbps % 1000 == 0 else None


def dscp(value: Any) -> Optional[int]:
    """`AF31`, `CS3`, `EF`, and the TOS byte, of which the DSCP is the upper six bits."""
    word = str(value).strip().upper()
    if match := re.fullmatch(r"AF([1-4])([1-3])", word):  # RFC 2597
        return 8 * int(match[1]) + 2 * int(match[2])
    if match := re.fullmatch(r"CS([1-7])", word):  # RFC 2474
        return 8 * int(match[1])
    if isinstance(value, int) and 63 < value < 256:
        return value >> 2
    return _DSCPS.get(word)


def pci(value: Any) -> Optional[str]:
    """`11:00.0` of lspci, `00000000:11:00.0` of nvidia-smi, and one without its function."""
    match = re.fullmatch(
        r"(?:0{0,4}([0-9a-f]{4}):)?([0-9a-f]{2}):([01][0-9a-f])(\.[0-7])?", str(value).lower()
    )
    return f"{match[1] or '0000'}:{match[2]}:{match[3]}{match[4] or '.0'}" if match else None


def address(value: Any) -> Optional[str]:
    """`10.0.001.010`, whose leading zeros some programs read as octal."""
    parts = str(value).split(".")
    if len(parts) != 4 or not all(re.fullmatch(r"0*[0-9]{1,3}", part) for part in parts):
        return None
    return ".".join(str(int(part)) for part in parts) if max(map(int, parts)) < 256 else None


def pattern(value: Any) -> Optional[str]:
    """`node%02d` of printf, `node[01:64]` of Ansible, and `node[01-64]` of Slurm."""
    text = str(value)
    if match := re.fullmatch(r"([^%{}]*)%(0?[1-9])?d([^%{}]*)", text):
        return f"{match[1]}{{:{match[2]}d}}{match[3]}" if match[2] else f"{match[1]}{{}}{match[3]}"
    if match := re.fullmatch(r"([^][{}]*)\[([0-9]{1,6})(?:[:-][0-9]{1,6}){1,2}\]([^][{}]*)", text):
        digits = match[2]
        form = f"{{:0{len(digits)}d}}" if digits[0] == "0" and digits[1:] else "{}"
        return f"{match[1]}{form}{match[3]}"
    return None


def port_range(text: str) -> Optional[str]:
    """`swp[32-1]`, `swp[01-32]` and `swp{32..1}`, with the lower number first and without zeros."""

    def ordered(match: re.Match[str]) -> str:
        first, last = sorted((int(match[1]), int(match[3])))
        return f"{first}{match[2]}{last}"

    found = re.sub(r"([0-9]{1,6})(-|\.\.)([0-9]{1,6})(?=[],/}.])", ordered, text)
    return found if found != text else None

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pins of apt: the one version that a package may have, and which repository it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.files import with_header

DIRECTORY = "etc/apt/preferences.d"
PREFIX = "00-baremetal-mpi-roce-"
"""First of its directory: of two records about one package, apt obeys the one it reads first."""

EXACT = 1001
"""Above 1000, so that this version is the candidate whatever is newer, and even below what somebody
has put in by force."""
NEVER = -1
"""Other versions are no candidates at all: not for an upgrade, not as somebody's dependency."""
PREFERRED = 600
"""Above what every repository has by itself (500)."""

_STANZA = re.compile(r"\n{2,}")


def path_of(layer: str, root: Path) -> Path:
    return root / DIRECTORY / f"{PREFIX}{layer}.pref"


def render(pins: Mapping[str, str], preferred: Mapping[str, str]) -> str:
    """`preferred` is package pattern to what tells its repository (`release o=NVIDIA`)."""
    records = []
    for name, version in sorted(pins.items()):
        records.append(_record(name, f"version {version}", EXACT))
        records.append(_record(name, "version *", NEVER))
    for pattern, term in sorted(preferred.items()):
        records.append(_record(pattern, term, PREFERRED))
    return with_header("\n" + "\n".join(records))


def _record(package: str, term: str, priority: int) -> str:
    return f"Package: {package}\nPin: {term}\nPin-Priority: {priority}\n"


def pins_of(text: str) -> dict[str, str]:
    """What `render` was given."""
    return {
        record["Package"]: record["Pin"].split(None, 1)[1]
        for record in _records(text)
        if record.get("Pin-Priority") == str(EXACT)
    }


def preferred_of(text: str) -> dict[str, str]:
    return {
        record["Package"]: record["Pin"]
        for record in _records(text)
        if record.get("Pin-Priority") == str(PREFERRED)
    }


def _records(text: str) -> list[dict[str, str]]:
    records = []
    for stanza in _STANZA.split(text):
        fields = [line.partition(": ") for line in stanza.splitlines() if not line.startswith("#")]
        record = {name: value for name, colon, value in fields if colon}
        if {"Package", "Pin"} <= set(record):
            records.append(record)
    return records

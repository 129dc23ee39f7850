# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors that the driver wrote to the kernel log since the boot (`NVRM: Xid`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from ..commands import CommandError, Runner
from .found import Xid

COMMAND = (
    *("journalctl", "-k", "-b", "-o", "json", "--no-pager", "--output-fields=MESSAGE"),
    "--quiet",
)
RECORDED = "var/log/kernel.json"
"""The kernel log of a stand-in, below its hardware root: journalctl would show the host's."""

_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?\): "
    r"(\d+)[,:]?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)


def read_xids(run: Runner, root: Path) -> tuple[tuple[Xid, ...], str]:
    """Every Xid of this boot; or none, and why that is not known."""
    if root != Path("/"):
        path = root / RECORDED
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            return (), f"{path}: {error.strerror}"
    else:
        try:
            text = run(COMMAND).stdout
        except CommandError as error:
            return (), str(error)
    messages = list(_messages(text))
    if not messages:
        return (), "the journal has no kernel message of this boot"
    found = (xid_of(message) for message in messages)
    return tuple(xid for xid in found if xid is not None), ""


def _messages(text: str) -> Iterator[str]:
    for line in text.splitlines():
        try:
            message: Any = json.loads(line)["MESSAGE"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(message, list):  # not UTF-8: journalctl gives the bytes
            message = bytes(byte for byte in message if isinstance(byte, int) and byte < 256)
            message = message.decode("utf-8", "replace")
        yield str(message)


def xid_of(message: str) -> Optional[Xid]:
    """The Xid of one line of the kernel log, or None."""
    match = _XID.search(message)
    if match is None:
        return None
    domain, bus, device, function, number, text = match.groups()
    pci = f"{int(domain, 16):04x}:{bus}:{device}.{function or '0'}".lower()
    return Xid(int(number), pci, " ".join(text.split())[:200])

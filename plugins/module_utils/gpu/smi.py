# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`nvidia-smi -q -x`: its XML, and what it prints in place of it.

In one and the same element it writes a value, `N/A` where the GPU does not know such a thing, or an
error. What is not a value, and an element that is missing, must never compare as fine: it is empty
or None here, and `lost` is set for a GPU that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional
from xml.etree import ElementTree

from ..core.commands import CommandError, NoAnswerError, Runner

COMMAND = ("nvidia-smi", "-q", "-x")
MISMATCH_RC = 18
MISMATCH = "driver/library version mismatch"

NEEDS_RESET = "GPU requires reset"
LOST = ("gpu is lost", "gpu is inaccessible", NEEDS_RESET.lower())
NO_SUCH_THING = ("", "n/a", "not supported", "requested functionality has been deprecated")
"""What the driver, or this kind of GPU, does not have. All else without a value is an error."""
NO_VALUE = frozenset(
    [
        *(*NO_SUCH_THING, *LOST, "unknown error", "err!"),
        *("insufficient permissions", "insufficient resources", "timeout", "in use"),
    ]
)
FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("enabled", "yes", "true", "active", "on"), True),
    **dict.fromkeys(("disabled", "no", "false", "not active", "off"), False),
}

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_UNREACHABLE = re.compile(r"unable to determine the device handle for\s+(gpu\s*\d*)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,20}(?!\d)")
_END = "</nvidia_smi_log>"


@dataclass(frozen=True)
class GpuReading:
    """One GPU as the driver sees it. Each rule asks for the elements that it is about."""

    index: int
    """Its place in the driver's order, which is that of PCI addresses."""
    pci: str
    """`0000:14:00.0`"""
    element: ElementTree.Element

    def raw(self, path: str) -> str:
        """The text of the element at a path, value or not."""
        return (self.element.findtext(path) or "").strip()

    def text(self, path: str) -> str:
        """The value at a path; empty where there is none."""
        raw = self.raw(path)
        return "" if _plain(raw) in NO_VALUE else raw

    def number(self, path: str) -> Optional[int]:
        match = _NUMBER.match(self.text(path))
        return int(match.group()) if match else None

    def flag(self, path: str) -> Optional[bool]:
        return FLAGS.get(self.text(path).lower())

    def has(self, path: str) -> bool:
        """Whether there is a value, or an error in its place."""
        return _plain(self.raw(path)) not in NO_SUCH_THING

    @property
    def lost(self) -> str:
        """The driver's words for a GPU that it no longer reaches; empty when it does."""
        own = {id(each) for part in self.element.iter("processes") for each in part.iter()}
        for each in self.element.iter():  # but names of processes, which are their users'
            if id(each) not in own and _plain(each.text or "") in LOST:
                return (each.text or "").strip()
        return ""

    @property
    def recovery(self) -> str:
        """What the driver asks for, `None` or `Reset`; empty where that is not known.

        Drivers that do not have the action have two flags (gpu_reset_status).
        """
        if self.has("gpu_recovery_action"):
            return self.text("gpu_recovery_action")
        flags = {
            "Reset": self.flag("gpu_reset_status/reset_required"),
            "Drain and Reset": self.flag("gpu_reset_status/drain_and_reset_recommended"),
        }
        asked = next((action for action, flag in flags.items() if flag), "")
        return asked or ("" if None in flags.values() else "None")

    @property
    def persistence(self) -> Optional[bool]:
        return self.flag("persistence_mode")


@dataclass(frozen=True)
class Smi:
    """The answer of one run of nvidia-smi."""

    gpus: tuple[GpuReading, ...] = ()
    error: str = ""
    """Why it gave no GPU at all."""
    hung: bool = False
    """It never ended."""
    mismatch: bool = False
    """Its error is that library and kernel module are of different versions."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """PCI address of a GPU that the driver names and cannot open, to its words."""
    warnings: tuple[str, ...] = ()
    """What it printed beside its XML, such as a corrupted infoROM."""


def ask(run: Runner) -> Smi:
    try:
        result = run(COMMAND, check=False)
    except CommandError as error:
        return Smi(error=str(error), hung=isinstance(error, NoAnswerError))
    return parse(result.rc, result.stdout or result.stderr)


def parse(rc: int, text: str) -> Smi:
    """What `nvidia-smi -q -x` printed and how it ended."""
    before, start, rest = text.partition("<?xml")
    body, end, after = rest.partition(_END)
    lines = [line.strip() for line in (before + after).splitlines() if line.strip()]
    found = {line: match for line in lines for match in [_UNREACHABLE.search(line)] if match}
    unreachable = {address(line) or match.group(1): line for line, match in found.items()}
    warnings = tuple(line for line in lines if line not in found)
    if not start:
        output = " ".join(text.split()) or "it printed nothing"
        mismatch = rc == MISMATCH_RC or MISMATCH in output.lower()
        return Smi((), f"exit status {rc}: {output[:500]}", False, mismatch, unreachable)
    try:
        log = ElementTree.fromstring(start + body + end)
    except ElementTree.ParseError as error:
        return Smi(error=f"exit status {rc}, XML that breaks off or is none ({error})")
    gpus = tuple(
        GpuReading(index, address(element.get("id") or ""), element)
        for index, element in enumerate(log.findall("gpu"))
    )
    if rc and not lines:
        warnings = (f"exit status {rc} without a message",)
    none = "" if gpus else f"exit status {rc}: XML without a GPU"
    return Smi(gpus, none, unreachable=unreachable, warnings=warnings)


def address(text: str) -> str:
    """`0000:14:00.0` of `00000000:14:00.0` and any other case; nothing of anything else."""
    match = _ADDRESS.search(text)
    return f"{int(match[1], 16):04x}:{match[2]}".lower() if match else ""


def _plain(text: str) -> str:
    return text.strip().strip("[]").strip(" .").lower()

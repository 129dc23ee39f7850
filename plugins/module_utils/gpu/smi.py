# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of `nvidia-smi -q -x`: XML, or the message instead of it.

An element contains a value, `N/A` if the GPU lacks the feature, or an error. A missing element, or
one without a value, must never be taken for a healthy one: it is empty or None here.
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
"""Texts for features that the driver or the GPU lacks. Any other text is an error."""
_ERRORS = "unknown error|err!|insufficient permissions|insufficient resources|timeout|in use"
NO_VALUE = frozenset([*NO_SUCH_THING, *LOST, *_ERRORS.split("|")])
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
    index: int
    pci: str
    element: ElementTree.Element

    def raw(self, path: str) -> str:
        return (self.element.findtext(path) or "").strip()

    def text(self, path: str) -> str:
        raw = self.raw(path)
        return "" if _plain(raw) in NO_VALUE else raw

    def number(self, path: str) -> Optional[int]:
        match = _NUMBER.match(self.text(path))
        return int(match.group()) if match else None

    def flag(self, path: str) -> Optional[bool]:
        return FLAGS.get(self.text(path).lower())

    def has(self, path: str) -> bool:
        """Whether the element has a value or an error."""
        return _plain(self.raw(path)) not in NO_SUCH_THING

    @property
    def lost(self) -> str:
        """The driver's message if it no longer reaches the GPU."""
        own = {id(each) for part in self.element.iter("processes") for each in part.iter()}
        for each in self.element.iter():  # except names of processes, which users choose
            if id(each) not in own and _plain(each.text or "") in LOST:
                return (each.text or "").strip()
        return ""

    @property
    def recovery(self) -> str:
        """The action that the driver requests, such as `None`; empty if unknown. Drivers before
        R565 have two flags instead."""
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
    gpus: tuple[GpuReading, ...] = ()
    error: str = ""
    hung: bool = False
    mismatch: bool = False
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """PCI address of a GPU that the driver cannot open, to the driver's message."""
    warnings: tuple[str, ...] = ()
    """Messages outside its XML, such as a corrupted infoROM."""


def ask(run: Runner) -> Smi:
    try:
        result = run(COMMAND, check=False)
    except CommandError as error:
        return Smi(error=str(error), hung=isinstance(error, NoAnswerError))
    return parse(result.rc, result.stdout or result.stderr)


def parse(rc: int, text: str) -> Smi:
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
        return Smi(error=f"exit status {rc}, XML is truncated or missing ({error})")
    gpus = tuple(
        GpuReading(index, address(element.get("id") or ""), element)
        for index, element in enumerate(log.findall("gpu"))
    )
    if rc and not lines:
        warnings = (f"exit status {rc} without a message",)
    none = "" if gpus else f"exit status {rc}: XML without a GPU"
    return Smi(gpus, none, unreachable=unreachable, warnings=warnings)


def address(text: str) -> str:
    """`0000:14:00.0` of `00000000:14:00.0`, in lower case; empty for anything else."""
    match = _ADDRESS.search(text)
    return f"{int(match[1], 16):04x}:{match[2]}".lower() if match else ""


def _plain(text: str) -> str:
    return text.strip().strip("[]").strip(" .").lower()

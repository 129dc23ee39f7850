# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCIe ACS between GPUs and NICs: whether bridges redirect their traffic.

With redirection, a packet from a NIC to a GPU takes the route through the root complex instead of
across the switch that connects them. A kernel that uses an IOMMU enables it at every boot. This
program clears request redirection, completion redirection and egress control on the bridges
between a GPU and a NIC, as the kernel's `pci=disable_acs_redir` does, and no other bit.

This file needs only Python, as it is also the program that runs at boot.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Optional

REDIRECTING = 0x04 | 0x08 | 0x20
"""P2P Request Redirect, P2P Completion Redirect, P2P Egress Control."""
DEVICES = "sys/bus/pci/devices"
_EXTENDED = 0x100
_ACS = 0x000D
_CONTROL = 6
_NVIDIA, _MELLANOX = ("0x10de", "0x03"), ("0x15b3", "0x02")
"""Vendor of GPUs and of NICs, with the prefix of their class."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
HOLDS, REDIRECTS, UNKNOWN = 0, 1, 2
LOCKED = (
    "the kernel is locked down, as with Secure Boot: PCI configuration spaces are read-only. Turn "
    "ACS off in the BIOS setup, add pci=disable_acs_redir={pci} to the kernel's arguments "
    "(pci:VENDOR:DEVICE of lspci -n for several alike), or turn Secure Boot off"
)


@dataclass(frozen=True)
class Bridge:
    """A bridge between a GPU and a NIC. `control` is None if it has no ACS."""

    pci: str
    control: Optional[int]

    @property
    def redirects(self) -> bool:
        return bool(self.control is not None and self.control & REDIRECTING)


def locked_down(root: Path) -> bool:
    """Whether the kernel is locked down; a kernel without lockdown lacks the file."""
    text = _text(root / "sys/kernel/security/lockdown")
    return "[integrity]" in text or "[confidentiality]" in text


def bridges(root: Path) -> list[Bridge]:
    """Bridges between GPUs and NICs below a common switch, sorted. Raises OSError."""
    devices = root / DEVICES
    gpus: list[list[str]] = []
    nics: list[list[str]] = []
    for entry in sorted(devices.iterdir()) if devices.is_dir() else []:
        vendor, kind = _text(entry / "vendor"), _text(entry / "class")
        if (vendor, kind[:4]) in (_NVIDIA, _MELLANOX):
            # The bridges above the function, starting at the root port.
            parts = entry.resolve().parent.parts
            above = [part for part in parts if _ADDRESS.fullmatch(part)]
            (gpus if vendor == _NVIDIA[0] else nics).append(above)
    between = {pci for gpu in gpus for nic in nics for pci in _between(gpu, nic)}
    return [Bridge(pci, control(devices / pci / "config")) for pci in sorted(between)]


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def _between(one: list[str], other: list[str]) -> list[str]:
    """The bridges after the point where the paths separate; none if they have no common bridge."""
    common = len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other))])
    return [*one[common:], *other[common:]] if common else []


def control(config: Path) -> Optional[int]:
    """The ACS control register, or None for a bridge without ACS. Raises OSError."""
    data = config.read_bytes()
    place = _register(data, config)
    return None if place is None else struct.unpack_from("<H", data, place)[0]


def _register(data: bytes, config: Path) -> Optional[int]:
    if len(data) <= 64:
        raise OSError(f"{config}: only its header can be read; run this as root")
    place, seen = _EXTENDED, set()
    while place >= _EXTENDED and place + 8 <= len(data) and place not in seen:
        seen.add(place)
        (header,) = struct.unpack_from("<I", data, place)
        if header & 0xFFFF == _ACS:
            return place + _CONTROL
        place = header >> 20 & ~3
    return None


def clear(pci: str, root: Path) -> None:
    config = root / DEVICES / pci / "config"
    try:
        with config.open("r+b", buffering=0) as file:
            data = file.read(4096)
            place = _register(data, config)
            if place is not None:
                (value,) = struct.unpack_from("<H", data, place)
                file.seek(place)
                file.write(struct.pack("<H", value & ~REDIRECTING))
    except PermissionError as error:
        raise OSError(f"bridge {pci}: {LOCKED.format(pci=pci)} ({error})") from error


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="acs", description="PCIe ACS redirection on the bridges between GPUs and NICs."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="show, change nothing (the default)")
    what.add_argument("--apply", action="store_true", help="turn redirection off")
    parser.add_argument("--root", default="/", help="directory to use as the root of the host")
    given = parser.parse_args(arguments)
    root = Path(given.root)
    try:
        for bridge in bridges(root) if given.apply else ():
            if bridge.redirects:
                clear(bridge.pci, root)
        found = bridges(root)
    except OSError as error:
        sys.stderr.write(f"acs: {error}\n")
        return UNKNOWN
    for bridge in found:
        register = "no ACS" if bridge.control is None else f"ACSCtl {bridge.control:#06x}"
        sys.stdout.write(f"{bridge.pci} {register}{' REDIRECTS' if bridge.redirects else ''}\n")
    wrong = sum(bridge.redirects for bridge in found)
    sys.stdout.write(f"{len(found)} bridges between GPUs and NICs, {wrong} redirect\n")
    return REDIRECTS if wrong else HOLDS

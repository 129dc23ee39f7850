# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Registers of a ConnectX that a reset forgets, by `mlxreg` (MFT) or `mstreg` (mstflint)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from ..core.commands import CommandError, Runner

PROGRAMS = ("mlxreg", "mstreg")
PACKAGE = "mft (DOCA-OFED) or mstflint"

_FIELD = re.compile(r"^(\w+)\s*\|\s*(0x[0-9a-fA-F]+)\s*$", re.M)


class Registers:
    """One register of one device at a time; what was read is kept until it is forgotten."""

    def __init__(self, run: Runner, program: Optional[str]) -> None:
        self.program = program
        self._run = run
        self._known: dict[tuple[str, str], dict[str, int]] = {}

    def read(self, pci: str, register: str) -> Mapping[str, int]:
        """Its fields. Raises CommandError."""
        key = (pci, register)
        if key not in self._known:
            said = self._run((*self._on(pci, register), "--get")).stdout
            fields = {name: int(value, 16) for name, value in _FIELD.findall(said)}
            if not fields:
                raise CommandError(f"{self.program}: {register} of {pci} shows no field: {said}")
            self._known[key] = fields
        return self._known[key]

    def write(self, pci: str, register: str, fields: Mapping[str, int]) -> None:
        text = ",".join(f"{name}={value:#x}" for name, value in fields.items())
        self._run((*self._on(pci, register), "--set", text, "--yes"))

    def forget(self, pci: str) -> None:
        for key in [key for key in self._known if key[0] == pci]:
            del self._known[key]

    def _on(self, pci: str, register: str) -> tuple[str, ...]:
        if self.program is None:
            raise CommandError(f"neither {' nor '.join(PROGRAMS)} is installed: package {PACKAGE}")
        return (self.program, "-d", pci, "--reg_name", register)

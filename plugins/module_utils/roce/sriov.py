# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails are physical functions: no virtual function is left on them, and none in use is taken away.

This is the running kernel. The firmware's own switch (SRIOV_EN) is in `firmware`. What the kernel
does with virtual functions that others make (`sriov_drivers_autoprobe`) is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ..commands import CommandError, Runner
from ..dataclass import dataclass
from ..rails.device import pci_address
from ..rails.state import parse_links
from .setting import RUNTIME, Rail, Reading, Setting
from .sriov_functions import VirtualFunction, virtual_functions

ALLOW = "roce_rails_remove_vfs_in_use"
"""The role's variable that allows removing what is used."""


@dataclass(frozen=True)
class VirtualFunctionsProvider:
    """One setting for each rail that is a PCI function; an interface without one has none."""

    run: Runner
    remove_in_use: bool = False
    keep: Mapping[str, str] = field(default_factory=dict)
    """Interfaces by which this host is reached, and why: their functions are never removed."""
    root: Path = Path("/")
    any_nic: bool = True
    """Every NIC, whether it has an RDMA device or not."""

    def __call__(self, rail: Rail) -> Sequence[Setting]:
        pci = pci_address(self.root / "sys/class/net" / rail.interface)
        return (NoVirtualFunctions(rail.name, pci, self),) if pci else ()


@dataclass(frozen=True)
class NoVirtualFunctions:
    """`sriov_numvfs` of one rail at 0. Its value is the list of virtual functions, for a reader."""

    rail: str
    pci: str
    options: VirtualFunctionsProvider

    name = "virtual_functions"
    persistence = RUNTIME

    @property
    def wanted(self) -> Any:
        return []

    @property
    def _directory(self) -> Path:
        return self.options.root / "sys/bus/pci/devices" / self.pci

    @property
    def tool(self) -> str:
        return f"/sys/bus/pci/devices/{self.pci}/sriov_numvfs"

    def read(self) -> Reading:
        physical = self._directory / "physfn"
        if physical.is_symlink():
            return Reading(
                [self.pci],
                refused=f"{self.pci} is itself a virtual function, of {physical.readlink().name}; "
                f"a rail is a physical function. Correct pci of {self.rail} in the model.",
            )
        try:
            functions = self._functions()
        except (CommandError, OSError, ValueError) as error:
            return Reading(
                None, refused=f"it cannot be told whether virtual functions are used: {error}"
            )
        return Reading([each.line() for each in functions], refused=self._refusal(functions) or "")

    def write(self) -> None:
        self._set(0)

    def restore(self, reading: Reading) -> None:
        """As many as there were; what they were used for is not brought back."""
        before = len(reading.found) if isinstance(reading.found, list) else 0
        if before:
            self._set(before)

    def _functions(self) -> list[VirtualFunction]:
        root = self.options.root
        if not any(self._directory.glob("virtfn*")):
            return []
        links = parse_links(
            json.loads(self.options.run(("ip", "-N", "-j", "address", "show")).stdout)
        )
        addresses = {name: link.addresses for name, link in links.items()}
        return virtual_functions(self.pci, root, addresses, self.options.keep)

    def _refusal(self, functions: Sequence[VirtualFunction]) -> Optional[str]:
        held = [each for each in functions if each.holders]
        used = [each for each in functions if each.users]
        if held:
            told = "; ".join(f"{each.pci}: {', '.join(each.holders)}" for each in held)
            return (
                f"virtual functions of {self.pci} cannot be removed, nor does {ALLOW} allow it: "
                f"{told}. End what uses them, then run again."
            )
        if used and not self.options.remove_in_use:
            told = "; ".join(f"{each.pci}: {', '.join(each.users)}" for each in used)
            return (
                f"{len(used)} of {len(functions)} virtual functions of {self.pci} are in use: "
                f"{told}. They and the NIC settings of {self.rail} were left alone; its name, "
                "address and MTU are set all the same. End what uses them and run again; or set "
                f"{ALLOW}: true, which takes them away from what uses them."
            )
        return None

    def _set(self, number: int) -> None:
        path = self._directory / "sriov_numvfs"
        try:
            path.write_text(f"{number}\n", encoding="ascii")
        except OSError as error:
            raise CommandError(
                f"{path}: {number} was not taken: {error.strerror} (see dmesg)"
            ) from error

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rail of this host, one setting of it, and what was read of that setting."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT
from ..core.commands import CommandError
from ..core.part import PlanError
from ..hardware import RdmaDevice
from ..hardware.inventory import MLX5_CORE, SOFTWARE

RUNTIME = "runtime"
"""Holds at once, and is forgotten by a reboot: the boot unit sets it again."""
FIRMWARE = "firmware"
"""Kept by the device; holds after its next reset, which nothing here performs."""

FAULTS = (CommandError, OSError, ValueError, LookupError, TypeError)
"""What a device or a program may answer one rail with; the others go on."""
SOFTWARE_REASON = "Soft-RoCE has no such setting"
MLX5 = MLX5_CORE
"""The driver of a ConnectX."""
RESET = "the device keeps it and takes it up at its next reset: reboot the host"


@dataclass(frozen=True)
class Rail:
    """One rail as it is on this host now."""

    name: str
    """What the model calls it: `rail3`."""
    interface: str
    """What it is called at this moment: the same, or another name until it is renamed."""
    driver: str
    """Kernel driver of the interface: `mlx5_core`, `virtio_net`, `veth`."""
    pci: Optional[str] = None
    device: Optional[RdmaDevice] = None
    """Its RDMA device; None where there is none."""
    shared: bool = False
    """Its RDMA device is that of the first function of its card, which has the settings of both."""

    @property
    def physical(self) -> bool:
        """A RoCE NIC of its own, not Soft-RoCE: here every setting has to be possible."""
        return self.device is not None and self.device.kind != SOFTWARE


@dataclass(frozen=True)
class Reading:
    """What was read of one setting. Values are JSON, and equal exactly when they mean the same."""

    found: Any
    supported: bool = True
    reason: str = ""
    """Why it is not supported; of what holds, what else was seen."""
    pending: Any = None
    """A value that the device keeps until its next reset; None where nothing waits."""
    excused: bool = False
    """Not supported, and no fault on a RoCE NIC either: `reason` has what keeps the promise."""
    awaited: bool = False
    """It cannot be read yet, and `reason` has what comes before: in check mode an earlier layer
    that installs the tool, and a reset of the device where that shows it."""
    refused: str = ""
    """Why nothing of this rail may be written, whatever kind of NIC it is: a failure on all."""

    @classmethod
    def unsupported(cls, reason: str) -> Reading:
        """Not applicable on other NICs than RoCE NICs; a failure on those."""
        return cls(None, supported=False, reason=reason)

    @classmethod
    def kept_otherwise(cls, reason: str) -> Reading:
        """Nothing here can be set, and something else keeps the promise."""
        return cls(None, supported=False, reason=reason, excused=True)

    @classmethod
    def after_reset(cls, reason: str) -> Reading:
        """Nothing can be set yet, and the rest of the rail goes on."""
        return cls(None, supported=False, reason=reason, excused=True, awaited=True)

    @classmethod
    def without_tool(cls, reason: str, check_mode: bool) -> Reading:
        return cls(None, supported=False, reason=reason, excused=check_mode, awaited=check_mode)

    @property
    def to_come(self) -> Any:
        """What holds after the next reset."""
        return self.found if self.pending is None else self.pending


class Setting(ABC):
    """One setting of one rail, and what is known of it.

    `read` may be called any time and changes nothing. `set` raises CommandError or OSError; the
    engine then puts the whole rail back to what was read before it wrote anything.
    """

    name: str
    """Stable and lower case: `pfc`. Its check is `rail_pfc`."""
    wanted: Any
    """A JSON value, in the form in which `read` gives what it found."""
    persistence = RUNTIME
    """Those of one rail with the same one are written all, or none of them."""
    alone = False
    """Whether its fault leaves the others as they are."""

    physical = False
    """Whether it is of a RoCE NIC of its own."""
    reading = Reading(None)
    error = ""
    """Why it could not be read."""
    complaint = ""
    """What went wrong when it was written, and what was done about it."""

    @abstractmethod
    def read(self) -> Reading: ...

    @abstractmethod
    def set(self, value: Any) -> None: ...

    def write(self) -> None:
        self.set(self.wanted)

    def restore(self, reading: Reading) -> None:
        """Set what `reading` found again; in firmware what was to come."""
        self.set(reading.to_come)

    def forget(self) -> None:  # noqa: B027  (most keep nothing)
        """What was read and kept is out of date."""

    def look(self) -> None:
        self.error = ""
        try:
            self.reading = self.read()
        except FAULTS as error:
            self.reading, self.error = Reading(None), fault_text(error)

    @property
    def fault(self) -> str:
        """Why nothing that it is set with may be written, or has stayed."""
        reading = self.reading
        if self.complaint or self.error or reading.refused:
            return self.complaint or self.error or reading.refused
        needed = self.physical and not reading.supported and not reading.excused
        return reading.reason if needed else ""

    @property
    def holds(self) -> bool:
        return bool(self.reading.found == self.reading.to_come == self.wanted)

    @property
    def waits(self) -> bool:
        """The device keeps the wanted value until its next reset."""
        return self.reading.pending is not None and self.reading.pending == self.wanted

    @property
    def differs(self) -> bool:
        return self.reading.supported and not (self.error or self.holds or self.waits)

    def state(self, check_mode: bool, rail_fault: str) -> dict[str, Any]:
        """What the module returns of it."""
        status, reason = self._status(check_mode, rail_fault)
        return {
            "wanted": self.wanted,
            "found": self.reading.found,
            "status": status,
            "persistence": self.persistence,
            "reason": reason,
        }

    def _status(self, check_mode: bool, rail_fault: str) -> tuple[str, str]:
        if self.fault:
            return FAILED, self.fault
        if not self.reading.supported:
            return PENDING if self.reading.awaited else NOT_APPLICABLE, self.reading.reason
        if self.holds:
            return OK, self.reading.reason
        if self.waits:
            return REBOOT, RESET
        if rail_fault:
            return FAILED, rail_fault
        return (PENDING, "") if check_mode else (FAILED, "read back differently")


Provider = Callable[[Rail], Sequence[Setting]]
"""Gives the settings of one rail, in the order in which they are written; it does not raise."""


def number(place: str, value: Any) -> int:
    """An option's value; templates give a number as text. Raises PlanError."""
    try:
        if isinstance(value, (bool, float)):
            raise TypeError
        return int(value)
    except (TypeError, ValueError):
        raise PlanError(f"{place} is {value!r}; expected a whole number, or null") from None


def shown(value: Any) -> str:
    """A value as text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def fault_text(error: Exception) -> str:
    return str(error) if isinstance(error, (CommandError, OSError)) else f"bad answer: {error!r}"

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NIC of a rail, one of its settings, and a reading of that setting."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT
from ..core.commands import CommandError
from ..core.part import FAULTS, PlanError, fault_text
from ..hardware import RdmaDevice
from ..hardware.inventory import SOFTWARE

RUNTIME = "runtime"
"""Takes effect immediately and is lost at a reboot: the boot unit sets it again."""
FIRMWARE = "firmware"
"""Stored in the device; takes effect after its next reset, which this package never performs."""

SOFTWARE_REASON = "Soft-RoCE has no such setting"
RESET = "the device has stored it and applies it at its next reset: reboot the host"
_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RailNic:
    """The NIC of one rail, in its current state on this host."""

    name: str
    """Name of the rail in the model: `rail3`."""
    interface: str
    """Current name of the interface, which differs until it is renamed."""
    driver: str
    """Kernel driver of the interface: `mlx5_core`, `virtio_net`, `veth`."""
    pci: Optional[str] = None
    device: Optional[RdmaDevice] = None
    shared: bool = False
    """Its RDMA device is that of its card's first function, which has the settings for both."""

    @property
    def physical(self) -> bool:
        """Whether this is a RoCE NIC, on which every setting must be possible, not Soft-RoCE."""
        return self.device is not None and self.device.kind != SOFTWARE


@dataclass(frozen=True)
class Reading:
    """The state of one setting. Values are JSON, and equal if and only if they mean the same."""

    found: Any
    reason: str = ""
    """Why it has a `status`; for a setting in effect, an observation."""
    status: str = ""
    """Status of a setting that cannot be read. FAILED: unsupported, which is a fault only on a RoCE
    NIC. NOT_APPLICABLE: something else fulfils the promise. PENDING: readable later.
    """
    pending: Any = None
    """The value after the next reset of the device; None if that changes nothing."""
    refused: str = ""
    """Why nothing may be written on this rail, whatever its NIC: all of its settings fail."""

    @property
    def to_come(self) -> Any:
        return self.found if self.pending is None else self.pending


class NicSetting(ABC):
    """One setting of one rail, with its last reading: a change of a `core/engine.Group`.

    `read` may be called at any time and changes nothing. `set` raises CommandError or OSError.
    """

    name: str
    """Stable and lower case: `pfc`. Its check is `rail_pfc`."""
    wanted: Any
    """A JSON value, in the form that `read` returns."""
    unit = RUNTIME
    """RUNTIME or FIRMWARE: the settings of a rail with the same one are written all or nothing."""
    optional = False
    """Whether a fault of this setting leaves the rest of the unit in effect."""

    physical = False
    """Whether it belongs to a RoCE NIC, not to Soft-RoCE."""
    reading = Reading(None)
    before = Reading(None)
    error = ""
    complaint = ""
    """Why it could not be written, and how that was handled."""

    @abstractmethod
    def read(self) -> Reading: ...

    @abstractmethod
    def set(self, value: Any) -> None: ...

    def write(self) -> None:
        self.before = self.reading
        self.apply()

    def apply(self) -> None:
        self.set(self.wanted)

    def restore(self) -> None:
        """Set the value from before `write`; in firmware, the one that was pending."""
        self.set(self.before.to_come)

    def missing(self) -> str:
        if self.holds or self.waits:
            return ""
        return f"was set and read back as {self.error or shown(self.reading.found)}"

    def failed(self, reason: str) -> None:
        self.complaint = reason

    def forget(self) -> None:  # noqa: B027  (most settings cache nothing)
        """Discard cached readings."""

    def look(self) -> None:
        self.error = ""
        try:
            self.reading = self.read()
        except FAULTS as error:
            self.reading, self.error = Reading(None), fault_text(error)

    @property
    def fault(self) -> str:
        """Why nothing in its unit may be written, or why nothing persisted."""
        reading = self.reading
        unsupported = self.physical and reading.status == FAILED
        return (
            self.complaint
            or self.error
            or reading.refused
            or (reading.reason if unsupported else "")
        )

    @property
    def holds(self) -> bool:
        return bool(self.reading.found == self.reading.to_come == self.wanted)

    @property
    def waits(self) -> bool:
        """Whether the device applies the desired value at its next reset."""
        return self.reading.pending is not None and self.reading.pending == self.wanted

    @property
    def differs(self) -> bool:
        return not (self.reading.status or self.error or self.holds or self.waits)

    def state(self, check_mode: bool, rail_fault: str) -> dict[str, Any]:
        """Return the setting in the module's form; `rail_fault` is the fault of its unit."""
        status, reason = self._status(check_mode, rail_fault)
        return {
            "wanted": self.wanted,
            "found": self.reading.found,
            "status": status,
            "persistence": self.unit,
            "reason": reason,
        }

    def _status(self, check_mode: bool, rail_fault: str) -> tuple[str, str]:
        reading = self.reading
        if self.fault:
            return FAILED, self.fault
        if reading.status:
            return NOT_APPLICABLE if reading.status == FAILED else reading.status, reading.reason
        if self.holds:
            return OK, reading.reason
        if self.waits:
            return REBOOT, RESET
        if rail_fault:
            return FAILED, rail_fault
        return (PENDING, "") if check_mode else (FAILED, "read back differently")


Provider = Callable[[RailNic], Sequence[NicSetting]]
"""Returns the settings of one rail in the order in which they are written. Raises nothing."""


def remembered(
    known: MutableMapping[_Key, Union[_Answer, CommandError]], key: _Key, ask: Callable[[], _Answer]
) -> _Answer:
    """Return or raise what `ask` did the first time: a program that hangs does so once."""
    if key not in known:
        try:
            known[key] = ask()
        except CommandError as error:
            known[key] = error
    answer = known[key]
    if isinstance(answer, CommandError):
        raise answer
    return answer


def number(name: str, value: Any) -> int:
    """Return an option's value, which templates may render as text. Raises PlanError."""
    try:
        return int(str(value))
    except ValueError:
        raise PlanError(f"{name} is {value!r}; expected a whole number, or null") from None


def shown(value: Any) -> str:
    """Return a value as text: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)

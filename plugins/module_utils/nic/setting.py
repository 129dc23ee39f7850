# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rail of this host, one setting of it, and what was read of that setting."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ..core.dataclass import dataclass
from ..core.part import PlanError
from ..hardware import Machine, RdmaDevice, survey
from ..hardware.inventory import SOFTWARE
from .ethtool import Ethtool

RUNTIME = "runtime"
"""Holds at once, and is forgotten by a reboot: the boot unit sets it again."""
FIRMWARE = "firmware"
"""Kept by the device; holds after its next reset, which nothing here performs."""

OK = "ok"
SET = "set"
"""Differed, was written, and was read back as wanted."""
PENDING = "pending"
"""Check mode only: differs, and a run without check mode would write it."""
NEEDS_RESET = "needs_reset"
"""The device keeps the wanted value and takes it up at its next reset."""
NOT_SUPPORTED = "not_supported"
"""Cannot be set on this device, for the given reason."""
FAILED = "failed"
"""Could not be read or written, was read back differently, or cannot be on a RoCE NIC."""


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

    @property
    def physical(self) -> bool:
        """A RoCE NIC of its own, not Soft-RoCE: here every setting has to be possible."""
        return self.device is not None and self.device.kind != SOFTWARE


def machine_of(root: Path = Path("/")) -> Machine:
    return survey(root / "sys")


def find_rails(interfaces: Mapping[str, str], machine: Machine, ethtool: Ethtool) -> list[Rail]:
    """The rails, given what each is called now."""
    rails = []
    for name, interface in interfaces.items():
        port = machine.device_of(interface)
        driver = port.driver if port is not None else ""
        with contextlib.suppress(OSError):
            # A PCI function's driver may be another one: virtio-pci has virtio_net on top.
            driver = ethtool.driver(interface)
        device = port if port is not None and port.name else None
        rails.append(Rail(name, interface, driver, port.pci if port else None, device))
    return rails


@dataclass(frozen=True)
class Reading:
    """What was read of one setting. Values are JSON, and equal exactly when they mean the same."""

    found: Any
    supported: bool = True
    reason: str = ""
    """Why it is not supported."""
    pending: Any = None
    """A value that the device keeps until its next reset; None where nothing waits."""
    excused: bool = False
    """Not supported, and no fault on a RoCE NIC either: `reason` has what keeps the promise."""
    refused: str = ""
    """Why nothing of this rail may be written, whatever kind of NIC it is: a failure on all."""

    @classmethod
    def unsupported(cls, reason: str) -> Reading:
        """Not applicable on what is no RoCE NIC of its own; a failure on one that is."""
        return cls(None, supported=False, reason=reason)

    @classmethod
    def kept_otherwise(cls, reason: str) -> Reading:
        """Nothing here can be set, and something else keeps the promise."""
        return cls(None, supported=False, reason=reason, excused=True)


class Setting(ABC):
    """One setting of one rail.

    `read` may be called any time and changes nothing. `set` raises CommandError or OSError; the
    engine then puts the whole rail back to what was read before it wrote anything.
    """

    name: str
    """Stable and lower case: `pfc`. Its check is `rail_pfc`."""
    wanted: Any
    """A JSON value, in the form in which `read` gives what it found."""
    tool: str
    """What reads and writes it, for the operator: `dcb pfc`, or the path of a file."""
    persistence = RUNTIME

    @abstractmethod
    def read(self) -> Reading: ...

    @abstractmethod
    def set(self, value: Any) -> None: ...

    def write(self) -> None:
        self.set(self.wanted)

    def restore(self, reading: Reading) -> None:
        """Set what `reading` found again; in firmware what was to come."""
        self.set(reading.found if reading.pending is None else reading.pending)

    def forget(self) -> None:  # noqa: B027  (most keep nothing)
        """What was read and kept is out of date."""


def number(place: str, value: Any) -> int:
    """An option's value; templates give a number as text. Raises PlanError."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{place} is {value!r}; expected a whole number, or null")
    return value


Provider = Callable[[Rail], Sequence[Setting]]
"""Gives the settings of one rail, in the order in which they are written; it does not raise."""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How one interface sorts, queues and pauses traffic, whichever tool said so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Optional, Protocol

from ..core.dataclass import dataclass

HOST = "host"
"""Set by this host, and not agreed with the switch by firmware."""
FIRMWARE_CONTROLLED = "firmware"

DSCP = "dscp"
PCP = "pcp"
"""Packets are sorted by the priority in their VLAN tag."""

ETS = "ets"
EIGHT = 8


class UnsupportedError(Exception):
    """The tool or the driver cannot do this here; the text says which and why."""


@dataclass(frozen=True)
class DcbState:
    """What an interface is set to. Places are priorities or traffic classes, 0..7."""

    dcbx: Optional[str]
    """HOST or FIRMWARE_CONTROLLED; None where the driver has no such state."""
    trust: str
    dscp: Mapping[int, tuple[int, ...]]
    """DSCP to its priorities: more than one is possible and never meant."""
    pfc: tuple[int, ...]
    """Priorities that are paused one by one."""
    priority_to_tc: tuple[int, ...]
    tsa: tuple[str, ...]
    percent: tuple[int, ...]


class QosTool(Protocol):
    """Reads and sets DCB. `read` raises UnsupportedError or CommandError, setting CommandError."""

    @property
    def name(self) -> str:
        """`dcb` or `mlnx_qos`."""

    def read(self, interface: str) -> DcbState: ...

    def forget(self, interface: str) -> None:
        """What was read of it is out of date."""

    def set_dcbx_host(self, interface: str) -> None: ...

    def set_trust(self, interface: str, trust: str) -> None: ...

    def set_dscp(self, interface: str, wanted: Mapping[int, Collection[int]]) -> None: ...

    def set_pfc(self, interface: str, priorities: Collection[int]) -> None: ...

    def set_ets(
        self,
        interface: str,
        priority_to_tc: Sequence[int],
        tsa: Sequence[str],
        percent: Sequence[int],
    ) -> None:
        """All three at once: they are one object in the kernel, checked as a whole."""


def ets_shares(tsa: Sequence[str], percent: Sequence[int]) -> list[int]:
    """Percents of classes that share the bandwidth: drivers report any number for the others."""
    return [share if how == ETS else 0 for how, share in zip(tsa, percent)]

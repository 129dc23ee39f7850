# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract on the wire: trust, PFC, DSCP to priority, priority to traffic class, ETS."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from ..core.dataclass import dataclass
from ..qos import HostSettings
from .dcb import (
    DSCP,
    ETS,
    HOST,
    PCP,
    Dcb,
    DcbState,
    MlnxQos,
    QosTool,
    UnsupportedError,
    ets_shares,
)
from .setting import RUNTIME, Rail, Reading, Setting

MISSING = (
    f"neither {Dcb.name} nor {MlnxQos.name} is installed: install {Dcb.package}, or "
    f"{MlnxQos.package} of DOCA-OFED"
)


@dataclass(frozen=True)
class QosSettings:
    """Provider of the settings that `dcb` or `mlnx_qos` reads and writes."""

    contract: HostSettings
    tool: Optional[QosTool]
    """None where neither program is installed."""

    def __call__(self, rail: Rail) -> Sequence[Setting]:
        kinds = (_Dcbx, _Trust, _DscpToPriority, _PriorityToTc, _Ets, _Pfc)
        return [kind(rail, self.contract, self.tool) for kind in kinds]


class _DcbSetting:
    """One part of an interface's DCB state."""

    name = ""
    persistence = RUNTIME
    part = ""
    """The object of iproute2's `dcb` that it is in."""

    def __init__(self, rail: Rail, contract: HostSettings, tool: Optional[QosTool]) -> None:
        self.interface = rail.interface
        self.contract = contract
        self._tool = tool
        self._before: Optional[DcbState] = None
        """As it was when it was first read: what a rollback puts back."""

    @property
    def tool(self) -> str:
        if self._tool is None:
            return "none"
        return f"{self._tool.name} {self.part}" if self._tool.name == "dcb" else self._tool.name

    @property
    def qos(self) -> QosTool:
        if self._tool is None:
            raise AssertionError("only called after a reading that was supported")
        return self._tool

    def read(self) -> Reading:
        if self._tool is None:
            return Reading.unsupported(MISSING)
        try:
            state = self._tool.read(self.interface)
        except UnsupportedError as error:
            return Reading.unsupported(str(error))
        if self._before is None:
            self._before = state
        return self.reading(state)

    def reading(self, state: DcbState) -> Reading:
        return Reading(self.found(state))

    def forget(self) -> None:
        if self._tool is not None:
            self._tool.forget(self.interface)

    @property
    def before(self) -> DcbState:
        if self._before is None:
            raise AssertionError("only called after a reading")
        return self._before

    @property
    def wanted(self) -> Any:
        raise KeyError(self.name)

    def found(self, state: DcbState) -> Any:
        raise KeyError(self.name)


class _Dcbx(_DcbSetting):
    """Who decides: with DCBX in firmware's hands the switch may change everything below."""

    name = "dcbx"
    part = "dcbx"

    @property
    def wanted(self) -> str:
        return HOST

    def reading(self, state: DcbState) -> Reading:
        if state.dcbx is None:
            return Reading.kept_otherwise("its driver has no DCBX: nothing else sets its QoS")
        return Reading(state.dcbx)

    def write(self) -> None:
        self.qos.set_dcbx_host(self.interface)

    def restore(self, reading: Reading) -> None:
        """Left with the host: no tool gives all of it back, and it breaks nothing."""


class _Trust(_DcbSetting):
    name = "trust"
    part = "app"

    @property
    def wanted(self) -> str:
        return self.contract.trust

    def found(self, state: DcbState) -> str:
        return state.trust

    def write(self) -> None:
        if self.qos.name == "dcb" and self.wanted == DSCP:
            self.qos.set_dscp(self.interface, _entries(self.contract))
        else:
            self.qos.set_trust(self.interface, self.wanted)

    def restore(self, reading: Reading) -> None:
        if reading.found == PCP:
            self.qos.set_trust(self.interface, PCP)
        else:
            self.qos.set_dscp(self.interface, self.before.dscp)


class _DscpToPriority(_DcbSetting):
    name = "dscp_to_priority"
    part = "app"

    @property
    def wanted(self) -> str:
        return ranges(_entries(self.contract))

    def found(self, state: DcbState) -> str:
        return ranges(state.dscp)

    def write(self) -> None:
        self.qos.set_dscp(self.interface, _entries(self.contract))

    def restore(self, reading: Reading) -> None:
        self.qos.set_dscp(self.interface, self.before.dscp)


class _EtsObject(_DcbSetting):
    """Mapping and shares are one object in the kernel: whichever differs, both are written."""

    part = "ets"

    def write(self) -> None:
        ets = self.contract.ets
        tsa, percent = [each.tsa for each in ets], [each.percent for each in ets]
        priority_to_tc = self.contract.priority_to_tc
        now = self.qos.read(self.interface)
        found = (now.priority_to_tc, now.tsa, ets_shares(now.tsa, now.percent))
        if found != (tuple(priority_to_tc), tuple(tsa), percent):
            self.qos.set_ets(self.interface, priority_to_tc, tsa, percent)

    def restore(self, reading: Reading) -> None:
        old = self.before
        self.qos.set_ets(self.interface, old.priority_to_tc, old.tsa, old.percent)


class _PriorityToTc(_EtsObject):
    name = "priority_to_tc"

    @property
    def wanted(self) -> str:
        return _places(self.contract.priority_to_tc)

    def found(self, state: DcbState) -> str:
        return _places(state.priority_to_tc)


class _Ets(_EtsObject):
    name = "ets"

    @property
    def wanted(self) -> str:
        ets = self.contract.ets
        return _shares(self._used, [each.tsa for each in ets], [each.percent for each in ets])

    def found(self, state: DcbState) -> str:
        return _shares(self._used, state.tsa, state.percent)

    @property
    def _used(self) -> list[int]:
        """Classes that a priority is mapped to: nothing is ever sent from the others."""
        return sorted(set(self.contract.priority_to_tc))


class _Pfc(_DcbSetting):
    name = "pfc"
    part = "pfc"

    @property
    def wanted(self) -> list[int]:
        return sorted(self.contract.pfc_priorities)

    def found(self, state: DcbState) -> list[int]:
        return sorted(state.pfc)

    def write(self) -> None:
        self.qos.set_pfc(self.interface, self.wanted)

    def restore(self, reading: Reading) -> None:
        self.qos.set_pfc(self.interface, reading.found)


def _entries(contract: HostSettings) -> dict[int, tuple[int, ...]]:
    return {dscp: (priority,) for dscp, priority in contract.dscp_to_priority.items()}


def ranges(entries: Mapping[int, Collection[int]]) -> str:
    """`0-25:0 26:3 27-63:0`: a table of 64 in one line."""
    runs: list[tuple[int, int, str]] = []
    for dscp in sorted(entries):
        priorities = "+".join(str(priority) for priority in sorted(entries[dscp]))
        if runs and runs[-1][1] == dscp - 1 and runs[-1][2] == priorities:
            runs[-1] = (runs[-1][0], dscp, priorities)
        else:
            runs.append((dscp, dscp, priorities))
    return " ".join(
        f"{first}:{what}" if first == last else f"{first}-{last}:{what}"
        for first, last, what in runs
    )


def _places(values: Iterable[int]) -> str:
    return " ".join(f"{place}:{value}" for place, value in enumerate(values))


def _shares(used: Sequence[int], tsa: Sequence[str], percent: Sequence[int]) -> str:
    return " ".join(
        f"{tc}:{ETS} {percent[tc]}%" if tsa[tc] == ETS else f"{tc}:{tsa[tc]}" for tc in used
    )

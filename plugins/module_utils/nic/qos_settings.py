# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract on the wire: trust, PFC, DSCP to priority, priority to traffic class, ETS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
        contract, interface = self.contract, rail.interface
        entries = {dscp: (priority,) for dscp, priority in contract.dscp_to_priority.items()}
        mapping = contract.priority_to_tc
        tsa, percent = [e.tsa for e in contract.ets], [e.percent for e in contract.ets]
        pfc = sorted(contract.pfc_priorities)
        # Classes that a priority is mapped to: nothing is ever sent from the others.
        used = sorted(set(mapping))

        def put_dscp(tool: QosTool) -> None:
            tool.set_dscp(interface, entries)

        def put_trust(tool: QosTool) -> None:
            if tool.name == Dcb.name and contract.trust == DSCP:
                put_dscp(tool)
            else:
                tool.set_trust(interface, contract.trust)

        def back_trust(tool: QosTool, old: DcbState) -> None:
            if old.trust == PCP:
                tool.set_trust(interface, PCP)
            else:
                tool.set_dscp(interface, old.dscp)

        def put_ets(tool: QosTool) -> None:
            """Mapping and shares are one object in the kernel: both are written, once."""
            now = tool.read(interface)
            found = (now.priority_to_tc, now.tsa, ets_shares(now.tsa, now.percent))
            if found != (tuple(mapping), tuple(tsa), percent):
                tool.set_ets(interface, mapping, tsa, percent)

        def back_ets(tool: QosTool, old: DcbState) -> None:
            tool.set_ets(interface, old.priority_to_tc, old.tsa, old.percent)

        def setting(
            name: str,
            part: str,
            wanted: Any,
            find: Callable[[DcbState], Any],
            put: Callable[[QosTool], None],
            back: Callable[[QosTool, DcbState], None],
        ) -> DcbSetting:
            return DcbSetting(name, part, wanted, interface, self.tool, find, put, back)

        return [
            setting(
                "dcbx",
                "dcbx",
                HOST,
                lambda state: state.dcbx,
                lambda tool: tool.set_dcbx_host(interface),
                # Left with the host: no tool gives all of it back, and it breaks nothing.
                lambda tool, old: None,
            ),
            setting(
                "trust", "app", contract.trust, lambda state: state.trust, put_trust, back_trust
            ),
            setting(
                "dscp_to_priority",
                "app",
                ranges(entries),
                lambda state: ranges(state.dscp),
                put_dscp,
                lambda tool, old: tool.set_dscp(interface, old.dscp),
            ),
            setting(
                "priority_to_tc",
                "ets",
                _places(mapping),
                lambda state: _places(state.priority_to_tc),
                put_ets,
                back_ets,
            ),
            setting(
                "ets",
                "ets",
                _shares(used, tsa, percent),
                lambda state: _shares(used, state.tsa, state.percent),
                put_ets,
                back_ets,
            ),
            setting(
                "pfc",
                "pfc",
                pfc,
                lambda state: sorted(state.pfc),
                lambda tool: tool.set_pfc(interface, pfc),
                lambda tool, old: tool.set_pfc(interface, old.pfc),
            ),
        ]


@dataclass
class DcbSetting:
    """One part of an interface's DCB state."""

    name: str
    part: str
    """The object of iproute2's `dcb` that it is in."""
    wanted: Any
    interface: str
    qos: Optional[QosTool]
    find: Callable[[DcbState], Any]
    put: Callable[[QosTool], None]
    back: Callable[[QosTool, DcbState], None]
    before: Optional[DcbState] = None
    """As it was when it was first read: what a rollback puts back."""

    persistence = RUNTIME

    @property
    def tool(self) -> str:
        if self.qos is None:
            return "none"
        return f"{self.qos.name} {self.part}" if self.qos.name == Dcb.name else self.qos.name

    def read(self) -> Reading:
        if self.qos is None:
            return Reading.unsupported(MISSING)
        try:
            state = self.qos.read(self.interface)
        except UnsupportedError as error:
            return Reading.unsupported(str(error))
        self.before = self.before or state
        found = self.find(state)
        if found is None:
            return Reading.kept_otherwise("its driver has no DCBX: nothing else sets its QoS")
        return Reading(found)

    def write(self) -> None:
        if self.qos is not None:
            self.put(self.qos)

    def restore(self, reading: Reading) -> None:
        if self.qos is not None and self.before is not None:
            self.back(self.qos, self.before)

    def forget(self) -> None:
        if self.qos is not None:
            self.qos.forget(self.interface)


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

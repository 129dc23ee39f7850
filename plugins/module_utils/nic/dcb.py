# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Data Center Bridging of an interface: trust, PFC, DSCP to priority, traffic classes, ETS.

iproute2's `dcb` reads and sets it through the kernel's interface, which in-tree drivers and
DOCA-OFED share. Its batch mode leaves acknowledgements unread, so that a request receives the reply
of another interface (seen with 6.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from ..core.checks import FAILED, NOT_APPLICABLE
from ..core.commands import CommandError, Runner
from ..qos import HostSettings
from .setting import NicSetting, RailNic, Reading, remembered

PROGRAM = "dcb"
MISSING = f"{PROGRAM} is not installed: install iproute2 (Debian, Ubuntu) or iproute (EL)"
HOST = "host"
"""The DCBX mode in which this host decides, not firmware with the switch."""
FIRMWARE_CONTROLLED = "firmware"
DSCP = "dscp"
PCP = "pcp"
"""Packets are classified by the priority in their VLAN tag."""
ETS = "ets"
EIGHT = 8
_UNSUPPORTED = ("Operation not supported", "Attribute not found")
"""Errors of a driver without DCB, or without the requested object."""


class UnsupportedError(Exception):
    """The driver lacks a DCB object, which the text names."""


@dataclass(frozen=True)
class DcbState:
    """The DCB settings of an interface. Indexes are priorities or traffic classes, 0..7."""

    dcbx: Optional[str]
    """HOST or FIRMWARE_CONTROLLED; None if the driver has no DCBX."""
    trust: str
    dscp: Mapping[int, tuple[int, ...]]
    """Maps a DSCP to its priorities; the kernel permits several, the contract defines one."""
    pfc: tuple[int, ...]
    priority_to_tc: tuple[int, ...]
    cable_metres: int
    """`delay` of PFC, which mlx5 interprets as cable length; 0 if the NIC has none."""
    tsa: tuple[str, ...]
    percent: tuple[int, ...]

    @property
    def pairs(self) -> set[tuple[int, int]]:
        return {(dscp, priority) for dscp, given in self.dscp.items() for priority in given}


class Dcb:
    """The command `dcb`. Methods that change settings raise CommandError.

    States and read errors are cached until `forget`.
    """

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._known: dict[str, Union[DcbState, CommandError]] = {}

    def read(self, interface: str) -> DcbState:
        """Return the state of an interface. Raises UnsupportedError or CommandError."""
        return remembered(self._known, interface, lambda: self._ask(interface))

    def forget(self, interface: str) -> None:
        self._known.pop(interface, None)

    def _ask(self, interface: str) -> DcbState:
        pfc = self._promised(interface, "pfc")
        ets = self._promised(interface, "ets")
        app = self._promised(interface, "app", "dscp-prio")
        dcbx = self._show("dcbx", interface)
        entries: dict[int, tuple[int, ...]] = {}
        for dscp, priority in app.get("dscp_prio", []):
            entries[dscp] = tuple(sorted((*entries.get(dscp, ()), priority)))
        return DcbState(
            dcbx=None if dcbx is None else HOST if dcbx.get("host") else FIRMWARE_CONTROLLED,
            # The kernel trusts DSCP if and only if there is an entry for one.
            trust=DSCP if entries else PCP,
            dscp=entries,
            pfc=tuple(n for n, on in enumerate(pfc["prio_pfc"]) if on in (True, "on")),
            priority_to_tc=tuple(int(tc) for tc in ets["prio_tc"]),
            cable_metres=pfc["delay"],
            tsa=tuple(ets["tc_tsa"]),
            percent=tuple(int(share) for share in ets["tc_bw"]),
        )

    def buffer(self, interface: str, priority: int) -> Optional[tuple[int, int]]:
        """Return number and size in bytes of a priority's receive buffer; None if not reported."""
        answer = self._show("buffer", interface)
        if answer is None:
            return None
        number = answer["prio_buffer"][priority]
        return number, answer["buffer_size"][number]

    def _promised(self, interface: str, name: str, *more: str) -> dict[str, Any]:
        answer = self._show(name, interface, *more)
        if answer is None:
            raise UnsupportedError(f"its driver answers no DCB (dcb {name} show: not supported)")
        return answer

    def _show(self, name: str, interface: str, *more: str) -> Optional[dict[str, Any]]:
        """Return the reply, or None if the driver does not support the object."""
        argv = (PROGRAM, "-N", "-j", name, "show", "dev", interface, *more)
        result = self._run(argv, check=False)
        if result.rc != 0:
            output = result.stderr.strip() or result.stdout.strip() or "nothing"
            if any(text in output for text in _UNSUPPORTED):
                return None
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {output[-500:]}")
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def put_dcbx(self, interface: str, _state: DcbState) -> None:
        """Set the DCBX mode to host, as `dcb` cannot restore every former mode."""
        self._set("dcbx", interface, "host", "ieee")

    def put_dscp(self, interface: str, state: DcbState) -> None:
        missing = state.pairs - self.read(interface).pairs
        if missing:
            # Not `replace`: mlx5 removes the former entry itself and then refuses to delete it.
            self._set_app("add", interface, missing)
        surplus = self.read(interface).pairs - state.pairs
        if surplus:
            self._set_app("del", interface, surplus)

    def put_pfc(self, interface: str, state: DcbState) -> None:
        on = (f"{priority}:on" for priority in sorted(state.pfc))
        self._set("pfc", interface, "prio-pfc", "all:off", *on)

    def put_cable(self, interface: str, state: DcbState) -> None:
        self._set("pfc", interface, "delay", str(state.cable_metres))

    def put_ets(self, interface: str, state: DcbState) -> None:
        """Set mapping and shares together: the kernel validates them as one object."""
        # For classes without ETS, drivers report arbitrary numbers.
        shares = [share if tsa == ETS else 0 for tsa, share in zip(state.tsa, state.percent)]
        words = ("tc-tsa", *_numbered(state.tsa), "tc-bw", *_numbered(shares))
        self._set("ets", interface, *words, "prio-tc", *_numbered(state.priority_to_tc))

    def _set(self, name: str, interface: str, *arguments: str) -> None:
        self.forget(interface)
        self._run((PROGRAM, name, "set", "dev", interface, *arguments))

    def _set_app(self, verb: str, interface: str, pairs: Collection[tuple[int, int]]) -> None:
        self.forget(interface)
        entries = (f"{dscp}:{priority}" for dscp, priority in sorted(pairs))
        self._run((PROGRAM, "app", verb, "dev", interface, "dscp-prio", *entries))


def _numbered(values: Iterable[object]) -> list[str]:
    return [f"{index}:{value}" for index, value in enumerate(values)]


# The settings

View = Callable[[DcbState], Any]
Put = Callable[[Dcb, str, DcbState], None]


def target_state(contract: HostSettings) -> DcbState:
    return DcbState(
        dcbx=HOST,
        trust=contract.trust,
        dscp={dscp: (priority,) for dscp, priority in contract.dscp_to_priority.items()},
        pfc=tuple(sorted(contract.pfc_priorities)),
        priority_to_tc=tuple(contract.priority_to_tc),
        cable_metres=contract.cable_metres,
        tsa=tuple(share.tsa for share in contract.ets),
        percent=tuple(share.percent for share in contract.ets),
    )


def qos_settings(contract: HostSettings, dcb: Optional[Dcb], rail: RailNic) -> list[NicSetting]:
    """Return the settings of a rail with an RDMA device; `dcb` is None if it is not installed."""
    if rail.device is None:
        return []
    # Classes to which a priority is mapped; the others never send.
    used = sorted(set(contract.priority_to_tc))

    def shares(state: DcbState) -> str:
        return " ".join(
            f"{tc}:{ETS} {state.percent[tc]}%" if state.tsa[tc] == ETS else f"{tc}:{state.tsa[tc]}"
            for tc in used
        )

    aspects: dict[str, tuple[View, Put]] = {
        "dcbx": (lambda state: state.dcbx, Dcb.put_dcbx),
        "trust": (lambda state: state.trust, Dcb.put_dscp),
        "dscp_to_priority": (lambda state: ranges(state.dscp), Dcb.put_dscp),
        "priority_to_tc": (lambda state: " ".join(_numbered(state.priority_to_tc)), Dcb.put_ets),
        "ets": (shares, Dcb.put_ets),
        "pfc": (lambda state: sorted(state.pfc), Dcb.put_pfc),
    }
    return [
        DcbSetting(name, view, put, rail, dcb, contract) for name, (view, put) in aspects.items()
    ]


class DcbSetting(NicSetting):
    otherwise = "its driver has no DCBX: nothing else sets its QoS"

    def __init__(
        self,
        name: str,
        view: View,
        put: Put,
        rail: RailNic,
        dcb: Optional[Dcb],
        contract: HostSettings,
    ) -> None:
        self._target = target_state(contract)
        self.name, self.wanted = name, view(self._target)
        self._view, self._put = view, put
        self._interface, self._dcb = rail.interface, dcb
        self._before: Optional[DcbState] = None
        """State at the first reading, which `restore` sets again."""

    def read(self) -> Reading:
        if self._dcb is None:
            return Reading(None, MISSING, FAILED)
        try:
            state = self._dcb.read(self._interface)
        except UnsupportedError as error:
            return Reading(None, str(error), FAILED)
        self._before = self._before or state
        found = self._view(state)
        return Reading(None, self.otherwise, NOT_APPLICABLE) if found is None else Reading(found)

    def set(self, value: Any) -> None:
        state = self._target if value == self.wanted else self._before
        # A setting that shares an object with another one is written together with it.
        if self._dcb and state and self._view(self._dcb.read(self._interface)) != value:
            self._put(self._dcb, self._interface, state)

    def forget(self) -> None:
        if self._dcb is not None:
            self._dcb.forget(self._interface)


def ranges(entries: Mapping[int, Collection[int]]) -> str:
    """Return a table of 64 entries as one line: `0-25:0 26:3 27-63:0`."""
    runs: list[tuple[int, int, str]] = []
    for dscp in sorted(entries):
        priorities = "+".join(str(priority) for priority in sorted(entries[dscp]))
        if runs and runs[-1][1:] == (dscp - 1, priorities):
            runs[-1] = (runs[-1][0], dscp, priorities)
        else:
            runs.append((dscp, dscp, priorities))
    return " ".join(
        f"{first}:{priorities}" if first == last else f"{first}-{last}:{priorities}"
        for first, last, priorities in runs
    )

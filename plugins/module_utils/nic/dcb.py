# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract on the wire: trust, PFC, DSCP to priority, priority to traffic class, ETS.

Read and set by `dcb` or `mlnx_qos`: `dcb` is iproute2's, with JSON; `mlnx_qos` is DOCA-OFED's, with
one text for all of an interface. dcb's batch mode cannot be used for all rails at once: it leaves
acknowledgements unread, so that every second question fails and the next one gets another
interface's answer (seen with 6.1).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Optional, Union

from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..qos import HostSettings
from .setting import Rail, Reading, Setting

HOST = "host"
"""Set by this host, and not agreed with the switch by firmware."""
FIRMWARE_CONTROLLED = "firmware"
DSCP = "dscp"
PCP = "pcp"
"""Packets are sorted by the priority in their VLAN tag."""
ETS = "ets"
EIGHT = 8


class UnsupportedError(Exception):
    """The tool or the driver cannot do this here; the text has which and why."""


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

    @property
    def shares(self) -> list[int]:
        """Percents of classes that share bandwidth: drivers report any number for the others."""
        return [share if how == ETS else 0 for how, share in zip(self.tsa, self.percent)]


class QosTool(ABC):
    """One of the two programs; subclasses read and set. Setting raises CommandError.

    What was read, or why it could not be, is kept until forgotten: a hang is waited for once.
    """

    name = ""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._known: dict[str, Union[DcbState, CommandError]] = {}

    def read(self, interface: str) -> DcbState:
        """Raises UnsupportedError or CommandError."""
        if interface not in self._known:
            try:
                self._known[interface] = self._ask(interface)
            except CommandError as error:
                self._known[interface] = error
        known = self._known[interface]
        if isinstance(known, CommandError):
            raise known
        return known

    def forget(self, interface: str) -> None:
        """What was read of it is out of date."""
        self._known.pop(interface, None)

    def fresh(self, interface: str) -> DcbState:
        self.forget(interface)
        return self.read(interface)

    @abstractmethod
    def _ask(self, interface: str) -> DcbState: ...

    @abstractmethod
    def put_dcbx(self, interface: str, state: DcbState) -> None:
        """To the host: no tool gives all of it back to the firmware, and it breaks nothing."""

    @abstractmethod
    def put_trust(self, interface: str, state: DcbState) -> None: ...

    @abstractmethod
    def put_dscp(self, interface: str, state: DcbState) -> None: ...

    @abstractmethod
    def put_pfc(self, interface: str, state: DcbState) -> None: ...

    @abstractmethod
    def put_ets(self, interface: str, state: DcbState) -> None:
        """Mapping and shares at once: they are one object in the kernel, checked as a whole."""


_NOTHING_THERE = ("Operation not supported", "Attribute not found")
"""Errors of a driver without DCB, or without this part of it."""


class Dcb(QosTool):
    """`dcb`, by its command line."""

    name = "dcb"
    package = "iproute2 (Debian, Ubuntu) or iproute (EL)"

    def _ask(self, interface: str) -> DcbState:
        pfc = self._promised(interface, "pfc")
        ets = self._promised(interface, "ets")
        app = self._promised(interface, "app", "dscp-prio")
        dcbx = self._show("dcbx", interface)
        try:
            mode = None if dcbx is None else HOST if dcbx.get("host") else FIRMWARE_CONTROLLED
            pairs = [(int(dscp), int(priority)) for dscp, priority in app.get("dscp_prio", [])]
            return DcbState(
                dcbx=mode,
                trust=DSCP if pairs else PCP,
                dscp=_entries(pairs),
                pfc=tuple(place for place, on in enumerate(pfc["prio_pfc"]) if on in (True, "on")),
                priority_to_tc=tuple(int(tc) for tc in ets["prio_tc"]),
                tsa=tuple(ets["tc_tsa"]),
                percent=tuple(int(share) for share in ets["tc_bw"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CommandError(f"dcb: unknown answer about {interface}: {error!r}") from error

    def _promised(self, interface: str, name: str, *more: str) -> dict[str, Any]:
        answer = self._show(name, interface, *more)
        if answer is None:
            raise UnsupportedError(f"its driver answers no DCB (dcb {name} show: not supported)")
        return answer

    def _show(self, name: str, interface: str, *more: str) -> Optional[dict[str, Any]]:
        """The answer, or None where the driver has none."""
        argv = (self.name, "-N", "-j", name, "show", "dev", interface, *more)
        result = self._run(argv, check=False)
        if result.rc != 0:
            output = result.stderr.strip() or result.stdout.strip() or "nothing"
            if any(text in output for text in _NOTHING_THERE):
                return None
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {output[-500:]}")
        try:
            answer: dict[str, Any] = json.loads(result.stdout)
        except ValueError as error:
            raise CommandError(f"{' '.join(argv)}: printed no JSON: {error}") from error
        return answer

    def put_dcbx(self, interface: str, state: DcbState) -> None:
        self._set("dcbx", interface, "host", "ieee")

    def put_trust(self, interface: str, state: DcbState) -> None:
        """The kernel trusts DSCP exactly when there is an entry for one."""
        self.put_dscp(interface, state)

    def put_dscp(self, interface: str, state: DcbState) -> None:
        wanted = _pairs(state)
        missing = wanted - _pairs(self.fresh(interface))
        if missing:
            # Not `replace`: mlx5 drops the former entry itself and then refuses to delete it.
            self._set_app("add", interface, missing)
        surplus = _pairs(self.fresh(interface)) - wanted
        if surplus:
            self._set_app("del", interface, surplus)
        self.forget(interface)

    def put_pfc(self, interface: str, state: DcbState) -> None:
        on = (f"{priority}:on" for priority in sorted(state.pfc))
        self._set("pfc", interface, "prio-pfc", "all:off", *on)

    def put_ets(self, interface: str, state: DcbState) -> None:
        words = ("tc-tsa", *_numbered(state.tsa), "tc-bw", *_numbered(state.shares))
        self._set("ets", interface, *words, "prio-tc", *_numbered(state.priority_to_tc))

    def _set(self, name: str, interface: str, *words: str) -> None:
        self.forget(interface)
        self._run((self.name, name, "set", "dev", interface, *words))

    def _set_app(self, verb: str, interface: str, pairs: Collection[tuple[int, int]]) -> None:
        words = (f"{dscp}:{priority}" for dscp, priority in sorted(pairs))
        self._run((self.name, "app", verb, "dev", interface, "dscp-prio", *words))


def _numbered(values: Iterable[object]) -> list[str]:
    return [f"{place}:{value}" for place, value in enumerate(values)]


def _pairs(state: DcbState) -> set[tuple[int, int]]:
    return {(dscp, priority) for dscp, given in state.dscp.items() for priority in given}


def _entries(pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    entries: dict[int, tuple[int, ...]] = {}
    for dscp, priority in pairs:
        entries[dscp] = tuple(sorted((*entries.get(dscp, ()), priority)))
    return entries


_DCBX = re.compile(r"^DCBX mode: (OS|Firmware) controlled", re.M)
_TRUST = re.compile(r"^Priority trust state: (\S+)", re.M)
_DSCP = re.compile(r"^\s*prio:(\d) dscp:([\d,]+)", re.M)
_PFC = re.compile(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", re.M)
_TC = re.compile(r"^tc: (\d) .*tsa: (\w+)(?:, bw: (\d+)%)?")
_PRIORITY = re.compile(r"^\s+priority:\s+(\d)\s*$")


class MlnxQos(QosTool):
    """`mlnx_qos`, by its command line."""

    name = "mlnx_qos"
    package = "mlnx-tools"

    def _ask(self, interface: str) -> DcbState:
        result = self._run((self.name, "-i", interface, "-a"), check=False)
        if result.rc != 0:
            output = (result.stderr.strip() or result.stdout.strip() or "nothing")[-500:]
            raise UnsupportedError(f"mlnx_qos cannot read it: {output}")
        try:
            return parse_mlnx_qos(result.stdout)
        except (LookupError, ValueError) as error:
            tail = result.stdout[-500:]
            raise CommandError(
                f"mlnx_qos -i {interface}: unknown answer ({error}): {tail}"
            ) from error

    def put_dcbx(self, interface: str, state: DcbState) -> None:
        self._set(interface, "-d", "os")

    def put_trust(self, interface: str, state: DcbState) -> None:
        self._set(interface, "--trust", state.trust)

    def put_dscp(self, interface: str, state: DcbState) -> None:
        """A DSCP has exactly one priority here: setting it takes the former one's place."""
        found = self.fresh(interface).dscp
        words: list[str] = []
        for dscp, priorities in sorted(state.dscp.items()):
            if tuple(priorities) != found.get(dscp):
                words += ["--dscp2prio", f"set,{dscp},{max(priorities)}"]
        if words:
            self._set(interface, *words)

    def put_pfc(self, interface: str, state: DcbState) -> None:
        on = ("1" if priority in state.pfc else "0" for priority in range(EIGHT))
        self._set(interface, "--pfc", ",".join(on))

    def put_ets(self, interface: str, state: DcbState) -> None:
        lists = {"--tsa": state.tsa, "--tcbw": state.shares, "--prio_tc": state.priority_to_tc}
        words = [(option, ",".join(map(str, values))) for option, values in lists.items()]
        self._set(interface, *(word for pair in words for word in pair))

    def _set(self, interface: str, *words: str) -> None:
        self.forget(interface)
        self._run((self.name, "-i", interface, *words))


def parse_mlnx_qos(text: str) -> DcbState:
    """What `mlnx_qos -i INTERFACE -a` prints. Raises LookupError and ValueError."""
    trust, pfc = _TRUST.search(text), _PFC.search(text)
    if trust is None or pfc is None:
        raise ValueError("no trust, or no PFC")
    dcbx = _DCBX.search(text)
    pairs = [
        (int(dscp), int(priority))
        for priority, listed in _DSCP.findall(text)
        for dscp in listed.strip(",").split(",")
    ]
    tsa, percent, priority_to_tc = ["strict"] * EIGHT, [0] * EIGHT, [0] * EIGHT
    tc: Optional[int] = None
    for line in text.splitlines():
        head, belongs = _TC.match(line), _PRIORITY.match(line)
        if head:
            tc = int(head[1])
            tsa[tc], percent[tc] = head[2], int(head[3] or 0)
        elif belongs and tc is not None:
            priority_to_tc[int(belongs[1])] = tc
    mode = None if dcbx is None else HOST if dcbx[1] == "OS" else FIRMWARE_CONTROLLED
    return DcbState(
        dcbx=mode,
        trust=DSCP if trust[1] == DSCP else PCP,
        dscp=_entries(pairs),
        pfc=tuple(place for place, on in enumerate(pfc[1].split()) if on == "1"),
        priority_to_tc=tuple(priority_to_tc),
        tsa=tuple(tsa),
        percent=tuple(percent),
    )


# The settings

MISSING = (
    f"neither {Dcb.name} nor {MlnxQos.name} is installed: install {Dcb.package}, or "
    f"{MlnxQos.package} of DOCA-OFED"
)
View = Callable[[DcbState], Any]
Put = Callable[[QosTool, str, DcbState], None]


def qos_settings(contract: HostSettings, tool: Optional[QosTool], rail: Rail) -> list[Setting]:
    """Those of a rail with an RDMA device; `tool` is None where neither program is installed."""
    if rail.device is None:
        return []
    target = DcbState(
        dcbx=HOST,
        trust=contract.trust,
        dscp={dscp: (priority,) for dscp, priority in contract.dscp_to_priority.items()},
        pfc=tuple(sorted(contract.pfc_priorities)),
        priority_to_tc=tuple(contract.priority_to_tc),
        tsa=tuple(each.tsa for each in contract.ets),
        percent=tuple(each.percent for each in contract.ets),
    )
    # Classes that a priority is mapped to: nothing is ever sent from the others.
    used = sorted(set(contract.priority_to_tc))

    def shares(state: DcbState) -> str:
        return " ".join(
            f"{tc}:{ETS} {state.percent[tc]}%" if state.tsa[tc] == ETS else f"{tc}:{state.tsa[tc]}"
            for tc in used
        )

    parts: list[tuple[str, str, View, Put]] = [
        ("dcbx", "dcbx", lambda state: state.dcbx, lambda by, *given: by.put_dcbx(*given)),
        ("trust", "app", lambda state: state.trust, lambda by, *given: by.put_trust(*given)),
        (
            "dscp_to_priority",
            "app",
            lambda state: ranges(state.dscp),
            lambda by, *given: by.put_dscp(*given),
        ),
        (
            "priority_to_tc",
            "ets",
            lambda state: " ".join(_numbered(state.priority_to_tc)),
            lambda by, *given: by.put_ets(*given),
        ),
        ("ets", "ets", shares, lambda by, *given: by.put_ets(*given)),
        ("pfc", "pfc", lambda state: sorted(state.pfc), lambda by, *given: by.put_pfc(*given)),
    ]
    return [
        DcbSetting(name, part, view, put, rail.interface, tool, target)
        for name, part, view, put in parts
    ]


class DcbSetting(Setting):
    """One part of an interface's DCB state."""

    def __init__(
        self,
        name: str,
        part: str,
        view: View,
        put: Put,
        interface: str,
        qos: Optional[QosTool],
        target: DcbState,
    ) -> None:
        """`part` is the object of iproute2's `dcb` that it is in."""
        self.name = name
        self.wanted = view(target)
        tool = "none" if qos is None else qos.name
        self.tool = f"{tool} {part}" if tool == Dcb.name else tool
        self._view = view
        self._put = put
        self._interface = interface
        self._qos = qos
        self._target = target
        self._before: Optional[DcbState] = None
        """As it was when it was first read: what a rollback puts back."""

    def read(self) -> Reading:
        if self._qos is None:
            return Reading.unsupported(MISSING)
        try:
            state = self._qos.read(self._interface)
        except UnsupportedError as error:
            return Reading.unsupported(str(error))
        self._before = self._before or state
        found = self._view(state)
        if found is None:
            return Reading.kept_otherwise("its driver has no DCBX: nothing else sets its QoS")
        return Reading(found)

    def set(self, value: Any) -> None:
        state = self._target if value == self.wanted else self._before
        # What is one object with another setting was written with it.
        if self._qos and state and self._view(self._qos.read(self._interface)) != value:
            self._put(self._qos, self._interface, state)

    def forget(self) -> None:
        if self._qos is not None:
            self._qos.forget(self._interface)


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

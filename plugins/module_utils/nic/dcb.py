# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How an interface sorts, queues and pauses traffic, read and set by `dcb` or `mlnx_qos`.

`dcb` is iproute2's, with JSON; `mlnx_qos` is DOCA-OFED's, with one text for all of an interface.
dcb's batch mode cannot be used for all rails at once: it leaves acknowledgements unread, so that
every second question fails and the next one gets another interface's answer (seen with 6.1).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from ..core.commands import CommandError, Runner
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


def ets_shares(tsa: Sequence[str], percent: Sequence[int]) -> list[int]:
    """Percents of classes that share the bandwidth: drivers report any number for the others."""
    return [share if how == ETS else 0 for how, share in zip(tsa, percent)]


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

    @abstractmethod
    def _ask(self, interface: str) -> DcbState: ...

    @abstractmethod
    def set_dcbx_host(self, interface: str) -> None: ...

    @abstractmethod
    def set_trust(self, interface: str, trust: str) -> None: ...

    @abstractmethod
    def set_dscp(self, interface: str, wanted: Mapping[int, Collection[int]]) -> None: ...

    @abstractmethod
    def set_pfc(self, interface: str, priorities: Collection[int]) -> None: ...

    @abstractmethod
    def set_ets(
        self,
        interface: str,
        priority_to_tc: Sequence[int],
        tsa: Sequence[str],
        percent: Sequence[int],
    ) -> None:
        """All three at once: they are one object in the kernel, checked as a whole."""


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
        return _state(interface, self._show("dcbx", interface), pfc, ets, app)

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

    def set_dcbx_host(self, interface: str) -> None:
        self._set("dcbx", interface, "host", "ieee")

    def set_trust(self, interface: str, trust: str) -> None:
        """The kernel trusts DSCP exactly when there is an entry for one."""
        if trust == PCP:
            self.set_dscp(interface, {})
        elif self._fresh(interface).trust != DSCP:
            raise CommandError(f"dcb: {interface} trusts DSCP once a DSCP is mapped, and none is")

    def set_dscp(self, interface: str, wanted: Mapping[int, Collection[int]]) -> None:
        pairs = {(dscp, priority) for dscp, given in wanted.items() for priority in given}
        missing = pairs - _pairs(self._fresh(interface))
        if missing:
            # Not `replace`: mlx5 drops the former entry itself and then refuses to delete it.
            self._set_app("add", interface, missing)
        surplus = _pairs(self._fresh(interface)) - pairs
        if surplus:
            self._set_app("del", interface, surplus)
        self.forget(interface)

    def set_pfc(self, interface: str, priorities: Collection[int]) -> None:
        on = (f"{priority}:on" for priority in sorted(priorities))
        self._set("pfc", interface, "prio-pfc", "all:off", *on)

    def set_ets(
        self,
        interface: str,
        priority_to_tc: Sequence[int],
        tsa: Sequence[str],
        percent: Sequence[int],
    ) -> None:
        self._set(
            "ets",
            interface,
            *("tc-tsa", *_mapping(tsa)),
            *("tc-bw", *_mapping(ets_shares(tsa, percent))),
            *("prio-tc", *_mapping(priority_to_tc)),
        )

    def _fresh(self, interface: str) -> DcbState:
        self.forget(interface)
        return self.read(interface)

    def _set(self, name: str, interface: str, *words: str) -> None:
        self.forget(interface)
        self._run((self.name, name, "set", "dev", interface, *words))

    def _set_app(self, verb: str, interface: str, pairs: Collection[tuple[int, int]]) -> None:
        words = (f"{dscp}:{priority}" for dscp, priority in sorted(pairs))
        self._run((self.name, "app", verb, "dev", interface, "dscp-prio", *words))


def _mapping(values: Sequence[object]) -> Iterable[str]:
    return (f"{place}:{value}" for place, value in enumerate(values))


def _pairs(state: DcbState) -> set[tuple[int, int]]:
    return {(dscp, priority) for dscp, given in state.dscp.items() for priority in given}


def _state(interface: str, dcbx: Any, pfc: Any, ets: Any, app: Any) -> DcbState:
    try:
        entries: dict[int, tuple[int, ...]] = {}
        for dscp, priority in app.get("dscp_prio", []):
            entries[int(dscp)] = tuple(sorted((*entries.get(int(dscp), ()), int(priority))))
        mode = None if dcbx is None else HOST if dcbx.get("host") else FIRMWARE_CONTROLLED
        return DcbState(
            dcbx=mode,
            trust=DSCP if entries else PCP,
            dscp=entries,
            pfc=tuple(place for place, on in enumerate(pfc["prio_pfc"]) if on in (True, "on")),
            priority_to_tc=tuple(int(tc) for tc in ets["prio_tc"]),
            tsa=tuple(ets["tc_tsa"]),
            percent=tuple(int(share) for share in ets["tc_bw"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"dcb: unknown answer about {interface}: {error!r}") from error


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
            return _parse(result.stdout)
        except (LookupError, ValueError) as error:
            tail = result.stdout[-500:]
            raise CommandError(
                f"mlnx_qos -i {interface}: unknown answer ({error}): {tail}"
            ) from error

    def set_dcbx_host(self, interface: str) -> None:
        self._set(interface, "-d", "os")

    def set_trust(self, interface: str, trust: str) -> None:
        self._set(interface, "--trust", trust)

    def set_dscp(self, interface: str, wanted: Mapping[int, Collection[int]]) -> None:
        """A DSCP has exactly one priority here: setting it takes the former one's place."""
        self.forget(interface)
        found = self.read(interface).dscp
        words: list[str] = []
        for dscp, priorities in sorted(wanted.items()):
            if tuple(priorities) != found.get(dscp):
                words += ["--dscp2prio", f"set,{dscp},{max(priorities)}"]
        if words:
            self._set(interface, *words)

    def set_pfc(self, interface: str, priorities: Collection[int]) -> None:
        on = ("1" if priority in priorities else "0" for priority in range(EIGHT))
        self._set(interface, "--pfc", ",".join(on))

    def set_ets(
        self,
        interface: str,
        priority_to_tc: Sequence[int],
        tsa: Sequence[str],
        percent: Sequence[int],
    ) -> None:
        self._set(
            interface,
            *("--tsa", ",".join(tsa)),
            *("--tcbw", ",".join(str(share) for share in ets_shares(tsa, percent))),
            *("--prio_tc", ",".join(str(tc) for tc in priority_to_tc)),
        )

    def _set(self, interface: str, *words: str) -> None:
        self.forget(interface)
        self._run((self.name, "-i", interface, *words))


def _parse(text: str) -> DcbState:
    trust, pfc = _TRUST.search(text), _PFC.search(text)
    if trust is None or pfc is None:
        raise ValueError("no trust, or no PFC")
    dcbx = _DCBX.search(text)
    entries: dict[int, tuple[int, ...]] = {}
    for priority, listed in _DSCP.findall(text):
        for dscp in listed.strip(",").split(","):
            entries[int(dscp)] = tuple(sorted((*entries.get(int(dscp), ()), int(priority))))
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
        dscp=entries,
        pfc=tuple(place for place, on in enumerate(pfc[1].split()) if on == "1"),
        priority_to_tc=tuple(priority_to_tc),
        tsa=tuple(tsa),
        percent=tuple(percent),
    )

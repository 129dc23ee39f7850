# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""iproute2's `dcb`: one call per rail and object, in JSON.

Its batch mode would ask for all rails at once, and is not to be believed: it leaves
acknowledgements unread, so that every second question fails, and the next one is answered with what
another interface said (seen with 6.1).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from ..core.commands import CommandError
from .dcb_state import (
    DSCP,
    EIGHT,
    FIRMWARE_CONTROLLED,
    HOST,
    PCP,
    DcbState,
    UnsupportedError,
    ets_shares,
)
from .dcb_tool import DcbTool

PROGRAM = "dcb"
PACKAGE = "iproute2 (Debian, Ubuntu) or iproute (EL)"

_NOTHING_THERE = ("Operation not supported", "Attribute not found")
"""What it says of a driver without DCB, or without this part of it."""


class Dcb(DcbTool):
    """`dcb`, by its command line."""

    name = PROGRAM

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
        argv = (PROGRAM, "-N", "-j", name, "show", "dev", interface, *more)
        result = self._run(argv, check=False)
        if result.rc != 0:
            said = result.stderr.strip() or result.stdout.strip() or "nothing"
            if any(text in said for text in _NOTHING_THERE):
                return None
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {said[-500:]}")
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
        self._run((PROGRAM, name, "set", "dev", interface, *words))

    def _set_app(self, verb: str, interface: str, pairs: Collection[tuple[int, int]]) -> None:
        words = (f"{dscp}:{priority}" for dscp, priority in sorted(pairs))
        self._run((PROGRAM, "app", verb, "dev", interface, "dscp-prio", *words))


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
            priority_to_tc=tuple(int(tc) for tc in _eight(ets["prio_tc"])),
            tsa=tuple(str(name) for name in _eight(ets["tc_tsa"])),
            percent=tuple(int(share) for share in _eight(ets["tc_bw"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(
            f"dcb: what it says of {interface} is not understood: {error!r}"
        ) from error


def _eight(values: Sequence[Any]) -> Sequence[Any]:
    if len(values) != EIGHT:
        raise ValueError(f"{len(values)} values instead of {EIGHT}")
    return values

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""DOCA-OFED's `mlnx_qos`: one call shows all of an interface, as text for people."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Optional

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

PROGRAM = "mlnx_qos"
PACKAGE = "mlnx-tools"

_DCBX = re.compile(r"^DCBX mode: (OS|Firmware) controlled", re.M)
_TRUST = re.compile(r"^Priority trust state: (\S+)", re.M)
_DSCP = re.compile(r"^\s*prio:(\d) dscp:([\d,]+)", re.M)
_PFC = re.compile(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", re.M)
_TC = re.compile(r"^tc: (\d) .*tsa: (\w+)(?:, bw: (\d+)%)?")
_PRIORITY = re.compile(r"^\s+priority:\s+(\d)\s*$")


class MlnxQos(DcbTool):
    """`mlnx_qos`, by its command line."""

    name = PROGRAM

    def _ask(self, interface: str) -> DcbState:
        result = self._run((PROGRAM, "-i", interface, "-a"), check=False)
        if result.rc != 0:
            said = (result.stderr.strip() or result.stdout.strip() or "nothing")[-500:]
            raise UnsupportedError(f"mlnx_qos cannot read it: {said}")
        return parse(result.stdout, interface)

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
        self._run((PROGRAM, "-i", interface, *words))


def parse(text: str, interface: str) -> DcbState:
    """What `mlnx_qos -i INTERFACE -a` printed. Raises CommandError where that is not so."""
    try:
        return _state(text)
    except (LookupError, ValueError) as error:
        raise CommandError(
            f"mlnx_qos: what it says of {interface} is not understood ({error}): {text[-500:]}"
        ) from error


def _state(text: str) -> DcbState:
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

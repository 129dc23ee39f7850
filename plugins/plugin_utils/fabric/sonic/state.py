# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routing and counters of a switch, by one command line each, which changes nothing.

Routing is what FRR reports: its JSON is the same on every release since 202205 (FRR 8.2). Names of
counters: sonic-utilities 691b1bbc, utilities_common/portstat.py, scripts/pfcstat, scripts/wredstat
and pfcwd/main.py; RATES: sonic-swss e6b0c5b5, orchagent/port_rates.lua.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Optional

from ....module_utils.core.text import printable
from ...answers import PORT, amount, mapping, sequence
from ..counters import PortCounters, number_of, read_ports
from ..routes import Prefix, prefix_of
from ..system import Completed, SwitchError
from ..underlay import (
    DEFAULT_VRF,
    GATEWAY,
    MAX_ENTRIES,
    PATHS,
    SESSION,
    SOURCE_PORT,
    BgpSession,
    RoutedInterface,
    Underlay,
)
from .reading import MARK, last_lines, parts_of

LIMIT_S = 60
INTERFACES, SESSIONS, ROUTES, HASHING = "interfaces", "sessions", "routes", "hash"
_PROGRAMS = {
    INTERFACES: "vtysh -c 'show interface vrf all json'",
    SESSIONS: "vtysh -c 'show bgp summary json'",
    ROUTES: "vtysh -c 'show ip route json'",
    HASHING: "sonic-db-dump -n CONFIG_DB -k 'SWITCH_HASH*' -y",
}
UNDERLAY = "; ".join(
    f"{program}; printf '\\n{MARK} %s %s\\n' {name} $?" for name, program in _PROGRAMS.items()
)
_PART = {INTERFACES: GATEWAY, SESSIONS: SESSION, ROUTES: PATHS}

_COUNTERS = """\
import json, sys
from swsscommon.swsscommon import SonicV2Connector
db = SonicV2Connector(use_unix_socket_path=True)
db.connect("COUNTERS_DB")
def row(key):
    return dict(db.get_all("COUNTERS_DB", key) or {})
queues = {}
for name, oid in row("COUNTERS_QUEUE_NAME_MAP").items():
    queues.setdefault(name.partition(":")[0], []).append(oid)
ports, found = row("COUNTERS_PORT_NAME_MAP"), {}
for port in sys.argv[1:]:
    if port in ports:
        values = {**row("COUNTERS:" + ports[port]), **row("RATES:" + ports[port])}
        for queue in queues.get(port, ()):
            for name, value in row("COUNTERS:" + queue).items():
                if name.endswith(("_WRED_ECN_MARKED_PACKETS", "_DEADLOCK_DETECTED")):
                    values[name] = int(values.get(name, 0)) + int(value)
        found[port] = {k: v for k, v in values.items() if k.startswith(tuple(%(names)r))}
json.dump(found, sys.stdout)
"""
_SAI = "SAI_PORT_STAT_"
_NAMES = {
    "rx_bytes": (f"{_SAI}IF_IN_OCTETS",),
    "tx_bytes": (f"{_SAI}IF_OUT_OCTETS",),
    "rx_packets": (f"{_SAI}IF_IN_UCAST_PKTS", f"{_SAI}IF_IN_NON_UCAST_PKTS"),
    "tx_packets": (f"{_SAI}IF_OUT_UCAST_PKTS", f"{_SAI}IF_OUT_NON_UCAST_PKTS"),
    "rx_errors": (f"{_SAI}IF_IN_ERRORS",),
    "tx_errors": (f"{_SAI}IF_OUT_ERRORS",),
    "rx_discards": (f"{_SAI}IF_IN_DISCARDS",),
    "tx_discards": (f"{_SAI}IF_OUT_DISCARDS",),
    "ecn_marked": ("SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",),
    "fec_corrected": (f"{_SAI}IF_IN_FEC_CORRECTABLE_FRAMES",),
    "fec_uncorrected": (f"{_SAI}IF_IN_FEC_NOT_CORRECTABLE_FRAMES",),
    "pre_fec_ber": ("FEC_PRE_BER",),
    "watchdog": ("PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED",),
}
"""SAI's counters by name; several are added."""
_BY_PRIORITY = {
    "rx_pause": f"{_SAI}PFC_{{}}_RX_PKTS",
    "tx_pause": f"{_SAI}PFC_{{}}_TX_PKTS",
    "rx_pause_us": f"{_SAI}PFC_{{}}_RX_PAUSE_DURATION_US",
}


def read_underlay(answer: Completed) -> Underlay:
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    parts = parts_of(answer)
    for name, program in _PROGRAMS.items():
        rc, text = parts.get(name, (1, ""))
        found[name] = _object(text) if rc == 0 else None
        if found[name] is None and name in _PART:
            printed = f"failed with status {rc}{last_lines(answer)}" if rc else "printed no JSON"
            reasons[_PART[name]] = f"`{program}` {printed}"
    return Underlay(
        interfaces=None if found[INTERFACES] is None else dict(_interfaces(found[INTERFACES])),
        sessions=None if found[SESSIONS] is None else list(_sessions(found[SESSIONS])),
        routes=None if found[ROUTES] is None else dict(_routes(found[ROUTES])),
        hash_fields=_hash_fields(found[HASHING]),
        reasons=reasons,
    )


def _object(text: str) -> Optional[Mapping[str, Any]]:
    try:
        value = printable(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return None
    return mapping(value) if isinstance(value, Mapping) else None


def _some(value: Any) -> Iterable[tuple[str, Any]]:
    return list(mapping(value).items())[:MAX_ENTRIES]


def _interfaces(answer: Any) -> Iterator[tuple[str, RoutedInterface]]:
    for name, entry in _some(answer):
        own = [mapping(each) for each in sequence(mapping(entry).get("ipAddresses"))]
        mtu = amount(mapping(entry).get("mtu"), 1 << 20)
        yield (
            name,
            RoutedInterface(
                tuple(str(each.get("address", "")) for each in own),
                None if mtu is None else int(mtu),
                str(mapping(entry).get("vrfName", DEFAULT_VRF)),
            ),
        )


def _sessions(answer: Any) -> Iterator[BgpSession]:
    for _family, summary in _some(answer):
        for peer, entry in _some(mapping(summary).get("peers")):
            asn = amount(mapping(entry).get("remoteAs"), 1 << 32)
            state = str(mapping(entry).get("state", "")).lower()
            yield BgpSession(peer, state, int(asn) if asn else None)


def _routes(answer: Any) -> Iterator[tuple[Prefix, frozenset[str]]]:
    for network, entries in _some(answer):
        prefix = prefix_of(network)
        for entry in map(mapping, sequence(entries)):
            if prefix is not None and entry.get("selected"):
                yield prefix, frozenset(_hops(entry))


def _hops(route: Mapping[str, Any]) -> Iterator[str]:
    """Next hops in the forwarding table: FRR lists a recursive one, and then what resolves it."""
    for hop in map(mapping, sequence(route.get("nexthops"))):
        name = hop.get("interfaceName")
        if name and hop.get("fib") and not hop.get("recursive") and not hop.get("duplicate"):
            yield str(name)


def _hash_fields(answer: Any) -> Optional[frozenset[str]]:
    """Fields of SWITCH_HASH (sonic-buildimage 086b03bd, sonic-hash.yang); None: the chip's own."""
    row = mapping(mapping(mapping(answer).get("SWITCH_HASH|GLOBAL")).get("value"))
    listed = str(row.get("ecmp_hash@") or row.get("ecmp_hash") or "")
    names = [name.strip() for name in listed.split(",") if name.strip()]
    words = {"L4_SRC_PORT": SOURCE_PORT}
    return frozenset(words.get(name, name.lower()) for name in names) if names else None


def counters_command(ports: Sequence[str]) -> str:
    names = [name for several in _NAMES.values() for name in several]
    names.append(f"{_SAI}PFC_")
    snippet = _COUNTERS % {"names": names}
    return f"python3 -I -c {quote(snippet)} {' '.join(map(quote, filter(PORT.fits, ports)))}"


def read_counters(answer: Completed) -> dict[str, PortCounters]:
    if answer.rc != 0:
        raise SwitchError(
            f"COUNTERS_DB could not be read (status {answer.rc}){last_lines(answer)}. Is the "
            "container `database` up (`docker ps`)?"
        )
    found = _object(answer.stdout)
    if found is None:
        raise SwitchError("COUNTERS_DB: the answer is not JSON")
    return read_ports({port: _named(mapping(values)) for port, values in _some(found)})


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, several in _NAMES.items():
        known = [values[each] for each in several if each in values]
        if len(known) > 1:
            counts = [count for count in map(number_of, known) if count is not None]
            found[name] = sum(map(int, counts)) if counts else None
        elif known:
            found[name] = known[0]
    for name, pattern in _BY_PRIORITY.items():
        keys = {str(priority): pattern.format(priority) for priority in range(8)}
        found[name] = {key: values[each] for key, each in keys.items() if each in values}
    return found

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routing and counters of a switch, by show commands.

Commands and the JSON of their answers: aristanetworks/anta 68667e0e, anta/tests/interfaces.py,
routing/bgp.py, routing/generic.py and their unit tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from ...answers import amount, mapping, sequence
from ..counters import ALL, PortCounters
from ..routes import Prefix, prefix_of
from ..underlay import (
    DEFAULT_VRF,
    GATEWAY,
    MAX_ENTRIES,
    PATHS,
    SESSION,
    BgpSession,
    RoutedInterface,
    Underlay,
)

Ask = Callable[[Sequence[str]], Sequence[Optional[Mapping[str, Any]]]]
"""Sends commands; None if EOS refuses one, as the release or the chip does not have it."""
_INTERFACES, _SESSIONS, _ROUTES = "show ip interface", "show bgp summary", "show ip route"
_COUNTERS = {
    "show interfaces": "interfaces",
    "show priority-flow-control counters": "interfaceCounters",
    "show qos interfaces ecn counters queue": "intfQueueCounters",
    "show interfaces phy detail": "interfacePhyStatuses",
}
"""Commands, and the key of their answers."""
_SCOPE = re.compile(r"%Et(?=[0-9])")


def read_underlay(ask: Ask) -> Underlay:
    interfaces, sessions, routes = ask((_INTERFACES, _SESSIONS, _ROUTES))
    parts = ((GATEWAY, interfaces, _INTERFACES), (SESSION, sessions, _SESSIONS))
    missing = [*parts, (PATHS, routes, _ROUTES)]
    return Underlay(
        interfaces=None if interfaces is None else dict(_interfaces(interfaces)),
        sessions=None if sessions is None else list(_sessions(sessions)),
        routes=None if routes is None else dict(_routes(routes)),
        reasons={part: f"EOS refuses `{name}`" for part, got, name in missing if got is None},
    )


def _some(value: Any) -> list[tuple[str, Any]]:
    return list(mapping(value).items())[:MAX_ENTRIES]


def _default(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(answer.get("vrfs")).get(DEFAULT_VRF))


def _interfaces(answer: Mapping[str, Any]) -> Iterator[tuple[str, RoutedInterface]]:
    for name, entry in _some(answer.get("interfaces")):
        values = mapping(entry)
        mtu = amount(values.get("mtu"), 1 << 20)
        vrf = str(values.get("vrf") or DEFAULT_VRF)
        addresses = tuple(dict.fromkeys(_addresses(values.get("interfaceAddress"))))
        yield name, RoutedInterface(addresses, None if mtu is None else int(mtu), vrf)


def _addresses(value: Any) -> Iterator[str]:
    """Primary, secondary and virtual ones: objects with `address` and `maskLen`."""
    own = mapping(value)
    lists = sequence(own.get("secondaryIpsOrderedList")), own.get("virtualSecondaryIpsOrderedList")
    for entry in (own.get("primaryIp"), own.get("virtualIp"), *lists[0], *sequence(lists[1])):
        one = mapping(entry)
        if one.get("address") not in (None, "0.0.0.0"):
            yield f"{one['address']}/{one.get('maskLen', 32)}"


def _sessions(answer: Mapping[str, Any]) -> Iterator[BgpSession]:
    for peer, entry in _some(_default(answer).get("peers")):
        values = mapping(entry)
        asn = str(values.get("peerAsn", ""))  # `65000.1` is not compared
        # fe80::1%Et49/1: a peer without number, on Ethernet49/1
        port = _SCOPE.sub("%Ethernet", peer).partition("%")[2]
        state = str(values.get("peerState", "")).lower()
        yield BgpSession(
            port or peer, state, int(asn) if asn.isdecimal() and len(asn) <= 10 else None
        )


def _routes(answer: Mapping[str, Any]) -> Iterator[tuple[Prefix, frozenset[str]]]:
    for network, entry in _some(_default(answer).get("routes")):
        prefix = prefix_of(network)
        if prefix is not None and mapping(entry).get("hardwareProgrammed") is not False:
            vias = map(mapping, sequence(mapping(entry).get("vias")))
            yield prefix, frozenset(str(via["interface"]) for via in vias if "interface" in via)


def read_counters(ask: Ask, ports: Sequence[str]) -> dict[str, PortCounters]:
    answers = ask(list(_COUNTERS))
    interfaces, paused, marked, layers = (
        mapping(mapping(answer).get(key)) for answer, key in zip(answers, _COUNTERS.values())
    )
    return {
        port: PortCounters.of(
            {
                **_counted(mapping(mapping(interfaces[port]).get("interfaceCounters"))),
                **_paused(mapping(paused.get(port))),
                "ecn_marked": _marked(mapping(marked.get(port))),
                **_layer(mapping(layers.get(port))),
            }
        )
        for port in ports
        if port in interfaces
    }


def _counted(own: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, way in (("rx", "in"), ("tx", "out")):
        kinds = [own.get(f"{way}{kind}Pkts") for kind in ("Ucast", "Multicast", "Broadcast")]
        known = [int(n) for n in (amount(kind, 1 << 64) for kind in kinds) if n is not None]
        found |= {
            f"{side}_bytes": own.get(f"{way}Octets"),
            f"{side}_packets": sum(known) if known else None,
            f"{side}_discards": own.get(f"{way}Discards"),
            f"{side}_errors": own.get(f"total{way.title()}Errors"),
        }
    return found


def _paused(own: Mapping[str, Any]) -> dict[str, Any]:
    sides = (("rx_pause", own.get("rxFrames")), ("tx_pause", own.get("txFrames")))
    return {name: {ALL: count} for name, count in sides if count is not None}


def _marked(own: Mapping[str, Any]) -> Optional[int]:
    """Of all queues. `-`: a queue that does not mark."""
    counts = mapping(own.get("queueCounters")).values()
    known = [int(count) for count in map(str, counts) if count.isdecimal() and len(count) <= 20]
    return sum(known) if known else None


def _layer(own: Mapping[str, Any]) -> dict[str, Any]:
    """Of the chip next to the cable, which is listed first."""
    for status in map(mapping, sequence(own.get("phyStatuses"))):
        fec = mapping(status.get("fec"))
        if fec:
            return {
                "fec_corrected": mapping(fec.get("correctedCodewords")).get("value"),
                "fec_uncorrected": mapping(fec.get("uncorrectedCodewords")).get("value"),
                "pre_fec_ber": mapping(status.get("preFecBer")).get("value"),
            }
    return {}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routing and counters of a switch, by requests that change nothing.

NVUE Reference, Show Commands: Interface, BGP, RIB, QoS (CumulusNetworks/docs 047c2206, 02191e83),
whose commands are the paths of the REST interface. It prints tables, so where it does not show a
key, several are accepted; one that is absent is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from ...answers import amount
from ..counters import PortCounters
from ..https import Https
from ..routes import Prefix, prefix_of
from ..underlay import (
    DEFAULT_VRF,
    MAX_ENTRIES,
    PATHS,
    SESSION,
    SOURCE_PORT,
    BgpSession,
    RoutedInterface,
    Underlay,
)
from .reading import get
from .tree import Tree, at, expanded, is_on, number, objects_at

_ADDRESSES = (
    ("ip", "address"),
    ("ipv4", "address"),
    ("ip", "vrr", "address"),
    ("ipv4", "vrr", "address"),
)
"""`ipv4` from release 5.15 on, `ip` before; of VRR for a gateway that two switches share."""
_ROUTED = ("link/mtu", "ip/vrf", *("/".join(path) for path in _ADDRESSES))
_COUNTED = ("link/stats", "link/counters", "counters", "link/phy/health", "link/phy-detail")
_HASH = {"source-port": SOURCE_PORT}
_BGP, _RIB = "vrf/default/router/bgp/neighbor", "vrf/default/router/rib/ipv4/route"
_GROUPS = "router/nexthop/rib"


def read_underlay(https: Https) -> Underlay:
    interfaces = _interfaces(https, _ROUTED)
    sessions = get(https, _BGP, None, 400, 404)
    routes = get(https, _RIB, None, 400, 404)
    found = None if routes is None else dict(_routes(https, routes))
    reasons = {} if sessions is not None else {SESSION: f"NVUE has no {_BGP}"}
    if routes is None or (routes and not any((found or {}).values())):
        found = None
        reasons[PATHS] = f"NVUE reports no next hop in {_RIB}"
    hashed = get(https, "system/forwarding/ecmp-hash", None, 400, 404)
    fields = {name for name, value in (hashed or {}).items() if is_on(value)}
    return Underlay(
        interfaces={name: _routed(entry) for name, entry in interfaces.items()},
        sessions=None if sessions is None else list(_sessions(sessions)),
        routes=found,
        hash_fields=frozenset(_HASH.get(name, name) for name in fields) if hashed else None,
        reasons=reasons,
    )


def _interfaces(https: Https, parts: Sequence[str]) -> Tree:
    """An older release has no `include`, and then answers with all of each interface."""
    here = get(https, "interface", {"include": ",".join(f"/*/{part}" for part in parts)}, 400)
    return expanded(get(https, "interface") if here is None else here)


def _routed(entry: Any) -> RoutedInterface:
    addresses = [address for path in _ADDRESSES for address in objects_at(entry, *path)]
    vrf = at(entry, "ip", "vrf")
    return RoutedInterface(
        tuple(dict.fromkeys(addresses)), number(at(entry, "link", "mtu")), str(vrf or DEFAULT_VRF)
    )


def _sessions(neighbours: Tree) -> Iterator[BgpSession]:
    for peer, entry in list(neighbours.items())[:MAX_ENTRIES]:
        yield BgpSession(
            peer, str(at(entry, "state") or "").lower(), number(at(entry, "remote-as"))
        )


def _routes(https: Https, routes: Tree) -> Iterator[tuple[Prefix, frozenset[str]]]:
    groups: Optional[Tree] = None
    for network, route in list(routes.items())[:MAX_ENTRIES]:
        prefix = prefix_of(network)
        if prefix is None:
            continue
        for entry in _entries(route):
            flags = at(entry, "flags")
            if flags is not None and "installed" not in flags:
                continue
            hops = frozenset(_hops(objects_at(entry, "via")))
            group = str(at(entry, "nexthop-group-id") or at(entry, "nhg-id") or "")
            if not hops and group:
                if groups is None:
                    groups = get(https, _GROUPS, None, 400, 404) or {}
                members = [group, *objects_at(groups, group, "depends")]
                hops = frozenset(
                    hop for one in members for hop in _hops(objects_at(groups, one, "via"))
                )
            yield prefix, hops


def _entries(route: Any) -> Iterator[Tree]:
    """By protocol and index, or in older releases by index."""
    by_protocol = objects_at(route, "protocol")
    lists = [objects_at(one, "entry-index") for one in by_protocol.values()]
    for entries in (*lists, objects_at(route, "route-entry")):
        yield from (dict(entry) for entry in entries.values() if isinstance(entry, Mapping))


def _hops(via: Tree) -> Iterator[str]:
    for name, hop in via.items():
        resolved = objects_at(hop, "resolved-via")
        if resolved:
            yield from _hops(resolved)
        else:
            yield str(at(hop, "interface") or name)


def read_counters(https: Https, ports: Sequence[str]) -> dict[str, PortCounters]:
    found = _interfaces(https, _COUNTED)
    return {port: PortCounters.of(_counted(found[port])) for port in ports if port in found}


def _counted(port: Any) -> dict[str, Any]:
    stats = objects_at(port, "link", "stats") or objects_at(port, "link", "counters")
    health = objects_at(port, "link", "phy", "health") or objects_at(port, "link", "phy-detail")
    qos = objects_at(port, "counters", "qos")
    pfc = expanded(at(qos, "pfc-stats"))
    marked = at(qos, "port-stats", "tx", "ecn-marked-packets")
    return {
        **{
            f"{side}_{what}": stats.get(f"{way}-{key}")
            for side, way in (("rx", "in"), ("tx", "out"))
            for what, key in (
                ("bytes", "bytes"),
                ("packets", "pkts"),
                ("errors", "errors"),
                ("discards", "drops"),
            )
        },
        "rx_pause": _by_priority(pfc, "rx-pause-frames"),
        "tx_pause": _by_priority(pfc, "tx-pause-frames"),
        "ecn_marked": marked,
        # Errors that FEC corrected are `raw`, and those it did not are `effective` (NVIDIA, UFM
        # Telemetry, Secondary Telemetry Fields).
        "fec_uncorrected": health.get("effective-errors"),
        "pre_fec_ber": health.get("raw-ber"),
    }


def _by_priority(pfc: Tree, name: str) -> dict[str, Any]:
    counts = {priority: at(entry, name) for priority, entry in pfc.items()}
    return {key: count for key, count in counts.items() if amount(count, 1 << 64) is not None}

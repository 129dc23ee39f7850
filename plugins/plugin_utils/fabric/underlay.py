# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The routed underlay of one switch against the model: gateways with their MTU, BGP sessions, and
equal-cost paths to the rails of other leaves. No layer configures it.

A path that no switch reports is no fault: each part that is missing is not applicable, with its
reason.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

from ...module_utils.core.checks import FAILED, OK, Check, as_dicts, not_applicable
from ...module_utils.core.text import counted, natural, some
from ..answers import checks as checks_of
from .results import UNDERLAY
from .routes import Hops, Prefix, Routes, key_of, prefix_of, text_of
from .system import DOWNLINK, HOST, UPLINK

DEFAULT_VRF = "default"
ESTABLISHED = "established"
SOURCE_PORT = "source port"
"""Of UDP, by which queue pairs of RoCE v2 differ (Annex A17 of the InfiniBand specification)."""
ANY, GATEWAY, SESSION = "underlay", "underlay_gateway", "underlay_session"
PATHS, HASH = "underlay_paths", "underlay_hash"
MAX_ENTRIES = 100_000
"""Maximum number of interfaces, sessions or routes of one switch; further ones are ignored."""
MAX_LISTED = 8
BY_HAND = "routing is configured by hand: docs/first-site.md, The underlay"


@dataclass(frozen=True)
class RoutedInterface:
    addresses: tuple[str, ...] = ()
    """With or without the length of their prefix."""
    mtu: Optional[int] = None
    vrf: str = DEFAULT_VRF


@dataclass(frozen=True)
class BgpSession:
    peer: str
    """An address, or the name of an interface for a peer without number."""
    state: str
    asn: Optional[int] = None


@dataclass(frozen=True)
class Underlay:
    """What a switch reports. None: not reported; `reasons` says why, by part."""

    interfaces: Optional[Mapping[str, RoutedInterface]] = None
    sessions: Optional[Sequence[BgpSession]] = None
    routes: Optional[Mapping[Prefix, Hops]] = None
    """The interfaces of the next hops, by network."""
    hash_fields: Optional[frozenset[str]] = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By GATEWAY, SESSION and PATHS."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON, for the layer links; routes as ranges, by their next hops."""
        interfaces, sessions, routes = self.interfaces, self.sessions, self.routes
        return {
            "interfaces": None
            if interfaces is None
            else {
                name: [list(each.addresses), each.mtu, each.vrf]
                for name, each in interfaces.items()
            },
            "sessions": None
            if sessions is None
            else [[each.peer, each.state, each.asn] for each in sessions],
            "routes": None
            if routes is None
            else [[sorted(hops), ranges] for hops, ranges in Routes.of(routes).groups],
            "hash_fields": None if self.hash_fields is None else sorted(self.hash_fields),
            "reasons": dict(self.reasons),
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Underlay:
        interfaces, sessions, routes, fields = map(
            found.get, ("interfaces", "sessions", "routes", "hash_fields")
        )
        return cls(
            None
            if interfaces is None
            else {
                name: RoutedInterface(tuple(addresses), mtu, vrf)
                for name, (addresses, mtu, vrf) in interfaces.items()
            },
            None if sessions is None else [BgpSession(*each) for each in sessions],
            None
            if routes is None
            else Routes((frozenset(hops), ranges) for hops, ranges in routes),
            None if fields is None else frozenset(fields),
            found.get("reasons") or {},
        )


class Port(NamedTuple):
    """One port of the switch in the model."""

    name: str
    kind: str
    peer: str
    peer_interface: str
    mtu: int
    address: Optional[str]
    """Its own address, or the gateway on it."""
    prefix: Optional[int]
    bundled: bool = False
    """Whether it is in a port channel."""

    def __str__(self) -> str:
        return f"{self.name} - {self.peer} {self.peer_interface}"


def ports_of(groups: Iterable[Mapping[str, Any]]) -> Iterator[Port]:
    """From `cluster_ports`."""
    for group in groups:
        shared, own = group.get("address"), group.get("addresses") or {}
        for port, peer in group["peers"].items():
            address = own.get(port) or shared
            rest = group["peer_interface"], group["mtu"], address, group.get("prefix")
            yield Port(port, group["kind"], peer, *rest, port in (group.get("channels") or {}))


def rails_of(ports: Iterable[Port]) -> Iterator[Prefix]:
    """The networks of the rails on a leaf."""
    found = {
        prefix_of(f"{port.address}/{port.prefix}")
        for port in ports
        if port.kind == HOST and port.address and port.prefix is not None
    }
    return (prefix for prefix in sorted(filter(None, found)))


def links_of(ports: Mapping[str, Sequence[Port]]) -> dict[str, dict[str, Hops]]:
    """Ports of each switch to others, by peer."""
    found: dict[str, dict[str, set[str]]] = {}
    for name, own in ports.items():
        peers = found.setdefault(name, {})
        for port in own:
            if port.kind in (UPLINK, DOWNLINK):
                peers.setdefault(port.peer, set()).add(port.name)
    return {
        name: {peer: frozenset(names) for peer, names in peers.items()}
        for name, peers in found.items()
    }


def first_hops(
    switch: str, links: Mapping[str, Mapping[str, Hops]], targets: Collection[str]
) -> dict[str, Hops]:
    """Ports of `switch` on any shortest path, by the leaf among `targets` to which it leads."""
    hops: dict[str, Hops] = {switch: frozenset(), **links.get(switch, {})}
    edge = list(links.get(switch, ()))
    while edge:
        before: dict[str, list[str]] = {}
        for name in edge:
            for peer in links.get(name, ()):
                if peer not in hops:
                    before.setdefault(peer, []).append(name)
        # Most leaves are behind the same spines.
        unions: dict[tuple[str, ...], Hops] = {}
        for peer, names in before.items():
            key = tuple(names)
            if key not in unions:
                unions[key] = frozenset().union(*(hops[name] for name in names))
            hops[peer] = unions[key]
        edge = list(before)
    return {name: hops[name] for name in targets if name in hops and name != switch}


@dataclass
class _Lost:
    """Rails without a route, of which the first are named."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, keys: Collection[int], leaf: str) -> None:
        self.count += len(keys)
        if len(self.shown) < MAX_LISTED:
            left = MAX_LISTED - len(self.shown)
            self.shown += [f"{text_of(key)} of {leaf}" for key in sorted(keys)[:left]]

    def __str__(self) -> str:
        more = self.count - len(self.shown)
        return ", ".join(self.shown) + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class Site:
    """The switches of the model, of which one is compared."""

    switch: str
    ports: Mapping[str, Sequence[Port]]
    asns: Mapping[str, int] = field(default_factory=dict)
    rails: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Keys of the networks of the rails on each leaf."""
    links: Mapping[str, Mapping[str, Hops]] = field(default_factory=dict)
    """Ports of each switch to others, by peer."""
    lost: Collection[tuple[str, str]] = ()
    """Switches and ports of links that are known to carry nothing: paths over them are not
    expected."""

    @property
    def own(self) -> Sequence[Port]:
        return self.ports.get(self.switch, ())

    def expected_hops(self) -> dict[str, frozenset[str]]:
        """Ports on the shortest paths, by the leaf to which they lead."""
        hops = first_hops(self.switch, self.links, self.rails)
        if not self.lost:
            return hops
        left = {**self.links}
        for name in {name for name, _port_name in self.lost}:
            gone = {port for switch, port in self.lost if switch == name}
            peers = {peer: names - gone for peer, names in left.get(name, {}).items()}
            left[name] = {peer: names for peer, names in peers.items() if names}
        rest = first_hops(self.switch, left, self.rails)
        # A detour around a lost link is no equal-cost path.
        hops = {leaf: own & rest.get(leaf, frozenset()) for leaf, own in hops.items()}
        return {leaf: own for leaf, own in hops.items() if own}


def needed(groups: Mapping[str, Any], hostvars: Any) -> bool:
    """Whether rails of the model need a gateway: there are several leaf sets."""
    for name in list(groups.get("compute", ()))[:1]:
        node = hostvars.raw_get(name)
        rails = node.get("cluster_rails") or ()
        return bool(node.get("cluster_rail_networks") or any(map(_has_networks, rails)))
    return False


def _has_networks(rail: Mapping[str, Any]) -> bool:
    return bool(rail.get("networks"))


def site_of(switch: str, groups: Mapping[str, Any], hostvars: Any) -> Optional[Site]:
    """From the variables of all hosts; None if no rail of the model needs a gateway."""
    if not needed(groups, hostvars):
        return None
    ports: dict[str, Sequence[Port]] = {}
    asns: dict[str, int] = {}
    # Untemplated, because there are many switches.
    for name in (*groups.get("leaf", ()), *groups.get("spine", ())):
        variables = hostvars.raw_get(name)
        ports[name] = tuple(ports_of(variables.get("cluster_ports") or ()))
        if variables.get("cluster_asn"):
            asns[name] = int(variables["cluster_asn"])
    rails = {name: frozenset(map(key_of, rails_of(own))) for name, own in ports.items()}
    rails = {name: own for name, own in rails.items() if own}
    return Site(switch, ports, asns, rails, links_of(ports))


@dataclass(frozen=True)
class Reading:
    """What the step `underlay` of switch_qos registered, of the switches that were read."""

    site: Site
    found: Mapping[str, Underlay]
    problems: Mapping[str, str]
    """Why switches could not be read."""

    def without(self, lost: Collection[tuple[str, str]]) -> Reading:
        return replace(self, site=replace(self.site, lost=lost))

    @property
    def small(self) -> dict[str, frozenset[str]]:
        """Interfaces of each switch with a gateway of rails and a smaller MTU, other than ports of
        the model."""
        found = {}
        for name, own in self.found.items():
            site = replace(self.site, switch=name)
            ports = {port.name for port in site.own}
            found[name] = frozenset(_Comparison(site, own).too_small()) - ports
        return found

    def checks(
        self, known: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> Iterator[tuple[str, Check]]:
        """Switches with their checks, whose subjects begin with the switch. `known`: as for
        `compare`, by switch."""
        made = {
            name: compare(replace(self.site, switch=name), found, known.get(name, ()))
            for name, found in self.found.items()
        }
        for name, problem in self.problems.items():
            made[name] = [Check(ANY, "the routing of this switch", None, FAILED, "", problem)]
        for name, checks in made.items():
            for one in checks_of(as_dicts(checks)):  # names and states are the switch's words
                yield name, Check(**{**one, "subject": f"{name} {one['subject']}".strip()})

    def down(self) -> Iterator[tuple[str, Port, str]]:
        """Ports of links without an established session, with its state, on each switch."""
        for name, found in self.found.items():
            for port, state in _Comparison(replace(self.site, switch=name), found).down():
                yield name, port, state


def reading_of(groups: Mapping[str, Any], hostvars: Any, hosts: Iterable[str]) -> Optional[Reading]:
    """Of these hosts; None if no switch was read, or no rail of the model needs a gateway."""
    read = {name: hostvars.raw_get(name).get(UNDERLAY) or {} for name in hosts}
    read = {name: result for name, result in read.items() if result}
    site = site_of(next(iter(read), ""), groups, hostvars) if read else None
    if site is None:
        return None
    found = {name: Underlay.of(one["found"]) for name, one in read.items() if one.get("found")}
    problems = {
        name: str(one["problem"])
        for name, one in read.items()
        if name not in found and one.get("problem")
    }
    return Reading(site, found, problems)


def compare(site: Site, found: Underlay, known: Collection[str] = ()) -> list[Check]:
    """One check for each fault, and one for each part that is as in the model. The MTU of ports
    that are `known` to be wrong has a check elsewhere."""
    return _Comparison(site, found, known).checks()


class _Comparison:
    def __init__(self, site: Site, found: Underlay, known: Collection[str] = ()) -> None:
        self._site = site
        self._known = known
        self._found = found
        self._interfaces = found.interfaces or {}
        self._holders: dict[str, list[str]] = {}
        for name, interface in self._interfaces.items():
            for address in interface.addresses:
                self._holders.setdefault(address.partition("/")[0], []).append(name)
        self._gateways: dict[tuple[str, int], list[Port]] = {}
        for port in site.own:
            if port.kind == HOST and port.address:
                self._gateways.setdefault((port.address, port.mtu), []).append(port)
        self._links = [port for port in site.own if port.kind in (UPLINK, DOWNLINK)]
        self._names = frozenset(port.name for port in self._links)
        self._of_link = dict(self._sessions_of_links())
        self._hops = site.expected_hops()
        self._routes = Routes.of(found.routes or {})
        self._ports_of: dict[Hops, Hops] = {}

    def checks(self) -> list[Check]:
        if not self._routed():
            return [self._unrouted()]
        return [
            *self._gateway_checks(),
            *self._session_checks(),
            *self._path_checks(),
            *self._hash(),
        ]

    def _routed(self) -> bool:
        return (
            any(address in self._holders for address, _mtu in self._gateways)
            or bool(self._of_link)
            or any(hops for leaf in self._hops for _keys, hops in self._next_hops(leaf))
        )

    def _unrouted(self) -> Check:
        causes = "; ".join(dict.fromkeys(self._found.reasons.values()))
        reason = f"this switch reports no routed rail and no BGP session of a link: {BY_HAND}"
        return not_applicable(
            ANY, "routes to all rails", f"{reason} ({causes})" if causes else reason
        )

    def _missing(self, part: str, wanted: str) -> Check:
        reason = self._found.reasons.get(part) or "this switch does not report it"
        return not_applicable(part, wanted, reason)

    def too_small(self) -> Iterator[str]:
        for address, mtu in self._gateways:
            yield from self._smaller(address, mtu)

    def _smaller(self, address: str, mtu: int) -> Iterator[str]:
        """Interfaces with this address and a smaller MTU."""
        for name in self._holders.get(address, ()):
            if (self._interfaces[name].mtu or mtu) < mtu:
                yield name

    def _gateway_checks(self) -> Iterator[Check]:
        wanted = counted(len(self._gateways), "gateway")
        if not self._gateways:
            return
        if self._found.interfaces is None:
            yield self._missing(GATEWAY, wanted)
            return
        wrong = False
        for (address, mtu), ports in self._gateways.items():
            names = self._holders.get(address, ())
            small = [
                f"{name} with MTU {self._interfaces[name].mtu}"
                for name in self._smaller(address, mtu)
                if name not in self._known
            ]
            if names and not small:
                continue
            wrong = True
            reason = f"{_peers(ports)} cannot reach other leaves: {BY_HAND}"
            if small:
                reason = (
                    f"larger packets to {_peers(ports)} are fragmented or dropped, and pings pass, "
                    "since the reply is fragmented. Set the MTU of the routed interface by hand"
                )
            wants = f"an interface with {address} and an MTU of {mtu} or more"
            yield Check(GATEWAY, wants, some(small), FAILED, address, reason)
        if not wrong:
            yield Check(GATEWAY, wanted, wanted, OK)

    def _sessions_of_links(self) -> Iterator[tuple[str, BgpSession]]:
        """By port. The best one, as a port may have sessions of several address families."""
        sessions = sorted(self._found.sessions or (), key=lambda one: one.state == ESTABLISHED)
        by_peer = {session.peer: session for session in sessions}
        below: dict[str, list[str]] = {}
        for name in self._interfaces:
            below.setdefault(_port(name), []).append(name)
        for port in self._links:
            names = dict.fromkeys([port.name, *below.get(port.name, ())])
            peers = [*names, *(self._peer_addresses(port, names))]
            session = next((by_peer[peer] for peer in peers if peer in by_peer), None)
            if session is not None:
                yield port.name, session

    def _peer_addresses(self, port: Port, names: Iterable[str]) -> Iterator[str]:
        """Addresses that the peer may have: of the model, otherwise of the network on the port."""
        for far in self._site.ports.get(port.peer, ()):
            if far.name == port.peer_interface and far.address:
                yield far.address
        for name in names:
            for own in self._interfaces.get(name, RoutedInterface()).addresses:
                prefix = prefix_of(own)
                if prefix is not None and 29 <= prefix[1] < 32:
                    for address in range(prefix[0], prefix[0] + (1 << (32 - prefix[1]))):
                        yield str(ipaddress.IPv4Address(address))

    def _session_checks(self) -> Iterator[Check]:
        wanted = f"{counted(len(self._links), 'BGP session')} established"
        if not self._links:
            return
        if any(port.bundled for port in self._links):
            bundled = "links are in port channels, whose routing is not compared"
            yield not_applicable(SESSION, wanted, bundled)
            return
        if not self._of_link:
            reason = self._found.reasons.get(SESSION)
            missing = "no link of this switch has a BGP session, so only its routes were compared"
            yield not_applicable(SESSION, wanted, reason or missing)
            return
        wrong = False
        for port in self._links:
            session, asn = self._of_link.get(port.name), self._site.asns.get(port.peer)
            wants, found = f"BGP with {port.peer} established", session.state if session else None
            reason = f"no traffic takes this link: {BY_HAND}"
            if session is not None and session.state == ESTABLISHED:
                if asn is None or session.asn in (None, asn):
                    continue
                wants, found = f"AS {asn}", f"AS {session.asn}"
                reason = (
                    "the peer is in another AS than in the model: correct the switch or the model"
                )
            wrong = True
            yield Check(SESSION, wants, found, FAILED, str(port), reason)
        if not wrong:
            yield Check(SESSION, wanted, wanted, OK)

    def down(self) -> Iterator[tuple[Port, str]]:
        """Links without an established session, and its state; none if no link has a session."""
        if not self._of_link or any(port.bundled for port in self._links):
            return
        for port in self._links:
            session = self._of_link.get(port.name)
            if session is None or session.state != ESTABLISHED:
                yield port, session.state if session else "not configured"

    def _next_hops(self, leaf: str) -> Iterator[tuple[Collection[int], Optional[Hops]]]:
        """Ports of the next hops to the networks of a leaf: of their routes, or the longest that
        cover them. A default route counts only over links, as it may be that of the management
        network."""
        keys = self._site.rails[leaf]
        hops = self._routes.common(keys)
        if hops is not None:
            yield keys, self._ports(hops)
            return
        for key in sorted(keys):
            hops, length = self._routes.longest(key)
            names = None if hops is None else self._ports(hops)
            yield (key,), names if length or (names or frozenset()) & self._names else None

    def _ports(self, hops: Hops) -> Hops:
        if hops not in self._ports_of:
            self._ports_of[hops] = frozenset(map(_port, hops))
        return self._ports_of[hops]

    def _path_checks(self) -> Iterator[Check]:
        wanted = f"equal-cost paths to the rails of {counted(len(self._hops), 'leaf', 'leaves')}"
        if not self._hops or any(port.bundled for port in self._links):
            return
        vrfs = {
            self._interfaces[name].vrf
            for address, _mtu in self._gateways
            for name in self._holders.get(address, ())
        } - {DEFAULT_VRF}
        if self._found.routes is None:
            yield self._missing(PATHS, wanted)
            return
        if vrfs:
            yield not_applicable(
                PATHS, wanted, f"rails are in {some(sorted(vrfs))}: only the default VRF is read"
            )
            return
        unrouted = _Lost()
        without: dict[str, _Lost] = {}
        others: dict[str, None] = {}
        for leaf in sorted(self._hops, key=natural):
            for keys, hops in self._next_hops(leaf):
                if not hops:
                    unrouted.add(keys, leaf)
                    continue
                if not hops <= self._names:
                    others.update(dict.fromkeys(sorted(hops - self._names)))
                    continue
                for name in self._hops[leaf] - hops:
                    without.setdefault(name, _Lost()).add(keys, leaf)
        paths = max(map(len, self._hops.values()))
        if unrouted.count:
            reason = f"no route in the table of this switch: {BY_HAND}"
            found = f"no route to {counted(unrouted.count, 'rail')}"
            yield Check(PATHS, wanted, found, FAILED, str(unrouted), reason)
        for port in self._links:
            lost = without.get(port.name)
            if lost is not None:
                reason = f"not a next hop to {lost}: {BY_HAND}"
                found = f"missing from the paths to {counted(lost.count, 'rail')}"
                yield Check(PATHS, "one of the equal-cost paths", found, FAILED, str(port), reason)
        if others:
            reason = (
                f"next hops over {some(list(others), MAX_LISTED)}, which the model does not have"
            )
            yield not_applicable(PATHS, "ports of the model as next hops", reason)
        elif not unrouted.count and not without:
            found = f"{wanted}, {counted(paths, 'path')} or fewer each"
            yield Check(PATHS, found, found, OK)

    def _hash(self) -> Iterator[Check]:
        fields = self._found.hash_fields
        if fields is not None and self._hops:
            shown = ", ".join(sorted(fields)) or "none"
            status = OK if SOURCE_PORT in fields else FAILED
            reason = (
                ""
                if status == OK
                else (
                    "all queue pairs of two nodes take one path: add the source port of UDP to the "
                    "hash of equal-cost paths"
                )
            )
            wanted = shown if status == OK else f"a hash over the {SOURCE_PORT}"
            yield Check(HASH, wanted, shown, status, "", reason)


def _port(interface: str) -> str:
    """The port of a subinterface."""
    return interface.partition(".")[0]


def _peers(ports: Sequence[Port]) -> str:
    return some([f"{port.peer} {port.peer_interface}" for port in ports], 4)

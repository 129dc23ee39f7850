# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration of FRR on the simulated switches of a fabric with BGP.

Each uplink is a numbered eBGP session, as of RFC 7938: the peer's AS number is the model's, every
leaf announces the networks of its rails, and paths over different spines have equal cost although
their AS paths differ (`multipath-relax`). https://docs.frrouting.org/en/stable-8.4/bgp.html
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from .cabling import Switches, uplink_address
from .inventory import VirtualError

KEEPALIVE_S, HOLD_S, CONNECT_S = 3, 9, 1
"""A link that is down ends its session immediately; these bound any other failure."""

Rails = Mapping[str, Sequence[Mapping[str, Any]]]
"""Variable `cluster_rails` of each node, by host name."""


def frr_configuration(
    name: str,
    switches: Switches,
    asns: Mapping[str, Optional[int]],
    rails: Rails,
    router_id: str,
) -> str:
    """Return the content of `frr.conf` of one switch. Raises VirtualError."""
    lines = [
        "frr defaults datacenter",
        f"hostname {name}",
        # FRR 8.4 does not install a group of next hops again after the link of one was down.
        "no zebra nexthop kernel enable",
        f"router bgp {_asn(name, asns)}",
        f" bgp router-id {router_id}",
        " no bgp ebgp-requires-policy",
        " no bgp default ipv4-unicast",
        " bgp bestpath as-path multipath-relax",
        f" timers bgp {KEEPALIVE_S} {HOLD_S}",
    ]
    neighbours = list(_neighbours(name, switches))
    for peer, address in neighbours:
        lines += [
            f" neighbor {address} remote-as {_asn(peer, asns)}",
            f" neighbor {address} description {peer}",
            f" neighbor {address} timers connect {CONNECT_S}",
            f" neighbor {address} advertisement-interval 0",
        ]
    lines.append(" address-family ipv4 unicast")
    lines += [f"  network {network}" for network in _networks(name, rails)]
    lines += [f"  neighbor {address} activate" for _peer, address in neighbours]
    lines += ["  maximum-paths 64", " exit-address-family", ""]
    return "\n".join(lines)


def _neighbours(name: str, switches: Switches) -> Iterator[tuple[str, str]]:
    """The switches at the other ends of the uplinks and downlinks, and their addresses."""
    for group in switches[name]:
        for port, peer in group["peers"].items():
            if peer in switches:
                uplink_address(switches, name, port)
                yield peer, uplink_address(switches, peer, _far(switches[peer], name, port))


def _far(groups: Sequence[Mapping[str, Any]], name: str, port: str) -> str:
    return next(
        str(there)
        for group in groups
        for there, peer in group["peers"].items()
        if peer == name and group["peer_interface"] == port
    )


def _networks(leaf: str, rails: Rails) -> list[str]:
    found = {
        rail["network"] for rails_of in rails.values() for rail in rails_of if rail["leaf"] == leaf
    }
    return sorted(found, key=ipaddress.ip_network)


def _asn(name: str, asns: Mapping[str, Optional[int]]) -> int:
    asn = asns.get(name)
    if not asn:
        raise VirtualError(
            f"{name} has no AS number, which virtual_nodes_fabric bgp needs. Set asn or asn_first "
            "in the sections leaves and spines of cluster.yml."
        )
    return int(asn)

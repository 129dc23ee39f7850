# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What EOS reports of traffic, BGP and routes, in a fabric where the switch has them.

Models of the commands: https://github.com/aristanetworks/anta (tests/units/anta_tests).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from common.traffic import Link, Traffic


def shows(traffic: Traffic) -> Mapping[str, Callable[[], Any]]:
    """Return the commands that the switch has, and their output."""
    if not traffic:
        return {}
    return {
        "show ip interface": lambda: {
            "interfaces": {link.name: _address(link) for link in traffic.links() if link.addresses}
        },
        "show bgp summary": lambda: _sessions(traffic),
        "show ip route": lambda: _routes(traffic),
        "show interfaces": lambda: {
            "interfaces": {link.name: _counters(link) for link in traffic.links()}
        },
    }


def _address(link: Link) -> Any:
    first, *others = (_split(address) for address in link.addresses)
    return {
        "name": link.name,
        "lineProtocolStatus": "up" if link.up else "down",
        "mtu": link.mtu,
        "interfaceAddress": {
            "primaryIp": first,
            "secondaryIpsOrderedList": others,
            "virtualIp": {"address": "0.0.0.0", "maskLen": 0},
        },
    }


def _split(address: str) -> Any:
    host, _slash, length = address.partition("/")
    return {"address": host, "maskLen": int(length)}


def _sessions(traffic: Traffic) -> Any:
    peers = {
        peer.address: {"peerState": peer.state, "peerAsn": str(peer.asn)}
        for peer in traffic.peers()
    }
    return {"vrfs": {"default": {"asn": str(traffic.asn()), "peers": peers}}}


def _routes(traffic: Traffic) -> Any:
    routes = {
        network: {
            "routeType": "eBGP",
            "hardwareProgrammed": True,
            "vias": [{"nexthopAddr": gateway, "interface": port} for gateway, port in hops],
        }
        for network, hops in traffic.routes().items()
    }
    return {"vrfs": {"default": {"routes": routes}}}


def _counters(link: Link) -> Any:
    return {
        "name": link.name,
        "lineProtocolStatus": "up" if link.up else "down",
        "interfaceCounters": {
            "inOctets": link.received["bytes"],
            "inTotalPkts": link.received["packets"],
            "inUcastPkts": link.received["packets"],
            "inDiscards": link.received["dropped"],
            "totalInErrors": link.received["errors"],
            "outOctets": link.sent["bytes"],
            "outUcastPkts": link.sent["packets"],
            "outDiscards": link.sent["dropped"],
            "totalOutErrors": link.sent["errors"],
        },
    }

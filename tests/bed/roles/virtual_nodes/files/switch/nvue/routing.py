# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NVUE reports of traffic, BGP and routes, in a fabric where the switch has them.

Objects and keys: https://docs.nvidia.com/networking-ethernet-software/nvue-reference/
"""

from __future__ import annotations

from common.traffic import Link, Traffic

from .tree import Tree

HASH = ("source-ip", "destination-ip", "source-port", "destination-port", "ip-protocol")
"""What the kernel hashes with `fib_multipath_hash_policy` 1."""


def operational(traffic: Traffic, keys: tuple[str, ...]) -> Tree:
    """Return the branch of the operational tree that a request asks for."""
    if keys == ("interface",):
        return {"interface": {link.name: _interface(link) for link in traffic.links()}}
    if keys == ("vrf",):
        router = {"bgp": {"neighbor": _neighbours(traffic)}, "rib": {"ipv4": {"route": {}}}}
        router["rib"]["ipv4"]["route"] = _routes(traffic)
        return {"vrf": {"default": {"router": router}}}
    if keys == ("system",):
        return {"system": {"forwarding": {"ecmp-hash": dict.fromkeys(HASH, "on")}}}
    return {}


def _interface(link: Link) -> Tree:
    """The MTU of a port is that of its configuration, which the tree has already."""
    return {
        "type": "swp" if link.is_port else "svi",
        "link": {
            **({} if link.is_port else {"mtu": link.mtu}),
            "stats": {
                "in-bytes": link.received["bytes"],
                "in-pkts": link.received["packets"],
                "in-errors": link.received["errors"],
                "in-drops": link.received["dropped"],
                "out-bytes": link.sent["bytes"],
                "out-pkts": link.sent["packets"],
                "out-errors": link.sent["errors"],
                "out-drops": link.sent["dropped"],
            },
        },
        "ip": {"address": {address: {} for address in link.addresses}},
    }


def _neighbours(traffic: Traffic) -> Tree:
    return {
        peer.address: {"state": peer.state.lower(), "remote-as": peer.asn}
        for peer in traffic.peers()
    }


def _routes(traffic: Traffic) -> Tree:
    flags: Tree = {"installed": {}, "selected": {}, "fib-selected": {}}
    return {
        network: {
            "protocol": {
                "bgp": {
                    "entry-index": {
                        "1": {
                            "flags": flags,
                            "via": {
                                gateway: {
                                    "type": "ip-address",
                                    "interface": port,
                                    "flags": {"active": {}},
                                }
                                for gateway, port in hops
                            },
                        }
                    }
                }
            }
        }
        for network, hops in traffic.routes().items()
    }

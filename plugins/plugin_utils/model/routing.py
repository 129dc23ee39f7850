# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layer 3 values that the model passes on to plays of the operator: AS numbers, loopbacks, VLANs,
addresses of uplinks and of storage hosts. No layer of the collection configures them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..schema.findings import Findings, Path
from .addresses import HostAddresses, Subnet, text
from .cluster import ClusterHost, ClusterSwitch, PortGroup
from .schema import POINT_TO_POINT, SUBNET_PER_RAIL
from .switches import Switches

_RESERVED_ASNS = (23456, 65535, 4_294_967_295)
"""AS_TRANS (RFC 6793, section 9) and the last numbers of 16 and 32 bits (RFC 7300), which no AS
has. Private numbers: RFC 6996."""
_LAST = (1 << 32) - 1


class SwitchSection(NamedTuple):
    """One section of the model that describes switches."""

    path: Path
    keys: dict[str, Any]
    switches: Switches

    @property
    def asns(self) -> list[int]:
        """One per switch, or none."""
        asn, first, count = (self.keys[key] for key in ("asn", "asn_first", "count"))
        if first is not None:
            return list(range(first, first + count))
        return asn if isinstance(asn, list) else [asn] * count if asn else []

    @property
    def stride(self) -> int:
        """Number of ports for which a switch has a /31."""
        return max((len(kind.ports) for kind in self.switches.kinds), default=0)

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """First and last address of each key with addresses."""
        if (first := self.keys["loopback_first"]) is not None:
            yield "loopback_first", first, min(first + self.keys["count"] - 1, _LAST)
        if (pool := self.keys["uplink_pool"]) is not None:
            yield "uplink_pool", pool.first, pool.last


def check(model: dict[str, Any], sections: Sequence[SwitchSection], findings: Findings) -> None:
    """Check AS numbers and addresses of switches, and that no addresses overlap others."""
    management = model["management"]
    subnets: list[tuple[Path, Subnet]] = [
        *((("management", "subnet"), one) for one in management["subnet"].each),
        *((("networks", n, "subnet"), one["subnet"]) for n, one in enumerate(model["networks"])),
        (("addresses", "pool"), model["addresses"]["pool"]),
        *(((*one.path, "pool"), one.keys["pool"]) for one in sections if one.keys.get("pool")),
    ]
    if management["bmc_subnet"] is not None:
        subnets += [(("management", "bmc_subnet"), one) for one in management["bmc_subnet"].each]
    taken = [(path, subnet.first, subnet.last) for path, subnet in subnets]
    for section in sections:
        key = "asn" if section.keys["asn_first"] is None else "asn_first"
        if key == "asn_first" and section.keys["asn"] is not None:
            problem, remedy = "has no effect next to asn_first", "Remove one of them"
            findings.add("model.asn_and_first", (*section.path, "asn"), problem, remedy)
        for index, asn in enumerate(section.asns):
            if asn in _RESERVED_ASNS:
                path = (*section.path, key)
                path = (*path, index) if isinstance(section.keys[key], list) else path
                problem, remedy = f"the AS number {asn} is reserved", "Use private ones: 64512"
                remedy += " to 65534, or 4200000000 to 4294967294"
                findings.add("model.reserved_asn", path, problem, remedy, asn)
                break
        for key, first, last in section.ranges():
            path = (*section.path, key)
            for other, low, high in taken:
                if first <= high and low <= last:
                    problem = f"{text(first)} to {text(last)} overlaps {findings.place(other)}"
                    ends = (text(first), text(last))
                    findings.add("model.range_taken", path, problem, "Use separate networks", ends)
            taken.append((path, first, last))
            unusable = Subnet(first, 32).no_hosts or Subnet(last, 32).no_hosts
            if unusable:
                problem = f"{text(first)} to {text(last)} overlaps {unusable}"
                remedy = "Choose addresses that switches may announce"
                findings.add("model.no_loopback", path, problem, remedy, text(first))
        _check_pool(section, findings)
    if model["rails"]["vlan"] is not None and model["addresses"]["plan"] == POINT_TO_POINT:
        problem = f"addresses.plan {POINT_TO_POINT} routes each port, so no VLAN has a subnet"
        path, remedy = ("rails", "vlan"), f"Remove it, or write plan: {SUBNET_PER_RAIL}"
        findings.add("model.vlan_without_subnet", path, problem, remedy, model["rails"]["vlan"])


def _check_pool(section: SwitchSection, findings: Findings) -> None:
    pool, wanted = section.keys["uplink_pool"], section.keys["count"] * section.stride
    if pool is not None and 2 * wanted > pool.size:
        problem = f"{pool} holds {pool.size // 2} uplinks, and {wanted} ports need one each"
        path, remedy = (*section.path, "uplink_pool"), "Use a larger network"
        findings.add("model.uplink_pool_size", path, problem, remedy, (pool.size // 2, wanted))


def check_storage(model: dict[str, Any], addresses: HostAddresses, findings: Findings) -> None:
    """Check that addresses of storage hosts' links are unique and in a subnet of their leaf."""
    seen: dict[int, Path] = {}
    shared = model["addresses"]["plan"] == SUBNET_PER_RAIL
    for index, host in enumerate(model["storage"]):
        for number, link in enumerate(host["links"]):
            address = link["address"]
            if address is None:
                continue
            path: Path = ("storage", index, "links", number, "address")
            problem = addresses.problem(address, host["name"])
            if not problem and not _subnet(addresses, host["name"], number, address):
                problem = f"is in no subnet of {link['leaf']}"
            for own in (address,) if shared else (address, address ^ 1):
                if not problem and seen.setdefault(own, path) != path:
                    problem = f"is, or has the same link as, {findings.place(seen[own])}"
            if problem:
                remedy = "Choose a free address in a subnet of the leaf"
                problem = f"{text(address)} {problem}"
                findings.add("model.link_address", path, problem, remedy, text(address))


def loopback_owners(sections: Sequence[SwitchSection]) -> dict[int, str]:
    """Switches by their loopback address."""
    return {
        first + index: name
        for section in sections
        if (first := section.keys["loopback_first"]) is not None
        for index, name in enumerate(section.switches.names)
    }


def link_owners(model: dict[str, Any]) -> dict[int, str]:
    """Storage hosts by the addresses of their links."""
    links = [(host["name"], link) for host in model["storage"] for link in host["links"]]
    return {link["address"]: name for name, link in links if link["address"] is not None}


def _subnet(addresses: HostAddresses, host: str, number: int, address: int) -> list[Subnet]:
    """The subnet of the leaf at the other end of a link, if it has the address."""
    if not addresses.links[host][number:]:
        return []
    here = Subnet(address, 32)
    return [subnet for subnet in addresses.links[host][number] if subnet.overlaps(here)]


def assign(
    model: dict[str, Any],
    sections: Sequence[SwitchSection],
    built: Sequence[Sequence[ClusterSwitch]],
    doubtful: Findings,
) -> None:
    """Pass on the values of all switches, whose ports are known."""
    every = [switch for switches in built for switch in switches]
    for section, switches in zip(sections, built):
        first, asns = section.keys["loopback_first"], section.asns
        for index, switch in enumerate(switches):
            if asns:
                switch.more["cluster_asn"] = asns[index]
            if first is not None:
                switch.more["cluster_loopback"] = text(first + index)
        _assign_uplinks(section, switches, every)
        kinds = (group.kind for switch in switches for group in switch.ports)
        if (pool := section.keys["uplink_pool"]) is not None and "uplink" not in kinds:
            path, problem = (*section.path, "uplink_pool"), "has no effect: there are no uplinks"
            remedy = "Write it with the switches below, or remove it"
            doubtful.add("model.no_uplinks", path, problem, remedy, str(pool))
    _doubt_asns(sections, built, doubtful)
    _assign_vlans(model["rails"], [one for one in every if one.role == "leaf"], doubtful)


def _doubt_asns(
    sections: Sequence[SwitchSection],
    built: Sequence[Sequence[ClusterSwitch]],
    doubtful: Findings,
) -> None:
    """Doubt links within an AS among links between AS: with BGP, all are usually of one sort."""
    asns = {one.name: one.more.get("cluster_asn") for switches in built for one in switches}
    within: list[tuple[Path, str, str]] = []
    between = False
    for section, switches in zip(sections, built):
        for switch in switches if section.asns else ():
            groups = (group for group in switch.ports if group.kind == "uplink")
            for peer in {peer for group in groups for peer in group.peers.values()}:
                if asns[peer] == asns[switch.name]:
                    key = "asn" if section.keys["asn_first"] is None else "asn_first"
                    within.append(((*section.path, key), switch.name, peer))
                between |= asns[peer] not in (None, asns[switch.name])
    if within and between:
        path, lower, upper = min(within)
        problem = f"{lower} and {upper} are both in AS {asns[lower]}, unlike others with a link"
        remedy = "Give every leaf an AS number that no spine has, or all switches the same one"
        doubtful.add("model.shared_asn", path, problem, remedy, (lower, upper, asns[lower]))


def _assign_uplinks(
    section: SwitchSection, switches: Sequence[ClusterSwitch], every: Sequence[ClusterSwitch]
) -> None:
    """A /31 per uplink or port channel, by the number of the switch and of its (first) port: others
    move none."""
    pool = section.keys["uplink_pool"]
    if pool is None:
        return
    groups: dict[tuple[str, str], PortGroup] = {
        (switch.name, port): group
        for switch in every
        for group in switch.ports
        for port in group.peers
    }
    for index, (switch, kind) in enumerate(zip(switches, section.switches.kinds)):
        numbers = {port: number for number, port in enumerate(kind.ports)}
        of_channel: dict[str, int] = {}
        for group in switch.ports:
            for port, peer in group.peers.items() if group.kind == "uplink" else ():
                number = numbers[port]
                if "channels" in vars(group):  # the first port's, of every port
                    number = of_channel.setdefault(peer, number)
                even = pool.first + 2 * (index * section.stride + number)
                other = groups[peer, group.peer_interface]
                group.prefix = other.prefix = 31
                group.addresses[port] = text(even + 1)
                other.addresses[group.peer_interface] = text(even)


def _assign_vlans(
    rails: dict[str, Any], leaves: Sequence[ClusterSwitch], doubtful: Findings
) -> None:
    """The VLAN of each rail on its leaf."""
    vlan, doubted = rails["vlan"], False
    for leaf in leaves if vlan is not None else ():
        found: dict[str, int] = {}
        for group in leaf.ports:
            if group.kind == "host" and group.rail is not None and group.plane is not None:
                place = group.rail
                if not rails["bonded"]:
                    place = group.rail * rails["planes"] + group.plane
                numbers = vlan if isinstance(vlan, list) else [vlan] * (place + 1)
                if place >= len(numbers):  # of a kind of nodes with leaves and rails of its group
                    continue
                number = numbers[place]
                if number in found.values() and group.peer_interface not in found and not doubted:
                    doubted = True
                    problem = f"rails of {leaf.name} with different subnets share VLAN {number}"
                    remedy = "Write a list with a VLAN for each rail"
                    doubtful.add("model.vlan_shared", ("rails", "vlan"), problem, remedy, number)
                found[group.peer_interface] = number
        leaf.more["cluster_vlans"] = found


def assign_storage(
    model: dict[str, Any], hosts: Sequence[ClusterHost], addresses: HostAddresses
) -> None:
    """The links of storage hosts of which the model gives addresses."""
    shared = model["addresses"]["plan"] == SUBNET_PER_RAIL
    for host, entry in zip(hosts, model["storage"]):
        found = []
        for number, link in enumerate(entry["links"]):
            if (address := link["address"]) is None:
                continue
            subnet = Subnet(address & ~1, 31)
            if shared:
                (subnet,) = _subnet(addresses, host.name, number, address)[:1]
            gateway = subnet.first + addresses.plans[0].gateway_host if shared else address ^ 1
            found.append(
                {
                    "interface": link["bond"] or link["interface"],
                    "address": text(address),
                    "prefix": subnet.prefix,
                    "network": str(subnet),
                    "gateway": text(gateway),
                    "mtu": model["rails"]["mtu"],
                    "speed_gbps": link["speed_gbps"] or model["rails"]["speed_gbps"],
                    "leaf": link["leaf"],
                    "leaf_port": link["port"],
                }
            )
        if found:
            host.more["cluster_storage_links"] = found

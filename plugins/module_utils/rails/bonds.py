# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails that are bonds of several planes (802.3ad), which the operator configures: what the kernel
reports is compared with the model, and nothing is set.

RoCE over such a bond needs both ports of one card, and has one RDMA device for both, such as
mlx5_bond_0 (Linux 7907f23adc18, net/mlx5: Implement RoCE LAG feature).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.part import Node, Plan, PlanError, Verdict
from ..hardware.iproute import IpLink, NetworkState, read_state
from ..hardware.survey import interface_speed
from ..nic.nics import PROMISE, WHOLE
from . import survey

BOND, MODE = "rail_bond", "802.3ad"
_BY_HAND = "configured by the operator, and only compared with the model"
Rail = Mapping[str, Any]


def bonded(rails: Sequence[Rail]) -> list[Rail]:
    """The rails that are bonds: all rails of a host, or none."""
    return [rail for rail in rails if rail.get("members")]


class Bonds:
    """The bonds of one host, as a part that changes nothing."""

    def __init__(self, rails: Sequence[Rail], files: Sequence[str]) -> None:
        """`files`: interfaces that this collection configured when rails were no bonds."""
        self.rails = rails
        self.files = files
        self.state = NetworkState()

    def plan(self, node: Node) -> Plan:
        if self.files:
            raise PlanError(
                f"{', '.join(self.files)}: configured by this collection when the rails were no "
                "bonds, which would configure the members at the next boot. Remove its files "
                "(docs/rails.md, Network services)"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        self.state = read_state(node.look)
        return Verdict([check for rail in self.rails for check in self._checks(node, rail)])

    def running(self, node: Node) -> dict[str, dict[str, Any]]:
        """Return the state of each member, for the layer links."""
        found = {}
        for rail in self.rails:
            for name in (str(member["interface"]) for member in rail["members"]):
                link = self.state.links.get(name)
                if link is not None:
                    speed = interface_speed(node.root / "sys/class/net" / name)
                    found[name] = {
                        "interface": name,
                        # Of a member, lldpd sends this one too (lldpd,
                        # src/daemon/interfaces-linux.c, iflinux_get_permanent_mac).
                        "mac": _read(node, name, "bonding_slave/perm_hwaddr") or link.mac,
                        "mtu": link.mtu,
                        "up": link.up,
                        "carrier": link.carrier,
                        "speed_gbps": speed if link.carrier else None,
                    }
        return found

    def _checks(self, node: Node, rail: Rail) -> Iterator[Check]:
        name, links = str(rail["interface"]), self.state.links
        members = [str(member["interface"]) for member in rail["members"]]
        mode = (_read(node, name, "bonding/mode") or "").split(" ")[0]
        wanted = {"mode": MODE, "members": sorted(members)}
        there = sorted(each.name for each in links.values() if each.master == name)
        found = {"mode": mode, "members": there} if mode else None
        yield _compare(BOND, wanted, found, name)
        for member in members:
            yield _compare(survey.LINK, "up", _status(links.get(member)), member)
        # Members of which the other ends are no single port channel are in different aggregators,
        # of which one is in use (Linux, Documentation/networking/bonding.rst, ad_select).
        active = _read(node, name, "bonding/ad_aggregator")
        for member in members:
            own = _read(node, member, "bonding_slave/ad_aggregator_id")
            reason = "" if own == active else "the switch has it in no port channel, or another one"
            yield _compare("rail_lacp", active, own, member, reason)
        bond = links.get(name)
        address = f"{rail['address']}/{rail['prefix']}"
        yield _compare(survey.LINK, "up", _status(bond), name)
        yield _compare(survey.MTU, rail["mtu"], bond.mtu if bond else None, name)
        addresses = list(bond.addresses) if bond else []
        yield _compare(survey.ADDRESS, [address], addresses, name)
        for member in members:
            reason = "NICs of bonds are not read: their settings are the operator's"
            yield not_applicable(WHOLE, PROMISE, reason, subject=member)


def _status(link: Optional[IpLink]) -> str:
    if link is None:
        return "absent"
    return "down" if not link.up else "up" if link.carrier else survey.NO_CARRIER


def _compare(name: str, wanted: Any, found: Any, subject: str, reason: str = "") -> Check:
    """A difference is a failure in check mode too, as no run repairs it."""
    if found == wanted and found is not None:
        return Check(name, wanted, found, OK, subject)
    return Check(name, wanted, found, FAILED, subject, reason or _BY_HAND)


def _read(node: Node, interface: str, name: str) -> Optional[str]:
    text = node.read(f"sys/class/net/{interface}/{name}")
    return text and text.strip()

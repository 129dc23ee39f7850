# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One intent per switch, from its ports in the inventory and the contract of the cluster.

Refuses what no switch can keep, in words of the inventory. Much of it a cluster model or a contract
can no longer hold; inventories written by hand were checked by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Union

from ...module_utils.core.text import nearest, some
from ...module_utils.schema.findings import Finding, Findings
from ...module_utils.schema.kinds import check
from ..qos import Contract, FabricIntent, fabric_intent
from ..qos.contract import PRIORITIES
from . import keys
from .asics import ASICS, ETHERNET_GBPS, Asic, asic_named
from .intent import SYSTEMS, TO_NODES, PortIntent, SwitchIntent
from .system import WantedError


def compile_switch(
    name: str,
    role: str,
    system: str,
    asic: str,
    asics: Mapping[str, Mapping[str, Any]],
    ports: Iterable[Mapping[str, Any]],
    contract: Contract,
) -> SwitchIntent:
    """What the switch has to do. WantedError with everything that cannot be.

    `asic` and `asics` are the variables `cluster_asic` and `cluster_asics`, `ports` is
    `cluster_ports`.
    """
    fabric = fabric_intent(contract)
    wrong = Findings()
    said = check(keys.ASICS, asics, wrong, (name, "cluster_asics")) or {}
    keys.check_asics(said, wrong, (name, "cluster_asics"))
    groups = keys.check_ports(ports, wrong, (name, "cluster_ports"))
    if system not in SYSTEMS:
        wrong.add(
            "fabric.unknown_system",
            (name, "cluster_system"),
            f"{system!r} is no system that switches are spoken to in",
            nearest(system, SYSTEMS),
            system,
        )
    chip = asic_named(asic, said) if wrong.clean((name, "cluster_asics")) else Asic(asic)
    if chip is None:
        wrong.add(
            "fabric.unknown_chip",
            (name, "cluster_asic"),
            f"{asic!r} is no chip that is known",
            f"{nearest(asic, [*ASICS, *said])}. Introduce another one in the model: asics",
            asic,
        )
    switch = _Ports(name, chip or Asic(asic), fabric, wrong)
    if wrong.clean((name, "cluster_ports")):
        switch.take(groups)
    wrong.found.extend(fabric_findings(fabric))
    if wrong or chip is None:
        raise WantedError(wrong.found)
    return SwitchIntent(
        name=name,
        role=role,
        system=system,
        asic=chip,
        fabric=fabric,
        ports=tuple(sorted(switch.ports.values(), key=lambda port: _natural(port.name))),
    )


class _Ports:
    """The ports of one switch, each with what is plugged into it."""

    def __init__(self, name: str, chip: Asic, fabric: FabricIntent, findings: Findings) -> None:
        self.ports: dict[str, PortIntent] = {}
        self._name = name
        self._chip = chip
        self._fabric = fabric
        self._findings = findings

    def take(self, groups: list[dict[str, Any]]) -> None:
        for group in groups:
            self._check(group)
            self._plug(group)
        if not self.ports:
            self._findings.add(
                "fabric.no_ports",
                (self._name, "cluster_ports"),
                "it has no ports, so nothing could be set on it",
                "Say what is plugged into it, or take it out of the inventory",
            )

    def _check(self, group: dict[str, Any]) -> None:
        speed, mtu, most = group["speed_gbps"], group["mtu"], self._fabric.mtu_ip
        names = sorted(group["peers"], key=_natural)
        if not self._chip.has_port(speed):
            rates = [rate for rate in ETHERNET_GBPS if self._chip.has_port(rate)]
            self._add(
                "fabric.port_speed",
                names,
                f"{self._chip.name or 'Ethernet'} has no port of {speed}G",
                f"Correct speed_gbps: it is one of {some(rates)}",
                speed,
            )
        if mtu > most:
            self._add(
                "fabric.peer_mtu",
                names,
                f"what is plugged in sends IP packets of {mtu} bytes, and the fabric carries {most}"
                ": longer ones vanish",
                f"Write rails.mtu of at most {most}, or raise roce_qos.mtu.fabric",
                (mtu, most),
            )

    def _plug(self, group: dict[str, Any]) -> None:
        kind, interface, cables = group["kind"], group["peer_interface"], self._fabric.cable_metres
        metres = cables.to_nodes if kind in TO_NODES else cables.between_switches
        for port, peer in group["peers"].items():
            if port not in self.ports:
                speed = group["speed_gbps"]
                self.ports[port] = PortIntent(port, kind, speed, metres, peer, interface)
                continue
            first = self.ports[port]
            self._add(
                "fabric.port_twice",
                [port],
                f"two cables are plugged in, from {first.peer} {first.peer_interface} and from "
                f"{peer} {interface}",
                "Give each link a port of its own",
                (first.peer, peer),
            )

    def _add(self, code: str, ports: list[str], problem: str, way_out: str, value: Any) -> None:
        place = (f"{self._name} {some(ports, 3)}",)
        self._findings.add(code, place, problem, way_out, value)


def fabric_findings(fabric: FabricIntent) -> list[Finding]:
    """What switches accept and then do not do as meant. A contract that was read has none of it."""
    found = Findings()
    classes: dict[int, str] = {}
    lossless = {queue.priority_group: queue.name for queue in fabric.queues if queue.lossless}
    for queue in fabric.queues:
        place = (f"roce_qos, class {queue.name}",)
        for what, number in (("traffic class", queue.traffic_class), ("priority", queue.priority)):
            if not 0 <= number < PRIORITIES:
                problem, remedy = f"there is no {what} {number}", f"from 0 to {PRIORITIES - 1}"
                found.add("fabric.class_number", place, problem, f"Write one {remedy}", number)
        if classes.setdefault(queue.traffic_class, queue.name) != queue.name:
            found.add(
                "fabric.traffic_class_twice",
                place,
                f"traffic class {queue.traffic_class} is also that of "
                f"{classes[queue.traffic_class]}",
                "Give each its own",
                queue.traffic_class,
            )
        owner = lossless.get(queue.priority_group, queue.name)
        if owner != queue.name:
            found.add(
                "fabric.priority_group_twice",
                place,
                f"its priority group {queue.priority_group} is the lossless one of {owner}, whose "
                "buffer it would fill",
                "Give one of them another priority",
                queue.priority_group,
            )
        if queue.name == "cnp" and not queue.strict:
            found.add(
                "fabric.cnp_not_strict",
                place,
                "its queue is not strict, so that it waits behind what it is about",
                "Write roce_qos.cnp.strict: true, or leave it out",
            )
    kept = {queue.priority for queue in fabric.queues if queue.lossless}
    for priority in fabric.pfc_priorities:
        if priority not in kept:
            found.add(
                "fabric.pfc_not_lossless",
                ("roce_qos",),
                f"PFC is on for priority {priority}, which has no lossless priority group: its "
                "packets are paused, and dropped all the same",
                "Leave it out",
                priority,
            )
    return found.found


def _natural(name: str) -> tuple[tuple[int, Union[int, str]], ...]:
    """Ethernet2 before Ethernet10."""
    return tuple(
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]+)", name)
    )

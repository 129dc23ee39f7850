# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric whose ends all comply with the contract, for tests to change."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node as HostNode
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import RdmaDevice
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.nics import providers
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.port_settings import Ethtool
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import RailNic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import model
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import links
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import (
    NodeEntry,
    SwitchEntry,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    EcnReport,
    Neighbour,
    PortReport,
    SwitchReport,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    fabric_intent,
    host_settings,
    read_contract,
)

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/16}
nodes: {count: %(nodes)d, management_first: 10.0.1.1, slots: 8}
rails: {count: %(rails)d, speed_gbps: 400}
addresses: {pool: 10.128.0.0/9, prefix: 22}
leaves:
  {count: %(leaves)d, ports: 64, management_first: 10.0.16.1, system: %(system)s, asic: %(asic)s}
%(spines)s
launcher: {name: launcher01, management: 10.0.0.10}
"""
SPINES = """\
spines: {count: 2, ports: 64, management_first: 10.0.24.1, system: %(system)s, asic: %(asic)s}
"""
XOFF = 10**6
"""More than any port in the tests needs."""


class Fabric:
    """Reports are plain dictionaries: change them, then `check`."""

    def __init__(
        self,
        nodes: int = 3,
        rails: int = 2,
        leaves: Optional[int] = None,
        qos: Optional[dict[str, Any]] = None,
        spines: str = SPINES,
        system: str = "sonic",
        asic: str = "spectrum4",
    ) -> None:
        self.system, self.asic = system, asic
        values: dict[str, Any] = {"system": system, "asic": asic}
        values["spines"] = spines % values
        values.update(nodes=nodes, rails=rails, leaves=leaves or rails)
        inventory = model.inventory_of(
            model.compile_model(model.read("cluster.yml", MODEL % values))
        )
        self.contract = read_contract(qos)
        self.variables = {host.name: host.variables for host in inventory.hosts}
        self.switches: dict[str, SwitchEntry] = {}
        self.nodes: dict[str, NodeEntry] = {}
        names = [host.name for host in inventory.hosts if host.groups[0] in ("leaf", "spine")]
        rails_of = {
            host.name: host.variables["cluster_rails"]
            for host in inventory.hosts
            if host.groups[0] == "compute"
        }
        for name, its_rails in rails_of.items():
            self.nodes[name] = NodeEntry(name, self._state(name, its_rails))
        for name in names:
            ports = self.variables[name]["cluster_ports"]
            self.switches[name] = SwitchEntry(name, ports, system, asic, self._report(name, ports))

    # As everybody says it

    def _state(self, name: str, rails: list[dict[str, Any]]) -> dict[str, Any]:
        settings = nic_settings(self.contract)
        return {
            "checks": [],
            "rails": {
                rail["interface"]: {
                    "interface": rail["interface"],
                    "mac": mac(name, rail["interface"]),
                    "mtu": rail["mtu"],
                    "up": True,
                    "carrier": True,
                    "speed_gbps": float(rail["speed_gbps"]),
                }
                for rail in rails
            },
            "settings": {rail["interface"]: copy.deepcopy(settings) for rail in rails},
        }

    def _report(self, name: str, groups: list[dict[str, Any]]) -> dict[str, Any]:
        ports = [
            self._port(port, peer, group)
            for group in groups
            for port, peer in group["peers"].items()
        ]
        return SwitchReport(name, self.system, "simulation", tuple(ports), lldp=True).as_dict()

    def _port(self, name: str, peer: str, group: dict[str, Any]) -> PortReport:
        intent = fabric_intent(self.contract)
        to_node = group["kind"] == "host"
        cables = intent.cable_metres
        neighbour = (
            Neighbour("", mac(peer, group["peer_interface"]))
            if to_node
            else Neighbour(peer, group["peer_interface"])
        )
        return PortReport(
            name,
            True,
            up=True,
            speed_gbps=group["speed_gbps"],
            mtu_ip=intent.mtu_ip,
            trust=intent.trust,
            dscp_to_traffic_class=intent.dscp_to_traffic_class,
            pfc_priorities=intent.pfc_priorities,
            lossless_priorities=intent.pfc_priorities,
            strict_queues=tuple(q.traffic_class for q in intent.queues if q.strict),
            weights={q.traffic_class: q.weight_percent for q in intent.queues if not q.strict},
            ecn={
                queue.traffic_class: EcnReport(**asdict(self.contract.ecn))
                for queue in intent.queues
                if queue.ecn is not None or queue.name == "roce"
            },
            cable_metres=cables.to_nodes if to_node else cables.between_switches,
            headroom_bytes=XOFF,
            watchdog=intent.watchdog,
            neighbour=neighbour,
        )

    # What tests take hold of

    def port(self, switch: str, name: str) -> dict[str, Any]:
        report = self.switches[switch].report
        return next(port for port in report["ports"] if port["name"] == name)

    def setting(self, node: str, rail: str, name: str) -> dict[str, Any]:
        return self.nodes[node].state["settings"][rail][name]

    def rail(self, node: str, name: str) -> dict[str, Any]:
        return self.nodes[node].state["rails"][name]

    def change_switch(self, name: str, **fields: Any) -> None:
        self.switches[name] = replace(self.switches[name], **fields)

    def change_node(self, name: str, **fields: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **fields)

    def check(self, **options: Any) -> links.Links:
        return links.check_links(self.contract, self.switches, self.nodes, **options)

    def failed(self, **options: Any) -> list[Check]:
        return [check for check in self.check(**options).checks if check.status == "failed"]

    def one(self, **options: Any) -> Check:
        failed = self.failed(**options)
        assert len(failed) == 1, [check.line() for check in failed]
        return failed[0]

    def not_applicable(self, **options: Any) -> list[Check]:
        return [check for check in self.check(**options).checks if check.status == "not_applicable"]


def mac(host: str, interface: str) -> str:
    digits = [int("".join(filter(str.isdigit, each)) or 0) for each in (host, interface)]
    return f"02:00:00:{digits[0] // 256:02x}:{digits[0] % 256:02x}:{digits[1]:02x}"


def nic_settings(contract: Any) -> dict[str, Any]:
    """Settings of a compliant rail, as the module returns them."""
    rail = RailNic("rail0", "rail0", "mlx5_core", "0000:5d:00.0", RdmaDevice("rail", "mlx5_0"))
    host = HostNode("rails", Path("/"), lambda *_args, **_more: None, None, "")
    given = {"qos": host_settings(contract).as_variable(), "nic": {"max_read_request_bytes": None}}
    given.update(firmware=False, firmware_parameters={}, remove_vfs_in_use=False)
    sources = providers(given, host, Ethtool(), lambda _program: None, {})
    settings = [setting for provide in sources for setting in provide(rail)]
    return {
        setting.name: {
            "wanted": setting.wanted,
            "found": setting.wanted,
            "status": "ok",
            "persistence": "runtime",
            "reason": "",
        }
        for setting in settings
        if setting.name != "link_pause"
    }

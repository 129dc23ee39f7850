# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results of rdma_facts: recorded ones, and those of modelled machines."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.modules.rdma_facts import as_facts
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.machines import (
    DiscoveredMachine,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import Inventory

from tests.hardware.trees import machine

Facts = dict[str, Any]


def interface(*addresses: str, mtu: int = 1500, speed: float | None = None) -> Facts:
    return {
        "mtu": mtu,
        "carrier": True,
        "speed_gbps": speed,
        "addresses": list(addresses),
        "plain": True,
    }


def neighbour(system: str, port: str, address: str = "") -> dict[str, str]:
    return {
        "system": system,
        "description": f"a switch\n{system}",
        "address": address,
        "port": port,
        "port_description": "",
    }


def host(name: str, address: str, **more: Any) -> Facts:
    """`rdma_host` of a machine with only a management interface."""
    return {
        "name": name,
        "distribution": "ubuntu 24.04",
        "kernel": "6.8.0-79-generic",
        "packages": {"doca-ofed": "3.2.1-1", "rdma-core": "2510.0.11-1"},
        "gpu_driver": "",
        "cpu": {},
        "interfaces": {
            "lo": {**interface("127.0.0.1/8"), "plain": False},
            "mgmt0": interface(address),
        },
        "default_interface": "mgmt0",
        "login": address.split("/")[0],
        "network": {"netplan": ["/etc/netplan/50-cloud-init.yaml"]},
        "neighbours": None,
        **more,
    }


def recorded(tree: str, number: int) -> Facts:
    """A recorded machine as node01, node02, ...; rail k receives LLDP from leaf k+1."""
    facts: Facts = {
        "rdma_hardware": copy.deepcopy(as_facts(machine(tree))),
        "rdma_host": host(f"node{number:02d}", f"10.10.1.{number}/22"),
    }
    system = facts["rdma_host"]
    system["neighbours"] = {}
    nics = [nic for nic in facts["rdma_hardware"]["nics"] if nic["interface"]]
    rails = [gpu["pci"] for gpu in facts["rdma_hardware"]["gpus"]]
    for nic in nics:
        system["interfaces"][nic["interface"]] = interface(mtu=9000)
        if nic["kind"] == "rail":
            leaf = rails.index(nic["gpus"][0])
            system["interfaces"][nic["interface"]]["addresses"] = [
                f"10.100.{leaf}.{number + 10}/24"
            ]
            system["neighbours"][nic["interface"]] = neighbour(
                f"leaf{leaf + 1:02d}.example.net",
                f"Ethernet{8 * number - 8}",
                f"10.10.2.{leaf + 1}",
            )
    return facts


def without_rails(name: str, address: str) -> Facts:
    empty = {"nics": [], "gpus": [], "modules": [], "slots": {}, "model": {}}
    return {"rdma_hardware": empty, "rdma_host": host(name, address)}


def of_model(inventory: Inventory) -> dict[str, Facts]:
    """Results of rdma_facts for hosts that match their model."""
    found = {}
    for each in inventory.hosts:
        of = inventory.merged(each)
        management = of["cluster_management"]
        address = f"{management['address']}/{management['prefix']}"
        if of["cluster_role"] in ("leaf", "spine"):
            continue
        facts = without_rails(each.name, address)
        if of["cluster_role"] == "compute":
            _add_rails(facts, of)
        found[each.name] = facts
    return found


def _add_rails(facts: Facts, of: dict[str, Any]) -> None:
    hardware, system = facts["rdma_hardware"], facts["rdma_host"]
    system["neighbours"] = {}
    gpus = [gpu for gpu in of["cluster_gpus"] if gpu["pci"]]
    hardware["gpus"] = [{"pci": gpu["pci"], "numa": gpu["numa"]} for gpu in gpus]
    rails: dict[int, list[str]] = {}
    for rail in of["cluster_rails"]:
        name = rail["interface"]
        system["interfaces"][name] = interface(
            f"{rail['address']}/{rail['prefix']}", mtu=rail["mtu"], speed=float(rail["speed_gbps"])
        )
        system["neighbours"][name] = neighbour(rail["leaf"], rail["leaf_port"])
        if rail["pci"]:
            rails.setdefault(rail["rail"], []).append(rail["pci"])
            hardware["nics"].append(
                {
                    "kind": "rail" if gpus else "other",
                    "interface": name,
                    "pci": rail["pci"],
                    "gpus": [gpus[rail["gpu"]]["pci"]] if gpus else [],
                    "firmware": "40.47.1026",
                    "speed_gbps": float(rail["speed_gbps"]),
                }
            )
    if gpus and rails:
        pci: list[Any] = [each if len(each) > 1 else each[0] for each in rails.values()]
        hardware["model"] = {"rails": {"pci": pci}}


def machines(facts: dict[str, Facts]) -> list[DiscoveredMachine]:
    """By their names or addresses in the inventory."""
    return [read(name, each, "") for name, each in facts.items()]

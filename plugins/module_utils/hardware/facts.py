# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine as facts for people, and as the lines of a cluster model that would describe it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .inventory import Machine, PcieLink, RdmaDevice

MODULES = (
    "ib_core",
    "ib_umad",
    "ib_uverbs",
    "mlx5_core",
    "mlx5_ib",
    "nvidia",
    "nvidia_peermem",
    "rdma_cm",
    "rdma_rxe",
)
"""Those that decide what a node can do with RDMA."""


def as_facts(machine: Machine) -> dict[str, Any]:
    """JSON form, with the words that people use."""
    return {
        "nics": [nic(port) for port in machine.ports],
        "gpus": [
            {
                "index": index,
                "pci": function.pci,
                "numa": function.numa,
                "device_id": function.device_id,
                "driver": function.driver,
                "pcie": pcie(function.link),
            }
            for index, function in enumerate(machine.gpus)
        ],
        "modules": [module for module in MODULES if module in machine.modules],
        "slots": dict(machine.slots),
        "model": model(machine),
    }


def nic(port: RdmaDevice) -> dict[str, Any]:
    return {
        "kind": port.kind,
        "device": port.name,
        "port": port.port,
        "interface": port.netdev,
        "up": port.up,
        "pci": port.pci,
        "numa": port.numa,
        "vendor": port.vendor,
        "device_id": port.device_id,
        "driver": port.driver,
        "firmware": port.firmware,
        "board_id": port.board_id,
        "state": port.port_state,
        "link_layer": port.link_layer,
        "speed_gbps": port.speed_gbps,
        "pcie": pcie(port.link),
        "gpus": list(port.gpus),
        "sriov_totalvfs": port.sriov_totalvfs,
        "sriov_numvfs": port.sriov_numvfs,
        "vfs": [asdict(function) for function in port.vfs],
        "physfn": port.physfn,
        "gids": [asdict(gid) for gid in port.gids],
    }


def pcie(link: PcieLink) -> dict[str, Any]:
    return asdict(link)


def model(machine: Machine) -> dict[str, Any]:
    """What `gpus` and `rails` of a cluster model would say, were all nodes like this machine.

    Rails are ordered as their GPUs are. Empty where no NIC sits beside a GPU of its own, or GPUs
    have different numbers of functions beside them: there is nothing to read a model off then.
    """
    gpus = machine.gpus
    functions = [
        [port for port in machine.of_kind("rail") if port.gpu_pci == gpu.pci] for gpu in gpus
    ]
    planes = {len(ports) for ports in functions}
    if len(planes) != 1 or planes == {0}:
        return {}
    count = planes.pop()
    speeds = {port.speed_gbps for ports in functions for port in ports}
    addresses = [[port.pci for port in ports] for ports in functions]
    return {
        "gpus": {
            "count": len(gpus),
            "numa": [gpu.numa for gpu in gpus],
            "pci": [gpu.pci for gpu in gpus],
        },
        "rails": {
            "count": len(gpus),
            "planes": count,
            "speed_gbps": speeds.pop() if len(speeds) == 1 else None,
            "pci": addresses if count > 1 else [each[0] for each in addresses],
        },
    }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Intents of EOS switches for tests."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import Asic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    PortIntent,
    SwitchIntent,
)

TOMAHAWK5 = Asic("tomahawk5", options={"eos_queue": "tx-queue"})

OTHER: dict[str, Any] = {
    "roce": {"dscp": 24, "priority": 4, "bandwidth_percent": 60},
    "cnp": {"dscp": 46, "priority": 7},
    "classes": [{"name": "storage", "dscps": [10, 12], "priority": 2, "bandwidth_percent": 15}],
    "ecn": {"minimum_bytes": 166912, "maximum_bytes": 239616, "probability_percent": 5},
    "pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 1250, "action": "alert"}},
    "mtu": {"fabric": 9214, "fabric_layer": "ip"},
}
QUIET: dict[str, Any] = {"pfc": {"watchdog": {"enabled": False}}}
CONTRACTS: tuple[dict[str, Any], ...] = ({}, OTHER, QUIET)


def leaf(
    contract: Optional[dict[str, Any]] = None, ports: int = 2, asic: Asic = TOMAHAWK5
) -> SwitchIntent:
    return SwitchIntent(
        name="leaf01",
        system="eos",
        asic=asic,
        fabric=qos.fabric_intent(qos.read_contract(contract or {})),
        ports=tuple(
            PortIntent(f"Ethernet{number}/1", "host", 800, 50, f"node{number:02}", "rail0")
            for number in range(1, ports + 1)
        ),
    )


def spine(contract: Optional[dict[str, Any]] = None, ports: int = 2) -> SwitchIntent:
    return SwitchIntent(
        name="spine01",
        system="eos",
        asic=Asic("chip", options={"eos_queue": "uc-tx-queue"}),
        fabric=qos.fabric_intent(qos.read_contract(contract or {})),
        ports=tuple(
            PortIntent(f"Ethernet{number}/1", "downlink", 800, 100, f"leaf{number:02}", "swp49")
            for number in range(1, ports + 1)
        ),
    )

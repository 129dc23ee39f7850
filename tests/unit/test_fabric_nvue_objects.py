# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract as NVUE objects, and contracts that NVUE refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.objects import impact
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.switch import DRIVER
from hypothesis import given

from tests.unit.findings import brief
from tests.unit.nvue_switch import intent
from tests.unit.qos_contracts import STORAGE, contracts

GOLDEN = Path(__file__).parent / "golden/fabric/nvue"


def compact(value: Any) -> str:
    text = json.dumps(value, indent=1) + "\n"

    def short(match: re.Match[str]) -> str:
        line = "{" + " ".join(match[1].split()) + "}"
        return line if len(line) <= 80 else match[0]

    for _depth in range(3):
        text = re.sub(r"\{\s+((?:[^{}]|\{[^{}\n]*\})*?)\s+\}", short, text)
    return text


@pytest.mark.parametrize("role", ["leaf", "spine"])
def test_the_objects_of_an_sn5600_are_these(role: str) -> None:
    """64 ports of 800G. To update the files: delete them and run this test twice."""
    path = GOLDEN / f"{role}.json"
    wanted = DRIVER.wanted(intent(ports=64, role=role))
    text = compact(wanted)
    assert json.loads(text) == wanted
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} is new")
    assert text == path.read_text(encoding="utf-8")


def profiles(contract: dict[str, Any] | None = None) -> dict[str, Any]:
    qos = DRIVER.wanted(intent(contract))["qos"]
    return {
        name: branch.get("default-global", branch) if isinstance(branch, dict) else branch
        for name, branch in qos.items()
    }


def test_another_contract_is_rendered_in_full() -> None:
    contract = {**STORAGE, "pfc": {**STORAGE["pfc"], "watchdog": {"action": "drop"}}}
    qos = profiles(contract)
    assert qos["pfc"]["switch-priority"] == {"4": {}}
    assert qos["traffic-pool"]["roce-lossless"]["switch-priority"] == {"4": {}}
    assert sorted(qos["traffic-pool"]["default-lossy"]["switch-priority"]) == list("0123567")
    assert qos["mapping"]["dscp"]["24"] == {"switch-priority": 4}
    assert qos["mapping"]["dscp"]["46"] == {"switch-priority": 7}
    assert qos["mapping"]["dscp"]["10"] == qos["mapping"]["dscp"]["12"] == {"switch-priority": 2}
    assert qos["mapping"]["dscp"]["26"] == {"switch-priority": 0}
    assert qos["egress-queue-mapping"]["switch-priority"]["4"] == {"traffic-class": 5}
    shares = qos["egress-scheduler"]["traffic-class"]
    assert shares["5"] == {"mode": "dwrr", "bw-percent": 60}
    assert shares["7"] == {"mode": "strict", "bw-percent": None}
    assert {shares[tc]["bw-percent"] for tc in ("1", "2")} == {5, 15}
    assert shares["3"] == {"mode": "strict", "bw-percent": None}, "otherwise RoCE shares it"
    assert "4" not in shares
    assert qos["congestion-control"]["traffic-class"]["5"] == {
        "ecn": "enable",
        "red": None,
        "min-threshold": 166912,
        "max-threshold": 239616,
        "probability": 5,
    }
    assert qos["congestion-control"]["traffic-class"]["0"] == {"ecn": "disable"}
    assert qos["roce"]["cable-length"] == qos["pfc"]["cable-length"] == 300


def pools(contract: dict[str, Any]) -> dict[str, Any]:
    pools = DRIVER.wanted(intent(contract))["qos"]["traffic-pool"]
    return {name: pool.get("memory-percent") for name, pool in pools.items()}


def test_pools_follow_the_contract_or_the_switch() -> None:
    """Spectrum-X: 90 and 10, NVIDIA/nv-config-manager 50d4d776, template of a SuperPOD, qos.j2."""
    assert pools({}) == {"roce-lossless": None, "default-lossy": None}
    assert pools({"fabric_mode": "spectrum_x"}) == {"roce-lossless": 90, "default-lossy": 10}
    assert pools({"pfc": {"pool_percent": 70}}) == {"roce-lossless": 70, "default-lossy": 30}


@given(contracts())
def test_every_contract_is_whole(contract: dict[str, Any]) -> None:
    contract.setdefault("pfc", {}).setdefault("watchdog", {})["action"] = "drop"
    contract.pop("mtu", None)
    qos = profiles(contract)
    assert sorted(qos["mapping"]["dscp"], key=int) == [str(dscp) for dscp in range(64)]
    assert sorted(qos["egress-queue-mapping"]["switch-priority"]) == list("01234567")
    shares = qos["egress-scheduler"]["traffic-class"].values()
    assert sum(share["bw-percent"] or 0 for share in shares) == 100
    pools = qos["traffic-pool"].values()
    held = [priority for pool in pools if pool for priority in pool["switch-priority"]]
    assert sorted(held) == list("01234567")


def test_the_longest_cable_is_everybody_s() -> None:
    wanted = DRIVER.wanted(intent({"cable_metres": {"to_nodes": 5, "between_switches": 40}}))
    assert wanted["qos"]["roce"]["cable-length"] == 40
    wanted = DRIVER.wanted(intent({"cable_metres": {"to_nodes": 60, "between_switches": 40}}))
    assert wanted["qos"]["roce"]["cable-length"] == 60


def test_a_watchdog_that_is_off_is_said() -> None:
    contract = {"pfc": {"watchdog": {"enabled": False, "action": "alert"}}}
    port = DRIVER.wanted(intent(contract))["interface"]["swp1"]
    assert port["qos"]["pfc-watchdog"] == {"state": "disable"}


@pytest.mark.parametrize("action", ["alert", "forward"])
def test_the_watchdog_can_only_drop(action: str) -> None:
    with pytest.raises(WantedError) as caught:
        DRIVER.wanted(intent({"pfc": {"watchdog": {"action": action}}}))
    assert brief(caught.value.findings) == [f"nvue.watchdog_action leaf01 '{action}'"]


def test_costs_are_said_for_what_costs_only() -> None:
    assert impact([]).level == impact([("qos", "egress-shaper", "mine")]).level == "none"
    moved = impact([("qos", "mapping", "default-global", "dscp", str(dscp)) for dscp in (24, 26)])
    assert moved.losses == (system.UNDER_TRAFFIC[system.DSCP_MAP],)
    buffers = impact([("qos", "pfc", "default-global"), ("qos", "roce", "mode")])
    assert buffers.level == "loss" and buffers.ports_down == ()
    assert "(PFC, RoCE)" in buffers.losses[0] and "all of" in buffers.losses[0]
    sizes = impact([("interface", f"swp{port}", "link", "mtu") for port in range(1, 9)])
    assert "8 ports (swp1, swp2" in sizes.losses[0]
    bound = impact([("interface", "swp2", "qos", "pfc", "profile")])
    assert ["1 port (swp2)" in loss for loss in bound.losses] == [True]
    watched = impact([("interface", "swp2", "qos", "pfc-watchdog", "state")])
    assert watched.losses == (system.UNDER_TRAFFIC[system.WATCHING].format("1 port"),)
    own = impact([("interface", "swp2", "qos", "mapping", "profile")])
    assert own.losses == (system.UNDER_TRAFFIC[system.DSCP_MAP],)

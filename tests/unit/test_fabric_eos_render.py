# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration that an EOS switch shall have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.asics import Asic, Value
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.eos import SYSTEM, render
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.system import WantedError

from tests.unit.eos_intents import OTHER, TOMAHAWK5, leaf, spine

GOLDEN = Path(__file__).parent / "golden" / "fabric" / "eos"


@pytest.mark.parametrize(
    ("name", "intent"), [("leaf", leaf()), ("spine", spine(OTHER))], ids=["leaf", "spine"]
)
def test_the_configuration_is_the_golden_one(name: str, intent: Any) -> None:
    assert SYSTEM.wanted(intent).text == (GOLDEN / f"{name}.cfg").read_text()


def test_every_dscp_is_mapped() -> None:
    settings = SYSTEM.wanted(leaf(OTHER)).settings
    lines = [settings[(f"qos map dscp {dscp}",)] for dscp in range(64)]
    classes = leaf(OTHER).fabric.dscp_to_traffic_class
    assert [int(line.split()[-1]) for line in lines] == list(classes)


def test_headroom_is_set_only_where_the_inventory_says_it() -> None:
    rows = (Value(800, 50, 500000, 20000, 480000), Value(800, 100, 600000, 20000, 560000))
    one, two = leaf(asic=replace(TOMAHAWK5, values=rows)).ports
    intent = replace(
        leaf(asic=replace(TOMAHAWK5, values=rows)), ports=(one, replace(two, cable_metres=100))
    )
    text = SYSTEM.wanted(intent).text
    profile = "platform trident mmu queue profile BAREMETAL_MPI_ROCE"
    assert f"{profile}\n    ingress headroom bytes 560000\n" in text
    assert f"{profile} apply\n" in text
    assert "mmu" not in SYSTEM.wanted(leaf()).text


def test_a_missing_row_of_headroom_is_an_error_and_no_guess() -> None:
    asic = replace(TOMAHAWK5, values=(Value(400, 50, 500000, 20000, 480000),))
    with pytest.raises(WantedError, match="800G"):
        SYSTEM.wanted(leaf(asic=asic))


REFUSED = {
    "mtu": ({"mtu": {"fabric": 9300}}, r"IP packets of 9282 bytes are above EOS's 9214"),
    "action": ({"pfc": {"watchdog": {"action": "forward"}}}, "cannot forward.*drop or alert"),
    "timer step": ({"pfc": {"watchdog": {"detection_ms": 205}}}, "detection_ms: 205 ms.*10"),
    "number": ({"roce": {"priority": 3, "traffic_class": 4}}, "priority 3 and traffic class 4"),
    "cnp below": (
        {"cnp": {"dscp": 48, "priority": 2}},
        "queue 2 cannot be strict below queue 3",
    ),
    "control": (
        {"classes": [{"name": "x", "dscps": [9], "priority": 7, "bandwidth_percent": 9}]},
        "queue 7 is EOS's own",
    ),
}


@pytest.mark.parametrize(("contract", "message"), REFUSED.values(), ids=REFUSED)
def test_what_eos_cannot_keep_is_refused_with_its_reason(contract: Any, message: str) -> None:
    with pytest.raises(WantedError, match=message) as error:
        SYSTEM.wanted(leaf(contract))
    assert all(finding.path == ("leaf01",) for finding in error.value.findings)


def test_every_reason_is_told_at_once() -> None:
    intent = replace(leaf({"mtu": {"fabric": 9300}}, asic=Asic("own")))
    intent = replace(intent, ports=(replace(intent.ports[0], name="swp1"),))
    with pytest.raises(WantedError) as error:
        SYSTEM.wanted(intent)
    text = str(error.value)
    assert "9214" in text
    assert "asics.<chip>.eos_queue" in text
    assert "swp1 is no interface of EOS" in text


def test_pyavd_refuses_a_wrong_value() -> None:
    data = render.structured(leaf().fabric, "tx-queue")
    data["qos_profiles"][0]["tx_queues"][1]["random_detect"]["ecn"]["threshold"]["units"] = "cells"
    with pytest.raises(WantedError, match=r"EOS does not take qos_profiles\.0\.tx_queues.*units"):
        render.render(data)


def test_without_pyavd_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "PYAVD_MISSING", ImportError("pyavd"))
    with pytest.raises(WantedError, match=r"pyavd is not installed.*requirements/controller\.txt"):
        render.render({})

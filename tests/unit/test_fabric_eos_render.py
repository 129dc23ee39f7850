# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Desired configuration of an EOS switch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyavd
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import asics
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos import render
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import DRIVER
from hypothesis import example, given

from tests.unit.eos_intents import OTHER, TOMAHAWK5, leaf, spine
from tests.unit.findings import brief
from tests.unit.qos_contracts import contracts

GOLDEN = Path(__file__).parent / "golden" / "fabric" / "eos"


@pytest.mark.parametrize(
    ("name", "intent"), [("leaf", leaf()), ("spine", spine(OTHER))], ids=["leaf", "spine"]
)
def test_the_configuration_is_the_golden_one(name: str, intent: Any) -> None:
    assert DRIVER.wanted(intent).text == (GOLDEN / f"{name}.cfg").read_text()


ROWS = {
    (800, 50): asics.Headroom(500000, 20000, 480000),
    (800, 100): asics.Headroom(600000, 20000, 560000),
}


def test_headroom_is_set_only_where_the_inventory_says_it() -> None:
    one, two = leaf(asic=replace(TOMAHAWK5, values=ROWS)).ports
    intent = replace(
        leaf(asic=replace(TOMAHAWK5, values=ROWS)), ports=(one, replace(two, cable_metres=100))
    )
    text = DRIVER.wanted(intent).text
    profile = "platform trident mmu queue profile BAREMETAL_MPI_ROCE"
    assert f"{profile}\n    ingress headroom bytes 560000\n" in text
    assert f"{profile} apply\n" in text
    assert "mmu" not in DRIVER.wanted(leaf()).text


def test_marked_packets_are_counted_where_the_model_says_so() -> None:
    line = "      random-detect ecn count\n"
    text = DRIVER.wanted(leaf(asic=replace(TOMAHAWK5, options={"eos_ecn_count": True}))).text
    assert text.count(line) == 1
    assert text.index("tx-queue 3\n") < text.index(line) < text.index("tx-queue 6\n")
    assert line not in DRIVER.wanted(leaf()).text


@pytest.mark.parametrize("metres", [(5, 40, 300), (50,)], ids=["none fits", "one is missing"])
def test_rows_for_switches_of_another_system_leave_the_headroom_to_eos(
    metres: tuple[int, ...],
) -> None:
    """SONiC's rows are for 5, 40 and 300 m (pg_profile_lookup.ini), EOS needs none."""
    rows = {(800, length): asics.Headroom(500000, 20000, 480000) for length in metres}
    one, two = leaf(asic=replace(TOMAHAWK5, values=rows)).ports
    intent = replace(
        leaf(asic=replace(TOMAHAWK5, values=rows)), ports=(one, replace(two, cable_metres=100))
    )
    assert "mmu" not in DRIVER.wanted(intent).text


def refused(run: Callable[[], Any]) -> list[str]:
    with pytest.raises(asics.WantedError) as error:
        run()
    return brief(error.value.findings)


CONTROL = {"name": "x", "dscps": [9], "priority": 7, "bandwidth_percent": 9}
REFUSED = (
    ({"mtu": {"fabric": 9300}}, "eos.mtu leaf01 9282"),
    ({"pfc": {"watchdog": {"action": "forward"}}}, "eos.watchdog_action leaf01 'forward'"),
    ({"pfc": {"watchdog": {"detection_ms": 205}}}, "eos.watchdog_step leaf01 205"),
    ({"roce": {"priority": 3, "traffic_class": 4}}, "eos.lossless_class leaf01 (3, 4)"),
    ({"cnp": {"dscp": 48, "priority": 2}}, "eos.strict_below_shared leaf01 (2, 3)"),
    ({"classes": [CONTROL]}, "eos.control_queue leaf01 'x'"),
)


@pytest.mark.parametrize(("contract", "listed"), REFUSED)
def test_what_eos_cannot_keep_is_refused_with_its_reason(contract: Any, listed: str) -> None:
    assert listed in refused(lambda: DRIVER.wanted(leaf(contract)))


def test_every_reason_is_told_at_once() -> None:
    watchdog = {"watchdog": {"action": "forward"}}
    intent = leaf({"mtu": {"fabric": 9300}, "pfc": watchdog})
    assert refused(lambda: DRIVER.wanted(intent)) == [
        "eos.mtu leaf01 9282",
        "eos.watchdog_action leaf01 'forward'",
    ]


@given(contracts())
@example({})
@example({"pfc": {"watchdog": {"enabled": False}}})
def test_the_schema_of_pyavd_takes_each_contract_that_eos_can_keep(value: dict[str, Any]) -> None:
    """Without validation, as in a run."""
    for intent in (leaf(value), spine(value), leaf(value, asic=replace(TOMAHAWK5, values=ROWS))):
        with contextlib.suppress(asics.WantedError):
            DRIVER.wanted(intent)
            word, room = intent.asic.options["eos_queue"], 480000 if intent.asic.values else None
            data = render.structured(intent.fabric, word, "tx-queue", room, counts=True)
            checked = pyavd.validate_structured_config(data)
            assert not checked.validation_result.violations
            assert checked.validated_data == data


def test_without_pyavd_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "PYAVD_MISSING", ImportError("pyavd"))
    assert refused(lambda: render.render({})) == ["eos.no_pyavd"]

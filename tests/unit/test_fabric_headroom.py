# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom: to the byte where something is published, growing everywhere, never a guess."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import (
    ASICS,
    MOST_METRES,
    PAUSE_QUANTA,
    SPECTRUM4,
    Asic,
    Headroom,
    WantedError,
    asic_named,
    headroom,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
FRAME = 9216
"""Bytes of the largest Ethernet frame that the published figures are for."""
PUBLISHED = {
    (400, 5): Headroom(250880, 19456, 231424),
    (800, 5): Headroom(304128, 38912, 257024),
    (800, 40): Headroom(410624, 38912, 362496),
    (800, 300): Headroom(1198080, 38912, 1150976),
}
"""By speed and metres, in SONiC's tables for SN5600."""

speeds = st.sampled_from(sorted(set(PAUSE_QUANTA) - {40}))
metres = st.integers(1, MOST_METRES)
frames = st.integers(1500, 10_000)


@pytest.mark.parametrize(("link", "published"), PUBLISHED.items())
def test_published_rows_are_met_to_the_byte(link: tuple[int, int], published: Headroom) -> None:
    assert headroom(SPECTRUM4, *link, FRAME) == published


@given(speeds, metres, frames, speeds, metres, frames)
def test_more_speed_cable_or_frame_never_needs_less(
    speed: int, length: int, frame: int, speed2: int, length2: int, frame2: int
) -> None:
    low = headroom(SPECTRUM4, min(speed, speed2), min(length, length2), min(frame, frame2))
    high = headroom(SPECTRUM4, max(speed, speed2), max(length, length2), max(frame, frame2))
    assert low.xoff_bytes <= high.xoff_bytes
    assert low.size_bytes <= high.size_bytes
    assert low.xon_bytes <= high.xon_bytes


def test_what_the_inventory_says_comes_before_the_formula() -> None:
    chip = replace(SPECTRUM4, values={(800, 40): Headroom(3, 1, 2)})
    assert headroom(chip, 800, 40, FRAME) == Headroom(3, 1, 2)
    assert headroom(chip, 800, 41, FRAME) == headroom(SPECTRUM4, 800, 41, FRAME)
    assert headroom(chip, 400, 40, FRAME) == headroom(SPECTRUM4, 400, 40, FRAME)


@pytest.mark.parametrize(
    ("chip", "speed", "length"),
    [
        (ASICS["tomahawk5"], 800, 50),
        (ASICS["spectrum3"], 400, 50),
        (SPECTRUM4, 40, 5),
        (SPECTRUM4, 1600, 50),
        (SPECTRUM4, 800, 301),
        (Asic("other", values={(800, 40): Headroom(3, 1, 2)}), 800, 50),
    ],
)
def test_what_nobody_knows_is_an_error_that_says_what_to_write(
    chip: Asic, speed: int, length: int
) -> None:
    with pytest.raises(WantedError) as raised:
        headroom(chip, speed, length, FRAME)
    (finding,) = raised.value.findings
    assert (finding.code, finding.value) == ("fabric.headroom_unknown", (speed, length))
    assert f"of {chip.name} at" in finding.problem
    assert f"{{{chip.name}: {{headroom: [{{speed_gbps: {speed}, cable_metres:" in finding.remedy


def test_of_a_chip_that_nobody_names_nothing_is_known() -> None:
    with pytest.raises(WantedError) as raised:
        headroom(Asic(""), 800, 50, FRAME)
    (finding,) = raised.value.findings
    assert (finding.code, finding.value) == ("fabric.headroom_of_no_chip", (800, 50))


def test_a_chip_is_what_is_known_and_what_the_inventory_adds() -> None:
    row = {"speed_gbps": 800, "cable_metres": 50, "size_bytes": 3, "xon_bytes": 1, "xoff_bytes": 2}
    output = {
        "tomahawk5": {"headroom": [row], "eos_queue": None},
        "mine": {"eos_queue": "uc-tx-queue"},
    }
    chip = asic_named("tomahawk5", output)
    assert chip is not None
    assert headroom(chip, 800, 50, FRAME) == Headroom(3, 1, 2)
    assert chip.eos_queue == "", "no platform is proved to have one of the words"
    assert asic_named("mine", output) == Asic("mine", eos_queue="uc-tx-queue")
    assert asic_named("spectrum4", output) == SPECTRUM4
    assert asic_named("", output) == Asic("")
    assert asic_named("yours", output) is None


@pytest.mark.parametrize(
    ("name", "speed", "there"),
    [
        ("spectrum4", 800, True),
        ("spectrum4", 10, True),
        ("spectrum4", 1600, False),
        ("spectrum4", 300, False),
        ("spectrum3", 400, True),
        ("spectrum3", 800, False),
        ("tomahawk5", 800, True),
        ("", 1600, True),
        ("", 3200, False),
    ],
)
def test_speeds_of_ports(name: str, speed: int, there: bool) -> None:
    chip = asic_named(name, {})
    assert chip is not None
    assert chip.has_port(speed) is there


@pytest.mark.parametrize(
    ("name", "ports", "lanes"),
    [
        ("spectrum4", 64, 8),
        ("spectrum4", 65, 8),
        ("spectrum4", 128, 4),
        ("spectrum4", 256, 2),
        ("spectrum4", 512, 1),
        ("spectrum4", 4, 8),
        ("spectrum3", 32, 8),
        ("spectrum3", 64, 4),
        ("spectrum2", 32, 4),
        ("", 64, None),
    ],
)
def test_lanes_of_ports(name: str, ports: int, lanes: int | None) -> None:
    chip = asic_named(name, {})
    assert chip is not None
    assert chip.lanes_of_port(ports) == lanes


def test_the_page_has_these_figures() -> None:
    page = (ROOT / "docs/qos-contract.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)G, (\d+) m \| (\d+) \| (\d+) \| (\d+) \| (.*)\|$", page, re.M)
    assert len(rows) > 5
    for speed, length, *figures, published in rows:
        link = (int(speed), int(length))
        assert headroom(SPECTRUM4, *link, FRAME) == Headroom(*map(int, figures))
        assert (published.strip() == "the same") == (link in PUBLISHED)

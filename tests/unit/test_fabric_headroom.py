# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom: exact where published, monotonic, and never a guess."""

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
    in_flight,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
FRAME = 9216
"""Largest Ethernet frame of the published figures, in bytes."""
PUBLISHED = {
    **{(10, 5): 45056, (25, 5): 48128, (40, 5): 57344, (50, 5): 63488, (100, 5): 113664},
    **{(200, 5): 131072, (400, 5): 231424, (800, 5): 257024},
    **{(10, 40): 46080, (25, 40): 52224, (40, 40): 62464, (50, 40): 69632, (100, 40): 126976},
    **{(200, 40): 157696, (400, 40): 283648, (800, 40): 362496},
    **{(10, 300): 56320, (25, 300): 76800, (40, 300): 101376, (50, 300): 118784},
    **{(100, 300): 225280, (200, 300): 355328, (400, 300): 677888, (800, 300): 1150976},
}
"""xoff by speed and metres: every row for SN5600 in sonic-net/sonic-buildimage 086b03bd,
device/mellanox/x86_64-nvidia_sn5600-r0/ACS-SN5600/pg_profile_lookup.ini."""
SIZES = {
    (10, 5): 64512,
    (100, 40): 146432,
    (400, 5): 250880,
    (400, 300): 697344,
    (800, 5): 304128,
    (800, 40): 410624,
    (800, 300): 1198080,
}
"""As above. Two rows at 800G are one KiB below the current formula."""
SPECTRUM5_ROWS = {(25, 30): 22528, (100, 40): 49152, (400, 40): 104448, (25, 250): 29696}
"""xoff of Mellanox-SN5640-C448O16, for half as many small packets."""
SPECTRUM6_ROWS = {(10, 5): 20480, (400, 40): 101376, (800, 5): 147456, (800, 300): 473088}
"""The same of Mellanox-SN6600_LD-P128C2, before the formula added something for Spectrum-6."""

speeds = st.sampled_from(sorted(PAUSE_QUANTA))
metres = st.integers(1, MOST_METRES)
frames = st.integers(1500, 10_000)


@pytest.mark.parametrize(("link", "xoff"), PUBLISHED.items())
def test_published_rows_are_met_to_the_byte(link: tuple[int, int], xoff: int) -> None:
    found = headroom(SPECTRUM4, *link, FRAME)
    assert found.xoff_bytes == xoff
    assert found.xon_bytes == (38912 if link[0] == 800 else 19456)
    if link in SIZES:
        assert found.size_bytes - SIZES[link] in (0, 1024)


@pytest.mark.parametrize(
    ("chip", "rows"), [("spectrum5", SPECTRUM5_ROWS), ("spectrum6", SPECTRUM6_ROWS)]
)
def test_newer_chips_have_more_than_their_tables(
    chip: str, rows: dict[tuple[int, int], int]
) -> None:
    for link, published in rows.items():
        assert headroom(ASICS[chip], *link, FRAME).xoff_bytes > published


def test_a_spectrum6_has_further_room_and_another_xon() -> None:
    found = headroom(ASICS["spectrum6"], 800, 50, FRAME)
    assert found.xon_bytes == 43008, "four lanes of 200G"
    assert headroom(ASICS["spectrum6"], 800, 50, FRAME, lanes=8).xon_bytes == 2 * 43008
    formula = ASICS["spectrum6"].formula
    assert formula is not None
    bare = replace(ASICS["spectrum6"], formula=replace(formula, further_bytes=0))
    assert found.xoff_bytes == headroom(bare, 800, 50, FRAME).xoff_bytes + 18 * 1024


def test_eight_lanes_have_two_buffers_at_any_speed() -> None:
    """buffer_headroom_mellanox.lua: pipeline latency twice, and one frame more."""
    assert headroom(SPECTRUM4, 400, 50, FRAME, lanes=8) == Headroom(347136, 38912, 299008)
    assert headroom(SPECTRUM4, 400, 50, FRAME, lanes=4) == Headroom(318464, 19456, 299008)
    assert headroom(SPECTRUM4, 400, 50, FRAME) == Headroom(318464, 19456, 299008)


@given(speeds, metres)
def test_a_pause_never_comes_to_more_than_the_room(speed: int, length: int) -> None:
    for chip in ("spectrum4", "spectrum5", "spectrum6"):
        assert headroom(ASICS[chip], speed, length, FRAME).xoff_bytes > in_flight(speed, length)


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
        (ASICS["spectrum3"], 800, 50),
        (SPECTRUM4, 1600, 50),
        (ASICS["spectrum6"], 1600, 50),
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
    assert (finding.code, finding.value) == ("fabric.headroom_unknown", (800, 50))


def test_a_chip_is_what_is_known_and_what_the_inventory_adds() -> None:
    row = {"speed_gbps": 800, "cable_metres": 50, "size_bytes": 3, "xon_bytes": 1, "xoff_bytes": 2}
    output = {
        "tomahawk5": {"headroom": [row], "eos_queue": None},
        "mine": {"eos_queue": "uc-tx-queue"},
    }
    chip = asic_named("tomahawk5", output)
    assert chip is not None
    assert headroom(chip, 800, 50, FRAME) == Headroom(3, 1, 2)
    assert chip.options == {}, "unknown for this chip"
    assert asic_named("mine", output) == Asic("mine", options={"eos_queue": "uc-tx-queue"})
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
    ("name", "ports", "speed", "lanes"),
    [
        ("spectrum4", 64, 800, 8),
        ("spectrum4", 64, 400, 8),
        ("spectrum4", 65, 400, 4),
        ("spectrum4", 65, 800, None),
        ("spectrum4", 128, 400, 4),
        ("spectrum4", 256, 200, 2),
        ("spectrum4", 512, 100, 1),
        ("spectrum4", 513, 100, None),
        ("spectrum4", 4, 800, 8),
        ("spectrum3", 32, 400, 8),
        ("spectrum3", 64, 200, 4),
        ("spectrum2", 32, 200, 4),
        ("spectrum2", 16, 200, 4),
        ("spectrum2", 16, 400, 8),
        ("spectrum", 16, 100, 4),
        ("spectrum6", 128, 800, 4),
        ("spectrum6", 64, 800, 4),
        ("spectrum6", 64, 1600, 8),
        ("", 64, 800, None),
    ],
)
def test_lanes_of_ports(name: str, ports: int, speed: int, lanes: int | None) -> None:
    chip = asic_named(name, {})
    assert chip is not None
    assert chip.lanes_of_port(ports, speed) == lanes


def test_the_page_has_these_figures() -> None:
    page = (ROOT / "docs/qos-contract.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)G, (\d+) m \| (\d+) \| (\d+) \| (\d+) \| (.*)\|$", page, re.M)
    assert len(rows) > 5
    for speed, length, *figures, published in rows:
        link = (int(speed), int(length))
        assert headroom(SPECTRUM4, *link, FRAME) == Headroom(*map(int, figures))
        assert (published.strip() != "") == (link in PUBLISHED)

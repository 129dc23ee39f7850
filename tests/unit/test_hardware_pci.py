# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI addresses, ways and links: the algebra."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import pci
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    Function,
    PcieLink,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.survey import gpus_beside
from hypothesis import given
from hypothesis import strategies as st

addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.{:x}".format,
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)
ways = st.lists(addresses, max_size=8, unique=True)


@given(addresses)
def test_an_address_is_its_bus_its_card_and_its_function(address: str) -> None:
    assert address == f"{pci.card_of(address)}.{address[-1]}"
    assert pci.card_of(address).startswith(pci.bus_of(address) + ":")


@given(addresses.map(lambda each: each[:4]), ways)
def test_a_way_is_read_off_a_path(domain: str, steps: list[str]) -> None:
    path = PurePath("/sys/devices", f"pci{domain}:00", *steps, "virtio3", "5d:00.0", "0000:5d:00.8")
    assert pci.way(path) == tuple(steps)


@given(ways, ways)
def test_what_two_ways_have_in_common_is_the_same_from_both_ends(
    one: list[str], other: list[str]
) -> None:
    count = pci.common(one, other)
    assert count == pci.common(other, one)
    assert one[:count] == other[:count]
    assert one[count : count + 1] != other[count : count + 1] or count == len(one) == len(other)


@given(st.sampled_from(sorted(pci.GENERATIONS)))
def test_a_speed_is_read_as_the_kernel_writes_it(speed: float) -> None:
    assert pci.parse_speed(f"{speed:.1f} GT/s PCIe") == speed


@pytest.mark.parametrize("text", ["", "Unknown", "Unknown speed", "GT/s", "fast"])
def test_an_unknown_speed_is_no_number(text: str) -> None:
    assert pci.parse_speed(text) is None


@given(st.integers(1, 32))
def test_a_width_is_read(width: int) -> None:
    assert pci.parse_width(str(width)) == width


@pytest.mark.parametrize("text", ["", "0", "255", "-1", "x16"])
def test_an_unknown_width_is_no_number(text: str) -> None:
    assert pci.parse_width(text) is None


@given(st.sampled_from(sorted(pci.GENERATIONS)), st.integers(1, 16))
def test_a_link_carries_less_than_its_raw_rate_and_more_with_every_lane(
    speed: float, width: int
) -> None:
    carries = pci.capacity_gbps(speed, width)
    assert 0 < carries < speed * width
    assert pci.capacity_gbps(speed, width + 1) > carries


def test_an_800g_rail_takes_pcie_6_and_a_400g_rail_pcie_5() -> None:
    assert pci.capacity_gbps(64, 16) > 800 > pci.capacity_gbps(32, 16) > 400
    assert pci.capacity_gbps(64, 8) < 800


links = st.builds(
    PcieLink,
    max_speed_gts=st.none() | st.sampled_from(sorted(pci.GENERATIONS)),
    max_width=st.none() | st.sampled_from([1, 2, 4, 8, 16]),
)


@given(links, links)
def test_a_link_can_do_what_both_its_ends_can(device: PcieLink, port: PcieLink) -> None:
    both = pci.best(device, port)
    assert both == pci.best(port, device)
    for end in (device, port):
        if end.max_speed_gts is not None:
            assert both.speed_gts is not None and both.speed_gts <= end.max_speed_gts
        if end.max_width is not None:
            assert both.width is not None and both.width <= end.max_width
    assert pci.best(device, None).width == device.max_width


# GPUs beside NICs

SWITCHES = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")


def gpu(address: str, *bridges: str) -> Function:
    return Function(address, "10de", "3182", "030200", bridges=bridges)


def nic(address: str, *bridges: str) -> Function:
    return Function(address, "15b3", "1023", "020000", bridges=bridges)


def test_a_nic_belongs_to_the_gpu_that_shares_its_nearest_switch() -> None:
    rail = nic("0000:11:00.0", *SWITCHES)
    near = gpu("0000:14:00.0", *SWITCHES, "0000:04:00.0")
    far = gpu("0000:15:00.0", *SWITCHES[:2])
    assert gpus_beside(rail, [rail, near, far]) == (near.pci,)
    elsewhere = gpu("0000:16:00.0", "0000:01:01.0")
    assert gpus_beside(rail, [rail, elsewhere]) == gpus_beside(rail, [rail]) == ()


def test_a_nic_of_the_outer_switch_belongs_to_no_gpu_that_has_a_nearer_one() -> None:
    rail, storage = nic("0000:11:00.0", *SWITCHES), nic("0000:12:00.0", SWITCHES[0])
    near = gpu("0000:14:00.0", *SWITCHES)
    assert gpus_beside(storage, [rail, storage, near]) == ()
    assert gpus_beside(rail, [rail, storage, near]) == (near.pci,)


def test_two_gpus_behind_one_switch_are_both_named() -> None:
    rail = nic("0000:11:00.0", *SWITCHES)
    first, second = gpu("0000:14:00.0", *SWITCHES), gpu("0000:15:00.0", *SWITCHES)
    assert gpus_beside(rail, [second, rail, first]) == (first.pci, second.pci)

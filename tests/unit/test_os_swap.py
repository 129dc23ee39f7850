# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Swap off: now, in fstab, and whatever else would bring it back."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import swap

from tests.unit.os_tree import Tree, found


@pytest.fixture
def ubuntu(tmp_path):
    return Tree("ubuntu", tmp_path)


@pytest.fixture
def rocky(tmp_path):
    return Tree("rocky", tmp_path)


def test_only_swap_lines_are_set_aside_and_every_other_byte_stays():
    text = (
        "# /swap none swap\n\n/dev/sda1 / ext4 x 0 1\r\nUUID=1 none swap sw 0 0\n/swap swap ext4\n"
    )
    after = swap.without_swap(text)
    assert after == text.replace("UUID=1", f"{swap.MARKER}UUID=1")
    assert swap.without_swap(after) == after


def test_fstab_keeps_its_mode(ubuntu):
    (ubuntu.root / "etc/fstab").chmod(0o600)
    ubuntu.settle(swap="off")
    assert (ubuntu.root / "etc/fstab").stat().st_mode & 0o777 == 0o600
    assert "\n/swap.img" not in ubuntu.read("etc/fstab")


def test_every_device_is_switched_off_by_name(rocky):
    rocky.settle(swap="off")
    assert rocky.ran("swapoff", "/dev/dm-1")
    assert rocky.ran("swapoff", "/dev/zram0")
    assert swap.parse_swaps(rocky.read("proc/swaps")) == []


def test_units_of_fstab_go_by_reloading_and_others_are_masked(rocky):
    rocky.settle(swap="off")
    assert rocky.ran("systemctl", "daemon-reload")
    assert rocky.ran("systemctl", "mask", "dev-zram0.swap")
    assert not any("rl" in word for call in rocky.calls for word in call if "mask" in call)


def test_zram_services_are_masked(ubuntu):
    ubuntu.write("usr/lib/systemd/system/zramswap.service", "[Service]\n")
    ubuntu.settle(swap="off")
    assert ubuntu.ran("systemctl", "mask", "zramswap.service")
    assert not ubuntu.settle(swap="off").changed


def test_more_swap_in_use_than_memory_is_refused_untouched(ubuntu):
    ubuntu.write("proc/meminfo", "MemAvailable:    1023 kB\n")
    before = ubuntu.snapshot()
    with pytest.raises(PlanError, match="1024 KiB are in use and only 1023"):
        ubuntu.settle(swap="off")
    assert ubuntu.snapshot() == before


def test_a_node_without_fstab_or_swap_is_left_alone(ubuntu):
    (ubuntu.root / "etc/fstab").unlink()
    (ubuntu.root / "run/systemd/generator/swap.img.swap").unlink()
    ubuntu.write("proc/swaps", "Filename Type Size Used Priority\n")
    outcome = ubuntu.settle(swap="off")
    assert not outcome.changed
    assert found(outcome, "swap")[""].status == "ok"


def test_a_swap_file_with_a_blank_in_its_name():
    devices = swap.parse_swaps("Filename Type\n/my\\040swap file 8 0 -2\n")
    assert devices == [swap.Device("/my swap", 0)]

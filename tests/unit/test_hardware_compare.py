# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every way in which a machine can differ from the model, each with its own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.compare import (
    compare_with_model,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.presence import present

from tests.hardware.trees import function, line, link, machine, recording, surveyed
from tests.unit.test_hardware_survey import B300, BOARD, GPUS, NICS, RAIL0, add_software
from tools.record_hardware import Directory

GOLDEN = Path(__file__).parent / "golden/cluster_b300.json"


def rails(**more: Any) -> list[dict[str, Any]]:
    """The rails of a node of the reference cluster, with changes."""
    return [
        {
            "rail": number,
            "plane": 0,
            "interface": f"rail{number}",
            "pci": pci,
            "speed_gbps": 800,
            "gpu": number,
            "numa": number // 4,
            "leaf": f"leaf{number + 1:02d}",
            "leaf_port": "Ethernet8",
            **more,
        }
        for number, pci in enumerate(NICS)
    ]


def planes() -> list[dict[str, Any]]:
    """The same with two planes per rail."""
    return [
        {
            **rail,
            "plane": plane,
            "interface": f"{rail['interface']}p{plane}",
            "pci": f"{rail['pci'][:-1]}{plane}",
            "speed_gbps": 400,
        }
        for rail in rails()
        for plane in range(2)
    ]


GPU_MODEL = [{"index": index, "pci": pci, "numa": index // 4} for index, pci in enumerate(GPUS)]


def wrong(found: Machine, model: list[dict[str, Any]], **more: Any) -> list[Check]:
    return [
        check
        for check in compare_with_model(found, model, GPU_MODEL, **more)
        if check.status != "ok"
    ]


def only(found: Machine, model: list[dict[str, Any]], **more: Any) -> Check:
    (check,) = wrong(found, model, **more)
    assert check.status == "failed"
    return check


def test_the_reference_machine_is_as_the_reference_model_says() -> None:
    """The inventory that is delivered and the machine that is recorded agree."""
    node = json.loads(GOLDEN.read_text(encoding="utf-8"))["variables"]["node01"]
    checks = compare_with_model(machine(B300), node["cluster_rails"], node["cluster_gpus"])
    assert [check for check in checks if check.status != "ok"] == []
    assert [check.name for check in checks[:7]] == [
        "rail_nic",
        "rail_rdma",
        "rail_pcie",
        "rail_speed",
        "rail_gpu",
        "rail_numa",
        "rail_vfs",
    ]
    assert len(checks) == 8 * 7
    assert all(present(checks, f"rail{number}") for number in range(8))


# The NIC


def test_a_missing_nic() -> None:
    check = only(machine("b300-missing-nic"), rails())
    assert (check.name, check.subject, check.found) == ("rail_nic", "rail3", "no such NIC")
    assert "there is no PCI function at 0000:5d:00.0 (slot 4), and its bus is empty" in check.reason
    assert "Every other NIC beside a GPU has its rail" in check.reason
    assert "lspci -s 0000:5d:00.0" in check.reason
    assert not present([check], "rail3")
    assert present([check], "rail2")


def test_no_storage_nic_is_proposed_for_a_missing_rail() -> None:
    tree = recording(B300)
    del function(tree, "0000:10:00.0")["0000:11:00.0"]
    check = only(surveyed(tree), rails())
    assert (check.name, check.subject) == ("rail_nic", "rail0")
    assert "Every other NIC beside a GPU has its rail" in check.reason


def test_a_nic_that_is_elsewhere() -> None:
    model = rails()
    model[3]["pci"] = "0000:5d:00.3"
    check = only(machine(B300), model)
    assert "no PCI function at 0000:5d:00.3 (slot 4)" in check.reason
    assert "on its bus is 0000:5d:00.0 (15b3:1023, Ethernet, driver mlx5_core)" in check.reason
    assert "NICs beside a GPU that no rail names: 0000:5d:00.0 (rail3)" in check.reason


def test_something_else_in_the_place_of_a_nic() -> None:
    model = rails()
    model[3]["pci"] = GPUS[3]
    check = only(machine(B300), model)
    assert check.found == "10de:3182"
    assert f"{GPUS[3]} (10de:3182, GPU, driver nvidia) is no network function" in check.reason
    assert "no rail names: 0000:5d:00.0 (rail3)" in check.reason


@pytest.mark.parametrize(
    ("pci", "found", "words"),
    [
        ("0000:e1:00.0", "nvswitch_bridge 15b3:1021", "belongs to the fabric manager"),
        ("0000:61:00.0", "data_direct 15b3:2100", "Data Direct function, which has no port"),
        ("0000:65:00.0", "bluefield 15b3:a2dc", "BlueField DPU"),
    ],
)
def test_an_address_of_what_only_looks_like_a_rail(pci: str, found: str, words: str) -> None:
    model = rails()
    model[3]["pci"] = pci
    check = only(machine(B300), model)
    assert (check.name, check.wanted, check.found) == ("rail_nic", pci, found)
    assert words in check.reason
    assert "no rail names: 0000:5d:00.0 (rail3)" in check.reason


def test_an_address_of_a_virtual_function() -> None:
    model = rails()
    model[1]["pci"] = "0000:2f:00.1"
    check = only(machine("b300-vfs"), model)
    assert "a virtual function of 0000:2f:00.0, and rails are physical" in check.reason


# RDMA


def test_the_driver_is_not_loaded() -> None:
    checks = wrong(machine("b300-no-rdma"), rails())
    assert [check.name for check in checks] == ["rail_rdma", "rail_speed"] * 8
    assert "kernel module mlx5_core, which drives the NIC, is not loaded: modprobe mlx5_core" in (
        checks[0].reason
    )
    assert checks[1].reason == "nobody can say without a driver: see rail_rdma"


def without_rdma(tree: Directory) -> Directory:
    del function(tree, "0000:11:00.0")["infiniband"]
    return tree


def test_the_driver_of_rdma_is_not_loaded() -> None:
    tree = without_rdma(recording(B300, BOARD, RAIL0))
    del tree.at("module")["mlx5_ib"]
    check = only(surveyed(tree), rails()[:1])
    assert "kernel module mlx5_ib, which gives it RDMA, is not loaded" in check.reason


def test_the_driver_is_not_bound() -> None:
    tree = without_rdma(recording(B300, BOARD, RAIL0))
    del function(tree, "0000:11:00.0")["driver"]
    check = only(surveyed(tree), rails()[:1])
    assert "mlx5_core is loaded and not bound to 0000:11:00.0" in check.reason
    assert "drivers/mlx5_core/bind" in check.reason


def test_roce_is_off() -> None:
    check = only(surveyed(without_rdma(recording(B300, BOARD, RAIL0))), rails()[:1])
    assert "enable_roce" in check.reason


def test_a_port_set_to_infiniband() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    nic.at("infiniband/mlx5_1/ports/1")["link_layer"] = line("InfiniBand")
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.found) == ("rail_rdma", "mlx5_1, InfiniBand")
    assert "mlxconfig -d 0000:11:00.0 set LINK_TYPE_P1=2" in check.reason


# Links


def test_a_nic_on_half_of_its_lanes() -> None:
    check = only(machine("b300-nic-x8"), rails())
    assert (check.name, check.subject) == ("rail_pcie", "rail2")
    assert (check.wanted, check.found) == ("64 GT/s x16", "64 GT/s x8")
    assert "rail2 at 0000:46:00.0 runs on 8 of 16 lanes: it carries 484 Gb/s" in check.reason
    assert "reseat" in check.reason


def test_a_nic_at_pcie_5() -> None:
    check = only(machine("b300-nic-gen5"), rails())
    assert (check.name, check.subject) == ("rail_pcie", "rail6")
    assert (check.wanted, check.found) == ("64 GT/s x16", "32 GT/s x16")
    assert "trained at 32 GT/s (PCIe 5), and both its ends can do 64 GT/s (PCIe 6)" in check.reason


def set_link(tree: Directory, pci: str, **values: object) -> None:
    function(tree, pci).update({name: line(value) for name, value in values.items()})


def test_a_slot_that_cannot_carry_the_rail() -> None:
    tree = recording(B300, BOARD, RAIL0)
    set_link(tree, "0000:10:00.0", max_link_speed="32.0 GT/s PCIe")
    set_link(tree, "0000:11:00.0", current_link_speed="32.0 GT/s PCIe")
    slow = surveyed(tree)
    check = only(slow, rails()[:1])
    assert (check.wanted, check.found) == ("at least 64 GT/s x16", "32 GT/s x16")
    assert "at the best that its slot can do" in check.reason
    assert "carries 504 Gb/s, and the rails on it take 800 Gb/s" in check.reason
    names = [check.name for check in wrong(slow, rails(speed_gbps=400)[:1])]
    assert names == ["rail_speed"], "a 400G rail is carried by the best that the slot can do"


def test_a_nic_that_cannot_carry_the_rail() -> None:
    tree = recording(B300, BOARD, RAIL0)
    speed = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    set_link(tree, "0000:11:00.0", **speed)
    check = only(surveyed(tree), rails()[:1])
    assert "at the best that its NIC can do" in check.reason


def test_two_planes_share_the_link_of_their_card() -> None:
    tree = recording("b300-16x400g", RAIL0)
    for pci in ("0000:10:00.0", "0000:11:00.0", "0000:11:00.1"):
        values = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        set_link(tree, pci, **values)
    checks = wrong(surveyed(tree), planes()[:2])
    assert [check.subject for check in checks] == ["rail0p0", "rail0p1"]
    assert "carries 504 Gb/s, and the rails on it take 800 Gb/s" in checks[0].reason


def test_a_link_that_the_kernel_does_not_know() -> None:
    tree = recording(B300, BOARD, RAIL0)
    set_link(tree, "0000:11:00.0", current_link_speed="Unknown", current_link_width="0")
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.found) == ("rail_pcie", "unknown speed x?")


def test_a_link_to_the_leaf_that_is_down() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    del nic.at("net/rail0")["speed"]
    nic.at("infiniband/mlx5_1/ports/1")["state"] = line("1: DOWN")
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.wanted, check.found) == ("rail_speed", 800, None)
    assert "the link of rail0 at 0000:11:00.0 is down" in check.reason
    assert "the leaf's port (leaf01 Ethernet8)" in check.reason


def test_an_interface_that_nobody_set_up_yet() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    nic.at("infiniband/mlx5_1/ports/1")["state"] = line("1: DOWN")
    net = nic.at("net/rail0")
    del net["speed"]
    net["flags"] = line("0x1002")
    found = surveyed(tree)
    assert only(found, rails()[:1]).reason == "the interface rail0 is down, and its link with it"
    (would,) = wrong(found, rails()[:1], check_mode=True)
    assert (would.name, would.status) == ("rail_speed", "pending")


def test_a_nic_at_another_speed() -> None:
    tree = recording(B300, BOARD, RAIL0)
    function(tree, "0000:11:00.0").at("net/rail0")["speed"] = line(400000)
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.wanted, check.found) == ("rail_speed", 800, 400)
    assert "rail0 at 0000:11:00.0 runs at 400 Gb/s" in check.reason
    assert "leaf01 Ethernet8" in check.reason


# Planes


def test_two_functions_for_each_port_where_the_model_has_one() -> None:
    checks = wrong(machine("b300-16x400g"), rails())
    assert [check.name for check in checks] == ["rail_planes", *["rail_speed"] * 8]
    first = checks[0]
    assert (first.subject, first.wanted, first.found) == ("", 1, 2)
    assert "this machine has 16 functions for rails, 2 on each card" in first.reason
    assert "rails.planes: 2 in the model" in first.reason
    assert '["0000:11:00.0", "0000:11:00.1"]' in first.reason
    assert {check.reason for check in checks[1:]} == {
        "its card has more functions than the model has planes: see rail_planes"
    }


def test_one_function_for_each_port_where_the_model_has_two_planes() -> None:
    checks = wrong(machine(B300), planes())
    first = checks[0]
    assert (first.name, first.wanted, first.found) == ("rail_planes", 2, 1)
    assert "the model gives each rail 2 planes" in first.reason
    assert "0000:11:00.0 (rail0) is one device of 800 Gb/s" in first.reason
    assert "8 planes have no function, the first is rail0p1 at 0000:11:00.1" in first.reason
    assert "rails.planes: 1" in first.reason
    missing = [check for check in checks if check.name == "rail_nic"]
    assert [check.subject for check in missing] == [f"rail{number}p1" for number in range(8)]
    assert all("see rail_planes" in check.reason for check in missing)


def test_two_planes_of_two_functions_are_as_they_should() -> None:
    assert wrong(machine("b300-16x400g"), planes()) == []


# Neighbours


def test_rails_in_another_order_than_their_gpus() -> None:
    model = rails()
    model[0]["pci"], model[1]["pci"] = model[1]["pci"], model[0]["pci"]
    first, second = wrong(machine(B300), model)
    assert (first.name, first.subject) == ("rail_gpu", "rail0")
    assert (first.wanted, first.found) == (GPUS[0], GPUS[1])
    assert "behind the switch of rail0 at 0000:2f:00.0 is 0000:32:00.0" in first.reason
    assert "GPU 0 at 0000:14:00.0, which sits beside 0000:11:00.0 (rail0)" in first.reason
    assert second.subject == "rail1"


def test_without_addresses_of_gpus_their_order_is_the_driver_s() -> None:
    assert all(check.status == "ok" for check in compare_with_model(machine(B300), rails()))
    swapped = rails()
    swapped[0]["gpu"], swapped[1]["gpu"] = 1, 0
    checks = compare_with_model(machine(B300), swapped)
    assert [check.subject for check in checks if check.status == "failed"] == ["rail0", "rail1"]


def test_a_gpu_that_fell_off_the_bus() -> None:
    tree = recording(B300, BOARD, RAIL0)
    del function(tree, "0000:13:00.0")["0000:14:00.0"]
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.subject) == ("rail_gpu", "rail0")
    assert "GPU 0 is not at 0000:14:00.0: it fell off the bus" in check.reason


def test_more_gpus_in_the_model_than_in_the_machine() -> None:
    model = rails()
    model[7]["gpu"] = 8
    check = only(machine(B300), model)
    assert "the model pairs rail7 with GPU 8; this machine has 8 GPUs" in check.reason


def test_a_nic_of_the_other_socket() -> None:
    model = rails()
    model[0]["numa"] = 1
    check = only(machine(B300), model)
    assert (check.name, check.wanted, check.found) == ("rail_numa", 1, 0)
    assert "wrong socket" in check.reason


def test_virtual_functions() -> None:
    check = only(machine("b300-vfs"), rails())
    assert (check.name, check.subject, check.wanted, check.found) == ("rail_vfs", "rail1", 0, 4)
    assert "0000:2f:00.1 (its interface rail1v0 is up)" in check.reason
    assert "0000:2f:00.2 (not in use)" in check.reason
    assert "echo 0 > /sys/bus/pci/devices/0000:2f:00.0/sriov_numvfs" in check.reason
    (would,) = wrong(machine("b300-vfs"), rails(), check_mode=True)
    assert would.status == "pending", "the role removes them"


def test_many_virtual_functions_are_counted_and_not_listed() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    nic["sriov_numvfs"] = line(6)
    nic.update({f"virtfn{number}": link(f"../0000:11:00.{number + 1}") for number in range(6)})
    check = only(surveyed(tree), rails()[:1])
    assert "0000:11:00.4 (not in use), 2 more" in check.reason


# What is no RoCE NIC


def test_a_virtual_interface_is_asked_for_nothing() -> None:
    model = [{"rail": 0, "interface": "rail0", "pci": None, "speed_gbps": 10, "gpu": 0}]
    checks = compare_with_model(Machine(), model)
    assert [(check.name, check.status) for check in checks] == [
        ("rail_nic", "not_applicable"),
        ("rail_rdma", "not_applicable"),
    ]
    assert "a virtual interface" in checks[1].reason


def test_soft_roce_stands_in() -> None:
    tree = recording(B300, BOARD, RAIL0)
    add_software(tree, "rxe0", "eno1")
    model = [{"rail": 0, "interface": "eno1", "pci": "0000:01:00.0", "speed_gbps": 10}]
    checks = compare_with_model(surveyed(tree), model)
    assert [(check.name, check.status, check.found) for check in checks] == [
        ("rail_nic", "ok", "0000:01:00.0"),
        ("rail_rdma", "ok", "rxe0"),
    ]
    assert checks[1].reason == "made of software"


def test_a_virtual_machine_is_as_its_model_says() -> None:
    model = [
        {"rail": 0, "interface": "rail0", "pci": "0000:00:10.0", "speed_gbps": 10},
        {"rail": 1, "interface": "rail1", "pci": None, "speed_gbps": 10},
    ]
    checks = compare_with_model(machine("qemu-soft-roce"), model)
    assert [(check.name, check.found, check.status) for check in checks] == [
        ("rail_nic", "0000:00:10.0", "ok"),
        ("rail_rdma", "rxe0", "ok"),
        ("rail_nic", "0000:00:11.0", "ok"),
        ("rail_rdma", "rxe1", "ok"),
    ]


def test_a_nic_without_rdma_is_named_as_such() -> None:
    model = [{"rail": 0, "interface": "eno1", "pci": "0000:01:00.0", "speed_gbps": 10}]
    checks = compare_with_model(machine(B300), model)
    assert checks[1].status == "not_applicable"
    assert "no RoCE NIC (driver igb)" in checks[1].reason


def test_a_rail_without_an_address_is_found_by_its_interface() -> None:
    checks = compare_with_model(machine("b300-nic-x8"), rails(pci=None))
    failed = [check for check in checks if check.status == "failed"]
    assert [(check.name, check.subject) for check in failed] == [("rail_pcie", "rail2")]


def test_hardware_has_failed_in_check_mode_as_well() -> None:
    check = only(machine("b300-missing-nic"), rails(), check_mode=True)
    assert check.name == "rail_nic"


@pytest.mark.parametrize("name", ["b300-16x400g", "b300-missing-nic", "b300-no-rdma", "b300-vfs"])
def test_what_differs_says_what_to_do(name: str) -> None:
    for check in wrong(machine(name), rails()):
        assert len(check.reason) > 20, check
        assert len(check.reason) < 600, check
        assert "None" not in check.reason, check

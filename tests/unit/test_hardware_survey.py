# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The survey of recorded and unusual machines, the facts, and differences from the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import (
    Machine,
    SurveyError,
    survey,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import tree as tree_module
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.compare import (
    compare_with_model,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    BLUEFIELD,
    DATA_DIRECT,
    NVSWITCH_BRIDGE,
    OTHER,
    RAIL,
    SOFTWARE,
    VIRTUAL,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import rdma_facts
from ansible_collections.baremetal.mpi_roce.plugins.modules.rdma_facts import as_facts

from tests.hardware.trees import function, line, link, machine, names, recording, surveyed
from tools.record_hardware import Directory

B300 = "b300-8x800g"
NICS = tuple(f"0000:{bus}:00.0" for bus in ("11", "2f", "46", "5d", "8b", "aa", "c2", "da"))
RAIL0 = "pci0000:07"
"""The PCI root of rail 0, its GPU and the storage NIC."""
BRIDGES = "pci0000:e0"
BOARD = "pci0000:00"
GPUS = tuple(f"0000:{bus}:00.0" for bus in ("14", "32", "49", "60", "8e", "ad", "c5", "dd"))


def add_interface(tree: Directory, pci: str, name: str, **files: object) -> Directory:
    """An interface of a PCI function."""
    depth = "../" * 20
    net = function(tree, pci).at(f"net/{name}")
    net.update({"device": link(f"../../../{pci}"), "subsystem": link(f"{depth}class/net")})
    net.update({key: line(value) for key, value in files.items()})
    return net


def test_rails_are_told_from_all_that_looks_like_them() -> None:
    found = machine(B300)
    assert tuple(port.pci for port in found.of_kind(RAIL)) == NICS
    assert len(found.of_kind(DATA_DIRECT)) == 8
    assert [port.pci for port in found.of_kind(BLUEFIELD)] == ["0000:65:00.0", "0000:65:00.1"]
    assert [port.netdev for port in found.of_kind(OTHER)] == ["eno1", "enp10s0np0"]
    bridges = found.of_kind(NVSWITCH_BRIDGE)
    assert [port.name for port in bridges] == ["mlx5_11", "mlx5_12", "mlx5_13", "mlx5_14"]
    assert {port.link_layer for port in bridges} == {"InfiniBand"}


def test_a_storage_nic_does_not_replace_a_rail() -> None:
    tree = recording(B300)
    del function(tree, "0000:10:00.0")["0000:11:00.0"]
    found = surveyed(tree)
    assert tuple(port.pci for port in found.of_kind(RAIL)) == NICS[1:]
    storage = found.device_of("enp10s0np0")
    assert storage is not None
    # It is the nearest of the remaining NICs.
    assert (storage.kind, storage.gpus) == (OTHER, GPUS[:1])


def test_everything_about_one_rail() -> None:
    found = machine(B300)
    rail = found.at("0000:5d:00.0")
    assert rail is not None and rail is found.device_of("rail3")
    assert (rail.name, rail.port, rail.netdev) == ("mlx5_4", 1, "rail3")
    assert (rail.vendor, rail.device_id, rail.driver) == ("15b3", "1023", "mlx5_core")
    assert (rail.firmware, rail.board_id) == ("40.46.3008", "MT_0000001222")
    assert (rail.port_state, rail.link_layer, rail.speed_gbps) == ("ACTIVE", "Ethernet", 800)
    assert (rail.link.speed_gts, rail.link.width) == (64, 16)
    assert (rail.link.max_speed_gts, rail.link.max_width) == (64, 16)
    assert (rail.sriov_totalvfs, rail.sriov_numvfs) == (None, 0)
    assert [(gid.index, gid.type) for gid in rail.gids] == [
        (0, "IB/RoCE v1"),
        (1, "RoCE v2"),
        (2, "IB/RoCE v1"),
        (3, "RoCE v2"),
    ]
    assert (rail.gids[3].address, rail.gids[3].netdev) == ("::ffff:10.100.3.11", "rail3")
    assert found.slots["0000:5d:00"] == "4"
    assert {"mlx5_core", "mlx5_ib"} <= found.modules


def test_names_do_not_matter() -> None:
    tree = recording(B300, RAIL0)
    device = function(tree, "0000:11:00.0").at("infiniband")
    device["bond_7"] = device.pop("mlx5_1")
    net = function(tree, "0000:11:00.0").at("net")
    net["storage9"] = net.pop("rail0")
    for ndev in device.at("bond_7/ports/1/gid_attrs/ndevs"):
        device.at("bond_7/ports/1/gid_attrs/ndevs")[ndev] = line("storage9")
    rail = surveyed(tree).at("0000:11:00.0")
    assert rail is not None
    assert (rail.kind, rail.name, rail.netdev) == (RAIL, "bond_7", "storage9")


def gid_table(used: int, unused: int, last: bool) -> Directory:
    """Rail 0 with this many unused entries after the used ones, and optionally a last used one."""
    tree = recording(B300, RAIL0)
    port = function(tree, "0000:11:00.0").at("infiniband/mlx5_1/ports/1")
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        port.at(name).clear()
    for index in range(used + unused + last):
        here = index < used or index == used + unused
        port.at("gids")[str(index)] = line(f"fe80:0000:0000:0000:0000:0000:0000:{here:04x}")
        port.at("gid_attrs/types")[str(index)] = line("RoCE v2" if here else "")
    return tree


def test_hundreds_of_unused_gids_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = tree_module.text

    def text(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(tree_module, "text", text)
    surveyed(gid_table(used=2, unused=1000, last=False))
    assert sum("gid" in path.parts[-2] or path.parent.name == "types" for path in read) < 100


# The other machines


def test_virtual_functions_are_separate_ports() -> None:
    found = machine("b300-vfs")
    rail = found.at("0000:2f:00.0")
    assert rail is not None
    assert (rail.kind, rail.sriov_totalvfs, rail.sriov_numvfs) == (RAIL, 8, 4)
    virtual = found.of_kind(VIRTUAL)
    assert [port.pci for port in virtual] == [f"0000:2f:00.{number}" for number in range(1, 5)]
    assert (virtual[0].netdev, virtual[0].name, virtual[0].up) == ("rail1v0", "mlx5_15", True)
    assert {port.physfn for port in virtual} == {"0000:2f:00.0"}
    assert {port.gpus for port in virtual} == {()}


def test_soft_roce_is_software_and_its_nominal_rate_is_not_believed() -> None:
    found = machine("qemu-soft-roce")
    rxe = found.device_of("rail0")
    assert rxe is not None
    assert (rxe.kind, rxe.name, rxe.pci, rxe.speed_gbps) == (SOFTWARE, "rxe0", None, None)
    assert (rxe.port_state, rxe.up, len(rxe.gids) > 0) == ("ACTIVE", True, True)
    assert [port.name for port in found.ports if port.netdev == "rail0"] == ["", "rxe0"]


def test_representors_and_subfunctions_are_not_the_port() -> None:
    """With RDMA or without."""
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    add_interface(tree, "0000:11:00.0", "a_rep", phys_port_name="pf0vf0", flags="0x1003")
    net = nic.at("mlx5_core.sf.4/net/a_sf")
    net.update({"device": link("../../../mlx5_core.sf.4")})
    net["subsystem"] = link(f"{'../' * 20}class/net")
    assert surveyed(tree).at("0000:11:00.0").netdev == "rail0"  # type: ignore[union-attr]
    del nic["infiniband"]
    found = surveyed(tree)
    assert [port.netdev for port in found.ports if port.pci == "0000:11:00.0"] == ["rail0"]


def test_a_virtio_interface_belongs_to_the_function_below_which_it_is() -> None:
    tree = Directory()
    nic = tree.at("devices/pci0000:00/0000:00:03.0")
    nic.update(
        {
            "class": line("0x020000"),
            "vendor": line("0x1af4"),
            "device": line("0x1041"),
            "numa_node": line("-1"),
            "driver": link("../../../bus/pci/drivers/virtio-pci"),
            "subsystem": link("../../../bus/pci"),
        }
    )
    net = nic.at("virtio2/net/rail0")
    net.update({"device": link("../../../virtio2"), "speed": line("-1")})
    net["subsystem"] = link("../../../../../../class/net")
    found = surveyed(tree).device_of("rail0")
    assert found is not None
    assert (found.pci, found.kind, found.driver) == ("0000:00:03.0", OTHER, "virtio-pci")
    assert (found.numa, found.speed_gbps) == (None, None)


def test_a_directory_that_is_no_sysfs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SurveyError, match=str(tmp_path / "class")):
        survey(tmp_path)


REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("name", names())
def test_facts_are_json_with_exactly_the_documented_keys(name: str) -> None:
    returned = yaml.safe_load(rdma_facts.RETURN)["ansible_facts"]["contains"]
    documented = returned["rdma_hardware"]["contains"]
    keys = set(re.findall(r"C\((\w+)\)", documented["nics"]["description"]))
    facts = json.loads(json.dumps(as_facts(machine(name))))
    assert set(facts) == set(documented)
    for nic in facts["nics"]:
        assert set(nic) == keys
    for gpu in facts["gpus"]:
        assert set(gpu) == set(documented["gpus"]["sample"][0])


def test_model_of_the_reference_machine() -> None:
    inventory = yaml.safe_load((REPOSITORY / "inventories/b300/cluster.yml").read_text())
    model = as_facts(machine(B300))["model"]
    for key, value in model["gpus"].items():
        assert inventory["gpus"][key] == value, key
    for key, value in model["rails"].items():
        assert inventory["rails"][key] == value, key


def test_the_model_read_off_split_ports_has_planes() -> None:
    rails = as_facts(machine("b300-16x400g"))["model"]["rails"]
    assert (rails["count"], rails["planes"], rails["speed_gbps"]) == (8, 2, 400)
    assert rails["pci"][0] == ["0000:11:00.0", "0000:11:00.1"]


def test_no_model_without_a_nic() -> None:
    assert as_facts(machine("b300-missing-nic"))["model"] == {}


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
    """The delivered inventory agrees with the recorded machine."""
    node = json.loads(GOLDEN.read_text(encoding="utf-8"))["variables"]["node01"]
    checks = compare_with_model(machine(B300), node["cluster_rails"], node["cluster_gpus"])
    assert [check for check in checks if check.status != "ok"] == []
    assert [check.name for check in checks[:6]] == [
        "rail_nic",
        "rail_rdma",
        "rail_pcie",
        "rail_speed",
        "rail_gpu",
        "rail_numa",
    ]
    assert len(checks) == 8 * 6


# The NIC


def moved(pci: str) -> list[dict[str, Any]]:
    """The model with rail 3 at another address."""
    model = rails()
    model[3]["pci"] = pci
    return model


def test_a_missing_nic() -> None:
    check = only(machine("b300-missing-nic"), rails(), check_mode=True)
    assert (check.name, check.subject, check.found) == ("rail_nic", "rail3", "no such NIC")
    assert "0000:5d:00.0 (slot 4)" in check.reason
    assert "lspci -s 0000:5d:00.0" in check.reason


@pytest.mark.parametrize(
    ("name", "pci", "found"),
    [
        (B300, GPUS[3], "10de:3182"),
        (B300, "0000:e1:00.0", "nvswitch_bridge 15b3:1021"),
        (B300, "0000:61:00.0", "data_direct 15b3:2100"),
        (B300, "0000:65:00.0", "bluefield 15b3:a2dc"),
        ("b300-vfs", "0000:2f:00.1", "virtual 15b3:101e"),
    ],
)
def test_an_address_of_another_device(name: str, pci: str, found: str) -> None:
    check = next(each for each in wrong(machine(name), moved(pci)) if each.subject == "rail3")
    assert (check.name, check.wanted, check.found) == ("rail_nic", pci, found)
    assert "in the model: 0000:5d:00.0 (rail3)" in check.reason


# RDMA


def no_module(tree: Directory) -> None:
    del tree.at("module")["mlx5_ib"]


def no_driver(tree: Directory) -> None:
    del function(tree, "0000:11:00.0")["driver"]


def balanced_by_hardware(*kept: str, unbound: str = "") -> Machine:
    """Two functions on each card; of the second ones only those `kept` have an RDMA device.

    Mellanox/nic-configuration-operator 632f1295: "non-first PFs share PF0's RDMA device".
    """
    tree = recording("b300-16x400g")
    for port in surveyed(tree).of_kind("rail"):
        if port.pci and port.pci.endswith(".1") and port.pci not in kept:
            del function(tree, port.pci)["infiniband"]
    if unbound:
        del function(tree, unbound)["driver"]
    return surveyed(tree)


def test_planes_balanced_by_hardware_share_a_device() -> None:
    checks = compare_with_model(balanced_by_hardware(), planes(), GPU_MODEL)
    assert [check for check in checks if check.status != "ok"] == []
    found = {check.subject: check.found for check in checks if check.name == "rail_rdma"}
    assert found["rail0p0"] == "mlx5_1" and found["rail0p1"] == "mlx5_1 of rail0p0"
    assert len(found) == 16
    check = only(balanced_by_hardware(unbound="0000:2f:00.1"), planes())
    assert (check.name, check.subject) == ("rail_rdma", "rail1p1")
    assert "mlx5_core is not bound to 0000:2f:00.1" in check.reason


def test_a_second_function_without_rdma_is_no_plane() -> None:
    model = planes()
    (*failed,) = wrong(balanced_by_hardware(model[3]["pci"]), model)
    assert {check.name for check in failed} == {"rail_rdma"}
    assert {check.subject for check in failed} == {f"rail{n}p1" for n in range(8) if n != 1}
    assert all("enable_roce" in check.reason for check in failed)


def test_functions_that_are_two_rails_of_the_model_share_nothing() -> None:
    model = [{**rail, "rail": number, "plane": 0} for number, rail in enumerate(planes())]
    failed = [each for each in wrong(balanced_by_hardware(), model) if each.name == "rail_rdma"]
    assert len(failed) == 8
    assert all("has no rails.planes" in check.reason for check in failed)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (no_module, "modprobe mlx5_ib"),
        (no_driver, "not bound to 0000:11:00.0"),
        (lambda tree: None, "enable_roce"),
    ],
)
def test_a_nic_without_rdma_has_a_remedy_for_each_cause(
    change: Callable[[Directory], None], remedy: str
) -> None:
    tree = recording(B300, BOARD, RAIL0)
    del function(tree, "0000:11:00.0")["infiniband"]
    change(tree)
    check = only(surveyed(tree), rails()[:1])
    assert check.name == "rail_rdma"
    assert remedy in check.reason


def test_without_a_driver_the_speed_is_unknown() -> None:
    tree = recording(B300, BOARD, RAIL0)
    for name in ("infiniband", "net"):
        del function(tree, "0000:11:00.0")[name]
    speed = [check for check in wrong(surveyed(tree), rails()[:1]) if check.name == "rail_speed"]
    assert ["rail_rdma" in check.reason for check in speed] == [True]


def test_a_port_set_to_infiniband() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    nic.at("infiniband/mlx5_1/ports/1")["link_layer"] = line("InfiniBand")
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.found) == ("rail_rdma", "mlx5_1, InfiniBand")
    assert "mlxconfig -d 0000:11:00.0 set LINK_TYPE_P1=2" in check.reason


# Links


@pytest.mark.parametrize(
    ("name", "rail", "found", "carries"),
    [("b300-nic-x8", "rail2", "64 GT/s x8", 484), ("b300-nic-gen5", "rail6", "32 GT/s x16", 504)],
)
def test_a_nic_below_what_its_link_could_be(name: str, rail: str, found: str, carries: int) -> None:
    check = only(machine(name), rails())
    assert (check.name, check.subject) == ("rail_pcie", rail)
    assert (check.wanted, check.found) == ("64 GT/s x16", found)
    assert f"{carries} Gb/s" in check.reason


def test_a_link_better_than_its_ends_say() -> None:
    tree = recording(B300, BOARD, RAIL0)
    set_link(tree, "0000:10:00.0", max_link_width="8")
    assert wrong(surveyed(tree), rails()[:1]) == []


def set_link(tree: Directory, pci: str, **values: object) -> None:
    function(tree, pci).update({name: line(value) for name, value in values.items()})


@pytest.mark.parametrize(
    ("slot", "nic"), [("32.0 GT/s PCIe", "64.0 GT/s PCIe"), ("64.0 GT/s PCIe", "32.0 GT/s PCIe")]
)
def test_a_slot_or_nic_that_cannot_carry_the_rail(slot: str, nic: str) -> None:
    tree = recording(B300, BOARD, RAIL0)
    set_link(tree, "0000:10:00.0", max_link_speed=slot)
    set_link(tree, "0000:11:00.0", current_link_speed="32.0 GT/s PCIe", max_link_speed=nic)
    slow = surveyed(tree)
    check = only(slow, rails()[:1])
    assert (check.name, check.wanted, check.found) == ("rail_pcie", "800 Gb/s", "32 GT/s x16")
    names = [check.name for check in wrong(slow, rails(speed_gbps=400)[:1])]
    # The best link of the slot is enough for a 400G rail.
    assert names == ["rail_speed"]


def test_two_planes_share_the_link_of_their_card() -> None:
    tree = recording("b300-16x400g", RAIL0)
    for pci in ("0000:10:00.0", "0000:11:00.0", "0000:11:00.1"):
        values = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        set_link(tree, pci, **values)
    checks = wrong(surveyed(tree), planes()[:2])
    assert [(check.subject, check.wanted) for check in checks] == [
        ("rail0p0", "800 Gb/s"),
        ("rail0p1", "800 Gb/s"),
    ]


def test_a_link_down_and_an_interface_down() -> None:
    tree = recording(B300, BOARD, RAIL0)
    nic = function(tree, "0000:11:00.0")
    net = nic.at("net/rail0")
    del net["speed"]
    nic.at("infiniband/mlx5_1/ports/1")["state"] = line("1: DOWN")
    for check_mode in (False, True):
        check = only(surveyed(tree), rails()[:1], check_mode=check_mode)
        assert (check.name, check.wanted, check.found) == ("rail_speed", 800, None)
        assert "(leaf01 Ethernet8)" in check.reason
    net["flags"] = line("0x1002")
    found = surveyed(tree)
    assert "rail0 is down" in only(found, rails()[:1]).reason
    (would,) = wrong(found, rails()[:1], check_mode=True)
    # The role sets it up.
    assert (would.name, would.status) == ("rail_speed", "pending")


# Planes


def test_two_functions_for_each_port_where_the_model_has_one() -> None:
    checks = wrong(machine("b300-16x400g"), rails())
    assert [check.name for check in checks] == ["rail_speed"] * 8
    assert all("rails.planes" in check.reason for check in checks)


def test_rails_in_another_order_than_their_gpus() -> None:
    model = rails()
    model[0]["pci"], model[1]["pci"] = model[1]["pci"], model[0]["pci"]
    first, second = wrong(machine(B300), model)
    assert (first.name, first.subject) == ("rail_gpu", "rail0")
    assert (first.wanted, first.found) == (GPUS[0], GPUS[1])
    assert second.subject == "rail1"


def test_a_gpu_that_fell_off_the_bus() -> None:
    tree = recording(B300, BOARD, RAIL0)
    del function(tree, "0000:13:00.0")["0000:14:00.0"]
    check = only(surveyed(tree), rails()[:1])
    assert (check.name, check.subject, check.wanted) == ("rail_gpu", "rail0", GPUS[0])
    assert "Xid 79" in check.reason


def test_a_nic_of_the_other_socket() -> None:
    model = rails()
    model[0]["numa"] = 1
    check = only(machine(B300), model)
    assert (check.name, check.wanted, check.found) == ("rail_numa", 1, 0)


def test_a_virtual_interface_is_asked_for_nothing() -> None:
    model = [{"rail": 0, "interface": "rail0", "pci": None, "speed_gbps": 10, "gpu": 0}]
    checks = compare_with_model(Machine(), model)
    assert [(check.name, check.status) for check in checks] == [
        ("rail_nic", "not_applicable"),
        ("rail_rdma", "not_applicable"),
    ]


def test_a_rail_without_an_address_is_found_by_its_interface() -> None:
    checks = compare_with_model(machine("b300-nic-x8"), rails(pci=None))
    failed = [check for check in checks if check.status == "failed"]
    assert [(check.name, check.subject) for check in failed] == [("rail_pcie", "rail2")]

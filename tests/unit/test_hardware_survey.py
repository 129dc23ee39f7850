# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The survey of each recorded machine, and of unusual ones, and the facts of rdma_facts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import SurveyError, survey
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import tree as tree_module
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
    assert (rail.firmware, rail.board_id) == ("40.45.1020", "MT_0000001222")
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

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines: QEMU's arguments, and hardware that is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    RailCable,
    VirtualError,
    VirtualNode,
)
from ansible_collections.baremetal.bed.plugins.module_utils.machines import (
    Machine,
    mac,
    plan_machine,
    qemu_command,
)

FOLDER = Path("/state/test/node01")


def rail(number: int, pci: Optional[str] = None) -> RailCable:
    return RailCable(f"rail{number}", f"leaf{number}", "", f"10.1.{number}.0/24", None, pci)


def node(*rails: RailCable) -> VirtualNode:
    return VirtualNode(
        "node01", "10.99.0.11", 24, "mgmt0", rails or (rail(0), rail(1)), machine=True
    )


def machine(wanted: Optional[VirtualNode] = None, **hardware: Any) -> Machine:
    return plan_machine(
        "test", wanted or node(), image="/images/a.raw", login_key="ssh key", **hardware
    )


def command(wanted: Machine) -> list[str]:
    return qemu_command(wanted, FOLDER, emulator=["qemu"], accelerator=["-accel", "tcg"])


def following(words: list[str], option: str) -> list[str]:
    return [after for word, after in zip(words, words[1:]) if word == option]


def test_every_card_ends_on_its_own_tap() -> None:
    words = command(machine())
    taps = [word.split(",")[2] for word in following(words, "-netdev")]
    assert taps == ["ifname=node01-mgmt0", "ifname=node01-rail0", "ifname=node01-rail1"]
    cards = [word for word in following(words, "-device") if "netdev=" in word]
    assert [card.split(",")[1] for card in cards] == ["netdev=net0", "netdev=net1", "netdev=net2"]


def test_rails_are_where_the_model_says() -> None:
    words = command(machine(node(rail(0, "0000:00:1a.0"), rail(1, "0000:00:12.0"))))
    assert [card.split(",")[2] for card in following(words, "-device") if "netdev=" in card] == [
        "addr=0x2",
        "addr=0x1a",
        "addr=0x12",
    ]


@pytest.mark.parametrize(
    ("rails", "messages"),
    [
        ((rail(0, "0000:00:02.0"),), "0000:00:10.0 to"),
        ((rail(0, "0000:5d:00.0"),), "0000:5d:00.0 in cluster.yml"),
        ((rail(0, "0000:00:1f.0"),), "0000:00:1f.0 in cluster.yml"),
        ((rail(0, "0000:00:10.1"),), "0000:00:10.1 in cluster.yml"),
    ],
)
def test_an_impossible_pci_address_is_refused(rails: tuple[RailCable, ...], messages: str) -> None:
    with pytest.raises(VirtualError, match=messages):
        machine(node(*rails))


def test_a_card_with_sriov_stands_behind_a_port() -> None:
    wanted = machine(node(rail(0), rail(1, "0000:01:00.0")), sriov_rails=("rail1",))
    assert [card.pci for card in wanted.cards] == ["0000:00:02.0", "0000:00:10.0", "0000:01:00.0"]
    devices = following(command(wanted), "-device")
    port = devices.index("pcie-root-port,id=port1,chassis=1,addr=0x6")
    assert devices[port + 1].startswith("igb,netdev=net2,bus=port1,")


def test_it_is_told_who_it_is() -> None:
    files = machine().files
    assert files["name"] == "node01\n"
    assert files["login_key"] == "ssh key\n"
    assert "Name=mgmt0" in files["management.link"]
    assert "Address=10.99.0.11/24" in files["management.network"]
    assert f"MACAddress={mac('test', 'node01', 'mgmt0')}" in files["management.network"]
    assert files["rails"] == "0000:00:10.0 rxe0\n0000:00:11.0 rxe1\n"
    given = following(command(machine()), "-fw_cfg")
    assert "name=opt/baremetal.mpi_roce/rails,file=/state/test/node01/given-rails" in given


@pytest.mark.parametrize(
    "other",
    [
        replace(machine(), image="/images/b.raw"),
        machine(memory_mib=2048),
        machine(processors=2),
        machine(node(rail(0))),
        machine(sriov_rails=("rail0",)),
        plan_machine("test", node(), image="/images/a.raw", login_key="another"),
    ],
)
def test_another_specification_is_another_machine(other: Machine) -> None:
    assert other.specification != machine().specification
    assert machine().specification == machine().specification

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual functions of a rail: listed, refused while in use, removed if idle."""

from __future__ import annotations

import json
import shutil
from types import MappingProxyType

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import RailNic
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.sriov import sriov_settings

PF = "0000:09:00.0"


class Nic:
    """A physical function with virtual ones, as sysfs shows them under a root."""

    def __init__(self, root, count=0, driver="igbvf"):
        self.root = root
        self.addresses = {}
        self.calls = []
        self.pf = root / "sys/devices/pci0000:00/0000:00:05.0" / PF
        self.bus = root / "sys/bus/pci/devices"
        self.net = root / "sys/class/net"
        for directory in (self.pf, self.bus, self.net, root / "sys/bus/pci/drivers"):
            directory.mkdir(parents=True, exist_ok=True)
        (self.bus / PF).symlink_to(self.pf)
        (self.pf / "sriov_totalvfs").write_text("7\n")
        (self.pf / "sriov_numvfs").write_text(f"{count}\n")
        self.interface("rail0", self.pf, flags=0x1003)
        self.vfs = [self.vf(number, driver) for number in range(count)]

    def interface(self, name, function, flags=0x1002):
        (function / "net" / name).mkdir(parents=True)
        (function / "net" / name / "flags").write_text(f"{flags:#x}\n")
        (function / "net" / name / "device").symlink_to(function)
        (self.net / name).symlink_to(function / "net" / name)

    def vf(self, number, driver):
        path = self.pf.parent / f"0000:0a:10.{number}"
        path.mkdir()
        (path / "physfn").symlink_to(self.pf)
        (self.pf / f"virtfn{number}").symlink_to(path)
        (self.bus / path.name).symlink_to(path)
        self.bind(path, driver)
        if driver == "igbvf":
            self.interface(f"eth{number}", path)
        return path

    def bind(self, path, driver):
        (path / "driver").unlink(missing_ok=True)
        if driver:
            (self.root / "sys/bus/pci/drivers" / driver).mkdir(exist_ok=True)
            (path / "driver").symlink_to(self.root / "sys/bus/pci/drivers" / driver)

    def flags(self, name, value):
        (self.net / name / "flags").write_text(f"{value:#x}\n")

    def process(self, number, name, node):
        directory = self.root / "proc" / str(number)
        (directory / "fd").mkdir(parents=True)
        (directory / "comm").write_text(f"{name}\n")
        (directory / "fd" / "7").symlink_to(node)

    def run(self, argv, *, check=True, stdin=None):
        self.calls.append(tuple(argv))
        links = [
            {
                "ifname": path.name,
                "ifindex": number,
                "mtu": 1500,
                "flags": [],
                "addr_info": [
                    {"family": "inet", "local": address, "prefixlen": 24, "scope": "global"}
                    for address in self.addresses.get(path.name, ())
                ],
            }
            for number, path in enumerate(sorted(self.net.iterdir()))
        ]
        return Result(tuple(argv), 0, json.dumps(links), "")

    def setting(self, interface="rail0", remove_in_use=False, keep=MappingProxyType({})):
        rail = RailNic(interface, interface, "igb", PF)
        found = sriov_settings(self.run, remove_in_use, keep, self.root, rail)
        return found[0] if found else None

    @property
    def numvfs(self):
        return (self.pf / "sriov_numvfs").read_text().strip()


def test_idle_ones_are_shown_one_line_each_and_removed(tmp_path):
    nic = Nic(tmp_path, 4)
    nic.bind(nic.vfs[3], "")
    setting = nic.setting()
    reading = setting.read()

    assert reading.found[0] == "0000:0a:10.0 (eth0, igbvf): idle"
    assert len(reading.found) == 4 and not reading.refused
    setting.write()
    assert nic.numvfs == "0"


def test_ten_and_more_keep_their_order(tmp_path):
    nic = Nic(tmp_path)
    (tmp_path / "sys/class/net/veth0").mkdir()
    assert nic.setting("veth0") is None
    for number in range(12):
        path = nic.pf.parent / f"0000:0b:{number:02x}.0"
        path.mkdir()
        (nic.pf / f"virtfn{number}").symlink_to(path)
    assert [line.split()[0] for line in nic.setting().read().found] == [
        f"0000:0b:{number:02x}.0" for number in range(12)
    ]


def rdma_on_it(nic):
    (nic.root / "sys/class/infiniband/rxe7").mkdir(parents=True)
    (nic.root / "sys/class/infiniband/rxe7/parent").write_text("eth1\n")


def in_a_container(nic):
    (nic.net / "eth1").unlink()
    shutil.rmtree(nic.vfs[1] / "net/eth1")


def verbs(nic):
    (nic.vfs[1] / "infiniband/mlx5_9").mkdir(parents=True)
    (nic.vfs[1] / "infiniband_verbs/uverbs9").mkdir(parents=True)
    nic.process(812, "ib_write_bw", "/dev/infiniband/uverbs9")
    nic.process(813, "bash", "/dev/pts/0")


USES = {
    "eth1 is up": lambda nic: nic.flags("eth1", 0x1003),
    "eth1 carries 10.9.9.1/24": lambda nic: nic.addresses.update(eth1=["10.9.9.1"]),
    "eth1 is used by bond0": lambda nic: (nic.net / "eth1/upper_bond0").mkdir(),
    "eth1 carries the RDMA device rxe7": rdma_on_it,
    "driver igbvf is bound to it": in_a_container,
    "RDMA used by ib_write_bw (process 812)": verbs,
    "passed to a guest or program by vfio-pci": lambda nic: nic.bind(nic.vfs[1], "vfio-pci"),
    "passed to a guest or program by pci-stub": lambda nic: nic.bind(nic.vfs[1], "pci-stub"),
}


@pytest.mark.parametrize("why", USES)
def test_a_function_in_use_needs_permission(tmp_path, why):
    nic = Nic(tmp_path, 4)
    USES[why](nic)
    reading = nic.setting().read()

    assert f"0000:0a:10.1: {why}" in reading.refused
    assert reading.refused.startswith("1 of 4 ")
    assert "roce_rails_remove_vfs_in_use: true" in reading.refused

    reading = nic.setting(remove_in_use=True).read()
    assert not reading.refused and len(reading.found) == 4
    assert not reading.found[1].endswith(": idle")


def test_a_function_of_a_guest_or_of_the_login_is_never_removed(tmp_path):
    nic = Nic(tmp_path, 2)
    keep = {"eth1": "carries 10.0.0.1"}
    refused = nic.setting(remove_in_use=True, keep=keep).read().refused
    assert "0000:0a:10.1: eth1 carries 10.0.0.1" in refused
    nic.bind(nic.vfs[1], "vfio-pci")
    group = tmp_path / "sys/kernel/iommu_groups/41"
    group.mkdir(parents=True)
    (nic.vfs[1] / "iommu_group").symlink_to(group)
    nic.process(99, "qemu-system-x86", "/dev/vfio/41")

    refused = nic.setting(remove_in_use=True).read().refused
    assert "held open by qemu-system-x86 (process 99)" in refused


def test_a_rail_that_is_a_virtual_function_is_refused(tmp_path):
    nic = Nic(tmp_path, 1)
    reading = nic.setting("eth0", remove_in_use=True).read()
    assert "0000:0a:10.0" in reading.refused and "of 0000:09:00.0" in reading.refused
    assert "Correct pci of eth0" in reading.refused

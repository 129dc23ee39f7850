# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts of the operating system, from the programs that rdma_facts runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.host import (
    processors,
    read_host,
)

ADDRESSES = [
    {
        "ifname": "lo",
        "mtu": 65536,
        "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
    },
    {
        "ifname": "eth0",
        "mtu": 1500,
        "flags": ["UP", "LOWER_UP"],
        "addr_info": [{"family": "inet", "local": "10.0.0.11", "prefixlen": 24}],
    },
    {"ifname": "rail0", "mtu": 9000, "flags": ["UP"], "addr_info": []},
    {"ifname": "br0", "mtu": 1500, "flags": [], "addr_info": []},
]
ROUTES = [{"dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "table": "254"}]

# The form is that of lldpd, tests/integration/test_lldpcli.py (test_json0_output) at
# 4c8e6e37142b2d92dc4879ef502cca9e8b02ddd9 (https://github.com/lldpd/lldpd); the values are
# invented.
CHASSIS = {
    "id": [{"type": "mac", "value": "00:00:00:00:00:02"}],
    "name": [{"value": "leaf01.example.com"}],
    "descr": [{"value": "A switch"}],
    "mgmt-ip": [{"value": "fe80::200:ff:fe00:2"}, {"value": "10.0.0.101"}],
}
PORT = {"id": [{"type": "ifname", "value": "Ethernet0"}], "descr": [{"value": "to node01"}]}
LLDP = {"lldp": [{"interface": [{"name": "rail0", "chassis": [CHASSIS], "port": [PORT]}]}]}


class Programs:
    def __init__(self, lldp: Optional[str]) -> None:
        self.lldp = lldp
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.asked.append(argv[0])
        if argv[0] == "ip":
            answer: Any = {"address": ADDRESSES, "route": ROUTES, "rule": []}[
                next(word for word in argv[1:] if not word.startswith("-"))
            ]
            return Result(tuple(argv), 0, json.dumps(answer), "")
        if argv[0] == "lldpcli":
            if self.lldp is None:
                raise CommandError("lldpcli: not installed")
            return Result(tuple(argv), 0 if self.lldp else 1, self.lldp, "")
        rows = ("rdma-core\t2510.0.11-1", "doca-ofed\t3.2.1")
        text = "".join(f"{row}\tinstalled\n" for row in rows) + "doca-all\t\tnot-installed\n"
        return Result(tuple(argv), 1, text, "package doca-roce is not installed")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n',
        "etc/netplan/50-cloud-init.yaml": "",
        "sys/module/nvidia/version": "580.95.05\n",
        "sys/class/net/rail0/speed": "800000\n",
        "sys/class/net/br0/uevent": "DEVTYPE=bridge\nINTERFACE=br0\n",
        **{f"sys/class/net/{name}/type": "1\n" for name in ("eth0", "rail0", "br0")},
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_everything_is_read_and_a_bridge_is_told_from_a_device(root: Path) -> None:
    found = read_host(Programs(json.dumps(LLDP)), root)
    assert (found["distribution"], found["gpu_driver"]) == ("ubuntu 24.04", "580.95.05")
    assert found["packages"] == {"doca-ofed": "3.2.1", "rdma-core": "2510.0.11-1"}
    assert found["default_interface"] == "eth0"
    assert found["network"] == {"netplan": ["/etc/netplan/50-cloud-init.yaml"]}
    faces = found["interfaces"]
    assert [name for name, face in faces.items() if face["plain"]] == ["eth0", "rail0"]
    assert (faces["rail0"]["mtu"], faces["rail0"]["speed_gbps"]) == (9000, 800.0)
    assert faces["eth0"]["addresses"] == ["10.0.0.11/24"]
    assert found["neighbours"] == {
        "rail0": {
            "system": "leaf01.example.com",
            "description": "A switch",
            "address": "10.0.0.101",
            "port": "Ethernet0",
            "port_description": "to node01",
        }
    }
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("answer", "neighbours"), [(None, None), ("", None), ('{"lldp": [{}]}', {})]
)
def test_no_lldpd_is_distinguished_from_no_neighbour(
    root: Path, answer: Optional[str], neighbours: Any
) -> None:
    assert read_host(Programs(answer), root)["neighbours"] == neighbours


@pytest.mark.parametrize(("name", "program"), [("debian", "dpkg-query"), ("rocky", "rpm")])
def test_the_package_manager_is_that_of_the_distribution(
    root: Path, name: str, program: str
) -> None:
    (root / "etc/os-release").write_text(f"ID={name}\n", encoding="utf-8")
    programs = Programs(None)
    read_host(programs, root)
    assert set(programs.asked) - {"ip", "lldpcli"} == {program}


def machine(root: Path, sockets: int, cores: int, threads: int, numa: int) -> None:
    """CPUs as Linux numbers them: the second threads of all cores after the first ones."""
    total = sockets * cores
    for cpu in range(total * threads):
        core = cpu % total
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        siblings = ",".join(str(core + total * thread) for thread in range(threads))
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
        (folder / "physical_package_id").write_text(f"{core // cores}\n")
    (root / "sys/devices/system/cpu/cpufreq").mkdir()
    for number in range(numa):
        (root / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        (root / f"sys/devices/system/node/node{number}/cpulist").write_text("0-1\n")
    # Memory without CPUs, such as that of a GPU.
    (root / "sys/devices/system/node/node99").mkdir()
    (root / "sys/devices/system/node/node99/cpulist").write_text("\n")
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/meminfo").write_text("MemTotal:       2097152 kB\nMemFree:    1 kB\n")


@pytest.mark.parametrize("shape", [(2, 4, 2, 2), (1, 6, 1, 4), (1, 1, 1, 1)])
def test_processors_as_slurm_counts_them(tmp_path: Path, shape: tuple[int, ...]) -> None:
    machine(tmp_path, *shape)
    names = ("sockets", "cores", "threads", "numa_nodes")
    assert processors(tmp_path) == {**dict(zip(names, shape)), "memory_mb": 2048}


def test_processors_of_different_kinds_are_not_counted(tmp_path: Path) -> None:
    machine(tmp_path, 1, 4, 2, 1)
    siblings = tmp_path / "sys/devices/system/cpu/cpu3/topology/thread_siblings_list"
    siblings.write_text("3\n")
    (tmp_path / "sys/devices/system/cpu/cpu7/topology/thread_siblings_list").unlink()
    assert processors(tmp_path) == {}
    assert processors(tmp_path / "none") == {}

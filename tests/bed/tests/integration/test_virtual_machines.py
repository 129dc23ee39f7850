# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual machines: their hardware, recovery from faults, and removal without a trace.

The tests use a separate cluster, one machine and a launcher, because they break it. The machine's
second rail is a card with SR-IOV.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from testinfra.host import Host

from tests import waiting
from tests.bed.instances import (
    MACHINES,
    describe,
    kill_after,
    output,
    reboot_playbook,
    refuses_another_host_key,
    traces,
)
from tests.nodes import Nodes

pytestmark = pytest.mark.machines

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnkernel
management: {subnet: 172.30.234.0/24, interface: mgmt0}
nodes:
  count: 1
  name: node{:02d}
  management_first: 172.30.234.11
  slots: 1
  overrides:
    node01:
      vars: {virtual_nodes_kind: machine, virtual_nodes_sriov_rails: [rail1]}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10, mtu: 9000, pci: ["0000:00:12.0", "0000:01:00.0"]}
addresses:
  plan: subnet_per_rail
  pool: 10.149.0.0/16
  prefix: 24
  first_host: 11
leaves: {count: 2, management_first: 172.30.234.101, ports: 8}
launcher: {name: launcher01, management: 172.30.234.10}
"""
FOLDER = MACHINES / "vnkernel/node01"
RAILS = {"0000:00:12.0": "rxe0", "0000:01:00.0": "rxe1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = describe(tmp_path_factory.mktemp("vn") / "inventory", MODEL, like="virtual-rdma")
    nodes.state(present=False)
    before = traces("vnkernel")
    nodes.state(present=True)
    yield nodes
    nodes.state(present=False)
    assert traces("vnkernel") ^ before == set()
    assert not any(str(FOLDER) in line for line in output("ps", "-eo", "args").splitlines())


def interface_at(cluster: Nodes, pci: str) -> str:
    return cluster.on("node01").check_output(
        "cd /sys/bus/pci/devices/%s; ls -d virtio*/net/* net/* 2>/dev/null | xargs basename", pci
    )


def boot_id(cluster: Nodes) -> str:
    return cluster.on("node01").check_output("cat /proc/sys/kernel/random/boot_id")


def pid() -> int:
    return int((FOLDER / "pid").read_text())


def test_up_again_changes_nothing(cluster: Nodes) -> None:
    before = pid()
    assert cluster.state(present=True).total("changed") == 0
    assert cluster.play("baremetal.bed.virtual_nodes", "--check").total("changed") == 0
    assert pid() == before


def test_it_is_up_and_nothing_in_it_failed(cluster: Nodes) -> None:
    node = cluster.on("node01")
    assert node.check_output("systemctl is-system-running") == "running"
    assert node.check_output("hostname") == "node01"
    assert node.check_output("systemd-detect-virt") in ("qemu", "kvm")
    assert cluster.on("node01", sudo=False).check_output("id -un") == "ops"
    assert cluster.on("launcher01").check_output("ping -c 1 -W 5 172.30.234.11")


def test_rails_are_bare_cards_at_their_addresses(cluster: Nodes) -> None:
    for pci in RAILS:
        shown = cluster.on("node01").check_output(
            "ip -json address show %s", interface_at(cluster, pci)
        )
        (link,) = json.loads(shown)
        assert (link["mtu"], link["operstate"], link["addr_info"]) == (1500, "DOWN", [])


def rdma_becomes(node: Host, device: str, state: str) -> None:
    words = f"state {state}"
    waiting.until(
        lambda: words in node.check_output("rdma link show %s/1", device), f"{device} {state}", 10
    )


def test_each_rail_has_rdma_that_goes_down_and_up_with_it(cluster: Nodes) -> None:
    node = cluster.on("node01")
    for pci, device in RAILS.items():
        name = interface_at(cluster, pci)
        assert f"netdev {name}" in node.check_output("rdma link show %s/1", device)
        for verb, state in (("up", "ACTIVE"), ("down", "DOWN"), ("up", "ACTIVE"), ("down", "DOWN")):
            node.check_output("ip link set %s %s", name, verb)
            rdma_becomes(node, device, state)


def test_dcb_settings_are_kept_and_called_a_simulation(cluster: Nodes) -> None:
    node = cluster.on("node01")
    for pci in RAILS:
        name = interface_at(cluster, pci)
        node.check_output(
            f"dcb pfc set dev {name} prio-pfc all:off 3:on;"
            f"dcb ets set dev {name} tc-tsa all:ets 6:strict tc-bw all:0 0:50 3:50"
            " prio-tc all:0 3:3 6:6;"
            f"dcb app replace dev {name} dscp-prio 26:3 48:6"
        )
        assert "3:on" in node.check_output("dcb pfc show dev %s prio-pfc", name)
        assert "6:strict" in node.check_output("dcb ets show dev %s tc-tsa", name)
        assert "AF31:3 CS6:6" in node.check_output("dcb app show dev %s dscp-prio", name)
        refused = node.run("dcb ets set dev %s tc-tsa all:ets tc-bw all:0 0:50", name)
        assert refused.rc != 0, "half of the bandwidth is not assigned"
    assert "a simulation" in node.check_output("dmesg | grep virtual_dcb")
    assert "Simulation" in node.check_output("/sbin/modinfo -F description virtual_dcb")


def test_virtual_functions_come_and_go(cluster: Nodes) -> None:
    node = cluster.on("node01")
    card = "/sys/bus/pci/devices/0000:01:00.0"
    assert node.check_output("cat %s/sriov_totalvfs", card) == "7"
    node.check_output("echo 2 >%s/sriov_numvfs", card)
    assert node.check_output("ls -d %s/virtfn* | wc -l", card) == "2"
    node.check_output("echo 0 >%s/sriov_numvfs", card)
    assert node.run("ls -d %s/virtfn*", card).rc != 0


def test_the_kernel_takes_what_a_containers_would_refuse(cluster: Nodes) -> None:
    node = cluster.on("node01")
    node.check_output("sysctl -w vm.nr_hugepages=8 vm.zone_reclaim_mode=0 kernel.numa_balancing=0")
    assert "HugePages_Total:       8" in node.check_output("cat /proc/meminfo")
    node.check_output("sysctl -w vm.nr_hugepages=0")


def test_a_reboot_is_a_reboot_with_the_command_line_of_grub(cluster: Nodes) -> None:
    before = boot_id(cluster)
    node = cluster.on("node01")
    key = node.check_output("cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id")
    node.check_output(
        "mkdir -p /etc/default/grub.d;"
        "echo 'GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt\"'"
        " >/etc/default/grub.d/90-test.cfg; update-grub"
    )
    process = pid()
    cluster.play(str(reboot_playbook(cluster)))
    assert boot_id(cluster) != before
    assert pid() == process
    assert "iommu=pt" in node.check_output("cat /proc/cmdline").split()
    assert node.check_output("systemctl is-system-running --wait") == "running"
    assert node.check_output("cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id") == key
    for pci, device in RAILS.items():
        name = interface_at(cluster, pci)
        assert f"netdev {name}" in node.check_output("rdma link show %s/1", device)
        assert "3:off" in node.check_output("dcb pfc show dev %s prio-pfc", name)
    assert cluster.state(present=True).total("changed") == 0


def test_a_killed_qemu_and_a_cut_cable_are_repaired(cluster: Nodes) -> None:
    cluster.on("node01").check_output("echo kept >/root/note && sync")
    os.kill(pid(), signal.SIGKILL)
    output("ip", "-n", "vnkernel-fabric", "link", "delete", "node01-rail0")
    run = cluster.play("baremetal.bed.virtual_nodes", "--check", "--diff")
    assert "start node01" in run.output
    assert "tuntap add dev node01-rail0" in run.output
    cluster.state(present=True)
    assert cluster.on("node01").check_output("cat /root/note") == "kept"
    assert cluster.state(present=True).total("changed") == 0


def test_one_that_was_switched_off_is_started_with_its_files(cluster: Nodes) -> None:
    before = boot_id(cluster)
    cluster.on("node01").run("systemd-run --on-active=1 systemctl poweroff")
    process = pid()
    waiting.until(lambda: not Path(f"/proc/{process}").exists(), "QEMU to end", 120, every=0.5)
    cluster.state(present=True)
    assert boot_id(cluster) != before
    assert cluster.on("node01").check_output("cat /root/note") == "kept"


def test_a_changed_host_key_is_rejected_until_it_is_read(cluster: Nodes) -> None:
    cluster.on("node01").check_output(
        "rm /etc/ssh/ssh_host_*; systemctl restart virtual-node-keys ssh"
    )
    refuses_another_host_key(cluster)


def test_killed_in_the_middle_a_second_run_completes_it(cluster: Nodes) -> None:
    cluster.state(present=False)
    kill_after(cluster, 6.0)
    cluster.state(present=True)
    assert cluster.state(present=True).total("changed") == 0


def test_an_impossible_card_is_refused_with_a_remedy(cluster: Nodes) -> None:
    model = cluster.inventory / "cluster.yml"
    try:
        model.write_text(MODEL.replace("0000:00:12.0", "0000:5d:00.0"))
        run = cluster.play("baremetal.bed.virtual_nodes", expect=2)
        assert re.search(r"node01: rail0 is at PCI address 0000:5d:00\.0", run.output)
    finally:
        model.write_text(MODEL)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual nodes as containers: they boot, recover from faults, and are removed without a trace.

The tests use a separate cluster, two small nodes and a launcher of both families, because they
break it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.instances import (
    describe,
    kill_after,
    output,
    reboot_playbook,
    refuses_another_host_key,
    traces,
)
from tests.nodes import TOP, Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: {name}
management: {{subnet: 172.30.{net}.0/24, interface: mgmt0}}
nodes:
  count: 2
  name: node{{:02d}}
  management_first: 172.30.{net}.11
  slots: 2
  overrides:
    node02:
      vars: {{virtual_nodes_family: el}}
gpus: {{count: 2}}
rails: {{count: 2, speed_gbps: 10, mtu: 9000}}
addresses:
{addresses}
leaves: {{count: 2, management_first: 172.30.{net}.101, ports: 8}}
launcher: {{name: launcher01, management: 172.30.{net}.10}}
"""
SUBNETS = "  plan: subnet_per_rail\n  pool: 10.148.0.0/16\n  prefix: 24\n  first_host: 11"
LINKS = "  plan: point_to_point\n  pool: 10.148.0.0/24"


def instance(folder: Path, name: str, net: int, addresses: str = SUBNETS) -> Nodes:
    return describe(folder, MODEL.format(name=name, net=net, addresses=addresses))


def inside(node: str, script: str, cluster: str = "vntest") -> str:
    """Return the output of a shell in the container. Raises if the shell fails."""
    return output("podman", "exec", f"{cluster}.{node}", "sh", "-ec", script).strip()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = instance(tmp_path_factory.mktemp("vn") / "inventory", "vntest", 231)
    nodes.state(present=False)
    nodes.state(present=True)
    yield nodes
    nodes.state(present=False)


def test_up_again_changes_nothing(cluster: Nodes) -> None:
    assert cluster.state(present=True).total("changed") == 0
    assert cluster.play("baremetal.bed.virtual_nodes", "--check").total("changed") == 0


def test_each_family_is_what_ansible_sees(cluster: Nodes) -> None:
    for name, system, manager in (("node01", "Ubuntu", "apt"), ("node02", "Rocky", "dnf")):
        facts = subprocess.run(
            [
                "ansible", name, f"--inventory={cluster.inventory}", "--module-name=setup",
                "--args=gather_subset=!all,!min,distribution,pkg_mgr,service_mgr",
            ],
            cwd=TOP,
            env=cluster.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout  # fmt: skip
        assert f'"ansible_distribution": "{system}"' in facts
        assert f'"ansible_pkg_mgr": "{manager}"' in facts
        assert '"ansible_service_mgr": "systemd"' in facts


@pytest.mark.parametrize("name", ["node01", "node02", "launcher01"])
def test_a_node_is_up_and_nothing_in_it_failed(cluster: Nodes, name: str) -> None:
    node = cluster.on(name)
    assert node.check_output("systemctl is-system-running") == "running"
    assert node.check_output("hostname") == name
    assert node.check_output("getent hosts localhost")
    assert cluster.on(name, sudo=False).check_output("id -un") == "ops"


def test_rails_are_bare_and_cabled(cluster: Nodes) -> None:
    for name in cluster.group("compute"):
        for link in json.loads(inside(name, "ip -json address show")):
            if link["ifname"].startswith("rail"):
                assert link["mtu"] == 1500
                assert [a for a in link["addr_info"] if a["family"] == "inet"] == []
    leaves = output("ip", "-n", "vntest-fabric", "-br", "link", "show", "type", "bridge")
    assert {line.split()[0] for line in leaves.splitlines()} == {"management", "leaf01", "leaf02"}


def test_routed_traffic_of_full_size_goes_through_the_leaves(cluster: Nodes) -> None:
    rails = {name: cluster.of(name)["cluster_rails"] for name in ("node01", "node02")}
    here, there = rails["node01"][0], rails["node02"][1]
    try:
        for name, rail, other in (("node01", here, there), ("node02", there, here)):
            inside(
                name,
                f"ip link set {rail['interface']} mtu 9000 up;"
                f"ip address replace {rail['address']}/{rail['prefix']} dev {rail['interface']};"
                f"ip route replace {other['network']} via {rail['gateway']}",
            )
        inside("node01", f"ping -c 2 -W 2 -M do -s 8972 {there['address']}")
        inside("node01", f"ping -c 1 -W 2 {here['gateway']}")
    finally:
        for name in ("node01", "node02"):
            inside(name, "for r in rail0 rail1; do ip address flush $r; ip link set $r down; done")


def test_packages_are_installed_from_a_signed_repository(cluster: Nodes) -> None:
    ubuntu, rocky = cluster.on("node01"), cluster.on("node02")
    assert not ubuntu.exists("mpirun")
    ubuntu.check_output("apt-get -q update && apt-get -q -y install openmpi-bin python3-mpi4py")
    assert "trusted" not in ubuntu.check_output("cat /etc/apt/sources.list.d/*")
    ranks = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    launch = f"mpirun --allow-run-as-root --oversubscribe -n 2 python3 -c '{ranks}'"
    assert ubuntu.check_output(launch).split() == ["2", "2"]
    rocky.check_output("dnf -q -y install openmpi python3-mpi4py-openmpi")
    assert "gpgcheck=1" in rocky.check_output("cat /etc/yum.repos.d/*")
    environment = (
        "PATH=/usr/lib64/openmpi/bin:$PATH PYTHONPATH=/usr/lib64/python3.9/site-packages/openmpi "
    )
    assert rocky.check_output(environment + launch).split() == ["2", "2"]
    assert "Stand-in" in rocky.check_output("rpm -q --qf '%{SUMMARY}' openmpi")


def test_a_tampered_package_is_refused(cluster: Nodes) -> None:
    rocky = cluster.on("node02")
    rocky.check_output(
        "cd /usr/share/virtual-node/rpm && rpm --delsign jq-*.rpm && rm -rf repodata"
        " && createrepo_c -q --no-database . && dnf -q clean all"
    )
    refused = rocky.run("dnf -q -y install jq")
    assert refused.rc != 0
    assert "not signed" in refused.stderr + refused.stdout


def test_a_reboot_is_a_reboot(cluster: Nodes) -> None:
    before = {
        name: cluster.on(name).check_output(
            "cat /proc/sys/kernel/random/boot_id /etc/ssh/ssh_host_ed25519_key.pub"
        )
        for name in cluster.group("compute")
    }
    for name in before:
        inside(
            name,
            "sysctl -q -w net.ipv4.conf.rail0.arp_ignore=1;"
            "ip link set rail0 mtu 9000 up; ip address add 10.148.0.77/24 dev rail0;"
            "ip rule add from 10.148.0.77 table 100; echo renamed >/etc/hostname",
        )
    cluster.play(str(reboot_playbook(cluster)))
    for name, text in before.items():
        boot_id, key = text.split("\n", 1)
        node = cluster.on(name)
        assert node.check_output("systemctl is-system-running --wait") == "running"
        assert node.check_output("cat /proc/sys/kernel/random/boot_id") != boot_id
        assert node.check_output("cat /etc/ssh/ssh_host_ed25519_key.pub") == key
        assert node.check_output("cat /proc/sys/net/ipv4/conf/rail0/arp_ignore") == "0"
        assert "10.148.0.77" not in node.check_output("ip address show rail0; ip rule")
        assert "mtu 1500" in node.check_output("ip link show rail0")
        assert node.check_output("hostname") == "renamed"
        inside(name, f"echo {name} >/etc/hostname; hostname {name}")


def test_another_host_key_is_refused(cluster: Nodes) -> None:
    inside("node01", "rm /etc/ssh/ssh_host_ed25519_key*; systemctl restart virtual-node-keys ssh")
    refuses_another_host_key(cluster)


def test_killed_in_the_middle_a_second_run_completes_it(cluster: Nodes) -> None:
    for seconds in (3.5, 5.0, 6.5):
        cluster.state(present=False)
        kill_after(cluster, seconds)
        cluster.state(present=True)
        assert cluster.state(present=True).total("changed") == 0


def test_a_missing_cable_and_a_dead_node_are_brought_back(cluster: Nodes) -> None:
    output("ip", "-n", "vntest.node01", "link", "delete", "rail1")
    output("podman", "rm", "--force", "--volumes", "--time", "0", "vntest.node02")
    cluster.state(present=True)
    assert inside("node01", "cat /sys/class/net/rail1/mtu") == "1500"
    assert cluster.on("launcher01").check_output("true") == ""
    assert cluster.state(present=True).total("changed") == 0


def test_two_clusters_side_by_side_and_nothing_left_of_either(tmp_path: Path) -> None:
    first = instance(tmp_path / "one", "vnone", 232)
    second = instance(tmp_path / "two", "vntwo", 233, LINKS)
    both = ("vnone", "vntwo")
    before = traces(*both)
    assert not [line for line in before if "vnone" in line or "vntwo" in line]
    try:
        first.state(present=True)
        between = traces(*both)
        second.state(present=True)
        rail = second.of("node01")["cluster_rails"][0]
        inside(
            "node01",
            f"ip link set {rail['interface']} up;"
            f"ip address add {rail['address']}/{rail['prefix']} dev {rail['interface']};"
            f"ping -c 1 -W 2 {rail['gateway']}",
            "vntwo",
        )
        second.state(present=False)
        assert traces(*both) ^ between == set()
        assert first.state(present=True).total("changed") == 0
        kill_after(second, 5.0)
    finally:
        second.state(present=False)
        first.state(present=False)
    assert traces(*both) ^ before == set()

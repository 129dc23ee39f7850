# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems in an inventory: from the model with lines, or by hand; the same where they meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    CHECKPOINTS,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import inventory_of, load
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage import (
    read_filesystems,
)

from tests.unit.file_systems import LUSTRE, NFS, SERVED, changed
from tests.unit.small_model import compiled, refused

ROOT = Path(__file__).resolve().parents[2]
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
domain: example.net
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 800}
addresses: {plan: %s, pool: 10.1.0.0/16}
leaves: {count: 2, ports: 64, management_first: 10.0.0.101}
launcher: {name: launcher01, management: 10.0.0.10}
storage: [{name: storage01, management: 10.0.0.21}]
filesystems:
"""


def model(*entries: dict[str, Any], plan: str = "subnet_per_rail") -> str:
    """A list in block style: one line for each entry."""
    return MODEL % plan + "".join(f"  - {json.dumps(entry)}\n" for entry in entries)


def test_a_model_that_says_nothing_has_none() -> None:
    everywhere = compiled((MODEL % "subnet_per_rail").replace("filesystems:\n", ""))
    assert everywhere.group_variables["all"]["cluster_filesystems"] == []


def test_a_model_gives_its_file_systems_whole_and_once() -> None:
    inventory = compiled(model(SERVED, LUSTRE))
    value = inventory.group_variables["all"]["cluster_filesystems"]
    assert value == [entry.as_variable() for entry in read_filesystems([SERVED, LUSTRE])]
    assert all("cluster_filesystems" not in host.variables for host in inventory.hosts)


def test_text_is_read_as_it_is_written() -> None:
    """YAML makes 504 of 0770 and a number of 4.10; a model has the file."""
    text = MODEL % "subnet_per_rail"
    text += "  - {name: a, type: nfs, source: s:/a, mount: /mnt/a, purpose: home, mode: 0770"
    text += ", nfs: {version: 4.2}}\n"
    (entry,) = compiled(text).group_variables["all"]["cluster_filesystems"]
    assert (entry["mode"], entry["nfs"]["version"]) == ("0770", "4.2")
    assert refused(text.replace("4.2", "4.20")) == [
        "13 model.not_a_choice filesystems[0].nfs.version '4.20'"
    ]


def test_every_finding_has_its_line() -> None:
    text = model(SERVED, changed(NFS, source="fd00::1:/x", mount="/mnt"), LUSTRE)
    text += "  - name: later\n    type: nfs\n    source: a:/b\n    mount: /etc\n"
    text += "    purpose: home\n    options:\n      - noatime\n      - soft\n"
    assert refused(text) == [
        "14 storage.source filesystems[1].source 'fd00::1:/x'",
        "14 storage.name_twice filesystems[1].name 'checkpoints'",
        "14 storage.checkpoints_twice filesystems[1].purpose",
        "14 storage.mounts_overlap filesystems[1].mount ('/mnt', '/mnt/checkpoints')",
        "15 storage.mounts_overlap filesystems[2].mount ('/mnt/scratch', '/mnt')",
        "19 storage.mount_in_system filesystems[3].mount '/etc'",
        "23 storage.option_never filesystems[3].options[1] 'soft'",
    ]


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("storage01", "storage01"),
        ("storage01.example.net", "storage01"),
        ("10.0.0.21", "storage01"),
        ("10.99.0.1", "storage01"),
        ("launcher01", "launcher01"),
        ("10.0.0.10", "launcher01"),
        ("node02", "node02"),
        ("10.0.0.12", "node02"),
        ("node02-rail1", "node02"),
        ("10.1.1.3", "node02"),
    ],
)
def test_a_server_may_be_called_by_all_that_its_host_is(server: str, host: str) -> None:
    entry = changed(SERVED, source=f"{server}:/srv/checkpoints", serve__host=host)
    compiled(model(entry))


def test_links_of_two_addresses_have_servers_too() -> None:
    entry = changed(SERVED, source="10.1.0.7:/srv/checkpoints", serve__host="node02")
    node = compiled(model(plan="point_to_point").replace("filesystems:\n", "")).hosts[1]
    assert "10.1.0.7" in [rail["address"] for rail in node.variables["cluster_rails"]]
    compiled(model(entry, plan="point_to_point"))


@pytest.mark.parametrize(
    ("server", "host", "told"),
    [
        (
            "10.1.1.2",
            "storage01",
            "source_of_other_host filesystems[0].source ('10.1.1.2', 'node01')",
        ),
        ("10.1.1.9", "node01", "source_of_other_host filesystems[0].source ('10.1.1.9', None)"),
        ("storage01", "leaf01", "unknown_host filesystems[0].serve.host 'leaf01'"),
    ],
)
def test_a_server_is_the_host_that_serves(server: str, host: str, told: str) -> None:
    entry = changed(SERVED, source=f"{server}:/srv/checkpoints", serve__host=host)
    assert refused(model(entry)) == [f"13 storage.{told}"]


def test_groups_are_those_of_the_model() -> None:
    compiled(model(changed(NFS, hosts=["rack_r01", "storage"])))
    assert refused(model(changed(NFS, hosts=["rack_r02"]))) == [
        "13 storage.unknown_group filesystems[0].hosts[0] 'rack_r02'"
    ]


def test_the_inventories_have_checkpoints_that_all_their_hosts_agree_on() -> None:
    for name in ("b300", "virtual", "virtual-rdma"):
        inventory = inventory_of(load(str(ROOT / f"inventories/{name}/cluster.yml")))
        found = read_filesystems(inventory.group_variables["all"]["cluster_filesystems"])
        (checkpoints,) = (entry for entry in found if entry.purpose == CHECKPOINTS)
        assert checkpoints.mount == "/mnt/checkpoints"
        assert checkpoints.serve is not None


def test_machines_have_both_transports_and_containers_the_one_that_needs_no_kernel() -> None:
    def ways(name: str) -> list[tuple[str, int, str]]:
        cluster = load(str(ROOT / f"inventories/{name}/cluster.yml"))
        return [
            (entry.nfs.transport, entry.nfs.port, entry.source) for entry in cluster.filesystems
        ]

    assert ways("virtual-rdma") == [
        ("rdma", 20049, "10.142.0.11:/srv/checkpoints"),
        ("tcp", 2049, "10.242.0.11:/srv/datasets"),
    ]
    assert ways("virtual") == [("tcp", 2049, "10.240.0.9:/srv/checkpoints")]

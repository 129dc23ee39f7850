# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models as operators wrote them, in data/models: what each compiles to, or why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import ModelError

from tests.unit.small_model import compiled, doubts, refused

MODELS = Path(__file__).with_name("data") / "models"
REFUSED: dict[str, list[str]] = {
    "02-two-merge-keys": ["14 model.key_twice vars.compute.<< '<<'"],
    "03-octal-dscp": ["10 model.number_base roce_qos.roce.dscp '026'"],
    "04-octal-uid": ["10 model.number_base mpi.uid '02000'"],
    "06-octal-underscore": ["4 model.number_base nodes.count '0_4'"],
    "07-leaf-128x800-on-spectrum4": ["8 model.chip_lanes leaves.ports (128, 800)"],
    "08-leaf-72-ports": ["8 model.chip_lanes leaves.ports (72, 800)"],
    "10-nvue-on-tomahawk": ["8 model.chip_system leaves.asic ('nvue', 'tomahawk5')"],
    "11-eos-on-spectrum": ["8 model.chip_system leaves.asic ('eos', 'spectrum4')"],
    "13-sonic-port-start-1": ["8 model.port_lanes leaves.port_start 'Ethernet1'"],
    "14-nvue-port-step-8": ["8 model.port_beyond leaves.port_step 'swp73'"],
    "15-nvue-ethernet-names": ["8 model.port_form leaves.port 'Ethernet1'"],
    "17-two-servers-one-address": [
        "15 storage.servers_share_address filesystems[1].source ('172.16.0.250', 'storage01')"
    ],
    "18-external-nfs-is-a-rail": ["11 storage.source_address filesystems[0].source '172.16.0.3'"],
    "19-template-in-option": ["11 model.template filesystems[0].options[0] 'a secret'"],
    "23-kernel-date": ["10 model.wrong_form software.kernel '2024-01-01'"],
    "23b-kernel-number": ["10 model.wrong_form software.kernel '6.8'"],
    "33-homoglyph-in-key": ["8 model.unknown_key le\u0430ves"],
    "35-tab-indent": [r"5 model.not_yaml '\t'"],
    "37-vault-tag-in-vars": ["12 model.tag vars.all.bmc_password '!vault'"],
    "38-file-encrypted-by-vault": ["1 model.encrypted"],
    "42-list-of-sections": ["10 model.not_a_list storage dict"],
    "44-overrides-at-top": ["10 model.unknown_key overrides"],
    "d02-superpod-b300-8su-spine-groups": ["8 model.leaf_ports leaves.ports (32, 0)"],
    "d04-nvue-breakout-names": ["8 model.pattern leaves.port 'swp{}s{}'"],
    "d06-two-kinds-of-nodes": ["4 model.unknown_key nodes.list[1].rails"],
    "d07-cpu-only-node": ["4 model.unknown_key nodes.list[1].gpus"],
    "d09-ipv6-rails": [
        "7 model.network addresses.pool 'fd00:100::/48'",
        "7 model.out_of_range addresses.prefix (64, 8, 30)",
    ],
    "d12-uplinks-first": ["8 model.unknown_key leaves.uplinks"],
    "d13-port-of-a-node": ["4 model.unknown_key nodes.list[0].leaf_port"],
    "d15-infiniband": ["8 model.infiniband leaves.system 'mlnxos'"],
    "d18-wekafs": ["11 storage.type_of_others filesystems[0].type 'wekafs'"],
}
"""File to its findings: line, code, path, value."""
DOUBTED: dict[str, list[str]] = {
    "01-merge-key-override": ["9 model.oversubscribed spines.links_per_leaf '15:1'"],
    "20-cuda-14.9": [
        "10 software.driver_floor software.driver.version",
        "10 software.cuda_unknown software.cuda",
    ],
    "21-cuda-12.4-for-B300": [
        "10 software.driver_floor software.driver.version",
        "10 software.cuda_floor software.cuda",
        "10 software.cuda_gpu software.cuda",
    ],
    "25-ecn-above-any-buffer": [
        "10 qos.above_buffer roce_qos.ecn.maximum_bytes (1073741824, 158229504)"
    ],
    "26-gpu-with-two-rails": ["6 model.gpu_without_rail rails.gpu (6, 7)"],
    "27-numa-contradiction": ["6 model.numa_of_rail rails.numa (0, 0, 8)"],
    "28-idle-leaves": ["8 model.idle_switches leaves.count ('leaf05', 4)"],
    "29-oversubscribed-31-to-1": ["10 model.oversubscribed spines.links_per_leaf '31:1'"],
    "31-drained-and-absent": ["4 model.drained_and_absent nodes.absent[0] 'node02'"],
    "32-rails-called-eth": ["6 model.interface_of_system rails.interface 'eth0'"],
    "39-place-for-anchors": [],
    "45-empty-storage": [],
    "d01-superpod-b300-twin-planar-1su": [],
    "d02-superpod-b300-8su-spine-groups-as-meant": [],
    "d03-three-tiers": ["10 model.oversubscribed spines.links_per_leaf '15:1'"],
    "d06-two-kinds-of-nodes-as-meant": [],
    "d07-cpu-only-node-as-meant": [],
    "d08-two-launchers": [],
    "d10-vlan-rails": [],
    "d13-port-of-a-node-as-meant": [],
    "d16-spine-added": [],
    "d16-spine-added-as-meant": [],
    "d17-node-removed-from-list": [],
    "d17-node-removed-from-list-as-meant": [],
    "d18-wekafs-as-meant": [],
}
"""File that compiles, to its warnings."""


def text(name: str) -> str:
    return (MODELS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert refused(text(name)) == REFUSED[name]


REMEDIES = {
    "33-homoglyph-in-key": "U+0430 (CYRILLIC SMALL LETTER A)",
    "42-list-of-sections": "sections with name, management",
    "44-overrides-at-top": "belongs under nodes",
    "d06-two-kinds-of-nodes": "kinds",
    "d07-cpu-only-node": "kinds",
    "d09-ipv6-rails": "IPv6",
    "d13-port-of-a-node": "position",
    "d18-wekafs": "managed: false",
}
"""Words that the message contains: what to do where the model has no key."""


@pytest.mark.parametrize("name", REMEDIES)
def test_a_message_names_the_remedy(name: str) -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(text(name))
    assert REMEDIES[name] in str(refusal.value)
    assert "](" not in str(refusal.value), "no Markdown"


def test_an_impossible_date_has_its_line_and_key() -> None:
    found = refused(text("40-impossible-date"))
    assert found[-1] == "2 model.impossible_value software.kernel '2024-13-45'"


@pytest.mark.parametrize("name", DOUBTED)
def test_compiled(name: str) -> None:
    assert compiled(text(name)).hosts
    assert doubts(text(name)) == DOUBTED[name]

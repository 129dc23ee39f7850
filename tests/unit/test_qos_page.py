# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/qos-contract.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    ContractError,
    fabric_intent,
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos.contract import (
    CONTRACT,
    FRAME_OVERHEAD,
    PATH_MTUS,
    ROCE_OVERHEAD,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/qos-contract.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


def test_the_example_can_be_kept_and_names_every_section() -> None:
    value = yaml.safe_load(block("yaml"))["roce_qos"]
    read_contract(value)
    assert {*value, "best_effort"} == {key.name for key in CONTRACT.keys}


def test_the_refused_example_is_refused_in_these_words() -> None:
    with pytest.raises(ContractError) as caught:
        read_contract({"cnp": {"priority": 3, "traffic_class": 6}, "pfc": {"xoff_bytes": 300000}})
    assert f"{caught.value}\n" == block("text")


def test_the_numbers_of_the_page() -> None:
    for dscp, byte in re.findall(r"(\d+) for (?:DSCP )?(\d+)", PAGE):
        contract = read_contract({"roce": {"dscp": int(byte)}})
        assert host_settings(contract).traffic_class == int(dscp)
    intent = fabric_intent(read_contract(None))
    assert f"| {intent.mtu_frame} |" in PAGE
    assert f"| {intent.mtu_ip} |" in PAGE
    assert f"{ROCE_OVERHEAD} bytes" in PAGE
    assert f"an IP MTU of {PATH_MTUS[-1] + ROCE_OVERHEAD}" in PAGE
    assert intent.mtu_frame - intent.mtu_ip == FRAME_OVERHEAD == 14 + 4
    assert read_contract({"roce": {"dscp": 24}}).traffic_class_byte == 98


def test_the_page_names_every_variable_of_the_environment() -> None:
    contract = read_contract(None)
    for indexes in ((3, 3), (3, 5)):
        ports = [qos.RdmaPort(f"mlx5_{n}", 1, index, f"rail{n}") for n, index in enumerate(indexes)]
        for name in qos.mpi_environment(host_settings(contract), ports):
            assert name in PAGE or name.endswith("_GID_INDEX"), name

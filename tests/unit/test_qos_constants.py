# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract's numbers stand in one file: a second DSCP 26 is the one that somebody forgets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.qos_constants import search

ROOT = Path(__file__).resolve().parents[2]
CODE = ("plugins", "roles", "playbooks")
HOME = "plugins/plugin_utils/qos/keys.py"
NVUE = "roles/virtual_nodes/files/switch/nvue"
SONIC = "roles/virtual_nodes/files/switch/sonic"
MEANS_ANOTHER_THING = {
    ("plugins/plugin_utils/fabric/asics.py", "192"): "bytes of a buffer cell of Spectrum-4",
    ("plugins/module_utils/gpu/findings.py", "48"): "Xid of a double-bit ECC error",
    ("plugins/module_utils/gpu/judging.py", "48"): "Xid of a double-bit ECC error",
    (
        "plugins/plugin_utils/qos/contract.py",
        "PATH_MTUS 4096",
    ): "every path MTU of RDMA",
    ("plugins/module_utils/verbs/wire.py", "26"): "SO_ATTACH_FILTER of Linux",
    (f"{SONIC}/yang.py", "9216"): "largest MTU that the models of SONiC accept",
    (f"{NVUE}/vendor.py", "9216"): "MTU of a port that Cumulus Linux was told nothing about",
    (f"{NVUE}/vendor.py", "150000"): "marking that Cumulus Linux does by itself",
    (f"{NVUE}/vendor.py", "1500000"): "marking that Cumulus Linux does by itself",
    (f"{NVUE}/vendor.py", "192"): "bytes of a cell of Spectrum-4",
}
"""The same numbers with another meaning. Each is there, once, or it goes from this list."""


def code() -> list[Path]:
    return sorted(
        path
        for directory in CODE
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and path.suffix != ".md" and "__pycache__" not in path.parts
    )


def test_no_constant_of_the_contract_stands_anywhere_else() -> None:
    found = [
        (str(path.relative_to(ROOT)), one)
        for path in code()
        if str(path.relative_to(ROOT)) != HOME
        for one in search(path)
    ]
    second = [
        f"{name}:{one.line}: {one.what}"
        for name, one in found
        if (name, one.what) not in MEANS_ANOTHER_THING
    ]
    assert second == [], "take it from the contract: qos.read_contract, host_settings, ..."
    assert Counter((name, one.what) for name, one in found) == Counter([*MEANS_ANOTHER_THING])


def test_the_search_knows_its_own_file() -> None:
    """It finds in the one file what it looks for in the others."""
    assert len(search(ROOT / HOME)) >= 12


PLANTED = {
    "assigned.py": (
        "ROCE_DSCP = 26",
        "DSCP = 0x1A",
        "tos = 26 << 2 | 2",
        "traffic_class = 104 | 2",
        "self.pfc = (3,)",
        "pfc_priorities: tuple[int, ...] = (3,)",
    ),
    "argument.py": (
        "settings(priority=3)",
        "set_pfc(3)",
        "run('dcb', 'pfc', 3)",
        "f(dscp=48)",
        "value.get('priority', 3)",
        "x = wanted.priority or 3",
    ),
    "default.py": (
        "def f(cnp_prio=6): pass",
        "def f(*, prio=3): pass",
        "def roce_priority(): return 3",
    ),
    "mapping.py": ("m = {26: 3, 48: 6}", "m = {'pfc': [3]}", "prio_of = {0: 0, 5: 3}"),
    "compared.py": ("if rail.priority == 3: pass", "ok = found_tos in (0, 106)"),
    "text.py": (
        "command = 'mlnx_qos --pfc 0,0,0,1 --dscp2prio set,26,3'",
        "path = f'/sys/class/net/{name}/ecn/roce_np/enable/3'",
        "x = 'UCX_IB_TRAFFIC_CLASS=106'",
        "x = 'TOS 0x6a'",
        "n = 'prio-pfc all:off 3:on'",
    ),
    "sizes.py": (
        "mtu = 9216",
        "threshold = 150_000",
        "path_mtu = 4096",
        "ecn_probability = 100",
    ),
    "roce.yml": (
        "roce_priority: 3",
        "pfc:\n  - 3",
        "tclass: 106",
        "qos: {dscp: {26: 1}}",
        "detection_ms: 200",
        "options:\n  cnp_dscp:\n    default: 48",
    ),
    "task.yml": ("cmd: cma_roce_tos -d mlx5_0 -t 106", "cmd: dcb app add dev x dscp-prio 26:3"),
    "boot.sh": ("mlnx_qos -i rail0 --trust dscp --pfc 3", "cma_roce_tos -d mlx5_0 -t 106"),
    "qos.j2": ("export NCCL_IB_TC=106", "NCCL_IB_SL=3"),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in PLANTED.items() for text in texts]
)
def test_a_planted_constant_is_found(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text + "\n", encoding="utf-8")
    assert search(path), text


HARMLESS = {
    "ok.py": (
        "timeout = 3",
        "retries = 6",
        "length = 0x30",
        "ecn = tos & 3",
        "priority = contract.roce.priority",
        "count = 4096",
        "'three rails of 26 nodes'",
        '"""DSCP 26 is what the field uses."""',
        "x = 1  # DSCP 26",
        "EXAMPLES = 'dscp: 26'",
        "plane_mtu = 9000",
        "version = '3.26'",
    ),
    "ok.yml": (
        "retries: 3",
        "wait: 100",
        "# dscp: 26",
        "qos: '{{ roce_qos | default({}) }}'",
        "mode: '0644'",
        "roce_rails_priority_base: 10000",
    ),
    "ok.sh": ("sleep 3", "dcb pfc show dev rail0 # priority 3"),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in HARMLESS.items() for text in texts]
)
def test_another_number_is_not(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text + "\n", encoding="utf-8")
    assert search(path) == []

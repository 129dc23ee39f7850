# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of simulated switches: descriptions from the inventory, certificates and the password."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils import switches
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    VirtualError,
)
from ansible_collections.baremetal.bed.plugins.module_utils.switches import (
    Folders,
    Routing,
    SimulatedSwitch,
    parse_switches,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run

PORTS: dict[str, Sequence[dict[str, Any]]] = {
    "leaf1": [
        {"peer_interface": "rail0", "speed_gbps": 400, "peers": {"Ethernet0": "node01"}},
        {"peer_interface": "Ethernet8", "speed_gbps": 800, "peers": {"Ethernet504": "spine1"}},
        {"peer_interface": "Ethernet8", "speed_gbps": 800, "peers": {"Ethernet512": "spine2"}},
    ],
}


def parse(**systems: str) -> tuple[SimulatedSwitch, ...]:
    management = {name: {"address": f"10.9.0.{number}"} for number, name in enumerate(systems, 1)}
    return parse_switches(management, systems, {"leaf1": "spectrum4"}, PORTS)


LEAF = parse(leaf1="sonic")[0]
OTHER = SimulatedSwitch("leaf2", "10.9.0.2", "nvue", "spectrum4", ())


def test_a_switch_is_described_by_the_inventory() -> None:
    description = json.loads(LEAF.description)
    assert (description["name"], description["system"], description["asic"]) == (
        "leaf1",
        "sonic",
        "spectrum4",
    )
    assert description["ports"][0] == {
        "name": "Ethernet0",
        "speed_gbps": 400,
        "peer": "node01",
        "peer_interface": "rail0",
        "peer_mac": None,
    }
    assert LEAF.environment == "SYSTEM=sonic\nADDRESS=10.9.0.1\n"


def test_a_sonic_neighbour_announces_the_label_of_its_port() -> None:
    management = {"leaf1": {"address": "10.9.0.1"}}
    systems = {"leaf1": "eos", "spine1": "sonic", "spine2": "eos"}
    (leaf,) = parse_switches(management, systems, {}, PORTS)
    heard = [port["peer_interface"] for port in leaf.ports]
    assert heard == ["rail0", "etp2", "Ethernet8"]


@pytest.mark.parametrize("system", ["", "junos"])
def test_an_unsupported_system_is_refused(system: str) -> None:
    with pytest.raises(VirtualError, match=r"leaf1: .*leaves\.system"):
        parse(leaf1=system)


ROUTED: dict[str, Sequence[dict[str, Any]]] = {
    "leaf1": [
        {"peer_interface": "rail0", "speed_gbps": 400, "peers": {"Ethernet1/1": "node01"}},
        {
            "peer_interface": "swp1",
            "speed_gbps": 800,
            "peers": {"Ethernet9/1": "spine1"},
            "addresses": {"Ethernet9/1": "10.8.0.1"},
        },
    ],
    "spine1": [
        {
            "peer_interface": "Ethernet9/1",
            "speed_gbps": 800,
            "peers": {"swp1": "leaf1"},
            "addresses": {"swp1": "10.8.0.0"},
        },
    ],
}
RAILS = {
    "node01": [
        {"leaf": "leaf1", "network": "10.7.1.0/24"},
        {"leaf": "leaf2", "network": "10.6.0.0/24"},
    ],
    "node02": [{"leaf": "leaf1", "network": "10.7.0.0/24"}],
}


def routed(**asns: int) -> tuple[SimulatedSwitch, ...]:
    management = {"leaf1": {"address": "10.9.0.1"}, "spine1": {"address": "10.9.0.2"}}
    systems = {"leaf1": "eos", "spine1": "nvue"}
    return parse_switches(management, systems, {}, ROUTED, Routing(asns, RAILS, 100))


def test_a_switch_of_a_fabric_with_bgp_announces_its_rails_to_every_neighbour() -> None:
    leaf, spine = routed(leaf1=64601, spine1=64600)
    lines = [line.strip() for line in leaf.frr.splitlines()]
    assert "router bgp 64601" in lines and "neighbor 10.8.0.0 remote-as 64600" in lines
    assert [line for line in lines if line.startswith("network")] == [
        "network 10.7.0.0/24",
        "network 10.7.1.0/24",
    ]
    assert "bgp bestpath as-path multipath-relax" in lines
    assert "neighbor 10.8.0.1 remote-as 64601" in spine.frr and "network" not in spine.frr
    assert [port["device"] for port in leaf.ports] == ["Ethernet1-1", "Ethernet9-1"]
    assert (leaf.rates, spine.rates) == ("Ethernet1-1 100\nEthernet9-1 200\n", "swp1 200\n")


def test_no_traffic_passes_a_switch_of_other_fabrics() -> None:
    assert (LEAF.frr, LEAF.rates) == ("", "") and "device" not in LEAF.ports[0]


def test_bgp_needs_as_numbers() -> None:
    with pytest.raises(VirtualError, match=r"spine1 .*asn_first"):
        routed(leaf1=64601)


class Made:
    """The folders of a cluster, created with the real openssl."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *switches: SimulatedSwitch) -> tuple[list[str], list[str]]:
        folders = Folders(self.directory, "test", run)
        signed, files = folders.plan(switches)
        folders.make(switches, signed, files)
        return signed, [plan.path.name for plan in files]

    def digest(self, switch: SimulatedSwitch) -> str:
        return Folders(self.directory, "test", run).digest(switch)


@pytest.fixture
def make(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_everything_is_made_once(make: Made) -> None:
    signed, files = make(LEAF, OTHER)
    assert signed == ["authority", "leaf1", "leaf2"]
    assert len(files) == 11
    before = {path: path.read_bytes() for path in make.directory.rglob("*") if path.is_file()}
    assert make(LEAF, OTHER) == ([], [])
    assert {path: path.read_bytes() for path in before} == before


def test_private_is_what_has_to_be(make: Made) -> None:
    make(LEAF)
    private = {"switch-ca.key", "switch_password", "key.pem", "password"}
    modes = {path.name: path.stat().st_mode & 0o777 for path in make.directory.rglob("*.*")}
    modes |= {name: (make.directory / name).stat().st_mode & 0o777 for name in ("switch_password",)}
    assert {name for name, mode in modes.items() if mode == 0o600} == private - {"password"}
    assert (make.directory / "switches/leaf1/password").stat().st_mode & 0o777 == 0o600


def test_a_certificate_holds_for_address_and_name(make: Made) -> None:
    make(LEAF)
    ca = make.directory / "switch-ca.pem"
    certificate = make.directory / "switches/leaf1/certificate.pem"
    for good, bad in (("ip 10.9.0.1", "ip 10.9.0.2"), ("hostname leaf1", "hostname leaf2")):
        for subject, rc in ((good, 0), (bad, 2)):
            kind, value = subject.split()
            asked = ["openssl", "verify", "-CAfile", ca, f"-verify_{kind}", value, certificate]
            assert subprocess.run(asked, capture_output=True, check=False).returncode == rc
    ssl.create_default_context(cafile=str(ca))


@pytest.mark.parametrize("lost", ["certificate.pem", "key.pem"])
def test_half_a_certificate_is_made_anew(make: Made, lost: str) -> None:
    make(LEAF, OTHER)
    (make.directory / "switches/leaf1" / lost).unlink()
    assert make(LEAF, OTHER) == (["leaf1"], [])


def test_another_address_is_another_certificate(make: Made) -> None:
    make(LEAF)
    moved = SimulatedSwitch("leaf1", "10.9.0.7", "sonic", "spectrum4", LEAF.ports)
    assert make(moved) == (["leaf1"], ["environment"])


def test_a_new_authority_signs_everything_anew(make: Made) -> None:
    make(LEAF)
    (make.directory / "switch-ca.key").unlink()
    assert make(LEAF)[0] == ["authority", "leaf1"]


def test_what_ends_soon_is_made_anew(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches, "DAYS", 29)
    make(LEAF)
    monkeypatch.undo()
    assert make(LEAF) == (["leaf1"], [])
    assert make(LEAF) == ([], [])


def test_the_digest_covers_all_files_of_a_switch(make: Made) -> None:
    make(LEAF)
    first = make.digest(LEAF)
    assert make.digest(LEAF) == first
    renamed = SimulatedSwitch("leaf1", "10.9.0.1", "sonic", "tomahawk5", LEAF.ports)
    assert make.digest(renamed) != first
    (make.directory / "switches/leaf1/certificate.pem").unlink()
    make(LEAF)
    assert make.digest(LEAF) != first


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    signed, files = Folders(tmp_path, "test", run).plan([LEAF])
    assert signed == ["authority", "leaf1"]
    assert len(files) == 6
    assert not any(tmp_path.iterdir())
    secret = [plan for plan in files if plan.secret]
    assert len(secret) == 2
    assert all(plan.diff()["after"] == "(not shown)\n" for plan in secret)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routers of a routed fabric: what is planned, what FRR is told, and which processes are theirs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual import routing
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.cabling import plan_network
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.inventory import (
    VirtualError,
    parse_nodes,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.routing import Router

from tests.waiting import deadline

MANAGEMENT = {
    f"node0{number}": {"address": f"10.99.0.1{number}", "prefix": 24, "interface": "mgmt0"}
    for number in (1, 2)
}
RAILS = {
    name: [
        {
            "interface": f"rail{rail}",
            "leaf": f"leaf0{rail + 1}",
            "leaf_port": "Ethernet1/1",
            "network": f"10.10.{rail}.0/24",
            "gateway": f"10.10.{rail}.1",
        }
        for rail in (0, 1)
    ]
    for name in MANAGEMENT
}


def group(kind: str, interface: str, **peers: str) -> dict[str, Any]:
    return {"kind": kind, "peer_interface": interface, "peers": peers}


SWITCHES: dict[str, list[dict[str, Any]]] = {
    "leaf01": [
        {"kind": "host", "peer_interface": "rail0", "peers": {"Ethernet1/1": "node01"}},
        {"kind": "uplink", "peer_interface": "swp1", "peers": {"Ethernet9/1": "spine01"}},
    ],
    "leaf02": [group("uplink", "swp2", swp9="spine01")],
    "spine01": [
        {"kind": "downlink", "peer_interface": "Ethernet9/1", "peers": {"swp1": "leaf01"}},
        group("downlink", "swp9", swp2="leaf02"),
    ],
}


def plan(**changes: Any) -> Any:
    switches = {**SWITCHES, **changes}
    return plan_network("test", parse_nodes(MANAGEMENT, RAILS), switches=switches)


def test_gateways_stand_on_the_leaves_and_cables_go_to_the_spines() -> None:
    planned = plan()
    assert planned.namespaces == (
        "test-fabric",
        "test.router.leaf01",
        "test.router.leaf02",
        "test.router.spine01",
        "test.node01",
        "test.node02",
    )
    at = {(port.namespace, port.name): port for port in planned.ports}
    assert at["test.router.leaf02", "leaf02"].addresses == ("10.10.1.1/24",)
    assert at["test.router.leaf01", "node01-rail0"].bridge == "leaf01"
    assert ("test-fabric", "leaf01") not in at
    uplinks = [cable.label for cable in planned.cables if " to " in cable.label]
    assert uplinks == ["leaf01 Ethernet9/1 to spine01 swp1", "leaf02 swp9 to spine01 swp2"]
    assert ("test.router.leaf01", "Ethernet9-1") in at, "Linux takes no slash in a name"
    assert ("test.router.spine01", "swp2") in at


def test_without_switches_leaves_are_bridges_as_ever() -> None:
    planned = plan_network("test", parse_nodes(MANAGEMENT, RAILS))
    assert planned.routers == ()
    assert {port.namespace for port in planned.bridges} == {"test-fabric"}


def test_every_leaf_has_its_own_autonomous_system_and_the_spines_share_one() -> None:
    routers = {router.name: router for router in plan().routers}
    numbers = {name: router.autonomous_system for name, router in routers.items()}
    assert numbers == {"leaf01": 65001, "leaf02": 65002, "spine01": 65000}
    text = routers["spine01"].configuration
    assert " bgp router-id 0.0.0.3\n" in text
    assert " neighbor swp1 interface peer-group FABRIC\n" in text
    assert " neighbor swp2 interface peer-group FABRIC\n" in text
    assert " neighbor Ethernet9-1 interface" in routers["leaf01"].configuration


def test_a_routed_fabric_has_no_machines() -> None:
    with pytest.raises(VirtualError, match="node01 is a machine"):
        plan_network("test", parse_nodes(MANAGEMENT, RAILS, ["node01"]), switches=SWITCHES)


# Daemons


class Machine:
    """FRR as processes of this test: sleeping, named and placed as zebra and bgpd would be."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proc = folder / "routers", folder / "proc"
        self.namespaces = folder / "netns"
        self.programs = folder / "frr"
        for path in (self.proc, self.namespaces, self.programs):
            path.mkdir()
        for name in routing.DAEMONS:
            (self.programs / name).touch()
        self.commands: list[list[str]] = []
        self.established = True
        self.processes: list[subprocess.Popen[bytes]] = []
        self.now = 0.0

    def run(self, command: list[str], check: bool = True) -> Any:
        self.commands.append(command)
        if command[0] == "vtysh":
            state = "Established" if self.established else "Active"
            peers = {"swp1": {"state": state}, "swp2": {"state": state}}
            return SimpleNamespace(stdout=json.dumps({"ipv4Unicast": {"peers": peers}}))
        namespace, program = command[3], Path(command[4]).name
        process = subprocess.Popen(["sleep", "infinity"])
        self.processes.append(process)
        Path(command[command.index("-i") + 1]).write_text(f"{process.pid}\n")
        place = self.proc / str(process.pid)
        (place / "ns").mkdir(parents=True)
        (place / "stat").write_text(f"{process.pid} ({program}) S 1")
        there = self.namespaces / namespace
        there.touch()
        os.link(there, place / "ns/net")
        return SimpleNamespace(stdout="")

    def kill(self, pid: int, number: int) -> None:
        """What is ended is gone before anybody looks: no time passes but in `sleep`."""
        os.kill(pid, number)
        (process,) = (one for one in self.processes if one.pid == pid)
        process.wait(deadline(60))
        stat = self.proc / str(pid) / "stat"
        stat.write_text(stat.read_text().replace(" S ", " Z "))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def routing(self) -> routing.Routing:
        return routing.Routing(
            self.run,  # type: ignore[arg-type]
            folder=self.folder,
            programs=self.programs,
            proc=self.proc,
            namespaces=self.namespaces,
            owner=str(os.getuid()),
            sleep=self.sleep,
            clock=lambda: self.now,
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(routing.shutil, "chown", lambda *_names: None)
    made = Machine(tmp_path)
    monkeypatch.setattr(routing, "os", SimpleNamespace(kill=made.kill))
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


ROUTER = Router("spine01", "test.router.spine01", 65000, "10.99.0.121", ("swp1", "swp2"))


def test_what_runs_as_configured_is_left_alone(machine: Machine) -> None:
    assert machine.routing().plan([ROUTER], []) == machine.routing().start([ROUTER])
    begun = len(machine.processes)
    assert machine.routing().start([ROUTER]) == []
    assert machine.routing().plan([ROUTER], []) == []
    assert len(machine.processes) == begun == 2


def test_another_configuration_starts_it_anew(machine: Machine) -> None:
    machine.routing().start([ROUTER])
    other = Router("spine01", "test.router.spine01", 65000, "10.99.0.122", ("swp1", "swp2"))
    assert machine.routing().start([other]) != []
    assert [process.poll() for process in machine.processes[:2]] == [-signal.SIGTERM] * 2
    assert all(process.poll() is None for process in machine.processes[2:])


def test_a_process_number_that_is_somebody_elses_is_not_killed(machine: Machine) -> None:
    machine.routing().start([ROUTER])
    mine, theirs = machine.processes
    (machine.proc / str(theirs.pid) / "stat").write_text(f"{theirs.pid} (postgres) S 1")
    assert machine.routing().stop([ROUTER.namespace]) == ["stop the router of test.router.spine01"]
    assert mine.poll() == -signal.SIGTERM
    assert theirs.poll() is None
    assert not machine.folder.exists()


def test_the_same_program_in_another_namespace_is_not_killed(machine: Machine) -> None:
    machine.routing().start([ROUTER])
    (machine.namespaces / ROUTER.namespace).unlink()
    (machine.namespaces / ROUTER.namespace).touch()
    machine.routing().stop([ROUTER.namespace])
    assert all(process.poll() is None for process in machine.processes)


def test_neighbours_that_do_not_find_each_other_are_a_failure(machine: Machine) -> None:
    machine.established = False
    with pytest.raises(VirtualError, match="spine01 has not found all its neighbours"):
        machine.routing().start([ROUTER])


def test_without_frr_the_message_says_what_to_install(machine: Machine) -> None:
    (machine.programs / "bgpd").unlink()
    with pytest.raises(VirtualError, match=r"frr/bgpd is not there: apt-get install frr"):
        machine.routing().require()

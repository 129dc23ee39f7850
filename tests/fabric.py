# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric of virtual switches, one per system. Tests read and change them without the code under
test.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import shlex
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Optional

from tests import waiting
from tests.bed.instances import describe
from tests.faults import Fault
from tests.nodes import TOP, Cluster, Nodes, Run

LOG = "/var/log/virtual-switch.log"
FAULTS = "/etc/virtual-switch/faults.json"
NAME = "BAREMETAL_MPI_ROCE"
"""Name of the collection's rows and profiles."""
MTU = 9198
"""MTU of ports, above the 9000 bytes of a rail."""

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnfabric
management: {subnet: 172.30.239.0/24, interface: mgmt0}
nodes: {count: 2, management_first: 172.30.239.11, slots: 2}
rails: {count: 3, speed_gbps: 10, mtu: 9000}
addresses: {pool: 10.152.0.0/16, prefix: 24}
leaves:
  count: 3
  management_first: 172.30.239.101
  ports: 64
  system: [sonic, nvue, eos]
  asic: [spectrum4, spectrum4, tomahawk5]
spines: {count: 1, ports: 64, management_first: 172.30.239.121, system: sonic, asic: spectrum4}
launcher: {name: launcher01, management: 172.30.239.10}
"""
UP = ["node01", "node02", "leaf01", "leaf02", "leaf03", "spine01"]
"""Without the launcher, since nothing is launched."""
CONFIRM = f"--extra-vars=switch_qos_confirm_s={waiting.deadline(10):.0f}"


class VirtualFabric(Cluster):
    words = ("--tags=rails,fabric,links", CONFIRM)

    def fresh(self) -> Nodes:
        if self._state != "fresh":
            folder = self.nodes.inventory
            shutil.rmtree(folder, ignore_errors=True)
            describe(folder, MODEL)
            with open(folder / "group_vars/all.yml", "a", encoding="utf-8") as variables:
                variables.write(f"virtual_nodes_names: [{', '.join(UP)}]\n")
                variables.write("virtual_nodes_fabric: routed\n")
        return super().fresh()


FABRIC = VirtualFabric(TOP / "build/test/fabric")


def failed_links(done: Run) -> dict[str, list[str]]:
    hosts = done.report["layers"]["links"]["hosts"]
    found = {host: [check["subject"] for check in done.failed("links", host)] for host in hosts}
    return {host: subjects for host, subjects in found.items() if subjects}


class VirtualSwitch:
    """Common to all systems. Each has in addition:

    `state()`, the running and the saved configuration; `keeps_the_contract()`, which asserts that
    both have DSCP 26 and 48, PFC on 3 and the MTU; `operate()`, which adds configuration of an
    operator, some of it similar to ours; `operators()`, that configuration as it is now; `waits()`,
    whether an unconfirmed change is in force; `put(change)`, which changes the running
    configuration by hand; and FAULTS.
    """

    FAULTS: ClassVar[tuple[tuple[str, str, Any], ...]] = ()
    """Drift: name, the check that finds it, and the input of `put`."""
    put: Callable[[Any], None]

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.variables = nodes.of(name)
        self.address = self.variables["ansible_host"]

    def shell(self, command: str) -> str:
        done = self.nodes.on(self.name).run(f"sh -c {shlex.quote(command)}")
        assert done.rc == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def fault(self, **faults: Any) -> None:
        text = json.dumps(faults)
        self.shell(f"echo {shlex.quote(text)} >{FAULTS}.new && mv {FAULTS}.new {FAULTS}")

    def well(self) -> None:
        self.shell(f"rm -f {FAULTS}")

    def log(self) -> list[str]:
        return self.shell(f"cat {LOG}").splitlines()

    def drift(self) -> None:
        for _name, _check, change in self.FAULTS:
            self.put(change)


class Sonic(VirtualSwitch):
    FAULTS = (
        ("PFC on another priority of a port", "port_pfc", "PORT_QOS_MAP|Ethernet0 pfc_enable 3,4"),
        ("MTU of a port", "port_mtu", "PORT|Ethernet8 mtu 1500"),
        ("DSCP 26 in another class", "port_dscp_map", f"DSCP_TO_TC_MAP|{NAME} 26 0"),
        ("ECN marks too early", "port_ecn", f"WRED_PROFILE|{NAME} green_min_threshold 1000"),
    )

    def database(self) -> dict[str, Any]:
        return dict(json.loads(self.shell("sonic-cfggen -d --print-data")))

    def state(self) -> Any:
        return self.database(), json.loads(self.shell("cat /etc/sonic/config_db.json"))

    def keeps_the_contract(self) -> None:
        for found in self.state():
            classes = found["DSCP_TO_TC_MAP"][NAME]
            assert (classes["26"], classes["48"]) == ("3", "6")
            for port in ("Ethernet0", "Ethernet504"):
                assert found["PORT_QOS_MAP"][port]["dscp_to_tc_map"] == NAME
                assert found["PORT_QOS_MAP"][port]["pfc_enable"] == "3"
                assert found["PORT"][port]["mtu"] == str(MTU)
            assert found["QUEUE"]["Ethernet0|3"]["wred_profile"] == NAME

    def operate(self) -> None:
        self.shell(
            "for words in 'DSCP_TO_TC_MAP|THEIRS 26 5' 'WRED_PROFILE|THEIRS ecn ecn_none' "
            "'SCHEDULER|THEIRS type DWRR' 'VLAN|Vlan100 vlanid 100' "
            "'PORT|Ethernet0 description theirs'; do "
            "sonic-db-cli CONFIG_DB HSET $words || exit; done; config save -y"
        )

    def operators(self) -> Any:
        found = self.database()
        return [
            found["DSCP_TO_TC_MAP"]["THEIRS"],
            found["WRED_PROFILE"]["THEIRS"],
            found["SCHEDULER"]["THEIRS"],
            found["VLAN"],
            found["PORT"]["Ethernet0"]["description"],
            found["DEVICE_METADATA"],
        ]

    def waits(self) -> bool:
        return bool(
            self.shell("systemctl list-timers --no-legend 'baremetal-mpi-roce-*-confirm.timer'")
        )

    def put(self, change: str) -> None:
        key, *words = change.split()
        self.shell(f"sonic-db-cli CONFIG_DB HSET '{key}' {' '.join(words)}")


class OverHttps(VirtualSwitch):
    port = 443

    def waits(self) -> bool:
        events = self.log()
        return bool(events) and " in_force " in events[-1]

    @functools.cached_property
    def _state_directory(self) -> Path:
        return self.nodes.ssh_config.parent

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._state_directory / "switch-ca.pem"))

    def ask(self, method: str, path: str, body: Optional[Any] = None) -> Any:
        password = (self._state_directory / "switch_password").read_text().strip()
        request = urllib.request.Request(
            f"https://{self.address}:{self.port}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": "Basic " + base64.b64encode(f"ops:{password}".encode()).decode(),
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Nvue(OverHttps):
    port = 8765
    FAULTS = (
        (
            "PFC on another priority",
            "port_pfc",
            {"qos": {"pfc": {"default-global": {"switch-priority": {"4": {}}}}}},
        ),
        ("MTU of a port", "port_mtu", {"interface": {"swp2": {"link": {"mtu": 1500}}}}),
        (
            "DSCP 26 in another class",
            "port_dscp_map",
            {"qos": {"mapping": {"default-global": {"dscp": {"26": {"switch-priority": 0}}}}}},
        ),
    )

    def revision(self, name: str) -> Any:
        return self.ask("GET", f"/nvue_v1/?rev={name}&filled=false")

    def state(self) -> Any:
        return self.revision("applied"), self.revision("startup")

    def keeps_the_contract(self) -> None:
        for found in self.state():
            assert found["qos"]["roce"]["mode"] == "lossless"
            table = found["qos"]["mapping"]["default-global"]["dscp"]
            assert [table[dscp]["switch-priority"] for dscp in ("26", "48")] == [3, 6]
            assert list(found["qos"]["pfc"]["default-global"]["switch-priority"]) == ["3"]
            assert found["interface"]["swp1"]["link"]["mtu"] == MTU

    def _set(self, values: dict[str, Any]) -> None:
        (number,) = self.ask("POST", "/nvue_v1/revision", {})
        self.ask("PATCH", f"/nvue_v1/?rev={number}", values)
        asked = {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}
        self.ask("PATCH", f"/nvue_v1/revision/{number}", asked)
        waiting.until(
            lambda: "applied" in self.ask("GET", f"/nvue_v1/revision/{number}")["state"],
            f"{self.name} to apply revision {number}",
        )

    def operate(self) -> None:
        self._set(
            {
                "system": {"message": {"pre-login": "theirs"}},
                "interface": {"swp1": {"ip": {"address": {"10.9.9.1/24": {}}}}},
                "qos": {"mapping": {"theirs": {"trust": "l3"}}},
            }
        )

    def operators(self) -> Any:
        found = self.revision("applied")
        return found["system"], found["interface"]["swp1"]["ip"], found["qos"]["mapping"]["theirs"]

    def put(self, change: dict[str, Any]) -> None:
        self._set(change)


class Eos(OverHttps):
    FAULTS = (
        (
            "PFC on another priority",
            "port_pfc",
            (f"qos profile {NAME}", "priority-flow-control priority 4 no-drop"),
        ),
        ("MTU of a port", "port_mtu", ("interface Ethernet2/1", "mtu 1500")),
        (
            "a port without its profile",
            "port_lossless",
            ("interface Ethernet2/1", "no service-profile"),
        ),
        ("DSCP 26 in another class", "port_dscp_map", ("qos map dscp 26 to traffic-class 0",)),
    )

    def run(self, *commands: str) -> list[str]:
        answer = self.ask(
            "POST",
            "/command-api",
            {
                "jsonrpc": "2.0",
                "method": "runCmds",
                "id": "test",
                "params": {"version": 1, "format": "text", "cmds": ["enable", *commands]},
            },
        )
        if "error" in answer:
            if "No such file" in json.dumps(answer["error"]):
                return ["nothing is saved yet"]
            raise AssertionError(f"{self.name}: {answer['error']}")
        return [part["output"] for part in answer["result"][1:]]

    def state(self) -> Any:
        def lines(text: str) -> list[str]:
            return [line for line in text.splitlines() if not line.startswith("!")]

        return [
            lines(self.run(command)[0])
            for command in ("show running-config", "show startup-config")
        ]

    def keeps_the_contract(self) -> None:
        for lines in self.state():
            text = "\n".join([*lines, ""])
            assert f"qos profile {NAME}" in text
            for port in ("Ethernet1/1", "Ethernet64/1"):
                (block,) = re.findall(rf"^interface {port}\n((?: .*\n)+)", text, re.MULTILINE)
                assert f"service-profile {NAME}" in block and f"mtu {MTU}" in block
            assert "priority-flow-control priority 3 no-drop" in text

    def operate(self) -> None:
        self.run(
            "configure",
            "vlan 100",
            "name theirs",
            "exit",
            "interface Ethernet1/1",
            "description theirs",
            "exit",
            "qos profile THEIRS",
            "exit",
            "end",
        )
        self.run("copy running-config startup-config")

    def operators(self) -> Any:
        lines = [line.strip() for line in self.run("show running-config")[0].splitlines()]
        return [line for line in lines if "theirs" in line.lower() or "vlan" in line]

    def put(self, change: tuple[str, ...]) -> None:
        self.run("configure", *change, "end")


SYSTEMS = {"sonic": Sonic, "nvue": Nvue, "eos": Eos}
SWITCH_FAULTS = [
    Fault(f"{name} ({system})", "fabric", check, leaf, repr(change))
    for leaf, (system, kind) in zip(("leaf01", "leaf02", "leaf03"), SYSTEMS.items())
    for name, check, change in kind.FAULTS
]
"""Faults of the leaves, which VirtualSwitch.drift injects."""


def switch(nodes: Nodes, name: str) -> VirtualSwitch:
    return SYSTEMS[nodes.of(name)["cluster_system"]](nodes, name)

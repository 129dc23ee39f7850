# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Cumulus Linux switch in memory: its answers, revisions with states, and faults on demand."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import httpx
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import switch
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.reading import Present
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.tree import (
    put,
    uniform,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

Tree = dict[str, Any]
PASSWORD = "a-word-of-the-test"


def group(kind: str, first: int, last: int, peer: str, speed: int = 800) -> Tree:
    names = [f"swp{number}" for number in range(first, last + 1)]
    return {
        "kind": kind,
        "peer_interface": "rail0",
        "speed_gbps": speed,
        "mtu": 1280,
        "rail": 0,
        "plane": 0,
        "prefix": 31,
        "address": None,
        "peers": {name: f"{peer}{place:02}" for place, name in enumerate(names, 1)},
        "addresses": {},
    }


def intent(
    contract: Mapping[str, Any] | None = None,
    ports: int = 4,
    role: str = "leaf",
    asic: str = "spectrum4",
) -> system.SwitchIntent:
    """A leaf with half of its ports to nodes, or a spine."""
    half = ports // 2
    groups = (
        [group("host", 1, half, "node"), group("uplink", half + 1, ports, "spine")]
        if role == "leaf"
        else [group("downlink", 1, ports, "leaf")]
    )
    contract = read_contract(contract or {})
    return system.compile_switch(f"{role}01", "nvue", asic, {}, groups, contract)


def merged(tree: Tree, patch: Mapping[str, Any]) -> Tree:
    """Merge a PATCH as NVUE does: null removes a key, and empty objects disappear."""
    result = dict(tree)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and value:
            inner = merged(result.get(key) or {}, value)
            result.pop(key, None)
            if inner:
                result[key] = inner
        else:
            result[key] = copy.deepcopy(value)
    return result


def factory_qos(new: bool = False) -> Tree:
    return {
        "roce": {"state": "disabled"} if new else {"enable": "off"},
        "congestion-control": {
            "default-global": {
                "traffic-class": {
                    "0": {
                        "ecn": "enabled" if new else "enable",
                        "red": "disabled" if new else "disable",
                        "min-threshold": 150000,
                        "max-threshold": 1500000,
                        "probability": 100,
                    }
                }
            }
        },
        "egress-queue-mapping": {
            "default-global": {
                "switch-priority": {str(one): {"traffic-class": one} for one in range(8)}
            }
        },
        "mapping": {"default-global": {"trust": "l2", "port-default-sp": 0}},
        "traffic-pool": {"default-lossy": {"switch-priority": {str(one): {} for one in range(8)}}},
    }


def interfaces(ports: int, config: Tree | None = None) -> Tree:
    listed = (config or {}).get("interface", {})
    return {
        f"swp{number}": {
            "type": "swp",
            "link": {
                "mtu": listed.get(f"swp{number}", {}).get("link", {}).get("mtu", 9216),
                "speed": "800G",
                "oper-status": "up",
                "state": {"up": {}},
            },
            "lldp": {
                "neighbor": {
                    f"node{number:02}": {
                        "age": "12",
                        "chassis": {"system-name": f"node{number:02}"},
                        "port": {"name": "rail0", "type": "ifname"},
                    }
                }
            },
        }
        for number in range(1, ports + 1)
    }


def present(config: Tree, ports: int = 4, release: str = "5.12.0", new: bool = False) -> Present:
    return Present(
        version=f"Cumulus Linux {release}",
        explicit={"qos": uniform(config.get("qos")), "interface": config.get("interface", {})},
        filled_qos=merged(factory_qos(new), config.get("qos", {})),
        ports=interfaces(ports, config),
    )


class Problem(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class FakeNvue:
    """Answers requests. Each read of a revision advances its apply by one state."""

    def __init__(self, ports: int = 4, config: Tree | None = None, auto_save: bool = True) -> None:
        self.ports = ports
        self.auto_save = auto_save
        self.configs: dict[str, Tree] = {"1": copy.deepcopy(config or {})}
        self.startup: Tree = copy.deepcopy(config or {})
        self.states: dict[str, str] = {"1": "applied_and_saved"}
        self.issues: dict[str, str] = {}
        self.applied = "1"
        self.before = "1"
        self.asked: list[tuple[str, str, Any]] = []
        self.ends: str = ""
        """End state of the next apply; `ays` asks first."""
        self.silent: list[str] = []
        """`METHOD path` of requests without an answer, each once."""
        self.deaf: list[str] = []
        """The same, but the request does not arrive either."""
        self.refuses: dict[str, int] = {}
        """Status by `METHOD path`, each once."""
        self.refuses_operational = False
        """Refused requests; only those without a revision."""
        self.lies: dict[str, tuple[tuple[str, ...], Any]] = {}
        """By `METHOD path [revision]`: a path in the answer, and its value."""
        self.shows_startup = True
        self.waits = "confirm"
        self.slow = 2
        """Reads of a revision until it advances."""
        self.now = 0.0
        self._left: dict[str, int] = {}
        self._confirm: dict[str, int] = {}

    def login(self, **more: Any) -> system.SwitchLogin:
        return system.SwitchLogin("192.0.2.7", user="ops", password=PASSWORD, timeout_s=2, **more)

    def switch(self) -> switch.NvueSwitch:
        transport = httpx.MockTransport(self._handle)
        return switch.NvueSwitch(self.login(), transport, self._sleep, lambda: self.now)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def config(self) -> Tree:
        return self.configs[self.applied]

    @property
    def made(self) -> list[str]:
        return [path for method, path, _body in self.asked if method == "POST"]

    def time_out(self) -> None:
        for name, state in self.states.items():
            if state == self.waits:
                self._undo(name)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.path
        output = f"{request.method} {path}"
        if output in self.deaf:
            self.deaf.remove(output)
            raise httpx.ReadError("cut", request=request)
        spared = self.refuses_operational and "rev" in request.url.params
        if output in self.refuses and not spared:
            return httpx.Response(self.refuses.pop(output), json={"detail": "not today"})
        self.asked.append((request.method, path, body))
        self.now += 0.01
        try:
            answer = self._answer(request.method, path, dict(request.url.params), body)
        except Problem as problem:
            return httpx.Response(problem.status, json={"detail": str(problem)})
        revision = request.url.params.get("rev")
        listed = f"{output} {revision}" if revision else output
        if listed in self.lies:
            place, value = self.lies[listed]
            answer = copy.deepcopy({"": answer})
            put(answer, ("", *place), value)
            answer = answer[""]
        if output in self.silent:
            self.silent.remove(output)
            raise httpx.ReadError("cut", request=request)
        return httpx.Response(204 if answer is None else 200, json=answer)

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        place = unquote(path).removeprefix("/nvue_v1/").strip("/")
        if place.startswith("revision"):
            return self._revision(method, place[len("revision/") :], body)
        if method == "PATCH" and not place:
            name = query["rev"]
            if self.states[name] != "pending":
                raise Problem(400, "not pending")
            self.configs[name] = merged(self.configs[name], body)
            return body
        if place == "system":
            return {"build": "Cumulus Linux 5.12.0", "hostname": "leaf01"}
        if place == "qos" and "rev" in query:
            return merged(factory_qos(), self.config.get("qos", {}))
        if place == "qos":
            return self.config.get("qos", {})
        if place == "interface":
            return interfaces(self.ports, self.config)
        if not place:
            return self._written(query["rev"])
        raise Problem(404, "no such object")

    def _written(self, name: str) -> Tree:
        if name == "startup" and self.shows_startup:
            return self.startup
        if name == "applied":
            return self.config
        if name not in self.configs:
            raise Problem(404, "no such revision")
        return self.configs[name]

    def _revision(self, method: str, name: str, body: Any) -> Any:
        if method == "POST":
            name = str(len(self.configs) + 1)
            self.configs[name], self.states[name] = copy.deepcopy(self.config), "pending"
            return {name: self._shown(name)}
        if not name:
            return {one: self._shown(one) for one in self.states}
        if method == "DELETE":
            del self.states[name]
            return None
        name = self.applied if name == "applied" else name
        if method == "PATCH":
            self._tell(name, body)
        else:
            self._get_on(name)
        return self._shown(name)

    def _shown(self, name: str) -> Tree:
        issue = self.issues.get(name)
        return {
            "state": self.states[name],
            "transition": {
                "issue": {"0": {"code": "x", "message": issue}} if issue else {},
                "progress": "",
            },
        }

    def _tell(self, name: str, body: Tree) -> None:
        wanted, state = body["state"], self.states[name]
        answer = body.get("auto-prompt", {}).get("confirm")
        if answer and state == "confirm":
            self._tell(name, {"state": answer})
        elif state == "ays" == self.waits and self.applied == name:
            if body.get("auto-prompt", {}).get("ays", wanted) == "ays_yes":
                self._settle(name)
            else:
                self._undo(name)
        elif wanted == "apply":
            self.states[name] = "apply"
            self._left[name] = self.slow
            self._confirm[name] = body.get("state-controls", {}).get("confirm", 0)
        elif wanted == "ays_yes" and state == "ays":
            self.states[name], self.ends = "apply", ""
        elif wanted == "confirm_yes" and state == "confirm":
            self._settle(name)
        elif wanted == "confirm_no" and state == "confirm":
            self._undo(name)
        elif wanted == "save":
            self.startup = copy.deepcopy(self.config)
            self.states[name] = "applied_and_saved"
        else:
            raise Problem(400, f"{state} cannot become {wanted}")

    def _get_on(self, name: str) -> None:
        if self.states[name] != "apply":
            return
        self._left[name] -= 1
        if self._left[name] > 0:
            return
        if self.ends:
            self.states[name] = self.ends
            self.issues[name] = "the hardware says no"
            if self.ends != "ays":
                self.ends = ""
            return
        self.before, self.applied = self.applied, name
        if self._confirm[name]:
            self.states[name] = self.waits
        else:
            self._settle(name)

    def _settle(self, name: str) -> None:
        self.states[name] = "applied"
        if self.auto_save:
            self.startup = copy.deepcopy(self.configs[name])
            self.states[name] = "applied_and_saved"

    def _undo(self, name: str) -> None:
        self.states[name] = "confirm_fail"
        self.applied = self.before

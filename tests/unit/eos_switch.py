# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small EOS for unit tests: a configuration, sessions on it, a commit timer, eAPI around them.

Written from EOS's documented behaviour, not from the code under test: it decides independently what
a line sets and what a running-config looks like.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Optional

import httpx

MODES = (
    r"interface \S+",
    r"qos profile \S+",
    r"(uc-)?tx-queue \d",
    r"platform trident mmu queue profile \S+",
    r"interface defaults",
    r"vlan \d+",
    r"router bgp \d+",
)
WITH_VALUE = (
    "hostname",
    "description",
    "mtu",
    "service-profile",
    "qos trust",
    "qos cos",
    "qos dscp",
    "shape rate",
    "service-policy type qos input",
    "bandwidth percent",
    "random-detect ecn minimum-threshold",
    "priority-flow-control priority 0",
    "priority-flow-control priority 1",
    "priority-flow-control priority 2",
    "priority-flow-control priority 3",
    "priority-flow-control priority 4",
    "priority-flow-control priority 5",
    "priority-flow-control pause watchdog default timeout",
    "priority-flow-control pause watchdog default recovery-time",
    "priority-flow-control pause watchdog default polling-interval",
    "priority-flow-control pause watchdog action",
    "priority-flow-control pause watchdog",
    "priority-flow-control",
    "priority",
    "ip address",
    "ingress headroom",
    "ingress threshold",
)

Tree = dict[str, Any]
"""Lines with nested lines. The maps of the switch are at the top, under two keys."""

DSCPS, CLASSES = "dscps", "classes"
DEFAULT_DSCPS = [1] * 8 + [0] * 8 + [place // 8 for place in range(16, 64)]


class Refusal(Exception):
    pass


def empty() -> Tree:
    return {DSCPS: [str(number) for number in DEFAULT_DSCPS], CLASSES: list(range(8))}


def key_of(line: str) -> str:
    return next((words for words in WITH_VALUE if f"{line} ".startswith(f"{words} ")), line)


class Mode:
    """The mode of the command line: the configuration, or nested blocks."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.blocks: list[Tree] = [tree]

    def type(self, line: str) -> None:
        if line == "exit":
            if len(self.blocks) == 1:
                raise Refusal("not in a block")
            self.blocks.pop()
            return
        if line.startswith(("qos map", "no qos map", "interface ", "qos profile ", "platform ")):
            self.blocks = [self.tree]
        if line.startswith("qos map "):
            self._map(line)
        elif line.startswith("no qos map traffic-class "):
            number = int(line.split()[4])
            self.tree[CLASSES][number] = number
        elif line.startswith(("no ", "default ")):
            self._take_out(line.partition(" ")[2], line.startswith("no "))
        else:
            self._put(line)

    def _map(self, line: str) -> None:
        words = re.fullmatch(r"qos map (dscp|traffic-class) ([\d ]+) to (\S+) (.+)", line)
        if not words:
            raise Refusal(f"Invalid input: {line}")
        for number in map(int, words[2].split()):
            if words[1] == "dscp":
                self.tree[DSCPS][number] = words[4]
            elif words[3] in ("tx-queue", "uc-tx-queue") and number != 7:
                self.tree[CLASSES][number] = int(words[4])
            else:
                raise Refusal(f"Invalid input: {line}")

    def _put(self, line: str) -> None:
        here = self.blocks[-1]
        if any(re.fullmatch(mode, line) for mode in MODES):
            self.blocks.append(here.setdefault(line, {}))
            return
        self._forget(key_of(line))
        here[line] = None

    def _take_out(self, line: str, negated: bool) -> None:
        here = self.blocks[-1]
        if line in here and isinstance(here[line], dict):
            del here[line]
            return
        self._forget(key_of(line))
        if negated and line in ("priority", "qos trust", "switchport"):
            here[f"no {line}"] = None

    def _forget(self, key: str) -> None:
        here = self.blocks[-1]
        for line in list(here):
            bare = line[3:] if line.startswith("no ") else line
            if line not in (DSCPS, CLASSES) and here[line] is None and key_of(bare) == key:
                del here[line]


def show(tree: Tree, grouped: bool = True, defaults: bool = False) -> str:
    """As `show running-config` prints it: without defaults, unless `defaults`."""
    lines = ["! Command: show running-config", "! device: leaf01 (DCS-7060X6-64PE)", "!"]
    together: dict[str, list[int]] = {}
    for dscp, target in enumerate(tree[DSCPS]):
        if defaults or target != str(DEFAULT_DSCPS[dscp]):
            together.setdefault(target if grouped else f"{target} {dscp}", []).append(dscp)
    for target, dscps in together.items():
        words = target if grouped else " ".join(target.split()[:-1])
        lines.append(f"qos map dscp {' '.join(map(str, dscps))} to traffic-class {words}")
    for number, queue in enumerate(tree[CLASSES]):
        if number != queue or (defaults and number != 7):
            lines.append(f"qos map traffic-class {number} to tx-queue {queue}")
    own = {line: below for line, below in tree.items() if line not in (DSCPS, CLASSES)}
    lines += _shown(own, "", defaults)
    return "\n".join([*lines, "!", "end", ""])


def _shown(tree: Tree, indent: str, defaults: bool) -> list[str]:
    lines = []
    for line, below in tree.items():
        if below is None:
            if defaults or line not in ("priority strict", "mtu 1500"):
                lines.append(indent + line)
        elif below or not line.startswith(("interface", "tx-", "uc-")):
            lines += [f"{indent}!", indent + line, *_shown(below, indent + "   ", defaults)]
    return lines


def typed(tree: Tree, lines: list[str]) -> Tree:
    after = copy.deepcopy(tree)
    mode = Mode(after)
    for line in lines:
        mode.type(line)
    return after


class FakeEos:
    def __init__(self, running: Optional[Tree] = None, ports: int = 2, old: bool = False) -> None:
        self.running = running if running is not None else empty()
        self.startup = copy.deepcopy(self.running)
        self.sessions: dict[str, str] = {}
        self.candidates: dict[str, Tree] = {}
        self.timer: Optional[tuple[str, Tree]] = None
        self.old = old
        """Before 4.32 the session itself shows that its timer runs."""
        self.ports = [f"Ethernet{number}/1" for number in range(1, ports + 1)]
        self.calls: list[list[str]] = []
        self.faults: set[str] = set()
        self.queue = "tx-queue"
        self.lies: dict[str, Any] = {}

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def timer_ends(self) -> None:
        if self.timer:
            self.running = self.timer[1]
            self.sessions[self.timer[0]] = "aborted"
            self.timer = None

    def typed(self, prefix: str) -> list[str]:
        return [line for call in self.calls for line in call if line.startswith(prefix)]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        commands, form = body["params"]["cmds"], body["params"]["format"]
        self.calls.append(commands)
        results: list[Any] = []
        if "dead" in self.faults:
            raise httpx.ConnectTimeout("dead")
        self.session = ""
        self.mode: Optional[Mode] = None
        for command in commands:
            try:
                result = self._run(command)
            except Refusal as refusal:
                error = {
                    "code": 1002,
                    "message": f"CLI command {len(results) + 1} of {len(commands)} '{command}' "
                    "failed: invalid command",
                    "data": [*results, {"errors": [str(refusal)]}],
                }
                return self._json({"jsonrpc": "2.0", "id": body["id"], "error": error})
            text = isinstance(result, str)
            answer = {"output": result if text else ""} if form == "text" else result or {}
            results.append(self.lies.get(command, answer))
        lost = {"lost after commit timer": "commit timer", "lost after confirm": " commit"}
        for fault, word in lost.items():
            if fault in self.faults and any(word in command for command in commands[1:]):
                self.faults.discard(fault)
                raise httpx.ReadTimeout("cut")
        return self._json({"jsonrpc": "2.0", "id": body["id"], "result": results})

    def _json(self, value: Any) -> httpx.Response:
        return httpx.Response(200, json=value)

    def _run(self, command: str) -> Any:
        words = command.split()
        if command.startswith("configure session "):
            return self._configure(words)
        if self.mode is not None:
            return self._in_session(command, words)
        if command == "copy running-config startup-config":
            if "full" in self.faults:
                return "Error copying system:/running-config (No space left on device)"
            self.startup = copy.deepcopy(self.running)
            return "Copy completed successfully."
        return self._shown(command)

    def _shown(self, command: str) -> Any:
        if command == "show running-config":
            return show(self.running)
        if command == "show startup-config":
            return show(self.startup)
        if command == "show running-config all | include tx-queue":
            return "".join(f"   {self.queue} {number}\n" for number in range(8))
        if command == "show version":
            return {"modelName": "simulation", "version": "4.33.1F"}
        if command == "show interfaces status":
            return {
                "interfaceStatuses": {
                    port: {"linkStatus": "connected", "bandwidth": 800 * 10**9}
                    for port in self.ports
                }
            }
        if command == "show lldp neighbors":
            if "no lldp" in self.faults:
                raise Refusal("LLDP is not enabled")
            heard = {"port": "Ethernet1/1", "neighborDevice": "b8ce.f6aa.bb01"}
            return {"lldpNeighbors": [{**heard, "neighborPort": "B8CE.F6AA.BB01", "ttl": 120}]}
        if command == "show configuration sessions detail":
            return self._sessions()
        if command == "enable" and "no enable" not in self.faults:
            return {}
        raise Refusal(f"Invalid input ({command})")

    def _sessions(self) -> dict[str, Any]:
        sessions = {name: {"state": state} for name, state in self.sessions.items()}
        answer: dict[str, Any] = {"sessions": sessions, "maxOpenSessions": 5}
        if self.timer and self.old:
            sessions[self.timer[0]]["state"] = "pendingCommitTimer"
        elif self.timer:
            answer["commitTimerSessionName"] = self.timer[0]
        return answer

    def _configure(self, words: list[str]) -> Any:
        name, act = words[2], words[3] if len(words) > 3 else ""
        if act == "abort" and "ignores abort" in self.faults:
            return {}
        if act == "abort":
            if self.timer and self.timer[0] == name:
                self.timer_ends()
            elif self.sessions.get(name) == "pending":
                self.sessions[name] = "aborted"
            else:
                raise Refusal(f"Cannot abort session {name}")
        elif act == "commit":
            if "timer ends at confirm" in self.faults:
                self.timer_ends()
                return {}
            if not self.timer or self.timer[0] != name:
                raise Refusal(f"Cannot commit session {name}")
            if "confirm lost" not in self.faults:
                self.timer = None
        else:
            self.sessions[name] = "pending"
            self.session = name
            self.candidates[name] = copy.deepcopy(self.running)
            self.mode = Mode(self.candidates[name])
        return {}

    def _in_session(self, command: str, words: list[str]) -> Any:
        if command == "show session-config diffs":
            return ""
        if command.startswith("commit"):
            if "refuses commit" in self.faults:
                raise Refusal("Commit failed: not enough hardware resources")
            if self.timer:
                raise Refusal("a commit timer runs")
            former, self.running = self.running, self.candidates[self.session]
            self.sessions[self.session] = "committed"
            self.timer = (self.session, former) if "timer" in words else None
            self.mode = None
            return ""
        if "refuses service-profile" in self.faults and command.startswith("service-profile"):
            raise Refusal(f"Invalid input (at token 0: '{words[0]}')")
        if "ignores mtu" in self.faults and command.startswith("mtu"):
            return ""
        assert self.mode is not None
        self.mode.type(command)
        return ""

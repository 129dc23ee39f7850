# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What virtual nodes of both kinds share: arguments, what to do, waiting for SSH, the result."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError

from .inventory import VirtualError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "management": {"type": "dict", "default": {}},
    "login_key": {"type": "str", "default": "", "no_log": False},
    "directory": {"type": "str", "default": ""},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
"""Of the modules that make nodes. Described in plugins/doc_fragments/virtual.py."""
LOGIN_USER = "ops"
"""Unprivileged account of the images that may sudo."""
PARALLEL = 8
POLL_S = 0.2
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"


class Reachable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...


@dataclass(frozen=True)
class Found:
    """A container or machine as it is; without specification it can only be removed."""

    name: str
    specification: str
    running: bool


@dataclass(frozen=True)
class Work:
    remove: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        steps = (("remove", self.remove), ("create", self.create), ("start", self.start))
        return [f"{verb} {name}" for verb, names in steps for name in names]


def plan_work(wanted: Mapping[str, str], found: Sequence[Found]) -> Work:
    """Compare the wanted specifications, by name, with what is there."""
    there = {each.name: each for each in found}
    same = {name for name in wanted if name in there and there[name].specification == wanted[name]}
    return Work(
        remove=tuple(name for name in there if name not in same),
        create=tuple(name for name in wanted if name not in same),
        start=tuple(name for name in wanted if name in same and not there[name].running),
    )


class Hosts(ABC):
    """The containers, or the machines, of one cluster on this host."""

    kind: ClassVar[str]
    asked: ClassVar[tuple[str, ...]] = ("systemctl", "is-system-running")

    def __init__(self, cluster: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.cluster = cluster
        self.sleep = sleep

    @abstractmethod
    def found(self) -> list[Found]: ...

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def inside(self, name: str, argv: Sequence[str]) -> str:
        """What a program prints that runs in a node. Raises CommandError."""

    @abstractmethod
    def remark(self, name: str) -> str:
        """Where the cause is found when a node does not come up."""

    def ended(self, name: str) -> bool:
        """Whether waiting for it is of no use."""
        return False

    def wait(self, nodes: Sequence[Reachable], timeout_s: float) -> dict[str, str]:
        """Each node's public host key, once systemd is `running` and sshd answers on all."""
        deadline = time.monotonic() + timeout_s
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = list(pool.map(lambda node: self._ready(node, deadline), nodes))
        bad = [problem for _key, problem in found if problem]
        if bad:
            raise VirtualError(f"not all {self.kind} came up:\n  " + "\n  ".join(bad))
        return {node.name: key for node, (key, _problem) in zip(nodes, found)}

    def _ready(self, node: Reachable, deadline: float) -> tuple[str, str]:
        """The host key and what is wrong, one of them empty."""
        state = ""
        while True:
            state = self._ask(node, *self.asked) or state
            if state == "degraded":
                failed = ("systemctl", "list-units", "--failed", "--plain", "--no-legend")
                listed = self._ask(node, *failed).splitlines()
                units = ", ".join(line.split()[0] for line in listed) or "unknown"
                problem = f"{node.name}: systemd is degraded, failed: {units}"
                return "", f"{problem}. {self.remark(node.name)}"
            # Not before: a node without its address answers nothing, for as long as is waited.
            if state == "running" and answers_ssh(node.address):
                key = self._ask(node, "cat", HOST_KEY)
                if key:
                    return " ".join(key.split()[:2]), ""
            ended = self.ended(node.name)
            if ended or time.monotonic() > deadline:
                return "", (
                    f"{node.name}: {'ended' if ended else 'no time left'}; systemd: "
                    f"{state or 'no answer'}; sshd at {node.address}: "
                    f"{'answers' if answers_ssh(node.address) else 'no answer'}. "
                    f"{self.remark(node.name)}"
                )
            self.sleep(POLL_S)

    def _ask(self, node: Reachable, *argv: str) -> str:
        try:
            return self.inside(node.name, argv).strip()
        except CommandError:
            return ""


def answers_ssh(address: str, timeout_s: float = 2.0) -> bool:
    """Whether an SSH server greets at this address."""
    try:
        with socket.create_connection((address, 22), timeout=timeout_s) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def login_files(
    nodes: Iterable[Reachable], keys: Mapping[str, str], directory: str
) -> dict[str, str]:
    """Host keys, and an SSH configuration for `ssh -F`, as they lie in the directory."""
    known = "".join(f"{node.address},{node.name} {keys[node.name]}\n" for node in nodes)
    config = "".join(
        f"Host {node.name}\n  HostName {node.address}\n  HostKeyAlias {node.name}\n"
        f"  User {LOGIN_USER}\n  IdentityFile {directory}/id_ed25519\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {directory}/known_hosts\n"
        "  StrictHostKeyChecking yes\n"
        for node in nodes
    )
    return {"known_hosts": known, "ssh_config": config}


def diff(header: str, lines: Iterable[str]) -> dict[str, str]:
    """What is done, a line for each action."""
    after = "".join(f"{line}\n" for line in lines)
    return {"before_header": header, "after_header": header, "before": "", "after": after}


class Module(checks.Module, Protocol):
    """What of AnsibleModule is needed here."""

    params: dict[str, Any]
    check_mode: bool


def act(module: Module, hosts: Hosts, present: Callable[[], dict[str, Any]]) -> NoReturn:
    """Have the hosts as `present` makes them, or absent; return actions and seconds."""
    started = time.monotonic()
    name = f"{hosts.kind} of {hosts.cluster}"
    try:
        if module.params["state"] == "present":
            result = present()
        else:
            names = [each.name for each in hosts.found()]
            result = {"actions": [f"remove {one}" for one in names]}
            if not module.check_mode:
                hosts.remove(names)
    except (CommandError, VirtualError) as error:
        module.fail_json(msg=f"{name}: {error}")
    module.exit_json(
        changed=bool(result["actions"]),
        diff=diff(name, result["actions"]),
        seconds=round(time.monotonic() - started, 1),
        **result,
    )

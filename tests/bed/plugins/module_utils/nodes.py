# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Code shared by containers and machines: arguments, planning, waiting for SSH, results."""

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
"""Arguments of the modules that create nodes. Documented in plugins/doc_fragments/virtual.py."""
LOGIN_USER = "ops"
"""Unprivileged account of the images, with sudo."""
PARALLEL = 8
POLL_S = 0.2
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"


class Reachable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...


@dataclass(frozen=True)
class ExistingHost:
    """Actual container or machine. Without a specification it can only be removed."""

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


def plan_work(desired: Mapping[str, str], found: Sequence[ExistingHost]) -> Work:
    """Compare the desired specifications, by name, with the actual nodes."""
    actual = {host.name: host for host in found}
    same = {
        name for name in desired if name in actual and actual[name].specification == desired[name]
    }
    return Work(
        remove=tuple(name for name in actual if name not in same),
        create=tuple(name for name in desired if name not in same),
        start=tuple(name for name in desired if name in same and not actual[name].running),
    )


class Hosts(ABC):
    """The containers, or the machines, of one cluster on this host."""

    kind: ClassVar[str]
    asked: ClassVar[tuple[str, ...]] = ("systemctl", "is-system-running")

    def __init__(self, cluster: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.cluster = cluster
        self.sleep = sleep

    @abstractmethod
    def found(self) -> list[ExistingHost]: ...

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def inside(self, name: str, argv: Sequence[str]) -> str:
        """Return the output of a program run inside a node. Raises CommandError."""

    @abstractmethod
    def remark(self, name: str) -> str:
        """Return where to look if a node does not come up."""

    def terminated(self, name: str) -> bool:
        """Return whether waiting for the node is pointless."""
        return False

    def wait(self, nodes: Sequence[Reachable], timeout_s: float) -> dict[str, str]:
        """Wait until all nodes are up, and return their public host keys.

        A node is up when systemd is `running` and sshd responds. Raises VirtualError, listing every
        node that is not up in time.
        """
        deadline = time.monotonic() + timeout_s
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = list(pool.map(lambda node: self._ready(node, deadline), nodes))
        bad = [problem for _key, problem in found if problem]
        if bad:
            raise VirtualError(f"not all {self.kind} came up:\n  " + "\n  ".join(bad))
        return {node.name: key for node, (key, _problem) in zip(nodes, found)}

    def _ready(self, node: Reachable, deadline: float) -> tuple[str, str]:
        """Return the host key and the problem; one of them is empty."""
        state = ""
        while True:
            state = self._ask(node, *self.asked) or state
            if state == "degraded":
                failed = ("systemctl", "list-units", "--failed", "--plain", "--no-legend")
                listed = self._ask(node, *failed).splitlines()
                units = ", ".join(line.split()[0] for line in listed) or "unknown"
                problem = f"{node.name}: systemd is degraded, failed: {units}"
                return "", f"{problem}. {self.remark(node.name)}"
            # Only then: a node without its address would not respond until the timeout.
            if state == "running" and answers_ssh(node.address):
                key = self._ask(node, "cat", HOST_KEY)
                if key:
                    return " ".join(key.split()[:2]), ""
            terminated = self.terminated(node.name)
            if terminated or time.monotonic() > deadline:
                return "", (
                    f"{node.name}: {'terminated' if terminated else 'not up in time'}; systemd: "
                    f"{state or 'no response'}; sshd at {node.address}: "
                    f"{'responds' if answers_ssh(node.address) else 'no response'}. "
                    f"{self.remark(node.name)}"
                )
            self.sleep(POLL_S)

    def _ask(self, node: Reachable, *argv: str) -> str:
        try:
            return self.inside(node.name, argv).strip()
        except CommandError:
            return ""


def answers_ssh(address: str, timeout_s: float = 2.0) -> bool:
    """Return whether an SSH server sends its banner at this address."""
    try:
        with socket.create_connection((address, 22), timeout=timeout_s) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def login_files(
    nodes: Iterable[Reachable], keys: Mapping[str, str], directory: str
) -> dict[str, str]:
    """Return host keys and a configuration for `ssh -F`, with the directory's paths."""
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
    """Describe the actions, one per line, as a diff."""
    after = "".join(f"{line}\n" for line in lines)
    return {"before_header": header, "after_header": header, "before": "", "after": after}


class Module(checks.Module, Protocol):
    """The part of AnsibleModule that is needed here."""

    params: dict[str, Any]
    check_mode: bool


def act(module: Module, hosts: Hosts, present: Callable[[], dict[str, Any]]) -> NoReturn:
    """Bring up the hosts with `present`, or remove them, and exit with actions and seconds."""
    started = time.monotonic()
    subject = f"{hosts.kind} of {hosts.cluster}"
    try:
        if module.params["state"] == "present":
            result = present()
        else:
            names = [host.name for host in hosts.found()]
            result = {"actions": [f"remove {name}" for name in names]}
            if not module.check_mode:
                hosts.remove(names)
    except (CommandError, VirtualError) as error:
        module.fail_json(msg=f"{subject}: {error}")
    module.exit_json(
        changed=bool(result["actions"]),
        diff=diff(subject, result["actions"]),
        seconds=round(time.monotonic() - started, 1),
        **result,
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual nodes: podman containers that boot systemd and answer SSH, each in its own namespace."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from ..core.commands import CommandError, Runner
from .login import answers_ssh
from .names import node_namespace
from .work import Work

CLUSTER_LABEL = "baremetal.mpi_roce.cluster"
SPECIFICATION_LABEL = "baremetal.mpi_roce.specification"
FOLDER_LABEL = "baremetal.mpi_roce.folder"
SWITCH_FOLDER = "/etc/virtual-switch"
PARALLEL = 8
CAP_SYS_RESOURCE = 24
POLL_S = 0.2


class VirtualNodeError(Exception):
    """A node could not be made or did not come up; the text says which, why, and what to do."""


@dataclass(frozen=True)
class Settings:
    """How podman is to run every node of a cluster."""

    login_key: str
    capabilities: tuple[str, ...] = ()
    shared_memory: str = "1g"
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    interface: str
    image: str
    """Image by id, so that a rebuilt image makes a new node."""
    folder: str = ""
    """A switch's folder on this machine: its /etc/virtual-switch."""
    digest: str = ""
    """Of what is in it: other contents make a new node."""


@dataclass(frozen=True)
class Container:
    """A container as podman lists it."""

    name: str
    running: bool
    specification: str
    dead: bool = False
    """podman takes it for running and its processes are gone: it can only be removed."""


def choose_runtime(wanted: str, root: Path = Path("/")) -> Optional[str]:
    """runc where the host has cgroup v1 controllers, which crun refuses; else podman's own."""
    if wanted != "auto":
        return wanted or None
    unified = (root / "sys/fs/cgroup/cgroup.controllers").exists()
    return None if unified else "runc"


def choose_limits(wanted: Sequence[str], root: Path = Path("/")) -> list[str]:
    """podman's default limits exceed the host's; raising a limit needs CAP_SYS_RESOURCE."""
    if list(wanted) != ["auto"]:
        return list(wanted)
    if _may_raise_limits(root):
        return ["memlock=-1:-1"]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # podman lowers its own limit of processes to pid_max, and nothing below can raise it again.
    most = int((root / "proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if processes == resource.RLIM_INFINITY or processes > most:
        processes = most
    return [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]


def _may_raise_limits(root: Path) -> bool:
    for line in (root / "proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def podman_run(
    cluster: str, node: Node, settings: Settings, *, runtime: Optional[str], limits: Iterable[str]
) -> list[str]:
    """The command that makes one node."""
    name = node_namespace(cluster, node.name)
    command = ["podman"]
    if runtime:
        command += ["--runtime", runtime]
    command += [
        "run", "--detach", "--name", name, "--hostname", node.name,
        "--network", f"ns:/run/netns/{name}", "--no-hosts", "--dns", "none",
        "--systemd", "always", "--restart", "always", "--pids-limit", "0",
        "--shm-size", settings.shared_memory, "--log-driver", "none",
        "--env", f"VIRTUAL_NODE_MANAGEMENT={node.interface}",
        "--env", f"VIRTUAL_NODE_LOGIN_KEY={settings.login_key}",
        "--label", f"{CLUSTER_LABEL}={cluster}",
    ]  # fmt: skip
    if node.folder:
        command += ["--volume", f"{node.folder}:{SWITCH_FOLDER}"]
        command += ["--label", f"{FOLDER_LABEL}={node.digest}"]
    for limit in limits:
        command += ["--ulimit", limit]
    for capability in settings.capabilities:
        command += ["--cap-add", capability]
    command += [*settings.arguments, node.image]
    digest = hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]
    return [*command[:-1], "--label", f"{SPECIFICATION_LABEL}={digest}", node.image]


def specification(command: Sequence[str]) -> str:
    """The digest of everything a node was made with."""
    start = f"{SPECIFICATION_LABEL}="
    return next(word[len(start) :] for word in command if word.startswith(start))


def plan_work(commands: Mapping[str, Sequence[str]], found: Sequence[Container]) -> Work:
    """Compare what is wanted, by container name, with what is there."""
    there = {container.name: container for container in found}
    same = {
        name
        for name, command in commands.items()
        if name in there
        and there[name].specification == specification(command)
        and not there[name].dead
    }
    return Work(
        remove=tuple(name for name in there if name not in same),
        create=tuple(name for name in commands if name not in same),
        start=tuple(name for name in commands if name in same and not there[name].running),
    )


def parse_containers(text: str, root: Path = Path("/")) -> list[Container]:
    """From `podman ps --all --format json`, and what the kernel says of each."""
    found = []
    for entry in json.loads(text or "[]") or []:
        running = entry["State"] not in ("created", "configured", "exited", "stopped")
        found.append(
            Container(
                name=entry["Names"][0],
                running=running,
                specification=(entry.get("Labels") or {}).get(SPECIFICATION_LABEL, ""),
                dead=running and not _lives(entry["Pid"], entry["Id"], root),
            )
        )
    return found


def _lives(pid: int, container: str, root: Path) -> bool:
    """Whether the process is there and is this container's: process ids come round again."""
    try:
        return container in (root / f"proc/{pid}/cgroup").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


class Podman:
    """The containers of one cluster."""

    def __init__(
        self, cluster: str, run: Runner, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._cluster = cluster
        self._run = run
        self._sleep = sleep

    def containers(self) -> list[Container]:
        label = f"label={CLUSTER_LABEL}={self._cluster}"
        listed = self._run(["podman", "ps", "--all", "--filter", label, "--format", "json"])
        return parse_containers(listed.stdout)

    def image_id(self, image: str) -> str:
        """The image by its content; empty when it is not there."""
        shown = self._run(["podman", "image", "inspect", "--format", "{{.Id}}", image], check=False)
        return shown.stdout.strip() if shown.rc == 0 else ""

    def apply(self, work: Work, commands: Mapping[str, Sequence[str]]) -> None:
        if work.remove:
            self._run(["podman", "rm", "--force", "--volumes", "--time", "0", *work.remove])
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(lambda name: self._create(name, commands[name]), work.create))
        if work.start:
            self._run(["podman", "start", *work.start])

    def _create(self, name: str, command: Sequence[str]) -> None:
        made = self._run(command, check=False)
        if made.rc == 0:
            return
        if "is already in use" in made.stderr:
            # The layer of a creation that was killed, which podman lists as external only.
            self._run(["podman", "rm", "--force", "--volumes", name])
            self._run(command)
            return
        raise VirtualNodeError(f"{name}: podman run failed: {made.stderr.strip()[-1000:]}")

    def wait(self, nodes: Sequence[Node], timeout_s: float) -> dict[str, str]:
        """Each node's public host key, once systemd is `running` and sshd answers everywhere."""
        deadline = time.monotonic() + timeout_s
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = list(pool.map(lambda node: self._ready(node, deadline), nodes))
        bad = [problem for _key, problem in found if problem]
        if bad:
            raise VirtualNodeError("not every node came up:\n  " + "\n  ".join(bad))
        return {node.name: key for node, (key, _problem) in zip(nodes, found)}

    def _ready(self, node: Node, deadline: float) -> tuple[str, str]:
        """The host key and what is wrong, one of them empty."""
        container = node_namespace(self._cluster, node.name)
        state = ""
        while True:
            asked = self._inside(container, "systemctl", "is-system-running", "--wait")
            state = asked or state
            if state == "degraded":
                failed = self._inside(
                    container, "systemctl", "list-units", "--failed", "--plain", "--no-legend"
                )
                units = ", ".join(line.split()[0] for line in failed.splitlines()) or "unknown"
                return "", (
                    f"{node.name}: systemd is degraded, failed: {units}. "
                    f"See: podman exec {container} journalctl -b -u UNIT"
                )
            if state == "running" and answers_ssh(node.address):
                key = self._inside(container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
                if key:
                    return " ".join(key.split()[:2]), ""
            if time.monotonic() > deadline:
                return "", (
                    f"{node.name}: systemd says {state or 'nothing'}, sshd at {node.address} "
                    f"{'answers' if answers_ssh(node.address) else 'does not answer'}. "
                    f"See: podman logs {container}; podman exec {container} systemctl list-jobs"
                )
            self._sleep(POLL_S)

    def _inside(self, container: str, *argv: str) -> str:
        try:
            return self._run(["podman", "exec", container, *argv], check=False).stdout.strip()
        except CommandError:
            return ""

    def remove_all(self) -> tuple[str, ...]:
        names = tuple(container.name for container in self.containers())
        if names:
            self._run(["podman", "rm", "--force", "--volumes", "--time", "0", *names])
        return names

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual nodes as podman containers with systemd and SSH, each in a separate network namespace."""

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

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Runner

from .inventory import VirtualError, node_namespace
from .nodes import PARALLEL, ExistingHost, Hosts, Work

CLUSTER_LABEL = "baremetal.mpi_roce.cluster"
SPECIFICATION_LABEL = "baremetal.mpi_roce.specification"
FOLDER_LABEL = "baremetal.mpi_roce.folder"
SWITCH_FOLDER = "/etc/virtual-switch"
CAP_SYS_RESOURCE = 24


SHARED_MEMORY = "1g"
"""Size for the shared-memory transports of eight ranks."""
CAPABILITIES = (
    "SYS_ADMIN", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_PTRACE", "SYS_NICE", "SYSLOG",
    "AUDIT_WRITE", "AUDIT_CONTROL", "MKNOD",
)  # fmt: skip
"""SYS_TIME is left out on purpose: chrony in a node would adjust the host's clock."""


@dataclass(frozen=True)
class Container:
    name: str
    address: str
    interface: str
    image: str
    """Image id, so that a rebuilt image recreates the node."""
    folder: str = ""
    """Folder on this machine that a switch mounts as /etc/virtual-switch."""
    digest: str = ""
    """Digest of that folder's content; a change recreates the node."""
    release: str = ""
    """Release that the node reports, from those in the image. Empty: the image's default."""


def choose_runtime(root: Path = Path("/")) -> Optional[str]:
    """Choose runc on hosts with cgroup v1, which crun rejects; otherwise podman's default."""
    unified = (root / "sys/fs/cgroup/cgroup.controllers").exists()
    return None if unified else "runc"


def choose_limits(root: Path = Path("/")) -> list[str]:
    """Stay within the host's limits. podman's defaults are higher, which needs CAP_SYS_RESOURCE."""
    if _may_raise_limits(root):
        return ["memlock=-1:-1"]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # podman lowers its own process limit to pid_max, and no child can raise it again.
    pid_max = int((root / "proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if processes == resource.RLIM_INFINITY or processes > pid_max:
        processes = pid_max
    return [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]


def _may_raise_limits(root: Path) -> bool:
    for line in (root / "proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def podman_run(
    cluster: str, node: Container, login_key: str, *, runtime: Optional[str], limits: Iterable[str]
) -> list[str]:
    """Return the command that creates one node."""
    name = node_namespace(cluster, node.name)
    command = ["podman"]
    if runtime:
        command += ["--runtime", runtime]
    command += [
        "run", "--detach", "--name", name, "--hostname", node.name,
        "--network", f"ns:/run/netns/{name}", "--no-hosts", "--dns", "none",
        "--systemd", "always", "--restart", "always", "--pids-limit", "0",
        "--shm-size", SHARED_MEMORY, "--log-driver", "none",
        "--env", f"VIRTUAL_NODE_MANAGEMENT={node.interface}",
        "--env", f"VIRTUAL_NODE_LOGIN_KEY={login_key}",
        "--label", f"{CLUSTER_LABEL}={cluster}",
    ]  # fmt: skip
    if node.release:
        command += ["--env", f"VIRTUAL_NODE_RELEASE={node.release}"]
    if node.folder:
        command += ["--volume", f"{node.folder}:{SWITCH_FOLDER}"]
        command += ["--label", f"{FOLDER_LABEL}={node.digest}"]
    for limit in limits:
        command += ["--ulimit", limit]
    for capability in CAPABILITIES:
        command += ["--cap-add", capability]
    command += [node.image]
    digest = hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]
    return [*command[:-1], "--label", f"{SPECIFICATION_LABEL}={digest}", node.image]


def specification(command: Sequence[str]) -> str:
    """Return the digest of everything a node is created from."""
    start = f"{SPECIFICATION_LABEL}="
    return next(word[len(start) :] for word in command if word.startswith(start))


def parse_containers(text: str, root: Path = Path("/")) -> list[ExistingHost]:
    """Read containers from `podman ps --all --format json`, and their processes from the kernel.

    A container that podman reports as running, but whose processes are gone, can only be removed.
    """
    found = []
    for entry in json.loads(text or "[]") or []:
        running = entry["State"] not in ("created", "configured", "exited", "stopped")
        dead = running and not _lives(entry["Pid"], entry["Id"], root)
        specified = (entry.get("Labels") or {}).get(SPECIFICATION_LABEL, "")
        found.append(ExistingHost(entry["Names"][0], "" if dead else specified, running))
    return found


def _lives(pid: int, container: str, root: Path) -> bool:
    """Return whether the process exists and belongs to this container: process ids are reused."""
    try:
        return container in (root / f"proc/{pid}/cgroup").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


class Podman(Hosts):
    kind = "containers"
    asked = (*Hosts.asked, "--wait")

    def __init__(
        self, cluster: str, run: Runner, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(cluster, sleep)
        self._run = run

    def found(self) -> list[ExistingHost]:
        label = f"label={CLUSTER_LABEL}={self.cluster}"
        listed = self._run(["podman", "ps", "--all", "--filter", label, "--format", "json"])
        return parse_containers(listed.stdout)

    def image_id(self, image: str) -> str:
        """Return the id of an image, or an empty string if it does not exist."""
        shown = self._run(["podman", "image", "inspect", "--format", "{{.Id}}", image], check=False)
        return shown.stdout.strip() if shown.rc == 0 else ""

    def apply(self, work: Work, commands: Mapping[str, Sequence[str]]) -> None:
        self.remove(work.remove)
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(lambda name: self._create(name, commands[name]), work.create))
        if work.start:
            self._run(["podman", "start", *work.start])

    def _create(self, name: str, command: Sequence[str]) -> None:
        made = self._run(command, check=False)
        if made.rc != 0 and "is already in use" in made.stderr:
            # Layers of a killed creation, which podman lists only as external.
            self._run(["podman", "rm", "--force", "--volumes", name])
            made = self._run(command, check=False)
        if made.rc != 0:
            raise VirtualError(f"{name}: podman run failed: {made.stderr.strip()[-1000:]}")

    def inside(self, name: str, argv: Sequence[str]) -> str:
        container = node_namespace(self.cluster, name)
        return self._run(["podman", "exec", container, *argv], check=False).stdout

    def remark(self, name: str) -> str:
        container = node_namespace(self.cluster, name)
        return f"See: podman exec {container} journalctl -b; podman logs {container}"

    def remove(self, names: Sequence[str]) -> None:
        if names:
            self._run(["podman", "rm", "--force", "--volumes", "--time", "0", *names])

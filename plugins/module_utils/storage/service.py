# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's NFS server: configured, enabled, running, and listening on the desired ports.

Changes that require a restart (TCP port, version 3) are refused while clients are connected, unless
permitted: `hard` mounts wait for the grace period of 90 s. It is restarted only when the settings
file changes; otherwise a later file that overrides it would cause a restart in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from ..core import systemd
from ..core.checks import Check, compare, not_applicable
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict
from ..core.text import some
from .file_system import RDMA, FileSystem
from .units import ENABLED

UNIT = "nfs-server.service"
CONF = f"etc/nfs.conf.d/{NAME}.conf"
MODULES_FILE = f"etc/modules-load.d/{NAME}-nfs-rdma.conf"
MODULE = "rpcrdma"
MODULE_REMEDY = (
    "with DOCA-OFED install mlnx-nfsrdma-dkms of the same release (EL before DOCA 3.2: "
    "kmod-mlnx-nfsrdma), then modprobe rpcrdma"
)
OVERRIDDEN = (
    "a later file of /etc/nfs.conf.d sets another value, or the server was not restarted since: "
    f"systemctl restart {UNIT}"
)
NFSD = "proc/fs/nfsd"
NFS_PORT = 2049
THREADS = 64
"""Each serves one request at a time; four nodes with `nconnect` of 8 have dozens in flight."""
MAX_LISTED = 6
SERVICE, RUNNING, LISTENS, VERSION, LOADED = (
    "nfs_service", "nfs_threads", "nfs_listens", "nfs_version", "nfs_rdma_module"
)  # fmt: skip


@dataclass(frozen=True)
class Running:
    threads: int
    listens: frozenset[str]
    """Such as `tcp 2049` and `rdma 20049`."""
    versions: frozenset[str]
    """Such as `3`, `4`, `4.2`."""
    clients: tuple[str, ...]
    """Addresses of connected clients of version 4."""


@dataclass(frozen=True)
class NfsService:
    """Settings and state of the server. `restart` permits a restart with connected clients."""

    filesystems: Sequence[FileSystem]
    threads: int = THREADS
    restart: bool = False

    def plan(self, node: Node) -> Plan:
        conf = node.file(CONF, self._conf())
        files = [conf]
        if self._by_rdma() or node.path(MODULES_FILE).exists():
            files.append(node.file(MODULES_FILE, f"{MODULE}\n" if self._by_rdma() else None))
        if node.container:
            return Plan(files)
        steps = []
        if self._by_rdma() and not _loaded(node):
            load = node.doing("modprobe", "--", MODULE)
            steps.append(Step(f"kernel module {MODULE}", "not loaded", "loaded", load))
        before = systemd.state(node, UNIT)
        running = read(node)
        if running is None:
            # The unit remains active without threads, after `rpc.nfsd 0` or if a thread failed.
            steps.append(Step(UNIT, f"{before}, without threads", ENABLED, partial(_start, node)))
            return Plan(files, steps)
        if before != ENABLED:
            enable = partial(systemd.control, node, "enable", UNIT)
            steps.append(Step(UNIT, before, ENABLED, enable))
        # Only a start of the server applies these settings.
        missing = sorted(self._listeners() - self._by_rdma() - running.listens)
        reasons = [f"no listener on {listener}" for listener in missing]
        if self._version_3() and "3" not in running.versions:
            reasons.append("version 3 is off")
        if reasons and conf.changed:
            if running.clients and not self.restart:
                raise PlanError(
                    f"{UNIT}: {'; '.join(reasons)}, which requires a restart, with clients: "
                    f"{some(running.clients, MAX_LISTED)}. Unmount them first, or set "
                    "shared_storage_server_restart: true (they wait 90 s, and lose nothing)"
                )
            act = partial(systemd.control, node, "restart", UNIT)
            steps.append(Step(f"{UNIT}: {'; '.join(reasons)}", "running", "restarted", act))
            return Plan(files, steps)
        if running.threads != self.threads:
            set_threads = partial(_write, node, "threads", str(self.threads))
            steps.append(Step("NFS threads", str(running.threads), str(self.threads), set_threads))
        for listener in sorted(self._by_rdma() - running.listens):
            before = ", ".join(sorted(running.listens))
            act = partial(self._listen, node, listener)
            steps.append(Step("NFS listeners", before, f"{before}, {listener}", act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if node.container:
            reason = node.not_here("the kernel's NFS server is the host's")
            names = (SERVICE, RUNNING, LISTENS)
            return Verdict([not_applicable(name, ENABLED, reason, subject=UNIT) for name in names])
        pending = node.check_mode

        def check(name: str, wanted: Any, actual: Any, reason: str, subject: str = UNIT) -> Check:
            return compare(name, wanted, actual, subject=subject, check_mode=pending, reason=reason)

        state, running = systemd.state(node, UNIT), read(node)
        if running is None and state == ENABLED:
            state += ", without threads"
        checks = [check(SERVICE, ENABLED, state, f"see journalctl -b -u {UNIT}")]
        listeners = sorted(self._listeners())
        if running is None:  # one fault, reported once
            reason = f"not read: see {SERVICE}"
            checks += [not_applicable(LISTENS, port, reason, subject=UNIT) for port in listeners]
            return Verdict(checks)
        checks.append(check(RUNNING, self.threads, running.threads, "see /proc/fs/nfsd/threads"))
        current = ", ".join(sorted(running.listens)) or "nowhere"
        for listener in listeners:
            listens, by_rdma = listener in running.listens, listener in self._by_rdma()
            if not listens and by_rdma and not _loaded(node):
                reason = f"listening requires the module {MODULE}: see {LOADED}"
                checks.append(not_applicable(LISTENS, listener, reason, subject=UNIT))
                continue
            reason = "see dmesg; an RDMA device is required" if by_rdma else OVERRIDDEN
            checks.append(check(LISTENS, listener, listener if listens else current, reason))
        if self._version_3():
            versions = "3" if "3" in running.versions else ", ".join(sorted(running.versions))
            checks.append(check(VERSION, "3", versions, OVERRIDDEN))
        if self._by_rdma():
            state = "loaded" if _loaded(node) else "not loaded"
            checks.append(check(LOADED, "loaded", state, MODULE_REMEDY, MODULE))
        return Verdict(checks)

    def _port(self, rdma: bool) -> Optional[int]:
        """The port of the server, which has one. Raises PlanError."""
        ports = {x.nfs.port for x in self.filesystems if (x.nfs.transport == RDMA) == rdma}
        if len(ports) > 1:
            raise PlanError(f"one server has one port, not {', '.join(map(str, sorted(ports)))}")
        return min(ports, default=None)

    def _version_3(self) -> bool:
        return any(fs.nfs.version == "3" for fs in self.filesystems)

    def _by_rdma(self) -> frozenset[str]:
        port = self._port(rdma=True)
        return frozenset([f"rdma {port}"] if port else [])

    def _listeners(self) -> frozenset[str]:
        return self._by_rdma() | {f"tcp {self._port(rdma=False) or NFS_PORT}"}

    def _conf(self) -> str:
        tcp, rdma = self._port(rdma=False), self._port(rdma=True)
        lines = ["[nfsd]", f"threads={self.threads}"]
        lines += [f"port={tcp}"] if tcp not in (None, NFS_PORT) else []
        lines += ["vers3=y"] if self._version_3() else []
        lines += ["rdma=y", f"rdma-port={rdma}"] if rdma else []
        return "".join(f"{line}\n" for line in lines)

    def _listen(self, node: Node, listener: str) -> None:
        if _loaded(node):
            _write(node, "portlist", listener)


def read(node: Node) -> Optional[Running]:
    """Read the kernel's state; None if no server runs, whatever the state of its unit."""
    threads = (node.read(f"{NFSD}/threads") or "").strip()
    if not threads.isdigit() or threads == "0":
        return None
    ports = (node.read(f"{NFSD}/portlist") or "").split("\n")
    versions = (node.read(f"{NFSD}/versions") or "").split()
    return Running(
        int(threads),
        frozenset(line.strip() for line in ports if line.strip()),
        frozenset(word[1:] for word in versions if word.startswith("+")),
        tuple(_clients(node)),
    )


def _start(node: Node) -> None:
    """Restart rather than start, as the package may have started it with other settings."""
    systemd.control(node, "daemon-reload")  # systemd orders it after mounts of exports
    systemd.control(node, "enable", UNIT)
    systemd.control(node, "restart", UNIT)


def _clients(node: Node) -> list[str]:
    addresses = set()
    for path in node.path(f"{NFSD}/clients").glob("*/info"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # the client has disconnected
            continue
        for line in text.split("\n"):
            key, _colon, value = line.partition(":")
            if key == "address":
                addresses.add(value.strip().strip('"').rpartition(":")[0])
    return sorted(addresses)


def _loaded(node: Node) -> bool:
    return node.path(f"sys/module/{MODULE}").is_dir()


def _write(node: Node, name: str, text: str) -> None:
    """Write with a program, whose error message shows the kernel's refusal."""
    node.run(["tee", str(node.path(f"{NFSD}/{name}"))], stdin=f"{text}\n")

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's NFS server: its settings, enabled, running, and listening where clients ask.

It is not restarted under its clients for what can be changed while it runs: threads, and a further
port for RDMA. What only a start can change (the port of TCP, version 3) is refused while clients
are connected, unless a restart is allowed: with `hard` mounts nothing is lost by one, and all of
them wait for the grace period, 90 s. There is a restart only where the settings file changes: a
later file that sets something else would have it restarted by each run.
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
    "DOCA-OFED's drivers have it in a package of their own release: install mlnx-nfsrdma-dkms "
    "(EL before DOCA 3.2: kmod-mlnx-nfsrdma), then modprobe rpcrdma"
)
OVERRIDDEN = (
    "a later file of /etc/nfs.conf.d sets another value, or the server was not restarted since: "
    f"nfsconf --dump, then systemctl restart {UNIT}"
)
NFSD = "proc/fs/nfsd"
NFS_PORT = 2049
THREADS = 64
"""One serves one request at a time. The kernel's own 8 to 16 are for a few desktops: with
`nconnect` of 8 and checkpoints, four nodes alone keep some dozens of requests under way."""
SHOWN = 6
SERVICE, RUNNING, LISTENS, VERSION, LOADED = (
    "nfs_service", "nfs_threads", "nfs_listens", "nfs_version", "nfs_rdma_module"
)  # fmt: skip


@dataclass(frozen=True)
class Running:
    """The server as the kernel has it."""

    threads: int
    listens: frozenset[str]
    """`tcp 2049`, `rdma 20049`."""
    versions: frozenset[str]
    """`3`, `4`, `4.2`: those that are on."""
    clients: tuple[str, ...]
    """Addresses of those that are known: of version 4."""


@dataclass(frozen=True)
class NfsService:
    """`restart`: even under its clients."""

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
            # Its unit stays active without it: after `rpc.nfsd 0`, or where a thread failed.
            steps.append(Step(UNIT, f"{before}, without threads", ENABLED, partial(_start, node)))
            return Plan(files, steps)
        if before != ENABLED:
            steps.append(
                Step(UNIT, before, ENABLED, partial(systemd.control, node, "enable", UNIT))
            )
        why = self._only_by_start(running) if conf.changed else []
        if why:
            self._refuse_restart(why, running)
            after = "restarted: clients wait for the grace period, 90 s, and lose nothing"
            act = partial(systemd.control, node, "restart", UNIT)
            steps.append(Step(f"{UNIT}: {'; '.join(why)}", "running", after, act))
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
            why = node.not_here("the kernel's NFS server is the host's")
            names = (SERVICE, RUNNING, LISTENS)
            return Verdict([not_applicable(name, "running", why, subject=UNIT) for name in names])
        pending = node.check_mode

        def held(name: str, wanted: Any, found: Any, reason: str, subject: str = UNIT) -> Check:
            return compare(name, wanted, found, subject=subject, check_mode=pending, reason=reason)

        state, running = systemd.state(node, UNIT), read(node)
        if running is None and state == ENABLED:
            state += ", without threads"
        checks = [held(SERVICE, ENABLED, state, f"see journalctl -b -u {UNIT}")]
        listeners = sorted(self._listeners())
        if running is None:  # one fault, reported once
            why = f"not read: see {SERVICE}"
            checks += [not_applicable(LISTENS, each, why, subject=UNIT) for each in listeners]
            return Verdict(checks)
        checks.append(held(RUNNING, self.threads, running.threads, "see /proc/fs/nfsd/threads"))
        now = ", ".join(sorted(running.listens)) or "nowhere"
        for each in listeners:
            there, by_rdma = each in running.listens, each in self._by_rdma()
            if not there and by_rdma and not _loaded(node):
                why = f"nothing listens without the module {MODULE}: see {LOADED}"
                checks.append(not_applicable(LISTENS, each, why, subject=UNIT))
                continue
            why = "see dmesg; an RDMA device is needed" if by_rdma else OVERRIDDEN
            checks.append(held(LISTENS, each, each if there else now, why))
        if self._version_3():
            versions = "3" if "3" in running.versions else ", ".join(sorted(running.versions))
            checks.append(held(VERSION, "3", versions, OVERRIDDEN))
        if self._by_rdma():
            found = "loaded" if _loaded(node) else "not loaded"
            checks.append(held(LOADED, "loaded", found, MODULE_REMEDY, MODULE))
        return Verdict(checks)

    # What is wanted

    def _port(self, rdma: bool) -> Optional[int]:
        ports = sorted({x.nfs.port for x in self.filesystems if (x.nfs.transport == RDMA) == rdma})
        if len(ports) > 1:
            raise PlanError(
                f"file systems served by this host have ports {', '.join(map(str, ports))} for "
                f"{'RDMA' if rdma else 'TCP'}, and a server has one. Give them the same `port`"
            )
        return ports[0] if ports else None

    def _version_3(self) -> bool:
        return any(each.nfs.version == "3" for each in self.filesystems)

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

    # What is done

    def _listen(self, node: Node, listener: str) -> None:
        if _loaded(node):
            _write(node, "portlist", listener)

    def _only_by_start(self, running: Running) -> list[str]:
        """What of the wanted settings a server takes at its start alone, and does not have."""
        missing = sorted(self._listeners() - self._by_rdma() - running.listens)
        found = [f"{listener} is not listened on" for listener in missing]
        if self._version_3() and "3" not in running.versions:
            found.append("version 3 is off")
        return found

    def _refuse_restart(self, why: Sequence[str], running: Running) -> None:
        if self.restart or not running.clients:
            return
        raise PlanError(
            f"{UNIT}: {'; '.join(why)}, which takes a restart, and it has clients: "
            f"{some(running.clients, SHOWN)}. Their mounts wait for the grace period, 90 s, and "
            "lose nothing. Unmount them first, or set shared_storage_server_restart: true"
        )


def read(node: Node) -> Optional[Running]:
    """From the kernel. None: no server runs, whatever the state of its unit."""
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
    """Not `start`: the package may have started it meanwhile, before our settings were there."""
    systemd.control(node, "daemon-reload")  # what it is ordered after comes from the exports
    systemd.control(node, "enable", UNIT)
    systemd.control(node, "restart", UNIT)


def _clients(node: Node) -> list[str]:
    found = set()
    for path in node.path(f"{NFSD}/clients").glob("*/info"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # gone meanwhile
            continue
        for line in text.split("\n"):
            key, _colon, value = line.partition(":")
            if key == "address":
                found.add(value.strip().strip('"').rpartition(":")[0])
    return sorted(found)


def _loaded(node: Node) -> bool:
    return node.path(f"sys/module/{MODULE}").is_dir()


def _write(node: Node, name: str, text: str) -> None:
    """By a program: the kernel's answer to a write comes back as an error."""
    node.run(["tee", str(node.path(f"{NFSD}/{name}"))], stdin=f"{text}\n")

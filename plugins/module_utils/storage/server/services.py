# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's NFS server: enabled, running, and listening where clients will ask.

It is not restarted under its clients for what can be changed while it runs: threads and a further
port for RDMA are told to the kernel. What only a start can change (the port of TCP, the versions)
is refused while clients are connected, unless a restart is allowed: with `hard` mounts nothing is
lost by one, and all of them wait for the grace period, 90 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Any, Optional

from ...core import systemd
from ...core.checks import Check, compare, not_applicable
from ...core.commands import CommandError
from ...core.dataclass import dataclass
from ...core.part import NAME, Node, Plan, PlanError, Step, Verdict
from ...core.text import some
from .. import rdma_module
from . import exports_file
from .nfs_conf import THREADS, overruled
from .served import NFS_PORT, Wire

UNIT = "nfs-server.service"
ENABLED = "enabled, active"
MODULE = rdma_module.RPCRDMA
MODULE_OF = f"{rdma_module.OF_DOCA}: {' or '.join(rdma_module.INSTALL.values())}"
MODULES_FILE = f"etc/modules-load.d/{NAME}-nfs-rdma.conf"
NFSD = "proc/fs/nfsd"
SHOWN = 6
SERVICE, RUNNING, LISTENS, SPEAKS, LOADED = (
    "nfs_service", "nfs_threads", "nfs_listens", "nfs_version", "nfs_rdma_module"
)  # fmt: skip


@dataclass(frozen=True)
class Running:
    """The server as the kernel has it; None where it does not run."""

    threads: int
    listens: frozenset[str]
    """`tcp 2049`, `rdma 20049`."""
    versions: frozenset[str]
    """`3`, `4`, `4.2`: those that are on."""
    clients: tuple[str, ...]
    """Addresses of those that are known: of version 4."""


@dataclass(frozen=True)
class Services:
    """`restart`: even under its clients."""

    wire: Wire
    threads: int = THREADS
    restart: bool = False
    _not_loaded: list[str] = field(default_factory=list, init=False, compare=False, repr=False)
    """What was said when the module could not be loaded: a part of its check, and no error beside.
    The server serves TCP without it."""

    def plan(self, node: Node) -> Plan:
        rdma = bool(self.wire.rdma_ports)
        files = [node.file(MODULES_FILE, f"{MODULE}\n" if rdma else None)]
        if not rdma and not files[0].changed:
            files = []
        if node.container:
            return Plan(files)
        steps = []
        if self.wire.rdma_ports and not _loaded(node):
            load = partial(self._load, node)
            steps.append(Step(f"kernel module {MODULE}", "not loaded", "loaded", load))
        before = systemd.state(node, UNIT)
        running = read(node)
        if running is None:
            # Its unit stays active without it: after `rpc.nfsd 0`, or where a thread failed.
            steps.append(Step(UNIT, f"{before}, without threads", ENABLED, partial(_start, node)))
            return Plan(files, steps)
        if before != ENABLED:
            steps.append(Step(UNIT, before, ENABLED, partial(systemd.enable, node, UNIT)))
        why = self._only_by_start(node, running)
        if why:
            self._may_restart(why, running)
            after = "restarted: clients wait for the grace period, 90 s, and lose nothing"
            act = partial(systemd.restart, node, UNIT)
            steps.append(Step(f"{UNIT}: {'; '.join(why)}", "running", after, act))
            return Plan(files, steps)
        if running.threads != self.threads:
            tell = partial(_tell, node, "threads", str(self.threads))
            steps.append(Step("NFS threads", str(running.threads), str(self.threads), tell))
        for listener in sorted(self._listeners() - running.listens):
            if listener.startswith("tcp"):  # a later file has another, which is found
                continue
            tell = partial(self._listen, node, listener)
            before = ", ".join(sorted(running.listens))
            steps.append(Step("NFS listeners", before, f"{before}, {listener}", tell))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        listeners = sorted(self._listeners())
        if node.container:
            why = node.not_here("the kernel's NFS server is the host's")
            names = (SERVICE, RUNNING, *([LISTENS] if listeners else []))
            return Verdict([not_applicable(name, "running", why, subject=UNIT) for name in names])
        pending = node.check_mode

        def held(name: str, wanted: Any, found: Any, reason: str, subject: str = UNIT) -> Check:
            return compare(name, wanted, found, subject=subject, check_mode=pending, reason=reason)

        state = systemd.state(node, UNIT)
        checks = [held(SERVICE, ENABLED, state, f"see journalctl -b -u {UNIT}")]
        running = read(node)
        if running is None and state != ENABLED and not pending:  # one fault, told once
            why = f"not read: see {SERVICE}"
            checks += [not_applicable(LISTENS, x, why, subject=UNIT) for x in listeners]
            return Verdict(checks)
        if running is None:
            why = f"/{NFSD} tells nothing: the server does not run"
            return Verdict([*checks, *(held(LISTENS, each, "", why) for each in listeners)])
        why = "something has changed them since: see /proc/fs/nfsd/threads"
        checks.append(held(RUNNING, self.threads, running.threads, why))
        told = ", ".join(sorted(running.listens)) or "nowhere"
        for each in listeners:
            there = each in running.listens
            if not there and each in self._by_module() and not _loaded(node):
                why = f"nothing listens without the module {MODULE}: see {LOADED}"
                checks.append(not_applicable(LISTENS, each, why, subject=UNIT))
                continue
            why = "see dmesg; for RDMA an RDMA device is needed"
            checks.append(held(LISTENS, each, each if there else told, why))
        if self.wire.version_3:
            spoken = "3" if "3" in running.versions else ", ".join(sorted(running.versions))
            checks.append(held(SPEAKS, "3", spoken, ""))
        if self.wire.rdma_ports:
            found = "loaded" if _loaded(node) else "not loaded"
            why = "; ".join([*self._not_loaded, MODULE_OF])
            checks.append(held(LOADED, "loaded", found, why, MODULE))
        return Verdict(checks)

    def _listeners(self) -> frozenset[str]:
        tcp = self.wire.ports or (NFS_PORT,)
        return frozenset(f"tcp {port}" for port in tcp) | self._by_module()

    def _by_module(self) -> frozenset[str]:
        return frozenset(f"rdma {port}" for port in self.wire.rdma_ports)

    def _load(self, node: Node) -> None:
        try:
            node.run(["modprobe", "--", MODULE])
        except CommandError as error:
            self._not_loaded.append(str(error))

    def _listen(self, node: Node, listener: str) -> None:
        if listener not in self._by_module() or _loaded(node):
            _tell(node, "portlist", listener)

    def _only_by_start(self, node: Node, running: Running) -> list[str]:
        """What of the wanted settings a server takes at its start alone.

        Not what a later file of the operator's says otherwise: no start would change it.
        """
        lost = overruled(node)
        found = [
            f"{listener} is not listened on"
            for listener in sorted(self._listeners() - running.listens)
            if listener.startswith("tcp") and "port" not in lost
        ]
        if "vers3" in lost:
            return found
        if self.wire.version_3 and "3" not in running.versions:
            found.append("version 3 is off")
        if not self.wire.version_3 and "3" in running.versions and not exports_file.foreign(node):
            found.append("version 3 is on, and nobody needs it")
        return found

    def _may_restart(self, why: Sequence[str], running: Running) -> None:
        if self.restart or not running.clients:
            return
        raise PlanError(
            f"{UNIT}: {'; '.join(why)}, which takes a restart, and it has clients: "
            f"{some(running.clients, SHOWN)}. Their mounts wait for the grace period, 90 s, and "
            "lose nothing. Unmount them first, or set shared_storage_server_restart: true"
        )


def read(node: Node) -> Optional[Running]:
    """From the kernel. None: no server runs, whatever systemd thinks of its unit."""
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
    systemd.reload(node)  # what it is ordered after comes from the exports
    systemd.enable(node, UNIT)
    systemd.restart(node, UNIT)


def _clients(node: Node) -> list[str]:
    found = set()
    for path in sorted(node.path(f"{NFSD}/clients").glob("*/info")):
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


def _tell(node: Node, name: str, text: str) -> None:
    """By a program: what the kernel answers to a write has to come back as an error."""
    node.run(["tee", str(node.path(f"{NFSD}/{name}"))], stdin=f"{text}\n")

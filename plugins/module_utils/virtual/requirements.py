# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a machine needs to carry virtual nodes, what it has, and what to do about the difference."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from ..core.checks import FAILED, OK, Check
from ..core.commands import CommandError, Runner

KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
STORAGE = "var/lib/containers"
INOTIFY_PER_NODE = 10
"""inotify instances of one node's systemd and its services, generously."""
INOTIFY_PER_SWITCH = 4
MEMORY_PER_CONTAINER_MIB = 100
MEMORY_PER_SWITCH_MIB = 60
MEMORY_OF_QEMU_MIB = 150
"""What a machine takes beside its own memory; translated instructions are kept as well."""
DISK_GIB = 4

PROGRAMS = {
    "ip": "iproute2",
    "podman": "podman",
    "ssh-keygen": "openssh-client",
    "sysctl": "procps",
    "unshare": "util-linux",
}
"""Program -> the Debian and Ubuntu package that has it."""
MACHINE_PROGRAMS = {
    "mkfs.ext4": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
}


class Requirements:
    """Each method reads one thing and returns its check; none changes the machine."""

    def __init__(
        self,
        run: Runner,
        *,
        root: Path = Path("/"),
        which: Callable[[str], Optional[str]] = shutil.which,
        uid: Callable[[], int] = os.geteuid,
    ) -> None:
        self._run = run
        self._root = root
        self._which = which
        self._uid = uid

    def all(
        self,
        containers: int,
        machines: Mapping[str, Any],
        *,
        switches: int = 0,
        bootstraps: bool,
        is_up: bool = False,
    ) -> list[Check]:
        """Every check for so many containers and switches, and machines with so much memory (MiB).

        The later ones need the earlier ones to mean anything. What nodes take is theirs already
        while they are up.
        """
        first = [
            self.superuser(),
            *self.programs(bootstraps=bootstraps, machines=bool(machines), switches=bool(switches)),
        ]
        if any(check.status == FAILED for check in first):
            return first
        checks = [*first, self.namespaces(), self.interfaces(), self.podman()]
        instances = containers * INOTIFY_PER_NODE + switches * INOTIFY_PER_SWITCH
        checks.append(self.inotify(0 if is_up else instances))
        if machines:
            checks.append(self.taps())
        need = containers * MEMORY_PER_CONTAINER_MIB + switches * MEMORY_PER_SWITCH_MIB
        need += sum(int(memory) + MEMORY_OF_QEMU_MIB for memory in machines.values())
        return [*checks, self.memory(0 if is_up else need), self.disk()]

    def superuser(self) -> Check:
        uid = self._uid()
        return _check("root", "uid 0", f"uid {uid}", uid == 0, "run as root, or with sudo")

    def programs(
        self, *, bootstraps: bool, machines: bool = False, switches: bool = False
    ) -> list[Check]:
        bootstraps = bootstraps or machines
        wanted = dict(PROGRAMS)
        if machines:
            wanted.update(MACHINE_PROGRAMS)
        if switches:
            wanted["openssl"] = "openssl"
        if bootstraps:
            wanted["mmdebstrap"] = "mmdebstrap"
        if not (self._root / "sys/fs/cgroup/cgroup.controllers").exists():
            wanted["runc"] = "runc"
        checks = [
            _check(
                "program",
                "installed",
                "installed" if self._which(program) else "missing",
                bool(self._which(program)),
                f"apt-get install {package}",
                subject=program,
            )
            for program, package in wanted.items()
        ]
        if bootstraps:
            there = (self._root / KEYRING).exists()
            checks.append(
                _check(
                    "keyring",
                    "installed",
                    "installed" if there else "missing",
                    there,
                    "apt-get install debian-archive-keyring",
                    subject=f"/{KEYRING}",
                )
            )
        return checks

    def namespaces(self) -> Check:
        kinds = ("--net", "--mount", "--uts", "--ipc", "--pid")
        return self._works(
            "namespaces",
            ["unshare", *kinds, "--fork", "true"],
            "this machine (a container?) may not make namespaces: use a virtual machine or a "
            "privileged container",
        )

    def interfaces(self) -> Check:
        script = "ip link add try0 type veth peer name try1 && ip link add try2 type bridge"
        return self._works(
            "interfaces",
            ["unshare", "--net", "sh", "-c", script],
            "the kernel has no veth or bridge: modprobe veth bridge",
        )

    def taps(self) -> Check:
        return self._works(
            "taps",
            ["unshare", "--net", "ip", "tuntap", "add", "dev", "try0", "mode", "tap"],
            "machines are cabled by taps, and /dev/net/tun does not give any: modprobe tun, or "
            "give this container the device; or have containers only (virtual_nodes_kind)",
        )

    def podman(self) -> Check:
        command = ["podman", "info", "--format", "{{.Store.GraphDriverName}}"]
        return self._works("podman", command, "see what `podman info` says")

    def inotify(self, need: int) -> Check:
        """systemd in every node watches files; the kernel counts all of root's together."""
        limit = int((self._root / "proc/sys/fs/inotify/max_user_instances").read_text())
        used = self._inotify_instances()
        return _check(
            "inotify_instances",
            f"{need} free",
            f"{limit - used} free of {limit}",
            limit - used >= need,
            f"sysctl -w fs.inotify.max_user_instances={max(1024, 2 * (used + need))}, or take "
            "other virtual nodes down",
        )

    def _inotify_instances(self) -> int:
        found = 0
        for path in (self._root / "proc").glob("[0-9]*/fd/*"):
            try:
                found += str(path.readlink()) == "anon_inode:inotify"
            except OSError:
                continue
        return found

    def memory(self, need: int) -> Check:
        lines = (self._root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return _check(
            "memory",
            f"{need} MiB available",
            f"{free // 1024} MiB available",
            free // 1024 >= need,
            "describe fewer nodes in cluster.yml, or give the machine more memory",
        )

    def disk(self) -> Check:
        place = self._root / STORAGE
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free / 2**30
        return _check(
            "disk",
            f"{DISK_GIB} GiB free",
            f"{free:.1f} GiB free",
            free >= DISK_GIB,
            "make room, for example with `podman system prune`",
            subject=str(place),
        )

    def _works(self, name: str, command: Sequence[str], remedy: str) -> Check:
        try:
            self._run(command)
        except CommandError as error:
            return Check(name, "works", str(error), FAILED, reason=remedy)
        return Check(name, "works", "works", OK)


def _check(
    name: str, wanted: Any, found: Any, holds: bool, remedy: str, *, subject: str = ""
) -> Check:
    if holds:
        return Check(name, wanted, found, OK, subject)
    return Check(name, wanted, found, FAILED, subject, remedy)


def missing(checks: Iterable[Check]) -> str:
    """What is missing, one line each with the way out; empty when nothing is."""
    lines = []
    for check in checks:
        if check.status == FAILED:
            what = f"{check.name} {check.subject}".rstrip()
            lines.append(f"{what}: {check.found} (needed: {check.wanted}). {check.reason}")
    return "\n".join(lines)

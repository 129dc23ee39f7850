# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a machine needs to carry virtual nodes, what it has, and what to do about the difference."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
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


TRIALS = {
    "namespaces": (
        ("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"),
        "this machine (a container?) may not make namespaces: use a virtual machine or a "
        "privileged container",
    ),
    "interfaces": (
        (
            *("unshare", "--net", "sh", "-c"),
            "ip link add try0 type veth peer name try1 && ip link add try2 type bridge",
        ),
        "the kernel has no veth or bridge: modprobe veth bridge",
    ),
    "podman": (
        ("podman", "info", "--format", "{{.Store.GraphDriverName}}"),
        "see what `podman info` prints",
    ),
    "taps": (
        ("unshare", "--net", "ip", "tuntap", "add", "dev", "try0", "mode", "tap"),
        "machines are cabled by taps, and /dev/net/tun does not give any: modprobe tun, or "
        "give this container the device; or have containers only (virtual_nodes_kind)",
    ),
}
"""What is tried: the command, and the remedy where it fails. Taps are for machines only."""


class Requirements:
    """What this machine has; nothing is changed."""

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
        uid = self._uid()
        first = [_check("root", "uid 0", f"uid {uid}", uid == 0, "run as root, or with sudo")]
        first += self._programs(bootstraps, bool(machines), bool(switches))
        if any(check.status == FAILED for check in first):
            return first
        tried = [self._tried(name) for name in TRIALS if name != "taps" or machines]
        instances = containers * INOTIFY_PER_NODE + switches * INOTIFY_PER_SWITCH
        memory = containers * MEMORY_PER_CONTAINER_MIB + switches * MEMORY_PER_SWITCH_MIB
        memory += sum(int(each) + MEMORY_OF_QEMU_MIB for each in machines.values())
        if is_up:
            instances = memory = 0
        return [*first, *tried, self._inotify(instances), self._memory(memory), self._disk()]

    def _programs(self, bootstraps: bool, machines: bool, switches: bool) -> list[Check]:
        wanted = {**PROGRAMS, **(MACHINE_PROGRAMS if machines else {})}
        if switches:
            wanted["openssl"] = "openssl"
        if bootstraps or machines:
            wanted["mmdebstrap"] = "mmdebstrap"
        if not (self._root / "sys/fs/cgroup/cgroup.controllers").exists():
            wanted["runc"] = "runc"
        there = {program: bool(self._which(program)) for program in wanted}
        if bootstraps or machines:
            wanted[f"/{KEYRING}"] = "debian-archive-keyring"
            there[f"/{KEYRING}"] = (self._root / KEYRING).exists()
        return [
            _check(
                "program",
                "installed",
                "installed" if there[program] else "missing",
                there[program],
                f"apt-get install {package}",
                subject=program,
            )
            for program, package in wanted.items()
        ]

    def _tried(self, name: str) -> Check:
        command, remedy = TRIALS[name]
        try:
            self._run(command)
        except CommandError as error:
            return Check(name, "works", str(error), FAILED, reason=remedy)
        return Check(name, "works", "works", OK)

    def _inotify(self, need: int) -> Check:
        """systemd in every node watches files; the kernel counts all of root's together."""
        limit = int((self._root / "proc/sys/fs/inotify/max_user_instances").read_text())
        used = 0
        for path in (self._root / "proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                used += str(path.readlink()) == "anon_inode:inotify"
        return _check(
            "inotify_instances",
            f"{need} free",
            f"{limit - used} free of {limit}",
            limit - used >= need,
            f"sysctl -w fs.inotify.max_user_instances={max(1024, 2 * (used + need))}, or take "
            "other virtual nodes down",
        )

    def _memory(self, need: int) -> Check:
        lines = (self._root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return _check(
            "memory",
            f"{need} MiB available",
            f"{free // 1024} MiB available",
            free // 1024 >= need,
            "describe fewer nodes in cluster.yml, or give the machine more memory",
        )

    def _disk(self) -> Check:
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

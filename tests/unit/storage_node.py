# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts below temporary directories, whose simulated programs have effect.

`StorageNode`: systemd and the kernel keep state. `systemctl start X.mount` mounts what the unit
that systemd has loaded names, and mountinfo shows it as Linux does for NFS and bind mounts. Servers
in `dead` never answer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts as mounted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import NoAnswerError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import units
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
    Nfs,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounts import Mounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import wanted_mounts

from tests.unit.host import Host

ROOT_MOUNT = "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
FSTAB = "# <file system> <mount point>\nUUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n"
PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\n"
WAIT_S = 60
ADDRESS = "10.0.0.1"
"""Address of every server, wherever it is mounted from."""


def filesystem(name: str = "checkpoints", **given: Any) -> FileSystem:
    values: dict[str, Any] = {
        "name": name,
        "type": "nfs",
        "source": f"storage01:/srv/{name}",
        "mount": f"/mnt/{name}",
        "purpose": "checkpoints",
        **given,
    }
    return FileSystem(**values)


def served(name: str = "checkpoints", host: str = "storage01", **given: Any) -> FileSystem:
    return filesystem(name, serve=Serve(host), hosts=("compute", "storage"), **given)


class StorageHost(Host):
    layer = "storage"

    @staticmethod
    def real(words: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


class StorageNode(StorageHost):
    def __init__(self, root: Path, container: Optional[str] = None) -> None:
        super().__init__(root, container)
        self.loaded: dict[str, str] = {}
        self.active: set[str] = set()
        self.dead: set[str] = set()
        self.journal = ""
        self.reloads_fail = False
        self.number = 100
        self.write("etc/fstab", FSTAB)
        self.write("etc/passwd", PASSWD)
        self.write("proc/self/mountinfo", ROOT_MOUNT)

    # What the tests do

    def mounts(
        self,
        *filesystems: FileSystem,
        host: str = "node01",
        groups: Sequence[str] = ("compute",),
        absent: Sequence[str] = (),
        timeout_s: int = 600,
        devices: Sequence[str] = (),
    ) -> Mounts:
        wanted = wanted_mounts(filesystems, host, groups, timeout_s)
        return Mounts(wanted, absent, self.run, WAIT_S, devices)

    def settle(self, *filesystems: FileSystem, check_mode: bool = False, **given: Any) -> Outcome:
        return settle([self.mounts(*filesystems, **given)], self.node(check_mode))

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def process(self, pid: int, name: str, uid: int = 1001, **links: str) -> None:
        """`cwd`, `root`, `exe`, and others as open files."""
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(f"proc/{pid}/maps", "7f00-7f01 r-xp 00000000 08:01 12  /usr/lib/libc.so.6\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for key, target in {"cwd": "/", "root": "/", "exe": "/bin/sh", **links}.items():
            at = key if key in ("cwd", "root", "exe") else f"fd/{len(key)}"
            self.link(f"proc/{pid}/{at}", target)

    def mount(
        self,
        point: str,
        source: str,
        kind: str = "nfs4",
        options: str = "rw",
        *,
        flags: str = "rw,relatime",
        root: str = "/",
        device: str = "",
    ) -> None:
        """Mount like mount(2), on top of existing mounts."""
        table = mounted.read(self.root)
        under = [each for each in table if each.point == point]
        parent = under[-1].identity if under else 20
        self.number += 1
        line = f"{self.number} {parent} {device or f'0:{self.number}'} {escape(root)} "
        line += f"{escape(point)} {flags} shared:7 - {kind} {escape(source)} {options}"
        self.write("proc/self/mountinfo", f"{self.read('proc/self/mountinfo')}{line}\n")

    def unmount(self, point: str) -> None:
        lines = self.read("proc/self/mountinfo").splitlines(keepends=True)
        last = max(number for number, line in enumerate(lines) if line.split()[4] == point)
        self.write("proc/self/mountinfo", "".join(lines[:last] + lines[last + 1 :]))

    def reboot(self) -> None:
        """Start enabled units: automount points, but not their mounts."""
        self.write("proc/self/mountinfo", ROOT_MOUNT)
        self.loaded, self.active = {}, set()
        for link in sorted((self.root / "etc/systemd/system").glob("*.wants/*")):
            self._start_unit(link.name)

    def running(self, point: str) -> Optional[mounted.Mount]:
        return mounted.on(mounted.read(self.root), point)

    def changing(self) -> list[list[str]]:
        """Calls that change something; a started mount counts as accessed."""
        looking = (["systemctl", "show"], ["systemctl", "start"])
        programs = ("find", "journalctl")
        return [call for call in self.calls if call[:2] not in looking and call[0] not in programs]

    # The programs

    _find = staticmethod(StorageHost.real)

    def _systemctl(self, words: list[str]) -> tuple[int, str]:
        result: tuple[int, str] = getattr(self, f"_{words[1].replace('-', '_')}")(words)
        return result

    def _journalctl(self, words: list[str]) -> tuple[int, str]:
        return 0, self.journal

    def remount(self, point: str, *flags: str) -> None:
        """Change the flags of a mount, as by hand."""
        lines = self.read("proc/self/mountinfo").splitlines()
        last = max(number for number, line in enumerate(lines) if line.split()[4] == point)
        fields = lines[last].split(" ")
        fields[5] = ",".join(flags)
        lines[last] = " ".join(fields)
        self.write("proc/self/mountinfo", "\n".join(lines) + "\n")

    def _daemon_reload(self, words: list[str]) -> tuple[int, str]:
        if self.reloads_fail:
            return 1, "Failed to reload daemon: no space"
        self.loaded = {
            path.name: path.read_text()
            for path in (self.root / "etc/systemd/system").glob("*mount")
            if path.is_file()
        }
        return 0, ""

    def _text(self, unit: str) -> Optional[str]:
        """A unit as loaded by systemd, which reads unknown units on demand."""
        if unit not in self.loaded:
            path = self.root / "etc/systemd/system" / unit
            if path.is_file():
                self.loaded[unit] = path.read_text()
        return self.loaded.get(unit)

    def _show(self, words: list[str]) -> tuple[int, str]:
        unit = words[2]
        text = self._text(unit)
        path = self.root / "etc/systemd/system" / unit
        on_disk = path.read_text() if path.is_file() else None
        enabled = self._enabled(unit).is_symlink()
        state = "static" if text and "[Install]" not in text else "disabled"
        values = {
            "UnitFileState": "enabled" if enabled else state if text else "",
            "ActiveState": "active" if self._is_active(unit) else "inactive",
            "NeedDaemonReload": "no" if text == on_disk else "yes",
        }
        keys = [after for word, after in zip(words, words[1:]) if word == "-p"]
        return 0, "".join(f"{key}={values[key]}\n" for key in keys)

    def _is_active(self, unit: str) -> bool:
        text = self._text(unit) or ""
        if unit.endswith(".automount"):
            return unit in self.active
        return self.running(_value(text, "Where")) is not None

    def _enabled(self, unit: str) -> Path:
        return self.root / "etc/systemd/system/remote-fs.target.wants" / unit

    def _enable(self, words: list[str]) -> tuple[int, str]:
        for unit in [word for word in words[2:] if word != "--now"]:
            assert "[Install]" in (self._text(unit) or ""), unit
            link = self._enabled(unit)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(f"/etc/systemd/system/{unit}")
            if "--now" in words:
                rc, output = self._start_unit(unit)
                if rc:
                    return rc, output
        return 0, ""

    def _disable(self, words: list[str]) -> tuple[int, str]:
        for unit in words[2:]:
            if not (self.root / "etc/systemd/system" / unit).exists():
                return 1, f"Failed to disable unit: Unit file {unit} does not exist."
            self._enabled(unit).unlink(missing_ok=True)
        return 0, ""

    def _start(self, words: list[str]) -> tuple[int, str]:
        return max((self._start_unit(unit) for unit in words[2:]), default=(0, ""))

    def _start_unit(self, unit: str) -> tuple[int, str]:
        text = self._text(unit)
        assert text is not None, f"no unit {unit}"
        where, what = _value(text, "Where"), _value(text, "What")
        if unit.endswith(".automount"):
            if self.running(where) is not None:
                return 1, f"Path {where} is already a mount point, refusing start."
            if unit not in self.active:
                self.active.add(unit)
                self.mount(where, "systemd-1", "autofs", "rw,fd=40,direct")
            return 0, ""
        if self.running(where) is not None:
            return 0, ""
        if what in self.dead:
            raise NoAnswerError(f"systemctl start {unit}", WAIT_S)
        words = _value(text, "Options").split(",")
        flags = [word for word in words if word in ("nosuid", "nodev", "noexec", "noatime")]
        access = "" if "noatime" in flags else ",relatime"
        own = ",".join(["ro" if "ro" in words else "rw", *flags]) + access
        if _value(text, "Type") == "none":
            table = mounted.read(self.root)
            device, inside = mounted.place(table, what) or ("", "")
            below = mounted.holding(table, what)
            if not flags and below is not None:  # mount(2) copies the lower mount with its flags
                own = ",".join(below.flags)
            self.mount(where, "/dev/sda1", "ext4", "rw", flags=own, root=inside, device=device)
        else:
            self.mount(where, what, "nfs4", shown_of(words), flags=own)
        return 0, ""

    def _stop(self, words: list[str]) -> tuple[int, str]:
        for unit in words[2:]:
            text = self._text(unit)
            if text is None:  # systemd knows a mount without a unit file from mountinfo
                points = {each.point for each in mounted.read(self.root)}
                text = next(
                    (f"Where={x}" for x in points if units.unit_name(x, "mount") == unit), ""
                )
            if not text:
                continue
            where = _value(text, "Where")
            if unit.endswith(".automount"):
                assert self.running(where) is None, "systemd would detach the mount"
                if unit in self.active:
                    self.active.remove(unit)
                    self.unmount(where)
            elif self.running(where) is not None:
                self.unmount(where)
        return 0, ""


def escape(text: str) -> str:
    """Escape a path like the kernel and fstab."""
    raw = text.encode("utf-8", "surrogateescape")
    words = (b"\\%03o" % byte if byte in b" \t\n\\#" else bytes([byte]) for byte in raw)
    return b"".join(words).decode("utf-8", "surrogateescape")


def shown_of(words: Sequence[str]) -> str:
    """The options that Linux shows for an NFS mount."""
    asked = dict(word.partition("=")[::2] for word in words)
    version, port = asked.get("vers", "4.2"), asked.get("port", "2049")
    mode = "ro" if "ro" in asked else "rw"
    shown = f"{mode},vers={version},rsize=1048576,wsize=1048576,namlen=255,hard"
    shown += f",proto={asked['proto']}"
    shown += f",nconnect={asked['nconnect']}" if "nconnect" in asked else ""
    shown += f",port={port}" if port != "2049" or version == "3" else ""
    shown += f",timeo={asked['timeo']},retrans={asked['retrans']},sec=sys,clientaddr=10.0.0.11"
    return f"{shown},local_lock=none,addr={ADDRESS}"


def _value(text: str, key: str) -> str:
    lines = (line for line in text.splitlines() if line.startswith(f"{key}="))
    return next(lines, "=").partition("=")[2]


def nfs(**given: Any) -> Nfs:
    return Nfs(**given)


def found(outcome: Outcome, name: str) -> dict[str, Check]:
    return {check.subject: check for check in outcome.checks if check.name == name}


def wrong(outcome: Outcome) -> list[str]:
    """Every error and failed check, one line each."""
    checks = [check for check in outcome.checks if check.status not in (OK, NOT_APPLICABLE)]
    return [*outcome.errors, *(f"{check.status} {check.line()}" for check in checks)]


def statuses(outcome: Outcome) -> set[str]:
    return {check.status for check in outcome.checks}

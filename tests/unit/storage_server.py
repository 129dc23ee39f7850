# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host that serves file systems, on which a server's programs take effect.

exportfs reads files of exports and maintains its table; nfs-server reads nfs.conf when it starts
and writes the kernel's files; mkfs writes to a device (a file), and mounting one requires its unit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    User,
    served_by,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
    Nfs,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import server_parts

from tests.unit.storage_node import StorageHost

HOST = "storage01"
DISK = "/dev/disk/by-id/nvme-A1"
MIB = 1 << 20
NODES = ("10.140.0.11", "10.140.0.12", "10.240.0.11", "10.240.0.12")
EXPORT = re.compile(r"(/\S*)\s+([^\s(]+)\((\S*)\)")
OURS = "etc/exports.d/baremetal-mpi-roce.exports"


def system(name: str = "checkpoints", **changed: Any) -> FileSystem:
    path = changed.pop("path", f"/srv/{name}")
    serve = Serve(changed.pop("host", HOST), changed.pop("device", ""), changed.pop("format", ""))
    nfs = Nfs(
        version=changed.pop("version", "4.2"),
        transport=changed.pop("transport", "tcp"),
        port=changed.pop("port", 2049),
    )
    return FileSystem(
        name, "nfs", f"{HOST}:{path}", f"/mnt/{name}", "checkpoints", nfs=nfs, serve=serve,
        **changed,
    )  # fmt: skip


class ServerHost(StorageHost):
    def __init__(self, root: Path, container: Optional[str] = None) -> None:
        super().__init__(root, container)
        self.etab: list[str] = []
        self.units: dict[str, str] = {}
        self.accounts: dict[str, dict[str, str]] = {"passwd": {}, "group": {}}
        self.blkid: Optional[tuple[int, str]] = None
        self.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        self.write("etc/exports", "")
        (root / "srv").mkdir()

    # What tests change.

    def disk(self, name: str = "nvme1n1", link: str = DISK, size: int = 8 * MIB) -> Path:
        """A blank one."""
        path = self.root / "dev" / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(size)
        entry = self.root / link.lstrip("/")
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(f"../../{name}")
        block = self.root / "sys/class/block" / name
        (block / "holders").mkdir(parents=True)
        (block / "dev").write_text("259:1\n")
        (block / "size").write_text(f"{size // 512}\n")
        return path

    def mount(self, point: str, number: str = "259:1", source: str = "/dev/nvme1n1") -> None:
        text = self.read("proc/self/mountinfo")
        identity = 100 + text.count("\n")
        line = f"{identity} 22 {number} / {point} rw,noatime - xfs {source} rw\n"
        self.write("proc/self/mountinfo", text + line)

    def unmount(self, point: str) -> None:
        lines = self.read("proc/self/mountinfo").splitlines(keepends=True)
        self.write("proc/self/mountinfo", "".join(x for x in lines if x.split()[4] != point))

    def connected(self, *addresses: str) -> None:
        for number, address in enumerate(addresses, 1):
            text = f'clientid: 0x{number}\naddress: "{address}:823"\nname: "Linux NFSv4.2 n"\n'
            self.write(f"proc/fs/nfsd/clients/{number}/info", text)

    # What tests do.

    def settle(
        self,
        *systems: FileSystem,
        clients: Sequence[str] = NODES,
        check_mode: bool = False,
        **settings: Any,
    ) -> Outcome:
        served = served_by(HOST, systems, {each.name: clients for each in systems})
        self.accounts["passwd"]["mpi"] = f"mpi:x:{os.getuid()}:{os.getgid()}::/:/bin/sh"
        user = User("mpi", os.getuid())
        parts = server_parts(served, user, **settings)
        return settle(parts, self.node(check_mode))

    # The programs.

    def _files(self) -> dict[tuple[str, str], str]:
        """Exports in files, as table lines by directory and client."""
        found = {}
        for path in [self.root / "etc/exports", *sorted(self.root.glob("etc/exports.d/*.exports"))]:
            for each in EXPORT.finditer(path.read_text()):
                found[each[1], each[2]] = _table(each[1], each[2], each[3].split(","))
        return found

    def _exportfs(self, words: list[str]) -> tuple[int, str]:
        if words[1:] == ["-s"]:
            return 0, "".join(f"{line}\n" for line in self.etab)
        if not (self.root / "etc/exports").exists():
            return 1, "exportfs: can't open /etc/exports for reading"
        if words[1:] == ["-a"]:
            kept = [line for key, line in self._by_key().items() if key not in self._files()]
            self.etab = [*kept, *self._files().values()]
        elif words[1] == "-u":
            table = self._by_key()
            for word in words[2:]:
                host, _colon, path = word.rpartition(":")
                del table[path, host.strip("[]")]  # otherwise it could not find it to unexport
            self.etab = list(table.values())
        else:
            raise AssertionError(words)
        return 0, ""

    def _by_key(self) -> dict[tuple[str, str], str]:
        found = {}
        for line in self.etab:
            export = EXPORT.fullmatch(line)
            assert export, line
            found[export[1], export[2]] = line
        return found

    def _systemctl(self, words: list[str]) -> tuple[int, str]:
        verb, unit = words[1], words[-1]
        enabled, active = self.units.get(unit, ", inactive").split(", ")
        if verb == "show":
            enabled, active = self.units.get(words[2], ", inactive").split(", ")
            return 0, f"UnitFileState={enabled}\nActiveState={active}\n"
        if verb == "enable":
            self.units[unit] = f"enabled, {active}"
        elif verb in ("start", "restart"):
            if unit == "nfs-server.service":
                self.serve(restart=verb == "restart")
            if unit.endswith(".mount"):
                text = self.read(f"etc/systemd/system/{unit}")
                where = re.search("Where=(.*)", text)
                if where is None or not text.startswith("# Managed"):
                    return 1, "no such unit"
                (self.root / where.group(1).lstrip("/")).mkdir(parents=True, exist_ok=True)
                if f" {where.group(1)} " not in self.read("proc/self/mountinfo"):
                    self.mount(where.group(1))
                    (self.root / where.group(1).lstrip("/")).chmod(0o755)  # of the device
            self.units[unit] = f"{enabled}, active"
        elif verb != "daemon-reload":
            raise AssertionError(words)
        return 0, ""

    def serve(self, *, restart: bool = True) -> None:
        """Start the kernel's server with the current settings."""
        if (self.root / "proc/fs/nfsd/threads").exists() and not restart:
            return
        known: dict[str, str] = {}
        for path in [self.root / "etc/nfs.conf", *sorted(self.root.glob("etc/nfs.conf.d/*.conf"))]:
            if path.exists():
                known.update(re.findall(r"^([\w-]+)=(.*)$", path.read_text(), re.MULTILINE))
        self.write("proc/fs/nfsd/threads", f"{known.get('threads', '8')}\n")
        ports = [f"tcp {known.get('port', '2049')}"]
        if known.get("rdma") == "y":
            assert ["modprobe", "--", "rpcrdma"] in self.calls, "too late for this start"
            if (self.root / "sys/module/rpcrdma").is_dir():
                ports.append(f"rdma {known['rdma-port']}")
        self.write("proc/fs/nfsd/portlist", "".join(f"{line}\n" for line in ports))
        three = "-3" if known.get("vers3") == "n" else "+3"
        self.write("proc/fs/nfsd/versions", f"-2 {three} +4 -4.0 +4.1 +4.2\n")

    def _tee(self, words: list[str]) -> tuple[int, str]:
        path = Path(words[1])
        before = path.read_text() if path.name == "portlist" else ""
        path.write_text(before + self.stdin)
        return 0, self.stdin

    def _modprobe(self, words: list[str]) -> tuple[int, str]:
        (self.root / "sys/module" / words[-1]).mkdir(parents=True, exist_ok=True)
        return 0, ""

    _cmp = staticmethod(StorageHost.real)

    def _blkid(self, words: list[str]) -> tuple[int, str]:
        if self.blkid is not None:
            return self.blkid
        data = Path(words[-1]).read_bytes()
        found = re.search(rb"FS (\S+) (\S+)\n", data)
        if found is None:
            return 2, ""
        kind, label = (word.decode() for word in found.groups())
        return 0, f"DEVNAME={words[-1]}\nLABEL={label}\nTYPE={kind}\n"

    def _mkfs(self, words: list[str]) -> tuple[int, str]:
        device = Path(words[-1])
        label = words[words.index("-L") + 1]
        text = f"FS {words[0].partition('.')[2]} {label}\n"
        device.write_bytes(text.encode() + device.read_bytes()[len(text) :])
        return 0, ""

    _mkfs_xfs = _mkfs_ext4 = _mkfs

    def _getent(self, words: list[str]) -> tuple[int, str]:
        entry = self.accounts[words[1]].get(words[2])
        return (0, f"{entry}\n") if entry else (2, "")


def _table(path: str, client: str, options: Sequence[str]) -> str:
    """An export as printed by exportfs, with defaults."""
    shown = {"sync", "wdelay", "hide", "no_subtree_check", "sec=sys", "no_all_squash"}
    given = set(options)
    shown.add("ro" if "ro" in given else "rw")
    shown.add("no_root_squash" if "no_root_squash" in given else "root_squash")
    shown |= given & {"insecure", "mountpoint"}
    if "async" in given:
        shown = shown - {"sync"} | {"async"}
    return f"{path}  {client}({','.join(sorted(shown))})"

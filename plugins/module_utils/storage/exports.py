# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Serve directories over NFS: owner and mode of the directory, and the addresses that may mount it.

No component of a path may be a symbolic link: exportfs follows links, so the owner of a link would
choose the exported directory. Exports are one line per address; never names, which another service
resolves, or networks, which contain other hosts. The operator's exports are not changed. A file
system that is no longer served remains exported until it is declared absent.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Optional

from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.commands import CommandError
from ..core.files import make_directories
from ..core.mounts import on, overlap
from ..core.mounts import read as read_mounts
from ..core.part import NAME, Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from .file_system import FileSystem
from .units import serves

DIRECTORY, CHECK, LEFT = "nfs_directory", "nfs_exports", "nfs_exports_left"
FILE = f"etc/exports.d/{NAME}.exports"
EXPORTS = "etc/exports"
OPTIONS = ("rw", "sync", "no_subtree_check", "root_squash", "sec=sys")
"""`sync`: acknowledged writes survive a crash of the server. `no_subtree_check`: that check fails
for files that are renamed while open. `root_squash`: root on a node has no rights of root."""
MOUNTED = "mountpoint"
"""Export option: only while the device is mounted, never the empty mount point."""
COMPARED = frozenset((
    "rw", "ro", "sync", "async", "root_squash", "no_root_squash", "all_squash", "insecure",
    "subtree_check", "no_subtree_check", "sec=sys", MOUNTED,
))  # fmt: skip
"""Compared options. exportfs prints defaults as well, which depend on its version."""
MAX_LISTED = 6
MAX_ARGUMENTS = 1000
"""Of a command, which may have 2 MiB of them."""


@dataclass(frozen=True)
class User:
    """The MPI user, the default owner. Hosts need not have the account."""

    name: str
    uid: Optional[int] = None


@dataclass(frozen=True)
class ServedDirectory:
    """Empty `owner` and `group` mean the MPI user's. `device`, if any, is mounted first."""

    path: str
    owner: str
    group: str
    mode: str
    user: User
    device: str = ""

    def plan(self, node: Node) -> Plan:
        self._refuse_links(node)
        uid, gid = self._wanted(node)
        wanted, before = self._text(uid, gid, int(self.mode, 8)), self._actual(node)
        awaited = self.device and not node.container
        if awaited and on(read_mounts(node.root), self.path) is None:
            before = f"as it is on {self.device}"
        if before == wanted:
            return Plan()
        act = partial(self._make, node, uid, gid)
        return Plan([], [Step(self.path, before, wanted, act, essential=True)])

    def verify(self, node: Node) -> Verdict:
        wanted = self._text(*self._wanted(node), int(self.mode, 8))
        actual, check_mode = self._actual(node), node.check_mode
        check = compare(DIRECTORY, wanted, actual, subject=self.path, check_mode=check_mode)
        return Verdict([check])

    def _refuse_links(self, node: Node) -> None:
        for component in [*reversed(Path(self.path).parents), Path(self.path)][1:]:
            path = node.path(str(component))
            if path.is_symlink():
                raise PlanError(
                    f"{self.path}: {component} is a symbolic link to {path.readlink()}. Name the "
                    "directory that it points to"
                )

    def _actual(self, node: Node) -> str:
        try:
            status = node.path(self.path).lstat()
        except FileNotFoundError:
            return "no such directory"
        return self._text(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))

    @staticmethod
    def _text(uid: int, gid: int, mode: int) -> str:
        return f"owner {uid}, group {gid}, mode {mode:04o}"

    def _wanted(self, node: Node) -> tuple[int, int]:
        """Numbers of owner and group. Raises PlanError if this host does not know them."""
        owner = self.owner or self.user.name
        known = self.user.uid if owner == self.user.name else None
        entry = _entry(node, "passwd", owner)
        if entry is not None:
            uid, gid = int(entry[2]), int(entry[3])
            if known not in (None, uid):
                raise PlanError(
                    f"{self.path}: user {owner} has uid {uid} on this host and {known} in the "
                    "cluster. Use the same uid, as files belong to uids"
                )
        elif known is not None:
            uid = gid = known
        else:
            raise PlanError(f"{self.path}: user {owner!r} not found on this host")
        if self.group:
            entry = _entry(node, "group", self.group)
            if entry is None:
                raise PlanError(f"{self.path}: group {self.group!r} not found on this host")
            gid = int(entry[2])
        return uid, gid

    def _make(self, node: Node, uid: int, gid: int) -> None:
        """Set owner and mode through a handle, so that no link put in its place is followed."""
        path = node.path(self.path)
        make_directories(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)  # not accessible yet
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise StepError(f"{self.path}: {error.strerror}") from error
        try:
            status = os.fstat(handle)
            if (status.st_uid, status.st_gid) != (uid, gid):
                os.fchown(handle, uid, gid)
            os.fchmod(handle, int(self.mode, 8))  # after the owner: a change of owner clears bits
        finally:
            os.close(handle)


def _entry(node: Node, database: str, name: str) -> Optional[list[str]]:
    """An entry of the name service (files, LDAP, SSSD)."""
    result = node.look(["getent", database, name], check=False)
    fields = result.stdout.strip().split(":")
    return fields if result.rc == 0 and len(fields) > 2 else None


@dataclass(frozen=True)
class Served:
    """A served file system. `addresses` are all addresses of the hosts that mount it."""

    fs: FileSystem
    addresses: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.fs.path

    @property
    def device(self) -> str:
        return self.fs.serve.device if self.fs.serve else ""

    def lines(self, node: Node) -> list[str]:
        """Its lines in the file of exports. In a container no device is mounted."""
        mounted = [MOUNTED] if self.device and not node.container else []
        options = ",".join([*OPTIONS, *mounted])
        lines = [f"{self.path} {address}({options})" for address in self.addresses]
        return [f"# {self.fs.name}: mounted at {self.fs.mount}", *lines]


def served_by(
    host: str, filesystems: Sequence[FileSystem], clients: Mapping[str, Sequence[str]]
) -> list[Served]:
    """File systems that a host serves. `clients`: addresses of clients by file system."""
    return [Served(x, tuple(clients.get(x.name, ()))) for x in filesystems if serves(x, host)]


@dataclass(frozen=True)
class Export:
    """One directory exported to one client, with the compared options."""

    path: str
    client: str
    options: frozenset[str]

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.client

    @property
    def text(self) -> str:
        return f"{self.path} {self.client}({','.join(sorted(self.options))})"

    def reaches(self, served: Served) -> bool:
        """Whether this export gives other access to a served directory: with `no_subtree_check`,
        clients of a parent or child directory can guess file handles of the whole file system."""
        narrow = self.client in served.addresses and "no_root_squash" not in self.options
        return self.path != served.path and overlap(self.path, served.path) and not narrow


def read_exports(text: str) -> set[Export]:
    """Parse a file of exports, or the output of `exportfs -s`."""
    exports = set()
    for line in text.replace("\\\n", " ").split("\n"):
        path, *clients = line.partition("#")[0].split() or [""]
        for word in clients if path.startswith("/") else ():
            client, _bracket, options = word.rstrip(")").partition("(")
            exports.add(Export(path, client or "*", COMPARED.intersection(options.split(","))))
    return exports


def _of_operator(node: Node) -> set[Export]:
    files = sorted(node.path("etc/exports.d").glob("*.exports"))
    names = [EXPORTS, *(f"etc/exports.d/{file.name}" for file in files)]
    texts = [node.read(name) or "" for name in names if name != FILE]
    return {export for text in texts for export in read_exports(text)}


def _in_force(node: Node) -> set[Export]:
    return read_exports(node.look(["exportfs", "-s"]).stdout)


def _blocks(text: str) -> dict[str, list[str]]:
    """Parse the collection's file into lines by directory."""
    blocks: dict[str, list[str]] = {}
    heading = ""
    for line in text.split("\n"):
        if line.startswith("#"):
            heading = line
        elif line:
            blocks.setdefault(line.split()[0], [heading]).append(line)
    return blocks


@dataclass
class Exports:
    """`absent`: directories no longer served, and unmounted everywhere. Their exports are removed
    even if the file no longer lists them, which completes an interrupted run."""

    served: Sequence[Served]
    absent: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        blocks = {**self.left(node), **{share.path: share.lines(node) for share in self.served}}
        if not blocks and not self.absent and not node.path(FILE).exists():
            return Plan()
        text = "\n".join("\n".join([*lines, ""]) for _path, lines in sorted(blocks.items()))
        files = [node.file(FILE, text or None)]
        if blocks and node.read(EXPORTS) is None:  # exportfs fails without this directory
            files.append(node.record(EXPORTS, ""))
        if node.container:
            return Plan(files)
        wanted, paths = read_exports(text), {*blocks, *self.absent}
        active = set()
        with contextlib.suppress(CommandError):  # not installed yet on a new host
            active = self._ours(node, wanted, paths)
        if active == wanted and not any(file.changed for file in files):
            return Plan(files)
        before = f"{len(active & wanted)} as wanted, {len(active - wanted)} others"
        after, act = f"{len(wanted)} as wanted", partial(self._act, node, wanted, paths)
        # Essential for a removal: otherwise the device below would be unmounted.
        step = Step("exports in force", before, after, act, essential=bool(self.absent))
        return Plan(files, [step])

    def verify(self, node: Node) -> Verdict:
        checks = [self._check(node, share) for share in self.served]
        return Verdict([*checks, *map(_left, self.left(node))])

    def left(self, node: Node) -> dict[str, list[str]]:
        """Exports of formerly served file systems that are not declared absent."""
        keep = {*(share.path for share in self.served), *self.absent}
        blocks = _blocks(node.read(FILE) or "")
        return {path: lines for path, lines in blocks.items() if path not in keep}

    @staticmethod
    def _ours(node: Node, wanted: set[Export], paths: Collection[str]) -> set[Export]:
        """Active exports of these directories, except those from the operator's files."""
        kept = {x.key for x in _of_operator(node)} - {x.key for x in wanted}
        return {x for x in _in_force(node) if x.path in paths and x.key not in kept}

    def _act(self, node: Node, wanted: set[Export], paths: Collection[str]) -> None:
        """Apply the exports in batches; `exportfs -ra` would remove exports made by hand."""
        keys = {export.key for export in wanted}
        arguments = [
            f"[{x.client}]:{x.path}" if ":" in x.client else f"{x.client}:{x.path}"
            for x in self._ours(node, wanted, paths)
            if x.key not in keys
        ]
        for start in range(0, len(arguments), MAX_ARGUMENTS):
            node.run(["exportfs", "-u", *arguments[start : start + MAX_ARGUMENTS]])
        if wanted:
            node.run(["exportfs", "-a"])

    def _check(self, node: Node, share: Served) -> Check:
        promise = f"{len(share.addresses)} addresses"
        if node.container:
            reason = node.not_here("the kernel's NFS server is the host's")
            return not_applicable(CHECK, promise, reason, subject=share.path)
        try:
            active = _in_force(node)
        except CommandError as error:
            status = differs(node.check_mode)
            return Check(CHECK, promise, "unknown", status, share.path, str(error))
        known = {export.key for export in active}
        active |= {export for export in _of_operator(node) if export.key not in known}
        others = sorted(export.text for export in active if export.reaches(share))
        if others:
            reason = "other exports give access to it: remove them, and run exportfs -ra"
            return Check(CHECK, promise, some(others, MAX_LISTED), FAILED, share.path, reason)
        actual = {export for export in active if export.path == share.path}
        right = read_exports("\n".join(share.lines(node)))
        missing = sorted(export.client for export in right - actual)
        more = sorted(export.text for export in actual - right)
        result = [f"missing or with other options: {some(missing, MAX_LISTED)}"] if missing else []
        result += [f"also: {some(more, MAX_LISTED)}"] if more else []
        if not result:
            return Check(CHECK, promise, promise, OK, share.path)
        count, status = f"{len(actual & right)} of them", differs(node.check_mode)
        return Check(CHECK, promise, count, status, share.path, "; ".join(result))


def _left(path: str) -> Check:
    reason = f"unmount it on every node, then add {path} to shared_storage_absent"
    return Check(LEFT, "served, or gone", "exported, and not in the list", FAILED, path, reason)

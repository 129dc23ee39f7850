# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host serves: the directory itself, and which addresses may mount it.

Nothing in the directory is touched. No part of its path may be a symbolic link: exportfs exports
where a link leads, and the owner of the link would decide what is exported.

Exports are one line per address in a file of the collection. An address, never a name or a network:
a name is resolved by something else, and a network has more than the nodes. Exports of the
operator, in other files or in none, stay as they are. A file system that is no longer served stays
exported until it is declared absent: nodes may have it mounted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.checks import FAILED, Check, compare, differs, not_applicable
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
"""`sync`: what was acknowledged survives the server. `no_subtree_check`: the check fails for files
that are renamed while they are open. `root_squash`: root of a node has no rights of root."""
MOUNTED = "mountpoint"
"""Exported only while the device is mounted: never the empty directory below it."""
COMPARED = frozenset(
    (
        *("rw", "ro", "sync", "async", "root_squash", "no_root_squash", "all_squash", "insecure"),
        *("subtree_check", "no_subtree_check", "sec=sys", MOUNTED),
    )
)
"""exportfs prints defaults as well, which vary by version."""
SHOWN = 6
AT_ONCE = 1000
"""Words of one command: some 300 bytes each at most, of 2 MiB that the kernel takes."""


@dataclass(frozen=True)
class User:
    """The MPI user, the default owner; hosts need not know the account."""

    name: str
    uid: Optional[int] = None


@dataclass(frozen=True)
class ServedDirectory:
    """`owner` and `group`: names; empty for those of the MPI user. `device` is mounted there first,
    where one is given."""

    path: str
    owner: str
    group: str
    mode: str
    user: User
    device: str = ""

    def plan(self, node: Node) -> Plan:
        self._refuse_links(node)
        uid, gid = self._wanted(node)
        wanted, before = self._text(uid, gid, int(self.mode, 8)), self._now(node)
        awaited = self.device and not node.container
        if awaited and on(read_mounts(node.root), self.path) is None:
            before = f"as it is on {self.device}"
        if before == wanted:
            return Plan()
        act = lambda: self._make(node, uid, gid)  # noqa: E731
        return Plan([], [Step(self.path, before, wanted, act, essential=True)])

    def verify(self, node: Node) -> Verdict:
        wanted = self._text(*self._wanted(node), int(self.mode, 8))
        found, check_mode = self._now(node), node.check_mode
        return Verdict(
            [compare(DIRECTORY, wanted, found, subject=self.path, check_mode=check_mode)]
        )

    def _refuse_links(self, node: Node) -> None:
        """Raises PlanError where a part of the path is a link, or not a directory."""
        for here in [*reversed(Path(self.path).parents), Path(self.path)][1:]:
            path = node.path(str(here))
            if path.is_symlink():
                raise PlanError(
                    f"{self.path}: {here} is a symbolic link to {path.readlink()}. Write the "
                    "directory that it leads to"
                )
            if path.exists() and not path.is_dir():
                raise PlanError(f"{self.path}: {here} is not a directory. Move it away")

    def _now(self, node: Node) -> str:
        try:
            found = node.path(self.path).lstat()
        except FileNotFoundError:
            return "no such directory"
        return self._text(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))

    @staticmethod
    def _text(uid: int, gid: int, mode: int) -> str:
        return f"owner {uid}, group {gid}, mode {mode:04o}"

    def _wanted(self, node: Node) -> tuple[int, int]:
        """User and group number. Raises PlanError where this host does not have them."""
        owner = self.owner or self.user.name
        known = self.user.uid if owner == self.user.name else None
        entry = _entry(node, "passwd", owner)
        if entry is not None:
            uid, gid = int(entry[2]), int(entry[3])
            if known not in (None, uid):
                raise PlanError(
                    f"{self.path}: user {owner} has the number {uid} on this host and {known} in "
                    "the cluster: files belong to numbers. Give it the same"
                )
        elif known is not None:
            uid = gid = known
        else:
            raise self._unknown("user", owner)
        if self.group:
            entry = _entry(node, "group", self.group)
            if entry is None:
                raise self._unknown("group", self.group)
            gid = int(entry[2])
        return uid, gid

    def _unknown(self, kind: str, name: str) -> PlanError:
        return PlanError(
            f"{self.path}: {kind} {name!r} not found on this host. Make it with the number that it "
            "has on the nodes"
        )

    def _make(self, node: Node, uid: int, gid: int) -> None:
        """By a handle of the directory itself: what a link put in its place leads to is safe."""
        path = node.path(self.path)
        make_directories(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)  # not accessible yet
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise StepError(f"{self.path}: {error.strerror}") from error
        try:
            now = os.fstat(handle)
            if (now.st_uid, now.st_gid) != (uid, gid):
                os.fchown(handle, uid, gid)
            os.fchmod(handle, int(self.mode, 8))  # after the owner: a change of owner clears bits
        finally:
            os.close(handle)


def _entry(node: Node, database: str, name: str) -> Optional[list[str]]:
    """As the name service has it: files, LDAP, SSSD alike."""
    result = node.look(["getent", database, name], check=False)
    words = result.stdout.strip().split(":")
    return words if result.rc == 0 and len(words) > 2 else None


@dataclass(frozen=True)
class Served:
    """`addresses`: all that requests of the hosts that mount it may come from."""

    fs: FileSystem
    addresses: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.fs.path

    @property
    def device(self) -> str:
        return self.fs.serve.device if self.fs.serve else ""

    def lines(self, node: Node) -> list[str]:
        """Its block of the file. In a container no device is mounted."""
        mounted = [MOUNTED] if self.device and not node.container else []
        options = ",".join([*OPTIONS, *mounted])
        return [
            f"# {self.fs.name}: mounted at {self.fs.mount}",
            *(f"{self.path} {address}({options})" for address in self.addresses),
        ]


def served_by(
    host: str, filesystems: Sequence[FileSystem], clients: Mapping[str, Sequence[str]]
) -> list[Served]:
    """What a host serves. `clients`: by file system, addresses of the hosts that mount it."""
    return [Served(x, tuple(clients.get(x.name, ()))) for x in filesystems if serves(x, host)]


@dataclass(frozen=True)
class Export:
    """One directory for one client, with the options that are compared."""

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
        """Whether a client has more of a served directory than ours have.

        A directory above or below gives all of the file system: with `no_subtree_check` a guessed
        file handle is as good as one that was given.
        """
        narrow = self.client in served.addresses and "no_root_squash" not in self.options
        return self.path != served.path and overlap(self.path, served.path) and not narrow


def read_exports(text: str) -> set[Export]:
    """Of a file of exports, or of `exportfs -s`."""
    exports = set()
    for line in text.replace("\\\n", " ").split("\n"):
        path, *clients = line.partition("#")[0].split() or [""]
        for word in clients if path.startswith("/") else ():
            client, _bracket, options = word.rstrip(")").partition("(")
            exports.add(Export(path, client or "*", COMPARED.intersection(options.split(","))))
    return exports


def _of_operator(node: Node) -> set[Export]:
    """In files of others, in force or not."""
    files = sorted(node.path("etc/exports.d").glob("*.exports"))
    names = [EXPORTS, *(f"etc/exports.d/{file.name}" for file in files)]
    texts = [node.read(name) or "" for name in names if name != FILE]
    return {each for text in texts for each in read_exports(text)}


def _in_force(node: Node) -> set[Export]:
    """Raises CommandError."""
    return read_exports(node.look(["exportfs", "-s"]).stdout)


def _blocks(text: str) -> dict[str, list[str]]:
    """Of our file: directory to its lines."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.split("\n"):
        if line.startswith("#"):
            heading = line
        elif line:
            found.setdefault(line.split()[0], [heading]).append(line)
    return found


@dataclass
class Exports:
    """`absent`: served directories that are gone for good, and unmounted everywhere. Their exports
    end whether or not the file still has them: an interrupted run is completed."""

    served: Sequence[Served]
    absent: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        blocks = {**self.left(node), **{each.path: each.lines(node) for each in self.served}}
        if not blocks and not self.absent and not node.path(FILE).exists():
            return Plan()
        unused = [each.fs.name for each in self.served if not each.addresses]
        if unused:
            raise PlanError(
                f"{', '.join(unused)}: no other host mounts it. Correct `hosts` of the file "
                "system, or remove `serve`"
            )
        text = "\n".join(
            "".join(f"{line}\n" for line in lines) for _path, lines in sorted(blocks.items())
        )
        files = [node.file(FILE, text or None)]
        if blocks and node.read(EXPORTS) is None:  # exportfs stops where it is missing
            files.append(node.record(EXPORTS, ""))
        if node.container:
            return Plan(files)
        wanted = read_exports(text)
        there = set()
        with contextlib.suppress(CommandError):  # not installed yet, as on a fresh host
            there = self._ours(node, wanted, {*blocks, *self.absent})
        if there == wanted and not any(each.changed for each in files):
            return Plan(files)
        before = f"{len(there & wanted)} as wanted, {len(there - wanted)} others"
        step = Step(
            "exports in force",
            before,
            f"{len(wanted)} as wanted",
            lambda: self._act(node, wanted, {*blocks, *self.absent}),
            essential=bool(self.absent),  # else the device below would be unmounted
        )
        return Plan(files, [step])

    def verify(self, node: Node) -> Verdict:
        checks = [self._check(node, each) for each in self.served]
        return Verdict([*checks, *map(_left, self.left(node))])

    def left(self, node: Node) -> dict[str, list[str]]:
        """Of file systems that were served here once, until they are declared absent."""
        keep = {*(each.path for each in self.served), *self.absent}
        blocks = _blocks(node.read(FILE) or "")
        return {path: lines for path, lines in blocks.items() if path not in keep}

    @staticmethod
    def _ours(node: Node, wanted: set[Export], paths: Collection[str]) -> set[Export]:
        """Exports of these directories that are in force, without those of the operator's files."""
        kept = {x.key for x in _of_operator(node)} - {x.key for x in wanted}
        return {x for x in _in_force(node) if x.path in paths and x.key not in kept}

    def _act(self, node: Node, wanted: set[Export], paths: Collection[str]) -> None:
        """Not `exportfs -ra`, which ends exports that the operator made by hand. Many at a time:
        exportfs writes all of its table again each time that it is run."""
        keys = {each.key for each in wanted}
        words = [
            f"[{x.client}]:{x.path}" if ":" in x.client else f"{x.client}:{x.path}"
            for x in self._ours(node, wanted, paths)
            if x.key not in keys
        ]
        for start in range(0, len(words), AT_ONCE):
            node.run(["exportfs", "-u", *words[start : start + AT_ONCE]])
        if wanted:
            node.run(["exportfs", "-a"])

    def _check(self, node: Node, each: Served) -> Check:
        promise = f"{len(each.addresses)} addresses"
        if node.container:
            why = node.not_here("the kernel's NFS server is the host's")
            return not_applicable(CHECK, promise, why, subject=each.path)
        try:
            found = _in_force(node)
        except CommandError as error:
            status = differs(node.check_mode)
            return Check(CHECK, promise, "unknown", status, each.path, str(error))
        known = {one.key for one in found}
        found |= {one for one in _of_operator(node) if one.key not in known}
        others = sorted(one.text for one in found if one.reaches(each))
        if others:
            reason = (
                "further exports give access to it: remove them from /etc/exports and "
                "/etc/exports.d and run exportfs -ra, or serve a directory on a file system of "
                "its own"
            )
            return Check(CHECK, promise, some(others, SHOWN), FAILED, each.path, reason)
        there = {one for one in found if one.path == each.path}
        right = read_exports("\n".join(each.lines(node)))
        missing = sorted(one.client for one in right - there)
        more = sorted(one.text for one in there - right)
        result = [f"missing or with other options: {some(missing, SHOWN)}"] if missing else []
        result += [f"besides: {some(more, SHOWN)}"] if more else []
        count = f"{len(there & right)} of them" if result else promise
        return compare(
            *(CHECK, promise, count),
            subject=each.path,
            check_mode=node.check_mode,
            reason="; ".join(result),
        )


def _left(path: str) -> Check:
    return Check(
        *(LEFT, "served, or gone", "exported, and not in the list", FAILED, path),
        "it is not served by this host any more. Nodes may have it mounted: unmount it there, then "
        f"add {path} to shared_storage_absent",
    )

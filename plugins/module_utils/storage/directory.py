# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The served directory: there, and its owner, group and mode as the file system says.

Nothing in it is touched. No part of its path may be a symbolic link: exportfs exports where a link
leads, and its owner would decide what is exported.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Optional

from ..core.checks import FAILED, Check, compare
from ..core.dataclass import dataclass
from ..core.files import make_directories
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from . import mounted

CHECK = "nfs_directory"


@dataclass(frozen=True)
class State:
    uid: int
    gid: int
    mode: int

    def __str__(self) -> str:
        return f"owner {self.uid}, group {self.gid}, mode {self.mode:04o}"


@dataclass(frozen=True)
class User:
    """The MPI user, the default owner; hosts need not know the account."""

    name: str
    uid: Optional[int] = None


@dataclass(frozen=True)
class Directory:
    """`owner` and `group`: names, or numbers; empty for those of the MPI user."""

    path: str
    owner: str
    group: str
    mode: str
    user: User
    device: str = ""
    """Mounted there first, where one is given."""

    def plan(self, node: Node) -> Plan:
        self._real(node)
        wanted = self._wanted(node)
        if self.device and not node.container:
            at = mounted.on(mounted.read(node.root), self.path)
            if at is None:
                step = self._step(node, f"as it is on {self.device}", wanted)
                return Plan([], [step])
        now = self._now(node)
        if now == wanted:
            return Plan()
        return Plan([], [self._step(node, str(now) if now else "no such directory", wanted)])

    def verify(self, node: Node) -> Verdict:
        try:
            self._real(node)
            wanted = self._wanted(node)
        except PlanError as error:
            return Verdict([Check(CHECK, "a directory", "?", FAILED, self.path, str(error))])
        now = self._now(node)
        found = str(now) if now else "no such directory"
        return Verdict(
            [compare(CHECK, str(wanted), found, subject=self.path, check_mode=node.check_mode)]
        )

    def _real(self, node: Node) -> None:
        """Raises PlanError where a part of the path is a link, or no directory."""
        here = Path("/")
        for name in Path(self.path).parts[1:]:
            here /= name
            try:
                mode = node.path(str(here)).lstat().st_mode
            except FileNotFoundError:
                return
            if stat.S_ISLNK(mode):
                target = node.path(str(here)).readlink()
                raise PlanError(
                    f"{self.path}: {here} is a symbolic link to {target}. Write the directory "
                    "that it leads to"
                )
            if not stat.S_ISDIR(mode):
                raise PlanError(f"{self.path}: {here} is there, and is no directory. Move it away")

    def _now(self, node: Node) -> Optional[State]:
        try:
            found = node.path(self.path).lstat()
        except FileNotFoundError:
            return None
        return State(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))

    def _wanted(self, node: Node) -> State:
        uid, gid = self._account(node)
        return State(uid, self._group(node) if self.group else gid, int(self.mode, 8))

    def _account(self, node: Node) -> tuple[int, int]:
        """User and group number of the owner."""
        owner = self.owner or self.user.name
        entry = _entry(node, "passwd", owner)
        if entry is not None:
            uid, gid = int(entry[2]), int(entry[3])
            if owner == self.user.name and self.user.uid not in (None, uid):
                raise PlanError(
                    f"{self.path}: user {owner} has the number {uid} on this host and "
                    f"{self.user.uid} in the cluster: files belong to numbers. Give it the same"
                )
            return uid, gid
        if owner.isdigit():
            return int(owner), int(owner)
        if owner == self.user.name and self.user.uid is not None:
            return self.user.uid, self.user.uid
        raise PlanError(
            f"{self.path}: this host knows no user {owner!r}. Make the account, with the number it "
            "has on the nodes, or write that number as `owner`"
        )

    def _group(self, node: Node) -> int:
        entry = _entry(node, "group", self.group)
        if entry is not None:
            return int(entry[2])
        if self.group.isdigit():
            return int(self.group)
        raise PlanError(
            f"{self.path}: this host knows no group {self.group!r}. Make it, with the number it "
            "has on the nodes, or write that number as `group`"
        )

    def _step(self, node: Node, before: str, wanted: State) -> Step:
        return Step(
            self.path, before, str(wanted), lambda: self._make(node, wanted), essential=True
        )

    def _make(self, node: Node, wanted: State) -> None:
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
            if (now.st_uid, now.st_gid) != (wanted.uid, wanted.gid):
                os.fchown(handle, wanted.uid, wanted.gid)
            os.fchmod(handle, wanted.mode)  # after the owner: a change of owner clears bits
        finally:
            os.close(handle)


def _entry(node: Node, database: str, name: str) -> Optional[list[str]]:
    """As the name service has it: files, LDAP, SSSD alike."""
    result = node.look(["getent", database, name], check=False)
    words = result.stdout.strip().split(":")
    return words if result.rc == 0 and len(words) > 2 else None

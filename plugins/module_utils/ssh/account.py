# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The account of the MPI user on a node. An existing one is not altered."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core.checks import compare
from ..core.part import Node, Plan, PlanError, Step, Verdict

NO_LOGIN = ("nologin", "false")


def find(user: str) -> Optional[pwd.struct_passwd]:
    """The account as the name service knows it (files, LDAP, SSSD alike)."""
    found: Optional[pwd.struct_passwd] = _entry(pwd.getpwnam, user)
    return found


def _entry(look: Callable[[Any], Any], key: object) -> Any:
    try:
        return look(key)
    except KeyError:
        return None


@dataclass(frozen=True)
class UserPart:
    """The account, with the same number on every node: files on shared storage have numbers."""

    user: str
    uid: Optional[int]
    shell: str

    def plan(self, node: Node) -> Plan:
        commands = self.commands()

        def act() -> None:
            for argv in commands:
                node.run(argv)

        shown = "\n".join(map(" ".join, commands))
        step = Step(f"account {self.user}", "incomplete", shown, act, essential=True)
        return Plan(steps=[step] if commands else [])

    def commands(self) -> list[list[str]]:
        """What makes the account, in order; none when it exists."""
        user, uid = self.user, self.uid
        there = find(user)
        if there is not None:
            if uid is not None and there.pw_uid != uid:
                raise PlanError(
                    f"user {user} has uid {there.pw_uid} here; wanted {uid} on every node: set"
                    f" cluster_mpi_uid to {there.pw_uid} if that is its number on all of them, or"
                    " change the number by hand (with the owner of its files)"
                )
            # A useradd that was killed leaves an account without its home. The helper leaves
            # what is there, and gives it to its user last.
            if not home_missing(there):
                return []
            home, owner = there.pw_dir, f"{there.pw_uid}:{there.pw_gid}"
            return [["mkhomedir_helper", user, "0027"], ["chown", owner, home]]
        taken = None if uid is None else _entry(pwd.getpwuid, uid)
        if taken:
            raise PlanError(
                f"uid {uid} for {user} belongs to {taken.pw_name} here: set cluster_mpi_uid to a"
                " number that is free on every node"
            )
        steps = []
        if _entry(grp.getgrnam, user) is None:
            number = [] if uid is None or _entry(grp.getgrgid, uid) else ["--gid", str(uid)]
            steps.append(["groupadd", *number, user])
        # The password "*" admits none; the default "!" also means a locked account to some sshd.
        number = [] if uid is None else ["--uid", str(uid)]
        rest = ["--shell", self.shell, "--password", "*", "--comment", "MPI jobs", user]
        steps.append(["useradd", *number, "--gid", user, "--create-home", *rest])
        return steps

    def verify(self, node: Node) -> Verdict:
        found, subject, mode = find(self.user), self.user, node.check_mode
        if found is None:
            return Verdict([compare("account", self.uid, None, subject=subject, check_mode=mode)])
        uid = found.pw_uid if self.uid is None else self.uid
        runs = "one that runs commands"
        shell = found.pw_shell if Path(found.pw_shell).name in NO_LOGIN else runs
        remedy = f"usermod --shell /bin/bash {self.user}"
        return Verdict(
            [
                compare("account", uid, found.pw_uid, subject=subject, check_mode=mode),
                compare("login_shell", runs, shell, subject=subject, reason=remedy),
            ]
        )


def home_missing(account: pwd.struct_passwd) -> bool:
    """Whether an account of this node itself has no home, where there is a place for it."""
    lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    local = any(line.startswith(f"{account.pw_name}:") for line in lines)
    home = Path(account.pw_dir)
    if not local or not home.parent.is_dir():
        return False
    # One owned by root was left by a helper that was killed.
    return not home.exists() or home.stat().st_uid == 0 != account.pw_uid

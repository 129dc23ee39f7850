# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The account of the MPI user on a node. An existing one is not altered."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core import mounts
from ..core.checks import FAILED, Check, compare
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..storage import bounded
from .keys import DAY, standing

SHADOW = "/etc/shadow"
VALID = "not expired"
ANSWER_S = 10.0
"""For a home, whose server may be dead."""
NO_LOGIN = ("nologin", "false")
PRIVILEGED = ("root", "sudo", "wheel", "docker")
"""Groups whose members are root, or become it."""


def find(user: str) -> Optional[pwd.struct_passwd]:
    """The account as the name service knows it (files, LDAP, SSSD alike)."""
    found: Optional[pwd.struct_passwd] = _entry(pwd.getpwnam, user)
    return found


def rights_of(user: pwd.struct_passwd) -> Callable[[], None]:
    """Takes the rights of an account, in a child process of root."""

    def take() -> None:
        if os.geteuid() == 0:
            there = find(user.pw_name) is not None
            os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid) if there else [])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

    return take


def unanswered(path: str, root: Path = Path("/")) -> tuple[str, str]:
    """What a path on a file system that does not answer is reported as, and what to do."""
    mount = mounts.holding(mounts.read(root), path)
    text, source, point = (mount.text, mount.source, mount.point) if mount else (path, path, path)
    step = f"look at the server of {source}: ping, nfsstat -m; or unmount it: umount -l {point}"
    return f"no answer within {ANSWER_S:g} s: {text} at {point}", step


def groups_and_shell(user: str) -> tuple[list[str], str]:
    """Names of the groups of an account, and its shell; those of a new one where there is none."""
    there = find(user)
    if there is None:
        return [user], "/bin/bash"
    gids = os.getgrouplist(user, there.pw_gid)
    groups = [each.gr_name for each in (_entry(grp.getgrgid, gid) for gid in gids) if each]
    return groups, there.pw_shell


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
        why = privileged(user, uid, there)
        if why:
            raise PlanError(
                f"user {user} is {why} here: each node would log in with these rights on all"
                " others. Set cluster_mpi_user to an account for jobs alone"
            )
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
        checks = [
            compare("account", uid, found.pw_uid, subject=subject, check_mode=mode),
            compare("login_shell", runs, shell, subject=subject, reason=remedy),
        ]
        lines = (node.read(SHADOW) or "").splitlines()
        for line in (line for line in lines if line.startswith(f"{subject}:")):
            why, remedy = barred(line, int(time.time() // DAY))
            now = why or VALID
            checks.append(compare("account_expiry", VALID, now, subject=subject, reason=remedy))
        return Verdict([*checks, *home_checks(found, mode)])


def privileged(user: str, uid: Optional[int], there: Optional[pwd.struct_passwd]) -> str:
    """What makes this account root, or lets it become root; empty for others."""
    if 0 in (uid, there and there.pw_uid):
        return "uid 0"
    groups = [] if there is None else groups_and_shell(user)[0]
    found = [name for name in groups if name in PRIVILEGED]
    return f"a member of {', '.join(found)}" if found else ""


def barred(line: str, today: int) -> tuple[str, str]:
    """Why sshd admits no login by this line of /etc/shadow, and the remedy; empty where it does.

    As pam_unix judges it, of a login by key as well: shadow(5).
    """
    user, *fields = [*line.split(":"), *[""] * 8]
    numbers = [int(each) if each.isdigit() else None for each in fields]
    changed, longest, expires = numbers[1], numbers[3], numbers[6]
    if expires is not None and today >= expires:
        return f"expired on {_date(expires)}", f"chage -E -1 {user}"
    if changed == 0 or (changed and longest is not None and today > changed + longest):
        due = _date(changed + (longest or 0)) if changed else "the next login"
        return f"a new password was due on {due}", f"chage -M -1 -d {_date(today)} {user}"
    return "", ""


def _date(day: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(day * DAY))


def is_local(account: pwd.struct_passwd) -> bool:
    """Whether the account is of this node itself; the home of another may be on a dead server."""
    lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.startswith(f"{account.pw_name}:") for line in lines)


def answers(path: Path) -> bool:
    """Whether a path can be asked at all: who asks a dead server waits for ever."""
    return bounded.within(ANSWER_S, lambda report: report({"there": path.exists()})).answered


def home_missing(account: pwd.struct_passwd) -> bool:
    """Whether an account of this node itself has no home, where there is a place for it."""
    home = Path(account.pw_dir)
    if not is_local(account) or not answers(home) or not home.parent.is_dir():
        return False
    # One owned by root was left by a helper that was killed.
    return not home.exists() or home.stat().st_uid == 0 != account.pw_uid


def home_checks(account: pwd.struct_passwd, check_mode: bool) -> list[Check]:
    """Another user that can write to it decides what the MPI user's shell and ssh do."""
    home, subject = Path(account.pw_dir), account.pw_dir
    wanted = f"owner {account.pw_uid}, writable by no other"
    if not is_local(account):
        return []
    if not answers(home):
        silence, step = unanswered(subject)
        return [Check("home", wanted, silence, FAILED, subject, step, by_hand=step)]
    found = standing(home)
    if home_missing(account):
        return [compare("home", wanted, found, subject=subject, check_mode=check_mode)]
    if found is None:
        return []
    status = home.stat()
    others = 0o002 if status.st_gid == account.pw_gid else 0o022
    private = status.st_uid == account.pw_uid and not status.st_mode & others
    remedy = f"chown {account.pw_name} {home}; chmod go-w {home}"
    return [compare("home", wanted, wanted if private else found, subject=subject, reason=remedy)]

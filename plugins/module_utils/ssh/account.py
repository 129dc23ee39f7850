# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The account of the MPI user on a node: created if missing, otherwise only checked."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core import bounded, mounts
from ..core.checks import FAILED, Check, compare
from ..core.messages import message
from ..core.part import Node, Plan, PlanError, Step, Verdict
from .keys import DAY, standing

SHADOW = "/etc/shadow"
VALID = "not expired"
ANSWER_S = 10.0
"""Seconds for accessing a home, whose server may be dead."""
NO_LOGIN = ("nologin", "false")
PRIVILEGED = ("root", "sudo", "wheel", "docker")
"""Groups whose members are root or can become root."""


def find(user: str) -> Optional[pwd.struct_passwd]:
    """Look up an account in the name service (files, LDAP, SSSD)."""
    entry: Optional[pwd.struct_passwd] = _entry(pwd.getpwnam, user)
    return entry


def rights_of(user: pwd.struct_passwd) -> Callable[[], None]:
    """Return a function that drops root's privileges for those of an account."""

    def take() -> None:
        if os.geteuid() == 0:
            known = find(user.pw_name) is not None
            os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid) if known else [])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

    return take


def unanswered(path: str, root: Path = Path("/")) -> tuple[str, str]:
    """Finding and remedy for a path on a file system that does not respond."""
    mount = mounts.holding(mounts.read(root), path)
    text, source, point = (mount.text, mount.source, mount.point) if mount else (path, path, path)
    step = f"check the server of {source}: ping, nfsstat -m; or unmount it: umount -l {point}"
    return f"no answer within {ANSWER_S:g} s: {text} at {point}", step


def groups_of(user: str) -> list[str]:
    """Group names of an account, or those that a new account gets."""
    account = find(user)
    if account is None:
        return [user]
    gids = os.getgrouplist(user, account.pw_gid)
    return [entry.gr_name for gid in gids if (entry := _entry(grp.getgrgid, gid))]


def _entry(lookup: Callable[[Any], Any], key: object) -> Any:
    try:
        return lookup(key)
    except KeyError:
        return None


@dataclass(frozen=True)
class UserPart:
    """The account, with the same uid on every node, as files on shared storage belong to uids."""

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
        """Commands that create a missing account. Raises PlanError for an unsafe account."""
        user, uid = self.user, self.uid
        account = find(user)
        privilege = privileged(user, uid, account)
        if privilege:
            raise PlanError(
                message(
                    "ssh_user_privileged",
                    "user {user} is {privilege} here: each node would log in with these rights on"
                    " all others. Set cluster_mpi_user to an account that only runs jobs",
                    user=user,
                    privilege=privilege,
                )
            )
        if account is not None:
            if uid is not None and account.pw_uid != uid:
                raise PlanError(
                    message(
                        "ssh_uid_differs",
                        "user {user} has uid {actual} here; wanted {desired} on every node: set"
                        " cluster_mpi_uid to {actual} if all nodes use it, or change the uid by"
                        " hand (with the owner of its files)",
                        user=user,
                        actual=account.pw_uid,
                        desired=uid,
                    )
                )
            # A killed useradd leaves an account without its home. The helper preserves existing
            # files, and changes the owner last.
            if not home_missing(account):
                return []
            home, owner = account.pw_dir, f"{account.pw_uid}:{account.pw_gid}"
            return [["mkhomedir_helper", user, "0027"], ["chown", owner, home]]
        number = [] if uid is None else ["--uid", str(uid)]
        group = "--user-group" if _entry(grp.getgrnam, user) is None else f"--gid={user}"
        # The password "*" permits no password login. With the default "!", some sshd treat the
        # account as locked.
        rest = ["--shell", self.shell, "--password", "*", "--comment", "MPI jobs", user]
        return [["useradd", *number, group, "--create-home", *rest]]

    def verify(self, node: Node) -> Verdict:
        account, subject, mode = find(self.user), self.user, node.check_mode
        if account is None:
            return Verdict([compare("account", self.uid, None, subject=subject, check_mode=mode)])
        uid = account.pw_uid if self.uid is None else self.uid
        usable = "one that runs commands"
        shell = account.pw_shell if Path(account.pw_shell).name in NO_LOGIN else usable
        remedy = f"usermod --shell /bin/bash {self.user}"
        checks = [
            compare("account", uid, account.pw_uid, subject=subject, check_mode=mode),
            compare("login_shell", usable, shell, subject=subject, reason=remedy),
        ]
        # pam_unix refuses an expired account, even for logins with a key: shadow(5).
        for line in (node.read(SHADOW) or "").splitlines():
            name, *fields = line.split(":")
            if name == subject:
                day = fields[6] if len(fields) > 6 else ""
                barred = day.isdigit() and time.time() >= int(day) * DAY
                date = time.strftime("%Y-%m-%d", time.gmtime(int(day) * DAY)) if barred else ""
                actual = f"expired on {date}" if barred else VALID
                reason = f"chage -E -1 {subject}"
                expiry = compare("account_expiry", VALID, actual, subject=subject, reason=reason)
                checks.append(expiry)
        return Verdict([*checks, *home_checks(account, mode)])


def privileged(user: str, uid: Optional[int], account: Optional[pwd.struct_passwd]) -> str:
    """Why the account counts as root or can become root; empty for other accounts."""
    if 0 in (uid, account and account.pw_uid):
        return "uid 0"
    listed = [name for name in groups_of(user) if name in PRIVILEGED]
    return f"a member of {', '.join(listed)}" if account and listed else ""


def is_local(account: pwd.struct_passwd) -> bool:
    """Whether the account is in /etc/passwd. The home of any other may be on a dead server."""
    lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.startswith(f"{account.pw_name}:") for line in lines)


def answers(path: Path) -> bool:
    """Whether a path can be accessed at all: access to a dead server never returns."""
    return bounded.within(ANSWER_S, lambda report: report({"there": path.exists()})).answered


def home_missing(account: pwd.struct_passwd) -> bool:
    """Whether a local account has no home although the parent directory exists."""
    home = Path(account.pw_dir)
    if not is_local(account) or not answers(home) or not home.parent.is_dir():
        return False
    # A killed helper leaves a home owned by root.
    return not home.exists() or home.stat().st_uid == 0 != account.pw_uid


def home_checks(account: pwd.struct_passwd, check_mode: bool) -> list[Check]:
    """Check the owner and mode: other writers would control the MPI user's shell and ssh."""
    home, subject = Path(account.pw_dir), account.pw_dir
    wanted = f"owner {account.pw_uid}, writable by no other"
    if not is_local(account):
        return []
    if not answers(home):
        reason, step = unanswered(subject)
        return [Check("home", wanted, reason, FAILED, subject, step, by_hand=step)]
    if home_missing(account):
        actual = standing(home)
        return [compare("home", wanted, actual, subject=subject, check_mode=check_mode)]
    if not home.exists():  # its file system is not mounted
        return []
    status = home.stat()
    others = 0o002 if status.st_gid == account.pw_gid else 0o022
    private = status.st_uid == account.pw_uid and not status.st_mode & others
    actual = wanted if private else standing(home)
    remedy = f"chown {account.pw_name} {home}; chmod go-w {home}"
    return [compare("home", wanted, actual, subject=subject, reason=remedy)]

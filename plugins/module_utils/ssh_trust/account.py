# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI user's account on a node: made when it is missing, never altered when it is there."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ..checks import Check, compare
from ..commands import Runner, run
from ..dataclass import dataclass

NO_LOGIN = ("nologin", "false")


class AccountError(Exception):
    """The account cannot be as wanted; the text says what stands in the way."""


@dataclass(frozen=True)
class Account:
    """An account as the name service knows it (files, LDAP, SSSD alike)."""

    name: str
    uid: int
    gid: int
    home: Path
    shell: str


def find(user: str) -> Optional[Account]:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(user, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir), entry.pw_shell)


def groups(account: Account) -> list[str]:
    """Names of the groups the account is in; one that has no name is left out."""
    names = []
    for gid in os.getgrouplist(account.name, account.gid):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return names


def commands(user: str, uid: Optional[int], shell: str) -> list[list[str]]:
    """What makes the account, in order; none when it is there.

    Raises AccountError when the number is somebody else's: files on shared storage belong to
    numbers, so the user must have the same one everywhere.
    """
    there = find(user)
    if there is not None:
        if uid is not None and there.uid != uid:
            raise AccountError(
                f"user {user} has uid {there.uid} here and is to have {uid} on every node: set"
                f" cluster_mpi_uid to {there.uid} if that holds on all of them, or free the name or"
                " change the number by hand (the files it owns have to follow)"
            )
        return []
    steps = []
    if uid is not None:
        try:
            taken = pwd.getpwuid(uid).pw_name
        except KeyError:
            pass
        else:
            raise AccountError(
                f"uid {uid} for {user} belongs to {taken} here: set cluster_mpi_uid to a number"
                " that is free on every node"
            )
    if _group(user) is None:
        number = [] if uid is None or _group_number_taken(uid) else ["--gid", str(uid)]
        steps.append(["groupadd", *number, user])
    # The password "*" admits none; the default "!" also means a locked account to some sshd.
    number = [] if uid is None else ["--uid", str(uid)]
    rest = ["--create-home", "--shell", shell, "--password", "*", "--comment", "MPI jobs", user]
    steps.append(["useradd", *number, "--gid", user, *rest])
    return steps


def key_readers() -> list[int]:
    """The groups that a distribution lets read the private host keys, besides root."""
    gid = _group("ssh_keys")
    return [] if gid is None else [gid]


def _group(name: str) -> Optional[int]:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _group_number_taken(gid: int) -> bool:
    try:
        grp.getgrgid(gid)
    except KeyError:
        return False
    return True


def make(steps: Sequence[Sequence[str]], user: str, runner: Runner = run) -> Account:
    """Carry the commands out and return the account."""
    for step in steps:
        runner(step)
    account = find(user)
    if account is None:
        raise AccountError(f"user {user} is still unknown after useradd: see the node's journal")
    return account


def home_missing(account: Account) -> bool:
    """Whether a home has to be made: useradd was interrupted. Never where homes are mounted."""
    local = any(
        line.startswith(f"{account.name}:")
        for line in Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    )
    return local and account.home.parent.is_dir() and not account.home.exists()


def make_home(account: Account) -> None:
    """As useradd does: the skeleton, then the owner."""
    scratch = account.home.with_name(f".{account.home.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    if Path("/etc/skel").is_dir():
        shutil.copytree("/etc/skel", scratch, symlinks=True)
    else:
        scratch.mkdir()
    for folder, _folders, files in os.walk(scratch):
        os.chown(folder, account.uid, account.gid)
        for name in files:
            os.chown(Path(folder) / name, account.uid, account.gid, follow_symlinks=False)
    scratch.chmod(0o750)
    scratch.rename(account.home)


def checks(user: str, uid: Optional[int], check_mode: bool) -> list[Check]:
    """The account as it is now."""
    found = find(user)
    if found is None:
        reason = "the account is missing"
        return [compare("account", uid, None, subject=user, check_mode=check_mode, reason=reason)]
    wanted = found.uid if uid is None else uid
    shell = Path(found.shell).name
    return [
        compare("account", wanted, found.uid, subject=user, check_mode=check_mode),
        compare(
            "login_shell",
            "one that runs commands",
            found.shell if shell in NO_LOGIN else "one that runs commands",
            subject=user,
            reason=f"give {user} a shell: usermod --shell /bin/bash {user}",
        ),
    ]

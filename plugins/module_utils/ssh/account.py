# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI user on a node: its account, what is done with its rights, its authorized_keys.

The account is made when it is missing, never altered when it is there. What lies in a user's home
is the user's: root following a symbolic link there would read or write whatever the link names,
and a home on NFS does not let root in at all.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from ..core.checks import Check, compare
from ..core.dataclass import dataclass
from ..core.files import plan_file, replace_block

NO_LOGIN = ("nologin", "false")
BLOCK = "ssh"
"""Name of the cluster's block in authorized_keys."""


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
    entry = _entry(pwd.getpwnam, user)
    if entry is None:
        return None
    return Account(user, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir), entry.pw_shell)


def _entry(look: Callable[[Any], Any], key: object) -> Any:
    try:
        return look(key)
    except KeyError:
        return None


def groups(account: Account) -> list[str]:
    """Names of the groups the account is in; one that has no name is left out."""
    found = [_entry(grp.getgrgid, gid) for gid in os.getgrouplist(account.name, account.gid)]
    return [entry.gr_name for entry in found if entry]


def key_readers() -> list[int]:
    """The groups that a distribution lets read the private host keys, besides root."""
    entry = _entry(grp.getgrnam, "ssh_keys")
    return [entry.gr_gid] if entry else []


def commands(user: str, uid: Optional[int], shell: str) -> list[list[str]]:
    """What makes the account, in order; none when it is there.

    Raises AccountError when the number belongs to another user: files on shared storage belong to
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
        # A useradd that was killed leaves an account without its home. Where homes are mounted,
        # they are not made here.
        if not home_missing(there):
            return []
        # The helper leaves what is there, and gives it to its user last.
        home = str(there.home)
        return [["mkhomedir_helper", user, "0027"], ["chown", f"{there.uid}:{there.gid}", home]]
    taken = None if uid is None else _entry(pwd.getpwuid, uid)
    if taken:
        raise AccountError(
            f"uid {uid} for {user} belongs to {taken.pw_name} here: set cluster_mpi_uid to a number"
            " that is free on every node"
        )
    steps = []
    if _entry(grp.getgrnam, user) is None:
        number = [] if uid is None or _entry(grp.getgrgid, uid) else ["--gid", str(uid)]
        steps.append(["groupadd", *number, user])
    # The password "*" admits none; the default "!" also means a locked account to some sshd.
    number = [] if uid is None else ["--uid", str(uid)]
    rest = ["--create-home", "--shell", shell, "--password", "*", "--comment", "MPI jobs", user]
    steps.append(["useradd", *number, "--gid", user, *rest])
    return steps


def home_missing(account: Account) -> bool:
    """Whether an account of this node itself has no home, where there is a place for it."""
    lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    local = any(line.startswith(f"{account.name}:") for line in lines)
    if not local or not account.home.parent.is_dir():
        return False
    # One that is root's was left by a helper that was killed.
    return not account.home.exists() or account.home.stat().st_uid == 0 != account.uid


def checks(user: str, uid: Optional[int], check_mode: bool) -> list[Check]:
    """The account as it is now."""
    found = find(user)
    if found is None:
        reason = "the account is missing"
        return [compare("account", uid, None, subject=user, check_mode=check_mode, reason=reason)]
    wanted = found.uid if uid is None else uid
    runs = "one that runs commands"
    return [
        compare("account", wanted, found.uid, subject=user, check_mode=check_mode),
        compare(
            "login_shell",
            runs,
            found.shell if Path(found.shell).name in NO_LOGIN else runs,
            subject=user,
            reason=f"give {user} a shell: usermod --shell /bin/bash {user}",
        ),
    ]


# With its rights.


def as_user(account: Account, work: Callable[[], Any]) -> Any:
    """What `work` returns (a JSON value), done in a child process as this user.

    Raises OSError with the child's words when it fails.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            become(account)
            os.umask(0o077)
            answer = json.dumps({"value": work()})
        except BaseException as error:
            answer = json.dumps({"error": str(error) or type(error).__name__})
        finally:
            with os.fdopen(writing, "w", encoding="utf-8") as stream:
                stream.write(answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    told = json.loads(text) if text else {"error": "the child process died"}
    if "error" in told:
        raise OSError(f"as {account.name}: {told['error']}")
    return told["value"]


def become(account: Account) -> None:
    """Give up every right of root, for good."""
    if os.geteuid() == 0:
        os.initgroups(account.name, account.gid)
        os.setgid(account.gid)
        os.setuid(account.uid)


def authorized_keys_of(account: Account, setting: str) -> Path:
    """The first file of sshd's AuthorizedKeysFile, for this user."""
    first = (setting.split() or [".ssh/authorized_keys"])[0]
    named = first.replace("%%", "\0").replace("%h", str(account.home)).replace("%u", account.name)
    return account.home / named.replace("\0", "%")


def ensure_authorized(
    account: Account, path: Path, lines: Sequence[str], *, write: bool
) -> dict[str, str]:
    """Have the block of the cluster's keys hold exactly these lines; returns the difference.

    Without lines the block goes and nothing else is looked at: mode and owner are the user's.
    """

    def work() -> dict[str, str]:
        there = plan_file(path, None)
        text = replace_block(there.before or "", lines, BLOCK)
        if not lines and text == (there.before or ""):
            return {}
        mode = 0o600 if lines or there.mode_before is None else there.mode_before
        plan = plan_file(path, text, mode=mode, uid=account.uid, gid=account.gid)
        if plan.changed and write:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            plan.apply()
        return plan.diff() if plan.changed else {}

    found: dict[str, str] = as_user(account, work)
    return found

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI user on a node: its account, work done with its rights, its authorized_keys.

An existing account is not altered. Files in the home are read and written with the user's own
rights: root would follow a symbolic link there, and a home on NFS does not let root in at all.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from ..core.checks import compare
from ..core.dataclass import dataclass
from ..core.files import plan_file, replace_block
from ..core.part import Node, Plan, PlanError, Step, Verdict

NO_LOGIN = ("nologin", "false")
BLOCK = "ssh"
"""Name of the cluster's block in authorized_keys."""


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
    """Names of the groups the account is in; one without a name is left out."""
    found = [_entry(grp.getgrgid, gid) for gid in os.getgrouplist(account.name, account.gid)]
    return [entry.gr_name for entry in found if entry]


def key_readers() -> list[int]:
    """The groups that a distribution lets read the private host keys, besides root."""
    entry = _entry(grp.getgrnam, "ssh_keys")
    return [entry.gr_gid] if entry else []


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
            if uid is not None and there.uid != uid:
                raise PlanError(
                    f"user {user} has uid {there.uid} here; wanted {uid} on every node: set"
                    f" cluster_mpi_uid to {there.uid} if that is its number on all of them, or"
                    " change the number by hand (with the owner of its files)"
                )
            # A useradd that was killed leaves an account without its home. The helper leaves
            # what is there, and gives it to its user last.
            if not home_missing(there):
                return []
            home = str(there.home)
            return [["mkhomedir_helper", user, "0027"], ["chown", f"{there.uid}:{there.gid}", home]]
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
        found = find(self.user)
        uid = None if found is None else found.uid
        wanted = self.uid if self.uid is not None or found is None else uid
        checks = [
            compare(
                "account",
                wanted if found else "an account",
                uid,
                subject=self.user,
                check_mode=node.check_mode,
            )
        ]
        if found is not None:
            runs = "one that runs commands"
            checks.append(
                compare(
                    "login_shell",
                    runs,
                    found.shell if Path(found.shell).name in NO_LOGIN else runs,
                    subject=self.user,
                    reason=f"usermod --shell /bin/bash {self.user}",
                )
            )
        return Verdict(checks)


def home_missing(account: Account) -> bool:
    """Whether an account of this node itself has no home, where there is a place for it."""
    lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    local = any(line.startswith(f"{account.name}:") for line in lines)
    if not local or not account.home.parent.is_dir():
        return False
    # One owned by root was left by a helper that was killed.
    return not account.home.exists() or account.home.stat().st_uid == 0 != account.uid


def as_user(account: Account, work: Callable[[], Any]) -> Any:
    """What `work` returns (a JSON value), done in a child process with this user's rights.

    Raises OSError with the child's message when it fails.
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
    answered = json.loads(text) if text else {"error": "the child process died"}
    if "error" in answered:
        raise OSError(f"as {account.name}: {answered['error']}")
    return answered["value"]


def become(account: Account) -> None:
    """Give up every right of root, for good."""
    if os.geteuid() == 0:
        os.initgroups(account.name, account.gid)
        os.setgid(account.gid)
        os.setuid(account.uid)


@dataclass(frozen=True)
class AuthorizedKeys:
    """The block of the cluster's keys in the first file of sshd's AuthorizedKeysFile.

    Without lines the block is removed and nothing else is looked at: mode and owner are the user's.
    """

    user: str
    setting: str
    lines: Sequence[str]

    def path(self, account: Account) -> Path:
        first = (self.setting.split() or [".ssh/authorized_keys"])[0]
        named = first.replace("%%", "\0").replace("%h", str(account.home))
        return account.home / named.replace("%u", account.name).replace("\0", "%")

    def difference(self, account: Account, *, write: bool = False) -> dict[str, str]:
        path = self.path(account)

        def work() -> dict[str, str]:
            there = plan_file(path, None)
            text = replace_block(there.before or "", self.lines, BLOCK)
            if not self.lines and text == (there.before or ""):
                return {}
            mode = 0o600 if self.lines or there.mode_before is None else there.mode_before
            plan = plan_file(path, text, mode=mode, uid=account.uid, gid=account.gid)
            if plan.changed and write:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                plan.apply()
            return plan.diff() if plan.changed else {}

        found: dict[str, str] = as_user(account, work)
        return found

    def plan(self, node: Node) -> Plan:
        account = find(self.user)
        found = self.difference(account) if account else {}
        if account is None or not found:
            return Plan()
        user = account

        def act() -> None:
            self.difference(user, write=True)
            if shutil.which("restorecon"):
                node.run(["restorecon", "-R", str(self.path(user).parent)], check=False)

        return Plan(steps=[Step(str(self.path(user)), "", "", act, shown=[found])])

    def verify(self, node: Node) -> Verdict:
        account = find(self.user)
        if account is None or not self.lines:
            return Verdict()
        wanted = "every node's key"
        found = "different" if self.difference(account) else wanted
        where = str(self.path(account))
        check = compare("authorized_keys", wanted, found, subject=where, check_mode=node.check_mode)
        return Verdict([check])

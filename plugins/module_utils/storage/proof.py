# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The write and read test: each host writes, then reads files that another host wrote. With two
rounds, no reader waits for a writer. A fault is reported once; dependent checks refer to it."""

from __future__ import annotations

import errno
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from ..core import bounded, machine, mounts
from ..core.bounded import Report, WorkResult
from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ..core.machine import IN_CONTAINER, NO_MOUNTS
from ..ssh import account
from . import probe
from .file_system import HOME, SOFTWARE, FileSystem, of_variable
from .units import WantedMount, wanted_mounts

FREE_SHARE = 0.05
"""Share of the free space that all writers may use in total."""
GIB = 1 << 30
ANONYMOUS = (65534, 4294967294)
"""Uids of the anonymous user of NFS servers."""
MOUNTED, ANSWERS, READ_ONLY, SPACE, FILES, WRITE, OWNER, WRITE_RATE, NEIGHBOUR, READ_RATE = (
    "storage_mounted", "storage_answers", "storage_read_only", "storage_space", "storage_files",
    "storage_write", "storage_owner", "storage_write_rate", "storage_neighbour",
    "storage_read_rate",
)  # fmt: skip
PROMISES = {
    MOUNTED: "mounted from its source",
    ANSWERS: "responds in time",
    READ_ONLY: "writable",
    SPACE: "enough free",
    FILES: "enough free",
    WRITE: "written, fsynced, renamed over an older one and read back",
    OWNER: "the MPI user",
    WRITE_RATE: "as expected",
    NEIGHBOUR: "the neighbour's file, byte for byte",
    READ_RATE: "as expected",
}
OF_READING = (NEIGHBOUR, READ_RATE)

_CORRUPT = "data read differs from data written: do not use it until the cause is found"
_RIGHTS = (
    "{user} must be allowed to make a directory there: see keys owner and mode, the uid on the "
    "server, and the export's squash options"
)
BY_ERROR = {
    errno.ESTALE: (
        MOUNTED,
        "the server exports another directory than when it was mounted. Stop all users of the "
        "mount, then: systemctl restart {unit}",
    ),
    errno.EROFS: (READ_ONLY, "see exportfs -v and dmesg on the server"),
    errno.EDQUOT: (SPACE, "raise the quota of {user} there"),
    errno.ENOSPC: (SPACE, "no space or no inodes are left: remove old checkpoints"),
    errno.EACCES: (WRITE, _RIGHTS),
    errno.EPERM: (WRITE, _RIGHTS),
}
BY_ANSWER = {
    probe.OWN: (WRITE, _CORRUPT),
    probe.RENAME: (WRITE, "the server does not rename atomically"),
    probe.TOKEN: (NEIGHBOUR, "a cache holds old data (nocto, actimeo), or it is another export"),
    probe.CONTENT: (NEIGHBOUR, _CORRUPT),
}
"""Check and remedy for an error."""


@dataclass(frozen=True)
class Target:
    """One file system on this host, and the role of this host among its users."""

    wanted: WantedMount
    host: str
    cluster: str
    token: str
    user: str
    uid: int
    size: int
    """Size of the large file in bytes."""
    limit_s: float
    writers: int = 1
    """Number of hosts that write concurrently."""
    neighbour: str = ""
    """The host whose files are read; empty if no other host wrote."""
    neighbour_bytes: int = 0
    alone: bool = False
    """Whether the hosts measure one by one."""
    check_mode: bool = False
    container: Optional[str] = None
    become: Optional[Callable[[], None]] = None

    @property
    def fs(self) -> FileSystem:
        return self.wanted.fs

    @property
    def mount(self) -> str:
        return self.wanted.point

    @property
    def read_only(self) -> bool:
        return "ro" in self.fs.options

    @property
    def of_others(self) -> bool:
        """Whether the MPI user does not own the top directory; the default for homes and software
        of an external server."""
        if self.fs.owner:
            return self.fs.owner not in (self.user, str(self.uid))
        return self.fs.serve is None and self.fs.purpose in (HOME, SOFTWARE)

    def mounted(self, line: str) -> Optional[mounts.Mount]:
        """The mount of the opened directory, from its line in the mount table."""
        running = next(iter(mounts.parse(line)), None)
        if running is None or running.point != self.mount or running.kind == mounts.AUTOFS:
            return None
        return running

    def task(self, do: str) -> dict[str, Any]:
        return {
            "do": do,
            "mount": self.mount,
            "cluster": self.cluster,
            "name": self.host,
            "token": self.token,
            "bytes": self.size,
            "share": FREE_SHARE / self.writers,
            "neighbour": self.neighbour,
            "neighbour_bytes": self.neighbour_bytes,
        }


@dataclass
class Proof:
    """The checks, by name, and figures of one round on one file system."""

    target: Target
    figures: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    failed: str = ""
    """The failed check that prevented others."""

    def add(
        self, name: str, actual: Any, status: str, reason: str = "", wanted: Any = None
    ) -> None:
        wanted = self.target.wanted.source if name == MOUNTED else wanted or PROMISES[name]
        actual = wanted if actual is None and status == OK else actual
        self.checks[name] = Check(name, wanted, actual, status, self.target.mount, reason)

    def ok(self, name: str, actual: Any = None, wanted: Any = None) -> None:
        self.add(name, actual, OK, wanted=wanted)

    def fail(self, name: str, actual: Any, reason: str, wanted: Any = None) -> None:
        """Add a failure that causes the remaining checks to be skipped."""
        self.failed = name
        self.add(name, actual, FAILED, reason, wanted)

    def rest(self, reason: str, names: Sequence[str] = tuple(PROMISES)) -> Proof:
        """Mark the checks of `names` without a result as not applicable."""
        for name in names:
            if name not in self.checks:
                skipped = f"not read: see {self.failed}" if self.failed else reason
                self.add(name, None, NOT_APPLICABLE, skipped)
        return self


def write(target: Target) -> Proof:
    """Check the mount, and write. Raises nothing; errors are checks."""
    answer = _ask(target, "look" if target.check_mode or target.read_only else "write")
    proof, reported = Proof(target, _figures(target, answer)), answer.found
    refused = reported.get("error", {}).get("number") in (errno.EACCES, errno.EPERM)
    if refused and answer.step.startswith("opening ") and target.of_others:
        if "line" in reported:
            seen = {key: value for key, value in reported.items() if key != "error"}
            _evaluate(proof, replace(answer, found=seen), WRITE)
        return proof.rest(
            f"it belongs to {target.fs.owner or 'another user'} (owner), so {target.user} cannot "
            f"write there; for a test create {probe.DIRECTORY} there, owned by {target.user}"
        )
    _evaluate(proof, answer, WRITE)
    if proof.failed or not reported.get("right"):
        here = f"{IN_CONTAINER} ({target.container}): {NO_MOUNTS}"
        return proof.rest(here if target.container else "not mounted yet")
    if target.check_mode or target.read_only:
        read_only = "intentionally read-only (option ro)" if target.read_only else ""
        return proof.rest(read_only or "check mode writes nothing")
    if "owner" not in reported:
        proof.fail(WRITE, *_EXITED)
        return proof.rest("")
    proof.ok(WRITE)
    _owner(proof, reported["owner"])
    _rate(proof, WRITE_RATE, reported["wrote"], target.fs.expect.write_gb_s)
    return proof.rest("") if proof.failed else proof


def read(target: Target) -> Proof:
    """Read the neighbour's file. The mount is only reported if it fails now."""
    answer = _ask(target, "read")
    proof = Proof(target, _figures(target, answer))
    _evaluate(proof, answer, NEIGHBOUR)
    if not proof.failed:
        proof.checks.clear()
        reported = answer.found
        if "owner" not in reported:
            proof.fail(NEIGHBOUR, *_EXITED)
        elif target.neighbour:
            proof.ok(NEIGHBOUR)
            _owner(proof, reported["owner"], f" on the file of {target.neighbour}")
            _rate(proof, READ_RATE, reported["read"], target.fs.expect.read_gb_s)
    return proof.rest("no other host of this run writes to it", OF_READING)


def _ask(target: Target, do: str) -> WorkResult:
    def work(report: Report) -> None:
        def go(reported: dict[str, Any]) -> bool:
            running = target.mounted(reported["line"])
            right = running is not None and target.wanted.is_source(running, mounts.read())
            report({"right": right})
            return right and (do == "look" or not reported["read_only"])

        probe.perform(target.task(do), report, go)

    return bounded.within(target.limit_s, work, become=target.become)


def _figures(target: Target, answer: WorkResult) -> dict[str, Any]:
    names = ("wrote", "read", "own_address")
    reported = {key: answer.found[key] for key in names if answer.found.get(key)}
    return {**reported, "served_here": target.wanted.is_bind} if reported else {}


_EXITED = ("its process exited early", "was it killed for lack of memory? See dmesg")


def _evaluate(proof: Proof, answer: WorkResult, does: str) -> None:
    """Check the mount, response, mode and free space, and report any other error as the check
    `does`."""
    reported = answer.found
    if "line" in reported and not _mounted(proof, reported):
        return
    if not answer.answered:
        _hung(proof, answer)
        return
    if "line" in reported:
        proof.ok(ANSWERS)
        _space(proof, reported)
    error, wrong = reported.get("error"), reported.get("wrong")
    if error is not None:
        number, step = int(error["number"]), answer.step
        code = errno.errorcode.get(number, f"error {number}")
        other = (does if "line" in reported else MOUNTED, "see systemctl status {unit}, and dmesg")
        name, remedy = BY_ERROR.get(number, other)
        if does == NEIGHBOUR and number == errno.ENOENT:
            remedy = "do both mount the same export of the same server?"
        remedy = remedy.format(unit=proof.target.wanted.mount_unit, user=proof.target.user)
        proof.fail(name, f"{error['text'] or code} ({code}) while {step}", remedy)
    elif wrong is not None:
        name, remedy = BY_ANSWER[wrong["about"]]
        proof.fail(name, wrong["text"], remedy)
    elif "line" not in reported:
        proof.fail(ANSWERS, *_EXITED)
    else:
        _read_only(proof, bool(reported["read_only"]))


def _mounted(proof: Proof, reported: Mapping[str, Any]) -> bool:
    target = proof.target
    running = target.mounted(reported["line"])
    if reported.get("right"):
        proof.ok(MOUNTED)
        return True
    unit = target.wanted.mount_unit
    if not target.fs.managed and not target.container:
        actual = f"{running.source} ({running.kind})" if running else "not mounted"
        reason = f"others mount it (managed: false): expected is a mount of type {target.fs.type}"
        proof.fail(MOUNTED, actual, reason)
    elif running is not None:
        reason = f"nothing was written to it: stop its users, then systemctl restart {unit}"
        proof.fail(MOUNTED, f"{running.source} ({running.kind})", reason)
    elif target.check_mode and not target.container:
        proof.add(MOUNTED, "not mounted", PENDING)
    elif not target.container:
        reason = f"nothing was written: run --tags storage, or systemctl start {unit}"
        proof.fail(MOUNTED, "not mounted", reason)
    return False


def _hung(proof: Proof, answer: WorkResult) -> None:
    target = proof.target
    actual = f"no answer within {target.limit_s:g} s while {answer.step or 'starting'}"
    if answer.left_behind:
        actual += f"; process {answer.left_behind} cannot be killed and still waits"
    reason = (
        f"is {target.wanted.source} up? Users of this mount continue when it responds. If it will "
        f"not return: umount -f -l {target.mount}, and change the model"
    )
    proof.fail(ANSWERS, actual, reason)


def _read_only(proof: Proof, reported: bool) -> None:
    modes = {True: "read-only", False: "writable"}
    wanted, actual = modes[proof.target.read_only], modes[reported]
    if actual == wanted:
        proof.ok(READ_ONLY, actual, wanted)
        return
    proof.fail(READ_ONLY, actual, "see dmesg, then run --tags storage", wanted)


def _space(proof: Proof, reported: Mapping[str, Any]) -> None:
    """Check the free space. A failure does not prevent other checks."""
    fs = proof.target.fs
    free = int(reported["free_bytes"]) / GIB
    files = int(reported["free_files"]) if reported["all_files"] else None
    for name, actual, shown, wanted, promise in (
        (SPACE, free, f"{free:.1f} GiB free", fs.space_gib, f"{fs.space_gib} GiB free"),
        (FILES, files, files, fs.files, fs.files),
    ):
        if not wanted or actual is None:
            reason = "nothing is required (space_gib, files), or the number of inodes is not fixed"
            proof.add(name, shown, NOT_APPLICABLE, reason)
        elif actual >= wanted:
            proof.ok(name, shown, promise)
        else:
            reason = "remove old checkpoints, or require less"
            proof.add(name, shown, FAILED, reason, promise)


def _owner(proof: Proof, uid: int, where: str = "") -> None:
    user, wanted = proof.target.user, f"uid {proof.target.uid}"
    if uid == proof.target.uid:
        proof.ok(OWNER, wanted, wanted)
    elif uid in ANONYMOUS:
        remedy = f"the server does not know {user}: all_squash in the export, or idmapd.conf"
        proof.fail(OWNER, f"nobody ({uid}){where}", remedy, wanted)
    else:
        remedy = f"{user} has another uid there, or the export has anonuid: use cluster_mpi_uid"
        proof.fail(OWNER, f"uid {uid}{where}", remedy, wanted)


def _rate(proof: Proof, name: str, measured: Optional[Mapping[str, Any]], expected: float) -> None:
    """Compare a host's rate with the expectation, unless it shared the server with others."""
    rate = None
    if measured and measured["bytes"] and measured["seconds"] > 0:
        rate = float(measured["bytes"]) / float(measured["seconds"]) / 1e9
    shown = None if rate is None else f"{rate:.3g} GB/s"
    others = proof.target.writers - 1
    if not expected:
        proof.add(name, shown, NOT_APPLICABLE, "no expectation is set (expect)")
    elif rate is None:
        proof.add(name, shown, NOT_APPLICABLE, "too little free space to measure")
    elif others and not proof.target.alone:
        reason = f"measured together with {others} others; see shared_storage_use_alone"
        proof.add(name, shown, NOT_APPLICABLE, reason)
    elif rate >= expected:
        proof.ok(name, shown, f"{expected:g} GB/s")
    else:
        remedy = "slower than expected: check nconnect, the rail's MTU, the server's threads"
        proof.add(name, shown, FAILED, remedy, f"{expected:g} GB/s")


class UserError(Exception):
    """The MPI user is unknown on this host, and no number is given."""


def perform(
    given: Mapping[str, Any], check_mode: bool
) -> tuple[list[Check], dict[str, dict[str, Any]]]:
    """Return the checks, and the figures by file system. Raises UserError and OSError."""
    name, uid = given["user"], given["uid"]
    user = account.find(name)
    if user is None:  # the layer ssh may create it later
        if uid is None:
            raise UserError(f"user {name} not found, and no number is given (cluster_mpi_uid)")
        user = pwd.struct_passwd((name, "x", uid, uid, "", "/", ""))
    proofs = {
        target.fs.name: (write if given["round"] == "write" else read)(target)
        for target in _targets(given, user, check_mode)
    }
    checks = [check for made in proofs.values() for check in made.checks.values()]
    return checks, {name: made.figures for name, made in proofs.items()}


def _targets(
    given: Mapping[str, Any], user: pwd.struct_passwd, check_mode: bool
) -> Iterator[Target]:
    filesystems = [of_variable(entry) for entry in given["filesystems"]]
    for wanted in wanted_mounts(filesystems, given["host"], given["groups"], 0):
        yield Target(
            wanted=wanted,
            host=given["host"],
            cluster=given["cluster"],
            token=given["token"],
            user=given["user"],
            uid=user.pw_uid,
            size=given["size_mib"] << 20,
            limit_s=given["time_limit_s"],
            alone=given["alone"],
            check_mode=check_mode,
            container=machine.container(),
            become=account.rights_of(user),
            **given["seats"].get(wanted.fs.name, {}),
        )


def is_virtual(cpus: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this is a container or virtual machine, where line rates are nominal."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpus.read_text("utf-8"), re.MULTILINE)
    return machine.container() is not None or (
        flags is not None and "hypervisor" in flags[1].split()
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The session of the MPI user on this host: opened as mpirun opens it, and compared with ours.

Proofs that are made as root do not see what PAM, sshd and login files give to ranks. The host logs
in to itself, so what differs is found where it is, and the work is linear.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Optional

from ..core import processes
from ..core.checks import FAILED, OK, PENDING, Check
from ..core.commands import CommandError, NoAnswerError, Result, run
from ..core.text import bytes_text, one_line, some
from ..os_baseline.limits import FILE as LIMITS_FILE
from ..os_baseline.limits import ITEMS, UNLIMITED, parse_proc
from ..storage import bounded
from ..storage.probe import Report
from . import session_program as program
from .account import rights_of
from .refusals import NOISE

SESSION_S = 5.0
"""For what the program asks, beyond the time for a connection, which says how slow hosts may be."""
PART = 0.6
"""Of that time, for each thing that it starts: a login file that waits does so for ever."""
QUICKLY = ("-o", "KexAlgorithms=^ecdh-sha2-nistp256")
"""For a login that does not prove the exchange of keys: a post-quantum exchange costs 130 ms of CPU
time on both ends together."""
ABANDONED_S = 10.0
"""Seconds to find these shells in /proc and end them."""
MOST_ANSWER, MOST_ITEMS, MOST_TEXT = 1 << 18, 60, 400
ROOM_BYTES, ROOM_FILES = 16 << 20, 64
"""Free in each directory where ranks keep what they share."""
FLOOR = {"nofile": 1024, "nproc": 1024}
"""Soft limits that any session has by default: where they are lower, a setting lowered them."""
ENDED = "the shell ended without running the command"
FORK = ("fork", "Resource temporarily unavailable", "exec request failed")
"""What shells and sshd say where the limit on processes is reached."""
PROBES = re.compile(
    rb"true|uname -n( ; /usr/bin/python3 -ISc .*)?"
    rb"|echo [A-Za-z0-9+/=]+ \| /usr/bin/base64 -d \| (/bin/sh|%b -I - [0-9.]+)"
    % re.escape(program.PYTHON).encode(),
    re.DOTALL,
)
"""Commands that this collection has run by a login of the MPI user."""
KINDS = {"ssh": "over ssh", "ranks": "of ranks", "login": "of a login shell"}
DECLARE = "declare it with mpi_stack_environment if ranks need it"


class AnswerError(Exception):
    """The session did not open, or its answer is not the program's."""


def as_user(user: pwd.struct_passwd) -> dict[str, Any]:
    """How `run` starts a program as the MPI user, with nothing of root's environment."""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    names.update(PATH="/usr/local/bin:/usr/bin:/bin", LC_ALL="C")
    found: dict[str, Any] = {"env": names, "cwd": "/"}
    if os.geteuid() == 0:  # else the process is the MPI user already
        found.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    return found


def abandoned(uid: int, root: Path = Path("/")) -> list[int]:
    """Shells of this user that run a probe whose connection is gone: init is their parent then.

    A login file that never ends keeps one for ever: sshd ends nothing that has no terminal.
    """
    found = []
    for pid in processes.pids(root):
        folder = root / f"proc/{pid}"
        try:
            if folder.stat().st_uid != uid:  # as most are, and costs least
                continue
            status = (folder / "status").read_text(encoding="utf-8", errors="replace")
            orphan = "\nPPid:\t1\n" in status and f"\nUid:\t{uid}\t" in status
            words = (folder / "cmdline").read_bytes().split(b"\0") if orphan else []
        except OSError:  # ended meanwhile
            continue
        if len(words) > 2 and words[1] == b"-c" and PROBES.fullmatch(words[2]):
            found.append(pid)
    return found


def end_abandoned(user: pwd.struct_passwd, root: Path = Path("/")) -> list[int]:
    """End them, each with what its login files had started: sshd makes a group for every login.

    With the user's rights: by then, a pid may be that of another process, of anyone.
    """

    def end(report: Report) -> None:
        found = abandoned(user.pw_uid, root)
        report({"ended": found})
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)

    return list(bounded.within(ABANDONED_S, end, become=rights_of(user)).found.get("ended", []))


def source() -> str:
    """The program's text, also out of the archive in which Ansible sends it."""
    return str(program.__loader__.get_source(program.__name__))  # type: ignore[union-attr]


def command(limit_s: float) -> str:
    """For any shell: nothing in base64 is special to one. Standard input may be read by others."""
    coded = base64.b64encode(source().encode()).decode("ascii")
    return f"echo {coded} | /usr/bin/base64 -d | {program.PYTHON} -I - {PART * limit_s:g}"


def answer(printed: str) -> dict[str, Any]:
    """What the program found. Raises AnswerError."""
    lines = [line for line in printed.splitlines() if line.startswith(program.MARK)]
    if not lines:
        raise AnswerError(ENDED)
    try:
        found = json.loads(lines[-1][len(program.MARK) :][:MOST_ANSWER])
    except (ValueError, RecursionError) as error:
        raise AnswerError("the answer was cut short") from error
    if not isinstance(found, dict):
        raise AnswerError("the answer is of another form")
    return found


def text(value: Any) -> str:
    return one_line(value[:MOST_TEXT]) if isinstance(value, str) else ""


def texts(value: Any) -> list[str]:
    return [text(each) for each in value[:MOST_ITEMS]] if isinstance(value, list) else []


def rows(found: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = found.get(key)
    listed = value[:MOST_ITEMS] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]


def mapping(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key)
    return dict(list(value.items())[:MOST_ITEMS]) if isinstance(value, dict) else {}


def number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def look(
    here: str,
    user: pwd.struct_passwd,
    connect_s: int,
    *,
    check_mode: bool = False,
    root: Path = Path("/"),
    use_pam: Callable[[], str] = str,
) -> list[Check]:
    """The checks of this host's session. `use_pam` asks sshd, where limits differ."""
    options = ["-n", *QUICKLY, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={connect_s}"]
    limit_s = connect_s + SESSION_S
    try:
        done = _run(["ssh", *options, "--", here, command(limit_s)], user, limit_s)
    except NoAnswerError:
        return [_closed(f"nothing within {limit_s:g} s", "", user, limit_s)]
    except CommandError as error:
        return [_refused(str(error), user, check_mode)]
    lines = [line for line in done.stderr.strip().splitlines() if not NOISE.search(line)]
    said = text((lines or [""])[-1])
    if done.rc == 255 and not any(word in said for word in FORK):  # of ssh itself
        return [_refused(said or "ssh: exit status 255", user, check_mode)]
    try:
        found = answer(done.stdout)
    except AnswerError as error:
        return [_closed(str(error), said, user, limit_s)]
    problem = text(found.get("problem"))
    if problem:
        return [
            _finding("session", "opens", problem, "a login shell", texts(found.get("waits"))),
            *judged(found, root, use_pam),
        ]
    return [Check("session", "opens", "opens", OK, here), *judged(found, root, use_pam)]


def _run(
    argv: Sequence[str], user: pwd.struct_passwd, limit_s: float, stdin: Optional[str] = None
) -> Result:
    return run(argv, check=False, stdin=stdin, timeout_s=limit_s, popen=as_user(user))


def _refused(why: str, user: pwd.struct_passwd, check_mode: bool) -> Check:
    """No login: the layer may be about to configure it."""
    if check_mode:
        return Check("session", "opens", why, PENDING, user.pw_name)
    reason = f"{user.pw_name} cannot log in to this host from itself: look at sshd's answer"
    return Check("session", "opens", why, FAILED, user.pw_name, reason)


def _closed(why: str, said: str, user: pwd.struct_passwd, limit_s: float) -> Check:
    """A login whose shell does not come to the command, by the files that may keep it."""
    # The same program, without a login: it reads the files as their owner.
    try:
        local = _run([program.PYTHON, "-I", "-", "files"], user, limit_s, stdin=source())
        files = answer(local.stdout)
    except (AnswerError, CommandError):
        files = {}
    if any(word in said for word in FORK):
        at = texts(mapping(files, "limit_files").get("nproc"))
        where = _where(at, "no file of limits has it")
        reason, step = f"{said}: the limit nproc is reached: {where}", f"raise nproc in {where}"
        return Check("session", "opens", why, FAILED, user.pw_name, reason, by_hand=step)
    why = f"{why}: {said}" if said else why
    return _finding("session", "opens", why, user.pw_name, texts(files.get("waits")))


def _finding(name: str, wanted: str, found: str, subject: str, at: Sequence[str]) -> Check:
    """Of a login file that does not come to its end."""
    if not at:
        reason = (
            "no login file has a line that waits: look at the load of this host, at PAM and at"
            f" ssh -v as {subject}; ssh_trust_probe_timeout_s gives it more time"
        )
        return Check(name, wanted, found, FAILED, subject, reason)
    reason = f"a login file waits for input or replaces the shell: {some(list(at))}"
    step = f"edit {some(list(at))}: without a terminal nothing may wait, or replace the shell"
    return Check(name, wanted, found, FAILED, subject, reason, by_hand=step)


def judged(
    found: Mapping[str, Any], root: Path = Path("/"), use_pam: Callable[[], str] = str
) -> list[Check]:
    """An answer as checks, by the kind of fault; one for each kind where nothing is."""
    kinds = {
        "session_limit": ("as configured", limits(found, root, use_pam)),
        "session_variable": ("none of others", variables(found)),
        "session_parameter": ("none of others", parameters(found)),
        "session_program": ("those of this cluster's MPI", programs(found)),
        "session_space": ("room for ranks", spaces(found)),
        "session_umask": ("files for their owner", umask(found)),
    }
    checks: list[Check] = []
    for name, (wanted, wrong) in kinds.items():
        checks += wrong or [Check(name, wanted, wanted, OK)]
    return checks


def _where(at: Sequence[str], otherwise: str) -> str:
    return some(list(at), 3) if at else otherwise


def limits(found: Mapping[str, Any], root: Path, use_pam: Callable[[], str]) -> list[Check]:
    views = {
        kind: parse_proc(value)
        for kind, value in mapping(found, "limits").items()
        if kind in KINDS and isinstance(value, str)
    }
    checks = []
    for item, (wanted, hard) in _with_lowered(least(root), views).items():
        low = {
            kind: have[item]
            for kind, have in views.items()
            if item in have
            and (_less(have[item][0], wanted) or (hard and _less(have[item][1], hard)))
        }
        if not low:
            continue
        # Of a login shell only, login files lower it; else PAM, unless they do so as well.
        ulimit = texts(mapping(found, "ulimit").get(item))
        files = texts(mapping(found, "limit_files").get(item))
        at = ulimit if set(low) == {"login"} else [*files, *ulimit]
        pam = "" if at else use_pam()
        where = _where(at, pam or "no file of limits has it: look at sshd's PAM stack and unit")
        step = f"remove {item} from {some(at, 3)}" if at else "set UsePAM yes for sshd"
        if not at and not pam:
            step = "have pam_limits in /etc/pam.d/sshd"
        kind, have = next(iter(low.items()))
        shown = have[0] if have[0] == have[1] else f"soft {have[0]}, hard {have[1]}"
        checks.append(
            Check(
                *("session_limit", f"at least {wanted}", shown, FAILED, item),
                f"{KINDS[kind]}: {where}",
                by_hand=step,
            )
        )
    return checks


def _with_lowered(
    wanted: Mapping[str, tuple[str, str]], views: Mapping[str, Mapping[str, tuple[str, str]]]
) -> dict[str, tuple[str, str]]:
    """In addition, no login file may lower a limit of the session, except that of core files, which
    no rank needs and many sites turn off there."""
    found = dict(wanted)
    for item, (soft, _hard) in views.get("ssh", {}).items():
        if item != "core" and _less(found.get(item, ("0", ""))[0], soft):
            found[item] = (soft, "")
    return found


def _less(have: str, wanted: str) -> bool:
    if have == UNLIMITED or not have.isdecimal():
        return False
    return wanted == UNLIMITED or int(have) < int(wanted)


def least(root: Path) -> dict[str, tuple[str, str]]:
    """Soft and hard limit that a session must have, as the kernel has them: those that the layer os
    wrote, else the usual ones, but not more than this host itself has."""
    own = parse_proc(_read(root / "proc/1/limits"))
    wanted: dict[str, tuple[str, str]] = {}
    for item, floor in FLOOR.items():
        hard = own.get(item, ("", UNLIMITED))[1]
        wanted[item] = (hard if _less(hard, str(floor)) else str(floor), "")
    for line in _read(root / LIMITS_FILE).splitlines():
        words = line.split()
        if len(words) == 4 and words[:2] == ["*", "-"] and words[2] in ITEMS:
            value = words[3]
            if value.isdecimal():
                value = str(int(value) * ITEMS[words[2]][1])
            wanted[words[2]] = (value, value)
    return wanted


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def variables(found: Mapping[str, Any]) -> list[Check]:
    """One for each variable: its places are the same whichever session has it."""
    by_name: dict[str, dict[str, Any]] = {}
    kinds: dict[str, list[str]] = {}
    for row in rows(found, "variables"):
        by_name.setdefault(text(row.get("name")), row)
        kinds.setdefault(text(row.get("name")), []).append(KINDS.get(text(row.get("kind")), ""))
    checks = []
    for name, row in by_name.items():
        at = texts(row.get("at"))
        where = _where(at, "no login file has it: look at SetEnv of sshd, PAM and systemd")
        step = f"remove {name} from {where}; {DECLARE}" if at else f"{where}; {DECLARE}"
        pair = text(row.get("wanted")) or "not set", text(row.get("value"))
        reason = f"in the environment {', '.join(kinds[name])}: {where}"
        checks.append(Check("session_variable", *pair, FAILED, name, reason, by_hand=step))
    return checks


def parameters(found: Mapping[str, Any]) -> list[Check]:
    checks = []
    for row in rows(found, "parameters"):
        name, at = text(row.get("name")), text(row.get("at"))
        step = f"remove {name} from {at}; declare it with mpi_stack_parameters if ranks need it"
        pair = "not set", text(row.get("value"))
        checks.append(Check("session_parameter", *pair, FAILED, name, at, by_hand=step))
    return checks


def programs(found: Mapping[str, Any]) -> list[Check]:
    checks = []
    seen: set[tuple[str, str]] = set()
    for row in rows(found, "programs"):
        name, value = text(row.get("name")), text(row.get("value"))
        if (name, value) in seen:
            continue
        seen.add((name, value))
        where = _where(texts(row.get("at")), "look at PATH in the login files of the MPI user")
        pair = text(row.get("wanted")), value or "not found"
        kind = KINDS.get(text(row.get("kind")), "")
        step = f"put {Path(value).parent} behind in PATH: {where}"
        if not value:
            step = f"add {Path(pair[0]).parent} to PATH: {where}"
        checks.append(
            Check("session_program", *pair, FAILED, name, f"PATH {kind}: {where}", by_hand=step)
        )
    for row in rows(found, "modules"):
        python, origin = text(row.get("python")), text(row.get("origin"))
        error = text(row.get("error")) or "it cannot be imported"
        there = origin or python
        if (there, error) in seen:
            continue
        seen.add((there, error))
        kind, files = KINDS.get(text(row.get("kind")), ""), texts(row.get("at"))
        reason = f"python3 {kind} takes it from {there}" + (f": {some(files)}" if files else "")
        step = f"remove {there}" + (f", or what puts it first: {some(files)}" if files else "")
        name = "numpy" if "/numpy/" in origin else "mpi4py"
        pair = "imports", error
        checks.append(Check("session_program", *pair, FAILED, name, reason, by_hand=step))
    for row in rows(found, "libraries"):
        name, value = text(row.get("name")), text(row.get("value"))
        where = _where(texts(row.get("at")), str(Path(value).parent))
        reason = f"the loader takes it before the packages' own: {where}"
        step = f"remove {value}, or its directory from {where}, and run ldconfig"
        pair = "of a package", value
        checks.append(Check("session_program", *pair, FAILED, name, reason, by_hand=step))
    for row in rows(found, "preload"):
        at, path = text(row.get("at")), text(row.get("path"))
        step = f"remove it from {at}, or install {path}"
        pair = "there", "missing"
        checks.append(Check("session_program", *pair, FAILED, path, at, by_hand=step))
    return checks


def spaces(found: Mapping[str, Any]) -> list[Check]:
    checks = []
    for path, row in mapping(found, "space").items():
        row = row if isinstance(row, dict) else {}
        room, files, error = number(row.get("bytes")), number(row.get("files")), row.get("error")
        if room >= ROOM_BYTES and files >= ROOM_FILES and not error:
            continue
        wanted = f"{bytes_text(ROOM_BYTES)} and {ROOM_FILES} files"
        have = text(error) or f"{bytes_text(room)} and {files} files"
        where = text(path)
        reason = "ranks keep their session directories and shared memory there"
        step = f"free room in {where}: look with du -xh {where}"
        if error:
            step = f"let the MPI user write to {where}, as it is by default: mode 1777"
        checks.append(Check("session_space", wanted, have, FAILED, where, reason, by_hand=step))
    return checks


def umask(found: Mapping[str, Any]) -> list[Check]:
    mask = number(found.get("umask"))
    if not mask & 0o700:
        return []
    reason, step = (
        "ranks cannot use what they write",
        "set umask 022 where a login file has another",
    )
    pair = "files for their owner", f"{mask:04o}"
    return [Check("session_umask", *pair, FAILED, "", reason, by_hand=step)]

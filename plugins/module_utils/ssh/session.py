# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Open a session of the MPI user as mpirun does, and compare it with the configuration.

Checks that run as root do not see the effect of PAM, sshd and login files on ranks. Each host logs
in to itself, so that faults are found where they are and the work is linear.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Optional

from ..core.checks import FAILED, OK, PENDING, Check
from ..core.commands import CommandError, NoAnswerError, Result, run
from ..core.text import bytes_text, one_line, some
from ..os_baseline.limits import FILE as LIMITS_FILE
from ..os_baseline.limits import ITEMS, UNLIMITED, parse_proc
from . import session_program as program
from .refusals import NOISE

SESSION_S = 5.0
"""Seconds that the program may take after the connection."""
PART = 0.6
"""Share of that time given to each process that it starts, as a login file may wait for ever."""
QUICKLY = ("-o", "KexAlgorithms=^ecdh-sha2-nistp256")
"""For logins that need not prove the key exchange: a post-quantum one takes 130 ms of CPU time."""
MAX_ANSWER, MAX_ITEMS, MAX_TEXT = 1 << 18, 60, 400
MIN_FREE_BYTES, MIN_FREE_FILES = 16 << 20, 64
"""Free space required in each directory for session files and shared memory of ranks."""
FLOOR = {"nofile": 1024, "nproc": 1024}
"""Default soft limits of sessions: lower ones are due to a setting."""
FORK = ("fork", "Resource temporarily unavailable", "exec request failed")
"""Messages of shells and sshd when the limit on processes is reached."""
ABANDONED = r"^\S*sh -c (uname -n|echo [A-Za-z0-9+/=]+ [|] /usr/bin/base64 -d)"
"""Shells that run the commands of these probes, as a pattern of pgrep."""
KINDS = {"ssh": "over ssh", "ranks": "of ranks", "login": "of a login shell"}
DECLARE = "declare it with mpi_stack_environment if ranks need it"


class AnswerError(Exception):
    """The program's output is missing or invalid."""


def as_user(user: pwd.struct_passwd) -> dict[str, Any]:
    """Arguments of Popen to run a program as the MPI user, without root's environment."""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    names.update(PATH="/usr/local/bin:/usr/bin:/bin", LC_ALL="C")
    arguments: dict[str, Any] = {"env": names, "cwd": "/"}
    if os.geteuid() == 0:  # otherwise the process is the MPI user already
        arguments.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    return arguments


def end_abandoned(user: pwd.struct_passwd) -> None:
    """Kill shells of earlier probes with their process groups.

    A waiting login file leaves them, as sshd does not kill processes without a terminal.
    """
    orphans = ["pgrep", "-P", "1", "-u", str(user.pw_uid), "-f", ABANDONED]
    with suppress(CommandError):
        for pid in run(orphans, check=False).stdout.split():
            # As the user, because the PID may belong to another process by then.
            run(["kill", "-KILL", "--", f"-{pid}"], check=False, popen=as_user(user))


def source() -> str:
    """The program's source, even if it is in the archive that Ansible sends."""
    return str(program.__loader__.get_source(program.__name__))  # type: ignore[union-attr]


def command(limit_s: float) -> str:
    """Command that runs the program in any shell. Login files may read standard input."""
    coded = base64.b64encode(source().encode()).decode("ascii")
    return f"echo {coded} | /usr/bin/base64 -d | {program.PYTHON} -I - {PART * limit_s:g}"


def answer(printed: str) -> dict[str, Any]:
    """Parse the program's output. Raises AnswerError."""
    lines = [line for line in printed.splitlines() if line.startswith(program.MARK)]
    if not lines:
        raise AnswerError("the shell exited without running the command")
    try:
        output = json.loads(lines[-1][len(program.MARK) :][:MAX_ANSWER])
    except (ValueError, RecursionError):
        output = None
    if not isinstance(output, dict):
        raise AnswerError("the output is truncated")
    return output


def text(value: Any) -> str:
    return one_line(value[:MAX_TEXT]) if isinstance(value, str) else ""


def texts(value: Any) -> list[str]:
    return [text(item) for item in value[:MAX_ITEMS]] if isinstance(value, list) else []


def rows(output: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = output.get(key)
    listed = value[:MAX_ITEMS] if isinstance(value, list) else []
    return [row for row in listed if isinstance(row, dict)]


def mapping(output: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = output.get(key)
    return dict(list(value.items())[:MAX_ITEMS]) if isinstance(value, dict) else {}


def number(value: Any) -> int:
    return value if type(value) is int else 0


def look(
    here: str,
    user: pwd.struct_passwd,
    connect_s: int,
    *,
    check_mode: bool = False,
    use_pam: Callable[[], str] = str,
) -> list[Check]:
    """Check this host's session. `use_pam` explains limits that PAM does not set."""
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
    if done.rc == 255 and not any(word in said for word in FORK):  # an error of ssh itself
        return [_refused(said or "ssh: exit status 255", user, check_mode)]
    try:
        output = answer(done.stdout)
    except AnswerError as error:
        return [_closed(str(error), said, user, limit_s)]
    problem = text(output.get("problem"))
    opened = Check("session", "opens", "opens", OK, here)
    if problem:
        opened = _hangs(problem, "a login shell", texts(output.get("waits")))
    return [opened, *evaluate(output, Path("/"), use_pam)]


def _run(
    argv: Sequence[str], user: pwd.struct_passwd, limit_s: float, stdin: Optional[str] = None
) -> Result:
    return run(argv, check=False, stdin=stdin, timeout_s=limit_s, popen=as_user(user))


def _refused(actual: str, user: pwd.struct_passwd, check_mode: bool) -> Check:
    """Report a failed login; in check mode, the layer may be about to configure it."""
    if check_mode:
        return Check("session", "opens", actual, PENDING, user.pw_name)
    reason = f"{user.pw_name} cannot log in to this host from itself: see sshd's message"
    return Check("session", "opens", actual, FAILED, user.pw_name, reason)


def _closed(actual: str, said: str, user: pwd.struct_passwd, limit_s: float) -> Check:
    """Report that the shell did not run the command, with the login files that may prevent it."""
    # The same program without a login, which reads the files as their owner.
    try:
        local = _run([program.PYTHON, "-I", "-", "files"], user, limit_s, stdin=source())
        files = answer(local.stdout)
    except (AnswerError, CommandError):
        files = {}
    if any(word in said for word in FORK):
        where = _where(texts(mapping(files, "limit_files").get("nproc")), "no limits file sets it")
        reason = f"{said}: the limit nproc is reached: {where}"
        return _wrong("session", "opens", actual, user.pw_name, reason, f"raise nproc in {where}")
    actual = f"{actual}: {said}" if said else actual
    return _hangs(actual, user.pw_name, texts(files.get("waits")))


def _hangs(actual: str, subject: str, at: Sequence[str]) -> Check:
    """A failed check for a login file that waits or replaces the shell."""
    reason, step = (
        (
            "no login file has a line that waits: check the load of this host, PAM, and ssh -v as"
            f" {subject}; ssh_trust_probe_timeout_s gives it more time"
        ),
        "",
    )
    if at:
        reason = f"a login file waits for input or replaces the shell: {some(at)}"
        step = f"edit {some(at)}: without a terminal it must neither wait nor replace the shell"
    return _wrong("session", "opens", actual, subject, reason, step)


def _wrong(name: str, wanted: str, found: str, subject: str, reason: str, step: str) -> Check:
    return Check(name, wanted, found, FAILED, subject, reason, by_hand=step)


def evaluate(
    output: Mapping[str, Any], root: Path = Path("/"), use_pam: Callable[[], str] = str
) -> list[Check]:
    """Turn the program's output into checks; one per kind of fault if there is none."""
    kinds = {
        "session_limit": ("as configured", limits(output, root, use_pam)),
        "session_variable": ("none of others", variables(output)),
        "session_parameter": ("none of others", parameters(output)),
        "session_program": ("those of this cluster's MPI", programs(output)),
        "session_space": ("free space for ranks", spaces(output)),
        "session_umask": ("files for their owner", umask(output)),
    }
    checks: list[Check] = []
    for name, (wanted, wrong) in kinds.items():
        checks += wrong or [Check(name, wanted, wanted, OK)]
    return checks


def _where(at: Sequence[str], otherwise: str) -> str:
    return some(at, 3) if at else otherwise


def limits(output: Mapping[str, Any], root: Path, use_pam: Callable[[], str]) -> list[Check]:
    views = {
        kind: parse_proc(value)
        for kind, value in mapping(output, "limits").items()
        if kind in KINDS and isinstance(value, str)
    }
    checks = []
    for item, wanted in _with_lowered(least(root), views).items():
        low = {
            kind: have[item]
            for kind, have in views.items()
            if item in have and _less(have[item][0], wanted)
        }
        if not low:
            continue
        # Login files lower it if only the login shell is affected; otherwise PAM does, or both.
        ulimit = texts(mapping(output, "ulimit").get(item))
        files = texts(mapping(output, "limit_files").get(item))
        at = ulimit if set(low) == {"login"} else [*files, *ulimit]
        pam = "" if at else use_pam()
        where = _where(at, pam or "no limits file sets it: check sshd's PAM stack and unit")
        step = f"remove {item} from {where}" if at else "set UsePAM yes for sshd"
        if not at and not pam:
            step = "add pam_limits to /etc/pam.d/sshd"
        kind, have = next(iter(low.items()))
        shown = have[0] if have[0] == have[1] else f"soft {have[0]}, hard {have[1]}"
        reason = f"{KINDS[kind]}: {where}"
        checks.append(_wrong("session_limit", f"at least {wanted}", shown, item, reason, step))
    return checks


def _with_lowered(
    wanted: Mapping[str, str], views: Mapping[str, Mapping[str, tuple[str, str]]]
) -> dict[str, str]:
    """Add limits that login files lowered, except for core files, which many sites disable."""
    desired = dict(wanted)
    for item, (soft, _hard) in views.get("ssh", {}).items():
        if item != "core" and _less(desired.get(item, "0"), soft):
            desired[item] = soft
    return desired


def _less(have: str, wanted: str) -> bool:
    if have == UNLIMITED or not have.isdecimal():
        return False
    return wanted == UNLIMITED or int(have) < int(wanted)


def least(root: Path) -> dict[str, str]:
    """Required soft limits of a session: those of the layer os, otherwise defaults, which do not
    exceed the limits of this host."""
    own = parse_proc(_read(root / "proc/1/limits"))
    wanted: dict[str, str] = {}
    for item, floor in FLOOR.items():
        hard = own.get(item, ("", UNLIMITED))[1]
        wanted[item] = hard if _less(hard, str(floor)) else str(floor)
    for line in _read(root / LIMITS_FILE).splitlines():
        words = line.split()
        if len(words) == 4 and words[:2] == ["*", "-"] and words[2] in ITEMS:
            value = words[3]
            wanted[words[2]] = str(int(value) * ITEMS[words[2]][1]) if value.isdecimal() else value
    return wanted


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def variables(output: Mapping[str, Any]) -> list[Check]:
    """One check per variable, whichever sessions have it."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows(output, "variables"):
        by_name.setdefault(text(row.get("name")), []).append(row)
    checks = []
    for name, found in by_name.items():
        at = texts(found[0].get("at"))
        where = _where(at, "no login file sets it: check SetEnv of sshd, PAM and systemd")
        step = f"remove {name} from {where}; {DECLARE}" if at else f"{where}; {DECLARE}"
        pair = text(found[0].get("wanted")) or "not set", text(found[0].get("value"))
        reason = f"in the environment {', '.join(map(_kind, found))}: {where}"
        checks.append(_wrong("session_variable", *pair, name, reason, step))
    return checks


def _kind(row: Mapping[str, Any]) -> str:
    return KINDS.get(text(row.get("kind")), "")


def parameters(output: Mapping[str, Any]) -> list[Check]:
    checks = []
    for row in rows(output, "parameters"):
        name, at, value = (text(row.get(key)) for key in ("name", "at", "value"))
        step = f"remove {name} from {at}; declare it with mpi_stack_parameters if ranks need it"
        checks.append(_wrong("session_parameter", "not set", value, name, at, step))
    return checks


def programs(output: Mapping[str, Any]) -> list[Check]:
    # The same fault in several sessions is reported once.
    found: dict[tuple[str, str], Check] = {}

    def add(key: str, wanted: str, actual: str, subject: str, reason: str, step: str) -> None:
        check = _wrong("session_program", wanted, actual, subject, reason, step)
        found.setdefault((key, actual), check)

    for row in rows(output, "programs"):
        name, value, wanted = (text(row.get(key)) for key in ("name", "value", "wanted"))
        where = _where(texts(row.get("at")), "check PATH in the login files of the MPI user")
        step = f"move {Path(value).parent} to the end of PATH: {where}"
        if not value:
            step = f"add {Path(wanted).parent} to PATH: {where}"
        add(name, wanted, value or "not found", name, f"PATH {_kind(row)}: {where}", step)
    for row in rows(output, "modules"):
        origin, files = text(row.get("origin")), texts(row.get("at"))
        error = text(row.get("error")) or "it cannot be imported"
        source = origin or text(row.get("python"))
        reason = f"python3 {_kind(row)} imports it from {source}"
        reason += f": {some(files)}" if files else ""
        step = f"remove {source}" + (f", or its entry in {some(files)}" if files else "")
        name = "numpy" if "/numpy/" in origin else "mpi4py"
        add(source, "imports", error, name, reason, step)
    for row in rows(output, "libraries"):
        name, value = text(row.get("name")), text(row.get("value"))
        where = _where(texts(row.get("at")), str(Path(value).parent))
        step = f"remove {value}, or its directory from {where}, and run ldconfig"
        add(name, "of a package", value, name, f"the loader prefers it: {where}", step)
    for row in rows(output, "preload"):
        at, path = text(row.get("at")), text(row.get("path"))
        add(path, "present", "missing", path, at, f"remove it from {at}, or install {path}")
    return list(found.values())


def spaces(output: Mapping[str, Any]) -> list[Check]:
    checks = []
    for path, row in mapping(output, "space").items():
        row = row if isinstance(row, dict) else {}
        free, files, error = number(row.get("bytes")), number(row.get("files")), row.get("error")
        if free >= MIN_FREE_BYTES and files >= MIN_FREE_FILES and not error:
            continue
        wanted = f"{bytes_text(MIN_FREE_BYTES)} and {MIN_FREE_FILES} files"
        have = text(error) or f"{bytes_text(free)} and {files} files"
        where = text(path)
        reason = "ranks store session directories and shared memory there"
        step = f"free space in {where}: see du -xh {where}"
        if error:
            step = f"let the MPI user write to {where}: mode 1777, the default"
        checks.append(_wrong("session_space", wanted, have, where, reason, step))
    return checks


def umask(output: Mapping[str, Any]) -> list[Check]:
    found = mapping(output, "umask")
    mask, where = number(found.get("mask")), _where(texts(found.get("at")), "UMASK of PAM")
    reason = f"ranks cannot use the files that they write: {where}"
    wrong = _wrong(
        "session_umask", "files for their owner", f"{mask:04o}", "", reason, f"set 022 in {where}"
    )
    return [wrong] if mask & 0o700 else []

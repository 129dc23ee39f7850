# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report a session's environment and limits, and the files that set them. Runs as the MPI user.

session.py sends this source over ssh, so it imports nothing from the collection. It prints one
marked line, as login files may print others. With the argument `files` it only reads files.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

MARK = "mpi-session "
PROFILE = "/etc/profile.d/baremetal-mpi-roce.sh"
OWN = "baremetal-mpi-roce"
PYTHON = "/usr/bin/python3"
WATCHED = re.compile(
    r"(?:OMPI_MCA|PMIX_MCA|PRTE_MCA|UCX|NCCL|GLOO|I_MPI|FI|MPI_ROCE|HYDRA|MV2)_\w+"
    r"|LD_PRELOAD|LD_LIBRARY_PATH|OPAL_PREFIX|PMIX_INSTALL_PREFIX|PYTHONHOME"
)
"""Variables that affect how ranks start, which libraries they load and how they connect."""
HARMLESS = re.compile(
    r"NCCL_DEBUG\w*|FI_LOG_\w+|UCX_LOG_\w+|UCX_WARN_\w+|I_MPI_DEBUG\w*|MPI_ROCE_MODULE"
    r"|(?:\w+_)?(?:verbose|warn_\w+|\w+_warn|help_aggregate|baremetal_run_id)"
)
PROGRAMS = ("mpirun", "orted", "ucx_info")
LIBRARY = re.compile(r"lib(?:mpi|ucp|uct|ucs|pmix|prrte|open-rte|open-pal|mpifort|fabric)\.so")
LIBRARIES = "/sbin/ldconfig -p"
LOADED = re.compile(r"^\s*(lib(?:mpi|ucp|uct|ucs|pmix)\.so\.\d\S*) .*=> (\S+)$", re.MULTILINE)
SYSTEM = ("/usr/lib/", "/usr/lib64/")
MAX_FILES, MAX_BYTES, MAX_FINDINGS, MAX_VALUE = 80, 1 << 18, 40, 300
ROOT_FILES = (
    *("/etc/environment", "/etc/security/pam_env.conf", "/etc/profile", "/etc/profile.d"),
    *("/etc/bash.bashrc", "/etc/bashrc", "/etc/csh.cshrc", "/etc/csh.login", "/etc/zsh"),
    *("/etc/zshenv", "/etc/zprofile", "/etc/environment.d"),
    *("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"),
)
HOME_FILES = (
    *(".pam_environment", ".ssh/environment", ".ssh/rc", ".config/environment.d"),
    *(".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".kshrc"),
    *(".cshrc", ".tcshrc", ".login", ".zshenv", ".zprofile", ".zshrc", ".zlogin"),
)
PARAMETER_FILES = (
    *(".openmpi/mca-params.conf", ".pmix/mca-params.conf", ".prte/mca-params.conf"),
    *("ucx.conf", ".nccl.conf"),
)
LIMITS = ("/etc/security/limits.conf", "/etc/security/limits.d")
LIMIT_LINE = re.compile(r"\s*[^#\s]+\s+(?:soft|hard|-)\s+(nofile|nproc|memlock|stack|core)\s+\S")
SOURCED = re.compile(r"(?:^|[;&{]|then|do)\s*(?:\.|source)\s+[\"']?([\w/.~${}+-]+)")
BEGIN = r"(?:^|[;&|{]|\bthen\b|\bdo\b)\s*"
ULIMITS = {
    name: re.compile(BEGIN + rf"(?:ulimit\s+(?:-\S+\s+)*-[SH]*{option}|limit\s+(?:-h\s+)?{csh})")
    for name, option, csh in (
        *(("nofile", "n", "d"), ("nproc", "u", "maxp"), ("memlock", "l", "meml")),
        *(("stack", "s", "s"), ("core", "c", "co")),
    )
}
"""Lines of login files that set a limit, in the syntax of sh and of csh."""
UMASK = re.compile(BEGIN + r"umask\s+\S")
OF_CSH = re.compile(r"\.csh$|/csh\.|/\.(?:t?cshrc|login)$")
WAITS = re.compile(
    BEGIN + r"(?:(?:exec|exit|logout|read|select|sleep|cat|while|until)\b|set\s+-\w*e)"
)
PROBE = (
    "import numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    f"print('{MARK}' + MPI.Get_library_version().split(',')[0])"
)
FIND = (
    "import importlib.machinery as m; "
    f"print('{MARK}' + '|'.join(getattr(m.PathFinder.find_spec(name), 'origin', '') or '' "
    "for name in ('mpi4py', 'numpy')))"
)

Values = Mapping[str, str]
Line = tuple[str, int, str]


def text_of(path: str) -> str:
    """A file's text up to MAX_BYTES; empty if it cannot be read."""
    with suppress(OSError):
        if Path(path).is_file():
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read(MAX_BYTES)
    return ""


def numbered(path: str) -> Iterator[Line]:
    """A file's lines without comments, with their position."""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield path, number, line


def files_in(paths: Sequence[str]) -> list[str]:
    """The files, with directories replaced by their sorted contents."""
    result: list[str] = []
    for path in paths:
        try:
            result += sorted(map(str, Path(path).iterdir()))
        except OSError:
            result.append(path)
    return result[: MAX_FILES * 2]


def lines_of(home: str, shell: str) -> list[Line]:
    """The lines of all files that set up a session, and of files that they source."""
    paths = files_in([*ROOT_FILES, *(f"{home}/{name}" for name in HOME_FILES)])
    result: list[Line] = []
    seen: set[str] = set()
    while paths and len(seen) < MAX_FILES:
        path = paths.pop(0)
        if path in seen or OWN in path or (OF_CSH.search(path) and "csh" not in shell):
            continue
        seen.add(path)
        for line in numbered(path):
            result.append(line)
            for name in SOURCED.findall(line[2]):
                name = re.sub(r"^(~|\$\{?HOME\}?)(?=/)", lambda _match: home, name)
                if name.startswith("/") and "$" not in name:
                    paths.append(name)
    return result


def places(lines: Sequence[Line], pattern: re.Pattern[str]) -> list[str]:
    return [f"{path}:{number}" for path, number, line in lines if pattern.search(line)][:3]


def mentions(lines: Sequence[Line], file: str) -> list[str]:
    """Places that name the directory of a file."""
    return places(lines, re.compile(re.escape(str(Path(file).parent))))


def setting(name: str) -> re.Pattern[str]:
    """Pattern of a line that sets a variable, in the syntax of any of these files."""
    return re.compile(rf"(?:^|[\s;&({{'\"]){name}(?:\+?=|\s+DEFAULT=|\s+OVERRIDE=|\s+\S)")


def printed(argv: Sequence[str], limit_s: float, **given: Any) -> str:
    """A program's output after the mark. Raises OSError, SubprocessError, ValueError."""
    with subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **given,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with processes that its login files started
            raise
    text: str = stdout.decode("utf-8", "replace")
    result = text.rpartition(MARK)
    if not result[1]:
        said = stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError((said or [f"exit status {process.returncode}"])[-1][:MAX_VALUE])
    return result[2]


SHOW = f"echo '{MARK}'; exec /bin/cat /proc/self/environ /proc/self/limits"


def view(argv: Sequence[str], limit_s: float, **given: Any) -> tuple[dict[str, str], str]:
    """Environment and limits of a process that this command starts."""
    environ, _end, limits = printed(argv, limit_s, **given).rpartition("\0")
    pairs = (pair.partition("=") for pair in environ.lstrip("\n").split("\0"))
    return {name: value for name, _equal, value in pairs}, limits


def find(program: str, path: str) -> str:
    return shutil.which(program, path=path) or ""


def foreign(values: Values, ours: Values) -> Iterator[tuple[str, str]]:
    """Variables that this collection does not set, or sets to other values."""
    for name, value in values.items():
        if not WATCHED.fullmatch(name) or HARMLESS.fullmatch(name) or ours.get(name) == value:
            continue
        if name == "LD_LIBRARY_PATH":
            own = ours.get(name, "").split(":")
            value = ":".join(path for path in value.split(":") if path not in own and has_mpi(path))
            if not value:
                continue
        yield name, value


def has_mpi(directory: str) -> bool:
    with suppress(OSError):
        return any(LIBRARY.match(file.name) for file in Path(directory or ".").iterdir())
    return False


def imports(values: Values, ours: Values, limit_s: float) -> Optional[dict[str, str]]:
    """Faults of numpy and mpi4py in an environment that selects unusual versions."""
    python = find("python3", values.get("PATH", "")) or PYTHON
    roots = (*SYSTEM, *filter(None, ours.get("MPI_ROCE_PYTHON", "").split(":")))
    result = {"python": python, "origin": ""}
    try:
        found = printed([python, "-c", FIND], limit_s, env=values, cwd="/").strip().split("|")
        strange = [origin for origin in found if origin and not origin.startswith(roots)]
        loader = any(name.startswith("LD_") for name, _value in foreign(values, ours))
        if os.path.realpath(python) == os.path.realpath(PYTHON) and not strange and not loader:
            return None
        result["origin"] = (strange or [""])[0]
        library = printed([python, "-c", PROBE], limit_s, env=values, cwd="/").strip()
        wanted = printed([PYTHON, "-s", "-c", PROBE], limit_s, env=ours, cwd="/").strip()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {**result, "error": str(error)[-MAX_VALUE:]}
    if library == wanted:
        return None
    return {**result, "error": f"mpi4py is linked with {library}, but mpirun is {wanted}"}


def space(path: str) -> dict[str, Any]:
    try:
        status = os.statvfs(path)
    except OSError as cause:
        return {"error": cause.strerror or str(cause)}
    # A file system without an inode table reports none.
    files = status.f_favail if status.f_files else 1 << 20
    error = "" if os.access(path, os.W_OK | os.X_OK) else "the MPI user cannot write there"
    return {"bytes": status.f_bavail * status.f_frsize, "files": files, "error": error}


def parameters(home: str) -> Iterator[dict[str, str]]:
    """Settings in the user's parameter files of Open MPI, PMIx, UCX and NCCL."""
    for name in PARAMETER_FILES:
        for path, number, line in numbered(f"{home}/{name}"):
            key, equal, value = (part.strip() for part in line.split("#", 1)[0].partition("="))
            if equal and key and not HARMLESS.fullmatch(key):
                at = f"{path}:{number}"
                yield {"name": key[:80], "value": value[:MAX_VALUE], "at": at}


def preloaded() -> Iterator[dict[str, str]]:
    """Libraries in /etc/ld.so.preload that are missing."""
    for at, number, line in numbered("/etc/ld.so.preload"):
        for path in re.split(r"[\s:]+", line.split("#", 1)[0].strip()):
            if path.startswith("/") and not Path(path).exists():
                yield {"path": path[:MAX_VALUE], "at": f"{at}:{number}"}


def cached(limit_s: float) -> Iterator[dict[str, Any]]:
    """Libraries of MPI and UCX that the loader finds outside of system directories."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        preferred: dict[str, str] = {}
        text = printed(["/bin/sh", "-c", f"echo '{MARK}'; {LIBRARIES}"], limit_s, cwd="/")
        for name, path in LOADED.findall(text):
            preferred.setdefault(name, path)
        files = files_in(("/etc/ld.so.conf", "/etc/ld.so.conf.d"))
        configured = [line for file in files for line in numbered(file)]
        for name, path in preferred.items():
            if not path.startswith((*SYSTEM, "/lib")):
                yield {"name": name, "value": path[:MAX_VALUE], "at": mentions(configured, path)}


def session(home: str, shell: str, limit_s: float) -> dict[str, Any]:
    here = dict(os.environ)
    profile = f"[ ! -r {PROFILE} ] || . {PROFILE}; {SHOW}"
    clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home}
    module = here.get("MPI_ROCE_MODULE", "")
    with suppress(OSError):
        if module and Path(module).stat().st_uid == 0:
            clean["MPI_ROCE_MODULE"] = module
    ours, _limits = view(["/bin/sh", "-c", profile], limit_s, env=clean, cwd="/")
    views = {"ssh": (here, text_of("/proc/self/limits"))}
    views["ranks"] = view(["/bin/sh", "-c", profile], limit_s, env=here, cwd="/")
    problem = ""
    try:
        argv = [f"-{Path(shell).name}", "-c", SHOW]
        views["login"] = view(argv, limit_s, executable=shell, env=here, cwd="/")
    except subprocess.TimeoutExpired:
        problem = f"nothing within {limit_s:g} s"
    except (OSError, ValueError) as error:
        problem = str(error)
    lines = lines_of(home, shell)
    variables, programs, modules = [], [], []
    asked: list[Values] = []
    wanted = {name: find(name, ours.get("PATH", "")) for name in PROGRAMS}
    for kind, (values, _text) in views.items():
        for name, value in foreign(values, ours):
            at = places(lines, setting(name))
            entry = {"kind": kind, "name": name, "value": value[:MAX_VALUE], "at": at}
            variables.append({**entry, "wanted": ours.get(name, "")[:MAX_VALUE]})
        if kind == "ssh":
            continue
        for name in PROGRAMS:
            value = find(name, values.get("PATH", ""))
            if wanted[name] and os.path.realpath(value) != os.path.realpath(wanted[name]):
                at = mentions(lines, value) if value else places(lines, re.compile("PATH="))
                entry = {"kind": kind, "name": name, "value": value, "at": at}
                programs.append({**entry, "wanted": wanted[name]})
        of_python = {
            name: value
            for name, value in values.items()
            if name == "PATH" or name.startswith(("PYTHON", "LD_"))
        }
        if of_python not in asked:
            asked.append(of_python)
            wrong = imports(values, ours, limit_s)
            if wrong:
                at = mentions(lines, wrong["origin"] or wrong["python"])
                modules.append({"kind": kind, **wrong, "at": at})
    scratch = dict.fromkeys(("/tmp", here.get("TMPDIR") or "/tmp", "/dev/shm"))
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "problem": problem,
        "umask": {"mask": mask, "at": places(lines, UMASK)},
        "limits": {kind: text[:4096] for kind, (_values, text) in views.items()},
        "variables": variables[:MAX_FINDINGS],
        "programs": programs[:MAX_FINDINGS],
        "modules": modules[:MAX_FINDINGS],
        "parameters": list(parameters(home))[:MAX_FINDINGS],
        "libraries": [] if ours.get("LD_LIBRARY_PATH") else list(cached(limit_s))[:MAX_FINDINGS],
        "preload": list(preloaded())[:MAX_FINDINGS],
        "space": {path[:MAX_VALUE]: space(path) for path in scratch},
        "ulimit": {name: places(lines, pattern) for name, pattern in ULIMITS.items()},
        "limit_files": limit_files(),
        "waits": waits(lines, home) if problem else [],
    }


def limit_files() -> dict[str, list[str]]:
    """Lines that set limits in files other than the collection's, by limit."""
    result: dict[str, list[str]] = {}
    for file in files_in(LIMITS):
        for path, number, line in numbered(file) if OWN not in file else ():
            match = LIMIT_LINE.match(line)
            if match:
                result.setdefault(match[1], []).append(f"{path}:{number}")
    return {name: at[-3:] for name, at in result.items()}


def waits(lines: Sequence[Line], home: str) -> list[str]:
    """Lines of the user's or site's login files that wait or replace the shell."""
    own = [line for line in lines if line[0].startswith(home)]
    site = [line for line in lines if "/profile.d/" in line[0]]
    return [*places(own, WAITS), *places(site, WAITS)][:3]


def main() -> None:
    entry = pwd.getpwuid(os.getuid())
    if sys.argv[1] == "files":
        lines = lines_of(entry.pw_dir, entry.pw_shell)
        result: dict[str, Any] = {"waits": waits(lines, entry.pw_dir), "limit_files": limit_files()}
    else:
        result = session(entry.pw_dir, entry.pw_shell or "/bin/sh", float(sys.argv[1]))
    print("\n" + MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

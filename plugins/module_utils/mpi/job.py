# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A user's program over the hostfile: checked, started as a script, watched, ended, swept up.

The script, the hostfile and the output are in one directory on the launcher. systemd ends the run
when this process is killed and its time is over; the lease ends it when the controller is gone.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from ..core import machine
from ..core.checks import FAILED, OK, Check, as_dicts, failures, not_applicable
from ..core.commands import CommandError, Runner
from ..core.files import make_directories
from ..core.part import PlanError
from ..core.text import some
from .allreduce import hosts, verdict
from .allreduce.launch import GRACE_S, bounded, login_shell
from .allreduce.plan import PROGRAM, RAIL_BIND, Node, Plan, as_listed
from .causes import causes
from .launcher import OPEN_MPI, Launcher

SCRIPT, HOSTS, OUTPUT, LEASE = "job.sh", "hostfile", "output.log", "lease"
JOBS = Path("/var/lib/baremetal-mpi-roce/jobs")
"""On the launcher; each job has its own directory in it."""
CHECKPOINTS = "CLUSTER_CHECKPOINT_DIR"
STORAGE_CHECK = "job_storage"
LAST_LINES = 12
LAST_BYTES, LINE = 1 << 22, 2000
"""Of an output, which may not fit into memory: what is read of its end, and shown of a line."""
INTERRUPTED = "ansible-playbook was interrupted"
_POLL_S = 0.2
_QUIET_S = 60.0
"""Without output for so long, nodes are asked whether they are there."""
_NAME = re.compile(r"[A-Za-z_]\w*")
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that decide which programs and libraries are found: mpirun, and the ssh that it starts,
keep their own. On its command line, where these may stand."""

# What keeps this node out, a line each. Its own shell must not be found among the programs.
CHECK = r"""
profile=/etc/profile.d/baremetal-mpi-roce.sh
if [ -r "$profile" ]; then . "$profile"; fi
cd "$1" 2>/dev/null || echo "mpi-ready problem directory $1 not found"
(PATH=${6:-$PATH}; command -v -- "$2" >/dev/null) ||
  echo "mpi-ready problem program $2 not found${6:+ in PATH $6, that of mpi_job_environment}"
[ -z "$3" ] || [ -r "$3" ] || echo "mpi-ready problem program $3 not found"
for id in $(pgrep -x 'orted|prted|mpirun|prterun|hydra_pmi_proxy'); do
  it=$(ps -wwo user=,args= -p "$id")
  case $it in *' ess_base_nspace prte-'*) continue ;; esac # of a DVM, which waits for jobs
  printf 'mpi-ready problem another MPI job runs: %s %.80s\n' "$id" "$it"
done
if command -v nvidia-smi >/dev/null; then
  ids=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | tr '\n' ' ')
  [ -z "$ids" ] || echo "mpi-ready problem GPUs are in use by process $ids"
fi
timeout -s KILL 20 sh -c "$4" sh "$5" ||
  [ $? -lt 128 ] || echo "mpi-ready problem shared file systems do not answer within 20 s"
echo mpi-ready end
"""
# Shared file systems: mounted; that of checkpoints (another one may be given) takes a file.
STORAGE = r"""
asked=$1
for name in CLUSTER_CHECKPOINT_DIR CLUSTER_DATASETS_DIR; do
  eval "place=\${$name:-}"
  echo "mpi-ready storage $name=$place"
  if [ -z "$place" ] || { said=$(stat "$place/." 2>&1 >/dev/null) && mountpoint -q "$place"; }; then
    [ "$name" = CLUSTER_DATASETS_DIR ] || asked=${asked:-$place}
  elif [ -e /run/systemd/container ]; then
    echo "mpi-ready container $place"
  else
    said="${said:+ (${said##*: })}"
    echo "mpi-ready problem $name: $place is not mounted$said; run --tags storage"
  fi
done
[ -n "$asked" ] || exit 0
if [ ! -e "$asked" ]; then asked=$(dirname "$asked"); fi
if said=$({
  file=$(mktemp "$asked/.mpi-job-XXXXXX") && trap 'rm -f "$file"' EXIT &&
    head -c 4096 /dev/zero >"$file" && sync "$file" && stat -c %Y "$file"
} 2>&1); then
  echo "mpi-ready written $said $(df -Pk "$asked" | awk 'NR == 2 {print $4}')"
else
  echo "mpi-ready problem no checkpoints can be written to $asked: ${said##*: }"
fi
exit 0
"""
# The newest file, and the time now. Programs write hidden files first, and then rename them.
NEWEST = r"""
echo "mpi-ready now $(date +%s.%N)"
found='mpi-ready newest %T@ %s %p\n'
line='
'
timeout -s KILL 30 find "$1" -type f ! -name '.*' ! -path "*$line*" -printf "$found" 2>/dev/null |
  sort -k 3 -n | tail -n 1
"""
# Session directories and shared memory of ranks that were killed; others of the user may run. $1:
# seconds since the job began. NCCL, PyTorch, CUDA, PSM and Python each have their own names in
# /dev/shm, so all files there that were written since then and are not in use are removed: the
# kernel grants a lease only on a file that no process of any user has open or mapped. /proc hides
# those of other users, and a file may be opened after a look. What was copied there with its time,
# or renamed, is older. After an unexpected error all stays where it is.
TIDY = r"""
pgrep -u "$(id -u)" -x 'orted|prted|mpirun|prterun|hydra_pmi_proxy' >/dev/null
[ $? = 1 ] || exit 0
timeout -s KILL 30 /usr/bin/python3 -ISc '
import fcntl, os, re, shutil, signal, stat, sys, time
since, (shm, proc, tmp) = float(sys.argv[1]), sys.argv[2:]
begin, of_mpi = time.time() - since, ("vader_segment.", "sm_segment.", "ucx_shm_")
session = rf"(ompi|prte|prted|prterun|mpirun)\.[^ ]+\.{os.getuid()}"
rank = rb"(^|\0)(OMPI_COMM_WORLD_RANK|PMIX_RANK|PMI_RANK|SLURM_PROCID|LOCAL_RANK)="

def environ(pid):
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return b""

def mine(folder):
    for entry in os.scandir(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if status.st_uid == os.getuid() and re.fullmatch("[ -~]+", entry.name):
            yield entry, status

other = any(re.search(rank, environ(pid)) for pid in os.listdir(proc) if pid.isdigit())
for entry, _status in [] if other else mine(tmp):
    if re.fullmatch(session, entry.name) and entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry, ignore_errors=True)
        print("mpi-ready removed", entry.path)
signal.signal(signal.SIGIO, signal.SIG_IGN)  # of the lease, where a process wants to open the file
for entry, status in mine(shm):
    newer = not other and min(status.st_ctime, status.st_mtime) > begin
    ours = entry.name.startswith(of_mpi) or newer
    if not ours or not stat.S_ISREG(status.st_mode):
        continue
    try:
        file = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        continue
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.unlink(entry.path)
        print("mpi-ready removed", entry.path)
    except OSError:
        pass
    finally:
        os.close(file)
' "${1:-0}" "${2:-/dev/shm}" "${3:-/proc}" "${4:-/tmp}"
exit 0
"""


@dataclass(frozen=True)
class Job:
    """What the operator asked for. `ranks` 0: every slot."""

    nodes: tuple[Node, ...]
    program: tuple[str, ...]
    user: str
    run_id: str
    directory: Path
    """Of this job."""
    hostfile: Path
    ranks: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    """Ranks by node, where not every slot of all nodes is taken."""
    mapping: str = "gpu"
    work_directory: str = "/tmp"
    """Where ranks start; each host has it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher = OPEN_MPI
    transport: str = "tcp"
    time_limit_s: float = 3600.0
    lease_s: float = 0.0
    """Seconds without a sign of the controller after which the job is ended; 0 for no limit."""
    allow_missing: bool = False
    storage: bool = True
    """Whether nodes need the shared file systems."""
    checkpoint_room_gb: float = 0.0

    def __post_init__(self) -> None:
        if not self.program:
            raise PlanError("mpi_job_program is empty: give the program and its arguments")
        environment_of(self.environment)
        if self.checkpoints and not self.checkpoints.startswith("/"):
            raise PlanError(f"{self.checkpoints}: give the whole path of the checkpoint directory")

    @property
    def checkpoints(self) -> str:
        """Where its ranks are told to write them; empty for where each node has them."""
        return self.environment.get(CHECKPOINTS, "")

    @property
    def unit(self) -> str:
        return f"baremetal-mpi-job-{self.run_id}"

    @property
    def script_of_program(self) -> str:
        """The program itself, where an interpreter of a path runs it; else empty."""
        interpreted = Path(self.program[0]).name.startswith("python") and len(self.program) > 1
        return self.program[1] if interpreted and self.program[1].startswith("/") else ""

    def command(self, nodes: Sequence[Node]) -> list[str]:
        """mpirun's command line."""
        ranks = self.ranks or sum(node.slots for node in nodes)
        hosts, launcher = str(self.directory / HOSTS), self.launcher
        argv = launcher.start(self.run_id, self.parameters, hosts, ranks)
        argv += [*launcher.label, *launcher.mappings[self.mapping]]
        exported = [
            f"{name}={value}" if name in SEARCHED else name
            for name, value in self.environment.items()
        ]
        argv += launcher.ranks(self.work_directory, exported)
        return [*argv, *([RAIL_BIND] if self.mapping == "gpu" else []), *self.program]

    def script(self, nodes: Sequence[Node]) -> str:
        """What runs, and what a person can run by hand."""
        lines = ["#!/bin/sh -l", f"# MPI job {self.run_id}: run it as {self.user} on the launcher."]
        lines += [
            f"export {key}={shlex.quote(value)}"
            for key, value in self.environment.items()
            if key not in SEARCHED
        ]
        return "\n".join([*lines, f"exec {shlex.join(self.command(nodes))}", ""])


@dataclass
class Ended:
    """How it ended: mpirun's exit status, and why it was stopped, if it was."""

    rc: int
    seconds: float
    stopped: str = ""
    first_output_s: Optional[float] = None


class EndedError(Exception):
    """What went wrong once ranks had been started."""


@dataclass(frozen=True)
class Storage:
    """What nodes reported of shared file systems."""

    place: str = ""
    """Where checkpoints are."""
    since: float = 0.0
    """When the first node wrote there, by the clock of that file system."""
    checks: tuple[Check, ...] = ()
    unmounted: str = ""
    """Why there is no place for them, with the remedy."""


def run(
    job: Job,
    runner: Runner,
    show: Callable[[str], None],
    uid: int,
    gid: int,
    interrupted: Callable[[], object] = lambda: False,
) -> dict[str, Any]:
    """The result of a job, as the module returns it. Raises PlanError before anything starts, and
    EndedError where it could not be ended, swept up or read after that."""
    nodes, differences = as_listed(job.nodes, _text(job.hostfile), job.launcher)
    if differences:
        raise PlanError(f"{job.hostfile}: {some(differences, 8)}; run --tags hostfile")
    known = login_shell(job.user, ["sh", "-c", "command -v mpirun"])
    if runner(known, check=False).rc != 0:
        raise PlanError("mpirun not found on the launcher: run --tags mpi")
    nodes, missing, storage = _ready(job, chosen(job, nodes), runner, show)
    slots = sum(node.slots for node in nodes)
    if job.ranks > slots:
        raise PlanError(f"{job.ranks} ranks asked for, and {len(nodes)} nodes have {slots} slots")
    if interrupted():
        raise PlanError(INTERRUPTED)
    prepare(job, nodes, uid, gid)
    starting = f"starting {job.ranks or slots} ranks on {len(nodes)} nodes"
    show("; ".join(filter(None, (starting, storage.unmounted))))
    process, how = _started(job), "was started"
    try:
        ended = _watched(job, nodes, process, runner, interrupted)
        how = f"has run, {ended.stopped or f'exit status {ended.rc}'} after {ended.seconds:.0f} s"
        return {**_after(job, nodes, ended, storage, runner), "missing": missing}
    except (CommandError, OSError, LookupError, ValueError, subprocess.TimeoutExpired) as error:
        raise EndedError(
            f"{job.run_id} {how}, and then: {error}\n"
            f"  output: {job.directory}/{OUTPUT}; something of it may be left on "
            f"{some([node.name for node in nodes])}: look with pgrep -fa {job.run_id}"
        ) from error


def _after(
    job: Job, nodes: Sequence[Node], ended: Ended, storage: Storage, runner: Runner
) -> dict[str, Any]:
    """Nodes are swept, and what the job came to is read."""
    swept = hosts.sweep(runner, job.user, [node.host for node in nodes], job.run_id)
    left = tidy(job, nodes, runner, ended.seconds)
    output = _text(job.directory / OUTPUT, LAST_BYTES)
    rank, lines = last_lines(job, nodes, output, ended.rc)
    why = causes(output, known=True) if ended.rc or ended.stopped else []
    lines = [*why, *(line for line in lines if not line.strip().endswith(tuple(why)))]
    checkpoint = newest(job, nodes[0], storage, runner)
    checks = [
        *storage.checks,
        Check("job_ended", 0, ended.rc, OK if ended.rc == 0 and not ended.stopped else FAILED,
              reason=ended.stopped or (f"rank {rank} failed first" if rank is not None else "")),
        verdict.no_orphans(swept),
    ]  # fmt: skip
    return {
        "rc": ended.rc,
        "seconds": round(ended.seconds, 1),
        "stopped": ended.stopped,
        "failed_rank": rank,
        "lines": lines,
        "removed": left,
        "first_output_s": ended.first_output_s,
        "checkpoint": checkpoint,
        "command": shlex.join(job.command(nodes)),
        "directory": str(job.directory),
        "nodes": [node.name for node in nodes],
        "virtual": bool(machine.container()) or any(node.software for node in nodes),
        "checks": as_dicts(checks),
        "message": _message(job, checks, lines, checkpoint, storage.unmounted),
    }


def texts(values: Mapping[str, Any], what: str) -> dict[str, str]:
    """The option's values as mpirun takes them."""
    empty = [name for name, value in values.items() if value is None]
    if empty:
        raise PlanError(f"{what}: {some(empty)}: no value; give one, or leave the name out")
    return {name: str(value) for name, value in values.items()}


def environment_of(given: Mapping[str, Any]) -> dict[str, str]:
    """mpi_job_environment as ranks get it. Raises PlanError for what they cannot have."""
    wrong = [str(name) for name in given if not isinstance(name, str) or not _NAME.fullmatch(name)]
    if wrong:
        raise PlanError(f"mpi_job_environment: {some(wrong)}: no name of an environment variable")
    values = texts(given, "mpi_job_environment")
    for name, value in values.items():
        pattern = r"\$\{?\w+" if name in SEARCHED else rf"\$\{{?{name}\b"
        if re.search(pattern, value):
            whole = "/srv/venv/bin:/usr/local/bin:/usr/bin:/bin" if name == "PATH" else "it out"
            raise PlanError(
                f"mpi_job_environment: {name} has a $ of another value, and values are taken "
                f"as they are: write {whole}"
            )
    return values


def places_of(given: Mapping[str, Any]) -> dict[str, int]:
    """mpi_job_places as numbers. Raises PlanError for others."""
    for name, count in given.items():
        if not re.fullmatch(r"[0-9]{1,9}", str(count)):
            raise PlanError(f"mpi_job_places: {name}: {count!r} is no number")
    return {name: int(count) for name, count in given.items()}


def chosen(job: Job, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that the job is for, with the ranks of each as their slots."""
    if not job.places:
        return tuple(nodes)
    slots = {node.name: node.slots for node in nodes}
    wrong = [
        f"{count} ranks on {name}, which has {slots.get(name, 0)} slots"
        for name, count in job.places.items()
        if not 0 < count <= slots.get(name, 0)
    ]
    if wrong:
        raise PlanError(f"mpi_job_places: {some(wrong)}")
    return tuple(
        replace(node, slots=job.places[node.name]) for node in nodes if node.name in job.places
    )


def _ready(
    job: Job, nodes: Sequence[Node], runner: Runner, show: Callable[[str], None]
) -> tuple[tuple[Node, ...], dict[str, str], Storage]:
    """The nodes that can take part, the others with the reason, if they may be left out, and
    what is known of shared file systems."""
    show(f"asking {len(nodes)} nodes whether they are ready")
    plan = Plan(tuple(nodes), job.transport)
    of_job = (PROGRAM, "", job.transport, "", job.launcher)
    problems, found = hosts.preflight(runner, job.user, plan.nodes, *of_job)
    storage = STORAGE if job.storage else "exit 0"
    words = [job.work_directory, job.program[0], job.script_of_program, storage, job.checkpoints]
    words.append(job.environment.get("PATH", ""))
    script = [hosts.remote(CHECK, words)]
    asked = {node.host: script for node in found if node.host not in problems}
    said = {
        host: _said(result.stdout if result is not None else f"{hosts.MARK}problem {reason}")
        for host, (result, reason) in hosts.ask_all(runner, job.user, asked).items()
    }
    usual = Counter(str(each["storage"]) for each in said.values()).most_common(1) or [("", 0)]
    for host, each in said.items():
        wrong = [*each["problem"], *_scarce(job, each["written"])]
        if each["storage"] and str(each["storage"]) != usual[0][0]:
            wrong.append(f"{', '.join(each['storage'])}, unlike on most nodes; run --tags mpi")
        if wrong:
            problems[host] = "; ".join(wrong)
    left = tuple(node for node in found if node.host not in problems)
    if problems and (not job.allow_missing or not left):
        listed = "\n  ".join(f"{host}: {why}" for host, why in hosts.by_reason(problems).items())
        remedy = "repair them, drain them, or leave them out with mpi_job_allow_missing"
        raise PlanError(
            f"{len(problems)} of {len(nodes)} nodes cannot take part:\n  {listed}\n{remedy}"
        )
    return left, problems, _storage(job, said[left[0].host])


def _said(text: str) -> dict[str, list[str]]:
    """The script's own lines by their first word; others are a login file's."""
    found: dict[str, list[str]] = {"problem": [], "storage": [], "written": [], "container": []}
    for line in text.splitlines():
        word, _space, rest = line[len(hosts.MARK) :].partition(" ")
        if line.startswith(hosts.MARK):
            found.setdefault(word, []).append(rest)
    return found


def _scarce(job: Job, written: Sequence[str]) -> list[str]:
    free = [int(each.split()[1]) * 1024 / 1e9 for each in written]
    needed = f"and mpi_job_checkpoint_room_gb is {job.checkpoint_room_gb:g}"
    return [f"{gb:.1f} GB free for checkpoints, {needed}" for gb in free
            if gb < job.checkpoint_room_gb]  # fmt: skip


def _storage(job: Job, said: Mapping[str, Sequence[str]]) -> Storage:
    values = [each.partition("=")[2] for each in said["storage"]]
    place = job.checkpoints or next(iter(values), "")
    checks = [Check(STORAGE_CHECK, "mounted", "mounted", OK)] if any(values) else []
    if said["container"]:
        checks = [
            not_applicable(STORAGE_CHECK, "mounted", f"{machine.IN_CONTAINER}: {machine.NO_MOUNTS}")
        ]
    written = [float(each.split()[0]) for each in said["written"]]
    if written:
        return Storage(place, written[0], tuple(checks))
    unmounted = ""
    if place in said["container"]:
        unmounted = (
            f"{place} ({CHECKPOINTS}) is not mounted in these containers: a program that writes "
            "checkpoints needs mpi_job_checkpoint_directory, as /var/tmp/checkpoints"
        )
    return Storage(unmounted=unmounted, checks=tuple(checks))


def prepare(job: Job, nodes: Sequence[Node], uid: int, gid: int) -> None:
    """Directory, script and hostfile. The environment may have secrets: for the user alone.

    Not the directory: root opens the output in it, which a process of the user could replace.
    """
    make_directories(job.directory.parent, 0o755)
    job.directory.mkdir(0o700)
    job.directory.chmod(0o750)
    listed = job.launcher.hostfile(_slots(nodes), job.mapping)
    for name, text, mode in (
        (SCRIPT, job.script(nodes), 0o700),
        (HOSTS, listed, 0o600),
        (OUTPUT, "", 0o600),
        (LEASE, "", 0o600),
    ):
        path = job.directory / name
        path.touch(mode)
        path.write_text(text, encoding="utf-8")
        os.chown(path, uid, gid)
    os.chown(job.directory, -1, gid)


def _started(job: Job) -> subprocess.Popen[bytes]:
    argv = login_shell(job.user, [str(job.directory / SCRIPT)])
    output = job.directory / OUTPUT
    argv = bounded(argv, job.unit, job.time_limit_s, what=f"MPI job {job.run_id}", output=output)
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)


def _watched(
    job: Job,
    nodes: Sequence[Node],
    process: subprocess.Popen[bytes],
    runner: Runner,
    interrupted: Callable[[], object],
) -> Ended:
    begin = time.monotonic()
    output, lease = job.directory / OUTPUT, job.directory / LEASE
    stopped, size, grown, first = "", 0, begin, None  # type: str, int, float, Optional[float]
    while process.poll() is None and not stopped:
        time.sleep(_POLL_S)
        now = time.monotonic()
        try:
            written, renewed = output.stat().st_size, lease.stat().st_mtime
        except OSError as error:
            stopped = f"its directory cannot be read: {error}"
            break
        if written != size:
            size, grown = written, now
            first = round(now - begin, 1) if first is None else first
        if interrupted():
            stopped = INTERRUPTED
        elif job.lease_s and time.time() - renewed > job.lease_s:
            stopped = f"ansible-playbook was ended, or lost this host for {job.lease_s:g} s"
        elif now - grown > _QUIET_S:
            grown = now
            lost = hosts.lost(runner, job.user, nodes)
            if lost:
                stopped = "; ".join(
                    f"{host} no longer answers: {why}" for host, why in lost.items()
                )
    if stopped:
        runner(["systemctl", "stop", job.unit], check=False)
    rc = process.wait(timeout=job.time_limit_s + 4 * GRACE_S)
    seconds = time.monotonic() - begin
    if not stopped and seconds >= job.time_limit_s:
        stopped = f"stopped after {job.time_limit_s:g} s (mpi_job_time_limit_s)"
    return Ended(rc, seconds, stopped, first)


def newest(job: Job, node: Node, storage: Storage, runner: Runner) -> dict[str, Any]:
    """The newest checkpoint as the first node sees it; empty where none can be."""
    if not storage.place:
        return {}
    script = [hosts.remote(NEWEST, [storage.place])]
    ((result, reason),) = hosts.ask_all(runner, job.user, {node.host: script}).values()
    if result is None:
        return {"directory": storage.place, "error": f"{node.host}: {reason}"}
    said = _said(result.stdout)
    found: dict[str, Any] = {"directory": storage.place}
    for each in said.get("newest", []):
        written, size, path = each.split(" ", 2)
        age = float(said["now"][0]) - float(written)
        own = float(written) >= storage.since
        found.update(path=path, bytes=int(size), age_s=max(0, round(age)), own=own)
    return found


def checkpoint_line(found: Mapping[str, Any]) -> str:
    if "path" not in found:
        return f"no checkpoint in {found['directory']}" + f" ({found.get('error', 'no file')})"
    newest = f"{found['path']}, {found['bytes'] / 1e6:.1f} MB, {found['age_s']} s old"
    return f"newest checkpoint: {newest}" + ("" if found["own"] else " (none by this job)")


def tidy(job: Job, nodes: Sequence[Node], runner: Runner, seconds: float) -> dict[str, list[str]]:
    """Session directories and shared memory of killed ranks, removed, by host; here those of
    mpirun. `seconds`: since the job began, as clocks of hosts may differ."""
    # Checkpoints are no remains: from then on nothing is newer.
    since = "-60" if job.checkpoints.rstrip("/") == "/dev/shm" else str(math.ceil(seconds))
    runner(hosts.as_user(job.user, ["sh", "-c", TIDY, "sh", since]), check=False)
    script = [hosts.remote(TIDY, [since])]
    answers = hosts.ask_all(runner, job.user, {node.host: script for node in nodes})
    found = {
        host: [" ".join(rest) for word, *rest in hosts.said(result.stdout) if word == "removed"]
        for host, (result, _why) in answers.items()
        if result
    }
    return {host: paths for host, paths in found.items() if paths}


def _slots(nodes: Sequence[Node]) -> dict[str, int]:
    return {node.host: node.slots for node in nodes}


def last_lines(
    job: Job, nodes: Sequence[Node], output: str, rc: int
) -> tuple[Optional[int], list[str]]:
    """The rank that failed first as mpirun names it, and its last lines; else the last of all."""
    lines = [line[:LINE] for line in output.splitlines()]
    rank = job.launcher.failed_rank(output, _slots(nodes), job.mapping) if rc else None
    if rank is None:
        return None, lines[-LAST_LINES:]
    own = [line for line in lines if re.match(rf"\[\d+,{rank}\]<std(out|err)>:|\[{rank}\] ", line)]
    found = ((job.launcher.failed.search(line), line) for line in lines)
    message = [line for match, line in found if match and str(rank) in match.groups()]
    return rank, [*own[-LAST_LINES:], *message[:1]]


def _message(
    job: Job,
    checks: Sequence[Check],
    lines: Sequence[str],
    checkpoint: Mapping[str, Any],
    unmounted: str = "",
) -> str:
    wrong = failures(checks)
    if not wrong:
        return ""
    head = [f"job {job.run_id} failed:", *(f"  {check.line()}" for check in wrong)]
    tail = [f"  output: {job.directory}/{OUTPUT}"]
    tail += [f"  {checkpoint_line(checkpoint)}"] if checkpoint else []
    tail += [f"  {unmounted}"] if unmounted else []
    return "\n".join([*head, *(f"    {line}" for line in lines), *tail])


def _text(path: Path, last: int = 1 << 30) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - last))
            return file.read(last).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Extract the cause of a failure from the output of MPI, UCX, NCCL and compilers.

Open MPI explains errors in blocks between dashed lines; such a block stays whole, one line per
paragraph. Messages that every failure prints, and consequences of an earlier error, come last or
are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_LINES = 12
MAX_LINE, MAX_READ, MAX_BLOCK, MAX_TEXT = 400, 2000, 60, 1 << 20
"""Limits: characters of a line shown, and read; lines of a block; characters of an output read."""
LAST = 6
"""Number of lines shown of an output without a known message."""

CAUSE, WARNED, OTHER, EFFECT, NOISE = range(5)
"""Ranks, in the order of the result; noise is dropped."""

# open-mpi/ompi: help-oob-tcp.txt, help-mca-var.txt, help-opal-shmem-mmap.txt, help-mca-base.txt,
# help-orte-rmaps-base.txt, help-orterun.txt, help-errmgr-base.txt, help-ess-base.txt.
HELP = (
    "include and exclude lists were|^No network interfaces were found"
    "|^Two mutually-exclusive MCA variables|there is not enough space for"
    "|^There are not enough slots|job are already filled|would result in binding more"
    "|as it could not change to the|unable to complete a TCP connection"
    "|^A requested component was not found|appears to have been direct launched"
)
SSH = (
    r"^ssh: |^(ssh_exchange|kex_exchange)|Permission denied \(|Host key verification failed"
    r"|Too many authentication failures|^Access denied by|^(Connection closed|Disconnected) "
    r"|^Bad owner or permissions|assword (has expired|change required)|^shell request failed"
)
"""openssh/openssh-portable: sshconnect2.c, packet.c; SchedMD/slurm: pam_slurm_adopt.c."""
TABLE = {
    CAUSE: (
        r"\bUCX +(FATAL|ERROR)\b",  # openucx/ucx: src/ucs/debug/log.c
        r"^\[[^\]]*\] +\w+\.c(c|pp)?:\d+ ",  # there, at its abort
        "retry count exceeded|synd 0x",  # openucx/ucx: src/uct/ib/mlx5/ib_mlx5_log.c
        r"\bNCCL (WARN|ERROR)\b",  # NVIDIA/nccl: src/debug.cc
        HELP,
        r"pml_ucx\.c:\d+ +Error",  # open-mpi/ompi: ompi/mca/pml/ucx/pml_ucx.c
        "exec: .*: not found|command not found$|No such file or directory$",  # shells
        "^allreduce: ",  # roles/mpi_stack/files/allreduce.py
        SSH,
        r"^srun: error: (?!\S+: tasks? )|^salloc: error: |Out Of Memory$",  # SchedMD/slurm
        r"^Abort\(\d+\)|^Fatal error in ",  # pmodels/mpich: src/mpi/errhan
        r"MPI startup\(\).*(rror|arn)",  # Intel MPI, I_MPI_DEBUG
        r"^\[(mpiexec|proxy)[^\]]*\] .*(rror|nable|ailed|ssert)",  # pmodels/mpich: src/pm/hydra
    ),
    WARNED: (r"\bUCX +(WARN|DIAG)\b",),
    # Consequences of the messages above: help-orterun.txt, help-mpi-runtime.txt,
    # help-errmgr-base.txt, help-mpi-api.txt, help-mpi-errors.txt; src/pm/hydra.
    EFFECT: (
        "noticed that process rank|one or more processes exited|MPI_INIT failed for some reason",
        "does not know how to route a message|unable to reliably start one or more",
        r"^MPI_ABORT was invoked|^\[[^\]]+\] \*\*\* ",
        r"^srun: error: \S+: tasks? ",
        "^= .*(BAD TERMINATION|RUNNING AT|KILLED BY|EXIT CODE)",
    ),
    # Messages that accompany every failure, and some even a success.
    NOISE: (
        r"plm:\w+: Warning: setpgid",  # plm_rsh_module.c: the child goes on
        "more process(es)? ha(s|ve) sent help message|base_help_aggregate",  # orte show_help.c
        "^Primary job +terminated normally",  # help-orterun.txt
        "CLEANING UP REMAINING|YOU CAN IGNORE THE",  # src/pm/hydra
        r"^\[[^\]]+\] \[ *\d+\] |^\d+ +0x[0-9a-f]+ |^==== backtrace",
        r"^=+$|^Session terminated, killing shell",  # src/pm/hydra; util-linux
        r"^(srun|salloc): (?!error: )|^slurmstepd\S*: error: \*\*\* STEP ",  # SchedMD/slurm
        r"^Warning: Permanently added|^(Shared c|C)onnection to \S+ closed",  # openssh
    ),
}
"""The lowest matching rank applies: a line from UCX or NCCL is never noise."""
_TABLE = {rank: re.compile("|".join(patterns)) for rank, patterns in TABLE.items()}
_HELP = re.compile(HELP)

OTHERS = re.compile(
    r"error|fail|unable|unreachable|not reach|signal|killed|abort|lost|refused|denied|timed? ?out|"
    r"cannot|could not|no route|not found|not installed|exited|mismatch|invalid|no components|"
    r"no such|no space",
    re.IGNORECASE,
)
_TAG = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>: ?|^\[\d+\] (?=\S)|^ *\d+: ")
"""Prefix of each line that a rank prints: Open MPI's --tag-output, Hydra's -prepend-rank, srun's
--label."""
_DASHES = re.compile(r"-{20,}$")
_APART = re.compile(r"^\[|^=+|\b(UCX|NCCL) ")
"""Log lines, which other processes may print in the middle of a block."""


def causes(text: str, limit: int = MAX_LINES, known: bool = False) -> list[str]:
    """Lines that explain a failure, the first cause first. `known` restricts them to the table,
    because the output of users' programs may contain such words."""
    found: dict[str, tuple[int, list[str]]] = {}
    for piece, block in _pieces(text[-MAX_TEXT:]):
        rank = _rank(piece, block)
        if rank <= (WARNED if known else EFFECT):
            found.setdefault("\n".join(map(_kind, piece)), (rank, piece))
    pieces = sorted(found.values(), key=lambda each: each[0])
    least = pieces[0][0] if pieces else NOISE
    # Messages about consequences are long, and do not contain the cause.
    shown = [piece[: 3 if rank > least else None] for rank, piece in pieces]
    return [line[:MAX_LINE] for piece in shown for line in piece][:limit]


def last_lines(text: str, limit: int = LAST) -> list[str]:
    return [line.strip()[:MAX_LINE] for line in text.splitlines() if line.strip()][-limit:]


def _rank(piece: Sequence[str], block: bool) -> int:
    known = (rank for rank, pattern in _TABLE.items() if any(map(pattern.search, piece)))
    return next(known, OTHER if block or OTHERS.search(piece[0]) else NOISE)


def _kind(line: str) -> str:
    """Normalize a line: the same message from many processes compares equal, one about another
    device does not."""
    bare = re.sub(r"^(\[[^\]]*\] *)+|^\S+:\d+:\d+ (\[\d+\] )?", "", line)
    return re.sub(r"\b(0x[0-9a-f]+|\d+)\b", "#", bare)


def _pieces(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield single lines, and the paragraphs of Open MPI's blocks with True."""
    lines = [_TAG.sub("", line[:MAX_READ].rstrip()) for line in text.splitlines()]
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        inside = bool(_DASHES.match(line.strip()))
        # A block without its dashed lines is recognized by its first line.
        if not inside and (_APART.search(line) or not _HELP.search(line.strip())):
            if line.strip():
                yield [line.strip()], False
            continue
        block = [] if inside else [line]
        most = MAX_BLOCK if inside else 2 * MAX_LINES
        while index < len(lines) and not _DASHES.match(lines[index].strip()):
            if _APART.search(lines[index]) and inside:
                yield [lines[index].strip()], False
            elif _APART.search(lines[index]):
                break
            elif len(block) < most:
                block.append(lines[index])
            elif not inside:
                break
            index += 1
        index += inside
        if any(map(str.strip, block)):
            yield _paragraphs(block), True


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """One line for each paragraph and for each `name: value`."""
    found: list[str] = []
    ended = True
    for line in map(str.strip, lines):
        single = bool(re.match(r"[\w ]{1,24}: +\S|-->|[*-] ", line))
        if line and not ended and not single:
            found[-1] = f"{found[-1]} {line}"[:MAX_READ]
        elif line:
            found.append(line)
        ended = not line or (single and line[0] not in "*-")
    return found

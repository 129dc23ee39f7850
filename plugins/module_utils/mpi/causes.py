# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Extract the cause of a failure from the output of MPI, UCX, NCCL and compilers.

Open MPI explains errors in blocks between dashed lines; such a block stays whole, one line per
paragraph. Messages that every failure prints, and consequences of an earlier error, come last or
are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_LINES = 12
"""Maximum number of lines in a result."""
MAX_LINE, MAX_READ, MAX_BLOCK, MAX_TEXT = 400, 2000, 60, 1 << 20
"""Limits: characters of a line shown, and read; lines of a block; characters of an output read."""
LAST = 6
"""Number of lines shown of an output without a known message."""

CAUSE, WARNED, OTHER, EFFECT, NOISE = range(5)
"""Ranks, in the order of the result; noise is dropped."""


@dataclass(frozen=True)
class Symptom:
    """A message of a tool, and the public file that defines it."""

    pattern: str
    source: str
    rank: int = CAUSE


TABLE = (
    # UCX and NCCL: every line with the level of an error or warning.
    Symptom(r"\bUCX +(FATAL|ERROR)\b", "openucx/ucx: src/ucs/debug/log.c"),
    Symptom(r"\bUCX +(WARN|DIAG)\b", "openucx/ucx: src/ucs/debug/log.c", WARNED),
    Symptom(r"^\[[^\]]*\] +\w+\.c(c|pp)?:\d+ ", "openucx/ucx: src/ucs/debug/log.c, at its abort"),
    Symptom(r"retry count exceeded|synd 0x", "openucx/ucx: src/uct/ib/mlx5/ib_mlx5_log.c"),
    Symptom(r"\bNCCL (WARN|ERROR)\b", "NVIDIA/nccl: src/debug.cc"),
    # Open MPI: share/openmpi/help-*.txt, and messages in its code.
    Symptom(r"include and exclude lists were", "open-mpi/ompi: help-oob-tcp.txt, include-exclude"),
    Symptom(r"^No network interfaces were found", "open-mpi/ompi: help-oob-tcp.txt"),
    Symptom(r"^Two mutually-exclusive MCA variables", "open-mpi/ompi: help-mca-var.txt"),
    Symptom(r"there is not enough space for", "open-mpi/ompi: help-opal-shmem-mmap.txt"),
    Symptom(r"^There are not enough slots", "open-mpi/ompi: help-orte-rmaps-base.txt"),
    Symptom(r"job are already filled", "open-mpi/ompi: help-orte-rmaps-base.txt"),
    Symptom(r"would result in binding more", "open-mpi/ompi: help-orte-rmaps-base.txt"),
    Symptom(r"as it could not change to the", "open-mpi/ompi: help-orterun.txt"),
    Symptom(r"unable to complete a TCP connection", "open-mpi/ompi: help-errmgr-base.txt"),
    Symptom(r"^A requested component was not found", "open-mpi/ompi: help-mca-base.txt"),
    Symptom(r"pml_ucx\.c:\d+ +Error", "open-mpi/ompi: ompi/mca/pml/ucx/pml_ucx.c"),
    Symptom(r"exec: .*: not found|command not found$|No such file or directory$", "POSIX shells"),
    Symptom(r"^allreduce: ", "roles/mpi_stack/files/allreduce.py"),
    # ssh, started by mpirun.
    Symptom(
        r"^ssh: |^(ssh_exchange|kex_exchange)|Permission denied \(|Host key verification failed"
        r"|Too many authentication failures|^Access denied by|^(Connection closed|Disconnected) "
        r"|^Bad owner or permissions|assword (has expired|change required)|^shell request failed",
        "openssh/openssh-portable: sshconnect2.c, packet.c; SchedMD/slurm: pam_slurm_adopt.c",
    ),
    # MPICH and Intel MPI.
    Symptom(r"^Abort\(\d+\)|^Fatal error in ", "pmodels/mpich: src/mpi/errhan"),
    Symptom(r"MPI startup\(\).*(rror|arn)", "Intel MPI, I_MPI_DEBUG"),
    Symptom(
        r"^\[(mpiexec|proxy)[^\]]*\] .*(rror|nable|ailed|ssert)", "pmodels/mpich: src/pm/hydra"
    ),
    # Consequences of the messages above.
    Symptom(r"noticed that process rank|one or more processes exited", "help-orterun.txt", EFFECT),
    Symptom(r"MPI_INIT failed for some reason", "help-mpi-runtime.txt", EFFECT),
    Symptom(r"does not know how to route a message", "help-errmgr-base.txt", EFFECT),
    Symptom(r"unable to reliably start one or more", "help-errmgr-base.txt", EFFECT),
    Symptom(r"^MPI_ABORT was invoked", "help-mpi-api.txt", EFFECT),
    Symptom(r"^= .*(BAD TERMINATION|RUNNING AT|KILLED BY|EXIT CODE)", "src/pm/hydra", EFFECT),
    Symptom(r"^\[[^\]]+\] \*\*\* ", "help-mpi-errors.txt", EFFECT),
    # Messages that accompany every failure, and some even a success.
    Symptom(r"plm:\w+: Warning: setpgid", "plm_rsh_module.c: the child goes on", NOISE),
    Symptom(r"more process(es)? ha(s|ve) sent help message", "orte/util/show_help.c", NOISE),
    Symptom(r"base_help_aggregate", "orte/util/show_help.c", NOISE),
    Symptom(r"^Primary job +terminated normally", "help-orterun.txt", NOISE),
    Symptom(r"CLEANING UP REMAINING|YOU CAN IGNORE THE", "src/pm/hydra", NOISE),
    Symptom(r"^\[[^\]]+\] \[ *\d+\] |^\d+ +0x[0-9a-f]+ |^==== backtrace", "backtraces", NOISE),
    Symptom(r"^=+$|^Session terminated, killing shell", "src/pm/hydra; util-linux", NOISE),
    Symptom(r"^Warning: Permanently added|^(Shared c|C)onnection to \S+ closed", "openssh", NOISE),
)
"""The lowest matching rank applies: a line from UCX or NCCL is never noise."""
_TABLE = tuple((re.compile(known.pattern), known.rank) for known in TABLE)
_HELP = re.compile("|".join(each.pattern for each in TABLE if ": help-" in each.source))

OTHERS = re.compile(
    r"error|fail|unable|unreachable|not reach|signal|killed|abort|lost|refused|denied|timed? ?out|"
    r"cannot|could not|no route|not found|not installed|exited|mismatch|invalid|no components|"
    r"no such|no space",
    re.IGNORECASE,
)
"""Words in errors that the table does not list."""
BUILD = re.compile(
    r"(?:^|: )(?:fatal )?error: |No space left on device|cannot find -l|undefined reference to|"
    r"command not found|^make(?:\[\d+\])?: \*\*\* "
)
"""Errors of configure, compilers and linkers; those of make come last."""

_TAG = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>: ?|^\[\d+\] (?=\S)")
"""Prefix of each line that a rank prints: Open MPI's --tag-output, Hydra's -prepend-rank."""
_DASHES = re.compile(r"-{20,}$")
_APART = re.compile(r"^\[|^=+|\b(UCX|NCCL) ")
"""Log lines, which other processes may print in the middle of a block."""


def causes(text: str, limit: int = MAX_LINES, known: bool = False) -> list[str]:
    """Lines that explain a failure, the first cause first.

    `known` restricts them to the table, because the output of users' programs may contain such
    words.
    """
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
    """The last lines of an output that does not explain the failure."""
    return [line.strip()[:MAX_LINE] for line in text.splitlines() if line.strip()][-limit:]


def of_build(lines: Sequence[str], limit: int = 3) -> list[str]:
    """Error lines in a log of configure and make, in which compilers that run in parallel continue
    after an error."""
    return [line.strip()[:MAX_LINE] for line in lines if BUILD.search(line)][:limit]


def _rank(piece: Sequence[str], block: bool) -> int:
    ranks = [rank for line in piece for pattern, rank in _TABLE if pattern.search(line)]
    if ranks:
        return min(ranks)
    return OTHER if block or OTHERS.search(piece[0]) else NOISE


def _kind(line: str) -> str:
    """Normalize a line, so that the same message from many hosts and processes compares equal, but
    a message about another device does not.
    """
    bare = re.sub(r"^(\[[^\]]*\] *)+|^\S+:\d+:\d+ (\[\d+\] )?", "", line)
    return re.sub(r"\b(0x[0-9a-f]+|\d+)\b", "#", bare)


def _pieces(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield single lines, and the paragraphs of Open MPI's blocks with True.

    A block without its dashed lines is recognized by its first line.
    """
    lines = [_TAG.sub("", line[:MAX_READ].rstrip()) for line in text.splitlines()]
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        inside = bool(_DASHES.match(line.strip()))
        if not inside and not _explains(line):
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


def _explains(line: str) -> bool:
    """Whether a line starts a multi-line text of Open MPI's help files."""
    return not _APART.search(line) and bool(_HELP.search(line.strip()))


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

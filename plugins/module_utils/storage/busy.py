# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who holds a mount: processes with a file, directory or program on it.

By the links of /proc alone, which the kernel answers from memory. fuser and lsof ask the file
system itself, and wait with it where its server is dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.text import some
from .paths import within

SHOWN = 8
_LINKS = ("cwd", "root", "exe")
_AT_ONCE = 4096
"""So many files are named in one command line."""


class UnknownError(Exception):
    """It could not be seen who holds the mount; the text says why."""


@dataclass(frozen=True)
class Holder:
    pid: int
    name: str
    user: str
    how: str
    """`cwd`, `root`, `exe`, `file` or `mapped`."""

    @property
    def text(self) -> str:
        return f"{self.name} (pid {self.pid}, {self.user}, {self.how})"


def holders(point: str, root: Path, look: Runner) -> list[Holder]:
    """Every process that holds something at or below `point`, by number, each once.

    Raises UnknownError where not all of them could be looked at. `look` runs what may have to be
    given up: the map of a process that waits for a dead server can make its reader wait too.
    """
    proc = root / "proc"
    pids = _pids(proc)
    users = _users(root)
    how = {pid: way for pid in pids if (way := _held(proc / str(pid), point)) is not None}
    for pid in _mapping(point, [pid for pid in pids if pid not in how], proc, look):
        how[pid] = "mapped"
    return [
        Holder(pid, _name(proc / str(pid)), _user(proc / str(pid), users), how[pid])
        for pid in sorted(how)
    ]


def shown(found: Sequence[Holder]) -> str:
    return some([each.text for each in found], SHOWN)


def _pids(proc: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())
    except OSError as error:
        raise UnknownError(f"{proc}: {error.strerror}") from error


def _held(process: Path, point: str) -> Optional[str]:
    for link in _LINKS:
        if _leads_to(process / link, point):
            return link
    return "file" if any(_leads_to(link, point) for link in _files(process / "fd")) else None


def _files(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:  # ended meanwhile, or a thread of the kernel
        return


def _leads_to(link: Path, point: str) -> bool:
    """By the text of the link: nothing is followed."""
    try:
        target = str(link.readlink())
    except OSError:
        return False
    return within(target.removesuffix(" (deleted)"), point)


def _mapping(point: str, pids: Sequence[int], proc: Path, look: Runner) -> list[int]:
    """Those that have a file below `point` in their memory, such as a shared library."""
    found = []
    words = ["grep", "-lsF", "-e", f" {_as_mapped(point)}/", "--"]
    for first in range(0, len(pids), _AT_ONCE):
        maps = [str(proc / str(pid) / "maps") for pid in pids[first : first + _AT_ONCE]]
        try:
            # 1: none; 2: one of them ended meanwhile, or does not let itself be read.
            result = look([*words, *maps], check=False)
        except CommandError as error:
            raise UnknownError(
                f"what the processes have mapped cannot be read ({error}); one of them waits for a "
                "server that does not answer, as ps -eo pid,stat,wchan:30,comm | grep ' D' shows"
            ) from error
        found += [int(Path(line).parent.name) for line in result.stdout.splitlines() if line]
    return found


def _as_mapped(path: str) -> str:
    """As /proc/PID/maps writes it: of all characters, only the end of a line is escaped."""
    return path.replace("\n", "\\012")


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip() or "?"
    except OSError:
        return "?"


def _user(process: Path, users: dict[str, str]) -> str:
    try:
        text = (process / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    for line in text.splitlines():
        if line.startswith("Uid:"):
            uid = line.split()[1]
            return users.get(uid, f"uid {uid}")
    return "?"


def _users(root: Path) -> dict[str, str]:
    """Accounts of this machine. Those of a directory service would have to be asked for."""
    try:
        text = (root / "etc/passwd").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    rows = (line.split(":") for line in text.splitlines())
    return {row[2]: row[0] for row in rows if len(row) > 3}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The two rounds on one host: write on every file system, then read what the neighbour wrote.

Between them every host has written, so a reader waits for nobody. What the first round found goes
back to the controller and comes again with the second, which alone fails the host: one that failed
earlier would be left out of the second round with its other file systems too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Optional

from ...core.checks import Check
from ...core.dataclass import dataclass
from .. import bounded, mounted
from ..units import escape_path
from . import judging, probe
from .target import Target

Mounts = tuple[mounted.Mount, ...]


@dataclass(frozen=True)
class Here:
    """This host, as far as the rounds have to do with it."""

    become: Optional[Callable[[], None]] = None
    """Gives up the rights of root for those of the MPI user."""
    container: Optional[str] = None
    mounts: Callable[[], Mounts] = mounted.read
    records: Path = bounded.LEFT_BEHIND

    def record(self, target: Target) -> Path:
        return self.records / f"{escape_path(target.mount)}.pid"


@dataclass(frozen=True)
class Held:
    """What a round found of one file system, as it travels."""

    checks: list[dict[str, Any]]
    stopped: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Held:
        return cls(**{"checks": [], **value})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def write(target: Target, here: Here) -> Held:
    mounts = here.mounts()
    running, trap = mounted.on(mounts, target.mount), mounted.trap(mounts, target.mount)
    if running is None and trap is None:
        return _held(judging.unmounted(target, here.container))
    if running is not None and not target.wanted.is_source(running, mounts):
        return _held(judging.another(target, running))
    do = "look" if target.check_mode or target.read_only else "write"
    answer = _ask(target, here, do)
    book = judging.after_writing(target, answer, automount=trap is not None)
    return _held(book, answer)


def read(target: Target, held: Held, here: Here) -> Held:
    book = judging.resumed(target, held.checks, held.stopped)
    if book.stopped or "wrote" not in held.figures:
        return Held([asdict(check) for check in book.close((), "").in_order()], book.stopped)
    answer = _ask(target, here, "read")
    found = _held(judging.after_reading(book, answer), answer)
    return Held(found.checks, found.stopped, {**held.figures, **found.figures})


def _ask(target: Target, here: Here, do: str) -> bounded.Answer:
    task = target.task(do)

    def work(tell: probe.Tell) -> None:
        def go(found: dict[str, Any]) -> bool:
            right = is_right(target, found["line"], here.mounts())
            if right is False:
                tell({"foreign": True})
            return bool(right) and (do == "look" or not found["read_only"])

        probe.perform(task, tell, go)

    return bounded.within(target.limit_s, work, become=here.become, record=here.record(target))


def is_right(target: Target, line: str, mounts: Mounts) -> Optional[bool]:
    """Whether the directory that was opened is of the wanted file system; None where it is of no
    file system that is mounted there. Asked of the open directory: what the mount table said
    before may have changed since."""
    running = next(iter(mounted.parse(line)), None)
    if running is None or running.point != target.mount or running.kind == mounted.AUTOFS:
        return None
    return target.wanted.is_source(running, mounts)


def _held(book: judging.Book, answer: Optional[bounded.Answer] = None) -> Held:
    found = answer.found if answer is not None else {}
    figures = {key: found[key] for key in ("wrote", "read") if found.get(key)}
    if found.get("own_address"):
        figures["own_address"] = found["own_address"]
    if figures:
        figures["served_here"] = book.target.served_here
    return Held([asdict(check) for check in book.in_order()], book.stopped, figures)


def checks_of(held: Sequence[Held]) -> list[Check]:
    return [Check(**check) for one in held for check in one.checks]

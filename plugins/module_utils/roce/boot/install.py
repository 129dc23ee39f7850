# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot unit on this node: planned as files, shown, written, started, and read back.

An unchanged node is known by its files alone, and no program is run for that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    REBOOT,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import (
    HEADER,
    FilePlan,
    diffs,
    plan_file,
)

from . import layout, program, sources, unit
from .library import Guard, remove
from .wishes import Wishes, digest_of

CHECK = "rails_boot"
WANTED = "installed, enabled, and right when it last ran"
ENTRY = program.__name__


@dataclass(frozen=True)
class Wish:
    """What is to be done at every boot."""

    wishes: Wishes
    options: unit.BootOptions


def launcher_text(program: str) -> str:
    """The command: isolated from the environment of whoever calls it, and from site packages."""
    return f'''#!/usr/bin/python3 -IS
# {HEADER}
"""RoCE settings of the rails: --check shows them, --apply sets what differs."""

import os
import pathlib
import sys

os.environ.clear()
os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C")
PROGRAM = "{program}"
# Last: nothing in there can take the place of Python's own.
sys.path.append(str(pathlib.Path(__file__).resolve().parent / "lib" / PROGRAM))

from {ENTRY} import main

sys.exit(main(sys.argv[1:], PROGRAM))
'''


class Installation:
    """The unit as it is on this node and as it is wanted.

    Without a wish it is removed, or with `keep` left as it is.
    """

    def __init__(
        self,
        wish: Optional[Wish],
        why_none: str = "",
        root: Path = Path("/"),
        *,
        uid: int = 0,
        gid: int = 0,
        keep: bool = False,
    ) -> None:
        self.wish, self.why_none, self.keep = wish, why_none, keep
        self.root, self.uid, self.gid = root, uid, gid
        self.enabled = _names_unit(root / layout.ENABLED)
        self.wanted = wish is not None or (keep and self.enabled)
        files = sources.closure(ENTRY) if wish else {}
        self.program = sources.digest(files) if wish else ""
        self._state = wish.wishes.text() if wish else None
        self.library = [
            self._file(f"{layout.LIBRARY}/{self.program}/{path}", text)
            for path, text in files.items()
        ]
        names = wish.wishes.interfaces if wish else ()
        self.files = (
            []
            if keep
            else [
                self._file(layout.PROGRAM, launcher_text(self.program) if wish else None, 0o755),
                self._file(layout.STATE, self._state),
                self._file(layout.UNIT_FILE, unit.unit_text(names, wish.options) if wish else None),
                self._file(layout.UDEV_RULE, unit.udev_rule_text(names) if wish else None),
            ]
        )
        self.masked = (root / layout.UNIT_FILE).is_symlink()
        library = root / layout.LIBRARY
        versions = sorted(library.iterdir()) if library.is_dir() and not keep else []
        self.superseded = [each for each in versions if each.name != self.program]
        self.guard = Guard(library, self.program, self.library, uid, gid)

    def again(self) -> Installation:
        """The same, read anew."""
        return Installation(
            self.wish, self.why_none, self.root, uid=self.uid, gid=self.gid, keep=self.keep
        )

    def _file(self, path: str, text: Optional[str], mode: int = 0o644) -> FilePlan:
        return plan_file(self.root / path, text, mode=mode, uid=self.uid, gid=self.gid)

    @property
    def changed(self) -> bool:
        return bool(self._stale or self.enabled != self.wanted)

    @property
    def _stale(self) -> bool:
        return bool(self._differing or self.superseded or self.guard.faults)

    @property
    def _differing(self) -> list[FilePlan]:
        return [plan for plan in (*self.library, *self.files) if plan.changed]

    def due(self) -> bool:
        """Whether it has to run (again): not in this boot as it now is, or not with success."""
        return self.wish is not None and (self.changed or self.trouble() is not None)

    def diff(self) -> list[dict[str, str]]:
        """Each file that changes; of the library, which versions of which modules."""
        shown = [self._library_diff()] if self.superseded or _any(self.library) else []
        if self.guard.faults:
            shown.append(_diff(f"/{layout.LIBRARY} (not as installed)", self.guard.text(), ""))
        shown += diffs(self.files)
        if self.enabled != self.wanted:
            words = {True: "enabled\n", False: "not enabled\n"}
            shown.append(_diff(layout.UNIT, words[self.enabled], words[self.wanted]))
        return shown

    def _library_diff(self) -> dict[str, str]:
        library = self.root / layout.LIBRARY
        before = {
            str(path.relative_to(version)): path.read_text(encoding="utf-8", errors="replace")
            for version in (*self.superseded, library / self.program)
            if version.is_dir() and not version.is_symlink()
            for path in sorted(version.rglob("*.py"))
        }
        after = {
            str(plan.path.relative_to(library / self.program)): plan.after or ""
            for plan in self.library
        }
        return _diff(f"/{layout.LIBRARY}", _listing(before), _listing(after))

    def apply(self, run: Runner) -> None:
        """Write it. Interrupted at any point, the former version is whole and still the one used.

        Raises OSError and CommandError.
        """
        self.guard.remove_strays()
        library = self.again().library if self.guard.strays else self.library
        with _open_directories():
            for plan in library:
                plan.apply()
            self.guard.close_directories()
            for plan in self.files:
                plan.apply()
        link = self.root / layout.ENABLED
        if self.wanted and not self.enabled:
            _link(f"/{layout.UNIT_FILE}", link)
        elif self.enabled and not self.wanted:
            link.unlink()
        for version in self.superseded:
            remove(version)
        run(("systemctl", "daemon-reload"))

    def start(self, run: Runner) -> None:
        """Run it once, as at boot. What it says is in its result, and in the journal."""
        run(("systemctl", "start", layout.UNIT), check=False)

    def trouble(self) -> Optional[str]:
        """Why its last run does not prove that it works; None when it does."""
        try:
            text = (self.root / layout.RESULT).read_text(encoding="utf-8")
            result = json.loads(text)
            ran = (result["program"], result["state"])
            failed = [str(line) for line in result["failed"]]
        except FileNotFoundError:
            return "it has not run in this boot"
        except (ValueError, KeyError, TypeError):
            return f"/{layout.RESULT} cannot be read"
        if self._state is None or ran != (self.program, digest_of(self._state)):
            return "what ran last is another version, or had other wishes"
        return "; ".join(failed) or None

    def check(self, now: Circumstances) -> Check:
        """Read back: the files again, and what its last run found."""
        if self.wish is None:
            return not_applicable(CHECK, WANTED, self.why_none)
        if self.masked:
            reason = (
                f"/{layout.UNIT_FILE} is a link, so the unit is masked or somebody else's: nothing "
                f"was changed of it. Run: systemctl unmask {layout.UNIT}, then run again"
            )
            return Check(CHECK, WANTED, "masked", FAILED, reason=reason)
        differs = PENDING if now.check_mode else FAILED
        if self._stale:
            return Check(CHECK, WANTED, "missing or different", differs)
        if not self.enabled:
            return Check(CHECK, WANTED, "not enabled", differs)
        trouble = self.trouble()
        if trouble is None:
            return Check(CHECK, WANTED, WANTED, OK)
        found = "installed, enabled"
        if not now.named:
            reason = f"{trouble}; it will at the next boot, with the rails' names"
            return Check(CHECK, WANTED, found, REBOOT, reason=reason)
        if not now.hold:
            reason = f"{trouble}, and was not started: the rails do not hold, see there"
            return Check(CHECK, WANTED, found, differs, reason=reason)
        reason = f"{trouble}. Look at it: systemctl status {layout.UNIT}; /{layout.PROGRAM} --check"
        return Check(CHECK, WANTED, found, differs, reason=reason)


@dataclass(frozen=True)
class Circumstances:
    """What the rest of this run has to say to the unit."""

    check_mode: bool
    hold: bool = True
    """Whether the rails hold now; where they do not, the unit would fail as well."""
    named: bool = True
    """Whether all rails have their names; the others get theirs at the next boot."""


@dataclass(frozen=True)
class Done:
    """What was found and done of the unit."""

    changed: bool
    diff: list[dict[str, str]]
    check: Check


def bring_about(installation: Installation, run: Runner, now: Circumstances) -> Done:
    """Install what differs, run it where it is due, read back.

    To be called without the lock of the rails, which the unit takes. Raises OSError where it cannot
    be read; what cannot be written is told by the check.
    """
    before = installation
    if before.masked and before.wanted:
        return Done(False, [], before.check(now))
    starts = before.due() and now.hold and now.named
    diff = before.diff()
    if starts and not before.changed:
        diff.append(_diff(layout.UNIT, f"{before.trouble()}\n", "runs again\n"))
    changed = before.changed or starts
    if now.check_mode or not changed:
        return Done(changed, diff, before.check(now))
    try:
        if before.changed:
            before.apply(run)
        if starts:
            before.start(run)
    except (CommandError, OSError) as error:
        return Done(True, diff, not_done(error))
    return Done(True, diff, before.again().check(now))


def not_done(error: Exception) -> Check:
    """The unit could not be read or brought about; what it did before, it does at the next boot."""
    told = str(error)
    if isinstance(error, OSError) and error.filename:
        told = f"{error.filename}: {error.strerror}"
    return Check(CHECK, WANTED, "not done", FAILED, reason=told)


@contextlib.contextmanager
def _open_directories() -> Iterator[None]:
    """New directories can be entered by everybody, whatever the umask: anyone may read this."""
    umask = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(umask)


def _any(plans: Sequence[FilePlan]) -> bool:
    return any(plan.changed for plan in plans)


def _listing(files: Mapping[str, str]) -> str:
    return "".join(
        f"{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}  {path}\n"
        for path, text in sorted(files.items())
    )


def _diff(header: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def _names_unit(link: Path) -> bool:
    return link.is_symlink() and link.readlink().name == layout.UNIT


def _link(target: str, link: Path) -> None:
    """Atomically, whatever is there."""
    link.parent.mkdir(parents=True, exist_ok=True)
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)

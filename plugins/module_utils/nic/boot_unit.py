# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot unit on this node: one program file, what is wanted, a systemd unit and a udev rule.

The program is an executable zip of the modules that run here, so a boot sets what the role set.
An unchanged node is recognised by its files alone, without running a program.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, OK, PENDING, REBOOT, Check, not_applicable
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.files import HEADER, diffs, plan_file, with_header
from ..rails.readback import NAME
from . import BOOT_UNIT, boot_program
from .boot_program import LOCK_S, MALFORMED, PROGRAM, RESULT, STATE, Saved, installed
from .engine import WHOLE
from .request import Request
from .setting import NOT_SUPPORTED, RUNTIME

UNIT_FILE = f"etc/systemd/system/{BOOT_UNIT}"
ENABLED = f"etc/systemd/system/multi-user.target.wants/{BOOT_UNIT}"
UDEV_RULE = "etc/udev/rules.d/90-baremetal-mpi-roce-rails.rules"
SYSTEMD = "run/systemd/system"
"""There is one where systemd runs the machine."""
CHECK = "rails_boot"
WANTED = "installed, enabled, and right when it last ran"

_SLOWEST_S = 180
"""A pass over sixteen rails on which the QoS program hangs takes at most this (QUICK_S)."""
_DRIVERS = "openibd.service rdma-hw.target rdma-load-modules@rdma.service"
_NETWORK = "network.target NetworkManager.service systemd-networkd.service"
_PACKAGES = ("core", "hardware", "nic", "qos", "rails")
_MAIN = """\
import os, sys
os.environ.clear()
os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C")
from {entry} import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class BootOptions:
    """The role's options of the unit."""

    wait_s: int = 60
    """Longest time for a rail's devices to appear, and for its settings to hold."""
    before: tuple[str, ...] = ()
    """Units that start jobs: they wait until the rails are set up."""

    @property
    def longest_s(self) -> int:
        """After this systemd ends a run that does not end by itself."""
        return self.wait_s + LOCK_S + _SLOWEST_S


@dataclass(frozen=True)
class Rails:
    """The rails as the run of the module leaves them."""

    interfaces: tuple[str, ...]
    with_rdma: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Rail, setting, and its state, as the engine returns them."""
    checks: Sequence[Check] = ()

    @property
    def forgetful(self) -> bool:
        """Whether any of them can be set to something that a reboot forgets."""
        return any(
            state["persistence"] == RUNTIME and state["status"] != NOT_SUPPORTED
            for settings in self.settings.values()
            for state in settings.values()
        )

    @property
    def hold(self) -> bool:
        """Names and settings; cables are not the unit's business."""
        names = {f"rail_{name}" for settings in self.settings.values() for name in settings}
        names |= {WHOLE, NAME}
        return not any(each.name in names and each.status == FAILED for each in self.checks)

    @property
    def named(self) -> bool:
        """Whether all have their names; the others get theirs at the next boot."""
        return not any(each.name in (WHOLE, NAME) and each.status == REBOOT for each in self.checks)


@dataclass(frozen=True)
class Done:
    """What was found and done of the unit."""

    changed: bool
    diff: list[dict[str, str]]
    check: Check


class Installation:
    """The unit as it is on this node and as it is wanted; without `saved` it is removed."""

    def __init__(
        self,
        saved: Optional[Saved],
        options: BootOptions,
        root: Path = Path("/"),
        uid: int = 0,
        gid: int = 0,
    ) -> None:
        self.wanted = saved is not None
        self.root = root
        # In the order in which they are written.
        texts: dict[str, Optional[str]] = dict.fromkeys((PROGRAM, STATE, UNIT_FILE, UDEV_RULE))
        if saved is not None:
            texts = {
                PROGRAM: program_text(),
                STATE: saved.text(),
                UNIT_FILE: unit_text(saved.interfaces, options),
                UDEV_RULE: udev_rule_text(saved.interfaces),
            }
        self.files = {
            path: plan_file(
                root / path, text, mode=0o755 if path == PROGRAM else 0o644, uid=uid, gid=gid
            )
            for path, text in texts.items()
        }
        self.enabled = (root / ENABLED).is_symlink()

    @property
    def masked(self) -> bool:
        return self.wanted and (self.root / UNIT_FILE).is_symlink()

    @property
    def differing(self) -> list[str]:
        found = [path for path, plan in self.files.items() if plan.changed]
        return found + [ENABLED] * (self.enabled != self.wanted)

    def diff(self) -> list[dict[str, str]]:
        """Each file that changes; of the program the digest."""
        program, *others = self.files.values()
        program = replace(program, before=_digest(program.before), after=_digest(program.after))
        found = diffs([program, *others])
        if self.enabled != self.wanted:
            words = {True: "enabled\n", False: "not enabled\n"}
            found.append(_diff(BOOT_UNIT, words[self.enabled], words[self.wanted]))
        return found

    def apply(self, run: Runner) -> None:
        """Raises OSError and CommandError; killed at any point, it is due for the next run."""
        (self.root / RESULT).unlink(missing_ok=True)
        for plan in self.files.values():
            plan.apply()
        if self.wanted and not self.enabled:
            run(("systemctl", "enable", BOOT_UNIT))
        elif not self.wanted:
            (self.root / ENABLED).unlink(missing_ok=True)
        run(("systemctl", "daemon-reload"))

    def trouble(self) -> str:
        """Why its last run does not prove that it works; empty when it does."""
        try:
            result = json.loads((self.root / RESULT).read_text(encoding="utf-8"))
            if result.get("installed") != installed(self.root):
                return "what ran last is another version, or had another request"
            return "; ".join(result["failed"])
        except (FileNotFoundError, *MALFORMED):
            return "it has not run in this boot"

    def check(self, rails: Rails, check_mode: bool) -> Check:
        """Read back: the files again, and what its last run found."""
        differs = PENDING if check_mode else FAILED
        if self.masked:
            reason = f"it is a link, so nothing was changed. Run: systemctl unmask {BOOT_UNIT}"
            return Check(CHECK, WANTED, f"/{UNIT_FILE} masked", FAILED, reason=reason)
        if self.differing:
            reason = ", ".join(f"/{path}" for path in self.differing)
            return Check(CHECK, WANTED, "missing or different", differs, reason=reason)
        trouble = self.trouble()
        if not trouble:
            return Check(CHECK, WANTED, WANTED, OK)
        if not rails.named:
            differs, more = REBOOT, "it runs at the next boot, with the rails' names"
        elif not rails.hold:
            more = "it was not started, because the rails do not hold: see their checks"
        else:
            more = f"see: systemctl status {BOOT_UNIT}; /{PROGRAM} --check"
        return Check(CHECK, WANTED, "installed, enabled", differs, reason=f"{trouble}; {more}")


def converge(
    rails: Rails,
    request: Request,
    options: BootOptions,
    run: Runner,
    *,
    asked: bool,
    check_mode: bool,
    root: Path = Path("/"),
    uid: int = 0,
    gid: int = 0,
) -> Done:
    """Install what differs, run it where it is due, read back; raises nothing.

    To be called without the lock of the rails, which the unit takes.
    """
    why = ""
    if not asked:
        why = "roce_rails_boot: false; what a reboot forgets is set by the next run of the role"
    elif not (root / SYSTEMD).is_dir():
        why = "not applicable here: systemd does not run this system"
    elif rails.named and not rails.forgetful:
        unseen = [name for name in rails.interfaces if name not in rails.settings]
        if unseen:  # their NICs are gone or refused
            why = f"left as it was: {', '.join(unseen)} could not be read"
            return Done(False, [], not_applicable(CHECK, WANTED, why))
        why = "not applicable here: no rail has a setting that a reboot forgets"
    saved = None if why else Saved(rails.interfaces, rails.with_rdma, request)
    changed, diff = False, []
    try:
        now = Installation(saved, options, root, uid, gid)
        if not now.masked:
            starts = not why and rails.hold and rails.named
            starts = starts and bool(now.differing or now.trouble())
            diff, changed = now.diff(), starts or bool(now.differing)
            if starts and not diff:
                diff.append(_diff(BOOT_UNIT, f"{now.trouble()}\n", "runs again\n"))
            if changed and not check_mode:
                now.apply(run)
                if starts:
                    # What it finds is in its result, and in the journal.
                    run(("systemctl", "start", BOOT_UNIT), check=False)
                now = Installation(saved, options, root, uid, gid)
        check = not_applicable(CHECK, WANTED, why) if why else now.check(rails, check_mode)
    except (CommandError, OSError) as error:
        check = Check(CHECK, WANTED, "not done", FAILED, reason=str(error))
    return Done(changed, diff, check)


def program_text() -> str:
    """The program: a zip, not compressed, that Python runs.

    `-IS`: isolated from its caller's environment and from site packages.
    """
    entry = boot_program.__name__
    stream = io.BytesIO()
    stream.write(f"#!/usr/bin/python3 -IS\n# {HEADER}\n".encode())
    with zipfile.ZipFile(stream, "w") as archive:
        for path, text in {**sources(), "__main__.py": _MAIN.format(entry=entry)}.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return stream.getvalue().decode("utf-8", "surrogateescape")


def sources() -> dict[str, str]:
    """Path to text of the modules of this collection that are loaded, as all of the program's are.

    They give their text whether they came from a file or from Ansible's zip.
    """
    base = boot_program.__name__.rpartition(".nic.")[0]
    levels = base.split(".")
    found = {f"{'/'.join(levels[:depth])}/__init__.py": "" for depth in range(1, len(levels) + 1)}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{base}.") and name[len(base) :].split(".")[1] in _PACKAGES:
            text = module.__spec__.loader.get_source(name)  # type: ignore[union-attr]
            init = "/__init__" if hasattr(module, "__path__") else ""
            found[f"{name.replace('.', '/')}{init}.py"] = text
    return dict(sorted(found.items()))


def unit_text(interfaces: Sequence[str], options: BootOptions) -> str:
    """A one-shot service that does not stay active.

    So it can be run again by `systemctl start`, and by udev, without `restart`, which would restart
    as well what requires it: the job manager.
    """
    # As systemd-escape writes an interface's name in a unit's.
    escaped = (name.replace("-", r"\x2d") for name in interfaces)
    devices = " ".join(f"sys-subsystem-net-devices-{name}.device" for name in escaped)
    lines = [
        "[Unit]",
        "Description=RoCE settings of the rails, which a reboot forgets (baremetal.mpi_roce)",
        # Wanted, not required: with a NIC missing, the others are still set up, and it is named.
        f"Wants={devices}",
        f"After={devices}",
        f"After={_DRIVERS} {_NETWORK}",
        *([f"Before={' '.join(options.before)}"] if options.before else []),
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=/{PROGRAM} --apply --wait {options.wait_s}",
        f"TimeoutStartSec={options.longest_s}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return with_header("\n".join(lines))


def udev_rule_text(interfaces: Sequence[str]) -> str:
    """A NIC or RDMA device that appears has forgotten everything: its driver was loaded again.

    While the unit is running, at boot, that start is the one already under way.
    """
    names = "|".join(interfaces)
    start = f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{BOOT_UNIT}"'
    lines = [
        # An interface has its name at once, or is given it by this very event (NAME).
        f'ACTION!="remove", SUBSYSTEM=="net", KERNEL=="{names}", {start}',
        f'ACTION!="remove", SUBSYSTEM=="net", NAME=="{names}", {start}',
        f'ACTION=="add", SUBSYSTEM=="infiniband", {start}',
    ]
    return with_header("".join(f"{line}\n" for line in lines))


def _digest(text: Optional[str]) -> Any:
    if text is None:
        return None
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}\n"


def _diff(header: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": header, "after_header": header, "before": before, "after": after}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`node-check` on a node as a part: program, settings, timer, and the links for Slurm, or none of
them. The read-back runs the program."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Optional

from ..core import program, systemd
from ..core.checks import FAILED, OK, PENDING, Check, compare
from ..core.commands import CommandError, output
from ..core.files import FilePlan, directory_of_trust, make_directories, with_header
from ..core.part import Node, Plan, Step, Verdict
from ..core.text import one_line
from . import DIRECTORY, LINKS, PROGRAM, SETTINGS, STATE
from . import program as entry
from .settings import Settings, SettingsError

CHECK, TIMER_CHECK, LINK_CHECK = "node_check", "node_check_timer", "node_check_slurm"
NAME = "baremetal-mpi-roce-node-check"
TIMER, SERVICE = f"{NAME}.timer", f"{NAME}.service"
UNITS = "etc/systemd/system"
SLURM_FILES = ("etc/slurm/*.conf", "run/slurm/conf/*.conf")
SHOW_CONFIG = ("scontrol", "show", "config")
RUNS = "enabled, active"
ABSENT = "absent"
WORDS = ("healthy", "warning", "fault")


@dataclass(frozen=True)
class NodeCheck:
    """Without `settings` it is removed."""

    settings: Optional[Settings]

    def plan(self, node: Node) -> Plan:
        files = self._files(node)
        steps = []
        if self.settings is None:
            steps = list(self._removals(node))
        else:
            missing = _wrong_links(node)
            if missing:
                steps.append(Step("links for Slurm", ABSENT, "present", partial(_link, node)))
            running = self._timer(node)
            if running != RUNS or any(each.changed for each in files[2:]):
                steps.append(Step(TIMER, running, RUNS, partial(_start, node)))
        former = self._former(node)
        if former:
            steps.append(Step(former, "present", ABSENT, partial(_withdraw, node, former)))
        return Plan(files, steps)

    def _former(self, node: Node) -> str:
        """The file of metrics that the program no longer writes: exporters would show its last
        values for ever."""
        try:
            before = Settings.parse(node.read(SETTINGS) or "").textfile
        except SettingsError:
            return ""
        now = self.settings.textfile if self.settings is not None else ""
        return before if before != now and os.path.lexists(node.path(before)) else ""

    def verify(self, node: Node) -> Verdict:
        if self.settings is None:
            return Verdict([self._absence(node)])
        if node.check_mode and not node.path(PROGRAM).exists():
            return Verdict([Check(CHECK, "a verdict", ABSENT, PENDING)])
        mode = node.check_mode
        timer = compare(TIMER_CHECK, RUNS, self._timer(node), subject=TIMER, check_mode=mode)
        wrong = _wrong_links(node)
        links = compare(LINK_CHECK, [], wrong, check_mode=mode)
        return Verdict([timer, links, *_verdict(node), *_metrics(node, self.settings.textfile)])

    def _files(self, node: Node) -> list[FilePlan]:
        """Program, settings, service, timer; the program's text is too long for a diff."""
        settings = self.settings
        texts = dict.fromkeys((PROGRAM, SETTINGS, f"{UNITS}/{SERVICE}", f"{UNITS}/{TIMER}"), "")
        if settings is not None:
            texts = {
                PROGRAM: program.compiled(program_text(), node.look, node.read(PROGRAM)),
                SETTINGS: settings.text(),
                f"{UNITS}/{SERVICE}": service_text(),
                f"{UNITS}/{TIMER}": timer_text(settings.interval_s),
            }
        held = _held(node) if settings is None else ""
        plans = [
            node.record(path, text or None, mode=0o755 if path == PROGRAM else 0o644)
            for path, text in texts.items()
            if not (held and path in (PROGRAM, SETTINGS))
        ]
        return [replace(each, secret=each.path == node.path(PROGRAM)) for each in plans]

    def _removals(self, node: Node) -> Iterator[Step]:
        if systemd.linked(node, TIMER) or node.path(f"{UNITS}/{TIMER}").exists():
            yield Step(TIMER, RUNS, ABSENT, partial(_stop, node))
        if _held(node):
            return
        present = [name for name in LINKS if node.path(f"{DIRECTORY}/{name}").is_symlink()]
        if present:
            yield Step("links for Slurm", " ".join(present), ABSENT, partial(_unlink, node))
        if node.path(STATE).exists():
            forget = partial(shutil.rmtree, node.path(STATE))
            yield Step(f"/{STATE}", "present", ABSENT, forget)

    def _absence(self, node: Node) -> Check:
        held = _held(node)
        if held:
            reason = f"{held} still names it: run the layer slurm, then this one again"
            return Check(CHECK, ABSENT, "run by Slurm", PENDING, reason=reason)
        paths = [PROGRAM, SETTINGS, STATE, f"{UNITS}/{TIMER}", f"{UNITS}/{SERVICE}"]
        paths += [f"{DIRECTORY}/{name}" for name in LINKS]
        left = [f"/{each}" for each in paths if node.path(each).exists()]
        return compare(CHECK, [], left, check_mode=node.check_mode)

    def _timer(self, node: Node) -> str:
        enabled = "enabled" if systemd.linked(node, TIMER) else "disabled"
        return f"{enabled}, {'active' if systemd.active(node, TIMER) else 'inactive'}"


def program_text() -> str:
    return program.text(entry.__name__, kept=entry.KEPT, named=True, lenient=tuple(LINKS))


def service_text() -> str:
    return with_header(f"""[Unit]
Description=Health of this node (baremetal.mpi_roce)

[Service]
Type=oneshot
ExecStart=/{PROGRAM} --periodic
TimeoutStartSec=60
Nice=10
IOSchedulingClass=idle
""")


def timer_text(interval_s: int) -> str:
    """Nodes run it at different times, so that a parallel job waits once, not for each of them. It
    waits an interval after its start, as a site is measured then."""
    return with_header(f"""[Unit]
Description=Health of this node, every {interval_s} s (baremetal.mpi_roce)

[Timer]
OnActiveSec={interval_s}
OnBootSec=120
OnUnitActiveSec={interval_s}
AccuracySec=1
RandomizedDelaySec={max(1, interval_s // 10)}

[Install]
WantedBy=multi-user.target
""")


def _held(node: Node) -> str:
    """The configuration of Slurm that names the links; without them, every job would fail. It may
    be in another directory, and daemons may not have read it again."""
    for pattern in SLURM_FILES:
        for path in sorted(node.root.glob(pattern)):
            name = str(path.relative_to(node.root))
            if _names_links(node.read(name) or ""):
                return f"/{name}"
    if not any(node.path(f"{DIRECTORY}/{link}").is_symlink() for link in LINKS):
        return ""
    try:
        running = node.look(SHOW_CONFIG, check=False).stdout
    except CommandError:  # no Slurm
        return ""
    return "the running slurmctld" if _names_links(running) else ""


def _names_links(text: str) -> bool:
    return any(f"/{DIRECTORY}/{link}" in text for link in LINKS)


def _wrong_links(node: Node) -> list[str]:
    wrong = []
    for name in LINKS:
        path = node.path(f"{DIRECTORY}/{name}")
        target = PROGRAM.rpartition("/")[2]
        if not path.is_symlink() or str(path.readlink()) != target:
            wrong.append(name)
    return wrong


def _link(node: Node) -> None:
    """Each link replaces the former one atomically: Slurm may start a job meanwhile."""
    for name in _wrong_links(node):
        path = node.path(f"{DIRECTORY}/{name}")
        new = path.with_name(f".{name}.new")
        make_directories(path.parent)
        new.unlink(missing_ok=True)
        new.symlink_to(PROGRAM.rpartition("/")[2])
        new.replace(path)


def _unlink(node: Node) -> None:
    for name in LINKS:
        node.path(f"{DIRECTORY}/{name}").unlink(missing_ok=True)


def _withdraw(node: Node, textfile: str) -> None:
    path = node.path(textfile)
    directory = directory_of_trust(path.parent, make=False)
    try:
        os.unlink(path.name, dir_fd=directory)
    finally:
        os.close(directory)


def _start(node: Node) -> None:
    systemd.link(node, TIMER, True)
    systemd.control(node, "restart", TIMER)


def _stop(node: Node) -> None:
    node.run(["systemctl", "stop", TIMER, SERVICE], check=False)
    systemd.link(node, TIMER, False)
    node.run(["systemctl", "reset-failed", SERVICE], check=False)


def _verdict(node: Node) -> Sequence[Check]:
    """Run the program. Faults that another layer reads back as well are left to that layer."""
    wanted = "a verdict"
    try:
        done = node.look([f"/{PROGRAM}", "--json"], check=False)
        told = json.loads(done.stdout)
        word, findings = str(told["verdict"]), list(told["findings"])
        found = [_of_finding(each) for each in findings if str(each["name"]).startswith("node_")]
    except CommandError as error:
        return [Check(CHECK, wanted, None, FAILED, "", one_line(str(error)))]
    except (ValueError, LookupError, TypeError):
        why = f"exit status {done.rc}: {one_line(output(done, 500)) or 'it printed nothing'}"
        return [Check(CHECK, wanted, None, FAILED, "", why)]
    if word not in WORDS:
        return [Check(CHECK, wanted, None, FAILED, "", f"unknown verdict {one_line(word)!r}")]
    listed = ", ".join(str(each.get("name")) for each in findings[:5])
    return [Check(CHECK, wanted, word, OK, "", one_line(listed)), *found]


def _metrics(node: Node, textfile: str) -> Sequence[Check]:
    """Whether the program will write its metrics there."""
    try:
        if textfile:
            os.close(directory_of_trust(node.path(textfile).parent, make=False))
    except FileNotFoundError:  # the first run makes it
        pass
    except OSError as error:
        return [Check(CHECK, "metrics", None, FAILED, textfile, str(error))]
    return []


def _of_finding(told: Any) -> Check:
    wanted, found, subject, reason = (told[key] for key in ("wanted", "found", "subject", "reason"))
    next_step = f"next: {told['next_step']}"
    why = one_line(f"{reason}; {next_step}" if reason else next_step)
    return Check(str(told["name"]), wanted, found, FAILED, str(subject), why)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Values under /sys: written now, and written again at every boot.

tmpfiles.d writes them early in the boot, when hugepages are easiest to get; a oneshot unit writes
them once more when the drivers are loaded, since a CPU frequency driver may come later than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Protocol, Union

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, REBOOT, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, Step, Verdict
from ..core.reboots import Reason, outlived

TMPFILES = f"etc/tmpfiles.d/{NAME}.conf"
UNIT = f"{NAME}-sysfs.service"
UNIT_FILE = f"etc/systemd/system/{UNIT}"
ENABLED = f"etc/systemd/system/multi-user.target.wants/{UNIT}"

UNIT_BODY = f"""[Unit]
Description=Kernel settings of an MPI node, once the drivers are loaded
After=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/systemd-tmpfiles --create /{TMPFILES}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Write:
    """One value for every file that `pattern` (under the root) matches."""

    check: str
    pattern: str
    value: str
    subject: str = ""
    boot_helps: bool = False
    """The next boot may grant what the running system could not: memory not yet fragmented."""

    def found(self, node: Node) -> dict[str, str]:
        paths = sorted(node.root.glob(self.pattern))
        return {f"/{path.relative_to(node.root)}": read(path) for path in paths}

    def differing(self, node: Node) -> dict[str, str]:
        return {path: value for path, value in self.found(node).items() if value != self.value}

    def summary(self, node: Node) -> Optional[str]:
        """What is there: one value when all agree, else which file has which."""
        found = self.found(node)
        values = sorted(set(found.values()))
        if len(values) <= 1:
            return values[0] if values else None
        odd = self.differing(node)
        path, value = next(iter(odd.items()))
        return f"{value} in {len(odd)} of {len(found)} ({path}, ...)"


@dataclass(frozen=True)
class Unable:
    """Something wanted that this node has no place for: said aloud, never passed over."""

    check: str
    value: str
    reason: str
    subject: str = ""
    fault: bool = False
    """It ought to be there, so the check fails; otherwise it is not applicable."""

    def judge(self) -> Check:
        if self.fault:
            return Check(self.check, self.value, None, FAILED, self.subject, self.reason)
        return not_applicable(self.check, self.value, self.reason, subject=self.subject)


Wish = Union[Write, Unable]


class Subject(Protocol):
    """Hugepages, transparent hugepages, the CPU governor."""

    def wishes(self, node: Node) -> list[Wish]: ...


@dataclass(frozen=True)
class SysfsValues:
    """All subjects together, since they share one file and one unit."""

    subjects: Sequence[Subject]

    def plan(self, node: Node) -> Plan:
        writes = self._writes(node)
        lines = "".join(f"w /{each.pattern} - - - - {each.value}\n" for each in writes)
        files = [
            node.file(TMPFILES, lines or None),
            node.file(UNIT_FILE, UNIT_BODY if writes else None),
        ]
        steps = [
            _write_step(node, each)
            for each in writes
            if each.differing(node) and not _waits_for_reboot(node, each)
        ]
        enabled = node.path(ENABLED).is_symlink()
        if writes and not enabled:
            enable = ["systemctl", "enable", UNIT]
            steps.append(Step(UNIT, "disabled", "enabled", lambda: _run(node, enable)))
        if enabled and not writes:
            steps.append(Step(UNIT, "enabled", "removed", lambda: _remove(node)))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        verdict = Verdict()
        for subject in self.subjects:
            for wish in subject.wishes(node):
                if isinstance(wish, Unable):
                    verdict.checks.append(wish.judge())
                else:
                    _judge(wish, node, verdict)
        if self._writes(node):
            found = "enabled" if node.path(ENABLED).is_symlink() else "disabled"
            status = OK if found == "enabled" else PENDING if node.check_mode else FAILED
            verdict.checks.append(Check("sysfs_at_boot", "enabled", found, status, UNIT))
        return verdict

    def _writes(self, node: Node) -> list[Write]:
        wishes = [wish for subject in self.subjects for wish in subject.wishes(node)]
        return [wish for wish in wishes if isinstance(wish, Write)]


def read(path: Path) -> str:
    """The value in force; of "always [madvise] never" the one in brackets."""
    text = path.read_text(encoding="ascii").strip()
    if "[" in text and "]" in text:
        return text[text.index("[") + 1 : text.index("]")]
    return text


def _judge(wish: Write, node: Node, verdict: Verdict) -> None:
    found = wish.summary(node)
    if not wish.differing(node):
        verdict.checks.append(Check(wish.check, wish.value, found, OK, wish.subject))
        return
    status, why = FAILED, "the kernel did not take the value"
    if node.check_mode and not _waits_for_reboot(node, wish):
        status, why = PENDING, ""
    elif wish.boot_helps:
        reason = _reason(node, wish)
        verdict.reasons.append(reason)
        earlier = outlived(reason, node.rebooted_for, node.boot_id)
        if earlier is None:
            status, why = REBOOT, reason.reason
        else:
            why = f"still short although the node was rebooted for it (boot {earlier})"
    verdict.checks.append(Check(wish.check, wish.value, found, status, wish.subject, why))


def _reason(node: Node, wish: Write) -> Reason:
    return Reason(
        subject=f"{wish.check} {wish.subject}".strip(),
        wanted=wish.value,
        running=wish.summary(node) or "",
        reason="the running kernel could not provide them all; early in a boot memory is free",
    )


def _waits_for_reboot(node: Node, wish: Write) -> bool:
    """Tried in this boot already: trying at every run would change something every time."""
    if not wish.boot_helps:
        return False
    wanted = _reason(node, wish)
    return any(
        known.same_wish(wanted) and known.boot_id == node.boot_id for known in node.rebooted_for
    )


def _write_step(node: Node, wish: Write) -> Step:
    def act() -> None:
        for path in wish.differing(node):
            node.path(path).write_text(wish.value, encoding="ascii")

    what = f"{wish.check} {wish.subject}".strip()
    return Step(what, wish.summary(node) or "", wish.value, act)


def _run(node: Node, argv: Sequence[str]) -> None:
    node.run(argv)


def _remove(node: Node) -> None:
    node.path(ENABLED).unlink()
    systemd.reload(node)

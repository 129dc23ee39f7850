# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Swap off: now (/proc/swaps) and at the next boot (fstab, generated swap units, zram).

An MPI rank that is swapped out holds up every other one. Lines of fstab are set aside behind a
marker, not deleted, so that the operator can take them back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ..core import systemd
from ..core.checks import Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Step, Verdict

FSTAB = "etc/fstab"
MARKER = "# set aside by baremetal.mpi_roce: "
GENERATED = "run/systemd/generator*/*.swap"
ZRAM_UNITS = ("zramswap.service", "zram-config.service")
"""Of zram-tools (Debian, Ubuntu) and zram-config (Ubuntu); zram-generator makes swap units."""


@dataclass(frozen=True)
class Device:
    """One line of /proc/swaps."""

    path: str
    used_kib: int


def parse_swaps(text: str) -> list[Device]:
    rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
    return [Device(row[0].replace("\\040", " "), int(row[3])) for row in rows]


def is_swap(line: str) -> bool:
    words = line.split()
    return len(words) >= 3 and not words[0].startswith("#") and words[2] == "swap"


def without_swap(text: str) -> str:
    """fstab with its swap lines set aside; every other byte stays."""
    return "\n".join(MARKER + line if is_swap(line) else line for line in text.split("\n"))


@dataclass(frozen=True)
class SwapOff:
    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        self._refuse_to_exhaust_memory(node)
        text = node.read(FSTAB)
        files = [] if text is None else [node.edited(FSTAB, without_swap(text))]
        steps = [_mask(node, unit) for unit in _units(node)]
        if files and (files[0].changed or _from_fstab(node)):
            before = "\n".join(path.name for path in _from_fstab(node)) or "fstab as it was"
            steps.append(Step("swap units", before, "none", lambda: systemd.reload(node)))
        steps += [_swapoff(node, device) for device in _devices(node)]
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            why = node.not_here("swap is the host kernel's")
            return Verdict([not_applicable("swap", [], why)])
        lines = [line.strip() for line in (node.read(FSTAB) or "").splitlines() if is_swap(line)]
        at_boot = [f"/etc/fstab: {line}" for line in lines] + _units(node)
        active = [device.path for device in _devices(node)]
        return Verdict(
            [_none_left("swap", active, node), _none_left("swap_at_boot", at_boot, node)]
        )

    def _refuse_to_exhaust_memory(self, node: Node) -> None:
        used = sum(device.used_kib for device in _devices(node))
        available = _memory_available_kib(node)
        if available is not None and used > available:
            raise PlanError(
                f"swap: {used} KiB are in use and only {available} KiB of memory are available:"
                " end the jobs on this node before swap is switched off"
            )


def _none_left(name: str, found: list[str], node: Node) -> Check:
    reason = "" if node.check_mode else "something brings it back: see systemctl list-units -t swap"
    return compare(name, [], found, check_mode=node.check_mode, reason=reason)


def _devices(node: Node) -> list[Device]:
    return parse_swaps(node.read("proc/swaps") or "")


def _memory_available_kib(node: Node) -> Optional[int]:
    for line in (node.read("proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return None


def _generated(node: Node) -> list[Path]:
    return [path for path in sorted(node.root.glob(GENERATED)) if not _masked(node, path.name)]


def _from_fstab(node: Node) -> list[Path]:
    """Swap units that systemd made of fstab: they go when it reads fstab again."""
    return [path for path in _generated(node) if "SourcePath=/etc/fstab" in path.read_text("utf-8")]


def _units(node: Node) -> list[str]:
    """Units that would bring swap back and have to be masked."""
    fstab = _from_fstab(node)
    generated = [path.name for path in _generated(node) if path not in fstab]
    return generated + [
        unit for unit in ZRAM_UNITS if systemd.installed(node, [unit]) and not _masked(node, unit)
    ]


def _masked(node: Node, unit: str) -> bool:
    path = node.path(f"etc/systemd/system/{unit}")
    return path.is_symlink() and str(path.readlink()) == "/dev/null"


def _mask(node: Node, unit: str) -> Step:
    def act() -> None:
        node.run(["systemctl", "mask", unit])

    return Step(unit, "may be started", "masked", act)


def _swapoff(node: Node, device: Device) -> Step:
    def act() -> None:
        node.run(["swapoff", device.path])

    return Step(f"swap {device.path}", "on", "off", act)

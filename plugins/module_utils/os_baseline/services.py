# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time synchronisation by chrony, irqbalance, no swap, and no unfinished dpkg. Lines of fstab and
chrony.conf are commented out behind a marker, so that they can be restored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core import systemd
from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.files import FilePlan, replace_block
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..core.text import some
from ..packages import dpkg

MARKER = "# set aside by baremetal.mpi_roce: "

CHRONY = ("chrony.service", "chronyd.service")
"""Unit on Debian and Ubuntu, and on EL."""
CONFIGS = ("etc/chrony/chrony.conf", "etc/chrony.conf")
UBUNTU_POOLS, SOURCES = "usr/share/chrony/ubuntu-ntp-pools.sources", "/etc/chrony/sources.d"
"""Ubuntu 25.10 and later copy the first file, with Ubuntu's servers, to the second directory
(packages.ubuntu.com/resolute/chrony/filelist); their chrony.conf names none."""
BLOCK = "time servers"
RUNNING = "enabled, active"
MAX_LISTED_PACKAGES = 5


def with_servers(text: str, servers: Sequence[str], folder: str = "") -> str:
    """chrony.conf with only these servers; if there are none, as the distribution ships it.
    `folder` is the directory with the distribution's servers, if chrony.conf has none."""
    lines = replace_block(text, [], BLOCK).split("\n")
    lines = [line.removeprefix(MARKER) for line in lines]
    if servers:
        also = rf"|sourcedir\s+{re.escape(folder)}/?" if folder else ""
        source = re.compile(rf"\s*(server|pool|peer{also})(\s|$)")
        lines = [MARKER + line if source.match(line) else line for line in lines]
    return replace_block("\n".join(lines), [f"server {server} iburst" for server in servers], BLOCK)


@dataclass(frozen=True)
class ChronyClock:
    """Without `servers`, the distribution's stay. `wait_s` limits the first synchronisation."""

    servers: Sequence[str] = ()
    max_offset_s: float = 0.1
    wait_s: int = 30
    rivals: Sequence[str] = ()
    """Names of services that also set the clock, for systemctl."""

    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        unit = systemd.installed(node, CHRONY)
        if unit is None:
            if node.check_mode:  # a real run installs the package first
                return Plan([], [Step("time service", "not installed", RUNNING, lambda: None)])
            raise PlanError("time: chrony is not installed; the role os_baseline installs it")
        config, steps, state = self._config(node), [], systemd.state(node, unit)
        if state != RUNNING:
            act = partial(systemd.control, node, "enable", "--now", unit)
            steps.append(Step(unit, state, RUNNING, act))
        if config is not None and (config.changed or _older_than_config(node, unit, config)):
            act = partial(systemd.control, node, "restart", unit)
            steps.append(Step(unit, "older settings", "settings of its file", act))
        return Plan([] if config is None else [config], steps)

    def verify(self, node: Node) -> Verdict:
        wanted = {"synchronised": True, "max_offset_s": self.max_offset_s}
        rivals = self._rivals(node)
        if node.container is not None:
            reason = node.not_here("the clock is the host's, and no container may set it")
            return Verdict([*rivals, not_applicable("time_sync", wanted, reason)])
        unit = systemd.installed(node, CHRONY)
        state = "not installed" if unit is None else systemd.state(node, unit)
        service = compare("time_service", RUNNING, state, check_mode=node.check_mode)
        if state != RUNNING:
            return Verdict([*rivals, service])
        found = _tracking(node)
        if not (found and found["synchronised"]) and not node.check_mode:
            wait = ["chronyc", "waitsync", str(self.wait_s), str(self.max_offset_s), "0", "1"]
            node.run(wait, check=False)
            found = _tracking(node)
        good = found and found["synchronised"] and found["offset_s"] <= self.max_offset_s
        reason = "" if good else "see chronyc sources: name servers that this node can reach"
        status = OK if good else FAILED
        return Verdict([*rivals, service, Check("time_sync", wanted, found, status, "", reason)])

    def _rivals(self, node: Node) -> list[Check]:
        if not self.rivals:
            return []
        listed = ["--type=service", "--state=active", "--plain", "--no-legend", *self.rivals]
        answer = node.look(["systemctl", "list-units", *listed]).stdout
        active = [line.split()[0] for line in answer.splitlines() if line.strip()]
        return [compare("time_rivals", [], active)]

    def _config(self, node: Node) -> Optional[FilePlan]:
        """chrony.conf with the servers, or None if it needs no change."""
        for name in CONFIGS:
            text = node.read(name)
            if text is not None:
                folder = SOURCES if node.path(UBUNTU_POOLS).exists() else ""
                wanted = with_servers(text, self.servers, folder)
                ours = self.servers or f"BEGIN baremetal.mpi_roce {BLOCK}" in text
                return node.edited(name, wanted) if ours else None
        if self.servers:
            raise PlanError(f"time: no chrony.conf (looked for {', '.join(CONFIGS)})")
        return None


def _tracking(node: Node) -> Optional[dict[str, Any]]:
    """Values of `chronyc -c tracking`."""
    answer = node.run(["chronyc", "-c", "tracking"], check=False)
    fields = answer.stdout.strip().split(",")
    if answer.rc or len(fields) != 14:
        return None
    return {
        "synchronised": fields[13] != "Not synchronised",
        "source": fields[1],
        "stratum": int(fields[2]),
        "offset_s": abs(float(fields[4])),
    }


def _older_than_config(node: Node, unit: str, config: FilePlan) -> bool:
    """Whether the service started before its file was written, as after an interrupted run."""
    started = systemd.since(node, unit)
    return started is not None and started < int(config.path.stat().st_mtime)


IRQBALANCE = "irqbalance.service"
ABSENT = "not installed"


@dataclass(frozen=True)
class Irqbalance:
    """irqbalance: on, or off if the operator pins the interrupts of NICs."""

    running: bool

    @property
    def wanted(self) -> str:
        return RUNNING if self.running else "disabled, inactive"

    def plan(self, node: Node) -> Plan:
        found = _irqbalance(node)
        if node.container is not None or self._satisfied(found):
            return Plan()
        verb = "enable" if self.running else "disable"
        act = partial(systemd.control, node, verb, "--now", IRQBALANCE)
        return Plan([], [Step(IRQBALANCE, found, self.wanted, act)])

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            reason = node.not_here("interrupts are the host's")
            return Verdict([not_applicable("irqbalance", self.wanted, reason)])
        found = _irqbalance(node)
        status = OK if self._satisfied(found) else differs(node.check_mode)
        return Verdict([Check("irqbalance", self.wanted, found, status)])

    def _satisfied(self, found: str) -> bool:
        return found == self.wanted or (found in (ABSENT, "masked, inactive") and not self.running)


def _irqbalance(node: Node) -> str:
    present = systemd.installed(node, [IRQBALANCE])
    return systemd.state(node, IRQBALANCE) if present else ABSENT


FSTAB = "etc/fstab"
GENERATED = "run/systemd/generator*/*.swap"
ZRAM_UNITS = ("zramswap.service", "zram-config.service")
"""Of zram-tools (Debian, Ubuntu) and zram-config (Ubuntu); zram-generator creates swap units."""


def swaps(node: Node) -> dict[str, int]:
    """KiB in use on each device in /proc/swaps."""
    rows = [line.split() for line in (node.read("proc/swaps") or "").splitlines()[1:]]
    return {row[0].replace("\\040", " "): int(row[3]) for row in rows if row}


def is_swap(line: str) -> bool:
    words = line.split()
    return len(words) >= 3 and not words[0].startswith("#") and words[2] == "swap"


def without_swap(text: str) -> str:
    """fstab with its swap lines commented out, otherwise unchanged."""
    return "\n".join(MARKER + line if is_swap(line) else line for line in text.split("\n"))


@dataclass(frozen=True)
class SwapOff:
    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        devices = swaps(node)
        used, memory = sum(devices.values()), node.read("proc/meminfo") or ""
        available = re.search(r"^MemAvailable:\s*(\d+)", memory, re.MULTILINE)
        if available and used > int(available[1]):
            raise PlanError(
                f"swap: {used} KiB are in use and only {available[1]} KiB of memory are available"
            )
        text = node.read(FSTAB)
        files = [] if text is None else [node.edited(FSTAB, without_swap(text))]
        steps = [
            Step(unit, "may be started", "masked", partial(systemd.control, node, "mask", unit))
            for unit in _units(node)
        ]
        if files and (files[0].changed or _from_fstab(node)):
            before = "\n".join(path.name for path in _from_fstab(node)) or "fstab as it was"
            reload = partial(systemd.control, node, "daemon-reload")
            steps.append(Step("swap units", before, "none", reload))
        for device in devices:
            steps.append(Step(f"swap {device}", "on", "off", node.doing("swapoff", device)))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            reason = node.not_here("swap is the host kernel's")
            return Verdict([not_applicable("swap", [], reason)])
        lines = [line.strip() for line in (node.read(FSTAB) or "").splitlines() if is_swap(line)]
        at_boot = [f"/etc/fstab: {line}" for line in lines] + _units(node)
        return Verdict(
            [
                compare(name, [], found, check_mode=node.check_mode)
                for name, found in (("swap", list(swaps(node))), ("swap_at_boot", at_boot))
            ]
        )


def _generated(node: Node) -> list[Path]:
    return [path for path in sorted(node.root.glob(GENERATED)) if not _masked(node, path.name)]


def _from_fstab(node: Node) -> list[Path]:
    """Swap units that systemd generated from fstab; reloading removes them."""
    return [path for path in _generated(node) if "SourcePath=/etc/fstab" in path.read_text("utf-8")]


def _units(node: Node) -> list[str]:
    """Units that would enable swap again and must be masked."""
    fstab = _from_fstab(node)
    generated = [path.name for path in _generated(node) if path not in fstab]
    zram = [unit for unit in ZRAM_UNITS if systemd.installed(node, [unit])]
    return generated + [unit for unit in zram if not _masked(node, unit)]


def _masked(node: Node, unit: str) -> bool:
    path = node.path(f"etc/systemd/system/{unit}")
    return path.is_symlink() and str(path.readlink()) == "/dev/null"


class Dpkg:
    """Packages that an interrupted dpkg left unfinished; the layer of a set completes its own."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        database = node.read(dpkg.STATUS)
        if database is None:  # dnf can continue after an interruption
            return Verdict()
        half, sets = dpkg.unfinished(database), dpkg.pinned(node.root)
        left = [f"{name} ({state})" for name, state in half.items() if name not in sets]
        if not left:
            reason = f"left to its layer: {some(list(half), MAX_LISTED_PACKAGES)}" if half else ""
            return Verdict([Check("packages_interrupted", "", "", OK, reason=reason)])
        words = ("", some(left, MAX_LISTED_PACKAGES), FAILED)
        return Verdict([Check("packages_interrupted", *words, by_hand="dpkg --configure -a")])

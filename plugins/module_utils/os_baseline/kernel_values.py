# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel settings, applied now and at every boot: parameters, hugepages, governor.

tmpfiles.d writes values under /sys early during boot, when hugepages are easiest to allocate; a
oneshot unit writes them again after the drivers are loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Optional, Union

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict
from ..core.reboots import Reason

SYSCTL_FILE = f"etc/sysctl.d/90-{NAME}.conf"
SEARCH = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d")
"""Directories of systemd-sysctl; of files with the same name, the first directory's applies."""
TMPFILES = f"etc/tmpfiles.d/{NAME}.conf"
UNIT = f"{NAME}-sysfs.service"
UNIT_FILE = f"etc/systemd/system/{UNIT}"
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
AT_BOOT = ("disabled", "enabled")
KEEP = "keep"
KIB = {"2M": 2048, "1G": 1048576}
TRANSPARENT = "sys/kernel/mm/transparent_hugepage/enabled"
POLICIES = "sys/devices/system/cpu/cpufreq/policy*"


def slashed(key: str) -> str:
    """Path of a key under /proc/sys; as in sysctl.d(5), the first separator decides."""
    first = next((sign for sign in key if sign in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


def tidy(value: Any) -> str:
    """Value with single blanks: the kernel prints tabs where files have spaces."""
    return " ".join(str(int(value) if isinstance(value, bool) else value).split())


def parse(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, path below /proc/sys and value of each setting of a sysctl.d file."""
    for number, raw in enumerate(text.splitlines(), start=1):
        key, equals, value = raw.partition("=")
        if equals and not key.lstrip().startswith(("#", ";")):
            yield number, slashed(key.strip().lstrip("-").strip()), tidy(value)


def overridden(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Settings in files read after SYSCTL_FILE that override one of its keys."""
    by_name: dict[str, Path] = {}
    for directory in SEARCH:
        for path in (root / directory).glob("*.conf"):
            by_name.setdefault(path.name, path)
    last: dict[str, tuple[str, str]] = {}
    for name, path in sorted(by_name.items()):
        # systemd-sysctl skips a dangling link too.
        if name > Path(SYSCTL_FILE).name and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, key, value in parse(text):
                last[key] = (value, f"/{path.relative_to(root)} line {number}")
    return [
        f"{key.replace('/', '.')} = {value} ({where})"
        for key, (value, where) in sorted(last.items())
        if value != wanted.get(key, value)
    ]


@dataclass(frozen=True)
class Sysctls:
    """`values` by key as the operator wrote it; the kernel may not know `optional` keys."""

    values: Mapping[str, Any]
    optional: Sequence[str] = ()

    def plan(self, node: Node) -> Plan:
        lines, steps, missing = [], [], []
        for key, value in self._wanted():
            excuse, running = self._excuse(node, key), _running(node, key)
            lines.append(f"{key} = {value}\n" if not excuse else f"# {key} = {value}: {excuse}\n")
            if excuse or running == value:
                continue
            if running is None:
                missing.append(key)
            else:
                act = partial(_write, node, key, value)
                steps.append(Step(f"sysctl {key}", running, value, act))
        if missing:
            raise PlanError(
                f"sysctl: this kernel has no {', '.join(missing)}: correct the name, load its "
                "module, or list it in optional_sysctls"
            )
        return Plan([node.file(SYSCTL_FILE, "".join(lines) or None)], steps)

    def verify(self, node: Node) -> Verdict:
        checks, own = [], {}
        for key, value in self._wanted():
            excuse = self._excuse(node, key)
            if excuse:
                checks.append(not_applicable("sysctl", value, excuse, subject=key))
                continue
            own[slashed(key)] = value
            found = _running(node, key)
            checks.append(compare("sysctl", value, found, subject=key, check_mode=node.check_mode))
        reason = f"read after /{SYSCTL_FILE} at boot: remove these lines or change the variable"
        others = overridden(node.root, own)
        return Verdict([*checks, compare("sysctl_at_boot", [], others, reason=reason)])

    def _wanted(self) -> list[tuple[str, str]]:
        return [(key, tidy(value)) for key, value in self.values.items()]

    def _excuse(self, node: Node, key: str) -> str:
        """Why `key` cannot be set on this node, or None."""
        path, name = _path(node, key), slashed(key)
        if node.container is not None:
            if not name.startswith("net/"):
                return node.not_here("the kernel is the host's")
            # access() grants root everything on a regular file.
            if not path.exists() or not path.stat().st_mode & 0o200 or not os.access(path, os.W_OK):
                return node.not_here("the host's network namespace has this key")
        if not path.exists() and key in self.optional:
            return "this kernel has no such key, and it is listed as optional"
        return ""


def _path(node: Node, key: str) -> Path:
    return node.path(f"proc/sys/{slashed(key)}")


def _write(node: Node, key: str, value: str) -> None:
    _path(node, key).write_text(value, encoding="ascii")


def _running(node: Node, key: str) -> Optional[str]:
    text = node.read(f"proc/sys/{slashed(key)}")
    return None if text is None else tidy(text)


@dataclass(frozen=True)
class Write:
    """One value for every file below the root that `pattern` matches."""

    check: str
    pattern: str
    value: str
    subject: str = ""
    boot_helps: bool = False
    """The next boot may succeed where the running system failed: memory is not fragmented yet."""

    def found(self, node: Node) -> dict[str, str]:
        paths = sorted(node.root.glob(self.pattern))
        return {f"/{path.relative_to(node.root)}": read(path) for path in paths}

    def differing(self, node: Node) -> dict[str, str]:
        return {path: value for path, value in self.found(node).items() if value != self.value}

    def summary(self, node: Node) -> Optional[str]:
        """The current value if all files agree, otherwise a file with a different value."""
        found = self.found(node)
        values = sorted(set(found.values()))
        if len(values) <= 1:
            return values[0] if values else None
        odd = self.differing(node)
        path, value = next(iter(odd.items()))
        return f"{value} in {len(odd)} of {len(found)} ({path}, ...)"

    def apply(self, node: Node) -> None:
        for path in self.differing(node):
            node.path(path).write_text(self.value, encoding="ascii")

    def reason(self, node: Node) -> Reason:
        return Reason(
            subject=f"{self.check} {self.subject}".strip(),
            wanted=self.value,
            running=self.summary(node) or "",
            reason="the running kernel could not provide them all; early in a boot memory is free",
        )

    def waits_for_reboot(self, node: Node) -> bool:
        """Whether it was tried since this boot; another attempt would always report a change."""
        wanted = self.reason(node)
        return self.boot_helps and any(
            known.same_wish(wanted) and known.boot_id == node.boot_id for known in node.rebooted_for
        )

    def evaluate(self, node: Node, verdict: Verdict) -> None:
        found = self.summary(node)
        status, why = FAILED, "the kernel did not accept the value"
        if not self.differing(node):
            status, why = OK, ""
        elif node.check_mode and not self.waits_for_reboot(node):
            status, why = PENDING, ""
        elif self.boot_helps:
            reason = self.reason(node)
            verdict.reasons.append(reason)
            status, why = node.reboot_due(reason)
        verdict.checks.append(Check(self.check, self.value, found, status, self.subject, why))


@dataclass(frozen=True)
class SysfsValues:
    """`hugepages` are pools of `{size, count, node}`; the others are values, or `keep`."""

    hugepages: Sequence[Mapping[str, Any]] = ()
    transparent_hugepages: str = KEEP
    governor: str = KEEP

    def plan(self, node: Node) -> Plan:
        writes = [value for value in self._values(node) if isinstance(value, Write)]
        lines = "".join(f"w /{each.pattern} - - - - {each.value}\n" for each in writes)
        files = [
            node.file(TMPFILES, lines or None),
            node.file(UNIT_FILE, UNIT_BODY if writes else None),
        ]
        steps = []
        for write in writes:
            if write.differing(node) and not write.waits_for_reboot(node):
                what = f"{write.check} {write.subject}".strip()
                act = partial(write.apply, node)
                steps.append(Step(what, write.summary(node) or "", write.value, act))
        enabled, wanted = systemd.linked(node, UNIT), bool(writes)
        if enabled != wanted:
            act = partial(systemd.link, node, UNIT, wanted)
            steps.append(Step(UNIT, AT_BOOT[enabled], AT_BOOT[wanted], act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        verdict, writes = Verdict(), False
        for value in self._values(node):
            if isinstance(value, Check):
                verdict.checks.append(value)
            else:
                value.evaluate(node, verdict)
                writes = True
        if writes:
            found, check_mode = AT_BOOT[systemd.linked(node, UNIT)], node.check_mode
            check = compare("sysfs_at_boot", AT_BOOT[1], found, subject=UNIT, check_mode=check_mode)
            verdict.checks.append(check)
        return verdict

    def _values(self, node: Node) -> Iterator[Union[Write, Check]]:
        """Values to write; a check for a value that does not apply to this node."""
        for pool in self.hugepages:
            yield _pool(node, pool["size"], str(pool["count"]), pool.get("node"))
        if self.transparent_hugepages != KEEP:
            yield _transparent(node, self.transparent_hugepages)
        if self.governor != KEEP:
            yield _governor(node, self.governor)


def _pool(node: Node, size: str, count: str, numa: Optional[int]) -> Union[Write, Check]:
    place = "kernel/mm" if numa is None else f"devices/system/node/node{numa}"
    directory = f"sys/{place}/hugepages/hugepages-{KIB[size]}kB"
    subject = size if numa is None else f"{size} on NUMA node {numa}"
    name = "hugepages"
    if node.container is not None:
        reason = node.not_here("hugepages are the host kernel's")
        return not_applicable(name, count, reason, subject=subject)
    if not node.path(directory).is_dir():
        reason = f"/{directory} not found: no such NUMA node, or no such page size"
        return Check(name, count, None, FAILED, subject, reason)
    return Write(name, f"{directory}/nr_hugepages", count, subject, boot_helps=True)


def _transparent(node: Node, mode: str) -> Union[Write, Check]:
    name = "transparent_hugepages"
    if node.container is not None:
        return not_applicable(name, mode, node.not_here("the kernel is the host's"))
    if not node.path(TRANSPARENT).exists():
        return not_applicable(name, mode, "this kernel is built without them")
    return Write(name, TRANSPARENT, mode)


def _governor(node: Node, governor: str) -> Union[Write, Check]:
    name = "cpu_governor"
    if node.container is not None:
        return not_applicable(name, governor, node.not_here("the CPUs are the host's"))
    if not any(node.root.glob(POLICIES)):
        reason = "no cpufreq: firmware or hypervisor controls the frequency"
        return not_applicable(name, governor, reason)
    return Write(name, f"{POLICIES}/scaling_governor", governor)


def boot_arguments(hugepages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arguments that reserve 1 GiB pages, which need contiguous memory at boot."""
    large = [pool for pool in hugepages if pool["size"] == "1G"]
    if not large:
        return []
    if large[0].get("node") is None:
        return ["hugepagesz=1G", f"hugepages={large[0]['count']}"]
    counts = ",".join(f"{pool['node']}:{pool['count']}" for pool in large)
    return ["hugepagesz=1G", f"hugepages={counts}"]


def read(path: Path) -> str:
    """The value in force; in "always [madvise] never" the one in brackets."""
    text = path.read_text(encoding="ascii").strip()
    if "[" in text and "]" in text:
        return text[text.index("[") + 1 : text.index("]")]
    return text

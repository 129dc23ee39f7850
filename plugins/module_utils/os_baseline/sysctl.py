# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel parameters: one file for the next boot, /proc/sys for now, and both read back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

FILE = f"etc/sysctl.d/90-{NAME}.conf"
SEARCH = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d")
"""Where systemd-sysctl looks; of files with the same name the first directory's counts."""
INITIAL_NAMESPACE_ONLY = (
    *("net/core/*", "net/ipv4/neigh/default/gc_*", "net/ipv6/neigh/default/gc_*"),
    *("net/ipv4/tcp_mem", "net/ipv4/udp_mem", "net/ipv4/route/*"),
)
"""Keys of net.* that, depending on the kernel, only the host's own network namespace has."""


@dataclass(frozen=True)
class Setting:
    """One line of a sysctl.d file."""

    key: str
    value: str
    where: str


def slashed(key: str) -> str:
    """The path of a key under /proc/sys; as in sysctl.d(5) the first separator decides."""
    first = next((sign for sign in key if sign in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


def tidy(value: Any) -> str:
    """Values are compared word by word: the kernel prints tabs where files have spaces."""
    return " ".join(str(int(value) if isinstance(value, bool) else value).split())


def parse(text: str, name: str) -> list[Setting]:
    """The settings of one sysctl.d file, in order."""
    settings = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line and line[0] not in "#;" and "=" in line:
            key, value = line.split("=", 1)
            where = f"{name} line {number}"
            settings.append(Setting(slashed(key.strip().lstrip("-").strip()), tidy(value), where))
    return settings


def overridden(root: Path, wanted: Mapping[str, str]) -> list[Setting]:
    """Settings in files that are read after FILE and give one of its keys another value."""
    by_name: dict[str, Path] = {}
    for directory in SEARCH:
        for path in (root / directory).glob("*.conf"):
            by_name.setdefault(path.name, path)
    last: dict[str, Setting] = {}
    for name, path in sorted(by_name.items()):
        if name > Path(FILE).name and path.exists():  # a dangling link is skipped at boot as well
            text = path.read_text(encoding="utf-8", errors="replace")
            last.update((each.key, each) for each in parse(text, f"/{path.relative_to(root)}"))
    own = [last[key] for key in sorted(last) if key in wanted]
    return [each for each in own if each.value != wanted[each.key]]


@dataclass(frozen=True)
class Sysctls:
    """`values` by key as the operator wrote it; `optional` keys may be unknown to the kernel."""

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
                f"sysctl: this kernel has no {', '.join(missing)} (looked under /proc/sys): correct"
                " the name, load the module that brings it, or list it in optional_sysctls"
            )
        return Plan([node.file(FILE, "".join(lines) or None)], steps)

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
        others = overridden(node.root, own)
        found_later = [
            f"{each.key.replace('/', '.')} = {each.value} ({each.where})" for each in others
        ]
        why = f"read after /{FILE} at boot, so they win: remove these lines or change the variable"
        if others:
            checks.append(Check("sysctl_at_boot", [], found_later, FAILED, reason=why))
        else:
            checks.append(Check("sysctl_at_boot", [], [], OK))
        return Verdict(checks)

    def _wanted(self) -> list[tuple[str, str]]:
        return [(key, tidy(value)) for key, value in self.values.items()]

    def _excuse(self, node: Node, key: str) -> str:
        """Why `key` cannot be set on this node; empty where it can."""
        path, name = _path(node, key), slashed(key)
        if node.container is not None:
            if not name.startswith("net/"):
                return node.not_here("the kernel is the host's")
            if path.exists() and not _writable(path):
                return node.not_here("the host's network namespace holds this value")
            if not path.exists() and any(
                fnmatchcase(name, each) for each in INITIAL_NAMESPACE_ONLY
            ):
                return node.not_here("only the host's own network namespace has this key")
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


def _writable(path: Path) -> bool:
    """By the mode as well: access() allows root everything on a plain file."""
    return bool(path.stat().st_mode & 0o200) and os.access(path, os.W_OK)

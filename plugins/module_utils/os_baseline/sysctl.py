# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel parameters: one file for the next boot, /proc/sys for now, and both read back."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

FILE = f"etc/sysctl.d/90-{NAME}.conf"

SEARCH = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d")
"""Where systemd-sysctl looks; of files with the same name the first directory's counts."""

INITIAL_NAMESPACE_ONLY = (
    "net/core/*",
    "net/ipv4/neigh/default/gc_*",
    "net/ipv6/neigh/default/gc_*",
    "net/ipv4/tcp_mem",
    "net/ipv4/udp_mem",
    "net/ipv4/route/*",
)
"""Keys of net.* that, depending on the kernel, only the host's own network namespace has."""

_KEY = re.compile(r"[A-Za-z0-9_*-][A-Za-z0-9_.:@*-]*(/[A-Za-z0-9_*-][A-Za-z0-9_.:@*-]*)+")


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


def tidy(value: str) -> str:
    """Values are compared word by word: the kernel prints tabs where files have spaces."""
    return " ".join(value.split())


def parse(text: str, name: str) -> list[Setting]:
    """The settings of one sysctl.d file, in order."""
    settings = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        key, value = line.split("=", 1)
        settings.append(
            Setting(slashed(key.strip().lstrip("-").strip()), tidy(value), f"{name} line {number}")
        )
    return settings


def boot_files(root: Path) -> list[Path]:
    """The files systemd-sysctl reads at boot, in the order in which it does."""
    by_name: dict[str, Path] = {}
    for directory in SEARCH:
        for path in sorted((root / directory).glob("*.conf")):
            by_name.setdefault(path.name, path)
    return [by_name[name] for name in sorted(by_name)]


def overridden(root: Path, wanted: Mapping[str, str]) -> list[Setting]:
    """Settings in files that are read after ours and give one of our keys another value."""
    own = Path(FILE).name
    last: dict[str, Setting] = {}
    for path in boot_files(root):
        if path.name <= own:
            continue
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:  # a symbolic link to nowhere: the boot skips it as well
            continue
        for setting in parse(text, f"/{path.relative_to(root)}"):
            last[setting.key] = setting
    return [
        setting
        for key, setting in sorted(last.items())
        if key in wanted and setting.value != wanted[key]
    ]


@dataclass(frozen=True)
class Sysctls:
    """`values` by key as the operator wrote it; `optional` keys may be unknown to the kernel."""

    values: Mapping[str, str]
    optional: Sequence[str] = ()

    @classmethod
    def from_options(cls, values: Mapping[str, Any], optional: Sequence[str]) -> Sysctls:
        findings = []
        tidied = {}
        for key, value in values.items():
            if not _KEY.fullmatch(slashed(key)) or "*" in key or ".." in slashed(key):
                findings.append(f"sysctl {key!r}: not a key such as net.ipv4.tcp_mtu_probing")
            elif isinstance(value, bool) or not isinstance(value, (int, str)):
                findings.append(
                    f"sysctl {key}: {value!r} is neither a number nor text; write 0 or 1"
                )
            elif not str(value).strip() or "\n" in str(value):
                findings.append(f"sysctl {key}: {value!r} is not a value of one line")
            else:
                tidied[key] = tidy(str(value))
        unknown = sorted(set(optional) - set(values))
        if unknown:
            findings.append(f"sysctl: optional keys without a value: {', '.join(unknown)}")
        if findings:
            raise PlanError("\n".join(findings))
        return cls(tidied, tuple(optional))

    def plan(self, node: Node) -> Plan:
        missing = [
            key
            for key in self.values
            if self._excuse(node, key) is None and self._running(node, key) is None
        ]
        if missing:
            raise PlanError(
                f"sysctl: this kernel has no {', '.join(missing)} (looked under /proc/sys): correct"
                " the name, load the module that brings it, or list it in optional_sysctls"
            )
        own = {key: value for key, value in self.values.items() if self._excuse(node, key) is None}
        body = "".join(self._line(node, key, value) for key, value in self.values.items())
        steps = []
        for key, value in own.items():
            running = self._running(node, key)
            if running is not None and running != value:
                steps.append(self._step(node, key, running, value))
        return Plan([node.file(FILE, body or None)], steps)

    def verify(self, node: Node) -> Verdict:
        checks = []
        for key, value in self.values.items():
            excuse = self._excuse(node, key)
            if excuse is not None:
                checks.append(not_applicable("sysctl", value, excuse, subject=key))
                continue
            found = self._running(node, key)
            checks.append(
                compare(
                    "sysctl",
                    value,
                    found,
                    subject=key,
                    check_mode=node.check_mode,
                    reason="" if node.check_mode else "the kernel did not take the value",
                )
            )
        return Verdict([*checks, self._at_boot(node)])

    def _at_boot(self, node: Node) -> Check:
        """No later file may take our values away at the next boot."""
        wanted = {
            slashed(key): value
            for key, value in self.values.items()
            if self._excuse(node, key) is None
        }
        others = overridden(node.root, wanted)
        if not others:
            return Check("sysctl_at_boot", [], [], OK)
        found = [f"{each.key.replace('/', '.')} = {each.value} ({each.where})" for each in others]
        reason = (
            f"read after /{FILE} at boot, so they win: remove these lines or change the variable"
        )
        return Check("sysctl_at_boot", [], found, FAILED, reason=reason)

    def _running(self, node: Node, key: str) -> Optional[str]:
        text = node.read(f"proc/sys/{slashed(key)}")
        return None if text is None else tidy(text)

    def _excuse(self, node: Node, key: str) -> Optional[str]:
        """Why `key` cannot be set on this node, or None when it can."""
        path = node.path(f"proc/sys/{slashed(key)}")
        if node.container is not None:
            if not slashed(key).startswith("net/"):
                return node.not_here("the kernel is the host's")
            if path.exists() and not _writable(path):
                return node.not_here("the host's network namespace holds this value")
            if not path.exists() and any(
                fnmatchcase(slashed(key), pattern) for pattern in INITIAL_NAMESPACE_ONLY
            ):
                return node.not_here("only the host's own network namespace has this key")
        if not path.exists() and key in self.optional:
            return "this kernel has no such key, and it is listed as optional"
        return None

    def _line(self, node: Node, key: str, value: str) -> str:
        excuse = self._excuse(node, key)
        return f"{key} = {value}\n" if excuse is None else f"# {key} = {value}: {excuse}\n"

    def _step(self, node: Node, key: str, running: str, value: str) -> Step:
        path = node.path(f"proc/sys/{slashed(key)}")

        def act() -> None:
            path.write_text(value, encoding="ascii")

        return Step(f"sysctl {key}", running, value, act)


def _writable(path: Path) -> bool:
    """By the mode as well: to root, access() alone says yes to everything on a plain file."""
    return bool(path.stat().st_mode & 0o200) and os.access(path, os.W_OK)

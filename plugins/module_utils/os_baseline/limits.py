# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Resource limits of sessions (PAM) and of services (systemd)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from ..core import systemd
from ..core.checks import Check, compare, not_applicable
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

UNLIMITED = "unlimited"
ITEMS = {
    "memlock": ("Max locked memory", 1024),
    "stack": ("Max stack size", 1024),
    "core": ("Max core file size", 1024),
    "nofile": ("Max open files", 1),
    "nproc": ("Max processes", 1),
}
"""Names in /proc/PID/limits, with the size of PAM's unit in bytes (or 1 for counts)."""


@dataclass(frozen=True)
class Limit:
    """One limit, both soft and hard, in PAM's unit."""

    name: str
    pam: str

    @property
    def kernel(self) -> str:
        """In bytes, or a count, as in /proc/PID/limits."""
        return self.pam if self.pam == UNLIMITED else str(int(self.pam) * ITEMS[self.name][1])

    @property
    def systemd(self) -> str:
        return "infinity" if self.pam == UNLIMITED else self.kernel

    @property
    def key(self) -> str:
        """Name in systemd's configuration and properties."""
        return f"DefaultLimit{self.name.upper()}"

    def above(self, ceiling: str) -> bool:
        if ceiling == UNLIMITED:
            return False
        return self.pam == UNLIMITED or int(self.kernel) > int(ceiling)


def from_options(values: Mapping[str, Any]) -> list[Limit]:
    """Raise PlanError for values that PAM or systemd cannot parse, as they would fail logins."""
    for name, value in values.items():
        if name not in ITEMS or not re.fullmatch(r"unlimited|[1-9][0-9]*", str(value)):
            raise PlanError(
                f"limit {name}: {value}: expected one of {', '.join(ITEMS)}, and unlimited or a "
                "number above 0"
            )
    if str(values.get("nofile")) == UNLIMITED:
        raise PlanError("limit nofile: the kernel supports no unlimited value; write a number")
    return [Limit(name, str(value)) for name, value in values.items()]


def chosen(limits: Sequence[Limit], names: Sequence[str]) -> list[Limit]:
    """Look up limits by name."""
    strange = sorted(set(names) - {limit.name for limit in limits})
    if strange:
        raise PlanError(f"service_limits: {', '.join(strange)}: not among the limits")
    return [limit for limit in limits if limit.name in names]


def parse_proc(text: str) -> dict[str, tuple[str, str]]:
    """Soft and hard limit of each known item in /proc/PID/limits."""
    found = {}
    for name, (title, _unit) in ITEMS.items():
        match = re.search(rf"^{title}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
        if match:
            found[name] = (match.group(1), match.group(2))
    return found


def excuse(node: Node, limit: Limit) -> str:
    """Why this node cannot have the limit; empty if it can. In a container that may not raise its
    own limits, pam_limits would fail with higher ones, and every login with it."""
    if node.container is None:
        return ""
    own = parse_proc(node.read("proc/1/limits") or "").get(limit.name)
    if own is None:
        return node.not_here("its own limit cannot be read from /proc/1/limits")
    return node.not_here(f"its own hard limit is {own[1]}") if limit.above(own[1]) else ""


def shown(found: Optional[tuple[str, str]]) -> Optional[str]:
    """One value if the soft and hard limits are equal, otherwise both."""
    if found is None:
        return None
    return found[0] if found[0] == found[1] else f"soft {found[0]}, hard {found[1]}"


FILE = f"etc/security/limits.d/90-{NAME}.conf"
DOMAINS = ("*", "root")
"""For pam_limits the asterisk means every user except root."""


@dataclass(frozen=True)
class SessionLimits:
    """A file in limits.d, verified in a session of `user`, or of `nobody` until that account
    exists."""

    limits: Sequence[Limit]
    user: str = "nobody"

    def plan(self, node: Node) -> Plan:
        ceiling = (node.read("proc/sys/fs/nr_open") or "").strip()
        lines = []
        for limit in self.limits:
            if limit.name == "nofile" and ceiling and limit.above(ceiling):
                raise PlanError(
                    f"limit nofile: {limit.pam} is above fs.nr_open = {ceiling}, and PAM would"
                    " refuse every login"
                )
            reason = excuse(node, limit)
            if reason:
                lines.append(f"# {limit.name} {limit.pam}: {reason}\n")
            else:
                lines += [f"{domain} - {limit.name} {limit.pam}\n" for domain in DOMAINS]
        return Plan([node.file(FILE, "".join(lines) or None)])

    def verify(self, node: Node) -> Verdict:
        if not self.limits:
            return Verdict()
        known = node.run(["id", "-u", self.user], check=False).rc == 0
        inside = ["runuser", "-u", self.user if known else "nobody", "--"]
        applied = parse_proc(node.run([*inside, "cat", "/proc/self/limits"]).stdout)
        reason = "a later line in /etc/security/limits.d wins, or the session has no pam_limits"
        return Verdict(
            [
                _compare("session_limit", x.kernel, shown(applied.get(x.name)), x, node, reason)
                for x in self.limits
            ]
        )


MANAGER_FILES = tuple(f"etc/systemd/{kind}.conf.d/90-{NAME}.conf" for kind in ("system", "user"))


@dataclass(frozen=True)
class ServiceLimits:
    """systemd's defaults, for daemons that start ranks themselves, from their next start."""

    limits: Sequence[Limit]

    def plan(self, node: Node) -> Plan:
        own = [limit for limit in self.limits if not excuse(node, limit)]
        wanted = {each.key: each.systemd for each in own}
        lines = "".join(f"{key}={value}\n" for key, value in wanted.items())
        files = [node.file(name, f"[Manager]\n{lines}" if own else None) for name in MANAGER_FILES]
        # Compared with the loaded values, so that an interrupted run is completed.
        loaded = _loaded(node, own)
        if loaded == wanted and (own or not any(planned.changed for planned in files)):
            return Plan(files)
        before, after = (
            "\n".join(f"{key}={value}" for key, value in values.items())
            for values in (loaded, wanted)
        )
        act = partial(systemd.control, node, "daemon-reload")
        step = Step("systemd limits", before or "as configured here", after or "default", act)
        return Plan(files, [step])

    def verify(self, node: Node) -> Verdict:
        loaded, reason = _loaded(node, self.limits), "another drop-in sets it: see systemctl show"
        return Verdict(
            [
                _compare("service_limit", x.systemd, loaded.get(x.key), x, node, reason)
                for x in self.limits
            ]
        )


def _loaded(node: Node, limits: Sequence[Limit]) -> dict[str, str]:
    """systemd's loaded defaults."""
    keys = [limit.key for limit in limits]
    found = systemd.show(node, None, keys) if keys else {}
    return {key: found.get(key, "") for key in keys}


def _compare(
    name: str, wanted: str, found: Optional[str], limit: Limit, node: Node, reason: str
) -> Check:
    excused = excuse(node, limit)
    if excused:
        return not_applicable(name, limit.pam, excused, subject=limit.name)
    check_mode, why = node.check_mode, "" if node.check_mode else reason
    return compare(name, wanted, found, subject=limit.name, check_mode=check_mode, reason=why)

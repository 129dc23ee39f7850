# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Resource limits as PAM, systemd and the kernel write them, and what this node can take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..core import systemd
from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

UNLIMITED = "unlimited"


@dataclass(frozen=True)
class Item:
    """One resource; `unit` is what one of PAM's units is in the kernel's: KiB in bytes, or 1."""

    name: str
    proc: str
    unit: int

    @property
    def systemd(self) -> str:
        return f"Limit{self.name.upper()}"


ITEMS = {
    item.name: item
    for item in (
        Item("memlock", "Max locked memory", 1024),
        Item("stack", "Max stack size", 1024),
        Item("core", "Max core file size", 1024),
        Item("nofile", "Max open files", 1),
        Item("nproc", "Max processes", 1),
    )
}


@dataclass(frozen=True)
class Limit:
    """One wanted limit, soft and hard alike, in PAM's unit."""

    item: Item
    pam: str

    @property
    def kernel(self) -> str:
        """In bytes or pieces, as /proc/PID/limits and prlimit have it."""
        return self.pam if self.pam == UNLIMITED else str(int(self.pam) * self.item.unit)

    @property
    def systemd(self) -> str:
        return "infinity" if self.pam == UNLIMITED else self.kernel

    def above(self, ceiling: str) -> bool:
        if ceiling == UNLIMITED:
            return False
        return self.pam == UNLIMITED or int(self.kernel) > int(ceiling)


def from_options(values: Mapping[str, Any]) -> list[Limit]:
    """The wanted limits, or a PlanError with every value that is none."""
    limits = []
    findings = []
    for name, value in values.items():
        if name not in ITEMS:
            findings.append(f"limit {name!r}: unknown; known are {', '.join(sorted(ITEMS))}")
        elif isinstance(value, bool) or not re.fullmatch(r"unlimited|[1-9][0-9]*", str(value)):
            findings.append(f"limit {name}: {value!r} is neither 'unlimited' nor a number above 0")
        elif name == "nofile" and str(value) == UNLIMITED:
            findings.append("limit nofile: the kernel has no unlimited one; write a number")
        else:
            limits.append(Limit(ITEMS[name], str(value)))
    if findings:
        raise PlanError("\n".join(findings))
    return limits


def chosen(limits: Sequence[Limit], names: Sequence[str]) -> list[Limit]:
    """Those of `limits` called `names`."""
    strange = sorted(set(names) - {limit.item.name for limit in limits})
    if strange:
        raise PlanError(f"service_limits: {', '.join(strange)}: not among the limits")
    return [limit for limit in limits if limit.item.name in names]


def parse_proc(text: str) -> dict[str, tuple[str, str]]:
    """Soft and hard limit of each known item in a /proc/PID/limits."""
    found = {}
    for name, item in ITEMS.items():
        match = re.search(rf"^{re.escape(item.proc)}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
        if match:
            found[name] = (match.group(1), match.group(2))
    return found


def excuse(node: Node, limit: Limit) -> Optional[str]:
    """Why this node cannot take `limit`, or None.

    Without the right to raise its own limits a container must not be configured with more:
    pam_limits fails there, and with it every login.
    """
    if node.container is None:
        return None
    own = parse_proc(node.read("proc/1/limits") or "").get(limit.item.name)
    if own is None:
        return node.not_here("its own limit cannot be read from /proc/1/limits")
    return node.not_here(f"its own hard limit is {own[1]}") if limit.above(own[1]) else None


def shown(found: Optional[tuple[str, str]]) -> Optional[str]:
    """For the operator: one value when soft and hard agree."""
    if found is None:
        return None
    return found[0] if found[0] == found[1] else f"soft {found[0]}, hard {found[1]}"


# Limits of sessions: limits.d through PAM, interactive or not, proved from inside a session.


FILE = f"etc/security/limits.d/90-{NAME}.conf"
DOMAINS = ("*", "root")
"""To pam_limits the asterisk is every user but root."""


@dataclass(frozen=True)
class SessionLimits:
    """`user` is the account whose session proves the limits; nobody when there is none such."""

    limits: Sequence[Limit]
    user: str = "nobody"

    def plan(self, node: Node) -> Plan:
        self._refuse_lockout(node)
        lines = []
        for limit in self.limits:
            why = excuse(node, limit)
            if why is not None:
                lines.append(f"# {limit.item.name} {limit.pam}: {why}\n")
                continue
            lines += [f"{domain} - {limit.item.name} {limit.pam}\n" for domain in DOMAINS]
        return Plan([node.file(FILE, "".join(lines) or None)])

    def verify(self, node: Node) -> Verdict:
        if not self.limits:
            return Verdict()
        checks = []
        applied = self._inside_a_session(node)
        for limit in self.limits:
            name = limit.item.name
            why = excuse(node, limit)
            if why is not None:
                checks.append(not_applicable("session_limit", limit.pam, why, subject=name))
                continue
            checks.append(
                compare(
                    "session_limit",
                    limit.kernel,
                    shown(applied.get(name)),
                    subject=name,
                    check_mode=node.check_mode,
                    reason=""
                    if node.check_mode
                    else "a later or more specific line in"
                    " /etc/security/limits.d wins, or the session's PAM stack has no pam_limits",
                )
            )
        return Verdict([*checks, _ssh_applies_them(node)])

    def _refuse_lockout(self, node: Node) -> None:
        """PAM refuses every login when it cannot set a limit: look before writing it."""
        ceiling = (node.read("proc/sys/fs/nr_open") or "").strip()
        for limit in self.limits:
            if limit.item.name == "nofile" and ceiling and limit.above(ceiling):
                raise PlanError(
                    f"limit nofile: {limit.pam} is above fs.nr_open = {ceiling}, and PAM would"
                    " refuse every login: raise the sysctl fs.nr_open first, or lower the limit"
                )

    def _inside_a_session(self, node: Node) -> dict[str, tuple[str, str]]:
        known = node.run(["id", "-u", self.user], check=False).rc == 0
        user = self.user if known else "nobody"
        return parse_proc(
            node.run(["runuser", "-u", user, "--", "cat", "/proc/self/limits"]).stdout
        )


def _ssh_applies_them(node: Node) -> Check:
    """Sessions by ssh get the limits only where sshd's own PAM stack has pam_limits."""
    if "pam_limits.so" in session_modules(node, "sshd"):
        return Check("ssh_pam_limits", "pam_limits.so", "pam_limits.so", OK)
    advice = "add 'session required pam_limits.so' to /etc/pam.d/sshd"
    return Check("ssh_pam_limits", "pam_limits.so", None, FAILED, reason=advice)


def session_modules(node: Node, service: str, above: Sequence[str] = ()) -> set[str]:
    """The PAM modules that `service` runs for a session, with those of the files it includes."""
    modules: set[str] = set()
    for raw in (node.read(f"etc/pam.d/{service}") or "").splitlines():
        words = raw.split("#", 1)[0].split()
        if len(words) < 2:
            continue
        kind, control = words[0].lstrip("-"), words[1]
        if kind == "@include" or (kind == "session" and control in ("include", "substack")):
            included = words[-1]
            if included not in (service, *above):
                modules |= session_modules(node, included, (service, *above))
        elif kind == "session":
            modules |= {word.rsplit("/", 1)[-1] for word in words[2:] if word.endswith(".so")}
    return modules


# Limits of services: systemd's defaults, and the SSH server from which MPI ranks descend.
# The server that runs now gets its limits by prlimit: nothing is restarted and no session is cut.
# Its drop-in brings the same at its next start, and systemd's defaults cover daemons that start
# ranks themselves, a batch system's for instance.


MANAGER_FILES = tuple(f"etc/systemd/{kind}.conf.d/90-{NAME}.conf" for kind in ("system", "user"))

SSH_UNITS = ("ssh.service", "sshd.service")
"""Debian and Ubuntu call the unit ssh, RHEL and Rocky sshd."""


@dataclass(frozen=True)
class ServiceLimits:
    limits: Sequence[Limit]

    def plan(self, node: Node) -> Plan:
        own = self._possible(node)
        unit = systemd.installed(node, SSH_UNITS)
        manager = "".join(f"Default{each.item.systemd}={each.systemd}\n" for each in own)
        files = [
            node.file(name, f"[Manager]\n{manager}" if own else None) for name in MANAGER_FILES
        ]
        if unit is not None:
            service = "".join(f"{each.item.systemd}={each.systemd}\n" for each in own)
            name = f"etc/systemd/system/{unit}.d/90-{NAME}.conf"
            files.append(node.file(name, f"[Service]\n{service}" if own else None))
        steps = [*self._reload(node, unit), *self._prlimit(node, unit)]
        if not own and any(planned.changed for planned in files):
            steps.append(_reload_step(node, ["as configured here"], ["as distributed"]))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        unit = systemd.installed(node, SSH_UNITS)
        manager, service = self._in_systemd(node, unit)
        pid, running = self._of_the_server(node, unit)
        checks: list[Check] = []
        for limit in self.limits:
            name = limit.item.name
            why = excuse(node, limit)
            if why is not None:
                checks.append(not_applicable("service_limit", limit.pam, why, subject=name))
                continue
            found = manager.get(f"Default{limit.item.systemd}")
            checks.append(_compare("service_limit", limit.systemd, found, name, node))
            if unit is None:
                continue
            found = service.get(limit.item.systemd)
            checks.append(_compare("sshd_unit_limit", limit.systemd, found, name, node))
            if pid is None:
                why = f"{unit} is not running; its drop-in holds from its next start"
                checks.append(not_applicable("sshd_limit", limit.kernel, why, subject=name))
            else:
                found = shown(running.get(name))
                checks.append(_compare("sshd_limit", limit.kernel, found, name, node))
        return Verdict(checks)

    def _possible(self, node: Node) -> list[Limit]:
        return [limit for limit in self.limits if excuse(node, limit) is None]

    def _reload(self, node: Node, unit: Optional[str]) -> list[Step]:
        """Judged by what systemd has loaded, so that an interrupted run is made up for."""
        manager, service = self._in_systemd(node, unit)
        before, after = [], []
        for limit in self._possible(node):
            key = limit.item.systemd
            before.append(f"Default{key}={manager.get(f'Default{key}')}")
            after.append(f"Default{key}={limit.systemd}")
            if unit is not None:
                before.append(f"{unit} {key}={service.get(key)}")
                after.append(f"{unit} {key}={limit.systemd}")
        return [] if before == after else [_reload_step(node, before, after)]

    def _prlimit(self, node: Node, unit: Optional[str]) -> list[Step]:
        pid, running = self._of_the_server(node, unit)
        if pid is None:
            return []
        return [
            _prlimit_step(node, pid, limit, running.get(limit.item.name))
            for limit in self._possible(node)
            if running.get(limit.item.name) != (limit.kernel, limit.kernel)
        ]

    def _in_systemd(self, node: Node, unit: Optional[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The manager's defaults and the SSH server's unit, as systemd has them loaded."""
        keys = [limit.item.systemd for limit in self._possible(node)]
        if not keys:
            return {}, {}
        manager = systemd.show(node, None, [f"Default{key}" for key in keys])
        return manager, systemd.show(node, unit, keys) if unit else {}

    def _of_the_server(
        self, node: Node, unit: Optional[str]
    ) -> tuple[Optional[int], dict[str, tuple[str, str]]]:
        """The SSH server's main process and the limits it runs with."""
        if unit is None or not self._possible(node):
            return None, {}
        pid = int(systemd.show(node, unit, ["MainPID"]).get("MainPID", "0"))
        text = node.read(f"proc/{pid}/limits") if pid else None
        return (None, {}) if text is None else (pid, parse_proc(text))


def _compare(name: str, wanted: str, found: Optional[str], subject: str, node: Node) -> Check:
    reason = "" if node.check_mode else "another drop-in sets it: see systemctl cat, show"
    return compare(name, wanted, found, subject=subject, check_mode=node.check_mode, reason=reason)


def _reload_step(node: Node, before: Sequence[str], after: Sequence[str]) -> Step:
    old, new = "\n".join(before), "\n".join(after)
    return Step("systemd limits", old, new, lambda: systemd.reload(node))


def _prlimit_step(node: Node, pid: int, limit: Limit, running: Optional[tuple[str, str]]) -> Step:
    def act() -> None:
        pair = f"{limit.kernel}:{limit.kernel}"
        node.run(["prlimit", "--pid", str(pid), f"--{limit.item.name}={pair}"])

    return Step(f"sshd {limit.item.name}", shown(running) or "unknown", limit.kernel, act)

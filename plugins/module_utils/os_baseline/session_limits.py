# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of sessions: limits.d through PAM, interactive or not, proved from inside a session."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import FAILED, OK, Check, compare, not_applicable
from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, PlanError, Verdict
from .limits import Limit, excuse, parse_proc, shown

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

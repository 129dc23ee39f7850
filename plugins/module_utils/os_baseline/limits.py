# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Resource limits as PAM, systemd and the kernel write them, and what this node can take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..dataclass import dataclass
from ..node.part import Node, PlanError

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

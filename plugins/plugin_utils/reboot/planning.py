# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which hosts are rebooted and in which batch, and which are skipped and why.

Hosts that rebooted after they recorded their reasons come first: they are only verified. Compute
nodes follow in batches, then launchers, then storage hosts on request, one at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

from ...module_utils.reboot import busy, slurm
from ..answers import form_of, sentence, sequence
from ..layers import MEASURING, ROLES

COMPUTE, LAUNCHER, STORAGE = "compute", "launcher", "storage"
GROUPS = (COMPUTE, LAUNCHER, STORAGE)
"""Roles in the order of their turns."""
ONE_AT_A_TIME = (LAUNCHER, STORAGE)
LAST, NEVER = "last", "never"
VERIFY, REBOOT = "verify", "reboot"
"""Actions of a turn. A host that has already rebooted is only verified."""
VERIFIERS = {layer: role for layer, role in ROLES.items() if layer not in MEASURING}
"""Role that verifies each layer after a reboot, by tag."""

HOUR_S, DAY_S = 3600, 86400
_PER_CENT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")

MAX_ENTRIES = 200
"""Maximum number of reasons, processes and boots read from one host."""


class SettingError(Exception):
    """A variable of the role is invalid; the message names it."""


@dataclass(frozen=True)
class RebootSettings:
    batch: Union[int, str] = 1
    storage: str = NEVER
    wait_s: float = 0
    min_hours: float = 12
    max_per_day: int = 3


@dataclass(frozen=True)
class Turn:
    """A host to reboot or verify."""

    name: str
    group: str
    action: str
    """REBOOT or VERIFY."""
    records: tuple[str, ...]
    layers: tuple[str, ...]
    why: tuple[str, ...]
    boot_id: str = ""


@dataclass(frozen=True)
class Left:
    """A host that has, or may have, a reason to reboot, but is skipped.

    `policy`: whether the settings always exclude it.
    """

    name: str
    why: str
    reasons: tuple[str, ...] = ()
    policy: bool = False


def typed(answer: Any) -> dict[str, Any]:
    """Parse the result of node.read. Raises AnswerError."""

    def texts(item: Any, *keys: str) -> dict[str, str]:
        return {key: sentence(item[key]) for key in keys}

    with form_of("the state before a reboot"):
        found: dict[str, Any] = texts(answer, "boot_id")
        found["reasons"] = {
            sentence(record): [
                {
                    **texts(item, "subject", "boot_id"),
                    "reason": sentence(item.get("reason"), 300),
                }
                for item in every[:MAX_ENTRIES]
            ]
            for record, every in list(answer["reasons"].items())[:MAX_ENTRIES]
        }
        found["boots"] = [float(item) for item in answer["boots"][:MAX_ENTRIES]]
        found["now"] = float(answer["now"])
        if not all(map(math.isfinite, (found["now"], *found["boots"]))):
            raise ValueError("a time is not finite")
        found["processes"] = [
            {"pid": int(item["pid"]), **texts(item, "user", "command", "why")}
            for item in answer["processes"][:MAX_ENTRIES]
        ]
        node = answer["slurm"]
        found["slurm"] = node and {
            **texts(node, "name", "state", "reason"),
            **{key: bool(node[key]) for key in ("drained", "ours", "busy")},
        }
        found["problems"] = [sentence(item, 600) for item in sequence(answer["problems"])]
    return found


Decision = Union[Turn, Left, None]
"""None if the host has no reason to reboot."""


def decide(
    name: str,
    group: str,
    found: Mapping[str, Any],
    settings: RebootSettings,
    controller: str,
) -> Decision:
    """Decide about one host. `found` is the result of node.read, or {"lost": reason}; `controller`
    is the boot id of the machine that runs Ansible, which a container there shares.
    """
    if found.get("lost"):
        return Left(name, f"it was not reached: {found['lost']}")
    reasons = {record: list(every) for record, every in found["reasons"].items() if every}
    reason = _why(reasons)
    records = tuple(sorted(reasons))
    node = found.get("slurm")
    unread = any("not a record of reasons" in problem for problem in found["problems"])
    if unread or (found["problems"] and reasons):
        return Left(name, "; ".join(found["problems"]), reason)
    if not reasons and not (node and node["ours"]):
        return None
    asked = {record: layer_of(record) for record in records}
    unknown = sorted(record for record, layer in asked.items() if layer is None)
    if unknown:
        return Left(
            name,
            f"playbooks/verify.yml verifies no layer of the records {', '.join(unknown)}: see "
            "/var/lib/baremetal-mpi-roce/reboot-required.d on the host",
            reason,
        )
    wanted = tuple(sorted({layer for layer in asked.values() if layer is not None}))
    if not due(reasons, found["boot_id"]):
        return Turn(name, group, VERIFY, records, wanted, reason, found["boot_id"])
    why, policy = _refused(group, found, settings, controller)
    if why:
        return Left(name, why, reason, policy)
    return Turn(name, group, REBOOT, records, wanted, reason, found["boot_id"])


def layer_of(record: str) -> Optional[str]:
    """The layer that wrote a record (`os`, `rails-firmware`); None if it is unknown."""
    names = (record, record.partition("-")[0])
    return next((name for name in names if name in VERIFIERS), None)


def due(reasons: Mapping[str, Sequence[Mapping[str, str]]], boot_id: str) -> bool:
    """Whether a reason was recorded in this boot; for earlier ones, it was rebooted already."""
    return any(item["boot_id"] in ("", boot_id) for every in reasons.values() for item in every)


def plan(decisions: Iterable[tuple[str, Decision]], settings: RebootSettings) -> dict[str, Any]:
    """Turns in batches, in the order of the hosts; the skipped hosts; the hosts without a
    reason.
    """
    decided = list(decisions)
    turns = [item for _name, item in decided if isinstance(item, Turn)]
    batches = [[turn for turn in turns if turn.action == VERIFY]]
    for group in GROUPS:
        members = [turn for turn in turns if turn.action == REBOOT and turn.group == group]
        size = 1 if group in ONE_AT_A_TIME else batch_size(settings.batch, len(members))
        batches += [members[start : start + size] for start in range(0, len(members), size)]
    return {
        "batches": [
            {"action": batch[0].action, "turns": [asdict(turn) for turn in batch]}
            for batch in batches
            if batch
        ],
        "left": [asdict(each) for _name, each in decided if isinstance(each, Left)],
        "nothing": [name for name, each in decided if each is None],
    }


def batch_size(wanted: Union[int, str], members: int) -> int:
    """A number of hosts, or a share of `members` (`25%`): at least one."""
    share = _PER_CENT.match(str(wanted))
    if share is not None and 0 < float(share[1]) <= 100:
        return max(1, math.floor(members * float(share[1]) / 100))
    if share is None and re.match(r"^\s*\d+\s*$", str(wanted)) and int(wanted) >= 1:
        return int(wanted)
    raise SettingError(
        f"cluster_reboot_batch is {wanted!r}: a number of hosts from 1, or a share from 1% to 100%"
    )


def _refused(
    group: str, found: Mapping[str, Any], settings: RebootSettings, controller: str
) -> tuple[str, bool]:
    """Why this host is not rebooted (empty if it may be), and whether a policy excludes it."""
    if found.get("local") or found["boot_id"] == controller:
        return "it is the machine that runs Ansible: reboot it by hand, from another machine", True
    if group == STORAGE and settings.storage != LAST:
        return f"it is storage (cluster_reboot_storage: {settings.storage})", True
    guarded = too_often(found["boots"], found["now"], settings.min_hours, settings.max_per_day)
    if guarded or settings.wait_s > 0:
        return guarded, False
    running = [busy.Process(**item) for item in found["processes"]]
    if running:
        return f"MPI runs on it: {busy.listed(running)}", False
    node = found.get("slurm")
    return slurm.shown(node) if node and node["busy"] else "", False


def too_often(began: Sequence[float], now: float, hours: float, per_day: int) -> str:
    """Why further reboots would be too many, or empty. 0 hours or 0 per day means no limit.

    The first known boot does not count, as it may be the one after installation.
    """
    reboots = sorted(began)[1:]
    if not reboots:
        return ""
    last = max(0.0, now - reboots[-1]) / HOUR_S
    if hours and last < hours:
        ago = f"{last * 60:.0f} min" if last < 2 else f"{last:.1f} h"
        return f"it rebooted {ago} ago, less than {hours:g} h (cluster_reboot_min_hours)"
    today = [when for when in reboots if when > now - DAY_S]
    if per_day and len(today) >= per_day:
        return f"it rebooted {len(today)} times in 24 h (cluster_reboot_max_per_day: {per_day})"
    return ""


def _why(reasons: Mapping[str, Sequence[Mapping[str, str]]]) -> tuple[str, ...]:
    return tuple(
        f"{record}: {item.get('reason') or item['subject']}"
        for record, every in sorted(reasons.items())
        for item in every
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When a node has booted, and whether that was too often.

Two sources with boot ids: the collection's own record, written before each of its reboots, and the
journal, where it is kept across boots. In a container the journal may be that of the machine below,
so there the record counts alone. The boot that runs began when PID 1 did.

The first known boot is no reboot: a node that was installed today may have one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file

RECORD = Path("var/lib/baremetal-mpi-roce/reboots.json")
"""Under the root directory of the node."""
HOUR_S = 3600
DAY_S = 24 * HOUR_S
KEPT_S = 7 * DAY_S

_JOURNAL = re.compile(
    r"^\s*-?\d+\s+([0-9a-f]{32})\s+\w{3}\s+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", re.MULTILINE
)


class HistoryError(Exception):
    """The record is damaged; the text has the file and the remedy."""


def own(root: Path = Path("/")) -> dict[str, float]:
    """The boots of the record: boot id, and when it began."""
    path = root / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(each["boot_id"]): float(each["began"]) for each in found["boots"]}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path}: not a record of reboots ({error}); remove it") from error


def record(
    boot_id: str, now: float, root: Path = Path("/"), uid: int = 0, gid: int = 0
) -> FilePlan:
    """The record with the boot that runs, and without those of last week."""
    boots = {key: when for key, when in own(root).items() if when > now - KEPT_S}
    boots[boot_id] = began(root)
    ordered = sorted(boots.items(), key=lambda item: item[1])
    entries = [{"boot_id": key, "began": when} for key, when in ordered]
    text = json.dumps({"boots": entries}, indent=1) + "\n"
    return plan_file(root / RECORD, text, uid=uid, gid=gid)


def began(root: Path = Path("/")) -> float:
    """When this boot began, in seconds since the epoch: the start of PID 1."""
    stat = (root / "proc/stat").read_text(encoding="ascii")
    kernel = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime "))
    first = (root / "proc/1/stat").read_text(encoding="utf-8", errors="replace")
    return kernel + int(first.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def journal(text: str) -> dict[str, float]:
    """The output of `journalctl --list-boots`, in UTC."""
    return {
        "-".join((key[:8], key[8:12], key[12:16], key[16:20], key[20:])): datetime.strptime(
            f"{when} +0000", "%Y-%m-%d %H:%M:%S %z"
        )
        .astimezone(timezone.utc)
        .timestamp()
        for key, when in _JOURNAL.findall(text)
    }


def read(
    run: Runner, boot_id: str, container: Optional[str], root: Path = Path("/")
) -> list[float]:
    """When each known boot began, this one included, oldest first.

    A date after this boot is that of a clock that was wrong.
    """
    known: dict[str, float] = {}
    if container is None:
        try:
            done = run(["env", "TZ=UTC", "journalctl", "--list-boots", "-q"], check=False)
            known = journal(done.stdout) if done.rc == 0 else {}
        except CommandError:
            known = {}
    latest = began(root)
    known = {**known, **own(root), boot_id: latest}
    return sorted(min(when, latest) for when in known.values())


def too_often(began: Sequence[float], now: float, hours: float, per_day: int) -> str:
    """Why the guard refuses this host, or nothing. 0 hours, or 0 a day, is no limit."""
    reboots = sorted(began)[1:]
    if not reboots:
        return ""
    last = max(0.0, now - reboots[-1]) / HOUR_S
    if hours and last < hours:
        ago = f"{last * 60:.0f} min" if last < 2 else f"{last:.1f} h"
        return (
            f"it rebooted {ago} ago, and no host is rebooted twice within {hours:g} h"
            " (cluster_reboot_min_hours)"
        )
    today = [when for when in reboots if when > now - DAY_S]
    if per_day and len(today) >= per_day:
        return f"it rebooted {len(today)} times in 24 h (cluster_reboot_max_per_day: {per_day})"
    return ""

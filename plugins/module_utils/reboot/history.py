# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When a node has booted, from all that remembers it: and whether that was too often.

Three sources. The collection's own record, which every reboot of ours is written to before it is
done. The journal, where it is kept across boots. wtmp (`last`), which has no boot ids. In a
container the last two may be those of the machine below, so there the record counts alone. The boot
that runs now began when PID 1 did, in a container as well.

The first boot that anything remembers is no reboot: a node that was installed today may have one.

A clock that was wrong at boot was set afterwards, and the sources were written at different times:
the same boot may have a date of each, hours apart. So the record keeps every date that its boot
went by, and the newest line of wtmp is the boot that runs now, whatever its date.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file

RECORD = Path("var/lib/baremetal-mpi-roce/reboots.json")
"""Under the root directory of the node."""
KEPT_S = 7 * 86400
SAME_S = 300
"""wtmp and the journal date the same boot differently, by this much at most."""
HOUR_S = 3600
DAY_S = 86400

_JOURNAL = re.compile(
    r"^\s*-?\d+\s+([0-9a-f]{32})\s+\w{3}\s+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", re.MULTILINE
)
_WTMP = re.compile(r"^reboot\s.*?\s(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d)", re.MULTILINE)


class HistoryError(Exception):
    """The record cannot be understood; the text names the file and what to do."""


Dates = Mapping[str, Sequence[float]]
"""By boot id: when the boot began, followed by the dates that other sources have for it."""


def own(root: Path = Path("/")) -> dict[str, list[float]]:
    """The boots of the record."""
    path = root / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(each["boot_id"]): [float(when) for when in (each["began"], *each.get("also", []))]
            for each in found["boots"]
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path}: not a record of reboots ({error}); remove it") from error


def record(
    boot_id: str,
    dates: Sequence[float],
    now: float,
    root: Path = Path("/"),
    uid: int = 0,
    gid: int = 0,
) -> FilePlan:
    """The record with one boot more, and without those of last week."""
    boots = {key: found for key, found in own(root).items() if found[0] > now - KEPT_S}
    boots[boot_id] = list(dates)
    entries = [
        {"boot_id": key, "began": found[0], "also": found[1:]}
        for key, found in sorted(boots.items(), key=lambda item: item[1])
    ]
    text = json.dumps({"boots": entries}, indent=1) + "\n"
    return plan_file(root / RECORD, text, uid=uid, gid=gid)


def began(root: Path = Path("/"), ticks: Optional[int] = None) -> float:
    """When this boot began, in seconds since the epoch: the start of PID 1."""
    ticks = ticks or os.sysconf("SC_CLK_TCK")
    stat = (root / "proc/stat").read_text(encoding="ascii")
    kernel = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime "))
    first = (root / "proc/1/stat").read_text(encoding="utf-8", errors="replace")
    return kernel + int(first.rpartition(")")[2].split()[19]) / ticks


def journal(text: str) -> dict[str, float]:
    """What `journalctl --list-boots` said, in UTC."""
    return {
        _dashed(boot_id): datetime.strptime(when, "%Y-%m-%d %H:%M:%S")
        .replace(tzinfo=timezone.utc)
        .timestamp()
        for boot_id, when in _JOURNAL.findall(text)
    }


def wtmp(text: str) -> list[float]:
    """What `last --time-format iso reboot` said, which begins with the newest line."""
    return [
        datetime.strptime(re.sub(r":(\d\d)$", r"\1", when), "%Y-%m-%dT%H:%M:%S%z").timestamp()
        for when in _WTMP.findall(text)
    ]


def boots(known: Dates, without_id: Iterable[float] = (), now_id: str = "") -> list[float]:
    """When each boot began, oldest first. One that has no boot id may be one that has.

    None began after the one that runs now: a later date is that of a wrong clock.
    """
    found = [dates[0] for dates in known.values()]
    every = [when for dates in known.values() for when in dates]
    for when in without_id:
        if all(abs(when - other) > SAME_S for other in every):
            found.append(when)
            every.append(when)
    latest = known[now_id][0] if now_id in known else max(found, default=0.0)
    return sorted(min(when, latest) for when in found)


def dates(
    run: Runner, boot_id: str, container: Optional[str], root: Path = Path("/")
) -> tuple[dict[str, list[float]], list[float]]:
    """All boots that are remembered, and the dates in wtmp, which has no boot ids."""
    known = own(root)
    known[boot_id] = [began(root), *known.get(boot_id, [])]
    if container is not None:
        return known, []
    said = journal(_said(run, ["env", "TZ=UTC", "journalctl", "--list-boots", "-q"]))
    for key, when in said.items():
        known.setdefault(key, []).append(when)
    lines = wtmp(_said(run, ["last", "--time-format", "iso", "reboot"]))
    known[boot_id] += lines[:1]
    return known, lines


def read(
    run: Runner, boot_id: str, container: Optional[str], root: Path = Path("/")
) -> list[float]:
    """Every boot that is remembered, this one included."""
    return boots(*dates(run, boot_id, container, root), boot_id)


def too_often(
    began: Sequence[float], now: float, hours: float, per_day: int, day_s: float = DAY_S
) -> str:
    """Why the guard refuses this host, or nothing. 0 hours, or 0 a day, is no limit."""
    reboots = sorted(began)[1:]
    if not reboots:
        return ""
    last = max(0.0, now - reboots[-1]) / HOUR_S
    if hours and last < hours:
        return (
            f"it rebooted {_hours(last)} ago, and no host is rebooted twice within {hours:g} h "
            "(cluster_reboot_min_hours)"
        )
    today = [when for when in reboots if when > now - day_s]
    if per_day and len(today) >= per_day:
        return (
            f"it rebooted {len(today)} times in 24 h, and {per_day} are the most "
            "(cluster_reboot_max_per_day)"
        )
    return ""


def _hours(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _dashed(text: str) -> str:
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _said(run: Runner, argv: Sequence[str]) -> str:
    """Neither source is on every system: nothing where it is not."""
    try:
        done = run(argv, check=False)
    except CommandError:
        return ""
    return done.stdout if done.rc == 0 else ""


def as_dict(found: Sequence[float]) -> list[Any]:
    return [round(when, 1) for when in found]

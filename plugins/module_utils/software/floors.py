# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Minimum versions by published bulletins. The model warns of a set below them, and the layers
`gpu`, `rdma` and `fabric` compare the versions that are installed.

NVIDIA's bulletins: github.com/NVIDIA/product-security at dbb4ada (2026-08-18), YEAR/NUMBER.
Compared with minimum-versions.json of github.com/SemiAnalysisAI/ClusterMAX at 50ecb6f.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional, cast

from ..core.checks import NOT_APPLICABLE, OK, PENDING, Check

DATED = "2026-11-28"
"""Date of the last comparison with the sources."""
BELOW, UNKNOWN = "below", "unknown"
DRIVER, CUDA, DCGM, NCCL = "driver", "cuda", "dcgm", "nccl"
TOOLKIT, RUNC, FIRMWARE = "container_toolkit", "runc", "nic_firmware"
CUMULUS = "cumulus_linux"
NAME = "floor"
Numbers = tuple[int, ...]


class Line(NamedTuple):
    """The first good version of a release line. `source`: the bulletin, with its date."""

    first: str
    source: str


@dataclass(frozen=True)
class Floor:
    """Minimum versions of one component. Versions of other lines than those of the table count as
    below if a later line is in the table."""

    component: str
    title: str
    lines: Mapping[str, Line]
    """By the first numbers of their versions; empty for a minimum of all versions."""
    reason: str
    since: str = ""
    """The first affected version, unless all earlier ones are."""
    later: bool = True
    """Whether lines after the last one have the correction; otherwise they are unknown."""


_MAY = "NVIDIA bulletin 5821, 2026-05-19"
_JANUARY = "NVIDIA bulletin 5747, 2026-01-28"
_NICS = "NVIDIA bulletin 5699, 2026-06-30"
_CUMULUS = "NVIDIA bulletin 5817, 2026-08-18"
_RUNC = "GHSA-xjvp-4fhw-gc47, 2026-06-22"
FLOORS: Mapping[str, Floor] = {
    floor.component: floor
    for floor in (
        Floor(
            DRIVER,
            "NVIDIA driver",
            {
                "535": Line("535.309.01", _MAY),
                # Not in the bulletin of May, which says that earlier branches may be affected.
                "570": Line("570.211.01", _JANUARY),
                "580": Line("580.159.03", _MAY),
                "590": Line("590.48.01", _JANUARY),
                "595": Line("595.71.05", _MAY),
            },
            "local users can escalate their privileges",
            later=False,
        ),
        Floor(
            CUDA,
            "CUDA toolkit",
            {"": Line("13.1", "NVIDIA bulletin 5755, 2026-01-20")},
            "Nsight Systems runs commands from file names",
        ),
        Floor(
            DCGM,
            "DCGM",
            {"": Line("4.5.3", "NVIDIA bulletin 5857, 2026-07-28")},
            "its exporter can be exhausted over the network",
        ),
        Floor(
            NCCL,
            "NCCL",
            # docs/source/release-notes.md of github.com/NVIDIA/nvidia-resiliency-ext at d8686d9
            {"": Line("2.28.9", "release notes of NVIDIA Resiliency Extension 0.5")},
            "in-process restarts end with a segmentation fault",
            since="2.28.3",
        ),
        Floor(
            TOOLKIT,
            "NVIDIA Container Toolkit",
            {"": Line("1.19.1", "NVIDIA bulletin 5850, 2026-06-30")},
            "a container can escalate its privileges",
        ),
        Floor(
            RUNC,
            "runc",
            {
                line: Line(first, _RUNC)
                for line, first in (
                    ("1.3", "1.3.6"),
                    ("1.4", "1.4.3"),
                    ("1.5", "1.5.0"),
                )
            },
            "a container can write outside of its file system",
        ),
        Floor(
            FIRMWARE,
            "firmware of ConnectX and BlueField",
            {
                "28": Line("28.4702", _NICS),  # ConnectX-4
                "32": Line("32.1908", _NICS),  # ConnectX-4 Lx
                "35": Line("35.8002", _NICS),
                "39": Line("39.8002", _NICS),
                "43": Line("43.8002", _NICS),
                "46": Line("46.3008", _NICS),
            },
            "a user of a virtual function can run code on the NIC",
        ),
        Floor(
            CUMULUS,
            "Cumulus Linux",
            {
                line: Line(first, _CUMULUS)
                for line, first in (("5.9", "5.9.5"), ("5.11", "5.11.5"), ("5.16", "5.16"))
            },
            "a neighbour can run code by LLDP",
        ),
    )
}


class Verdict(NamedTuple):
    """A version below its minimum, `first`, or of an unknown line; `first` is then empty."""

    status: str
    first: str = ""
    source: str = ""

    def reason(self, floor: Floor) -> str:
        if self.status == UNKNOWN:
            lines = f"the last known one is {[*floor.lines][-1]}"
            return f"no minimum is known for this line ({DATED}): {lines}"
        return f"{floor.reason} ({self.source})"


def verdict(component: str, version: str) -> Optional[Verdict]:
    """None for a version that meets the minimum, or that is not a number."""
    floor, numbers = FLOORS[component], numbers_of(version)
    if not numbers or (floor.since and numbers < numbers_of(floor.since)):
        return None
    lines = {numbers_of(line): first for line, first in floor.lines.items()}
    own = next((line for line in lines if numbers[: len(line)] == line), None)
    later = next((line for line in sorted(lines) if line > numbers), None)
    if own is None and later is None:
        return None if floor.later else Verdict(UNKNOWN)
    first = lines[cast(Numbers, later if own is None else own)]
    return Verdict(BELOW, *first) if own is None or numbers < numbers_of(first.first) else None


def numbers_of(version: str) -> Numbers:
    """`580.95.05` as a sortable tuple; of `1.3.3-0ubuntu1`, the part before the revision."""
    upstream = re.match(r"(?:\d{1,9}:)?(\d{1,9}(?:\.\d{1,9})*)", version, re.ASCII)
    return tuple(int(part) for part in upstream[1].split(".")) if upstream else ()


@dataclass(frozen=True)
class Accepted:
    """A version below its minimum that the site uses until a date, for a reason."""

    component: str
    version: str
    reason: str
    until: str
    """The last day, `2027-01-31`."""

    def expired(self, today: str) -> bool:
        return self.until < today


def today() -> str:
    return datetime.date.today().isoformat()


def check(component: str, version: str, accepted: Sequence[Accepted], subject: str = "") -> Check:
    """The version that is installed against its minimum. One that is below waits for an upgrade,
    which fails playbooks/verify.yml only."""
    floor, found = FLOORS[component], verdict(component, version)
    subject = subject or floor.title
    if not numbers_of(version):
        wanted = "a version of numbers"
        return Check(NAME, wanted, version, NOT_APPLICABLE, subject, "it cannot be compared")
    if found is None:
        return Check(NAME, version, version, OK, subject)
    wanted, why = f"{found.first} or later", found.reason(floor)
    if found.status == UNKNOWN:
        return Check(NAME, "a known line", version, NOT_APPLICABLE, subject, why)
    own = [each for each in accepted if (each.component, each.version) == (component, version)]
    if own and not own[0].expired(today()):
        why = f"{why}; accepted until {own[0].until}: {own[0].reason}"
        return Check(NAME, wanted, version, NOT_APPLICABLE, subject, why)
    why += f"; the exception expired on {own[0].until}" if own else ""
    remedy = f"upgrade {floor.title} to {wanted}, or write software.accepted for {component}"
    return Check(NAME, wanted, version, PENDING, subject, why, by_hand=remedy)

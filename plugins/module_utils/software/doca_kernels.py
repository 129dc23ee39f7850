# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernels for which the drivers of a DOCA release are known to build.

Since 3.2 DKMS builds them on the node, for every minor release of a distribution
(docs.nvidia.com/doca/archive/3-2-1/general-support). A kernel that is not in the table is unknown:
only the build shows whether it succeeds.
"""

from __future__ import annotations

import re

from ..core.distribution import SYSTEMS

DATED = "2026-11-28"
FAILS, UNKNOWN = "fails", "unknown"
SINCE: dict[str, dict[int, str]] = {
    # Up to 9.7; 9.8. Without Azure's patch 25.10 (DOCA 3.2.1) does not build for 9.8:
    # Azure/azhpc-images pull request 567. 3.2.3 does: stackhpc/stackhpc-kayobe-config 2430. Later
    # release lines are unknown: 3.3.0 (26.01) is older than 3.2.3 and than EL 9.8.
    "5.14.0": {611: "", 687: "3.2.3"},
    # Up to 10.1 (a guess); 10.2, from the same pull request of StackHPC.
    "6.12.0": {124: "", 211: "3.2.3"},
}
"""EL kernel: last build of a minor release, and the first DOCA of a release line for it."""
_EL = re.compile(r"(\d+\.\d+\.\d+)-(\d+)\b.*\.el\d+(_\d+)?(\.|$)")
_UBUNTU = re.compile(r"(\d+\.\d+)\.0-\d+-[a-z0-9-]+")
UBUNTU = {system.kernel: system.doca or "" for system in SYSTEMS if system.ids == ("ubuntu",)}
"""Kernel that a release of Ubuntu was published with, and the first DOCA for that release: a guess
from the distributions that DOCA supports. 24.04 has 7.0 too (actions/runner-images issue 14203)."""


def verdict(doca: str, release: str) -> str:
    """Return `fails`, `unknown`, or an empty string for a kernel that is known to build."""
    has, ubuntu = _numbers(doca), _UBUNTU.fullmatch(release)
    if ubuntu and ubuntu[1] in UBUNTU:
        return "" if has >= _numbers(UBUNTU[ubuntu[1]]) else UNKNOWN
    found = _EL.match(release)
    builds = SINCE.get(found[1], {}) if found else {}
    for last, since in builds.items():
        if found and int(found[2]) <= last:
            first = _numbers(since)
            if not first or (has >= first and has[:2] == first[:2]):
                return ""
            return FAILS if int(found[2]) == last and has < first else UNKNOWN
    return UNKNOWN


def doubt(doca: str, release: str) -> str:
    """The verdict as a sentence."""
    found = verdict(doca, release)
    if found == FAILS:
        return (
            f"the drivers of DOCA {doca} do not build for kernel {release}: choose DOCA "
            f"{_since(release)}, or an older kernel"
        )
    return f"whether DOCA {doca} builds for kernel {release} is not known here" if found else ""


def _since(release: str) -> str:
    found = _EL.match(release)
    return SINCE[found[1]][int(found[2])] if found else ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part]

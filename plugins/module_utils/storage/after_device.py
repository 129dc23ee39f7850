# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A mount in the place of a device that this host served until now, at the same path.

Both have a unit of one name. The part of the device ends its own, and takes it away, before this
one's is written; what lies in the directory below it can only be seen then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Optional

from ..commands import Runner
from ..files import FilePlan, diffs
from ..node.part import Node, Step, StepError
from . import under
from .mounted import Mount, on, read
from .running import shown
from .server import once
from .wanted_mounts import WantedMount


def follows(node: Node, each: WantedMount, absent: Collection[str]) -> bool:
    """Whether a device of ours is there, and goes in this run: it is in `absent`."""
    mounts = not node.container and not each.unit.is_bind
    return mounts and each.point in absent and once.has_device(node, each.point)


def stays(each: WantedMount) -> str:
    """Why nothing is mounted there while nobody says that the device goes."""
    return (
        f"{each.point}: {each.unit.mount} mounts a device there, which this host served until now. "
        f"Where {each.fs.name} is to take its place: "
        f'-e \'{{"shared_storage_absent": ["{each.point}"]}}\' and --limit to this host. What is '
        "on the device stays as it is"
    )


def step(
    node: Node,
    each: WantedMount,
    files: Sequence[FilePlan],
    runs: Optional[Mount],
    wait: Runner,
) -> Step:
    """Write the units of the mount. Essential: where the device stays, nothing is armed over it."""

    def act() -> None:
        if once.has_device(node, each.point):
            raise StepError(
                f"{shown(runs)} is there still, which was served until now: see what kept "
                f"systemctl disable --now '{each.unit.mount}' from ending it"
            )
        stays_there = on(read(node.root), each.point)
        if stays_there is not None:  # mounted over the unit's, or again meanwhile
            raise StepError(
                f"{shown(stays_there)} is mounted there still, and by no unit of ours: umount "
                f"{each.point}, then run again"
            )
        why = under.refusal(node, each.point, wait)
        if why:
            raise StepError(f"the device is gone, and what was below it is in the way: {why}")
        for planned in files:
            planned.apply()

    found = Step(each.point, shown(runs), each.source, act, essential=True)
    return replace(found, shown=[*diffs(files), found.diff()])

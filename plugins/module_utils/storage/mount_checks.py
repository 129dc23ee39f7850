# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is read back of the mounts of a host: units from systemd, mounts from the kernel's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..files import HEADER
from ..machine import NO_MOUNTS
from ..node import systemd
from ..node.part import Node
from . import foreign, mount_options, mounted, units
from .mount_options import Difference
from .mounted import Mount
from .units import AUTOMOUNT, ENABLED, MOUNT
from .wanted_mounts import WantedMount, one_way_hint

UNIT, AUTO, MOUNTED, OPTIONS, LEFT, ABSENT = (
    "storage_unit",
    "storage_automount",
    "storage_mount",
    "storage_options",
    "storage_leftover",
    "storage_absent",
)


def at_boot(node: Node, each: WantedMount) -> Check:
    """Its automount point, or the bind mount itself."""
    name = UNIT if each.unit.is_bind else AUTO
    wanted, found = ENABLED, systemd.state(node, each.unit.at_boot)
    if node.container:  # where it is enabled, and starts nothing
        wanted, found = wanted.split(", ")[0], found.split(", ")[0]
    return compare(name, wanted, found, subject=each.point, check_mode=node.check_mode)


def running(
    node: Node, each: WantedMount, table: Sequence[Mount], why: str, keeps: str
) -> list[Check]:
    """`why` it could not be mounted; `keeps`: who stands in the way of a change."""
    options = ",".join(each.unit.options)
    if node.container:
        reason = node.not_here(NO_MOUNTS)
        return [
            not_applicable(MOUNTED, each.source, reason, subject=each.point),
            not_applicable(OPTIONS, options, reason, subject=each.point),
        ]
    differs = PENDING if node.check_mode else FAILED
    runs = mounted.on(table, each.point)
    if runs is None:
        # That it cannot be mounted is true whatever a run would change.
        status = FAILED if why else differs
        return [Check(MOUNTED, each.source, mounted.NOTHING, status, each.point, why)]
    refused = f"a run would be refused, because of {keeps}" if keeps else ""
    if each.is_source(runs, table):
        found = [Check(MOUNTED, each.source, each.source, OK, each.point)]
    else:
        found = [Check(MOUNTED, each.source, runs.text, differs, each.point, refused)]
    wrong = differences(node, each, runs)
    if not wrong:
        return [*found, Check(OPTIONS, options, options, OK, each.point)]
    what = ", ".join(difference.text for difference in wrong)
    reason = refused or one_way_hint(wrong)
    return [*found, Check(OPTIONS, options, what, differs, each.point, reason)]


def differences(node: Node, each: WantedMount, runs: Mount) -> list[Difference]:
    """Options that run, or that the unit on disk has, otherwise than wanted."""
    words = each.unit.options
    found = mount_options.differences(words, runs)
    unit = node.read(units.path_of(each.unit.mount)) or ""
    if foreign.value_of(unit, "Type") == each.unit.kind:
        before = foreign.value_of(unit, "Options").split(",")
        found += mount_options.changed(before, words, runs)
    return found


def gone(
    node: Node, absent: Sequence[str], table: Sequence[Mount], in_use: Mapping[str, str]
) -> list[Check]:
    """Mount points that are to have no mount of ours."""
    found = []
    for point in absent:
        left = foreign.our_files(node, point, [AUTOMOUNT, MOUNT])
        runs = None if node.container else mounted.on(table, point)
        if left:
            keeps = in_use.get(point, "")
            reason = f"a run would be refused, because of {keeps}" if keeps else ""
            status = PENDING if node.check_mode else FAILED
            path = f"/{left[0].path.relative_to(node.root)}"
            found.append(Check(ABSENT, "absent", path, status, point, reason))
        elif runs is not None and not _of_another_part(node, point):
            reason = "it was not mounted by this collection, which leaves it alone"
            found.append(Check(ABSENT, "absent", runs.text, FAILED, point, reason))
        else:
            found.append(Check(ABSENT, "absent", "absent", OK, point))
    return found


def _of_another_part(node: Node, point: str) -> bool:
    """A device below a directory that this host served: whoever mounted it speaks for it."""
    text = node.read(units.path_of(units.unit_name(point, MOUNT)))
    return text is not None and HEADER in text.split("\n", 1)[0]


def leftovers(node: Node, known: set[str]) -> list[Check]:
    """Mounts of ours that nothing asks for: they stay until somebody says so."""
    return [
        Check(
            LEFT,
            "a file system of this host",
            path,
            FAILED,
            point,
            "its file system left cluster_filesystems, or this host its list of hosts. Nothing is "
            "unmounted unasked: put it back, or take it away with "
            f'-e \'{{"shared_storage_absent": ["{point}"]}}\', and --limit to these '
            "hosts where others go on mounting it, which refuse",
        )
        for point, path in foreign.our_points(node).items()
        if point not in known
    ]

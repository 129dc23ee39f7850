# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Several files as one: all of them are written, or none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..files import FilePlan


def write_all(plans: Iterable[FilePlan]) -> None:
    """What was written goes back when one of them cannot be, and the error goes on."""
    done: list[FilePlan] = []
    try:
        for plan in plans:
            if plan.changed:
                done.append(plan)
                plan.apply()
    except OSError:
        for plan in done:
            restore(plan)
        raise


def restore(plan: FilePlan) -> None:
    """The file as it was when it was planned."""
    uid, gid = plan.owner_before or (plan.uid, plan.gid)
    mode = plan.mode_before if plan.mode_before is not None else plan.mode
    now = "" if plan.before is None else plan.before
    back = replace(
        plan, before=f"{now}\n", after=plan.before, mode=mode, uid=uid, gid=gid, mode_before=None
    )
    back.apply()

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a node has a boot unit: where a reboot forgets something, and systemd runs the node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.readback import NAME

from ..engine import WHOLE
from ..request import Request
from ..setting import NOT_SUPPORTED, RUNTIME
from . import layout
from .install import Circumstances, Installation, Wish
from .unit import BootOptions
from .wishes import Wishes


@dataclass(frozen=True)
class Rails:
    """The rails as the run of the module leaves them."""

    interfaces: tuple[str, ...]
    with_rdma: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Rail, setting, and its state, as the engine tells them."""

    @property
    def forgetful(self) -> bool:
        """Whether any of them can be set to something that a reboot forgets."""
        return any(
            state["persistence"] == RUNTIME and state["status"] != NOT_SUPPORTED
            for settings in self.settings.values()
            for state in settings.values()
        )

    @property
    def unseen(self) -> tuple[str, ...]:
        """Rails whose NIC was not looked at: gone, refused, or not named yet."""
        return tuple(name for name in self.interfaces if name not in self.settings)


def installation_of(
    rails: Rails,
    request: Request,
    options: BootOptions,
    *,
    asked: bool,
    named: bool,
    root: Path = Path("/"),
    uid: int = 0,
    gid: int = 0,
) -> Installation:
    """What is to be on this node; where nothing is to be, why, and what is there is removed.

    Where that cannot be told, for a NIC was not looked at, what is there stays as it is. `named`:
    whether all rails have their names; those that get them at the next boot need the unit then.
    """
    why, keep = "", False
    if not asked:
        why = "roce_rails_boot: false; what a reboot forgets is set by the next run of the role"
    elif not (root / layout.SYSTEMD).is_dir():
        why = "not applicable here: systemd does not run this system"
    elif rails.unseen and named and not rails.forgetful:
        why, keep = f"left as it was: {', '.join(rails.unseen)} could not be looked at", True
    elif named and not rails.forgetful:
        why = "not applicable here: no rail has a setting that a reboot forgets"
    wishes = Wishes(rails.interfaces, rails.with_rdma, request)
    wish = None if why else Wish(wishes, options)
    return Installation(wish, why, root, uid=uid, gid=gid, keep=keep)


def circumstances(rails: Rails, checks: Iterable[Check], *, check_mode: bool) -> Circumstances:
    """As the checks of the rails tell them: names and settings, for cables are not its business."""
    names = {f"rail_{name}" for settings in rails.settings.values() for name in settings}
    status = {(check.name, check.status) for check in checks if check.name in {*names, WHOLE, NAME}}
    return Circumstances(
        check_mode=check_mode,
        hold=not any(verdict == FAILED for _name, verdict in status),
        named=not {(NAME, REBOOT), (WHOLE, REBOOT)} & status,
    )

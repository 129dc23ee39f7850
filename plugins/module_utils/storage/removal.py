# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Taking a mount away, units and all: only what is asked for by name, and never under a process."""

from __future__ import annotations

from collections.abc import Sequence

from ..commands import CommandError, NoAnswerError, Runner
from ..files import FilePlan
from ..node import systemd
from ..node.part import Node, Step, StepError
from . import foreign, units


def files(node: Node, point: str, kinds: Sequence[str]) -> list[FilePlan]:
    """Removal of the unit files of ours that are there."""
    names = [units.path_of(units.unit_name(point, kind)) for kind in kinds]
    return [node.file(name, None) for name in names if foreign.is_ours(node.read(name))]


def step(
    node: Node, point: str, gone: Sequence[FilePlan], runs: str, wait: Runner, *, unmount: bool
) -> Step:
    """The files go after systemd has let go of the units: it disables none that it cannot read."""

    def act() -> None:
        names = [planned.path.name for planned in gone]
        if unmount and not node.container:
            # The mount before its automount point, with whose end systemd would detach it, busy
            # or not.
            stop(point, units.MOUNT, wait)
            stop(point, units.AUTOMOUNT, wait)
        elif not node.container:
            for name in names:
                stop(point, name.rpartition(".")[2], wait)
        node.run(["systemctl", "disable", *names])
        for planned in gone:
            planned.apply()
        systemd.reload(node)

    shown = [planned.diff() for planned in gone]
    if runs and unmount and not node.container:
        header = f"{point} (running)"
        shown.append(
            {
                "before_header": header,
                "after_header": header,
                "before": f"{runs}\n",
                "after": "not mounted\n",
            }
        )
    return Step(f"units of {point}", "", "", act, shown=shown)


def stop(point: str, kind: str, wait: Runner) -> None:
    """Raises StepError. Never by force: what has open files stays."""
    unit = units.unit_name(point, kind)
    try:
        wait(["systemctl", "stop", unit])
    except NoAnswerError as error:
        raise StepError(
            f"{error}. systemd goes on with it (systemctl list-jobs), for TimeoutSec= of the unit: "
            "where the server answers until then, it is unmounted after all, and a further run "
            "goes on from there. If it is dead: bring it back, or reboot the node"
        ) from error
    except CommandError as error:
        raise StepError(f"{error}. It is as it was; journalctl -u '{unit}' says why") from error

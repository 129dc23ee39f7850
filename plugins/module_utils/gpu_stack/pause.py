# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is stopped for a change, so that who starts services knows to start them again."""

from __future__ import annotations

from dataclasses import field

from ..dataclass import dataclass


@dataclass
class Pause:
    """Filled while planning, by the parts that stop services, before the one that starts them.

    `reloads`: the kernel module is exchanged, so that the driver of the set will run.
    """

    units: list[str] = field(default_factory=list)
    reloads: bool = False

    def add(self, unit: str) -> None:
        if unit not in self.units:
            self.units.append(unit)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What has to happen to the nodes of a cluster, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    remove: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        return [
            f"{verb} {name}"
            for verb, names in (
                ("remove", self.remove),
                ("create", self.create),
                ("start", self.start),
            )
            for name in names
        ]

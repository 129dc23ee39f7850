# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC: objects of CONFIG_DB, changed by patches (RFC 6902) that the switch itself checks.

docs/fabric.md says what is set, what it costs, what is left alone, and the sources.
"""

from __future__ import annotations

from typing import Any

from ..intent import SwitchIntent
from ..report import SwitchReport
from ..shell import Shell
from ..system import Difference
from .difference import difference
from .reading import Present
from .report import report
from .switch import SonicSwitch
from .wanted import Wanted, wanted

__all__ = ["SYSTEM", "Present", "Sonic", "SonicSwitch", "Wanted", "connect"]


class Sonic:
    """One system, without a connection."""

    name = "sonic"

    def wanted(self, intent: SwitchIntent) -> Wanted:
        return wanted(intent)

    def difference(self, intent: SwitchIntent, wanted: Any, present: Any) -> Difference:
        return difference(intent, wanted, present)

    def report(self, intent: SwitchIntent, present: Any) -> SwitchReport:
        return report(intent, present)


SYSTEM = Sonic()


def connect(shell: Shell) -> SonicSwitch:
    return SonicSwitch(shell)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE, the configuration of Cumulus Linux 5: its objects, and switches over its REST interface.

`objects.py` renders the contract, `difference.py` compares and says what a difference costs,
`report.py` says what a switch does. Only `reading.py`, `revisions.py` and `switch.py` talk
to one. docs/fabric.md has the sources of every key.
"""

from __future__ import annotations

from typing import Any

from ..intent import SwitchIntent
from ..report import SwitchReport
from ..system import Difference, Login, Switch
from .difference import difference
from .objects import wanted
from .report import report

__all__ = ["SYSTEM", "connect"]


class Nvue:
    """See `fabric.system.System`."""

    name = "nvue"

    def wanted(self, intent: SwitchIntent) -> Any:
        return wanted(intent)

    def difference(self, intent: SwitchIntent, wanted: Any, present: Any) -> Difference:
        return difference(intent, wanted, present)

    def report(self, intent: SwitchIntent, present: Any) -> SwitchReport:
        return report(intent, present)


SYSTEM = Nvue()


def connect(login: Login) -> Switch:
    from .switch import NvueSwitch  # httpx is needed by those alone who talk to a switch

    return NvueSwitch(login)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arista EOS without a connection: what it should do, what differs, what it does."""

from __future__ import annotations

from ....module_utils.fabric.intent import SwitchIntent
from ..report import SwitchReport
from ..system import Difference
from .difference import difference
from .present import Present
from .render import Wanted, wanted
from .report import report


class Eos:
    name = "eos"

    def wanted(self, intent: SwitchIntent) -> Wanted:
        return wanted(intent)

    def difference(self, intent: SwitchIntent, wanted: Wanted, present: Present) -> Difference:
        return difference(intent, wanted, present)

    def report(self, intent: SwitchIntent, present: Present) -> SwitchReport:
        return report(intent, present)

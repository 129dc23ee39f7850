# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches with Arista EOS.

`render.py` has pyavd write the wanted configuration. `lines.py` and `settings.py` read any
configuration. `compare.py` and `difference.py` find what differs, what has to be
typed and what it costs. `report.py` says what a switch does. `eapi.py` and `switch.py` speak to
one.
"""

from __future__ import annotations

from ..intent import SwitchIntent
from ..report import SwitchReport
from ..system import Difference, Login, Switch, System
from .difference import difference
from .present import Present
from .render import Wanted, wanted
from .report import report
from .switch import EosSwitch

# Arista EOS without a connection: what it should do, what differs, what it does.


class Eos:
    name = "eos"

    def wanted(self, intent: SwitchIntent) -> Wanted:
        return wanted(intent)

    def difference(self, intent: SwitchIntent, wanted: Wanted, present: Present) -> Difference:
        return difference(intent, wanted, present)

    def report(self, intent: SwitchIntent, present: Present) -> SwitchReport:
        return report(intent, present)


SYSTEM: System = Eos()


def connect(login: Login) -> Switch:
    return EosSwitch(login)

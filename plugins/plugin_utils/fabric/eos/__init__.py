# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches with Arista EOS.

`render.py` has pyavd write the wanted configuration. `lines.py` and `settings.py` read any
configuration. `compare.py`, `commands.py` and `difference.py` find what differs, what has to be
typed and what it costs. `report.py` says what a switch does. `eapi.py` and `switch.py` speak to
one.
"""

from __future__ import annotations

from ..system import Login, Switch, System
from .eos import Eos
from .switch import EosSwitch

SYSTEM: System = Eos()


def connect(login: Login) -> Switch:
    return EosSwitch(login)

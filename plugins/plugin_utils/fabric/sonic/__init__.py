# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC: objects of CONFIG_DB, changed by patches (RFC 6902) that the switch itself checks.

docs/fabric.md describes what is set, what it costs, what is left alone, and the sources.
"""

from __future__ import annotations

from ..system import System
from .difference import difference
from .reading import report
from .switch import SonicSwitch
from .tables import wanted

SYSTEM = System("sonic", wanted, difference, report, SonicSwitch)

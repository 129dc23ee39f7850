# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE, the configuration of Cumulus Linux 5: its objects, and switches over its REST interface.

docs/fabric.md lists the sources of every key.
"""

from __future__ import annotations

from ..system import System
from .objects import difference, wanted
from .reading import report
from .switch import NvueSwitch

SYSTEM = System("nvue", wanted, difference, report, NvueSwitch)

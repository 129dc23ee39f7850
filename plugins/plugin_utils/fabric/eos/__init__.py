# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arista EOS: configuration rendered by pyavd, compared line by line, typed over eAPI."""

from __future__ import annotations

from ..system import System
from .difference import difference
from .reading import report
from .render import wanted
from .switch import EosSwitch

SYSTEM = System("eos", wanted, difference, report, EosSwitch)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The supported switch systems. Every package in this folder is one.

Its `__init__.py` describes the system (`SYSTEM`), its `switch.py` exports the `DRIVER` that
renders, compares, reads and applies. Nothing else in the collection names a system.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from .base import System

SYSTEMS: dict[str, System] = {
    module.name: import_module(f"{__package__}.{module.name}").SYSTEM
    for module in sorted(
        pkgutil.iter_modules([str(Path(__file__).parent)]), key=lambda module: module.name
    )
    if module.ispkg
}
"""By the name that `leaves.system` and `spines.system` use, in alphabetical order."""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Loaded by every Python that has this folder in PYTHONPATH: SONiC is then replaced by the system
made of files.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Optional

NAME = "ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.switch"

original = importlib.import_module


def import_module(name: str, package: Optional[str] = None) -> ModuleType:
    """The action imports the packages of systems by this function."""
    if name != NAME:
        return original(name, package)
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("sonic.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


importlib.import_module = import_module

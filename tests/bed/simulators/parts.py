# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules of the simulated switches, for unit tests that do not run them.

The programs import each other from one folder, as in the containers.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.bed.simulators.process import PROGRAMS

sys.path.append(str(PROGRAMS))

switch: Any = importlib.import_module("common.switch")
program: Any = importlib.import_module("common.server")
faults: Any = importlib.import_module("common.state")
nvue_revisions: Any = importlib.import_module("nvue.revisions")
nvue_schema: Any = importlib.import_module("nvue.schema")
nvue_tree: Any = importlib.import_module("nvue.tree")
nvue_vendor: Any = importlib.import_module("nvue.vendor")
nvue_effective: Any = importlib.import_module("nvue.effective")
sonic_updater: Any = importlib.import_module("sonic.updater")
eos_config: Any = importlib.import_module("eos.config")
eos_grammar: Any = importlib.import_module("eos.grammar")


def hardware(system: str, ports: list[dict[str, Any]], asic: str = "spectrum4") -> Any:
    return switch.Hardware(
        name="leaf01",
        system=system,
        asic=asic,
        release="",
        ports=tuple(switch.Port(**{"peer_mac": None, **port}) for port in ports),
    )


def surroundings(hardware: Any, directory: Path) -> Any:
    """Return the surroundings of a switch with its files in a directory."""
    return program.Surroundings(
        hardware,
        faults.Faults(directory / "faults.json", directory),
        directory,
        faults.Log(directory / "log"),
    )

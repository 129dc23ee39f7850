# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated SONiC switch in a folder. Its commands are called directly, without a container."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.bed.simulators.parts import hardware

faults: Any = importlib.import_module("common.state")
show: Any = importlib.import_module("sonic.commands")
config: Any = importlib.import_module("sonic.config")
database: Any = importlib.import_module("sonic.database")
daemons: Any = importlib.import_module("sonic.daemons")
switch: Any = importlib.import_module("sonic.switch")

PORTS = [
    {"name": "Ethernet0", "speed_gbps": 400, "peer": "node01", "peer_interface": "rail0"},
    {"name": "Ethernet8", "speed_gbps": 400, "peer": "node02", "peer_interface": "rail0"},
]
UNUSED = "Ethernet16"
"""A port of the switch that is not in the model."""


class Management:
    def __init__(self) -> None:
        self.cuts: list[float] = []
        self.up = True

    def cut(self, seconds: float) -> None:
        self.cuts.append(seconds)
        self.up = False

    def restore(self) -> None:
        self.up = True


class Switch:
    """One switch, with all its files in a folder."""

    def __init__(
        self,
        folder: Path,
        asic: str = "spectrum4",
        ports: Sequence[dict[str, Any]] = PORTS,
    ) -> None:
        self.folder = folder
        self.management = Management()
        self.sonic = switch.Sonic(
            database.Store(folder / "databases.json"),
            hardware("sonic", [*ports], asic),
            faults.Faults(folder / "faults.json", folder),
            faults.Log(folder / "log"),
            self.management,
            folder,
        )
        self.sonic.boot()
        self.printed: Callable[[], Any] = lambda: None

    def run(self, *words: str) -> int:
        return int(config.main(words, self.sonic))

    def patch(self, *operations: dict[str, Any], options: tuple[str, ...] = ()) -> int:
        path = self.folder / "patch.json"
        path.write_text(json.dumps(operations))
        return self.run("apply-patch", *options, str(path))

    def fault(self, **wanted: Any) -> None:
        (self.folder / "faults.json").write_text(json.dumps(wanted))

    def reboot(self) -> None:
        self.sonic.boot()

    @property
    def config(self) -> Any:
        return self.sonic.config()

    def events(self, word: str) -> list[str]:
        """Return the log entries of this kind, without timestamps."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line.split(" ", 1)[1] for line in lines if line.split(" ")[1] == word]


@pytest.fixture
def leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Switch:
    """A switch whose links come up immediately."""
    monkeypatch.setattr(daemons, "LINK_S", 0.0)
    return Switch(tmp_path)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command line that both simulations with HTTPS have."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import switch
from .faults import Faults
from .log import Log
from .server import Answer, Request, SwitchServer


@dataclass(frozen=True)
class Surroundings:
    """All that a simulation has to do with."""

    hardware: switch.Hardware
    faults: Faults
    state: Path
    log: Log


class Simulation(Protocol):
    def handle(self, request: Request) -> Answer: ...

    def connect(self, server: SwitchServer) -> None:
        """Told once which server it answers through."""


def main(description: str, denied: Answer, make: Any) -> int:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, default=Path("/etc/virtual-switch/switch.json"))
    parser.add_argument("--faults", type=Path, default=Path("/etc/virtual-switch/faults.json"))
    parser.add_argument("--state", type=Path, default=Path("/var/lib/virtual-switch"))
    parser.add_argument("--log", type=Path, default=Path("/var/log/virtual-switch.log"))
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--password-file", type=Path, required=True)
    words = parser.parse_args()

    words.state.mkdir(parents=True, exist_ok=True)
    simulation: Simulation = make(
        Surroundings(
            switch.read(words.config),
            Faults(words.faults, words.state),
            words.state,
            Log(words.log),
        )
    )
    server = SwitchServer(
        (words.address, words.port),
        words.certificate,
        words.key,
        words.password_file.read_text(encoding="utf-8").strip(),
        denied,
        simulation.handle,
    )
    simulation.connect(server)

    def stop(_signal: int, _frame: Any) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.stdout.write(f"port {server.server_address[1]}\n")  # 0 was asked for: which it became
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.05)
    return 0

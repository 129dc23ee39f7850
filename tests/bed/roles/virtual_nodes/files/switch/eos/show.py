# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Output of the show commands, as text or as JSON."""

from __future__ import annotations

import time
from typing import Any

from common.state import Faults
from common.switch import Hardware

from . import config as configs
from .config import Config
from .sessions import Sessions

NEWEST = "4.33.1F"
MODEL = "DCS-7060X6-64PE"


class Shows:
    def __init__(self, hardware: Hardware, faults: Faults, sessions: Sessions) -> None:
        self._hardware = hardware
        self._faults = faults
        self._sessions = sessions
        self._boot = time.time()

    @property
    def version(self) -> str:
        return self._hardware.release or NEWEST

    def text_of(self, config: Config, name: str) -> str:
        host = config.top["hostname"].text.split()[1] if "hostname" in config.top else "localhost"
        lines = configs.written(config)
        if name.startswith("running") and self._faults.take("read") == "wrong":
            lines = _wrong(lines)
        return "".join(
            f"{line}\n"
            for line in (
                f"! Command: show {name}",
                f"! device: {host} ({MODEL}, EOS-{self.version}, simulation)",
                *lines,
                "end",
            )
        )

    def version_facts(self) -> Any:
        return {
            "mfgName": "Arista (simulation)",
            "modelName": f"{MODEL} (simulation)",
            "serialNumber": f"SIMULATION-{self._hardware.name}",
            "systemMacAddress": "02:00:00:00:00:01",
            "version": f"{self.version} (simulation)",
            "bootupTimestamp": self._boot,
            "uptime": time.time() - self._boot,
        }

    def _link(self, name: str) -> str:
        head = self._sessions.running.top.get(f"interface {name}")
        if head is not None and "shutdown" in head.below:
            return "disabled"
        return "connected" if name in self._hardware.neighbours(self._faults) else "notconnect"

    def interfaces_status(self) -> Any:
        rows: dict[str, dict[str, Any]] = {}
        for port in self._hardware.ports:
            status = self._link(port.name)
            rows[port.name] = {
                "linkStatus": status,
                "bandwidth": port.speed_gbps * 10**9 if status == "connected" else 0,
            }
        return {"interfaceStatuses": rows}

    def neighbours(self) -> Any:
        heard = self._hardware.neighbours(self._faults)
        rows = [
            {
                "port": port,
                "neighborDevice": neighbour.system or _dotted(neighbour.port),
                "neighborPort": _dotted(neighbour.port) if neighbour.is_mac else neighbour.port,
                "ttl": 120,
            }
            for port, neighbour in heard.items()
        ]
        return {"lldpNeighbors": rows}

    def sessions(self) -> Any:
        new = _number(self.version) >= (4, 32)
        states = self._sessions.all()
        timed = self._sessions.timed
        facts: dict[str, Any] = {
            "sessions": {
                name: {
                    "state": "pending" if new and name == timed else state,
                    "commitUser": "",
                    "description": "",
                    "instances": {},
                    **({"commitBy": self._sessions.timer_ends} if name == timed else {}),
                }
                for name, state in states.items()
            },
        }
        if new and timed:
            facts["commitTimerSessionName"] = timed
            facts["commitTimerExpireTime"] = self._sessions.timer_ends
        return facts


def _wrong(lines: list[str]) -> list[str]:
    """Return wrong values for the fault `read`: another MTU, and no lossless priority."""
    return [
        "   mtu 1501" if line.strip().startswith("mtu ") else line
        for line in lines
        if not line.endswith(" no-drop")
    ]


def _dotted(mac: str) -> str:
    """Format a MAC address as EOS does: 0011.2233.4455."""
    digits = mac.replace(":", "")
    return (
        ".".join(digits[position : position + 4] for position in (0, 4, 8))
        if len(digits) == 12
        else mac
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:2])

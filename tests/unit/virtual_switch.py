# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Simulated switches as separate programs, accessed over HTTPS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import httpx

from tests.unit.https_server import Authority
from tests.unit.loopback import LOOPBACK, held_port
from tests.waiting import deadline

PROGRAMS = Path(__file__).resolve().parents[2] / "roles/virtual_nodes/files/switch"
USER, PASSWORD = "ops", "a word of the test"
PATIENCE_S = deadline(60)


class VirtualSwitch:
    """One switch: started, faulted, rebooted, spoken to."""

    def __init__(self, directory: Path, authority: Authority, description: dict[str, Any]) -> None:
        self.directory = directory
        directory.mkdir()
        self._authority = authority
        self._system = description["system"]
        for path, name in zip(authority.issue(), ("certificate.pem", "key.pem")):
            shutil.copy(path, directory / name)
        self._faults = directory / "faults.json"
        self._log = directory / "log"
        (directory / "switch.json").write_text(json.dumps(description))
        (directory / "password").write_text(PASSWORD + "\n")
        self._process: Optional[subprocess.Popen[str]] = None
        self._held = held_port()
        """So that it is there after a reboot as well."""
        self.port = self._held.getsockname()[1]
        self.start()

    def start(self) -> None:
        places = (self.directory, self.directory / "state", self._log)
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAMS / self._system / "serve.py"), *map(str, places),
             LOOPBACK, str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline().split() == ["port", str(self.port)]

    def kill(self) -> None:
        """As a power cut does it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def reboot(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0
        self._held.close()

    def fault(self, **faults: Any) -> None:
        self._faults.write_text(json.dumps(faults))

    def heal(self) -> None:
        self._faults.unlink(missing_ok=True)

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    def client(self, password: str = PASSWORD) -> httpx.Client:
        """Trusts only the authority of the test."""
        return httpx.Client(
            base_url=self.url,
            auth=(USER, password),
            verify=ssl.create_default_context(cafile=str(self._authority.ca_file)),
            timeout=PATIENCE_S,
        )

    @property
    def log(self) -> list[str]:
        """Events without their times."""
        return [line.split(" ", 1)[1] for line in self._log.read_text().splitlines()]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One simulated SONiC switch, as used by its commands."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from common import state as files
from common import switch as hardware
from common.state import Faults, Log

from . import database, factory
from .daemons import Daemons
from .database import OWN, Config, Store
from .platforms import platform_of

PENDING = "CHANGE"
"""Row of the simulation's database: a patch was applied, and neither saved nor undone."""


class Link:
    """The container's management interface: cut for this many seconds, or until `restore`."""

    def __init__(self) -> None:
        words = Path("/proc/1/environ").read_bytes().decode().split("\0")
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        self._name = pairs.get("VIRTUAL_NODE_MANAGEMENT", "mgmt0")

    def cut(self, seconds: float) -> None:
        run = "systemd-run --quiet --collect --timer-property=AccuracySec=100ms"
        subprocess.run([*run.split(), f"--on-active={seconds}s", *self._set("up")], check=True)
        subprocess.run(self._set("down"), check=True)

    def restore(self) -> None:
        subprocess.run(self._set("up"), check=True)

    def _set(self, state: str) -> list[str]:
        return ["/sbin/ip", "link", "set", self._name, state]


@dataclass
class Sonic:
    store: Store
    hardware: hardware.Hardware
    faults: Faults
    log: Log
    management: Link
    root: Path = Path("/")
    limit_s: float = math.inf
    """Limit set by `timeout`. No time passes in the simulation."""

    @property
    def release(self) -> str:
        return factory.release(self.hardware)

    @property
    def daemons(self) -> Daemons:
        return Daemons(self.store, self.hardware, self.log)

    @property
    def saved(self) -> Path:
        return self.root / "etc/sonic/config_db.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "etc/sonic/checkpoints"

    def config(self) -> Config:
        return database.load(self.store)

    def shown(self) -> Config:
        """Return CONFIG_DB as commands read it, with the fault `read` if it is pending."""
        config = self.config()
        if self.pending and self.faults.take_if("read", "wrong"):
            self.log("fault", read="wrong")
            for row in config.get("PORT_QOS_MAP", {}).values():
                if "pfc_enable" in row:
                    row["pfc_enable"] = "5"
                    break
        return config

    def write(self, old: Config, new: Config) -> None:
        """Write CONFIG_DB and let the daemons react."""
        database.save(self.store, old, new)
        self.daemons.react(old, new)

    def settle(self) -> None:
        """Update the state that depends on time, before it is read."""
        self.daemons.links(self.config())
        self.daemons.neighbours(self.hardware.neighbours(self.faults))

    @property
    def pending(self) -> bool:
        return bool(self.store.read(OWN, PENDING))

    @pending.setter
    def pending(self, value: bool) -> None:
        self.store.write(OWN, {PENDING: {"since": str(time.time())} if value else None})

    def boot(self) -> None:
        """Boot from the saved configuration, or from the factory's if none was saved."""
        self.store.clear()
        if not self.saved.exists():
            files.write(self.saved, as_text(factory.config(self.hardware)))
        version = factory.version(self.hardware)
        lines = "".join(f"{name}: '{value}'\n" for name, value in version.items())
        files.write(self.root / "etc/sonic/sonic_version.yml", f"---\n{lines}")
        platform = platform_of(self.hardware.asic)
        folder = self.root / "usr/share/sonic/device" / platform.folder
        files.write(folder / "pg_profile_lookup.ini", platform.ini)
        try:
            saved: Config = json.loads(self.saved.read_text(encoding="utf-8"))
        except ValueError:
            saved = {}  # as on a real switch: half a file is not a configuration
        self.write({}, saved)
        self.settle()
        self.log("boot", system="sonic", rows=sum(len(rows) for rows in saved.values()))


def as_text(value: object) -> str:
    return json.dumps(value, indent=4) + "\n"


def here(refusal: str = "Root privileges are required for this operation") -> Sonic:
    """The switch that this program runs on, for root."""
    if os.geteuid() != 0:
        sys.stderr.write(f"{refusal}\n")
        raise SystemExit(1)
    given, state = Path("/etc/virtual-switch"), Path("/var/lib/virtual-switch")
    faults = Faults(given / "faults.json", state)
    time.sleep(float(faults.take("delay_s") or 0))
    return Sonic(
        Store(),
        hardware.read(given / "switch.json"),
        faults,
        Log(Path("/var/log/virtual-switch.log")),
        Link(),
        limit_s=_limit_s(),
    )


def _limit_s() -> float:
    """Run `timeout N config ...`."""
    words = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8").split("\0")
    limited = Path(words[0]).name == "timeout" and words[1].isdigit()
    return float(words[1]) if limited else math.inf

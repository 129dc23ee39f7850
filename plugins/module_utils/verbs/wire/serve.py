# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of a serving node: starts the servers it is told to, counts what arrives, and ends.

Runs under systemd, outside the connection that started it. It says when all servers listen, notes
for each how it ended and which packets came with it, and writes that down when all have ended or it
is told to stop. systemd ends it, servers and all, at its time limit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from .sniffer import watch

STATE, RESULT = "state.json", "result.json"
LISTEN_S = 15.0
"""Seconds for all servers to listen."""
LOG_BYTES = 4000
LISTENING = "0A"
FORGET = signal.SIGUSR1
"""Tells it that its own node's clients are done."""


class Server:
    """One server of one rail."""

    def __init__(self, told: Mapping[str, Any], log: Path) -> None:
        self.exchange = str(told["exchange"])
        self.port = int(told["port"])
        self.log = log
        self.noted = False
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                told["argv"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", **told["env"]},
                start_new_session=True,
            )

    def outcome(self, wire: Any) -> dict[str, Any]:
        """How it ended; one that ended well has nothing to say."""
        self.noted = True
        code = self.process.poll()
        return {"rc": code, "log": self.said() if code else "", "wire": wire}

    def said(self) -> str:
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - LOG_BYTES))
            return stream.read().decode(errors="replace")

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Rail:
    """One rail: its servers in the order in which they are used, and its packets."""

    def __init__(self, told: Mapping[str, Any], directory: Path) -> None:
        self.name = str(told["rail"])
        self.peer = str(told["peer"])
        self.outcomes: dict[str, Any] = {}
        self.watch = watch(told["watch"], directory)
        self.servers = [
            Server(one, directory / f"{self.name}-{one['exchange']}.log") for one in told["servers"]
        ]

    def look(self) -> None:
        """Note the servers that have ended, with what was seen until then."""
        for server in self.servers:
            if not server.noted and server.process.poll() is not None:
                self.outcomes[server.exchange] = server.outcome(self.watch.take())

    def forget(self) -> None:
        """What was seen so far: answers to this node's own clients, from a peer both ways."""
        self.watch.take()

    @property
    def done(self) -> bool:
        return all(server.noted for server in self.servers)

    def end(self) -> dict[str, Any]:
        for server in self.servers:
            server.end()
            if not server.noted:
                self.outcomes[server.exchange] = {
                    **server.outcome(self.watch.take()),
                    "rc": None,
                }
        self.watch.close()
        return {"peer": self.peer, "exchanges": self.outcomes}


def listening(text: str) -> set[int]:
    """TCP ports on which somebody listens, from /proc/net/tcp."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3:4] == [LISTENING]}


def ports_open() -> set[int]:
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        if path.exists():
            found |= listening(path.read_text(encoding="ascii"))
    return found


def taken(rails: list[Any]) -> Optional[str]:
    """Ports on which somebody else listens: seen before, it would look as if ours did."""
    ports = {int(one["port"]) for rail in rails for one in rail["servers"]} & ports_open()
    return f"TCP port {min(ports)} is taken by another program" if ports else None


def wait_for(servers: list[Server]) -> Optional[str]:
    """Until all listen. The reason if one does not."""
    until = time.monotonic() + LISTEN_S
    while True:
        for server in servers:
            if server.process.poll() is not None:
                told = server.said().strip()[-400:] or "it printed nothing"
                argv = server.process.args
                shown = " ".join(argv) if isinstance(argv, list) else str(argv)
                return f"{shown}: ended with status {server.process.returncode}: {told}"
        silent = [one for one in servers if one.port not in ports_open()]
        if not silent:
            return None
        if time.monotonic() > until:
            return f"the server of port {silent[0].port} does not listen after {LISTEN_S:g} s"
        time.sleep(0.05)


def write(path: Path, value: Any) -> None:
    """Whoever reads it sees all of it or none."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def main(directory: Path) -> int:
    told = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    stopped: list[int] = []
    forget: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    signal.signal(FORGET, lambda number, frame: forget.append(number))
    rails: list[Rail] = []
    problem: Optional[str] = None
    try:
        problem = taken(told["rails"])
        for one in told["rails"] if problem is None else ():
            rails.append(Rail(one, directory))
        problem = problem or wait_for([server for rail in rails for server in rail.servers])
        write(directory / STATE, {"run_id": told["run_id"], "problem": problem or ""})
        while problem is None and not stopped and not all(rail.done for rail in rails):
            select.select([reader], [], [], 1.0)
            while select.select([reader], [], [], 0)[0]:
                os.read(reader, 512)
            asked = len(forget)
            for rail in rails:
                rail.look()
                if asked:
                    rail.forget()
            del forget[:asked]
    except OSError as error:
        problem = f"{error.strerror}: {error.filename or ''}".rstrip(": ")
        write(directory / STATE, {"run_id": told["run_id"], "problem": problem})
    finally:
        result = {rail.name: rail.end() for rail in rails}
        write(directory / RESULT, {"run_id": told["run_id"], "rails": result})
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""HTTPS server of a simulated switch, with basic authentication."""

from __future__ import annotations

import base64
import hmac
import json
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Optional
from urllib.parse import parse_qs, unquote, urlsplit

from . import switch
from .state import Faults, Log

USER = "ops"
IDLE_SECONDS = 60.0
"""Connections without a request for this long are closed."""


class NoAnswer(Exception):
    """Close the connection without a response."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    """Body of the response. Anything but text and None is sent as JSON."""
    headers: dict[str, str] = field(default_factory=dict)


def admits(password: str, header: Optional[str]) -> bool:
    """Return whether the header holds the user and the password."""
    kind, _space, word = (header or "").partition(" ")
    known = base64.b64encode(f"{USER}:{password}".encode())
    return kind.lower() == "basic" and hmac.compare_digest(word.strip().encode(), known)


Handle = Callable[[Request], Answer]


class SwitchServer(ThreadingHTTPServer):
    """Responds with `handle`, or not at all while the connection is cut."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        certificate: Path,
        key: Path,
        password: str,
        denied: Answer,
        handle: Handle,
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(certificate, key)
        self.password = password
        self.denied = denied
        self.handle_switch = handle
        self._cut_until = 0.0
        self._cut_lock = threading.Lock()
        super().__init__(address, _Handler)

    def cut(self, seconds: float) -> None:
        """Send no responses for this long. The switch itself continues to run."""
        with self._cut_lock:
            self._cut_until = time.monotonic() + seconds

    @property
    def is_cut(self) -> bool:
        return time.monotonic() < self._cut_until

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Start TLS in the connection's thread, so that a slow client does not delay others."""
        if self.is_cut:
            return
        try:
            secure = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        try:
            super().finish_request(secure, client_address)
        except (OSError, ssl.SSLError):
            return
        finally:
            secure.close()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.settimeout(IDLE_SECONDS)
        return connection, address


class _Handler(BaseHTTPRequestHandler):
    server: SwitchServer
    protocol_version = "HTTP/1.1"
    server_version = "simulation"
    sys_version = ""
    wbufsize = 65536  # head and body in one write: two writes would wait for an acknowledgement
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        parts = urlsplit(self.path)
        query = {
            name: values[-1]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        try:
            if self.server.is_cut:
                raise NoAnswer
            if not admits(self.server.password, self.headers.get("Authorization")):
                answer = self.server.denied
            else:
                answer = self.server.handle_switch(
                    Request(self.command, _path(parts.path), query, body)
                )
            if self.server.is_cut:
                raise NoAnswer
        except NoAnswer:
            self.close_connection = True
            return
        self._send(answer)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve

    def _send(self, answer: Answer) -> None:
        if answer.body is None:
            content, kind = b"", ""
        elif isinstance(answer.body, str):
            content, kind = answer.body.encode(), "text/html"
        else:
            content, kind = (json.dumps(answer.body) + "\n").encode(), "application/json"
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests: changes are logged elsewhere."""


def _path(raw: str) -> str:
    """Return the path without a trailing slash. `%2F` remains part of its segment."""
    return "/" + "/".join(unquote(word).replace("/", "\0") for word in raw.split("/") if word)


def words(path: str) -> list[str]:
    return [word.replace("\0", "/") for word in path.split("/") if word]


@dataclass(frozen=True)
class Surroundings:
    """Everything outside of the configuration that a simulation uses."""

    hardware: switch.Hardware
    faults: Faults
    state: Path
    log: Log


def main(denied: Answer, make: Any) -> int:
    """Parse `serve.py FOLDER STATE LOG ADDRESS PORT`. The folder is the switch's
    /etc/virtual-switch."""
    folder, state, log = (Path(word) for word in sys.argv[1:4])
    state.mkdir(parents=True, exist_ok=True)
    faults = Faults(folder / "faults.json", state)
    simulation = make(Surroundings(switch.read(folder / "switch.json"), faults, state, Log(log)))
    server = SwitchServer(
        (sys.argv[4], int(sys.argv[5])),
        folder / "certificate.pem",
        folder / "key.pem",
        (folder / "password").read_text(encoding="utf-8").strip(),
        denied,
        simulation.handle,
    )
    simulation.cut_by(lambda: server.cut(faults.cut_s))

    def stop(_signal: int, _frame: Any) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.stdout.write(f"port {server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.05)
    return 0

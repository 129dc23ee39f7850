# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An HTTPS server on loopback with a certificate signed by a test authority."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.loopback import LOOPBACK


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


SIGNS = x509.KeyUsage(*[False] * 5, True, *[False] * 3)
"""Only key_cert_sign. Python 3.13 rejects authorities without it, and certificates without key
identifiers."""


class Authority:
    """Signs certificates of switches; `ca_file` is the value of `switch_qos_ca_file`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca_file = directory / "ca.pem"
        self._certificate = (
            self._builder("Switches of a test", "Switches of a test", self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=3))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )

    def issue(self, address: str = LOOPBACK, days: int = 1) -> tuple[Path, Path]:
        """Issue certificate and key of the switch at an address; days < 0: expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder("switch", "Switches of a test", key, days)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        pem, private = self._directory / "switch.pem", self._directory / "switch.key"
        pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pem, private


@contextlib.contextmanager
def misbehaving(pem: Path, key: Path, send: Callable[[ssl.SSLSocket], None]) -> Iterator[int]:
    """Start a server that reads a request and sends an arbitrary response; yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    ended = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                near, _far = server.accept()
                if ended.is_set():
                    near.close()
                    return
                with contextlib.suppress(OSError), context.wrap_socket(near, True) as line:
                    line.recv(1 << 16)
                    send(line)

        thread = threading.Thread(target=serve)
        thread.start()
        port: int = server.getsockname()[1]
        try:
            yield port
        finally:
            ended.set()
            socket.create_connection((LOOPBACK, port)).close()
            thread.join()


@dataclass
class Served:
    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay: threading.Event | None = None
    cut: bool = False
    """Close the connection instead of answering."""
    seen: list[tuple[str, str, str]] | None = None
    """Method, path, Authorization."""


@contextlib.contextmanager
def serving(pem: Path, key: Path, served: Served) -> Iterator[int]:
    """Start a server that responds to every request with `served`; yield its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            if served.seen is not None:
                authorization = self.headers.get("Authorization", "")
                served.seen.append((self.command, self.path, authorization))
            if served.delay is not None:
                served.delay.wait()
            if served.cut:
                self.connection.close()
                return
            self.send_response(served.status)
            self.send_header("Content-Type", served.kind)
            self.send_header("Content-Length", str(len(served.body)))
            for name, value in served.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(served.body)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # tests use clients that refuse the certificate

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server = Server((LOOPBACK, 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TLS of exporters: the host makes its key and a request, the controller signs, and anyone with the
password may read. What a service answers without the password proves both."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Optional

from ..core.checks import FAILED, OK, Check, differs
from ..core.files import FilePlan, plan_file, write_atomically
from ..core.part import Node, Plan, Step, Verdict
from ..core.text import one_line
from . import DIRECTORY

KEY, CERTIFICATE = f"{DIRECTORY}/tls.key", f"{DIRECTORY}/tls.pem"
AUTHORITY, WEB = f"{DIRECTORY}/ca.pem", f"{DIRECTORY}/web.yml"
PRIVATE, PUBLIC = 0o640, 0o644
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Web:
    """Who may read: the hash of the password (bcrypt), and the authority of the certificates."""

    user: str
    password_hash: str
    authority: str
    certificate: str = ""
    """A new one; empty: the host's own."""

    def text(self) -> str:
        """The web configuration of exporters, in JSON, which is YAML."""
        names = {"cert_file": f"/{CERTIFICATE}", "key_file": f"/{KEY}"}
        content = {"tls_server_config": names, "basic_auth_users": {self.user: self.password_hash}}
        return json.dumps(content, indent=1) + "\n"


@dataclass(frozen=True)
class Key:
    """The private key, which the group of the services may read."""

    gid: int

    def plan(self, node: Node) -> Plan:
        found = node.read(KEY)
        if found:
            kept = plan_file(
                node.path(KEY), found, mode=PRIVATE, uid=node.uid, gid=self.gid, secret=True
            )
            return Plan([kept])
        return Plan([], [Step(f"/{KEY}", "absent", "a new key", partial(self._make, node))])

    def _make(self, node: Node) -> None:
        made = node.run(["openssl", "genpkey", "-algorithm", "EC", *_CURVE]).stdout
        write_atomically(node.path(KEY), made, PRIVATE, node.uid, self.gid)

    def verify(self, node: Node) -> Verdict:
        return Verdict()


_CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")


def request(node: Node, name: str) -> str:
    """The request for a certificate (PEM); empty without a key."""
    if not node.path(KEY).exists():
        return ""
    words = ["openssl", "req", "-new", "-batch", "-sha256", "-subj", f"/CN={name[:64]}"]
    return node.look([*words, "-key", str(node.path(KEY))]).stdout


def files(web: Web, node: Node, gid: int) -> list[FilePlan]:
    """The files of the services, except the key."""
    own = web.certificate or node.read(CERTIFICATE) or ""
    return [
        node.record(AUTHORITY, web.authority),
        node.record(CERTIFICATE, own),
        plan_file(node.path(WEB), web.text(), mode=PRIVATE, uid=node.uid, gid=gid, secret=True),
    ]


Ask = Callable[[str, int, Optional[str]], int]


def status(address: str, port: int, authority: Optional[str]) -> int:
    """The HTTP status without the password; with `authority`, by TLS. Raises OSError."""
    connection: http.client.HTTPConnection
    if authority is None:
        connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT_S)
    else:
        context = ssl.create_default_context(cadata=authority)
        connection = http.client.HTTPSConnection(address, port, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP: {error!r}") from error
    finally:
        connection.close()


def answers(name: str, address: str, port: int, web: Optional[Web], node: Node, ask: Ask) -> Check:
    """Whether the service answers, and only to those who know the password."""
    wanted = "200" if web is None else "401 (TLS, a password)"
    where = f"{address}:{port}"
    try:
        found = ask(address, port, None if web is None else web.authority)
    except (OSError, ValueError) as error:
        return Check(name, wanted, None, differs(node.check_mode), where, one_line(str(error)))
    good = found == (200 if web is None else 401)
    reason = "" if good else "another service has this port, or its configuration is not ours"
    shown = wanted if good else str(found)
    return Check(name, wanted, shown, OK if good else FAILED, where, reason)

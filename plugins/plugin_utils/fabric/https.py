# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""JSON interfaces of switches over HTTPS, with verified certificates.

No error, text or log contains a password or token. An error names the switch, method and path, the
cause and the remedy. It is never chained to an exception from httpx, which contains the request
with its headers.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, TypeVar

from ...module_utils.core.text import bytes_text, one_line, printable, shortened
from ..deadline import TimeIsUpError, time_limit
from .system import SwitchError, SwitchLogin

try:
    import httpx
except ImportError as error:
    HTTPX_MISSING: Optional[ImportError] = error
else:
    HTTPX_MISSING = None
    # Ansible logs in a thread, with log_path set. If that writes while Ansible forks, the file's
    # buffer stays locked in the new process: its first line in the log would block it for ever.
    logging.getLogger("httpx").setLevel(logging.WARNING)

Connection = TypeVar("Connection", bound="Https")

MAX_MESSAGE = 400
MAX_BYTES = 32 << 20
"""Maximum size of an answer, ten times the state of all ports of a large switch."""
MAX_VALUES = 1 << 20
"""Maximum number of values in an answer: an empty list takes 3 bytes of JSON, but 64 of memory."""
MAX_ERROR_BYTES = 64 << 10
TIMEOUTS_PER_ANSWER = 3
"""Time limit for a whole answer with its headers. httpx's timeout applies to each part."""


class Lost(SwitchError):
    """No answer: the switch may or may not have acted."""


class Refused(SwitchError):
    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class HttpsService:
    name: str
    port: int
    how_to_enable: str


def where(login: SwitchLogin, service: HttpsService) -> str:
    return f"{login.address} port {login.port or service.port}"


class Https:
    """A connection to one switch, open while used as a context manager.

    Proxies and .netrc of the environment are ignored. Redirects are not followed, because the
    credentials would be sent along.
    """

    def __init__(
        self,
        login: SwitchLogin,
        service: HttpsService,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        if HTTPX_MISSING is not None:
            raise SwitchError(
                f"{login.address}: httpx, which the {service.name} needs, is not installed on the "
                "controller. Install requirements/controller.txt."
            )
        self._login = login
        self._service = service
        self.where = where(login, service)
        user = (login.user.encode(), login.password.encode())
        token = login.token.strip()
        self._client = httpx.Client(
            base_url=httpx.URL(
                scheme="https", host=login.address, port=login.port or service.port, path="/"
            ),
            auth=None if token or not login.user else httpx.BasicAuth(*user),
            headers={
                "Accept-Encoding": "identity",
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
            verify=_tls(login) if transport is None else True,
            timeout=login.timeout_s,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    def __enter__(self: Connection) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()

    def get(self, path: str, query: Optional[dict[str, str]] = None) -> Any:
        return self.request("GET", path, query)

    def request(
        self,
        method: str,
        path: str,
        query: Optional[dict[str, str]] = None,
        body: Any = None,
        timeout_s: Optional[float] = None,
    ) -> Any:
        """Return the parsed JSON answer, made printable; None if it is empty.

        `path` is sent unchanged: quote segments that may contain a slash. Raises Lost, Refused or
        SwitchError.
        """
        asked = f"{self.where}: {method} {path}"
        timeout = self._login.timeout_s if timeout_s is None else timeout_s
        answer: Optional[httpx.Response] = None
        content, reason = bytearray(), ""
        limit = TIMEOUTS_PER_ANSWER * timeout
        asking = self._client.stream(method, path, params=query, json=body, timeout=timeout)
        try:
            with time_limit(limit), asking as answer:
                reason = _packed(answer)
                for part in () if reason else answer.iter_bytes():
                    content += part
                    if len(content) > MAX_BYTES:
                        reason = f"the answer is longer than {bytes_text(MAX_BYTES)}."
                        break
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = self._reason(error, timeout)
        except TimeIsUpError:
            reason = (
                f"the answer was incomplete after {limit:g} s, three times switch_qos_timeout_s."
            )
        if answer is None or reason:
            # Raised outside the exception handler: chained to an exception of httpx, it would carry
            # the request with its Authorization header.
            raise Lost(f"{asked}: {reason}")
        if not answer.is_success:
            message = text_of(content[:MAX_ERROR_BYTES].decode(errors="replace"))
            for secret in _secrets(self._login):
                message = message.replace(secret, "***")
            message = f": {message.rstrip('. ')}" if message else ""
            user = self._login.user or "(none)"
            advice = {
                401: f"User {user} was refused: check switch_qos_user and switch_qos_password.",
                403: f"User {user} may not do this: give it a role on the switch that may.",
            }.get(answer.status_code, "")
            text = f"{asked}: HTTP {answer.status_code}{message}. {advice}"
            raise Refused(text.rstrip(), answer.status_code)
        if not content.strip():
            return None
        values = sum(map(content.count, b"[{,"))
        if values > MAX_VALUES:
            raise SwitchError(f"{asked}: the answer has more than {MAX_VALUES} values.")
        with contextlib.suppress(ValueError, RecursionError):
            return printable(json.loads(content))
        raise SwitchError(
            f"{asked}: the answer is {answer.headers.get('content-type', 'untyped')}, not JSON. "
            f"Is this port the {self._service.name}? switch_qos_port sets another one."
        )

    def _reason(self, error: BaseException, timeout: float) -> str:
        causes = tuple(_chain(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                trusted = self._login.ca_file or "those of the controller"
                return (
                    f"its certificate is not accepted ({cause.verify_message}; authorities: "
                    f"{trusted}). It must be valid for {self._login.address}; switch_qos_ca_file "
                    "names the PEM file of its authority."
                )
        if any(isinstance(cause, httpx.TimeoutException) for cause in causes):
            return f"timed out after {timeout:g} s. switch_qos_timeout_s sets the limit."
        texts = [cause.strerror for cause in causes if isinstance(cause, OSError)]
        text = next(filter(None, texts), "the connection was cut before the answer was complete")
        return f"{text}. Is the {self._service.name} on? {self._service.how_to_enable}"


class HttpsSwitch:
    """A switch over HTTPS. `transport`, `sleep` and `clock` are for tests."""

    undone_within_s = 0

    def __init__(
        self,
        login: SwitchLogin,
        transport: Optional[httpx.BaseTransport] = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login
        self._transport = transport
        self._sleep = sleep
        self._clock = clock


def _packed(answer: httpx.Response) -> str:
    """Why an answer is not read; empty if it is not compressed."""
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return ""
    return (
        f"the answer is compressed ({shortened(one_line(encoding), 40)}), although that was not "
        "requested. Is a proxy in between, or another service on this port?"
    )


def _secrets(login: SwitchLogin) -> tuple[str, ...]:
    """All forms in which an answer could contain the credentials."""
    basic = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    known = (login.token.strip(), login.password, basic if login.password else "")
    return tuple(filter(None, known))


@functools.lru_cache(maxsize=8)
def _authorities(ca_file: str) -> ssl.SSLContext:
    """Cached per file: loading the system's authorities takes longer than most answers."""
    if not ca_file:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()))


def _tls(login: SwitchLogin) -> ssl.SSLContext:
    try:
        return _authorities(login.ca_file)
    except OSError as error:  # includes SSLError
        reason = error.strerror or str(error)
    raise SwitchError(f"{login.address}: switch_qos_ca_file {login.ca_file}: {reason}.")


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def text_of(text: str) -> str:
    with contextlib.suppress(ValueError, RecursionError):
        text = _message(json.loads(text))
    text = one_line(text)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."


def _message(value: Any) -> str:
    if isinstance(value, dict):
        for key in ("detail", "message", "error", "title"):
            if value.get(key):
                return _message(value[key])
        return "; ".join(f"{key}: {_message(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "; ".join(map(_message, value))
    return str(value)

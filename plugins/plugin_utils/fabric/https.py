# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch's JSON interface over HTTPS: certificates verified, errors an operator can act on.

No error, text or log holds a password or token: an error names the switch, method and path, what
happened and the way out. It never carries httpx's own exception, whose request has the headers.
"""

from __future__ import annotations

import base64
import functools
import json
import ssl
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from .https_errors import Refused, advice_on, lost, secretless, text_of
from .system import Login, SwitchError

try:
    import httpx
except ImportError as error:
    HTTPX_MISSING: Optional[ImportError] = error
else:
    HTTPX_MISSING = None

LARGEST_ANSWER = 64 << 20
"""Bytes. The whole configuration of a switch is a hundredth of this."""
PATIENCE = 4
"""An answer that trickles in is given up after so many times the timeout."""


@dataclass(frozen=True)
class Service:
    """One JSON interface of a switch system."""

    name: str
    """As its documentation calls it: `NVUE REST API`."""
    port: int
    how_to_enable: str
    """Commands of the switch that turn it on, or show that it is."""


def where(login: Login, service: Service) -> str:
    """Names a switch in messages."""
    return f"{login.address} port {login.port or service.port}"


class Https:
    """A connection to one switch, open while in use as a context manager.

    Nothing is taken from the environment: no proxy, no .netrc. Redirects are not followed, because
    the credentials would go along.
    """

    def __init__(
        self, login: Login, service: Service, transport: Optional[httpx.BaseTransport] = None
    ) -> None:
        if HTTPX_MISSING is not None:
            raise SwitchError(
                f"{login.address}: httpx is not installed on the controller, which speaks to the "
                f"{service.name} with it. Install requirements/controller.txt."
            )
        self._login = login
        self._service = service
        self.where = where(login, service)
        self._secrets = _secrets(login)
        self._client = httpx.Client(
            base_url=_base(login, service),
            auth=_auth(login),
            verify=_tls(login) if transport is None else True,
            timeout=login.timeout_s,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"Https({self._service.name} of {self.where})"

    def __enter__(self) -> Https:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
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
        """The answer, read as JSON; None where there is none.

        `path` is used as it is: quote what may hold a slash. `Lost` when no answer came, so that
        nobody knows whether the switch did it; `Refused` when the switch said no.
        """
        asked = f"{method} {path}"
        timeout = self._login.timeout_s if timeout_s is None else timeout_s
        answer: Optional[tuple[httpx.Response, bytes]] = None
        failure: Optional[SwitchError] = None
        try:
            answer = self._exchange(method, path, query, body, timeout)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            failure = lost(self.where, asked, error, self._hints(timeout))
        except _TooMuch as error:
            failure = SwitchError(f"{self.where}: {asked}: {error}")
        if failure is not None or answer is None:
            # Raised here, where no exception is being handled: chained to httpx's, it would carry
            # the request and with it the Authorization header.
            raise failure or SwitchError(f"{self.where}: {asked}: no answer")
        return self._read(asked, *answer)

    def _exchange(
        self, method: str, path: str, query: Optional[dict[str, str]], body: Any, timeout: float
    ) -> tuple[httpx.Response, bytes]:
        given_up = time.monotonic() + PATIENCE * timeout
        content = bytearray()
        with self._client.stream(
            method, path, params=query, json=body, timeout=timeout
        ) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise _TooMuch(
                        f"the answer has more than {LARGEST_ANSWER >> 20} MiB. Not read."
                    )
                if time.monotonic() > given_up:
                    raise _TooMuch(
                        f"the answer is not complete after {PATIENCE * timeout:g} s. Raise "
                        "switch_qos_timeout_s, or look at the load of the switch."
                    )
        return response, bytes(content)

    def _read(self, asked: str, response: httpx.Response, content: bytes) -> Any:
        if not response.is_success:
            message = secretless(text_of(content), self._secrets)
            advice = advice_on(response.status_code, self._hints(self._login.timeout_s))
            raise Refused(self.where, asked, response.status_code, message, advice)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "no type")
        raise SwitchError(
            f"{self.where}: {asked}: the answer is {kind}, not JSON. Is this port the "
            f"{self._service.name}? switch_qos_port names another one."
        )

    def _hints(self, timeout: float) -> dict[str, str]:
        return {
            "service": self._service.name,
            "enable": self._service.how_to_enable,
            "user": self._login.user or "(none)",
            "ca_file": self._login.ca_file or "the authorities of this machine",
            "address": self._login.address,
            "timeout": f"{timeout:g}",
        }


class _TooMuch(Exception):
    """An answer without an end."""


class _Bearer(httpx.Auth if HTTPX_MISSING is None else object):  # type: ignore[misc]
    """A token instead of user and password."""

    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    def auth_flow(self, request: Any) -> Any:
        request.headers["Authorization"] = self._header
        yield request


def _base(login: Login, service: Service) -> httpx.URL:
    try:
        return httpx.URL(
            scheme="https", host=login.address, port=login.port or service.port, path="/"
        )
    except httpx.InvalidURL:
        pass
    raise SwitchError(
        f"{login.address!r} is no address of a switch. Correct it in the model (management)."
    )


def _auth(login: Login) -> Optional[httpx.Auth]:
    if login.token:
        if not all("!" <= letter <= "~" for letter in login.token):
            raise SwitchError(
                f"{login.address}: switch_qos_token holds a blank, a line break or a letter that "
                "no HTTP header can carry. Write the bare token."
            )
        return _Bearer(login.token)
    if login.user:
        if ":" in login.user:
            raise SwitchError(
                f"{login.address}: switch_qos_user holds a colon, which ends a user name in HTTP."
            )
        return httpx.BasicAuth(login.user.encode(), login.password.encode())
    return None


def _secrets(login: Login) -> tuple[str, ...]:
    """Every form in which an answer could give the credentials back."""
    basic = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    return tuple(
        secret
        for secret in (login.token, login.password, basic if login.password else "")
        if secret
    )


@functools.lru_cache(maxsize=8)
def _authorities(ca_file: str) -> ssl.SSLContext:
    """Once per file: reading those of a whole machine takes longer than most answers."""
    if not ca_file:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()))


def _tls(login: Login) -> ssl.SSLContext:
    try:
        return _authorities(login.ca_file)
    except ssl.SSLError as error:
        why = f"no certificates in PEM form ({error.reason or error})"
    except OSError as error:
        why = error.strerror or "cannot be read"
    raise SwitchError(
        f"{login.address}: switch_qos_ca_file {login.ca_file}: {why}. Name the PEM file of who "
        "signed the switch's certificate, or leave it empty for the authorities of this machine."
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What went wrong between controller and switch, in words for the operator."""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from .system import SwitchError

LONGEST_MESSAGE = 400
"""Characters of a switch's own message that are shown."""


class Lost(SwitchError):
    """No answer came: the switch may or may not have done what it was asked."""


class Refused(SwitchError):
    """The switch answered that it will not. `message` is its own, without secrets."""

    def __init__(self, where: str, asked: str, status: int, message: str, advice: str) -> None:
        said = f": {message.rstrip('. ')}" if message else ""
        super().__init__(f"{where}: {asked}: HTTP {status}{said}. {advice}")
        self.status = status
        self.message = message


def lost(where: str, asked: str, error: BaseException, hints: Mapping[str, str]) -> Lost:
    """What an exception of the transport means. Its own text is used nowhere."""
    return Lost(f"{where}: {asked}: {_reason(error, hints)}")


def _reason(error: BaseException, hints: Mapping[str, str]) -> str:
    causes = tuple(_chain(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(cause, hints)
    kinds = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    for cause in causes:
        if isinstance(cause, ssl.SSLError) and "TimeoutException" not in kinds:
            return (
                f"no TLS there ({cause.reason or 'handshake failed'}). Is this port the "
                f"{hints['service']}? {hints['enable']}"
            )
    if "ConnectTimeout" in kinds:
        return (
            f"no connection after {hints['timeout']} s. Is the switch up, and the path to it "
            "(management network, firewall)? switch_qos_timeout_s sets how long to wait."
        )
    if "TimeoutException" in kinds or "TimeoutError" in kinds:
        return (
            f"connected, but timed out after {hints['timeout']} s without an answer. The switch "
            "may still be working on it. switch_qos_timeout_s sets how long to wait."
        )
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return "this name has no address. Write the switch's management address in the model."
    number = next((c.errno for c in causes if isinstance(c, OSError) and c.errno), None)
    if number == errno.ECONNREFUSED:
        return f"connection refused. The {hints['service']} is off: {hints['enable']}"
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "no route to it from this controller. Look at the management network."
    if number is not None and "ConnectError" in kinds:
        return f"no connection ({errno.errorcode.get(number, number)})."
    if "ConnectError" in kinds:
        return f"no connection. Is the {hints['service']} on? {hints['enable']}"
    return "the connection was cut before the answer was complete."


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
NOT_YET_VALID, EXPIRED = 9, 10  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


def _certificate(error: ssl.SSLCertVerificationError, hints: Mapping[str, str]) -> str:
    if error.verify_code in OTHER_NAME:
        return (
            f"its certificate is for another name than {hints['address']}. Give the switch a "
            "certificate that has this address as subject alternative name."
        )
    if error.verify_code in (NOT_YET_VALID, EXPIRED):
        state = "has expired" if error.verify_code == EXPIRED else "is not valid yet"
        return f"its certificate {state}. Renew it, or set the clock of switch or controller."
    return (
        f"its certificate is not trusted by {hints['ca_file']} ({error.verify_message}). Set "
        "switch_qos_ca_file to the PEM file of who signed it."
    )


def advice_on(status: int, hints: Mapping[str, str]) -> str:
    """The way out of an HTTP status."""
    if 300 <= status < 400:
        return f"Redirects are not followed. Is this port the {hints['service']}?"
    if status == 401:
        return (
            f"User {hints['user']} is not let in: look at switch_qos_user, switch_qos_password, "
            "switch_qos_token."
        )
    if status == 403:
        return f"User {hints['user']} may not do this: give it a role on the switch that may."
    if status == 404:
        return f"The {hints['service']} of this release has no such object."
    if status == 409:
        return "Somebody else is changing the switch: look who, and run again."
    if status >= 500:
        return f"The {hints['service']} itself failed: its log on the switch says why. Run again."
    return "The switch does not take what was sent: its message says which part."


def text_of(content: bytes) -> str:
    """A server's own message: of a JSON error, or of an HTML page without its marks."""
    text = content.decode("utf-8", "replace")
    try:
        said = _said(json.loads(text))
    except ValueError:
        text = re.sub(r"(?is)<(script|style|head)\b.*?</\1>", " ", text)
        said = re.sub(r"<[^>]*>", " ", text)
    said = re.sub(r"[\s\x00-\x1f]+", " ", said).strip()
    return said if len(said) <= LONGEST_MESSAGE else said[:LONGEST_MESSAGE] + " ..."


def _said(value: Any) -> str:
    if isinstance(value, dict):
        for key in ("detail", "message", "error", "title"):
            if value.get(key):
                return _said(value[key])
        return "; ".join(f"{key}: {_said(one)}" for key, one in value.items())
    if isinstance(value, list):
        return "; ".join(_said(one) for one in value)
    return str(value)


def secretless(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text

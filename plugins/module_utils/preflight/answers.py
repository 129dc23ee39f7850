# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether repositories respond to this node, with the package manager's proxy and authorities."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from ..core.checks import FAILED, OK, Check
from ..packages.package import Location

ANSWER_S, TOTAL_S = 10.0, 30.0
"""Time limits in seconds for one step (name, connection, response), and for all repositories."""
KNOWN = ("http", "https", "file")  # only the package manager knows others (cdrom, mirror)
ANSWERS, LOGIN = "an answer", "HTTP 401"
BY_LOGIN = "it asks for a login, which only the package manager has (auth.conf)"
REMEDY = (
    "check address, name servers, firewall and proxy (apt: Acquire::http::Proxy, dnf: proxy), and "
    "that the node trusts the certificate's authority; or remove the repository"
)


def checks(locations: Sequence[Location]) -> list[Check]:
    """Check locations in parallel. A login missing from the URL is not a failure."""
    problems: dict[str, str] = {}

    def ask(location: Location) -> None:
        found = [_ask(url, location) for url in location.urls]
        problems[location.urls[0]] = "" if "" in found else found[0]

    asked = {each.urls[0]: each for each in locations if urlsplit(each.urls[0]).scheme in KNOWN}
    threads = [Thread(target=ask, args=(each,), daemon=True) for each in asked.values()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + TOTAL_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    found = []
    for url, each in asked.items():
        problem = problems.get(url, f"none within {TOTAL_S:g} s")
        login = problem.startswith(LOGIN) and "@" not in url
        status = FAILED if problem and each.needed and not login else OK
        words = (ANSWERS, problem or ANSWERS, status, without_login(url))
        remedy = BY_LOGIN if login else REMEDY
        found.append(Check("repository_answers", *words, remedy if problem else ""))
    return found


def without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _ask(url: str, location: Location) -> str:
    """Return why it does not respond, or None."""
    if url.startswith("file:"):
        return "" if Path(unquote(urlsplit(url).path)).exists() else "no such file"
    try:
        trust = ssl.create_default_context(cafile=location.ca or None)
        if location.client:
            trust.load_cert_chain(*location.client)
        handlers: list[BaseHandler] = [HTTPSHandler(context=trust)]
        if location.proxy:
            none = location.proxy.upper() == "DIRECT"
            proxies = {} if none else dict.fromkeys(("http", "https"), location.proxy)
            handlers.append(ProxyHandler(proxies))
        request, parts = Request(without_login(url)), urlsplit(url)
        if parts.username:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
        with build_opener(*handlers).open(request, timeout=ANSWER_S) as reply:
            reply.read(1)
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code} {error.reason}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(getattr(error, "reason", "") or error or type(error).__name__)
    return ""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether names resolve on this machine, and to the addresses of the model.

glibc reads all of /etc/hosts for every single lookup, so asking it for each of n names costs n
squared. Where /etc/hosts is the first source, the file is read once and a spread of names is put to
the resolver itself, which proves that it reads that file; every other name is put to the resolver.
"""

from __future__ import annotations

import itertools
import re
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from .checks import FAILED, OK, PENDING, Check
from .text import one_line, some

Lookup = Callable[[str], tuple[str, ...]]

NSSWITCH = "/etc/nsswitch.conf"
SOURCE, FIRST = "names_source", "files first"
SERVERS = {
    *("dns", "resolve", "mdns", "mdns4", "mdns6", "mdns_minimal", "mdns4_minimal"),
    *("mdns6_minimal", "sss", "ldap", "nis", "nisplus", "wins", "winbind"),
}
"""Sources that ask a server, or a daemon that does."""
SLOW_S = 1.0
SPREAD = 256
"""Names put to the resolver although /etc/hosts has all of them."""
GIVE_UP = 64
"""Names that may fail before the rest is not asked for: a dead DNS server costs seconds a name."""
PARALLEL = 32
SHOWN = 3
"""Names that check mode shows of those that do not resolve yet."""


def system_lookup(name: str) -> tuple[str, ...]:
    """The addresses a program on this machine gets for `name`, in order of value; empty: none."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(sorted({str(answer[4][0]) for answer in answers}))


def source_check(root: Path = Path("/")) -> Check:
    """Whether /etc/hosts is asked before any server (nsswitch.conf(5)).

    A name server that is gone costs 5 s or more for each lookup, a wrong one another address.
    """
    try:
        text = (root / NSSWITCH.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Check(SOURCE, FIRST, "no such file", OK, NSSWITCH)
    place, sources = NSSWITCH, ""
    for number, line in enumerate(text.splitlines(), start=1):
        database, _separator, rest = line.partition("#")[0].partition(":")
        if database.strip() == "hosts":
            place, sources = f"{NSSWITCH}:{number}", " ".join(rest.split())
            break
    words = re.sub(r"\[[^]]*\]", " ", sources).split()
    local = itertools.takewhile(lambda word: word not in SERVERS, words)
    if "files" in local:
        return Check(SOURCE, FIRST, FIRST, OK, place)
    step = f"put files first in the line hosts: of {place} (with authselect: in its profile)"
    found = one_line(sources)[:200] or "no line hosts:"
    return Check(SOURCE, FIRST, found, FAILED, place, step, by_hand=step)


def timed(names: Sequence[str], lookup: Lookup = system_lookup) -> tuple[dict[str, Any], Check]:
    """What each name resolves to, and whether that was quick; none are asked for after a slow one.

    A slow one is asked for twice: the machine may have been busy.
    """
    found: dict[str, Any] = {}
    for name in names:
        took: list[float] = []
        while len(took) < 2 and (not took or took[0] > SLOW_S):
            began = time.monotonic()
            found[name] = lookup(name)
            took.append(time.monotonic() - began)
        if min(took) > SLOW_S:
            why = "a source asked before /etc/hosts, or nscd or sssd in its place, does not answer"
            words = (f"{SLOW_S:g} s at most", f"{min(took):.1f} s", FAILED, name, why)
            return found, Check("name_lookup", *words)
    return found, Check("name_lookup", f"{SLOW_S:g} s at most", f"{SLOW_S:g} s at most", OK)


def spread(names: Sequence[str], most: int) -> list[str]:
    """At most `most` of `names`, evenly spread, the first and the last among them."""
    if len(names) <= most:
        return list(names)
    return [names[index * (len(names) - 1) // (most - 1)] for index in range(most)]


def find_addresses(
    names: Sequence[str],
    table: Mapping[str, Collection[str]],
    lookup: Lookup = system_lookup,
) -> dict[str, tuple[str, ...]]:
    """What each name resolves to. `table` is /etc/hosts where that is asked first, else empty.

    Names that were not asked for any more, after GIVE_UP had no answer, are missing in the result.
    """
    found = {name: tuple(sorted(table[name])) for name in names if name in table}
    asked = [*spread(list(found), SPREAD), *(name for name in names if name not in table)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        for start in range(0, len(asked), PARALLEL):
            batch = asked[start : start + PARALLEL]
            found.update(zip(batch, pool.map(lookup, batch)))
            if sum(not found[name] for name in asked[: start + PARALLEL]) >= GIVE_UP:
                break
    return found


def name_checks(
    wanted: Mapping[str, str], found: Mapping[str, Collection[str]], *, check_mode: bool = False
) -> list[Check]:
    """One check when all is right, else one for each name that is wrong.

    In check mode one in any case: before the first real run no name resolves.
    """
    wrong = [name for name, address in wanted.items() if set(found.get(name, ())) != {address}]
    asked = [name for name in wrong if name in found]
    every, count = f"{len(wanted)} of {len(wanted)}", f"{len(wanted) - len(wrong)} of {len(wanted)}"
    if not wrong or check_mode:
        shown = [f"{name}: {_text(found[name])}, not {wanted[name]}" for name in asked]
        reason, status = (some(shown, SHOWN), PENDING) if wrong else ("", OK)
        return [Check("names_resolve", every, count, status, "", reason)]
    checks = [
        Check("name_resolves", wanted[name], _text(found[name]), FAILED, name) for name in asked
    ]
    if len(asked) < len(wrong):
        reason = f"stopped asking after {GIVE_UP} names without an answer"
        checks.append(Check("names_resolve", every, count, FAILED, "", reason))
    return checks


def _text(addresses: Collection[str]) -> str:
    return ", ".join(addresses) or "nothing"

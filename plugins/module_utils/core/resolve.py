# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether names resolve on this machine to the addresses of the model.

glibc reads all of /etc/hosts for every lookup. If /etc/hosts is the first source, the file is read
once, and a sample of its names is looked up; names that it lacks are all looked up.
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
from .commands import CommandError, Runner
from .text import one_line, some

Lookup = Callable[[str], tuple[str, ...]]

NSSWITCH = "/etc/nsswitch.conf"
SOURCE, FIRST = "names_source", "files first"
SERVERS = re.compile(r"dns|resolve|mdns[46]?(_minimal)?|sss|ldap|nis|nisplus|wins|winbind")
"""Sources that query a server, directly or through a daemon."""
SLOW_S = 1.0
SPREAD = 256
"""Number of names looked up although /etc/hosts has all of them."""
GIVE_UP = 64
"""Number of failures after which lookups stop: a dead DNS server costs seconds per name."""
PARALLEL = 32
MAX_LISTED_NAMES = 3
"""Maximum number of names not resolving yet that check mode lists."""


def system_lookup(name: str) -> tuple[str, ...]:
    """Return the addresses of `name` as programs on this machine resolve it, sorted."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(sorted({str(answer[4][0]) for answer in answers}))


def source_check(root: Path = Path("/")) -> Check:
    """Check that /etc/hosts is read before any server is queried (nsswitch.conf(5)): a name server
    that is down delays each lookup by 5 s or more."""
    try:
        text = (root / NSSWITCH.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Check(SOURCE, FIRST, "no such file", OK, NSSWITCH)
    position, sources = NSSWITCH, ""
    for number, line in enumerate(text.splitlines(), start=1):
        database, _separator, rest = line.partition("#")[0].partition(":")
        if database.strip() == "hosts":
            position, sources = f"{NSSWITCH}:{number}", " ".join(rest.split())
            break
    words = re.sub(r"\[[^]]*\]", " ", sources).split()
    local = itertools.takewhile(lambda word: not SERVERS.fullmatch(word), words)
    if "files" in local:
        return Check(SOURCE, FIRST, FIRST, OK, position)
    step = f"put files first in the line hosts: of {position} (with authselect: in its profile)"
    found = one_line(sources)[:200] or "no line hosts:"
    return Check(SOURCE, FIRST, found, FAILED, position, step, by_hand=step)


def servers(root: Path = Path("/")) -> list[str]:
    """Return the sources of host names that query a server; glibc's default is `dns files`."""
    try:
        text = (root / NSSWITCH.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ["dns"]
    found = re.search(r"^\s*hosts\s*:([^#\n]*)", text, re.MULTILINE)
    words = re.sub(r"\[[^]]*\]", " ", found[1]).split() if found else ["dns"]
    return [word for word in words if SERVERS.fullmatch(word)]


def server_lookup(run: Runner, sources: Sequence[str]) -> Lookup:
    """Return a lookup that leaves out /etc/hosts, with the option of getent(1) for it."""

    def lookup(name: str) -> tuple[str, ...]:
        try:
            answer = run(
                ["getent", "-s", f"hosts:{' '.join(sources)}", "ahosts", name], check=False
            )
        except CommandError:
            return ()
        words = (line.split() for line in answer.stdout.splitlines())
        return tuple(sorted({line[0] for line in words if line})) if answer.rc == 0 else ()

    return lookup


def timed(names: Sequence[str], lookup: Lookup = system_lookup) -> tuple[dict[str, Any], Check]:
    """Return what each name resolves to, and a check that lookups are fast. A slow one is repeated,
    as the machine may have been busy, and ends the series."""
    found: dict[str, Any] = {}
    limit = f"{SLOW_S:g} s at most"
    for name in names:
        took: list[float] = []
        while len(took) < 2 and (not took or took[0] > SLOW_S):
            began = time.monotonic()
            found[name] = lookup(name)
            took.append(time.monotonic() - began)
        if min(took) > SLOW_S:
            reason = "a source before /etc/hosts, or nscd or sssd in its place, does not answer"
            return found, Check("name_lookup", limit, f"{min(took):.1f} s", FAILED, name, reason)
    return found, Check("name_lookup", limit, limit, OK)


def spread(names: Sequence[str], most: int) -> list[str]:
    """Return at most `most` of `names`, evenly spread, including the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[index * (len(names) - 1) // (most - 1)] for index in range(most)]


def find_addresses(
    names: Sequence[str],
    table: Mapping[str, Collection[str]],
    lookup: Lookup = system_lookup,
) -> dict[str, tuple[str, ...]]:
    """Return what each name resolves to, except those left after GIVE_UP failures. `table` is
    /etc/hosts if it is the first source, or empty."""
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
    """Return one check if all names are right or in check mode, else a check per wrong name."""
    wrong = [name for name, address in wanted.items() if set(found.get(name, ())) != {address}]
    asked = [name for name in wrong if name in found]
    every, count = f"{len(wanted)} of {len(wanted)}", f"{len(wanted) - len(wrong)} of {len(wanted)}"
    if not wrong or check_mode:
        shown = [f"{name}: {_text(found[name])}, not {wanted[name]}" for name in asked]
        reason, status = (some(shown, MAX_LISTED_NAMES), PENDING) if wrong else ("", OK)
        return [Check("names_resolve", every, count, status, "", reason)]
    checks = [
        Check("name_resolves", wanted[name], _text(found[name]), FAILED, name) for name in asked
    ]
    if len(asked) < len(wrong):
        reason = f"stopped after {GIVE_UP} names without an answer"
        checks.append(Check("names_resolve", every, count, FAILED, "", reason))
    return checks


def _text(addresses: Collection[str]) -> str:
    return ", ".join(addresses) or "nothing"

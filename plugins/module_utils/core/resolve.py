# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether names resolve on this machine, and to the addresses of the model.

glibc reads all of /etc/hosts for every single lookup, so asking it for each of n names costs n
squared. Where /etc/hosts is the first source, the file is read once and a spread of names is put to
the resolver itself, which proves that it reads that file; every other name is put to the resolver.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

from .checks import FAILED, OK, PENDING, Check
from .text import some

Lookup = Callable[[str], tuple[str, ...]]

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


def files_first(root: Path = Path("/")) -> bool:
    """Whether /etc/hosts is asked before anything else (nsswitch.conf)."""
    try:
        text = (root / "etc/nsswitch.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        database, _separator, sources = line.partition("#")[0].partition(":")
        if database.strip() == "hosts":
            return sources.split()[:1] == ["files"]
    return False


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

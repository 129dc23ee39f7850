# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The operator's slurm.conf: its lines, and which of its values do what the model wants.

Slurm takes the last of two values, so a setting of the site is not written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

MOST_CHARACTERS = 4_000_000
MOST_FILES = 50
DEFAULT_PARTITION = "partitionname.default"
"""Key of `known`: the site has a default partition."""

_PAIR = re.compile(r'(?<![\w.])([\w.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S*))')
_INCLUDE = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\s*$")
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*#")

Reader = Callable[[str], Optional[str]]
"""The content of a file by its path, or None."""

ONE_OF = {
    "MpiDefault": ("pmix", "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5"),
    "PropagateResourceLimitsExcept": ("MEMLOCK", "ALL"),
}
"""Values that do the same as ours."""
SEVERAL = ("Prolog", "Epilog")
"""Since Slurm 24.05, each line adds a program; before, the last one replaced the others."""
SEVERAL_SINCE = (24, 5)
LISTS = (
    *("GresTypes", "PrologFlags", "TaskPlugin", "SlurmdParameters", *SEVERAL),
    *("PropagateResourceLimitsExcept", "SchedulerParameters"),
)
"""The site's list must contain ours."""
ANY = (
    *("SelectTypeParameters", "HealthCheckInterval", "HealthCheckNodeState", "ResumeTimeout"),
    "RebootProgram",
)
"""Any value that is set will do."""
BELONGS = {
    "SelectTypeParameters": "SelectType",
    "TaskPlugin": "ProctrackType",
    "PrologFlags": "ProctrackType",
    "HealthCheckInterval": "HealthCheckProgram",
    "HealthCheckNodeState": "HealthCheckProgram",
    "ResumeTimeout": "RebootProgram",
}
"""Settings that fit only our value of another one: slurmctld does not start with linear selection
of cores."""
IMPLIED = {"contain": ("alloc",), "x11": ("contain", "alloc")}
UNSET = ("", "(null)", "none", "(none)", "0")


@dataclass(frozen=True)
class Line:
    """One line, with those that a backslash continues."""

    file: str
    number: int
    pairs: tuple[tuple[str, str], ...]

    @property
    def at(self) -> str:
        return f"{self.file}:{self.number}"

    def value(self, key: str) -> str:
        """The value of a word of this line, empty without it."""
        return next((to for name, to in self.pairs if name.lower() == key.lower()), "")


def parse(
    text: str,
    path: str = "slurm.conf",
    read: Reader = lambda path: None,
    *,
    ours: Iterable[str] = (),
) -> list[Line]:
    """Lines of slurm.conf and of the files that it includes, except the names in `ours`."""
    return list(_lines(text, path, read, {path, *ours}, path.rpartition("/")[0]))


def _lines(text: str, path: str, read: Reader, seen: set[str], directory: str) -> Iterator[Line]:
    for number, line in _joined(text[:MOST_CHARACTERS]):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            pairs = tuple((key, quoted or bare) for key, quoted, bare in _PAIR.findall(line))
            if pairs:
                yield Line(path, number, pairs)
            continue
        # A path is relative to slurm.conf, also in a file that it includes.
        name = include[1].strip('"')
        target = name if name.startswith("/") else f"{directory}/{name}"
        if target in seen or target.rpartition("/")[2] in seen or len(seen) >= MOST_FILES:
            continue
        seen.add(target)
        content = read(target)
        if content is not None:
            yield from _lines(content, target, read, seen, directory)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with the number of their first one. Slurm joins lines before it
    removes comments."""
    began, held = 0, ""
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        began = began or number
        continued = _CONTINUED.search(raw)
        if continued:
            held += raw[: continued.end()].rstrip()[:-1]
            continue
        line = held + raw
        comment = _COMMENT.search(line)
        line = (line[: comment.start()] if comment else line).strip()
        if line:
            yield began, line
        began, held = 0, ""


def known(lines: Iterable[Line]) -> dict[str, str]:
    """Settings of the site by key in lower case, as Slurm takes them: the last one, or several
    programs as a list."""
    several = {key.lower() for key in SEVERAL}
    found: dict[str, str] = {}
    for line in lines:
        key, value = line.pairs[0]
        before = found.get(key.lower()) if key.lower() in several else None
        found[key.lower()] = f"{before},{value}" if before else value
        if key.lower() == "partitionname" and line.value("Default").lower() == "yes":
            found[DEFAULT_PARTITION] = value
    return found


def holds(key: str, wanted: str, found: str) -> bool:
    """Whether a value of the site, or one that slurmctld reports, is as good as the wanted one."""
    here = found.strip().lower()
    if key in ANY:
        return here.split(" ")[0] not in UNSET
    if key in LISTS:
        have = {word for word in here.split(",") if word}
        have |= {other for word in have for other in IMPLIED.get(word, ())}
        if set(wanted.lower().split(",")) <= have:
            return True
    if key in ONE_OF:
        return here in [each.lower() for each in ONE_OF[key]]
    return here == wanted.lower()


def written(
    wanted: Mapping[str, str], site: Mapping[str, str], version: tuple[int, int]
) -> dict[str, str]:
    """Settings to write next to those of the site: neither again, nor without what they fit."""
    found = {}
    for key, value in wanted.items():
        parent = BELONGS.get(key, "")
        there = site.get(parent.lower())
        fits = there is None or holds(parent, wanted.get(parent, ""), there)
        own = site.get(key.lower())
        adds = adds_to(key, version) and own is not None and not holds(key, value, own)
        if (own is None or adds) and fits and not _replaced(key, site):
            found[key] = value
    return found


def adds_to(key: str, version: tuple[int, int]) -> bool:
    """Whether another line of this key adds a program to that of the site."""
    return key in SEVERAL and version >= SEVERAL_SINCE


def _replaced(key: str, site: Mapping[str, str]) -> bool:
    """Slurm reads only one of both."""
    return key == "PropagateResourceLimitsExcept" and "propagateresourcelimits" in site

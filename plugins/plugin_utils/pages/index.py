# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The index of a cluster: its runs, newest first, and the course of every figure.

It is made of the summaries in the heads of the pages: removing a page removes its run.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...module_utils.core.text import counted
from ..answers import amount, mapping
from ..report.reports import save
from .cards import MAX_NUMBER, UNKNOWN, moment
from .figures import shown, sparkline
from .html import HEAD_BYTES, Markup, details, document, section, summary_of, table, tag

NAME = "index.html"
MAX_RUNS = 300
MAX_POINTS = 60
MAX_FIGURES = 80
ATTEMPTS = 5
Figure = tuple[str, float, str]
"""Start of the run, number and unit."""


def page(folder: Path, cluster: str) -> str:
    runs = _runs(folder)
    body = [tag("h1", f"{cluster}: runs")]
    courses = list(_courses(runs))
    newest: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        newest.setdefault(run["kind"], run)
    body.append(tag("p", f"{counted(len(runs), 'run')}, newest first.", class_="meta"))
    if newest:
        rows = [_row(run) for run in newest.values()]
        body.append(
            section("Latest of each kind", table("Latest runs", HEADS, rows, class_="runs"))
        )
    if courses:
        body.append(section("Figures over time", *courses))
    body.append(
        section("All runs", table("Runs, newest first", HEADS, map(_row, runs), class_="runs"))
    )
    return document(f"{cluster}: runs", body, home="", summary={"index": True})


HEADS = ("started, UTC", "verdict", "what", "in a sentence")


def write(folder: Path, cluster: str) -> None:
    """Write the index; again if other runs have added their pages meanwhile."""
    for _attempt in range(ATTEMPTS):
        before = _pages(folder)
        save(folder / NAME, page(folder, cluster))
        if not _pages(folder).keys() - before.keys() - {folder / NAME}:
            return


def _pages(folder: Path) -> dict[Path, float]:
    """Pages and their times, without links, folders and pages that are just being removed."""
    found = {}
    for path in (*folder.glob("*.html"), *folder.glob("certificates/*.html")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found[path] = status.st_mtime
    return found


def _runs(folder: Path) -> list[dict[str, Any]]:
    pages = _pages(folder)
    pages.pop(folder / NAME, None)
    found = []
    for path in sorted(pages, key=lambda path: pages[path], reverse=True)[:MAX_RUNS]:
        read: dict[str, Any] = {}
        with contextlib.suppress(OSError), path.open("rb") as file:
            read = summary_of(file.read(HEAD_BYTES).decode(errors="replace"))
        if read.get("kind"):
            address = quote(str(path.relative_to(folder)))
            texts = {key: str(read.get(key, "")) for key in ("kind", "class", "word", "sentence")}
            started = moment(read.get("started"))
            figures = mapping(read.get("figures"))
            found.append({**texts, "started": started, "figures": figures, "address": address})
    return sorted(found, key=lambda run: run["started"].replace(UNKNOWN, ""), reverse=True)


def _row(run: Mapping[str, Any]) -> tuple[object, ...]:
    class_ = run["class"] if run["class"] in ("ok", "bad", "warn") else "na"
    sign = {"ok": "✓", "bad": "✕", "warn": "!"}.get(class_, "○")
    state = tag("td", f"{sign} {run['word']}", class_=class_)
    link = tag("a", run["started"], href=run["address"])
    return link, state, run["kind"], run["sentence"]


def _courses(runs: list[dict[str, Any]]) -> Iterator[Markup]:
    """A table per kind of run, with a sparkline per figure, oldest point first."""
    kinds: dict[str, dict[str, list[Figure]]] = {}
    for run in reversed(runs):
        for name, figure in list(run["figures"].items())[:MAX_FIGURES]:
            if _is_figure(figure):
                own = kinds.setdefault(run["kind"], {}).setdefault(str(name), [])
                own.append((run["started"], float(figure[0]), str(figure[1])))
    for kind, figures in list(kinds.items())[:20]:
        rows = []
        for name, points in list(figures.items())[:MAX_FIGURES]:
            recent = points[-MAX_POINTS:]
            values = [number for _started, number, _unit in recent]
            unit = recent[-1][2]
            latest, low, high = (
                shown(each, unit) for each in (values[-1], min(values), max(values))
            )
            label = f"{name}: {len(values)} values, from {low} to {high}, latest {latest}"
            numbers = table(
                f"{name}", ("run", "value"), [(at, shown(each, of)) for at, each, of in recent]
            )
            course = tag(
                "td", sparkline(values, label), details("values", numbers), class_="course"
            )
            drawn = (
                (course, f"{low} to {high}")
                if len(values) > 1
                else (tag("td", "one run"), tag("td", "-"))
            )
            rows.append((name, tag("td", latest, class_="n"), *drawn))
        yield table(kind, ("figure", "latest", "course", "range"), rows)


def _is_figure(figure: Any) -> bool:
    return (
        isinstance(figure, list) and len(figure) == 2 and amount(figure[0], MAX_NUMBER) is not None
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Markup of a page that is one file: escaped and bounded text, tables, and a policy that admits
only the styles and scripts in the file itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

from ...module_utils.core.text import printable, shortened
from ..answers import finite, mapping

ASSETS = Path(__file__).parent / "assets"
MAX_TEXT = 1000
"""Maximum length of one text from a report."""
SUMMARY = "baremetal-run"
"""Name of the meta element with what the index shows of a page."""
HEAD_BYTES = 16 << 10
"""The summary is in the first bytes of a page, up to this number."""
MAX_SUMMARY = HEAD_BYTES - 1024
MAX_IN_SUMMARY, MAX_FIGURES = 500, 200
"""Maximum length of a text, and number of figures, in the summary."""
NUMBER = re.compile(
    r"-|([0-9]+ min )?[0-9][0-9,]*(\.[0-9]+)?( ([kKMG]i?)?B(/s)?| [GMk]?b/s| us| ms| s|%| %)?"
)
VOID = frozenset(["circle", "line", "meta", "path", "polyline", "rect"])
OPEN = "details", "section", "figure", "table", "tbody", "ul", "main", "tr"


class Markup(str):
    """A complete piece of a page; any other value is text."""

    __slots__ = ()


def text(value: object, most: int = MAX_TEXT) -> Markup:
    """Text from anywhere: bounded, without characters that control its direction."""
    return Markup(escape(str(printable(shortened(str(value), most)))))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is class, `aria_label` is aria-label; None and False leave one out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{text(value, HEAD_BYTES)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>" + ("\n" if name in OPEN else ""))


def join(children: Iterable[object]) -> Markup:
    return Markup(
        "".join(child if isinstance(child, Markup) else text(child) for child in children)
    )


def prose(markdown: str) -> Markup:
    """A sentence of a generated page: code remains code, a link its text."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    pieces = plain.split("`")
    return join(tag("code", each) if at % 2 else each for at, each in enumerate(pieces))


def value(found: Any, nothing: str = "nothing") -> str:
    """A value of a check, as an operator writes it."""
    if found is None or found == "":
        return nothing
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, (list, dict)):
        return json.dumps(found, default=str, ensure_ascii=False)
    return f"{found:.6g}" if isinstance(found, float) else str(found)


def table(
    caption: str, head: Sequence[object], rows: Iterable[Sequence[object]], **attributes: object
) -> Markup:
    """A table that scrolls on a narrow screen, also by keyboard. The first cell names its row."""
    rows = list(rows)
    body = join(
        tag("tr", tag("th", row[0], scope="row"), *(cell(each) for each in row[1:])) for row in rows
    )
    numbers = [at > 0 and any(map(_number, column)) for at, column in enumerate(zip(*rows))]
    heads = [
        tag("th", each, scope="col", class_="n" if number else None)
        for each, number in zip(head, [*numbers, *[False] * len(head)])
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", tag("span", caption)),
            tag("thead", tag("tr", *heads)),
            tag("tbody", body),
            **attributes,
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=caption,
    )


def cell(content: object) -> Markup:
    if isinstance(content, Markup) and content.startswith("<td"):
        return content
    return tag("td", content, class_="n" if _number(content) else None)


def _number(content: object) -> bool:
    """Whether a cell is a number, perhaps with a unit, which is aligned right."""
    if isinstance(content, Markup):
        return content.startswith('<td class="n"')
    shown = isinstance(content, str) and NUMBER.fullmatch(content)
    return bool(shown) or (isinstance(content, (int, float)) and not isinstance(content, bool))


def details(title: object, *inside: object, open_: bool = False) -> Markup:
    return tag("details", tag("summary", title), *inside, open=open_)


def section(title: str, *inside: object) -> Markup:
    name = re.sub(r"\W+", "-", title.lower())
    return tag("section", tag("h2", title, id=name), *inside, aria_labelledby=name)


def document(
    title: str,
    body: Iterable[object],
    *,
    home: str,
    source: str = "",
    summary: Mapping[str, Any],
    charts: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole file. `home`: address of the index; `source`: of the report; `charts`: options of
    ECharts for the elements that `figures.chart` makes."""
    style = asset("page.css")
    scripts = [asset("echarts.min.js"), asset("charts.js")] if charts else []
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {_digest(style)}",
            f"script-src {' '.join(map(_digest, scripts)) or repr('none')}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    links = [tag("a", "All runs", href=home)] if home else []
    links += [tag("a", "JSON report", href=source)] if source else []
    written = [
        Markup('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'),
        tag("meta", name=SUMMARY, content=_bounded(summary)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Markup(f"<style>{style}</style>\n</head>\n<body>\n"),
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag(
            "header",
            tag("p", "baremetal.mpi_roce", class_="brand"),
            tag("nav", *links, aria_label="Reports") if links else "",
        ),
        tag("main", *body, id="main"),
        tag("footer", tag("p", "Written from a JSON report. Text from hosts is shown as text.")),
    ]
    if charts:
        data = _json(printable(charts)).replace("<", "\\u003c")
        written.append(Markup(f'<script type="application/json" id="charts">{data}</script>\n'))
    written += [Markup(f"<script>{script}</script>\n") for script in scripts]
    return "".join(written) + "</body>\n</html>\n"


def _bounded(summary: Mapping[str, Any]) -> str:
    """The summary as JSON that fits in the beginning of a page; the last figures are left out."""
    kept = {
        key: shortened(each, MAX_IN_SUMMARY) if isinstance(each, str) else each
        for key, each in summary.items()
    }
    figures = {
        shortened(name, MAX_IN_SUMMARY): each
        for name, each in [*mapping(summary.get("figures")).items()][:MAX_FIGURES]
    }
    while len(escape(_json(kept | {"figures": figures}))) > MAX_SUMMARY and figures:
        figures.popitem()
    return _json(kept | {"figures": figures})


def summary_of(head: str) -> dict[str, Any]:
    """The summary in the beginning of a page; empty if it has none."""
    found = re.search(rf'<meta name="{SUMMARY}" content="([^"]*)"/>', head)
    try:
        read = json.loads(unescape(found[1])) if found else {}
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


@cache
def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8").strip()


def _digest(inlined: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inlined.encode()).digest()).decode()}'"


def _json(content: Any) -> str:
    return json.dumps(finite(content), default=str, separators=(",", ":"))

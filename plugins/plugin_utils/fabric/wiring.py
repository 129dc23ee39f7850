# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cabling list of a cluster: every cable of the model as CSV, and one page per rack."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import counted, natural
from .cabling import Cable, End, first_end
from .system import STORAGE, TO_NODES

CABLES, INDEX = "cables.csv", "index.html"
NAMES = r"cables\.csv|index\.html|(rack|switch)-[^/]+\.html"
"""Form of the names of all files."""
COLUMNS = (
    *("from_rack", "from_host", "from_port", "to_rack", "to_host", "to_port", "label"),
    *("kind", "rail", "plane", "speed_gbps", "max_metres", "cable"),
)
_SHOWN = (
    *("port", "to rack", "to host", "to port", "label", "kind", "rail", "plane", "Gb/s", "max. m"),
    *("cable", "done"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters with which a spreadsheet reads a cell as a formula (OWASP, CSV injection)."""


_natural = lru_cache(maxsize=1 << 16)(natural)


class Wire(NamedTuple):
    """A cable with what a technician needs to lay it."""

    cable: Cable
    racks: tuple[str, str]
    """Of both ends; empty if the model has none."""
    rail: Optional[int]
    plane: Optional[int]
    max_metres: int
    """The longest cable of its kind (`roce_qos.cable_metres`)."""
    description: str = ""
    """Of transceivers and cable (`cabling`)."""

    def from_end(self, second: bool) -> tuple[str, End, str, End]:
        """Rack and end where it begins, and where it leads."""
        ends = [(self.racks[0], self.cable.first), (self.racks[1], self.cable.second)]
        (rack, here), (to_rack, there) = reversed(ends) if second else ends
        return rack, here, to_rack, there


def wires_of(hosts: Mapping[str, Mapping[str, Any]]) -> list[Wire]:
    """Every cable of the model once, sorted by rack, host and port; from the compiled variables."""
    racks = {name: str(own.get("cluster_rack") or "") for name, own in hosts.items()}
    wires = []
    for name, own in hosts.items():
        for group in own.get("cluster_ports") or ():
            lengths, described = own["roce_qos"]["cable_metres"], own.get("cluster_cabling") or {}
            place = "to_nodes" if group["kind"] in TO_NODES else "between_switches"
            for port, peer in group["peers"].items():
                if not first_end(group["kind"], name, peer):
                    continue
                ends = End(name, port), End(peer, group["peer_interface"])
                wires.append(
                    Wire(
                        Cable(*ends, group["kind"], group["speed_gbps"], group["mtu"]),
                        (racks[name], racks.get(peer, "")),
                        group["rail"],
                        group["plane"],
                        lengths[place],
                        described.get("to_storage" if group["kind"] == STORAGE else place, ""),
                    )
                )
    return sorted(wires, key=lambda wire: _order(wire.from_end(False)))


def _order(ends: tuple[str, End, str, End]) -> tuple[Any, ...]:
    rack, here, to_rack, there = ends
    return tuple(map(_natural, (rack, *here, to_rack, *there)))


def files_of(wires: Iterable[Wire], cluster: str) -> dict[str, str]:
    """Content by file name: the list, an index, and a page per rack. A switch without a rack has a
    page as well."""
    wires = list(wires)
    pages: dict[str, list[tuple[Wire, bool]]] = {}
    for wire in wires:
        # Also of the rack at the other end, where someone plugs it in.
        pages.setdefault(_page(wire, False), []).append((wire, False))
        if _page(wire, True) and _page(wire, True) != _page(wire, False):
            pages.setdefault(_page(wire, True), []).append((wire, True))
    names = sorted(pages, key=natural)
    titles = {name: name.replace("-", " ", 1) for name in names}
    links = (
        f'<li><a href="{escape(name)}.html">{escape(titles[name])}</a>, '
        f"{counted(len(pages[name]), 'cable')}</li>"
        for name in names
    )
    listed = f'<p><a href="{CABLES}">{CABLES}</a>: {counted(len(wires), "cable")}</p>'
    files = {CABLES: csv_of(wires)}
    files[INDEX] = _html(f"{cluster}: cables", f"{listed}<ul>{''.join(links)}</ul>")
    for name in names:
        files[f"{name}.html"] = _html(f"{cluster}: {titles[name]}", _tables(pages[name]))
    return files


def _page(wire: Wire, second: bool) -> str:
    """A file name without its ending; variables of an inventory without a model are any text."""
    rack, here, _to_rack, _there = wire.from_end(second)
    page = f"rack-{rack}" if rack else f"switch-{here.host}"
    unnamed = not rack and second and wire.cable.kind in TO_NODES
    return "" if unnamed else re.sub(r"[^\w.-]", "_", page)


def csv_of(wires: Iterable[Wire]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(COLUMNS)
    for wire in wires:
        rack, here, to_rack, there = wire.from_end(False)
        cells = (rack, *here, to_rack, *there, wire.cable, *_figures(wire))
        writer.writerow([_inert(str(cell)) for cell in cells])
    return text.getvalue()


def _figures(wire: Wire) -> tuple[object, ...]:
    """From `kind` on, as in COLUMNS."""
    rail, plane = ("" if each is None else each for each in (wire.rail, wire.plane))
    speed = f"{wire.cable.speed_gbps:g}"
    return wire.cable.kind, rail, plane, speed, wire.max_metres, wire.description


def _inert(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _tables(wires: list[tuple[Wire, bool]]) -> str:
    """One table per host."""
    hosts: dict[str, list[tuple[Wire, bool]]] = {}
    for wire, second in sorted(wires, key=lambda each: _order(each[0].from_end(each[1]))):
        hosts.setdefault(wire.from_end(second)[1].host, []).append((wire, second))
    return "".join(
        f"<h2>{escape(host)}, {counted(len(own), 'cable')}</h2><table><thead>"
        f"{_row('th', _SHOWN)}</thead><tbody>{''.join(_line(*each) for each in own)}"
        "</tbody></table>"
        for host, own in hosts.items()
    )


def _line(wire: Wire, second: bool) -> str:
    _rack, here, to_rack, there = wire.from_end(second)
    cells = (here.interface, to_rack, *there, wire.cable, *_figures(wire))
    return _row("td", (*cells, "\u2610"))


def _row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>\n"


_STYLE = (
    "body{font:11pt sans-serif;margin:1em}h1{font-size:15pt}h2{font-size:12pt;margin:1em 0 .3em}"
    "table{border-collapse:collapse;width:100%}th,td{border:1px solid #999;padding:2px 6px;"
    "text-align:left}th{background:#eee}tr{break-inside:avoid}thead{display:table-header-group}"
    "h2{break-after:avoid}@media print{@page{size:A4 landscape;margin:12mm}body{margin:0;"
    "font-size:9pt}}"
)


def _html(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}</body></html>\n"
    )

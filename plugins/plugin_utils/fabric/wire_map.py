# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A wire map, a site's own list of cables as CSV, compared with the model.

The file is read, never written; its cells are compared with names of the model and go only into
messages.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Optional

from ...module_utils.core.text import bytes_text, counted, nearest, one_line, shortened, some
from ..schema.findings import Finding, RefusedError
from .cabling import Cable, End, misplaced, peers_of
from .wiring import FORMULA

MAX_BYTES = 64 << 20
MAX_LINES = 500_000
"""A cluster of 10,000 nodes with 8 rails has 160,000 cables in two tiers."""
MAX_CELL = 200
_LISTED = 5
_NEAREST = 50
"""Unknown names for which a similar one is searched: 0.1 s for each among 10,000 nodes."""
_PREFACE = re.compile(r"(?:#[^\n]*\n|sep=.\r?\n|\s*\n)*", re.I)
"""Comments, blank lines, and Excel's line with the delimiter, before the header."""

_SIDES = (
    ("from", "a", "sidea", "aside", "enda", "source", "src", "local", "near", "1", ""),
    ("to", "b", "z", "sideb", "bside", "endb", "destination", "dest", "dst", "target", "2",
     "remote", "far", "peer", "neighbor", "neighbour"),
)  # fmt: skip
_THINGS = {
    "host": ("host", "hostname", "device", "node", "system", "switch", "equipment"),
    "port": ("port", "interface", "intf", "termination", "portname", "name"),
}
NEEDED = tuple(product(range(2), _THINGS))
"""Side and thing of each required column."""
_COLUMNS = {
    "".join(words): (side, thing)
    for side, thing in NEEDED
    for pair in product(_SIDES[side], _THINGS[thing])
    for words in (pair, pair[::-1])
} | {
    **dict.fromkeys(("switchport", "switchinterface"), (0, "port")),
    **dict.fromkeys(("server", "peer", "neighbor", "neighbour"), (1, "host")),
    **dict.fromkeys(("serverport", "serverinterface", "nic", "servernic"), (1, "port")),
}
"""Column by header without spaces and punctuation. NetBox: `side_a_device`, `side_a_name`
(netbox-community/netbox, netbox/dcim/forms/bulk_import.py, CableImportForm)."""
_EXAMPLE = "from_host,from_port,to_host,to_port"


class WireMapError(RefusedError):
    what = "the wire map cannot be used"


@dataclass(frozen=True)
class Line:
    number: int
    ends: tuple[End, End]


@dataclass
class WireMap:
    """The lines of a file, resolved to ends of the model."""

    peers: dict[End, tuple[End, int]] = field(default_factory=dict)
    """The end that a line connects to each end, and the number of the line."""
    findings: list[Finding] = field(default_factory=list)
    outside: int = 0
    """Number of lines for cables that are not part of the model, such as those of management."""
    agree: int = 0


def read_lines(path: Path) -> list[Line]:
    """Raises WireMapError."""
    try:
        if not path.is_file():
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OSError(f"it is larger than {bytes_text(MAX_BYTES)}")
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise OSError("it contains NUL characters")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Save it as CSV in UTF-8, and name it by --extra-vars wire_map=FILE"
        problem = f"{path}: {one_line(str(error))}"
        raise WireMapError([Finding("wire_map.file", (), problem, remedy)]) from None
    found: list[Finding] = []
    lines = list(_lines(text, found))
    if found:
        raise WireMapError(found)
    return lines


def _lines(text: str, found: list[Finding]) -> Iterator[Line]:
    preface = _PREFACE.match(text)
    header = text[preface.end() if preface else 0 :].split("\n", 1)[0]
    delimiter = max(",;\t|", key=header.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: Optional[dict[tuple[int, str], int]] = None
    try:
        for row in rows:
            blank = not any(map(str.strip, row)) or row[0].startswith("#")
            if blank or (columns is None and row[0].lower().startswith("sep=")):
                continue
            if rows.line_num > MAX_LINES:
                raise csv.Error(f"more than {MAX_LINES} lines")
            if columns is None:
                columns = _columns(row, rows.line_num, found)
                if len(columns) < len(NEEDED):
                    return
                continue
            cells = [_cell(row[columns[key]]) if columns[key] < len(row) else "" for key in NEEDED]
            wrong = [cell for cell in cells if not cell or len(cell) > MAX_CELL]
            if wrong:
                problem = f"has {'a cell that is too long' if wrong[0] else 'an empty cell'}"
                remedy = f"Write host and port of both ends, up to {MAX_CELL} characters each"
                found.append(Finding("wire_map.cell", (), problem, remedy, rows.line_num))
                continue
            ends = End(cells[0], cells[1]), End(cells[2], cells[3])
            yield Line(rows.line_num, ends)
    except csv.Error as error:
        problem, remedy = f"not CSV: {one_line(str(error))}", "Correct the line"
        found.append(Finding("wire_map.csv", (), problem, remedy, rows.line_num))
    if columns is None and not found:
        found.append(Finding("wire_map.empty", (), "has no header", f"Write {_EXAMPLE}", 1))


def _columns(row: Sequence[str], number: int, found: list[Finding]) -> dict[tuple[int, str], int]:
    columns: dict[tuple[int, str], int] = {}
    for index, name in enumerate(row):
        key = _COLUMNS.get(re.sub(r"[^a-z0-9]", "", name[:MAX_CELL].lower()))
        if key is not None:
            columns.setdefault(key, index)
    if len(columns) < len(NEEDED):
        names = some([shortened(one_line(name), 40) for name in row])
        problem = f"the header has no column for each of host and port at both ends: {names}"
        found.append(Finding("wire_map.header", (), problem, f"Write {_EXAMPLE}", number))
    return columns


def _cell(text: str) -> str:
    """Without the quote that this collection and others write before a formula."""
    text = text.strip()
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


class _Names:
    """Finds ends of the model whatever the case, with or without the domain of a host."""

    def __init__(self, ends: Iterable[End]) -> None:
        self._hosts: dict[str, str] = {}
        self._ports: dict[str, dict[str, str]] = {}
        self._searched: dict[tuple[str, ...], str] = {}
        for host, port in ends:
            self._hosts[host.lower()] = host
            ports = self._ports.setdefault(host, {})
            ports[port], ports[port.lower()] = port, ports.get(port.lower(), port)

    def host(self, name: str) -> str:
        """Empty if it is not in the model."""
        name = name.lower()
        return self._hosts.get(name) or self._hosts.get(name.partition(".")[0], "")

    def end(self, written: End) -> Optional[End]:
        host = self.host(written.host)
        ports = self._ports.get(host, {})
        port = ports.get(written.interface) or ports.get(written.interface.lower())
        return End(host, port) if port else None

    def nearest_port(self, host: str, port: str) -> str:
        return self._nearest((host, port), dict.fromkeys(self._ports[host].values()))

    def nearest_host(self, host: str) -> str:
        return self._nearest((host,), self._ports)

    def _nearest(self, name: tuple[str, ...], known: Iterable[str]) -> str:
        if name not in self._searched and len(self._searched) < _NEAREST:
            self._searched[name] = nearest(name[-1], known)
        return self._searched.get(name, "Write the name that the model has")


def compare(lines: Iterable[Line], cables: Sequence[Cable]) -> WireMap:
    model = peers_of(cables)
    names, result = _Names(model), WireMap()
    named: set[End] = set()
    for line in lines:
        ends = [names.end(written) for written in line.ends]
        hosts = [names.host(written.host) for written in line.ends]
        named.update(end for end in ends if end)
        if ends[0] is None or ends[1] is None:
            if not (all(hosts) or any(ends)):
                result.outside += 1
            else:
                result.findings += _unknown(line, ends, hosts, names)
            continue
        _connect(line, ends[0], ends[1], result)
    found = {here: there for here, (there, _number) in result.peers.items()}
    for each in misplaced(model, found):
        numbers = sorted({result.peers[end][1] for end in (each.here, each.other) if end in found})
        result.findings.append(_misplaced(each.here, each.peer, each.found, each.other, numbers))
    result.agree = sum(found.get(cable.first) == cable.second for cable in cables)
    result.findings.sort(key=lambda finding: finding.line or 0)
    result.findings += _missing(cables, named)
    return result


def _connect(line: Line, first: End, second: End, result: WireMap) -> None:
    if first in result.peers and result.peers[first][0] == second:
        return  # the same cable, as seen from the other end
    for end in (first, second):
        if end in result.peers or first == second:
            earlier = result.peers.get(end, (end, line.number))[1]
            problem = f"{end} is also an end of the cable in line {earlier}"
            remedy = "Keep the line that is right"
            result.findings.append(Finding("wire_map.twice", (), problem, remedy, line.number, end))
            return
    result.peers[first] = second, line.number
    result.peers[second] = first, line.number


def _unknown(
    line: Line, ends: Sequence[Optional[End]], hosts: Sequence[str], names: _Names
) -> Iterator[Finding]:
    for written, end, host in zip(line.ends, ends, hosts):
        port = shortened(written.interface, 60)
        if end is None and host:
            problem = f"{port!r} of {host} is not an end of a cable in the model"
            remedy, value = names.nearest_port(host, port), (host, port)
            yield Finding("wire_map.unknown_port", (), problem, remedy, line.number, value)
        elif end is None:
            name = shortened(written.host, 60)
            problem = f"host {name!r} has no cable in the model"
            remedy = names.nearest_host(name)
            yield Finding("wire_map.unknown_host", (), problem, remedy, line.number, name)


def _misplaced(here: End, peer: End, found: End, other: End, numbers: list[int]) -> Finding:
    value = (str(here), str(found))
    if len(numbers) == 2:
        problem = f"{here} and {other} are swapped with line {numbers[1]}: the model has {here} - "
        problem += f"{peer} and {other} - {found}"
    else:
        problem = f"{here} - {found}: the model has {here} - {peer} and {other} - {found}"
    remedy = "Correct the wire map, or the model"
    return Finding("wire_map.other_cable", (), problem, remedy, numbers[0], value)


def _missing(cables: Iterable[Cable], named: set[End]) -> Iterator[Finding]:
    missing: dict[str, list[Cable]] = {}
    for cable in cables:
        if cable.first not in named and cable.second not in named:
            missing.setdefault(cable.first.host, []).append(cable)
    for host, lacking in missing.items():
        of = counted(len(lacking), "cable")
        problem = f"{of} of {host} in the model have no line: {some(lacking, _LISTED)}"
        remedy, value = "Add them, or correct the model", (host, len(lacking))
        yield Finding("wire_map.missing", (), problem, remedy, None, value)


def by_end(path: Path, cables: Sequence[Cable]) -> Mapping[End, tuple[End, int]]:
    """What the file connects to each end of the model, for a comparison with LLDP."""
    return compare(read_lines(path), cables).peers

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cabling list out of the model, and wire maps of sites compared with it."""

from __future__ import annotations

import csv
import errno
import io
import os
import random
import signal
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import model
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import wire_map, wiring
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import Cable, End
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import reports
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.reports import (
    FolderError,
    replace_folder,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.action_plays import run_play
from tests.unit.link_fabric import Fabric

GOLDEN = Path(__file__).parent / "golden/cabling"
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/16}
nodes: {count: 4, management_first: 10.0.1.1, slots: 8, nodes_per_rack: 2}
rails: {count: 2, planes: 2, speed_gbps: 400}
addresses: {pool: 10.128.0.0/9, prefix: 22}
leaves:
  {count: 4, ports: 64, port: 'swp{}', management_first: 10.0.16.1, rack: [r01, r01, r02, r02]}
spines: {count: 2, ports: 64, port: 'swp{}', management_first: 10.0.24.1, speed_gbps: 800}
launcher: {name: launcher01, management: 10.0.0.10}
storage:
  - name: storage01
    management: 10.0.0.20
    links: [{leaf: leaf01, port: swp20, interface: ens1f0, speed_gbps: 200}]
roce_qos: {cable_metres: {to_nodes: 5, between_switches: 30}}
cabling: {to_nodes: "OSFP 2xDR4 (MPO-12)", between_switches: AOC}
"""


def compiled(text: str) -> dict[str, dict[str, Any]]:
    inventory = model.inventory_of(model.compile_model(model.read("cluster.yml", text)))
    return {host.name: inventory.merged(host) for host in inventory.hosts}


WIRES = wiring.wires_of(compiled(MODEL))
CABLES = [wire.cable for wire in WIRES]
ROWS = [(*cable.first, *cable.second) for cable in CABLES]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_list_and_the_pages() -> None:
    files = wiring.files_of(WIRES, "small")
    assert sorted(files) == [
        *("cables.csv", "index.html", "rack-r01.html", "rack-r02.html", "switch-spine01.html"),
        "switch-spine02.html",
    ]
    if os.environ.get("UPDATE_GOLDEN"):
        replace_folder(GOLDEN, files, wiring.NAMES)
    for name, text in files.items():
        assert text.encode() == (GOLDEN / name).read_bytes(), name


def test_every_cable_is_listed_once_and_on_the_page_of_both_racks() -> None:
    files = wiring.files_of(WIRES, "small")
    rows = list(csv.DictReader(io.StringIO(files["cables.csv"])))
    assert len(rows) == 4 * 4 + 4 + 1
    assert {tuple(rows[0])} == {wiring.COLUMNS}
    labels = [row["label"] for row in rows]
    assert len(set(labels)) == len(labels)
    assert [row["from_rack"] for row in rows] == sorted(row["from_rack"] for row in rows)
    pages = {name: Page(text).texts for name, text in files.items() if name.startswith("rack")}
    for row in rows:
        for rack in filter(None, (row["from_rack"], row["to_rack"])):
            assert pages[f"rack-{rack}.html"].count(row["label"]) == 1
    uplink = next(row for row in rows if row["kind"] == "uplink")
    assert (uplink["speed_gbps"], uplink["max_metres"], uplink["rail"]) == ("800", "30", "")
    cables = {row["kind"]: row["cable"] for row in rows}
    assert cables == {"host": "OSFP 2xDR4 (MPO-12)", "storage": "", "uplink": "AOC"}
    lanes = {(row["rail"], row["plane"]) for row in rows if row["kind"] == "host"}
    assert len(lanes) == 4


def test_the_list_of_any_model_agrees_with_it() -> None:
    count = 0
    for path in sorted((Path(__file__).parent / "data/models").glob("*.txt")):
        try:
            hosts = compiled(path.read_text(encoding="utf-8"))
        except model.ModelError:
            continue
        count += 1
        cables = [wire.cable for wire in wiring.wires_of(hosts)]
        ends = [end for cable in cables for end in cable[:2]]
        ports = [
            End(name, port)
            for name, own in hosts.items()
            for group in own.get("cluster_ports", ())
            for port in group["peers"]
        ]
        rails = [
            End(name, rail["interface"])
            for name, own in hosts.items()
            for rail in own.get("cluster_rails", ())
        ]
        assert len(ends) == len(set(ends)), path.name
        assert set(ends) >= {*ports, *rails}, path.name
        lines = [wire_map.Line(number, cable[:2]) for number, cable in enumerate(cables)]
        assert wire_map.compare(lines, cables).findings == [], path.name
    assert count > 20


def test_a_page_needs_no_other_file() -> None:
    files = wiring.files_of(WIRES, "small")
    for name, text in files.items():
        if name.endswith(".html"):
            page = Page(text)
            assert not {"script", "img", "link", "iframe"} & set(page.tags)
            assert set(page.addresses) <= files.keys()
            rows = [line.count("<td>") or line.count("<th>") for line in text.split("<tr>")[1:]]
            assert len(set(rows)) == (name != "index.html"), name


HOSTILE = "=cmd|'/C calc'!A0<script>alert(1)</script>&\""


def test_names_are_neither_markup_nor_formulas() -> None:
    """The model allows such names of ports only in part; nothing here depends on that."""
    cable = Cable(End("leaf01", HOSTILE), End("@node", "-rail0"), "host", 400, 9000)
    wires = [wiring.Wire(cable, ("r1", "r2"), 0, 0, 5)]
    files = wiring.files_of(wires, "<b>")
    for name in ("index.html", "rack-r1.html", "rack-r2.html"):
        assert not {"script", "b"} & set(Page(files[name]).tags)
    assert HOSTILE in Page(files["rack-r1.html"]).texts
    row = next(csv.DictReader(io.StringIO(files["cables.csv"])))
    assert (row["from_port"], row["to_host"]) == (f"'{HOSTILE}", "'@node")
    path_text = files["cables.csv"].encode()
    assert all(not cell.startswith(wiring.FORMULA) for cell in row.values())
    assert path_text.startswith(b"from_rack,")


def test_pages_stay_in_the_folder() -> None:
    cable = Cable(End("../leaf/1", "a"), End("node", "b"), "host", 400, 9000)
    files = wiring.files_of([wiring.Wire(cable, ("", "../../r1"), 0, 0, 5)], "x")
    assert sorted(files) == [
        *("cables.csv", "index.html", "rack-.._.._r1.html", "switch-.._leaf_1.html")
    ]


def read(tmp_path: Path, text: str | bytes) -> wire_map.WireMap:
    path = tmp_path / "wires.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return wire_map.compare(wire_map.read_lines(path), CABLES)


def brief(found: wire_map.WireMap) -> list[tuple[int | None, str, Any]]:
    return [(each.line, each.code, each.value) for each in found.findings]


def text_of(
    rows: list[tuple[str, ...]], header: str = "from_host,from_port,to_host,to_port"
) -> str:
    return "".join(f"{line}\n" for line in (header, *(",".join(row) for row in rows)))


def test_the_list_agrees_with_the_model(tmp_path: Path) -> None:
    found = read(tmp_path, wiring.csv_of(WIRES))
    assert (found.findings, found.agree, found.outside) == ([], len(CABLES), 0)


def test_cells_that_were_made_inert_are_read_as_they_were(tmp_path: Path) -> None:
    cable = Cable(End("leaf01", "-1"), End("node01", "=rail0"), "host", 400, 9000)
    path = tmp_path / "wires.csv"
    path.write_text(wiring.csv_of([wiring.Wire(cable, ("", ""), 0, 0, 5)]), encoding="utf-8")
    found = wire_map.compare(wire_map.read_lines(path), [cable])
    assert (found.findings, found.agree) == ([], 1)


HEADERS = (
    "from_host,from_port,to_host,to_port",
    "From Host;From Port;To Host;To Port",
    "Source Device,Source Port,Destination Device,Destination Port",
    "device_a\tinterface_a\tdevice_b\tinterface_b",
    "side_a_device,side_a_name,side_b_device,side_b_name",
    "Local Hostname,Local Interface,Remote Hostname,Remote Interface",
    "Switch,Switch Port,Server,Server Port",
    "host,port,peer,peer_port",
)


@pytest.mark.parametrize("header", HEADERS)
def test_common_headers(tmp_path: Path, header: str) -> None:
    delimiter = next(each for each in ",;\t" if each in header)
    lines = [header, *(delimiter.join(("x", *row, "note")) for row in ROWS)]
    lines[0] = delimiter.join(("No", header, "Remarks"))
    found = read(tmp_path, "\r\n".join(lines))
    assert (found.findings, found.agree) == ([], len(CABLES))


@given(st.permutations(ROWS), st.lists(st.booleans(), min_size=len(ROWS), max_size=len(ROWS)))
def test_order_direction_and_case_do_not_matter(
    rows: list[tuple[str, ...]], turned: list[bool]
) -> None:
    lines = [
        wire_map.Line(
            number,
            (End(a.upper() + ".example.net", b.upper()), End(c, d))
            if turn
            else (End(c, d), End(a, b)),
        )
        for number, ((a, b, c, d), turn) in enumerate(zip(rows, turned), 2)
    ]
    found = wire_map.compare(lines, CABLES)
    assert (found.findings, found.agree) == ([], len(CABLES))


def test_swapped_cables_are_one_finding_with_both_lines(tmp_path: Path) -> None:
    rows = list(ROWS)
    first, second = rows[0], rows[3]
    rows[0], rows[3] = (*first[:2], *second[2:]), (*second[:2], *first[2:])
    found = read(tmp_path, text_of(rows))
    assert [(line, code) for line, code, _value in brief(found)] == [(2, "wire_map.other_cable")]
    assert "line 5" in found.findings[0].problem
    assert found.agree == len(CABLES) - 2


def test_a_cable_in_the_place_of_another(tmp_path: Path) -> None:
    """The line of the other cable is missing: both ends of the present one are named."""
    rows = [(*ROWS[0][:2], *ROWS[3][2:]), *ROWS[1:3], *ROWS[4:]]
    found = read(tmp_path, text_of(rows))
    value = (" ".join(ROWS[0][:2]), " ".join(ROWS[3][2:]))
    assert brief(found) == [(2, "wire_map.other_cable", value)]


def test_missing_cables_by_switch(tmp_path: Path) -> None:
    kept = [row for row in ROWS if row[0] != "leaf02" or row[2] == "spine02"][1:]
    found = read(tmp_path, text_of(kept))
    assert brief(found) == [
        (None, "wire_map.missing", ("leaf01", 1)),
        (None, "wire_map.missing", ("leaf02", 4)),
    ]


def test_unknown_ends_and_ends_of_two_cables(tmp_path: Path) -> None:
    a, _port, c, d = ROWS[0]
    rows = [
        (a, "swp99", c, d),
        (*ROWS[1][:2], "nod02", "rail0"),
        *ROWS[2:],
        (*ROWS[2][:2], c, d),
        ("sw-mgmt", "1", a, "eth0"),
        ("pdu1", "1", "pdu2", "2"),
    ]
    found = read(tmp_path, text_of(rows))
    last = len(ROWS) + 1
    assert brief(found) == [
        (2, "wire_map.unknown_port", (a, "swp99")),
        (3, "wire_map.unknown_host", "nod02"),
        (last + 1, "wire_map.twice", End(*ROWS[2][:2])),
    ]
    assert found.outside == 2


@pytest.mark.parametrize("preface", ["", "sep=;\r\n", "# a, b, c, d, e\n\n", "\n"])
def test_lines_of_both_ends_after_a_preface(tmp_path: Path, preface: str) -> None:
    """Exports of LLDP and of interfaces have a line for each end of a cable."""
    rows = [*ROWS, *((c, d, a, b) for a, b, c, d in ROWS)]
    found = read(tmp_path, (preface + text_of(rows).replace(",", ";")).encode())
    assert (found.findings, found.agree) == ([], len(CABLES))


def test_similar_names_are_searched_for_some_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(wire_map, "_NEAREST", 2)
    monkeypatch.setattr(wire_map, "nearest", lambda name, _known: searched.append(name) or name)
    rows = [(*row[:2], f"n{number // 2}", "rail0") for number, row in enumerate(ROWS[:8])]
    found = read(tmp_path, text_of(rows))
    remedies = [each.remedy for each in found.findings if each.code == "wire_map.unknown_host"]
    assert searched == ["n0", "n1"]
    assert (remedies[:4], len({*remedies[4:]})) == (["n0", "n0", "n1", "n1"], 1)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (b"\xff\xfef\x00r\x00", "wire_map.file", None),
        (b"from_host,\0", "wire_map.file", None),
        (b"", "wire_map.empty", 1),
        (b"\n\n# only a comment\n", "wire_map.empty", 1),
        (b"from_host,to_host\na,b\n", "wire_map.header", 1),
        (b"# site A\nfrom_host,from_port,to_host,to_port\na,b,c\n", "wire_map.cell", 3),
        (b"from_host,from_port,to_host,to_port\na,,c,d\n", "wire_map.cell", 2),
        (
            b"from_host,from_port,to_host,to_port\na," + b"b" * 201 + b",c,d\n",
            "wire_map.cell",
            2,
        ),
        (
            b"from_host,from_port,to_host,to_port\n" + b"b" * 200_000 + b",c,d\n",
            "wire_map.csv",
            2,
        ),
        (b'from_host,from_port,to_host,to_port\n"a,b,c,d\na,b,c,e\n', "wire_map.csv", 3),
    ],
)
def test_a_file_that_is_no_wire_map(
    tmp_path: Path, text: bytes, code: str, line: int | None
) -> None:
    with pytest.raises(wire_map.WireMapError) as error:
        read(tmp_path, text)
    assert [(each.code, each.line) for each in error.value.findings] == [(code, line)]


def test_files_without_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_map, "MAX_BYTES", 100)
    monkeypatch.setattr(wire_map, "MAX_LINES", 3)
    for path in (Path("/dev/zero"), tmp_path, tmp_path / "none.csv"):
        with pytest.raises(wire_map.WireMapError) as error:
            wire_map.read_lines(path)
        assert error.value.findings[0].code == "wire_map.file"
    for rows, code in ((40, "wire_map.file"), (4, "wire_map.csv")):
        with pytest.raises(wire_map.WireMapError) as error:
            read(tmp_path, text_of([("a", "b", "c", "d")] * rows))
        assert error.value.findings[0].code == code


@given(st.text() | st.lists(st.text(",;'\"\n\r=-ab "), min_size=4).map(",".join))
def test_any_text_is_read_or_refused_in_printable_words(text: str) -> None:
    found: list[Any] = []
    lines = list(wire_map._lines(f"from_host,from_port,to_host,to_port\n{text}", found))
    said = [each.text() for each in [*found, *wire_map.compare(lines, CABLES).findings]]
    assert all(each.isprintable() for each in said), said


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "new/cabling"
    files = wiring.files_of(WIRES, "small")
    assert replace_folder(folder, files, wiring.NAMES, check_mode=True) == sorted(files)
    assert not folder.exists()
    assert replace_folder(folder, files, wiring.NAMES) == sorted(files)
    assert {path.name: path.read_bytes().decode() for path in folder.iterdir()} == files
    assert replace_folder(folder, files, wiring.NAMES) == []
    fewer = {name: text for name, text in files.items() if name != "rack-r02.html"}
    assert replace_folder(folder, fewer, wiring.NAMES) == ["rack-r02.html"]
    assert not (folder / "rack-r02.html").exists()
    (folder / "wires.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(FolderError):
        replace_folder(folder, files, wiring.NAMES)
    assert (folder / "wires.csv").read_text() == "mine"
    (folder / "wires.csv").unlink()
    with pytest.raises(FolderError):
        replace_folder(Path("a\0b"), files, wiring.NAMES)
    (folder / "rack-photos.html").mkdir()
    with pytest.raises(FolderError, match=r"rack-photos\.html"):
        replace_folder(folder, files, wiring.NAMES)
    assert (folder / "rack-photos.html").is_dir()
    assert [path.name for path in folder.parent.iterdir()] == ["cabling"]


def test_a_folder_that_cannot_be_written_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, files = tmp_path / "cabling", wiring.files_of(WIRES, "small")
    replace_folder(folder, files, wiring.NAMES)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="No space"):
        replace_folder(folder, {**files, "index.html": ""}, wiring.NAMES)
    assert {path.name: path.read_bytes().decode() for path in folder.iterdir()} == files
    assert [path.name for path in tmp_path.iterdir()] == ["cabling"]


@pytest.mark.parametrize(
    ("wired", "line"), [("node01 rail0", 2), ("node02 rail0", 3), ("node03 rail1", 4), ("", 0)]
)
def test_the_wire_map_says_which_of_model_and_cable_is_wrong(
    tmp_path: Path, wired: str, line: int
) -> None:
    fabric = Fabric()
    for here, other in (("Ethernet0", "node02"), ("Ethernet8", "node01")):
        neighbour = fabric.port("leaf01", here)["neighbour"]
        neighbour.update(system=other, port="rail0")
    rows = [("leaf09", "Ethernet0", "node09", "rail0")] * (line - 2)
    rows += [("leaf01", "Ethernet0", *wired.split())] if wired else [("x", "1", "y", "2")]
    path = tmp_path / "wires.csv"
    path.write_text(text_of(rows), encoding="utf-8")
    reason = next(
        check.reason
        for check in fabric.check(wire_map=path).checks
        if check.name == "link_neighbour" and check.status == "failed"
    )
    end = {
        "node01 rail0": ", as the model",
        "node02 rail0": ", as LLDP",
        "node03 rail1": "node03 rail1",
    }
    if wired:
        assert f"line {line} " in reason
        assert reason.endswith(end[wired])
    assert ("wire map" in reason) is bool(wired)


def test_lines_that_differ_from_lldp_and_model_are_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "wires.csv"
    rows = [
        ("leaf01", "Ethernet0", "node02", "rail0"),
        ("leaf01", "Ethernet8", "node01", "rail0"),
        ("leaf02", "Ethernet0", "node01", "rail1"),
    ]
    path.write_text(text_of(rows), encoding="utf-8")
    fabric = Fabric()
    assert fabric.failed(wire_map=path) == []
    (check,) = fabric.not_applicable(wire_map=path)
    assert (check.name, check.subject, check.found[:1]) == ("link_wire_map", "wire map", "2")
    for line in ("line 2: leaf01 Ethernet0", "line 3: leaf01 Ethernet8"):
        assert check.reason.count(line) == 1
    assert "line 4" not in check.reason


def killed(function: Callable[[], object], at: int) -> bool:
    """Whether `function` was killed in a child at its rename number `at`, from 0."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    rename, left = Path.rename, iter([False] * at)

    def fatal(path: Path, target: Path) -> Path:
        if next(left, True):
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    setattr(Path, "rename", fatal)  # noqa: B010  (mypy)
    try:
        function()
    finally:
        os._exit(0)


def test_a_killed_run_leaves_a_whole_folder_or_the_next_one_finds_it(tmp_path: Path) -> None:
    folder, other = tmp_path / "cables", tmp_path / ".cables.replaced-by-me"
    other.write_text("mine", encoding="utf-8")
    old, new = wiring.files_of(WIRES[:9], "old"), wiring.files_of(WIRES, "new")

    def found() -> dict[str, str]:
        return {path.name: path.read_bytes().decode() for path in folder.iterdir()}

    seen = []
    for at in range(4):
        replace_folder(folder, old, wiring.NAMES)
        seen.append(killed(lambda: replace_folder(folder, new, wiring.NAMES), at))
        assert not folder.exists() or found() in (old, new)
        if not folder.exists():
            assert replace_folder(folder, old, wiring.NAMES) == []
            assert found() == old
        replace_folder(folder, new, wiring.NAMES)
        assert found() == new
        assert sorted(tmp_path.iterdir()) == [other, folder]
    assert seen == [True, True, False, False]


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "cables"
    old, new = wiring.files_of(WIRES[:9], "old"), wiring.files_of(WIRES, "new")
    replace_folder(folder, old, wiring.NAMES)
    before = sorted(map(str, tmp_path.rglob("*")))

    def full(path: Path, *_others: object) -> None:
        if path.name == "switch-spine01.html":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(path, "")

    save = reports.save
    monkeypatch.setattr(reports, "save", full)
    with pytest.raises(OSError) as caught:
        replace_folder(folder, new, wiring.NAMES)
    assert caught.value.errno == errno.ENOSPC
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    assert (folder / "index.html").read_text(encoding="utf-8") == old["index.html"]


@pytest.mark.slow
def test_the_playbook_task(tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.yml"
    inventory.write_text(MODEL, encoding="utf-8")
    play = """\
- hosts: localhost,all
  gather_facts: false
  tasks:
    - baremetal.mpi_roce.fabric_cabling:
        directory: "{{ cabling_directory | default(omit) }}"
        wire_map: "{{ wire_map | default(omit) }}"
      run_once: true
"""
    assert run_play(tmp_path, play, inventory)[0] != 0
    folder = ("-e", "cabling_directory=cables")
    status, output = run_play(tmp_path, play, inventory, *folder, "--check")
    assert (status, "pages in" in output, "6 files to write" in output) == (0, False, True), output
    assert not (tmp_path / "cables").exists()
    status, output = run_play(tmp_path, play, inventory, *folder, "--limit", "leaf01")
    assert (status, "21 cables" in output) == (0, True), output
    status, output = run_play(
        tmp_path, play, inventory, *folder, "-e", "wire_map=cables/cables.csv"
    )
    assert (status, "changed=0" in output) == (0, True), output
    lines = (tmp_path / "cables/cables.csv").read_text(encoding="utf-8").splitlines()
    random.Random(1).shuffle(lines[1:])
    (tmp_path / "short.csv").write_text("\n".join(lines[:-1]), encoding="utf-8")
    status, output = run_play(tmp_path, play, inventory, "-e", "wire_map=short.csv")
    assert status != 0
    assert "1 error" in output

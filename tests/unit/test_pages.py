# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages of reports: what they say, what they refuse, and how large they are; without a browser."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import pages
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pages import (
    cards,
    figures,
    html,
    index,
    run,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pages.figures import Fabric, Fault
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import reports

from tests.unit import page_reports
from tests.unit.page_reports import HOSTILE, KINDS, poisoned

ALLOWED = {"html", "head", "meta", "title", "style", "body", "a", "header", "p", "nav", "main"}
ALLOWED |= {"h1", "h2", "h3", "span", "strong", "b", "ul", "li", "section", "div", "table", "td"}
ALLOWED |= {"caption", "thead", "tbody", "tr", "th", "pre", "code", "details", "summary", "small"}
ALLOWED |= {"figure", "figcaption", "svg", "rect", "line", "text", "polyline", "circle", "script"}
ALLOWED |= {"footer"}


class Shown:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def display(self, line: str) -> None:
        self.lines.append(line)

    def warning(self, line: str) -> None:
        self.warnings.append(line)


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _value in attrs}
        self.addresses += [str(value) for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def written(folder: Path, name: str, report: Any) -> Path:
    source = folder / f"{name}.json"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(json.dumps(report), encoding="utf-8")
    shown = Shown()
    page = pages.write(source, shown)
    assert (shown.lines, shown.warnings) == ([f"page: {page}"], [])
    return Path(page)


def test_equal_checks_of_hosts_are_one_object() -> None:
    shared = pages._Shared()
    check = {"name": "mtu", "status": "ok", "wanted": 1, "found": 1}
    first = shared.of({**check})
    assert shared.of({**check}) is first
    for other in ({**check, "found": True}, {**check, "found": "1"}, {**check, "reason": ""}):
        assert shared.of(other) is other, "it would show the value of another host"
    listed = {**check, "found": [1]}
    assert shared.of(listed) is listed
    assert shared.of({"name": "mtu"}) is not shared.of({"name": "mtu"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_lies_next_to_its_report_and_in_the_index(kind: str, tmp_path: Path) -> None:
    page = written(tmp_path / "c1", f"{kind}-1", KINDS[kind]())
    assert page == tmp_path / f"c1/{kind}-1.html"
    assert page.stat().st_mode & 0o777 == 0o640
    index = Parsed((tmp_path / "c1/index.html").read_text())
    assert index.addresses == ["#main", f"{kind}-1.html", f"{kind}-1.html"]
    found = Parsed(page.read_text())
    assert found.tags <= ALLOWED and "style" not in found.attributes
    assert {name for name in found.attributes if name.startswith("on")} == set()
    assert found.addresses == ["#main", "index.html", f"{kind}-1.json"]


def test_a_certificate_is_in_the_index_of_the_cluster(tmp_path: Path) -> None:
    written(tmp_path / "c1/certificates", "acceptance-1", KINDS["acceptance"]())
    found = Parsed((tmp_path / "c1/index.html").read_text()).addresses
    assert found[1] == "certificates/acceptance-1.html"
    page = Parsed((tmp_path / "c1/certificates/acceptance-1.html").read_text())
    assert "../index.html" in page.addresses


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_a_host_is_text(kind: str, tmp_path: Path) -> None:
    page = written(tmp_path, kind, poisoned(KINDS[kind](), HOSTILE)).read_text()
    found = Parsed(page)
    assert found.tags <= ALLOWED
    assert not {"\u202e", "\x1b"} & set(page)
    assert any("<script>stolen=1" in each for each in found.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_shortened(kind: str, tmp_path: Path) -> None:
    report = poisoned(KINDS[kind](), "y" * (1 << 14), keys=False)
    assert len(written(tmp_path, kind, report).read_text()) < 2 << 20
    assert (tmp_path / "index.html").stat().st_size < 1 << 20
    assert f"{kind}.html" in Parsed((tmp_path / "index.html").read_text()).addresses


@pytest.mark.parametrize(
    "odd", ["\u202ex", "\ud800\0", "9" * 5000, "\u00b2", '"&' * 5000, "</script>"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_odd_texts_is_written_and_in_the_index(
    kind: str, odd: str, tmp_path: Path
) -> None:
    page = written(tmp_path, kind, poisoned(KINDS[kind](), odd))
    text = page.read_bytes().decode()
    charts = [each for each in Parsed(text).texts if each.startswith('[{"')]
    assert len(charts) == (kind in ("bench", "acceptance"))
    shown = text + "".join(each for chart in charts for each in strings(json.loads(chart)))
    assert not {"\0", "\u202e"} & set(shown)
    assert page.name in Parsed((tmp_path / "index.html").read_text()).addresses


def strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    for each in (
        found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    ):
        yield from strings(each)


def with_numbers(report: Any, number: Any) -> Any:
    if isinstance(report, dict):
        return {key: with_numbers(each, number) for key, each in report.items()}
    if isinstance(report, list):
        return [with_numbers(each, number) for each in report]
    return number if type(report) in (int, float) else report


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -5, 10**400, 1e308, 5e-324])
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_odd_numbers_is_written(kind: str, number: float, tmp_path: Path) -> None:
    page = written(tmp_path, kind, with_numbers(KINDS[kind](), number)).read_text()
    assert "NaN" not in page.partition('id="charts"')[2].partition("</script>")[0]
    assert f"{kind}.html" in Parsed((tmp_path / "index.html").read_text()).addresses


def test_a_run_of_no_host_and_one_that_failed_before_any_layer_have_a_page(tmp_path: Path) -> None:
    report = {"playbook": "site.yml", "layers": {}, "started": "2026-11-29T12:00:00"}
    found = Parsed(written(tmp_path, "none", report).read_text()).texts
    assert "Nothing verified." in found
    failed = {"localhost": "Compile the model: rails: 9 of 8"}
    found = Parsed(written(tmp_path, "early", {**report, "failed": failed}).read_text()).texts
    assert {"Failed.", *failed, *failed.values()} <= {each.strip() for each in found}


@pytest.mark.parametrize("content", ["{", "[]", '{"playbook": 1}', '{"kind": []}', "[" * 100_000])
def test_a_file_that_is_no_report_is_a_warning(content: str, tmp_path: Path) -> None:
    source, shown = tmp_path / "x.json", Shown()
    source.write_text(content)
    assert pages.write(source, shown) == ""
    assert len(shown.warnings) == 1 and shown.warnings[0].startswith("x.json: ")
    assert pages.write(tmp_path / "missing.json", shown) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_any_value_may_have_another_form(kind: str) -> None:
    report = KINDS[kind]()
    make = pages.kind_of(report)
    assert make
    for key in report:
        for wrong in (None, 7, "x", [], {}, [[1]], [{"x": 1}], {"a": {"b": [None], "status": []}}):
            title, body, summary = make({**report, key: wrong})
            assert title and body and summary["word"] and summary["kind"]


def test_a_finding_has_its_meaning_and_its_command(tmp_path: Path) -> None:
    report = KINDS["site"]()
    found = Parsed(written(tmp_path, "site", report).read_text()).texts
    holds, _otherwise = cards.meaning("rails", "rail_mtu")
    assert holds and holds in " ".join(found)
    command = "ansible-playbook site.yml -i inventories/c1 --tags rails --limit node02"
    assert command in found
    class_, word, sentence = run.Run(report).verdict()
    assert (class_, word) == ("bad", "Failed")
    assert {"node02", "node04"} <= set(re.findall(r"node\d+", sentence))


def test_a_run_that_left_something_out_says_so() -> None:
    report = page_reports.run(unreachable=False)
    hosts = report["layers"]["rails"]["hosts"]
    hosts["node02"]["checks"] = hosts["node01"]["checks"]
    for changed, expected in (({}, True), ({"left_out": {}}, False)):
        class_, _word, sentence = run.Run({**report, **changed}).verdict()
        assert class_ == "ok" and ("storage" in sentence) is expected
    for failing in ({"failed": {"node01": "x"}}, {"unverified": {"os": {"x": ["node03"]}}}):
        assert run.Run({**report, **failing}).verdict()[0] == "bad"
    assert run.Run({**report, "reboots": {"node01": ["os"]}}).verdict()[0] == "warn"
    assert run.Run({**report, "layers": {}}).verdict()[0] == "warn"


def test_a_page_names_lost_execution_nodes_as_text() -> None:
    report = {**page_reports.run(), "execution": {"lost": {"exec1": "<b>no answer</b>"}}}
    found = "".join(map(str, run.page(report)[1]))
    assert "exec1" in found and "&lt;b&gt;no answer" in found
    for odd in ([], {"lost": 3}, None):
        run.page({**report, "execution": odd})


def test_a_command_quotes_what_a_host_says(tmp_path: Path) -> None:
    report = page_reports.run(name="node{:02};reboot")
    found = " ".join(Parsed(written(tmp_path, "site", report).read_text()).texts)
    assert "--limit 'node02;reboot'" in found


@pytest.mark.parametrize(
    ("report", "class_", "shown"),
    [
        (page_reports.reboot(), "warn", ["○ left", "✓ verified", "✓ verified"]),
        (page_reports.reboot("failed"), "bad", ["✕ failed", "… not rebooted", "○ left"]),
        (
            page_reports.reboot(check_mode=True),
            "bad",
            ["… not rebooted", "… not rebooted", "○ left"],
        ),
    ],
)
def test_a_run_of_reboots_has_a_row_for_each_host(
    report: dict[str, Any], class_: str, shown: list[str], tmp_path: Path
) -> None:
    page = written(tmp_path, "reboot", report).read_text()
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page.partition("Reboots")[2])
    cells = {host: re.findall("<td[^>]*>(.*?)</td>", rest) for host, rest in rows[:3]}
    assert [cell[0] for cell in cells.values()] == shown
    for host, (_status, batch, took, reasons, done) in cells.items():
        own = report["rebooted"][host]
        seconds = own.get("seconds")
        assert batch == str(own["batch"] or "-") and done == html.escape(own["text"])
        assert took == (figures.shown(seconds, "s") if seconds else "-")
        assert reasons == "; ".join(own["reasons"])
    assert run.Run(report).verdict()[0] == class_
    assert "reboots: " in run.Run(report).verdict()[2]


def test_a_run_without_reboots_says_so(tmp_path: Path) -> None:
    report = {**page_reports.reboot(), "rebooted": {}}
    for name, made, expected in (("reboot", report, True), ("site", page_reports.run(), False)):
        assert ('id="reboots"' in written(tmp_path, name, made).read_text()) is expected


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        (8.8e-8, "GB/s", "88 B/s"),
        (0.0000393, "GB/s", "39.3 kB/s"),
        (0.25, "Gb/s", "250 Mb/s"),
        (0.0, "GB/s", "0 GB/s"),
        (1500.0, "us", "1.5 ms"),
        (241.4, "s", "4 min 1 s"),
        (1234567, "", "1,234,567"),
    ],
)
def test_a_figure_has_a_unit_of_its_size(number: float, unit: str, expected: str) -> None:
    assert figures.shown(number, unit) == expected
    assert html.NUMBER.fullmatch(expected)


@pytest.mark.parametrize("rows", [149, 151])
def test_a_table_says_how_many_rows_it_lacks(rows: int, tmp_path: Path) -> None:
    report = page_reports.drift()
    report["offenders"] = [{"part": f"cable {n}", "times": 2, "last": ""} for n in range(rows)]
    page = written(tmp_path, "drift", report).read_text()
    assert (cards.more(1) in page) is (rows > 150)


@pytest.mark.parametrize(
    ("layer", "name", "known"),
    [
        ("rails", "sysctl", True),
        ("rails", "rail_ecn_np", True),
        ("rails", "floor", True),
        ("rails", "no_such_check", False),
    ],
)
def test_meanings_are_found_in_the_layer_or_by_prefix(layer: str, name: str, known: bool) -> None:
    assert bool(cards.meaning(layer, name)[0]) is known


def test_a_faulty_cable_is_the_one_that_a_finding_names() -> None:
    cables = [["leaf01", "swp1", "spine01", "swp2"], ["leaf01", "swp2", "node01", "rail0"]]
    roles = {"leaf": ["leaf01"], "spine": ["spine01"], "compute": ["node01"]}
    for host, subject, expected in [
        ("leaf01", "leaf01 swp1 - spine01 swp2", {0}),
        ("node01", "rail0", {1}),
        ("leaf01", "swp2", {1}),
        ("node01", "swp2", set()),
    ]:
        drawn = Fabric({"roles": roles, "cables": cables})
        drawn.blame([Fault(host, subject, "wrong")])
        assert (set(drawn.faulty), set(drawn.bad_hosts)) == (
            expected,
            set() if expected else {host},
        )
    assert drawn.tiers() == [["spine01"], ["leaf01"]]
    assert drawn.groups() == {("leaf01",): ["node01"]}


def test_the_index_shows_the_course_of_each_figure(tmp_path: Path) -> None:
    for number, seconds in enumerate((10.0, 30.0, 20.0)):
        report = {**page_reports.run(), "started": f"2026-11-29T12:0{number}", "seconds": seconds}
        written(tmp_path, f"site-{number}", {**report, "started": report["started"] + ":00"})
    text = (tmp_path / "index.html").read_text()
    found = Parsed(text)
    assert found.addresses[1:] == ["site-2.html", *(f"site-{n}.html" for n in (2, 1, 0))]
    assert 'points="2.0,34.0 80.0,4.0 158.0,19.0"' in text
    assert "10 s to 30 s" in found.texts


def test_a_run_without_a_time_is_not_the_newest(tmp_path: Path) -> None:
    written(tmp_path, "dated", page_reports.run())
    written(tmp_path, "undated", {**page_reports.run(), "started": None})
    found = Parsed((tmp_path / "index.html").read_text()).addresses
    assert found[1:] == ["dated.html", "dated.html", "undated.html"]


def test_the_index_lists_files_only(tmp_path: Path) -> None:
    page = written(tmp_path / "c2", "site", page_reports.run())
    folder = tmp_path / "c1"
    (folder / "folder.html").mkdir(parents=True)
    os.mkfifo(folder / "pipe.html")
    (folder / "gone.html").symlink_to(folder / "missing")
    (folder / "link.html").symlink_to(page)
    written(folder, "site", page_reports.run())
    assert Parsed((folder / "index.html").read_text()).addresses[1:] == ["site.html", "site.html"]


def test_the_index_has_the_page_of_a_run_that_ended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, others = index.page, ["other.html"]

    def meanwhile(folder: Path, cluster: str) -> str:
        made = make(folder, cluster)
        if others:
            (folder / others.pop()).write_text((folder / "site.html").read_text())
        return made

    monkeypatch.setattr(index, "page", meanwhile)
    written(tmp_path, "site", page_reports.run())
    assert "other.html" in Parsed((tmp_path / "index.html").read_text()).addresses


@pytest.mark.parametrize("full", ["site.html", "index.html"])
def test_a_page_that_cannot_be_written_leaves_the_old_one(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "site", page_reports.run())
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    replace, shown = Path.replace, Shown()

    def refuse(path: Path, target: Path) -> Path:
        if target.name == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    page = pages.write(tmp_path / "site.json", shown)
    what = {"site.html": "its page", "index.html": "the index of runs"}[full]
    assert shown.warnings[0].startswith(f"site.json: {what} was not written")
    assert "No space left" in shown.warnings[0] and full in shown.warnings[0]
    assert bool(page) is (full == "index.html")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_reports_of_one_second_are_two(tmp_path: Path) -> None:
    made = {reports.keep(tmp_path, "bench", {"run": at}, Shown(), "x") for at in range(2)}
    assert sorted(json.loads(Path(each).read_text())["run"] for each in made) == [0, 1]


def test_a_hostile_summary_in_a_page_does_not_break_the_index(tmp_path: Path) -> None:
    for number, content in enumerate(['{"kind": "x", "figures": [1]}', "[]", "{", "[" * 9000]):
        head = f'<meta name="{html.SUMMARY}" content="{html.escape(content)}"/>'
        (tmp_path / f"{number}.html").write_text(head)
    written(tmp_path, "site", page_reports.run())
    assert len(Parsed((tmp_path / "index.html").read_text()).addresses) == 1 + 2 + 2


def test_the_plotting_library_is_the_one_that_was_published() -> None:
    about = json.loads(html.asset("echarts.json"))
    content = (html.ASSETS / "echarts.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == about["sha256"]
    assert about["licence"] == "Apache-2.0" and (html.ASSETS / "echarts.LICENSE.txt").is_file()
    assert not re.search(rb"</script|<!--", content)

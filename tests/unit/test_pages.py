# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages of reports: what they say, what they refuse, and how large they are; without a browser."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import pages
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pages import cards, html, run
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pages.figures import Fabric, Fault

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
        for wrong in (None, 7, "x", [], {}, [[1]], [{"x": 1}], {"a": {"b": [None]}}):
            title, body, summary = make({**report, key: wrong})
            assert title and body and summary["word"]


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


def test_a_command_quotes_what_a_host_says(tmp_path: Path) -> None:
    report = page_reports.run(name="node{:02};reboot")
    found = " ".join(Parsed(written(tmp_path, "site", report).read_text()).texts)
    assert "--limit 'node02;reboot'" in found


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

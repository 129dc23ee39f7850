# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages of reports in a real browser: drawn without errors and requests, accessible, inert."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import bytes_text
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import pages
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pages import figures

from tests.browser import PROGRAM, Browser
from tests.unit import page_reports
from tests.unit.page_reports import HOSTILE, KINDS, poisoned
from tests.waiting import deadline

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="chromium is not installed"),
]
AXE = Path(__file__).parent / "data/axe/axe.min.js"
"""axe-core, MPL-2.0, from its npm package: rules of WCAG 2.2."""
LEFT = "document.querySelectorAll('.chart:not(:has(canvas))').length"
FINISHED = """new Promise(done => (function look() {
  LEFT ? setTimeout(look, 20) : requestAnimationFrame(() => setTimeout(() => done(1)));
})())""".replace("LEFT", LEFT)
"""Charts are drawn one after another."""
DRAWINGS = "[...document.querySelectorAll('canvas')].map(each => each.toDataURL())"
FOCUSABLE = """[...document.querySelectorAll('a, summary, [tabindex]')].filter(each =>
  each.checkVisibility() || each.className === 'skip')"""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
DRAWN = """[...document.querySelectorAll('.chart')].map(place => {
  const canvas = place.querySelector('canvas');
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
})"""
"""Numbers of colours in the charts."""
CUT = """[...document.querySelectorAll('caption span')].filter(each => each.checkVisibility() &&
  each.getBoundingClientRect().right > each.closest('.scroll').getBoundingClientRect().right
).map(each => each.textContent)"""
"""Captions of tables that a narrow screen cuts."""
OPEN = "document.querySelectorAll('details').forEach(each => each.open = true)"
SCALES = """[...document.querySelectorAll('svg[viewBox]')].map(each =>
  each.getBoundingClientRect().width / each.viewBox.baseVal.width)"""
"""Of drawings: text in them is as small as this."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of each kind, and one of each in which every text is hostile."""
    folder = tmp_path_factory.mktemp("c1")
    for kind, made in KINDS.items():
        hostile = poisoned(made(), HOSTILE)
        for name, report in ((kind, made()), (f"hostile-{kind}", hostile)):
            (folder / f"{name}.json").write_text(json.dumps(report))
            assert pages.write(folder / f"{name}.json")
    return folder


def quiet(browser: Browser, page: Path) -> None:
    assert (browser.logged, browser.requested) == ([], [page.as_uri()])


@pytest.mark.parametrize("name", [*KINDS, "index"])
def test_a_page_is_drawn_and_accessible_in_both_schemes_and_widths(
    name: str, browser: Browser, site: Path
) -> None:
    page = site / f"{name}.html"
    colours = set()
    for dark, width, checked in ((False, 1280, True), (False, 390, False), (True, 390, True)):
        browser.open(page, width, dark=dark)
        quiet(browser, page)
        size = browser.run("[document.documentElement.scrollWidth, innerWidth]")
        assert size == [width, width]
        assert browser.run(CUT) == []
        browser.run(OPEN)
        assert browser.run(CUT) == []
        assert all(scale > 0.95 for scale in browser.run(SCALES))
        assert browser.run("document.getAnimations().length") == 0
        browser.run(FINISHED)
        colours.add(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert all(count > 10 for count in browser.run(DRAWN))
        assert not checked or violations(browser) == []
    assert len(colours) == 2
    assert bool(browser.run("document.querySelectorAll('.chart').length")) == (
        name in ("bench", "acceptance")
    )


def violations(browser: Browser) -> Any:
    browser.run(AXE.read_text(encoding="utf-8") + "; 1")
    return browser.run(
        f"axe.run(document, {{runOnly: {json.dumps(RULES)}, resultTypes: ['violations']}})"
        ".then(found => found.violations.map(each => [each.impact, each.id,"
        " each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"
    )


def test_a_phone_shows_what_was_found_and_desired(browser: Browser, site: Path) -> None:
    browser.open(site / "site.html", 390)
    seen = "[...document.querySelectorAll('.card thead th')].map(each =>"
    seen += " [each.textContent, each.getBoundingClientRect().right < innerWidth - 20])"
    assert browser.run(seen)[:4] == [[at, True] for at in ("hosts", "subject", "found", "desired")]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_does_nothing_and_fits(kind: str, browser: Browser, site: Path) -> None:
    page = site / f"hostile-{kind}.html"
    browser.open(page, 390)
    quiet(browser, page)
    assert browser.run("typeof stolen") == "undefined"
    assert browser.run("document.images.length") == 0
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert "<script>stolen=1" in browser.run("document.body.innerText")


def test_the_policy_stops_a_script_that_came_in(browser: Browser, site: Path) -> None:
    text = (site / "site.html").read_text()
    page = site / "changed.html"
    page.write_text(text.replace("</main>", "<script>stolen=1</script><b onclick='1'></b></main>"))
    browser.open(page)
    assert browser.run("typeof stolen") == "undefined"
    assert any("Content Security Policy" in each for each in browser.logged)


def cells(browser: Browser, caption: str) -> list[list[str]]:
    return browser.run(
        "[...[...document.querySelectorAll('caption')].find(each => each.textContent.startsWith("
        f"{json.dumps(caption)})).parentNode.rows].map(row => [...row.cells].map("
        "each => each.textContent))"
    )


def test_numbers_of_a_run_are_those_of_its_report(browser: Browser, site: Path) -> None:
    browser.open(site / "site.html")
    report = page_reports.run()
    head, *rows = cells(browser, "Each cell")
    assert head == ["hosts", "os", "rails"]
    for host, *shown in rows:
        for layer, cell in zip(head[1:], shown):
            checks = report["layers"][layer]["hosts"].get(host, {"checks": []})["checks"]
            counts = {check["status"]: 0 for check in checks}
            for check in checks:
                counts[check["status"]] += 1
            worst = "failed" if "failed" in counts else "ok" if "ok" in counts else ""
            assert str(counts.get(worst, "")) == "".join(filter(str.isdigit, cell)), (host, layer)
    assert cells(browser, "What restricts")[1:] == [
        ["simulated", "leaf01", "SONiC 4.2"],
        ["not done: storage", "storage01", "excluded by --limit"],
    ]
    tiles = browser.run("[...document.querySelectorAll('.tiles b')].map(each => each.textContent)")
    assert tiles[:3] == ["4", "18", "1"]
    assert browser.run("document.querySelectorAll('line.bad').length") == 1


def test_numbers_of_a_heat_map_are_those_of_the_certificate(browser: Browser, site: Path) -> None:
    browser.open(site / "acceptance.html")
    pairs = page_reports.certificate()["pairs"]
    names = [group[0] for group in pairs["groups"]]
    charts: list[dict[str, Any]] = browser.run(
        "JSON.parse(document.getElementById('charts').textContent)"
    )
    for rail, chart in zip(pairs["rails"], charts[::2]):
        matrix = pairs["rails"][rail]["gbits_s"]
        assert chart["xAxis"]["data"] == names
        found = {(row, column): rate for column, row, rate in chart["series"][0]["data"]}
        assert all(matrix[row][column] == rate for (row, column), rate in found.items())
        lost = [[row, column] for column, row in chart["series"][1]["data"]]
        assert lost == ([[0, 1]] if rail == "rail0" else [])
        assert len(found) + len(lost) == 30
        _head, *rows = cells(browser, f"{rail}: bandwidth of pairs")
        assert [row[0] for row in rows] == names
        shown = [[each.split()[0] for each in row[1:]] for row in rows]
        expected = [["-" if v is None else f"{v:.4g}" if v else "✕" for v in row] for row in matrix]
        assert shown == expected
    assert browser.run("document.querySelectorAll('line.bad').length") == 1


def test_numbers_of_a_benchmark_are_those_of_its_report(browser: Browser, site: Path) -> None:
    browser.open(site / "bench.html")
    charts = browser.run("JSON.parse(document.getElementById('charts').textContent)")
    sweeps = page_reports.benchmark()["sweeps"]
    assert len(charts) == len(sweeps)
    for at, (sweep, chart) in enumerate(zip(sweeps, charts)):
        key, unit = (
            ("latency_us", "us") if sweep["benchmark"] == "latency" else ("gbytes_s", "GB/s")
        )
        numbers = [row[key] for row in sweep["by_size"]]
        assert (chart["unit"], chart["yAxis"]["name"]) == (unit, unit)
        assert chart["series"][0]["data"] == numbers
        marks = [mark["yAxis"] for mark in chart["series"][0]["markLine"]["data"]]
        assert marks == ([45.0] if unit == "us" else [50.0, 45.0])
        rows = browser.run(
            f"[...document.querySelectorAll('figure')[{at}].querySelectorAll('tbody tr')]"
            ".map(row => [...row.cells].map(each => each.textContent))"
        )
        assert [size for size, _number in rows] == chart["xAxis"]["data"]
        assert [size for size, _number in rows] == [
            bytes_text(r["bytes"]) for r in sweep["by_size"]
        ]
        assert [number for _size, number in rows] == [figures.shown(n, unit) for n in numbers]


def test_numbers_of_drift_are_those_of_its_report(browser: Browser, site: Path) -> None:
    browser.open(site / "drift.html")
    report = page_reports.drift()
    (row, ignored), (offender,) = report["findings"], report["offenders"]
    tiles = browser.run("[...document.querySelectorAll('.tiles b')].map(each => each.textContent)")
    assert tiles == ["1", "1", "1", str(report["hosts"]["answered"])]
    shown = [str(row[key]) for key in ("host", "subject", "found", "desired")]
    assert cells(browser, "rail_mtu")[1:] == [shown]
    assert cells(browser, "Parts that")[1:] == [
        [offender["part"], str(offender["times"]), "2026-11-28 03:00"]
    ]
    assert [each[0] for each in cells(browser, "Findings that")[1:]] == [ignored["host"]]
    assert cells(browser, "Hosts that")[1:] == [
        [host, why] for host, why in report["hosts"]["silent"].items()
    ]


@pytest.mark.parametrize("name", ["acceptance", "bench"])
def test_a_printed_page_is_light(name: str, browser: Browser, site: Path) -> None:
    looks = []
    look = f"[getComputedStyle(document.body).color, ...{DRAWINGS}]"
    for dark in (False, True):
        browser.open(site / f"{name}.html", dark=dark)
        browser.run(FINISHED)
        looks.append(browser.run(look))
    browser.run("dispatchEvent(new Event('beforeprint')), 1")
    assert browser.run(look) == looks[0] != looks[1]
    browser.run("dispatchEvent(new Event('afterprint')), 1")
    browser.run(FINISHED)
    assert browser.run(look) == looks[1]


@pytest.mark.parametrize("name", [*KINDS, "index"])
def test_tab_reaches_all_in_the_order_of_the_page_and_is_seen(
    name: str, browser: Browser, site: Path
) -> None:
    browser.open(site / f"{name}.html", 390)
    expected = browser.run(f"[...{FOCUSABLE}].length")
    order = []
    for _step in range(expected):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        order.append(
            browser.run(
                f"[[...{FOCUSABLE}].indexOf(document.activeElement),"
                " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
            )
        )
    assert order == [[at, 3] for at in range(expected)]


def test_every_command_and_table_is_reached_by_keyboard(browser: Browser, site: Path) -> None:
    browser.open(site / "site.html")
    reached = browser.run(
        "(document.querySelectorAll('details').forEach(each => each.open = true),"
        " [...document.querySelectorAll('.scroll, pre, summary, a')].filter(each => {"
        " each.focus(); return document.activeElement !== each; }).map(each => each.outerHTML))"
    )
    assert reached == []


@pytest.mark.parametrize("made", [page_reports.large, page_reports.large_certificate])
def test_a_page_of_a_thousand_nodes_is_soon_written_and_opened(
    made: Callable[[int], dict[str, Any]], browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "site.json").write_text(json.dumps(made(1000)))
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    page = Path(pages.write(tmp_path / "site.json"))
    assert time.process_time() - began < deadline(20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB
    assert page.stat().st_size < 10 << 20
    source = f"addEventListener('DOMContentLoaded', () => {{ window.early = {LEFT}; }})"
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    seconds = browser.open(page)
    browser.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    charts = browser.run("document.querySelectorAll('.chart').length")
    assert browser.run("window.early") >= charts * 3 // 4  # shown before they are drawn
    assert charts or seconds < deadline(3)
    browser.run(FINISHED)
    quiet(browser, page)
    shown = "['.grid tbody tr', 'line.bad', '.chart'].map(each =>"
    shown += " document.querySelectorAll(each).length)"
    assert browser.run(shown) == ([3, 20, 0] if made is page_reports.large else [0, 1, 20])

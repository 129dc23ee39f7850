# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ClusterMAX's auditor: every check of the pinned version is answered, its wheels are pinned, and
its verdicts are text of a host."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import clustermax
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import AnswerError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.clustermax import (
    ANSWERS,
    Verdict,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/clustermax.md"
PINNED = json.loads((ROOT / "tests/unit/data/clustermax/checks.json").read_text(encoding="utf-8"))
NAMES = ("pass", *clustermax.CAUSES, "answered", "policy", "open")
KEYS = [key for keys in PINNED["checks"].values() for key in keys]
LOCK = (ROOT / "requirements/audit.txt").read_text(encoding="utf-8")


def declared() -> dict[str, set[str]]:
    """Names of the checks of each layer."""
    layers = {path.stem: path for path in (ROOT / "layers").glob("*.yml")}
    return {
        name: {
            check.strip(" `")
            for names in yaml.safe_load(path.read_text(encoding="utf-8")).get("checks", {})
            for check in names.split(",")
        }
        for name, path in layers.items()
    }


def test_every_check_of_the_pinned_version_is_answered() -> None:
    assert sorted(ANSWERS) == sorted(KEYS)
    assert f"clustermax=={PINNED['version']} " in LOCK and PINNED["sha256"] in LOCK
    assert f"version {PINNED['version']}," in PAGE.read_text(encoding="utf-8")
    assert all(answer.by or answer.open for answer in ANSWERS.values())


def test_the_answers_are_checks_of_the_layers() -> None:
    layers = declared()
    for key, answer in ANSWERS.items():
        for name in answer.by:
            layer, _dot, check = name.partition(".")
            assert layer in layers, (key, name)
            assert not check or check in layers[layer] | layers["any"], (key, name)


def test_the_page_has_the_answers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, begin, rest = text.partition("tests/unit/test_clustermax.py -->\n")
    _old, end, tail = rest.partition("<!-- end -->")
    new = head + begin + "\n".join(clustermax.page_rows()) + "\n" + end + tail
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(new, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == new
    rows = re.findall(r"^\| `([^`]+)` \|", text, re.M)
    assert rows == [*ANSWERS]


def answer(*rows: tuple[str, str, str]) -> dict[str, Any]:
    names = ("key", "verdict", "observed")
    return {"target": "container", "verdicts": [dict(zip(names, row)) for row in rows]}


CHECKS = {"os": {}, "rdma": {"acs_redirect": "failed", "acs_boot": "ok"}, "gpu": {"floor": "ok"}}
REPORT = {
    "layers": {
        layer: {
            "hosts": {
                host: {"checks": [{"name": name, "status": of} for name, of in checks.items()]}
                for host in ("node01", "node02")
            }
        }
        for layer, checks in CHECKS.items()
    }
}


def test_the_table_has_both_verdicts() -> None:
    found = {
        host: clustermax.read(
            host,
            answer(
                ("software.perf.installed", "pass", "True"),
                ("gpus.pcieAcs.enabled", "fail", "true"),
                ("securityVersions.docker.status", "warning", "observed version unknown"),
                ("storage.rwxStatus", "skipped", "n/a"),
                ("new.check", "fail", ""),
            ),
        )
        for host in ("node01", "node02")
    }
    statuses = clustermax.ours(REPORT)
    assert statuses["rdma.acs_redirect"] == {"failed": 2}
    assert statuses["any.floor"] == {"ok": 2}
    found_rows = clustermax.classified(found, statuses, set())
    head, titles, *rows, by_class, still = clustermax.lines(found_rows, found, statuses, "cmax")
    assert head.endswith("2 hosts: 4 fail, 2 warning, 2 pass, 2 skipped")
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    assert titles.split() == ["class", "verdict", "cmax", "on", "ours", "why"]
    ours = "rdma.acs_redirect failed, rdma.acs_boot ok"
    assert cells[0] == ["open", "fail", "gpus.pcieAcs.enabled", "node[01-02]", ours]
    assert cells[1][1:3] == ["fail", "new.check"] and "pinned version" in cells[1][-1]
    assert cells[2][1:] == [
        *("warning", "securityVersions.docker.status", "node[01-02]", "-"),
        ANSWERS["securityVersions.docker.status"].open,
    ]
    assert cells[3] == ["pass", "software.perf.installed", "node[01-02]", "layer os"]
    assert clustermax.counts(found_rows) == {**dict.fromkeys(NAMES, 0), "pass": 1, "open": 3}
    assert "1 pass" in by_class and "3 open" in by_class
    keys = ("gpus.pcieAcs.enabled", "new.check", "securityVersions.docker.status")
    assert still.endswith(f": {', '.join(keys)}")
    report = clustermax.as_report(found_rows, found, statuses)
    saved = {entry["key"]: entry for entry in report}
    assert saved["gpus.pcieAcs.enabled"]["ours"]["rdma.acs_redirect"] == {"failed": 2}
    assert saved["gpus.pcieAcs.enabled"]["hosts"]["node02"]["class"] == clustermax.OPEN
    assert saved["storage.rwxStatus"]["hosts"]["node02"] == {
        "verdict": "skipped",
        "observed": "n/a",
    }


GPU, NIC, HOST = clustermax.GPU, clustermax.NIC, clustermax.HOST
OPEN, POLICY = clustermax.OPEN, clustermax.POLICY
ANSWERED, EXPLAINED = clustermax.ANSWERED, clustermax.EXPLAINED
NHC = ANSWERS["healthChecks.nhcInstalled"].by


@pytest.mark.parametrize(
    ("key", "observed", "missing", "ours", "kind"),
    [
        ("gpus.pcieAcs.enabled", "unknown", {GPU}, {}, EXPLAINED),
        ("gpus.pcieAcs.enabled", "unknown", {NIC, HOST}, {}, OPEN),
        ("networking.hcaNamingValid", "devices=none", {NIC}, {}, EXPLAINED),
        ("networking.hcaNamingValid", "devices=none", {GPU, HOST}, {}, OPEN),
        ("software.perf.perfEventParanoid", "2", {HOST}, {}, EXPLAINED),
        ("software.perf.perfEventParanoid", "2", {GPU, NIC}, {}, OPEN),
        ("securityVersions.runc.status", "observed version unknown", {HOST}, {}, EXPLAINED),
        ("securityVersions.runc.status", "observed version unknown", set(), {}, OPEN),
        ("securityVersions.runc.status", "observed version 1.1.5", {HOST}, {}, OPEN),
        ("securityVersions.docker.status", "observed version 20.10.24", {HOST}, {}, OPEN),
        ("healthChecks.nhcInstalled", "False", {GPU, NIC, HOST}, {}, OPEN),
        ("healthChecks.nhcInstalled", "False", set(), dict.fromkeys(NHC, "ok"), ANSWERED),
        ("healthChecks.nhcInstalled", "False", set(), dict.fromkeys(NHC[1:], "ok"), OPEN),
        (
            *("healthChecks.nhcInstalled", "False", set()),
            {**dict.fromkeys(NHC, "ok"), NHC[-1]: "failed"},
            OPEN,
        ),
        ("access.sudoAvailable", "False", set(), {}, POLICY),
        ("containers.singularity", "False", {GPU, NIC, HOST}, {}, OPEN),
        ("access.externalIdp.detected", "False", {GPU, NIC, HOST}, {}, OPEN),
    ],
)
def test_every_class_has_its_fact(
    key: str, observed: str, missing: set[str], ours: dict[str, str], kind: str
) -> None:
    statuses = {name: Counter({status: 4}) for name, status in ours.items()}
    found = {"n": clustermax.read("n", answer((key, "fail", observed)))}
    [row] = clustermax.classified(found, statuses, missing)
    [name] = [name for name, count in clustermax.counts([row]).items() if count]
    assert row.kind == kind
    assert row.why == clustermax.CAUSES.get(name, ANSWERS[key].open.replace("`", ""))
    assert name == (ANSWERS[key].needs if kind == EXPLAINED else kind)
    found = {"n": clustermax.read("n", answer((key, "pass", observed)))}
    assert clustermax.classified(found, statuses, missing)[0].kind == clustermax.PASS


def test_one_host_with_a_version_keeps_a_check_open() -> None:
    key = "securityVersions.docker.status"
    values = {"node01": "observed version unknown", "node02": "observed version 20.10.24"}
    found = {host: clustermax.read(host, answer((key, "fail", of))) for host, of in values.items()}
    [row] = clustermax.classified(found, {}, {HOST})
    assert (row.kind, row.hosts) == (OPEN, ("node01", "node02"))


def test_what_a_node_lacks_is_read_within_limits() -> None:
    node = {"container": False, "gpus": 0, "rdma_nics": 8}
    assert clustermax.lacks("n", node) == {GPU}
    assert clustermax.lacks("n", {**node, "container": True, "rdma_nics": 0}) == {GPU, NIC, HOST}
    assert clustermax.lacks("n", {**node, "gpus": 8}) == set()
    assert clustermax.missing([{GPU, NIC}, {GPU, HOST}, {GPU}]) == {GPU}
    assert clustermax.missing([{GPU, NIC}, set()]) == clustermax.missing([]) == set()
    for wrong in ({"gpus": "0"}, {"gpus": -1}, {"rdma_nics": True}, {"container": "no"}):
        with pytest.raises(AnswerError):
            clustermax.lacks("n", {**node, **wrong})
    with pytest.raises(AnswerError):
        clustermax.lacks("n", {"gpus": 0})


def test_the_worst_status_is_shown() -> None:
    acs = ANSWERS["gpus.pcieAcs.enabled"]
    for status, others in (("failed", "ok"), ("pending", "not_applicable"), ("reboot", "ok")):
        found = {"rdma.acs_redirect": Counter({status: 1, others: 99})}
        shown = clustermax.own_verdict(acs, found)
        assert shown == f"rdma.acs_redirect {status}, rdma.acs_boot not run"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"verdicts": []},
        {"verdicts": [{"key": "a"}]},
        answer(("a b", "pass", "")),
        answer(("../a", "pass", "")),
        answer(("a", "PASS", "")),
        answer(*[("a", "pass", "")] * (clustermax.MOST_VERDICTS + 1)),
    ],
)
def test_another_form_is_refused(wrong: Any) -> None:
    with pytest.raises(AnswerError):
        clustermax.read("node01", wrong)


def test_what_a_host_observed_is_one_line() -> None:
    [verdict] = clustermax.read("n", answer(("a", "fail", "\x1b[2J{{ x }}\n" + "y" * 999)))
    assert isinstance(verdict, Verdict)
    assert "{" not in verdict.observed and "\x1b" not in verdict.observed
    assert len(verdict.observed) <= 200


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["layers", "hosts", "checks", "name", "status", "rdma", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_saved_report_can_be_read(report: Any) -> None:
    for key, counts in clustermax.ours(report).items():
        assert "." in key and sum(counts.values()) > 0

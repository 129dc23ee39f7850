# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/drift.yml in real runs, and the summary without ansible.cfg, as installed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit import test_cluster_verify as verify
from tests.unit.action_plays import ROOT, ansible, run_play
from tests.unit.small_model import MODEL

pytestmark = pytest.mark.slow
folder = verify.folder
SCHEMA = json.loads((ROOT / "docs/drift.schema.json").read_text(encoding="utf-8"))
RULE = {"check": "verified", "host": "compute", "reason": "new board", "until": "2999-01-01"}
NODES = "--limit=node01,node02,leaf01"


def run(
    folder: Path, *options: str, rules: object = (), **variables: object
) -> tuple[int, str, dict[str, Any]]:
    """Status, output and report of the plays of test_cluster_verify as a run of drift."""
    first, imported = yaml.safe_load((ROOT / "playbooks/drift.yml").read_text(encoding="utf-8"))
    assert imported["vars"] == {"verify_loads": False}
    play = yaml.safe_dump([first, *verify.plays()])
    given = json.dumps({"drift_ignore": list(rules) if rules == () else rules, **variables})
    rc, text = run_play(folder, play, folder / "hosts.ini", "-e", given, *options)
    saved = re.search(r"^report: (.+)$", text, re.MULTILINE)
    assert saved and Path(saved[1]).name.startswith("drift-2"), text
    report = json.loads((folder / saved[1]).read_text(encoding="utf-8"))
    jsonschema.validate(report, SCHEMA)
    return rc, text, report


def keys(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(each[k] for k in ("host", "layer", "check")) for each in report["findings"]]


def events(folder: Path) -> list[tuple[str, ...]]:
    lines = (folder / "reports/tiny/history/drift.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [
        (each["event"], each["host"], each["layer"]) for each in found if each["event"] != "run"
    ]


def test_drift_appears_once_is_ignored_by_rule_and_repaired(folder: Path) -> None:
    metrics = folder / "drift.prom"
    rc, text, report = run(folder, drift_textfile=str(metrics))
    assert (rc, report["verdict"], report["cluster"]) == (4, "incomplete", "tiny")
    assert set(report["hosts"]["silent"]) == {"node03", "login01"}
    assert (report["hosts"]["asked"], report["hosts"]["answered"]) == (4, 3)
    names = [("node01", "names", "verified"), ("node02", "names", "verified")]
    assert keys(report) == [*names, ("node02", "os", "unchanged")]
    last = report["findings"][-1]
    assert (last["subject"], last["found"], last["desired"]) == ("Task of os", False, True)
    command = "ansible-playbook site.yml -i hosts.ini --tags os --limit node02"
    assert (last["command"], last["part"], last["new"]) == (command, "node02", True)
    assert f"repair 3: {command}\n" in text and "\nSUMMARY" not in text
    samples = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines())
    assert samples['baremetal_drift_findings{layer="names"}'] == "2"
    assert samples['baremetal_drift_findings{layer="fabric"}'] == "0"
    assert samples["baremetal_drift_silent_hosts"] == "2"
    assert not any("hostfile" in name for name in samples)  # its only host was silent
    assert metrics.stat().st_mode & 0o777 == 0o644

    (folder / "node02").write_text("new", encoding="utf-8")
    metrics.unlink()
    rc, text, second = run(folder, NODES, rules=[RULE], drift_textfile=str(metrics))
    assert (rc, second["verdict"]) == (0, "no drift"), text
    assert keys(second) == names and not metrics.exists()  # not of the whole cluster
    for each in second["findings"]:
        assert (each["new"], each["since"]) == (False, report["started"])
        assert each["ignored"] == {"reason": "new board", "until": "2999-01-01"}
    appeared = [("found", host, layer) for host, layer, _check in keys(report)]
    assert events(folder) == [*appeared, ("repaired", "node02", "os")]

    rc, _text, third = run(folder, NODES, "--tags=os", rules=[{**RULE, "until": "2020-01-01"}])
    assert (rc, third["verdict"], third["findings"]) == (2, "drift", [])
    assert [rule["until"] for rule in third["expired"]] == ["2020-01-01"]
    assert len(events(folder)) == 4


def test_a_run_without_some_layers_writes_no_metrics(folder: Path) -> None:
    metrics = folder / "drift.prom"
    _rc, _text, report = run(folder, "--skip-tags=names", drift_textfile=str(metrics))
    assert keys(report) == [("node02", "os", "unchanged")] and not metrics.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drift_ignore", [{**RULE, "check": "verifed"}]),
        ("drift_ignore", "{{ lookup('pipe', 'id') }}"),
        ("drift_textfile", "drift.txt"),
        ("drift_textfile", "/\0/drift.prom"),
    ],
)
def test_an_invalid_setting_stops_the_run_before_any_host(
    folder: Path, name: str, value: object
) -> None:
    given = {"rules": value} if name == "drift_ignore" else {name: value}
    rc, text, report = run(folder, **given)
    assert (rc, report["verdict"], report["hosts"]["asked"]) == (2, "incomplete", 0)
    assert name in text and "uid=" not in text and "node01 " not in text
    assert not (folder / "reports/tiny/history/drift.jsonl").read_text(encoding="utf-8")


def test_an_installed_collection_shows_the_summary_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.delenv("ANSIBLE_CALLBACKS_ENABLED", raising=False)
    (tmp_path / "cluster.yml").write_text(MODEL, encoding="utf-8")
    path = tmp_path / "installed"

    def start(program: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(path)}
        return ansible(program, *words, cwd=tmp_path, **home, **more)

    done = start("ansible-galaxy", "collection", "install", "--offline", ROOT, "-p", path)
    assert done.returncode == 0, done.stdout + done.stderr
    words = ["-i", "cluster.yml", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=1"]
    for playbook, title in (("verify", "SUMMARY"), ("drift", "DRIFT")):
        done = start("ansible-playbook", f"baremetal.mpi_roce.{playbook}", *words, "--tags=names")
        assert done.returncode == 4 and done.stdout.count(f"\n{title} *") == 1, done.stdout
        assert f"report: reports/small/{playbook}-" in done.stdout
    words += ["--tags=names", "--limit=leaf01"]
    off = {"BAREMETAL_MPI_ROCE_SUMMARY": "no"}
    done = start("ansible-playbook", "baremetal.mpi_roce.verify", *words, **off)
    assert done.returncode == 2 and "\nSUMMARY *" not in done.stdout
    done = start("ansible", "localhost", "-i", "cluster.yml", "-m", "ansible.builtin.debug")
    assert done.returncode == 0 and "SUMMARY" not in done.stdout, done.stdout

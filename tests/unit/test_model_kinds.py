# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clusters with several launchers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.facts import build

from tests.unit.action_plays import ROOT, run_play
from tests.unit.small_model import MODEL, compiled, edited, refused

TWO = "[{name: login01, management: 10.0.0.10}, {name: login02, management: 10.0.0.20}]"


@pytest.mark.parametrize("key", ["launcher", "launchers"])
def test_several_launchers(key: str) -> None:
    inventory = compiled(edited(f"launcher; {key}: {TWO}"))
    launchers = [host for host in inventory.hosts if host.groups == ("launcher",)]
    assert [(host.name, host.variables["ansible_host"]) for host in launchers] == [
        ("login01", "10.0.0.10"),
        ("login02", "10.0.0.20"),
    ]
    directory = build({host.name: inventory.merged(host) for host in inventory.hosts})
    assert [each["name"] for each in directory if each["role"] == "launcher"] == [
        "login01",
        "login02",
    ]


def test_one_launcher_is_the_same_in_each_form() -> None:
    one = "{name: launcher01, management: 10.0.0.10}"
    forms = (MODEL, edited(f"launcher: [{one}]"), edited(f"launcher; launchers: [{one}]"))
    first, *others = map(compiled, forms)
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("edits", "findings"),
    [
        ("launcher", ["1 model.launchers launcher"]),
        ("launcher: []", ["9 model.launchers launcher"]),
        (f"launchers: {TWO}", ["10 model.launchers launchers"]),
        ("launcher: [{name: login01}]", ["9 model.missing_key launcher[0].management"]),
        ("launcher; launchers: []", ["9 model.launchers launchers"]),
        (
            "launcher: [{name: slots, management: 10.0.0.10}]",
            ["9 model.name_reserved launcher[0].name 'slots'"],
        ),
        (
            f"launcher; launchers: {TWO.replace('02', '01').replace('.20', '.10')}",
            [
                "9 model.name_taken launchers[1].name 'login01'",
            ],
        ),
        (
            f"launcher; launchers: {TWO.replace('.20', '.12')}",
            ["4 model.management_address_twice nodes.management_first ('10.0.0.12', 1, 'login02')"],
        ),
    ],
)
def test_wrong_launchers(edits: str, findings: list[str]) -> None:
    assert refused(edited(edits)) == findings


RUN = """\
- name: Cluster model
  ansible.builtin.import_playbook: {root}/playbooks/model.yml
  vars:
    model_needs: launcher
- name: Smoke test
  ansible.builtin.import_playbook: {root}/playbooks/smoke.yml
- name: Figures
  ansible.builtin.import_playbook: {root}/playbooks/bench.yml
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "runs", "told"),
    [
        ((), "login01", ""),
        (("--limit=!login01",), "login02", ""),
        (("-e", "mpi_job_launcher=login02"), "login02", ""),
        (("-e", "mpi_job_launcher=login03"), "", "'login03' is not a launcher"),
        (("-e", "mpi_job_launcher=login02", "--limit=login01"), "", "login02 is excluded"),
        (("--limit=node01",), "", "excludes login01, login02"),
    ],
)
def test_one_launcher_runs_it(
    tmp_path: Path, options: tuple[str, ...], runs: str, told: str
) -> None:
    """The plays of smoke and bench, in check mode, on this machine as every launcher."""
    model = edited(f"launcher; launchers: {TWO}")
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    site = tmp_path / "site"
    site.mkdir()
    (site / "cluster.yml").write_text(f"{model}vars: {{all: {local}}}\n", encoding="utf-8")
    _status, output = run_play(tmp_path, RUN.format(root=ROOT), site, "--check", *options)
    other = "" if "--limit=!login01" in options else {"login01": "login02"}.get(runs, "login01")
    assert output.count("would run mpirun") == bool(runs), output
    assert output.count("skipping: [") == 2 * bool(runs and other), output
    assert output.count(f"skipping: [{other}]") == 2 * bool(runs and other), output
    assert told in output

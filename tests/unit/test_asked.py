# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run with exit status 0 did everything that --tags and --limit requested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.action_plays import ROOT, ansible
from tests.unit.small_model import MODEL

pytestmark = pytest.mark.slow

IDLE = "nothing was done: "
# A playbook of an operator that imports playbooks of this collection.
THEIRS: list[dict[str, Any]] = [
    {"import_playbook": str(ROOT / "playbooks/model.yml")},
    {"import_playbook": str(ROOT / "playbooks/hostfile.yml"), "tags": ["nightly"]},
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tags": ["mine"],
        "tasks": [{"ansible.builtin.debug": {"msg": "theirs"}, "tags": ["inner"]}],
    },
]


def run(folder: Path, playbook: object, *options: str) -> tuple[int, str, dict[str, Any]]:
    (folder / "cluster.yml").write_text(MODEL, encoding="utf-8")
    done = ansible(
        "ansible-playbook",
        "-i",
        folder / "cluster.yml",
        playbook,
        *options,
        BAREMETAL_MPI_ROCE_REPORTS=str(folder / "reports"),
    )
    text = done.stdout + done.stderr
    saved = re.search(r"^report: (.+)$", text, re.MULTILINE)
    return done.returncode, text, json.loads((ROOT / saved[1]).read_text()) if saved else {}


def theirs(folder: Path, *more: dict[str, Any]) -> Path:
    path = folder / "theirs.yml"
    path.write_text(yaml.safe_dump([*THEIRS, *more]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("options", "given", "meant"),
    [
        (["--tags=rail", "--limit=node01"], "--tags rail", "rails"),
        (["--tags=names,hostfiel"], "--tags hostfiel", "hostfile"),
        (["--skip-tags=smok"], "--skip-tags smok", "smoke"),
    ],
)
def test_a_misspelt_tag_is_refused_before_any_play(
    options: list[str], given: str, meant: str, tmp_path: Path
) -> None:
    rc, text, _report = run(tmp_path, "site.yml", *options)
    assert rc == 2 and "PLAY [" not in text
    assert f"{given}: " in text and f"Did you mean {meant!r}?" in text


@pytest.mark.parametrize(
    ("playbook", "options", "lines"),
    [
        (
            "site.yml",
            ["--tags=hostfile", "--limit=node01"],
            ["not done: hostfile: its hosts (launcher01) are excluded by --limit node01"],
        ),
        (
            "playbooks/hostfile.yml",
            ["--limit=node01"],
            ["not done because of --limit node01: hostfile"],
        ),
        ("site.yml", ["--start-at-task=None"], []),
    ],
)
def test_a_run_that_does_nothing_fails(
    playbook: str, options: list[str], lines: list[str], tmp_path: Path
) -> None:
    rc, text, report = run(tmp_path, playbook, *options)
    assert rc == 2 and IDLE in text
    assert [line for line in text.splitlines() if line.startswith("not done")] == lines
    assert report.get("left_out", {}) == ({"hostfile": ["launcher01"]} if lines else {})


def test_tags_of_other_tools_are_accepted(tmp_path: Path) -> None:
    rc, text, _report = run(tmp_path, "site.yml", "--tags=always", "--skip-tags=notest")
    assert rc == 0 and IDLE not in text, text


def test_tags_of_plays_around_those_of_the_collection(tmp_path: Path) -> None:
    playbook = theirs(tmp_path)
    for tags in ("mine", "inner"):
        rc, text, _report = run(tmp_path, playbook, f"--tags={tags}")
        assert rc == 0 and '"msg": "theirs"' in text, text
    rc, text, _report = run(tmp_path, playbook, "--tags=nightly", "--limit=node01")
    assert rc == 2 and IDLE in text
    rc, text, _report = run(tmp_path, playbook, "--tags=nihgtly")
    assert rc == 2 and "Did you mean 'nightly'?" in text and "PLAY [" not in text


def test_a_tag_in_a_file_included_later(tmp_path: Path) -> None:
    tagged = [{"ansible.builtin.debug": {"msg": "deep"}, "tags": ["deep"]}]
    (tmp_path / "more.yml").write_text(yaml.safe_dump(tagged), encoding="utf-8")
    include = {"ansible.builtin.include_tasks": str(tmp_path / "more.yml"), "tags": ["always"]}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [include]}
    rc, text, _report = run(tmp_path, theirs(tmp_path, play), "--tags=deep")
    assert rc == 0 and '"msg": "deep"' in text, text


def test_a_tag_may_be_of_another_playbook(tmp_path: Path) -> None:
    others = theirs(tmp_path)
    rc, text, _report = run(tmp_path, "playbooks/names.yml", str(others), "--tags=mine")
    assert rc == 0 and '"msg": "theirs"' in text, text

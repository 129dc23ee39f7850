# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Through ansible-runner, as AWX and other portals start playbooks: the reported status is
correct.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ansible_runner
import pytest

TOP = Path(__file__).resolve().parents[2]


def run_model(tmp_path: Path, inventory: Path) -> ansible_runner.Runner:
    return ansible_runner.run(
        private_data_dir=str(tmp_path),
        playbook=str(TOP / "playbooks/model.yml"),
        inventory=str(inventory),
        envvars={
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        quiet=True,
    )


def test_the_reference_model_is_a_success_with_its_directory(tmp_path: Path) -> None:
    messages = run_model(tmp_path, TOP / "inventories/b300")
    assert (messages.status, messages.rc) == ("successful", 0)
    [result] = [
        event["event_data"]["res"]
        for event in messages.events
        if event["event"] == "runner_on_ok" and "total_slots" in event["event_data"]["res"]
    ]
    assert result["total_slots"] == 32


@pytest.mark.slow
@pytest.mark.parametrize("text", ["plugin: baremetal.mpi_roce.cluster\nnmae: x\n", ""])
def test_a_refused_model_is_a_failure(tmp_path: Path, text: str) -> None:
    model = tmp_path / "cluster.yml"
    model.write_text(text, encoding="utf-8")
    messages = run_model(tmp_path, model)
    assert messages.status == "failed"
    assert messages.rc != 0
    assert str(model) in messages.stdout.read()

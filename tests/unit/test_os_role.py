# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the role, and its check of time services."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.action_plays import ROOT, ansible

pytestmark = pytest.mark.slow

ROLE = ROOT / "roles/os_baseline"

PLAY = f"""\
- hosts: localhost
  connection: local
  gather_facts: false
  vars_files: [{ROLE}/vars/main.yml]
  tasks:
    - ansible.builtin.include_tasks: {ROLE}/tasks/clock.yml
"""

SYSTEMCTL = """\
#!/bin/sh
for pattern; do
  case $pattern in *.service) for unit in $ACTIVE; do
    # shellcheck disable=SC2254
    case $unit in $pattern) echo "$unit loaded active running A time service" ;; esac
  done ;; esac
done
"""


def looked(tmp_path: Path, active: str, *options: str) -> tuple[int, str]:
    """Exit status and output of the check with these active services."""
    program = tmp_path / "systemctl"
    program.write_text(SYSTEMCTL, encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    argv = ["ansible-playbook", "-i", "localhost,", *options, "play.yml"]
    done = ansible(
        *argv,
        cwd=tmp_path,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        ACTIVE=active,
        ANSIBLE_PYTHON_INTERPRETER=sys.executable,
    )
    return done.returncode, done.stdout + done.stderr


def test_distribution_s_time_service_is_accepted(tmp_path: Path) -> None:
    status, output = looked(tmp_path, "chrony.service systemd-timesyncd.service", "--check")
    assert status == 0, output


@pytest.mark.parametrize("rival", ["ntpsec.service", "ntpd.service", "phc2sys@eth0.service"])
def test_another_time_service_is_refused_by_name(tmp_path: Path, rival: str) -> None:
    status, output = looked(tmp_path, f"chrony.service {rival}", "--check")
    assert status != 0
    assert f"{rival} sets the clock of localhost" in output
    assert "os_baseline_time: false" in output


@pytest.mark.parametrize("roles", [["os_baseline", "mpi_stack"], ["mpi_stack"], ["rdma_verify"]])
def test_stale_facts_are_read_again_once(roles: list[str], tmp_path: Path) -> None:
    facts = ("ansible_distribution", "ansible_os_family", "ansible_pkg_mgr")
    former = {"cacheable": True, **dict.fromkeys(facts, "former")}
    plays: dict[str, list[dict[str, Any]]] = {"poison": [{"ansible.builtin.set_fact": former}]}
    plays["run"] = [task for role in roles for task in readings(role)]
    plays["run"].append({"ansible.builtin.assert": {"that": "ansible_facts.pkg_mgr != 'former'"}})
    for name, tasks in plays.items():
        play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
        play["vars"] = {"__rdma_verify_served": {"missing": ["perftest"]}}
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
        done = ansible(
            *f"ansible-playbook -i localhost, -c local {name}.yml".split(),
            cwd=tmp_path,
            ANSIBLE_CACHE_PLUGIN="jsonfile",
            ANSIBLE_CACHE_PLUGIN_CONNECTION=str(tmp_path / "facts"),
            ANSIBLE_PYTHON_INTERPRETER=sys.executable,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok=2    changed=0    unreachable=0    failed=0    skipped={len(roles) - 1}" in (
        done.stdout
    )


def readings(role: str) -> list[dict[str, Any]]:
    """Tasks of a role that read facts."""
    files = sorted((ROOT / f"roles/{role}/tasks").glob("*.yml"))
    tasks = [task for path in files for task in yaml.safe_load(path.read_text(encoding="utf-8"))]
    tasks += [task for outer in tasks for task in outer.get("block", [])]
    return [task for task in tasks if "ansible.builtin.setup" in task]

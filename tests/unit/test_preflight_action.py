# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action cluster_preflight in Ansible: unreadable hosts, keys, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit import software_sets
from tests.unit.action_plays import run_play

pytestmark = pytest.mark.slow

PLAY = """\
- hosts: away*
  gather_facts: false
  tasks:
    - baremetal.mpi_roce.cluster_preflight:
      register: preflight_read
- hosts: all
  gather_facts: false
  tasks:
    - baremetal.mpi_roce.cluster_preflight:
        read: preflight_read
      run_once: true
"""
NOTE = {
    "name": "node_busy",
    "subject": "",
    "wanted": "none",
    "found": "orted (7)",
    "status": "ok",
    "reason": "they delay it",
}


def play(tmp_path: Path, hosts: dict[str, dict[str, Any]], *options: str) -> tuple[int, str]:
    inventory = {"all": {"hosts": hosts, "vars": {"ansible_timeout": 5}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")
    return run_play(tmp_path, PLAY, tmp_path / "hosts.yml", *options)


def test_hosts_that_cannot_be_read_and_keys_are_findings_like_others(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, Any]] = {
        "away1": {"ansible_host": "127.0.0.1", "ansible_port": 1, "cluster_bmc": "10.9.0.9"},
        "away2": {"ansible_connection": "local", "ansible_python_interpreter": "/bin/false"},
    }
    hosts |= {f"node{n:02d}": {"preflight_read": {"checks": [NOTE]}} for n in range(1, 5)}
    for variables in hosts.values():
        variables["cluster_software"] = software_sets.software().as_variable()
        variables["cluster_rails"] = [{"interface": "rail0"}]
    for options in ((), ("--check",)):
        status, output = play(tmp_path, hosts, *options)
        assert status == 2, output
        assert "preflight: 6 hosts, 3 of what was found stops the first run" in output
        assert "STOPS  node_reached: away1" in output
        assert "Connection refused" in output
        assert "its BMC is 10.9.0.9" in output
        assert "STOPS  node_read: away2" in output
        assert "STOPS  repository_key rdma: the controller" in output
        assert "which cannot be read: No such file" in output
        assert "note  node_busy: node[01-04]" in output
        assert "unreachable=0" in output


def test_what_hpcx_needs_of_the_operator_is_asked_of_the_controller(tmp_path: Path) -> None:
    archive = {"distribution": "redhat9", "url": "https://x/hpcx.tbz", "sha256": "", "prefix": "/o"}
    mpi = {"provider": "hpcx", "archives": [archive], "mpi4py": "4.1.0", "wheels": "wheels"}
    node = {"preflight_read": {"checks": []}, "cluster_software": {"mpi": mpi}}
    status, output = play(tmp_path, {"node01": node})
    assert status == 2, output
    assert "STOPS  mpi_archive hpcx.tbz: the controller" in output
    assert "STOPS  mpi_wheel: the controller" in output
    archive["sha256"] = "0" * 64
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/mpi4py-4.1.0-cp39-cp39-manylinux_2_28_x86_64.whl").touch()
    status, output = play(tmp_path, {"node01": node})
    assert status == 0, output
    impi = {"version": "2021.18.1", "sha256": "0" * 64, "prefix": "/o"}
    mpi.update(provider="impi", archives=[], impi=impi)
    status, output = play(tmp_path, {"node01": node})
    assert status == 2 and "impi_rt-2021.18.1-*.whl" in output, output
    sources = {"prefix": "/o", "cuda": False, "builds": []}
    mpi.update(provider="source", impi=None, sources=sources, mpi4py="4.1.1")
    status, output = play(tmp_path, {"node01": node})
    assert status == 2 and "mpi4py-4.1.1-*.whl" in output, output


def test_notes_alone_stop_nothing(tmp_path: Path) -> None:
    status, output = play(tmp_path, {"node01": {"preflight_read": {"checks": [NOTE]}}})
    assert status == 0, output
    assert "preflight: 1 host, nothing of what was found stops the first run" in output
    assert "note  node_busy: node01" in output

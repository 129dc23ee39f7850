# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small cluster model for tests, what becomes of one, and what its directory says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.cluster_model import (
    Inventory,
    ModelError,
    compile_model,
    inventory_of,
    read,
)

ROOT = Path(__file__).resolve().parents[2]
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 2, ports: 64, management_first: 10.0.0.101}
launcher: {name: launcher01, management: 10.0.0.10}
"""
PLAY = """\
- name: The directory
  hosts: all
  gather_facts: false
  tasks:
    - name: Build it
      baremetal.mpi_roce.cluster_directory:
      run_once: true
"""


def compiled(text: str) -> Inventory:
    return inventory_of(compile_model(read("cluster.yml", text)))


def refused(text: str) -> list[str]:
    with pytest.raises(ModelError) as caught:
        compiled(text)
    return [finding.text() for finding in caught.value.findings]


def directory(place: Path) -> str:
    """What the play says of the inventory in this folder."""
    play = place / "play.yml"
    play.write_text(PLAY, encoding="utf-8")
    ran = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", place / "inventory", play],
        cwd=place,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "5000"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout + ran.stderr

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts that the layer names returns are those of Ansible's own setup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.modules import cluster_hosts


def test_facts_are_those_of_setup() -> None:
    filters = "gather_subset=!all,!min,distribution,pkg_mgr"
    command = [str(Path(sys.executable).with_name("ansible")), "localhost", "-c", "local"]
    answer = subprocess.run(
        [*command, "-m", "setup", "-a", filters], check=True, capture_output=True, text=True
    ).stdout
    facts = json.loads(answer.partition("=>")[2])["ansible_facts"]
    found = cluster_hosts.distribution_facts()
    assert found
    assert found == {key: facts[key] for key in found}


@pytest.mark.parametrize(
    ("identifier", "distribution"),
    [("Redhat", "RedHat"), ("Rocky", "Rocky"), ("Almalinux", "AlmaLinux")],
)
def test_el(monkeypatch, identifier, distribution) -> None:
    """As the library of modules names ID=rhel and ID=rocky."""
    monkeypatch.setattr(cluster_hosts, "get_distribution", lambda: identifier)
    monkeypatch.setattr(cluster_hosts, "get_distribution_version", lambda: "9.6")
    assert cluster_hosts.distribution_facts() == {
        "ansible_distribution": distribution,
        "ansible_distribution_version": "9.6",
        "ansible_distribution_major_version": "9",
        "ansible_os_family": "RedHat",
        "ansible_pkg_mgr": "dnf",
    }


def test_another_distribution_is_left_to_setup(monkeypatch) -> None:
    monkeypatch.setattr(cluster_hosts, "get_distribution", lambda: "Opensuse-leap")
    monkeypatch.setattr(cluster_hosts, "get_distribution_version", lambda: "15.6")
    assert cluster_hosts.distribution_facts() == {}

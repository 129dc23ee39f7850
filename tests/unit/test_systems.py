# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What nodes may run stands once, in software/distribution.py: roles and pages say the same."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.distribution import (
    DEBIAN,
    KNOWN,
    SYSTEMS,
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules.cluster_hosts import DISTRIBUTIONS

from tests.unit.action_plays import ROOT, run_play

EL = "RHEL, Rocky and AlmaLinux"


def known(text: str) -> list[str]:
    """The kinds of systems that a text must name, as it breaks lines."""
    words = " ".join(text.split())
    return [each for each in KNOWN.split("; ") if each in words]


def test_the_systems_are_named_in_a_sentence() -> None:
    named = [re.split(r" (?=\d)", each, maxsplit=1) for each in KNOWN.split("; ")]
    releases = [f"{kind} {each}" for kind, text in named for each in re.findall(r"[\d.]+", text)]
    assert releases == [each.title for each in SYSTEMS]


@pytest.mark.parametrize("table", ["software/distribution.py", "preflight/node.py"])
def test_tables_of_systems_are_not_older_than_half_a_year(table: str) -> None:
    """Read their sources again, add the new ones, and write the day next to them."""
    text = (ROOT / "plugins/module_utils" / table).read_text("utf-8")
    [day] = re.findall(r"(?:Sources were |ed6bee2 \()read on (\d{4}-\d\d-\d\d)", text)
    assert date.today() - date.fromisoformat(day) < timedelta(days=183)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "roles/os_baseline/README.md",
        "roles/os_baseline/meta/argument_specs.yml",
        "roles/shared_storage/README.md",
        "roles/rdma_stack/README.md",
    ],
)
def test_pages_name_all_systems(page: str) -> None:
    assert known((ROOT / page).read_text(encoding="utf-8")) == KNOWN.split("; ")


@pytest.mark.parametrize(
    "page", ["roles/nvidia_gpu/README.md", "roles/nvidia_gpu/meta/argument_specs.yml"]
)
def test_pages_of_the_driver_name_those_that_have_one(page: str) -> None:
    with_driver = {each.kind for each in SYSTEMS if each.driver is not None}
    wanted = [each for each in KNOWN.split("; ") if each.startswith(tuple(with_driver))]
    assert known((ROOT / page).read_text(encoding="utf-8")) == wanted


def test_the_role_os_baseline_takes_the_same_systems() -> None:
    variables = yaml.safe_load((ROOT / "roles/os_baseline/vars/main.yml").read_text("utf-8"))
    wanted: dict[str, list[str]] = {}
    for fact, family, _manager in DISTRIBUTIONS.values():
        for system in SYSTEMS:
            if fact.lower().replace("redhat", "rhel") in system.names:
                wanted.setdefault(fact, []).append(system.release)
                node = distribution_of(fact, system.release)
                assert (node.family == DEBIAN) == (family == "Debian")
    assert variables["__os_baseline_supported"] == wanted
    assert {name for system in SYSTEMS for name in system.names} == {
        fact.lower().replace("redhat", "rhel") for fact in wanted
    }


def test_virtual_nodes_report_systems_that_nodes_may_run() -> None:
    role = ROOT / "tests/bed/roles/virtual_nodes"
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text("utf-8"))
    choices = specs["argument_specs"]["main"]["options"]["virtual_nodes_release"]["choices"]
    found, releases = [], [""]
    for family in ("ubuntu", "el"):
        image = role / "files/image" / family
        for folder in (image, *(image / "usr/lib/virtual-node/releases").iterdir()):
            text = (folder / "usr/lib/os-release").read_text("utf-8")
            of = dict(line.split("=", 1) for line in text.splitlines() if line[0] != "#")
            version = of["VERSION_ID"].strip('"')
            found.append(distribution_of(of["ID"].strip('"'), version).system.title)
            assert folder in (image, folder.parent / version)
            releases += [version] if folder != image else []
            for other in folder.glob("etc/*-release"):
                assert version in other.read_text("utf-8")
    assert sorted(releases) == sorted(choices)
    assert found == ["Ubuntu 24.04", "Ubuntu 26.04", f"{EL} 9", f"{EL} 10"]


PLAY = f"""\
- hosts: all
  connection: local
  gather_facts: false
  vars_files: [{ROOT}/roles/os_baseline/vars/main.yml, {ROOT}/roles/mpi_stack/vars/main.yml]
  tasks:
    - ansible.builtin.set_fact:
        ansible_distribution: "{{{{ name }}}}"
        ansible_distribution_version: "{{{{ release }}}}"
        ansible_distribution_major_version: "{{{{ release | split('.') | first }}}}"
        ansible_os_family: "{{{{ family }}}}"
        cacheable: true
    - ansible.builtin.debug:
        msg: >-
          {{{{ inventory_hostname }}}}
          {{{{ dict(names=__mpi_stack_names, os=__os_baseline_packages) | to_json }}}} !
"""
NODES = {
    "ubuntu22": ("Ubuntu", "22.04", "Debian"),
    "ubuntu26": ("Ubuntu", "26.04", "Debian"),
    "rocky9": ("Rocky", "9.6", "RedHat"),
    "alma10": ("AlmaLinux", "10.1", "RedHat"),
    "rhel10": ("RedHat", "10.0", "RedHat"),
}
UBUNTU = {
    "packages": ["openmpi-bin", "python3-mpi4py", "python3-numpy", "libucx0", "ucx-utils"],
    "rdma_packages": ["ibverbs-providers"],
    "mca_file": "/etc/openmpi/openmpi-mca-params.conf",
    "bin_directory": "",
    "library_directory": "",
    "python_directory": "",
}
"""packages.ubuntu.com/resolute: openmpi-bin 5.0.10, libucx0 and ucx-utils 1.20.0."""


def el(python: str) -> dict[str, object]:
    """packages.fedoraproject.org/pkgs/mpi4py/python3-mpi4py-openmpi: EPEL 9 and 10."""
    return {
        "packages": ["openmpi", "python3-mpi4py-openmpi", "python3-numpy", "ucx", "ucx-ib"],
        "rdma_packages": ["libibverbs"],
        "mca_file": "/etc/openmpi-x86_64/openmpi-mca-params.conf",
        "bin_directory": "/usr/lib64/openmpi/bin",
        "library_directory": "/usr/lib64/openmpi/lib",
        "python_directory": f"/usr/lib64/python{python}/site-packages/openmpi",
    }


@pytest.mark.slow
def test_packages_and_paths_of_each_system(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    hosts = {name: dict(zip(("name", "release", "family"), of)) for name, of in NODES.items()}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    ended, said = run_play(tmp_path, PLAY, inventory)
    assert ended == 0, said
    shown = re.findall(r'"msg": "(\w+) (.+?) !"', said)
    found = {name: json.loads(text.replace("\\", "")) for name, text in shown}
    mpi = {name: each["names"] for name, each in found.items()}
    assert mpi == {
        **dict.fromkeys(("ubuntu22", "ubuntu26"), UBUNTU),
        "rocky9": el("3.9"),
        **dict.fromkeys(("alma10", "rhel10"), el("3.12")),
    }
    # zstd: ubuntu26.04/install.sh of NVIDIA/gpu-driver-container@bd20cb2f.
    tools = {"ethtool", "numactl", "pciutils"}
    for name, (_name, _release, family) in NODES.items():
        assert {*found[name]["os"]} == tools | ({"hwloc"} if family == "RedHat" else {"zstd"})

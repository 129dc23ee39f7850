# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""core/distribution.py is the only list of distributions: roles, specs and pages agree with it."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    DEBIAN,
    FACTS,
    FAMILIES,
    KNOWN,
    SYSTEMS,
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import doca_kernels
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (
    gpu_packages,
    rdma_packages,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import FROM

from tests.unit.action_plays import ROOT, run_play
from tests.unit.software_sets import KEYS, software

EL = "RHEL, Rocky and AlmaLinux"
NODES = [(FACTS[name], system.release) for system in SYSTEMS for name in system.ids]


def test_the_readme_names_all_systems() -> None:
    assert KNOWN in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_no_other_file_of_the_product_lists_releases() -> None:
    """A release number in code or in a role is a second list."""
    releases = re.compile(r"['\"](22\.04|24\.04|26\.04)['\"]|python3\.\d|el(9|10)\b(?!_)")
    folders = ("core", "gpu", "mpi", "os_baseline", "packages", "preflight", "rdma", "software")
    files = [path for name in folders for path in (ROOT / "plugins/module_utils" / name).glob("*")]
    files += (ROOT / "roles/os_baseline").glob("*/*.yml")
    code = {path: path.read_text("utf-8") for path in files if path.suffix in (".py", ".yml")}
    # Docstrings and comments give examples.
    bare = {
        path: re.sub(r'""".*?"""|#.*', "", text, flags=re.DOTALL) for path, text in code.items()
    }
    found = {path.name for path, text in bare.items() if releases.search(text)}
    assert found <= {"distribution.py"}


def test_the_table_is_not_older_than_half_a_year() -> None:
    """Read the sources again, add new releases, and write the date next to them."""
    text = (ROOT / "plugins/module_utils/core/distribution.py").read_text("utf-8")
    [day] = re.findall(r"Sources were read on (\d{4}-\d\d-\d\d)", text)
    assert date.today() - date.fromisoformat(day) < timedelta(days=183)


def test_the_sentence_has_every_system() -> None:
    assert f"Ubuntu 22.04, 24.04 and 26.04; {EL} 9 and 10; Debian 12" == KNOWN


def test_every_identifier_has_a_fact_and_a_family() -> None:
    assert {name for system in SYSTEMS for name in system.ids} == set(FACTS)
    assert {id(system.family) for system in SYSTEMS} == {id(family) for family in FAMILIES}


@pytest.mark.parametrize(
    ("release", "kernel"),
    [("9.6", "5.14.0-570.12.1.el9_6.x86_64"), ("10.1", "6.12.0-124.8.1.el10_1.x86_64")],
)
def test_almalinux_is_treated_as_rocky(release: str, kernel: str) -> None:
    alma, rocky, rhel = (distribution_of(x, release) for x in ("AlmaLinux", "Rocky", "RedHat"))
    assert alma.system is rocky.system
    assert alma.mpi == rocky.mpi
    assert {**alma.facts, "distribution": "Rocky"} == rocky.facts
    sets = [
        (
            rdma_packages(software(), node, KEYS, kernel),
            gpu_packages(software(), node, kernel, KEYS),
        )
        for node in (alma, rocky, rhel)
    ]
    assert sets[0] == sets[1] == sets[2]


@pytest.mark.parametrize(
    ("name", "release", "folders"),
    [
        ("Ubuntu", "24.04", ("ubuntu2404", "ubuntu24.04", "ubuntu2404")),
        ("RedHat", "9.6", ("rhel9", "rhel9", "el9.6")),
        ("AlmaLinux", "10.1", ("rhel10", "rhel10", "el10.1")),
    ],
)
def test_folders_in_repositories(name: str, release: str, folders: tuple[str, ...]) -> None:
    node = distribution_of(name, release)
    assert (node.cuda_folder, node.doca_folder, node.lustre_folder) == folders


@pytest.mark.parametrize(
    ("name", "release", "hpcx"),
    [
        ("Ubuntu", "24.04", "ubuntu24.04"),
        ("Debian", "12", "debian12"),
        ("RedHat", "9.6", "redhat9.6"),
        ("AlmaLinux", "9.6", "redhat9"),
    ],
)
def test_builds_of_hpcx(name: str, release: str, hpcx: str) -> None:
    assert hpcx in distribution_of(name, release).hpcx_names


def test_paths_of_open_mpi() -> None:
    for name, release in NODES:
        node = distribution_of(name, release)
        if node.family is DEBIAN:
            assert node.mpi.mca_file == "/etc/openmpi/openmpi-mca-params.conf"
            assert node.mpi.python_directory == node.mpi.bin_directory == ""
            continue
        python = {"9": "3.9", "10": "3.12"}[release]
        directory = f"/usr/lib64/python{python}/site-packages/openmpi"
        assert node.mpi.python_directory == directory
        assert node.mpi.mca_file == "/etc/openmpi-x86_64/openmpi-mca-params.conf"


def test_kernels_of_doca_are_those_of_the_systems() -> None:
    kernels = {system.kernel for system in SYSTEMS}
    assert {*doca_kernels.UBUNTU, *doca_kernels.SINCE} <= kernels


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.title)
def test_the_message_about_keys_names_each_system_with_a_repository(system) -> None:
    if system.cuda_key is None:
        assert system.title not in FROM["cuda"]
        return
    folder = distribution_of(system.ids[0], system.release).cuda_folder
    assert system.cuda_key.file in FROM["cuda"]
    assert folder.rstrip("0123456789") in FROM["cuda"]
    assert system.cuda_key.fingerprint in FROM["cuda"]


PLAY = f"""\
- hosts: all
  connection: local
  gather_facts: false
  vars_files: [{ROOT}/roles/os_baseline/vars/main.yml]
  tasks:
    - ansible.builtin.set_fact:
        ansible_distribution: "{{{{ name }}}}"
        ansible_distribution_version: "{{{{ release }}}}"
        cacheable: true
    - ansible.builtin.debug:
        msg: >-
          {{{{ inventory_hostname }}}} {{{{ __os_baseline_packages | join(' ') }}}}
          {{{{ __os_baseline_distribution.perf }}}} !
"""


@pytest.mark.slow
def test_the_role_os_baseline_takes_the_systems_of_the_table(tmp_path: Path) -> None:
    nodes = {f"n{index}": node for index, node in enumerate([*NODES, ("Fedora", "42")])}
    hosts = {host: {"name": name, "release": at} for host, (name, at) in nodes.items()}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    status, output = run_play(tmp_path, PLAY, inventory)
    packages = dict(re.findall(r'"msg": "(n\d+) (.+?) !"', output))
    *supported, refused = nodes
    perf = {"Debian": "linux-perf", "Ubuntu": "linux-tools-generic"}
    assert packages == {
        host: " ".join(
            [*distribution_of(*nodes[host]).family.base_packages, perf.get(nodes[host][0], "perf")]
        )
        for host in supported
    }
    assert status != 0
    assert refused not in packages
    assert f"Fedora 42 (x86_64): unsupported distribution; supported on x86_64: {KNOWN}" in (
        " ".join(output.replace("\\n", " ").split())
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What nodes may run stands once, in software/distribution.py: roles and pages say the same."""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parents[2]


def known(text: str) -> list[str]:
    """The kinds of systems that a text has to name, as it breaks lines."""
    words = " ".join(text.split())
    return [each for each in KNOWN.split("; ") if each in words]


def test_the_systems_are_named_in_a_sentence() -> None:
    assert KNOWN == ("Ubuntu 22.04, 24.04 and 26.04; RHEL, Rocky and AlmaLinux 9 and 10; Debian 12")


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

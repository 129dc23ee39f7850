# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernels for which DOCA's drivers are known to build, and the limits of the table."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.doca_kernels import (
    FAILS,
    UNKNOWN,
    doubt,
    verdict,
)

EL98 = "5.14.0-687.5.1.el9_8.x86_64"


@pytest.mark.parametrize(
    ("doca", "release", "found"),
    [
        ("3.2.1", "5.14.0-427.13.1.el9_4.x86_64", ""),
        ("3.2.1", "5.14.0-611.el9.x86_64", ""),
        # Azure/azhpc-images pull request 567, stackhpc/stackhpc-kayobe-config 2430.
        ("3.2.1", EL98, FAILS),
        ("3.2.2", "5.14.0-687.25.1.el9_8.x86_64", FAILS),
        ("3.2.3", "5.14.0-687.25.1.el9_8.x86_64", ""),
        ("3.2.10", EL98, ""),
        ("3.3.0", EL98, UNKNOWN),  # released in 2026-02, EL 9.8 in 2026-05
        ("3.3.0", "5.14.0-611.el9.x86_64", ""),
        ("3.2.3", "6.12.0-211.33.1.el10_2.x86_64", ""),
        ("3.2.2", "6.12.0-211.33.1.el10_2.x86_64", FAILS),
        ("3.2.1", "5.14.0-650.el9.x86_64", UNKNOWN),  # CentOS Stream
        ("3.2.3", "5.14.0-700.el9.x86_64", UNKNOWN),
        ("3.2.1", "6.8.0-79-generic", ""),
        ("3.2.1", "5.15.0-1083-azure", ""),
        ("3.2.1", "6.14.0-33-generic", UNKNOWN),
        ("3.2.1", "7.0.0-28-generic", UNKNOWN),  # HWE of 24.04: actions/runner-images issue 14203
        ("3.4.0", "7.0.0-14-generic", ""),
        ("3.2.1", "5.14.0-1042-oem", UNKNOWN),
        ("3.2.1", "5.15.0-300.163.18.el9uek.x86_64", UNKNOWN),
        ("3.2.1", "6.1.0-40-amd64", UNKNOWN),
    ],
)
def test_a_kernel_is_known_by_its_build(doca: str, release: str, found: str) -> None:
    assert verdict(doca, release) == found
    assert bool(doubt(doca, release)) is bool(found)


def test_a_doubt_names_both_and_the_way_out() -> None:
    for words in ("DOCA 3.2.1", EL98, "choose DOCA 3.2.3"):
        assert words in doubt("3.2.1", EL98)

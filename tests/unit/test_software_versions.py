# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions are compared as vendors number them, and matched where a number ends."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import matches
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.compatibility import older


@pytest.mark.parametrize(
    ("one", "other"),
    [("580.95.05", "580.105.08"), ("9", "10"), ("12.9", "12.10"), ("570.211.01", "580.65.06")],
)
def test_numbers_are_not_text(one: str, other: str) -> None:
    assert older(one, other)
    assert not older(other, one)
    assert not older(one, f"{one}.0") and not older(f"{one}.0", one)


@pytest.mark.parametrize(
    ("full", "wanted", "means"),
    [
        ("3:580.95.05-1.el9", "580.95.05", True),
        ("580.95.05-0ubuntu1", "580.95.05", True),
        ("580.95.05-0ubuntu1", "580", True),
        ("580.95.05-0ubuntu1", "95.05", False),
        ("580.95.051-1", "580.95.05", False),
        ("13.0.2-1", "13.0", True),
        ("13.01-1", "13.0", False),
        ("13.0~rc1-1", "13.0", False),
        ("13.0rc1-1", "13.0", False),
        ("3.2.0-123456-25.10.1-1", "3.2.0", True),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda13", True),
        ("2.28.3-1+cuda12.9", "2.28.3-1+cuda13", False),
        ("2.28.3-1+cuda130.0", "2.28.3-1+cuda13", False),
        ("5.14.0-570.12.1.el9_6", "5.14.0-570.12.1.el9_6", True),
        ("5.14.0-570.12.1.el9_60", "5.14.0-570.12.1.el9_6", False),
        ("4.4.1", "", True),
    ],
)
def test_a_version_of_the_set_fits_where_a_number_ends(full: str, wanted: str, means: bool) -> None:
    assert matches(wanted, full) is means

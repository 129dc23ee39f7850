# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions: what the set says against what a repository has, and Debian's order of them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.versions import (
    debian_compare,
)
from hypothesis import example, given
from hypothesis import strategies as st

VERSION = st.from_regex(r"([0-9]:)?[0-9][0-9a-zA-Z.+~]{0,6}(-[0-9a-zA-Z.+~]{1,4})?", fullmatch=True)


@given(VERSION, VERSION)
def test_order_is_antisymmetric(one, other):
    assert debian_compare(one, other) == -debian_compare(other, one)


@given(VERSION, VERSION, VERSION)
def test_order_is_transitive(one, two, three):
    low, middle, high = sorted((one, two, three), key=_key)
    assert debian_compare(low, middle) <= 0 <= debian_compare(high, middle)
    assert debian_compare(low, high) <= 0


def _key(version):
    import functools

    return functools.cmp_to_key(debian_compare)(version)


def test_a_number_is_compared_as_a_number():
    assert debian_compare("580.95.05", "580.95.5") == 0
    assert debian_compare("580.105.08", "580.95.05") == 1
    assert debian_compare("1:1.0", "2.0") == 1
    assert debian_compare("1.0~rc1", "1.0") == -1


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg on this machine")
def test_the_order_is_dpkgs_own():
    """Many pairs in one process: each dpkg by itself would take most of the time."""
    pairs = []

    @given(VERSION, VERSION)
    @example("1.0~", "1.0")
    @example("1.0-1", "1.0-1~1")
    @example("1.0a", "1.0+")
    @example("1.0.a", "1.0.")
    @example("0:1-0", "1")
    def collect(one, other):
        pairs.append((one, other))

    collect()
    script = "".join(
        f"if dpkg --compare-versions '{one}' lt '{other}'; then echo -1; "
        f"elif dpkg --compare-versions '{one}' gt '{other}'; then echo 1; else echo 0; fi\n"
        for one, other in pairs
    )
    told = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=True).stdout
    found = [str(debian_compare(one, other)) for one, other in pairs]
    wrong = [pair for pair, mine, theirs in zip(pairs, found, told.split()) if mine != theirs]
    assert wrong == []

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""rpm's order of versions: its laws, and rpm itself as the judge."""

from __future__ import annotations

import shutil
import subprocess
from functools import cmp_to_key

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import dnf_versions
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.dnf_versions import (
    compare,
    compare_part,
    parse,
)
from hypothesis import given, settings
from hypothesis import strategies as st

PARTS = st.text("0019aAbz._+~^", min_size=1, max_size=8)
EPOCHS = st.sampled_from(["", "0:", "1:", "3:", "12:"])
VERSIONS = st.builds(lambda epoch, one, two: f"{epoch}{one}-{two}", EPOCHS, PARTS, PARTS)


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("580.95.05-1.el9", "580.105.08-1.el9"),
        ("580.105.08-1.el9", "3:580.95.05-1.el9"),
        ("3:580.95.05-1.el9", "3:590.44.01-1.el9"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0-1", "1.0^git1-1"),
        ("1.0^git1-1", "1.0.1-1"),
        ("5.14.0-570.el9", "5.14.0-611.5.1.el9_7"),
        ("1.0a-1", "1.0.1-1"),
        ("1.0-9", "1.0-10"),
    ],
)
def test_versions_in_order(lower: str, higher: str) -> None:
    assert (compare(lower, higher), compare(higher, lower)) == (-1, 1)


@given(VERSIONS, VERSIONS)
def test_the_other_way_round_is_the_opposite(one: str, other: str) -> None:
    assert compare(one, other) == -compare(other, one)


@given(st.lists(VERSIONS.filter(lambda text: "^~" not in text), min_size=2, max_size=6))
def test_sorting_leaves_no_pair_out_of_order(found: list[str]) -> None:
    inner = sorted(found, key=cmp_to_key(compare))

    assert all(compare(one, two) <= 0 for one, two in zip(inner, inner[1:]))


@given(EPOCHS, st.text("0123456789.", min_size=1, max_size=8), PARTS)
def test_what_is_written_reads_the_same(epoch: str, version: str, release: str) -> None:
    text = str(parse(f"{epoch}{version}-{release}"))

    assert str(parse(text)) == text
    assert compare(text, f"{epoch}{version}-{release}") == 0


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed (apt-test.txt)")
@settings(max_examples=25)
@given(st.lists(st.tuples(PARTS, PARTS), min_size=40, max_size=40))
def test_rpm_itself_says_the_same(pairs: list[tuple[str, str]]) -> None:
    """Many pairs in one question: to start rpm is what takes the time."""
    calls = " ".join(f'print(rpm.vercmp("{one}", "{two}"), ";")' for one, two in pairs)
    argv = ["rpm", "--eval", f"%{{lua: {calls}}}"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert [int(one) for one in told.split(";") if one.strip()] == [
        compare_part(one, two) for one, two in pairs
    ]


def test_the_version_alone_has_neither_epoch_nor_release() -> None:
    assert dnf_versions.parse("3:580.95.05-1.el9").version == "580.95.05"

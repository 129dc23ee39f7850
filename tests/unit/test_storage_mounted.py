# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mountinfo: fields as they are written, stacks of mounts, and what lies where."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import mounted
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage_node import escape

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
25 22 0:5 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw
30 22 8:17 / /srv/ck rw,relatime shared:20 - xfs /dev/sdb1 rw,noquota
41 22 0:50 / /mnt/a rw,relatime shared:30 - autofs systemd-1 rw,fd=40,direct
42 41 0:51 / /mnt/a rw,relatime shared:31 - nfs4 s:/a rw,vers=4.2,hard
43 22 0:52 / /mnt/b rw,relatime shared:32 - autofs systemd-1 rw,fd=41,direct
44 42 0:53 / /mnt/a/in\\040side rw - tmpfs tmpfs rw
50 22 8:17 /jobs /mnt/c rw,relatime shared:20 - xfs /dev/sdb1 rw,noquota
not a line
60 22 0:60 / /mnt/nooptional rw master:1 propagate_from:2 - tmpfs none rw
"""
ALL = mounted.parse(TABLE)


def test_every_line_that_is_one():
    assert [each.identity for each in ALL] == [22, 25, 30, 41, 42, 43, 44, 50, 60]
    nfs = ALL[4]
    assert (nfs.parent, nfs.device, nfs.kind, nfs.source) == (41, "0:51", "nfs4", "s:/a")
    assert nfs.flags == ("rw", "relatime") and nfs.options == ("rw", "vers=4.2", "hard")
    assert ALL[6].point == "/mnt/a/in side"


def test_what_is_on_a_point_and_what_waits_there():
    assert mounted.on(ALL, "/mnt/a").source == "s:/a"
    assert mounted.trap(ALL, "/mnt/a").identity == 41
    assert mounted.on(ALL, "/mnt/b") is None and mounted.trap(ALL, "/mnt/b").identity == 43
    assert mounted.on(ALL, "/mnt") is None and mounted.trap(ALL, "/mnt/c") is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_mounts_the_upper_one_is_seen_in_whatever_order_they_are_told(order):
    lines = [
        "70 22 0:70 / /mnt/d rw - nfs4 old:/d rw",
        "71 70 0:71 / /mnt/d rw - nfs4 new:/d rw",
    ]
    found = mounted.parse("\n".join(lines[place] for place in order))
    assert mounted.on(found, "/mnt/d").source == "new:/d"


@pytest.mark.parametrize(
    ("path", "device", "inside"),
    [
        ("/srv/ck", "8:17", "/"),
        ("/srv/ck/deep/er", "8:17", "/deep/er"),
        ("/srv/ckx", "8:1", "/srv/ckx"),
        ("/", "8:1", "/"),
        ("/mnt/c/run", "8:17", "/jobs/run"),
    ],
)
def test_a_directory_as_a_place_on_a_device(path, device, inside):
    assert mounted.place(ALL, path) == (device, inside)


def test_below_is_by_whole_names():
    assert [each.point for each in mounted.below(ALL, "/mnt/a")] == ["/mnt/a/in side"]
    within = mounted.within
    assert within("/a/b", "/a") and within("/a", "/a") and within("/a", "/")
    assert not within("/ab", "/a")


@given(st.binary(max_size=60).filter(lambda raw: b"\0" not in raw))
def test_octal_escapes_are_undone(raw):
    text = raw.decode("utf-8", "surrogateescape")
    escaped = escape(text)
    assert not set(escaped) & set(" \t\n#")
    assert mounted.unescape(escaped) == text

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units of mounts: names as systemd makes them, and texts that it accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts as mounted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import with_header
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import units
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Lustre
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import (
    WantedMount,
    wanted_mounts,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage_node import escape, filesystem, nfs, served

GOLDEN = Path(__file__).parent / "golden/storage"
ANALYZE = shutil.which("systemd-analyze")
NFS_RDMA = filesystem(
    "datasets",
    nfs=nfs(version="4.1", transport="rdma", port=20049, connections=1),
    options=("ro", "nosuid"),
)
TEXTS = {
    "nfs_tcp": (filesystem(), "node01", "compute"),
    "nfs_rdma": (NFS_RDMA, "node01", "compute"),
    "bind": (served(options=("nosuid",)), "storage01", "storage"),
}


def wanted(case: str) -> WantedMount:
    fs, host, group = TEXTS[case]
    (only,) = wanted_mounts([fs], host, [group], 600)
    return only


def texts(of: WantedMount) -> dict[str, str]:
    return {name: with_header(text) for name, text in of.texts().items()}


@pytest.mark.parametrize("case", TEXTS)
def test_texts(case):
    shown = "".join(f"=== {name}\n{text}" for name, text in texts(wanted(case)).items())
    assert shown == (GOLDEN / f"units_{case}.txt").read_text()


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("case", [*TEXTS, "odd"])
def test_systemd_accepts_them(tmp_path, case):
    odd = WantedMount(filesystem(mount="/mnt/a-b/.d"), "s:/srv/a b", "nfs", ("hard",), 600)
    for name, text in texts(odd if case == "odd" else wanted(case)).items():
        (tmp_path / name).write_text(text)
    paths = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run([ANALYZE, "verify", *paths], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/mnt/checkpoints", "mnt-checkpoints"),
        ("/mnt//a/", "mnt-a"),
        ("/mnt/a-b", "mnt-a\\x2db"),
        ("/.hidden/.x", "\\x2ehidden-.x"),
        ("/mnt/a_b.c", "mnt-a_b.c"),
    ],
)
def test_names(path, name):
    assert units.unit_name(path, "mount") == f"{name}.mount"


def words(timeout_s: int = 600, **given) -> tuple[str, ...]:
    (only,) = wanted_mounts([filesystem(**given)], "node01", ["compute"], timeout_s)
    return only.options


def test_the_operator_s_options_replace_defaults():
    given = words(options=("timeo=100", "nosuid"))
    assert "timeo=600" not in given and given[-2:] == ("timeo=100", "nosuid")
    assert "retry=3" in words(180) and "retry=1" in words(5)
    lustre = {"type": "lustre", "source": "10.0.0.1@o2ib:/x"}
    defaults = ["noatime", "nosuid", "nodev", "user_xattr", "lazystatfs", "flock"]
    assert list(words(**lustre)) == defaults
    own = ("relatime", "nolazystatfs", "suid")
    assert words(**lustre, options=own) == ("nodev", "user_xattr", "flock", *own)
    assert words(**lustre, lustre=Lustre(flock=False))[-1] == "noflock"


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


def test_mounts_and_automount_points():
    assert [each.identity for each in ALL] == [22, 25, 30, 41, 42, 43, 44, 50, 60]
    nfs = mounted.on(ALL, "/mnt/a")
    assert (nfs.parent, nfs.device, nfs.kind, nfs.source) == (41, "0:51", "nfs4", "s:/a")
    assert nfs.flags == ("rw", "relatime") and nfs.options == ("rw", "vers=4.2", "hard")
    assert mounted.trap(ALL, "/mnt/a").identity == 41
    assert mounted.on(ALL, "/mnt/b") is None and mounted.trap(ALL, "/mnt/b").identity == 43
    assert mounted.on(ALL, "/mnt") is None and mounted.trap(ALL, "/mnt/c") is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_upper_mount_is_visible(order):
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
def test_a_directory_as_path_on_a_device(path, device, inside):
    assert mounted.place(ALL, path) == (device, inside)


def test_below_compares_whole_names():
    assert [each.point for each in mounted.below(ALL, "/mnt/a")] == ["/mnt/a/in side"]
    within = mounted.within
    assert within("/a/b", "/a") and within("/a", "/a") and within("/a", "/")
    assert not within("/ab", "/a")


@given(st.binary(max_size=60).filter(lambda raw: b"\0" not in raw))
def test_octal_escapes(raw):
    text = raw.decode("utf-8", "surrogateescape")
    escaped = escape(text)
    assert not set(escaped) & set(" \t\n#")
    assert mounted.unescape(escaped) == text

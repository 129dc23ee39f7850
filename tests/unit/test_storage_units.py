# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units of mounts: names as systemd makes them, and texts that it accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import with_header
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import units
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import MountUnit
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.wanted_mounts import (
    wanted_mounts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage_node import filesystem, nfs, served

GOLDEN = Path(__file__).parent / "golden/storage"
ESCAPE = shutil.which("systemd-escape")
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


def unit(case: str) -> MountUnit:
    fs, host, group = TEXTS[case]
    (only,) = wanted_mounts([fs], host, [group], 600)
    return only.unit


def texts(of: MountUnit) -> dict[str, str]:
    found = {of.mount: with_header(units.mount_text(of))}
    if not of.is_bind:
        found[of.automount] = with_header(units.automount_text(of))
    return found


@pytest.mark.parametrize("case", TEXTS)
def test_texts(case):
    shown = "".join(f"=== {name}\n{text}" for name, text in texts(unit(case)).items())
    assert shown == (GOLDEN / f"units_{case}.txt").read_text()


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("case", [*TEXTS, "odd"])
def test_systemd_accepts_them(tmp_path, case):
    odd = MountUnit("odd", "s:/srv/a b", "/mnt/a-b c%p/.d", "nfs", ("hard", "x=%n"), 600)
    for name, text in texts(odd if case == "odd" else unit(case)).items():
        (tmp_path / name).write_text(text)
    paths = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run([ANALYZE, "verify", *paths], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "-"),
        ("/mnt/checkpoints", "mnt-checkpoints"),
        ("/mnt//a/", "mnt-a"),
        ("/mnt/a-b", "mnt-a\\x2db"),
        ("/.hidden/.x", "\\x2ehidden-.x"),
        ("/mnt/a b", "mnt-a\\x20b"),
        ("/mnt/ä", "mnt-\\xc3\\xa4"),
        ("/mnt/a:b_c.d", "mnt-a:b_c.d"),
    ],
)
def test_names(path, name):
    assert units.escape_path(path) == name


_PARTS = st.text(
    st.characters(min_codepoint=1, max_codepoint=0x2FF, exclude_characters="/"), min_size=1
)


@pytest.mark.skipif(ESCAPE is None, reason="systemd-escape is not installed")
@settings(max_examples=60)
@given(st.lists(_PARTS.filter(lambda part: part not in (".", "..")), max_size=4))
def test_names_are_those_of_systemd(parts):
    path = "/" + "/".join(parts)
    told = subprocess.run(
        [ESCAPE, "-p", "--", path], capture_output=True, text=True, check=True
    ).stdout
    assert units.escape_path(path) == told.removesuffix("\n")


@given(st.lists(_PARTS.filter(lambda part: part not in (".", "..")), max_size=4))
def test_no_two_paths_have_one_name(parts):
    """A name leads back to its path."""
    raw = units.escape_path("/" + "/".join(parts)).encode()
    path = b"" if raw == b"-" else raw.replace(b"-", b"/").decode("unicode_escape").encode("latin1")
    assert path == "/".join(parts).encode()


def test_an_automount_point_waits_for_nothing():
    """Ordered after the network it would make a cycle; with a time limit a job would lose it."""
    text = units.automount_text(unit("nfs_tcp"))
    assert "After=" not in text and "Requires=" not in text
    assert "TimeoutIdleSec=0" in text and "WantedBy=remote-fs.target" in text


def test_a_server_that_refuses_often_does_not_cost_the_automount_point():
    """systemd ends it with `mount-start-limit-hit`, and what is under it is seen."""
    for text in texts(unit("nfs_tcp")).values():
        assert "\nStartLimitIntervalSec=0\n" in text.partition("[Mount]")[0].partition("[Auto")[0]


def test_a_mount_comes_after_rails_and_network_and_is_no_part_of_the_boot():
    text = units.mount_text(unit("nfs_tcp"))
    after = next(line for line in text.splitlines() if line.startswith("After="))
    assert after.split("=")[1].split() == [
        *("network-online.target", "remote-fs-pre.target", "baremetal-mpi-roce-rails.service"),
    ]
    assert "[Install]" not in text and "TimeoutSec=600" in text

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units of mounts: names as systemd makes them, and texts that it accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import with_header
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import units
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Lustre
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import (
    WantedMount,
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
    odd = WantedMount(filesystem(mount="/mnt/a-b/.d"), "s:/srv/a b", "nfs", ("hard", "x=%n"), 600)
    for name, text in texts(odd if case == "odd" else wanted(case)).items():
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


def words(timeout_s: int = 600, **given) -> tuple[str, ...]:
    (only,) = wanted_mounts([filesystem(**given)], "node01", ["compute"], timeout_s)
    return only.options


def test_options_of_the_operator_take_the_place_of_defaults():
    given = words(options=("timeo=100", "nosuid"))
    assert "timeo=600" not in given and given[-2:] == ("timeo=100", "nosuid")
    assert "retry=3" in words(180) and "retry=1" in words(5)
    lustre = {"type": "lustre", "source": "10.0.0.1@o2ib:/x"}
    assert words(**lustre) == (
        *("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs", "flock"),
    )
    assert words(**lustre, options=("relatime", "nolazystatfs", "suid")) == (
        *("nodev", "user_xattr", "flock", "relatime", "nolazystatfs", "suid"),
    )
    assert words(**lustre, lustre=Lustre(flock=False))[-1] == "noflock"

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mpirun of shells, former MPIs, and the prefixes of unpacked ones."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.unpacked import Former, Paths
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
    Sources,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (
    SoftwareError,
    read_software,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import dotted

PREFIXES = "opt/baremetal-mpi-roce"
HPCX = "/opt/baremetal-mpi-roce/hpcx-1-aa"


def node(root: Path, login: str = "", other: str = "", **more: Any) -> Node:
    def run(argv: Sequence[str], **_more: Any) -> Result:
        return Result(tuple(argv), 0, f"{login if '-lc' in argv else other}\n", "")

    return Node("mpi", root, run, None, "boot", uid=os.getuid(), gid=os.getgid(), **more)


@pytest.mark.parametrize(
    ("login", "other", "wrong"),
    [
        (f"A banner\n{HPCX}/ompi/bin/mpirun", "", []),
        ("/usr/local/bin/mpirun", "", ["login"]),
        (f"{HPCX}/ompi/bin/mpirun", "/usr/bin/mpirun", ["non-login"]),
        ("", "", ["login"]),
    ],
)
def test_another_mpirun_on_the_path_is_reported(
    tmp_path: Path, login: str, other: str, wrong: list[str]
) -> None:
    checks = Paths(f"{HPCX}/ompi/bin").verify(node(tmp_path, login, other)).checks
    assert [check.subject for check in checks if check.status == "failed"] == wrong
    checks = Paths(f"{HPCX}/ompi/bin").verify(node(tmp_path, login, other, check_mode=True)).checks
    assert [check.subject for check in checks if check.status == "pending"] == wrong


def test_a_former_mpi_is_removed_once_unused(tmp_path: Path) -> None:
    for name in ("hpcx-1-aa", "hpcx-2-bb", "other"):
        (tmp_path / "opt/baremetal-mpi-roce" / name / "ompi/bin").mkdir(parents=True)
    orted = tmp_path / "opt/baremetal-mpi-roce/hpcx-2-bb/ompi/bin/orted"
    (tmp_path / "proc/12").mkdir(parents=True)
    maps = tmp_path / "proc/12/maps"
    maps.write_text(f"7f0c r-xp 00000000 fe:00 131 {orted.parents[1]}/lib/libmpi.so.40\n")
    outcome = settle([Former(HPCX)], node(tmp_path))
    assert not outcome.changed and orted.parent.is_dir()
    assert [check.status for check in outcome.checks] == ["not_applicable"]
    maps.unlink()
    (tmp_path / PREFIXES / "impi-3-cc/bin").mkdir(parents=True)
    (tmp_path / PREFIXES / "source-cc.build").mkdir()
    shown = settle([Former(HPCX)], node(tmp_path, check_mode=True))
    assert shown.changed and orted.parent.is_dir()
    assert settle([Former(HPCX)], node(tmp_path)).changed
    assert sorted(each.name for each in (tmp_path / PREFIXES).iterdir()) == ["hpcx-1-aa", "other"]
    assert settle([Former("")], node(tmp_path)).changed
    assert [each.name for each in (tmp_path / PREFIXES).iterdir()] == ["other"]


def test_former_mpis_may_be_kept_but_not_leftovers(tmp_path: Path) -> None:
    for name in ("hpcx-1-aa", "source-cc", "source-dd.build", "hpcx-2-bb.part"):
        (tmp_path / PREFIXES / name).mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    assert settle([Former(HPCX, kept=True)], node(tmp_path)).changed
    assert {each.name for each in (tmp_path / PREFIXES).iterdir()} == {"hpcx-1-aa", "source-cc"}


ARCHIVE = {
    "distribution": "ubuntu24.04",
    "url": "https://mirror.example.net/hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz",
    "sha256": "ab" * 32,
}
WHEEL = {"version": "2021.18.1", "sha256": "cd" * 32}
SOURCES: dict[str, dict[str, Any]] = {
    "ucx": {"url": "https://mirror.example.net/ucx-1.19.0.tar.gz", "sha256": "ab" * 32},
    "openmpi": {"url": "https://mirror.example.net/openmpi-5.0.8.tar.bz2", "sha256": "cd" * 32},
}
BUILT = {"provider": "source", "sources": SOURCES, "mpi4py": "4.1.1"}


def built(**more: Any) -> Sources:
    sources = read_software({"mpi": BUILT, **more}).mpi.sources
    assert sources is not None
    return sources


def test_the_prefix_of_a_build_depends_on_its_inputs() -> None:
    plain = built()
    assert [one["name"] for one in plain.builds] == ["ucx", "openmpi"]
    assert plain == built(), "deterministic"
    assert not plain.cuda and not any("cuda" in option for option in plain.builds[1]["options"])
    changed = copy.deepcopy(BUILT)
    changed["sources"]["openmpi"]["options"] = ["--with-slurm"]
    gpu = {"driver": {"version": "580.95.05", "gpu": "H100"}, "cuda": "13.0"}
    gpu["repositories"] = {"cuda": {"key": "keys/cuda.asc", "key_sha256": ""}}
    with_cuda = built(**gpu)
    other = [built(mpi=changed), with_cuda, built(rdma={"source": "none"})]
    assert len({plain.prefix, *(one.prefix for one in other)}) == 4
    assert other[0].builds[1]["options"][-1] == "--with-slurm"
    assert with_cuda.cuda
    for one in with_cuda.builds:
        assert "--with-cuda=/usr/local/cuda" in one["options"]
    assert "--with-cuda-libdir=/usr/local/cuda/lib64/stubs" in with_cuda.builds[1]["options"]
    assert SoftwareSet.of(read_software({"mpi": BUILT}).as_variable()).mpi.sources == plain


def test_a_prefix_contains_the_checksum() -> None:
    wheel = read_software({"mpi": {"provider": "impi", "impi": WHEEL, "mpi4py": "4.1.1"}}).mpi.impi
    assert wheel and wheel.prefix == "/opt/baremetal-mpi-roce/impi-2021.18.1-cdcdcdcdcdcd"
    value = {"mpi": {"provider": "hpcx", "archives": [ARCHIVE], "mpi4py": "4.1.1"}}
    [archive] = read_software(value).mpi.archives
    assert archive.prefix == (
        "/opt/baremetal-mpi-roce/hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64-abababababab"
    )
    assert read_software({}).mpi.provider == "distribution"


@pytest.mark.parametrize(
    ("mpi", "wrong"),
    [
        ({"provider": "impi"}, [f"software.of_provider mpi.{key}" for key in ("impi", "mpi4py")]),
        (
            {"provider": "impi", "mpi4py": "4.1.1", "impi": {"version": "21", "sha256": ""}},
            ["model.wrong_form mpi.impi.version", "model.wrong_form mpi.impi.sha256"],
        ),
        (
            {"provider": "source", "archives": [ARCHIVE]},
            [f"software.of_provider mpi.{key}" for key in ("archives", "sources", "mpi4py")],
        ),
        (
            {"provider": "source", "sources": {"ucx": SOURCES["ucx"]}, "mpi4py": "4.1.1"},
            ["model.missing_key mpi.sources.openmpi"],
        ),
        (
            {**BUILT, "sources": {**SOURCES, "ucx": {"url": SOURCES["ucx"]["url"]}}},
            ["model.missing_key mpi.sources.ucx.sha256"],
        ),
        (
            {**BUILT, "sources": {**SOURCES, "ucx": {**SOURCES["ucx"], "options": ["a; b"]}}},
            ["model.wrong_form mpi.sources.ucx.options[0]"],
        ),
        (
            {"archives": [{**ARCHIVE, "sha256": "0", "url": "hpcx.tbz"}]},
            ["model.wrong_form mpi.archives[0].url", "model.wrong_form mpi.archives[0].sha256"],
        ),
    ],
)
def test_each_provider_has_its_keys(mpi: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(SoftwareError) as caught:
        read_software({"mpi": mpi})
    found = [f"{each.code} {dotted(each.path[1:])}" for each in caught.value.findings]
    assert found == wrong

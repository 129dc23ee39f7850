# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stand-ins are well-formed packages and provide what the layers install."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageSet,
    matches,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (
    gpu_packages,
    rdma_packages,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.bed.stand_ins import debian, debs, table
from tests.bed.stand_ins.package import File, Package
from tests.bed.stand_ins.rpms import batches
from tests.bed.stand_ins.versions import DOCAS, DRIVERS, FIRST, FLOATING, KERNELS, Driver
from tests.unit.programs import program

DISTRIBUTIONS = {"ubuntu": ("Ubuntu", "24.04"), "el": ("Rocky", "9.6")}
IN_IMAGES = {"python3-dnf-plugin-versionlock"}
"""Return the packages that the images of virtual nodes have in their repositories."""
ORIGINS = {"key": "keys/x.asc", "key_sha256": "0" * 64, "url": "file:///x/{distribution}"}


def wanted(family: str, driver: Driver, edition: str, release: str) -> list[PackageSet]:
    """Return what both layers install, from the software set that an edition provides."""
    cuda = ".".join(driver.cuda.split(".")[:2])
    software = read_software(
        {
            "rdma": {"source": "doca", "version": release},
            "driver": {"version": driver.version},
            "cuda": cuda,
            **{key: FLOATING[edition][key] for key in ("dcgm", "gdrcopy", "nccl")},
            "repositories": {"cuda": ORIGINS, "doca": ORIGINS},
        }
    )
    node = distribution_of(*DISTRIBUTIONS[family])
    keys = {"cuda": b"", "doca": b""}
    return [
        rdma_packages(software, node, keys),
        gpu_packages(software, node, KERNELS[family], keys),
    ]


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.version)
@pytest.mark.parametrize("release", [release.version for release in DOCAS])
def test_repositories_have_what_the_catalogue_asks_for(
    family: str, driver: Driver, release: str
) -> None:
    edition = "first" if driver is DRIVERS[0] else "all"
    repositories = table.repositories(family)[edition if release == DOCAS[0].version else "all"]
    there = [package for packages in repositories.values() for package in packages]
    for layer in wanted(family, driver, edition, release):
        for stage in layer.stages:
            for package in stage.packages:
                versions = [one.version for one in there if one.name == package.name]
                assert [one for one in versions if matches(package.version, one)] or (
                    package.name in IN_IMAGES
                ), package
        streams = {name for package in there for name in package.modular}
        assert {f"{one.module}:{one.stream}" for one in layer.streams} <= streams


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_every_dependency_is_in_a_repository_or_on_the_nodes(family: str) -> None:
    repositories = table.repositories(family)["all"]
    there = [package for packages in repositories.values() for package in packages]
    names = {package.name for package in there}
    names |= {word.split()[0] for package in there for word in package.provides}
    elsewhere = {"libibumad3", "libibumad"}
    for package in there:
        for relation in package.requires:
            choices = {choice.split()[0] for choice in relation.split("|")}
            assert choices & (names | elsewhere), (package.name, relation)


def test_a_deb_is_one_that_dpkg_reads(tmp_path: Path) -> None:
    package = Package(
        "nvidia-fabricmanager",
        "580.95.05-1",
        requires=("nvlsm (>= 2025.06.11)",),
        files={
            "/usr/bin/tool": File(b"#!/bin/sh\n", 0o755),
            "/usr/lib/x.so.1": File(link="x.so.2"),
            "/etc/settings": File(b"a\n"),
        },
        settings=("/etc/settings",),
        after="true",
    )
    (path,) = debs.build([package], tmp_path).values()
    fields = subprocess.run(
        ["dpkg-deb", "--field", path, "Package", "Version", "Depends"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert fields == (
        "Package: nvidia-fabricmanager\nVersion: 580.95.05-1\nDepends: nvlsm (>= 2025.06.11)\n"
    )
    subprocess.run(["dpkg-deb", "--raw-extract", path, tmp_path / "out"], check=True)
    assert (tmp_path / "out/usr/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/usr/lib/x.so.1").readlink() == Path("x.so.2")
    assert (tmp_path / "out/DEBIAN/conffiles").read_text() == "/etc/settings\n"


def test_open_mpi_of_doca_looks_for_everything_below_its_prefix() -> None:
    """Read the directory table of Debian's library: pointers to strings in front of it."""
    names = [
        b"/usr", b"/etc/openmpi", b"${prefix}/share/man", b"${libdir}/openmpi3",
        b"${prefix}/lib/x86_64-linux-gnu/openmpi/lib", b"/usr/lib/x86_64-linux-gnu/openmpi/lib",
        b"${prefix}/lib/x86_64-linux-gnu/openmpi/include",
    ]  # fmt: skip
    strings = b"\0" + b"\0".join(names) + b"\0"
    offsets = [strings.index(b"\0" + name + b"\0") + 1 for name in names]
    pointing = b"".join(struct.pack("<QQ", 8, offset) for offset in offsets)
    content = debian.relocated(strings + pointing, b"/usr/mpi/gcc/openmpi-4.1.9a1")
    assert len(content) == len(strings + pointing)
    pointers = struct.unpack(f"<{2 * len(names)}Q", content[len(strings) :])[1::2]
    found = [content[offset:].split(b"\0")[0].decode() for offset in pointers]
    assert found == [
        "/usr/mpi/gcc/openmpi-4.1.9a1", "${prefix}/etc", "${prefix}/etc", "${libdir}/openmpi",
        "${prefix}/lib", "/usr/mpi/gcc/openmpi-4.1.9a1/lib", "/usr/mpi/gcc/openmpi-4.1.9a1",
    ]  # fmt: skip


def test_doca_replaces_ubuntus_ucx_and_provides_it() -> None:
    def ucx(release: str) -> Package:
        packages = table.repositories("ubuntu")["all"][f"doca/{release}"]
        return next(package for package in packages if package.name == "ucx")

    assert "libucx0 (<< 1.20.0-1.20251022.03898fede.2510122)" in ucx("3.2.1").conflicts
    assert "libucx0 (= 1.20.0-1.20251022.03898fede.2510122)" in ucx("3.2.1").provides
    assert ucx("2.9.3").provides == ()


def test_the_same_package_is_the_same_bytes() -> None:
    package = Package("a", "1-1", files={"/usr/share/a": File(b"a")})
    again = Package("a", "1-1", files={"/usr/share/a": File(b"a")})
    assert debs.deb(package) == debs.deb(again)


def test_one_run_of_rpmbuild_makes_no_name_and_no_file_twice() -> None:
    every = [
        package
        for repositories in table.repositories("el").values()
        for packages in repositories.values()
        for package in packages
    ]
    for batch in batches(every):
        names = [package.name for package in batch]
        files = [path for package in batch for path in package.files]
        assert len(set(names)) == len(names)
        assert len(set(files)) == len(files)


def test_nvml_refuses_when_no_driver_is_loaded(tmp_path: Path) -> None:
    """It reads files of a node. Without them it behaves like the real library."""
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_bytes(table.nvml("580.95.05"))
    library = ctypes.CDLL(str(path))
    library.nvmlErrorString.restype = ctypes.c_char_p
    version = ctypes.create_string_buffer(80)
    assert library.nvmlInitWithFlags(0) == 9
    assert library.nvmlErrorString(9) == b"NVIDIA driver is not loaded"
    assert library.nvmlSystemGetNVMLVersion(version, 80) == 0
    assert version.value == b"13.580.95.05"
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == 1


def test_every_tool_says_that_it_is_a_simulation() -> None:
    for family in DISTRIBUTIONS:
        for repositories in table.repositories(family).values():
            for packages in repositories.values():
                for package in packages:
                    for path, file in package.files.items():
                        if file.mode & 0o111 and not file.link:
                            assert b"simulat" in file.content, (package.name, path)


def test_tools_replace_the_version_of_the_recorded_states() -> None:
    """node.py saves them with that of the first driver; the tools answer with the running one."""
    assert FIRST.version == program("tests/bed/stand_ins/content/stand_in.py").RECORDED

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of a set: names by family and branch, their order, and packages that must be absent."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    EL,
    SYSTEMS,
    Distribution,
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageSet,
    WantedPackage,
    matches,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    any_matches,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (
    MODULES,
    gpu_packages,
    rdma_packages,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.doca_kernels import (
    FAILS,
    UNKNOWN,
    doubt,
    verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import Mpi

from tests.bed.stand_ins import table
from tests.unit.software_sets import KEYS, software

GOLDEN = Path(__file__).parent / "golden" / "software_packages.json"
UBUNTU = distribution_of("Ubuntu", "24.04")
ROCKY = distribution_of("Rocky", "9.6")
DEBIAN = distribution_of("Debian", "12.11")
NODES = ((UBUNTU, "6.8.0-60-generic"), (ROCKY, "5.14.0-570.12.1.el9_6.x86_64"))
SETS: dict[str, dict[str, Any]] = {
    "B300, 580, DOCA": {},
    "B300, 590, DOCA, kernel": {
        "kernel": "of the node",
        "driver__version": "590.44.01",
        "cuda": "13.1",
        "rdma__version": "3.3.0",
    },
    "B200, 575, inbox": {
        "driver": {"version": "575.57.08", "gpu": "B200"},
        "cuda": "12.9",
        "rdma": {"source": "inbox"},
    },
    "H100, 580, proprietary, driver only": {
        "driver": {"version": "580.95.05", "gpu": "H100", "modules": "proprietary"},
        "rdma": {"source": "none"},
        **dict.fromkeys(("cuda", "dcgm", "gdrcopy", "nccl"), ""),
    },
}

LATER = (
    # packages.ubuntu.com/resolute/kernel/linux-modules-doca-ofed-26.01-generic
    (distribution_of("Ubuntu", "26.04"), "7.0.0-27-generic"),
    # openshift/microshift pull request 7069: "RHEL 10.2 kernel 6.12.0-211.34.1"
    (distribution_of("Rocky", "10.2"), "6.12.0-211.34.1.el10_2.x86_64"),
)
SETS_OF_LATER = {
    "B300, 595, DOCA 3.4": {
        "rdma__version": "3.4.1",
        "driver__version": "595.91.07",
        "cuda": "13.3",
    }
}


def shown(wanted: PackageSet) -> dict[str, Any]:
    return {
        "repositories": {one.name: one.url for one in wanted.repositories},
        "streams": [f"{one.module}:{one.stream}" for one in wanted.streams],
        "stages": {
            stage.name: [f"{one.name} {one.version}".strip() for one in stage.packages]
            for stage in wanted.stages
        },
        "absent": dict(wanted.absent),
        "held": list(wanted.held),
        "preferred": dict(wanted.preferred),
    }


def both(name: str, distribution: Distribution, kernel: str) -> dict[str, PackageSet]:
    changes = dict({**SETS, **SETS_OF_LATER}[name])
    if changes.get("kernel"):
        changes["kernel"] = kernel
    found = software(**changes)
    return {
        "rdma": rdma_packages(found, distribution, KEYS, kernel),
        "gpu": gpu_packages(found, distribution, kernel, KEYS),
    }


def test_the_packages_are_those_of_the_golden_file() -> None:
    """Names and order were compared with the vendors' lists; compare changes too."""
    found = {
        f"{distribution.label if nodes is LATER else distribution.name}: {name}": {
            # Absent packages depend only on branch and family, which NODES covers.
            layer: {
                key: value
                for key, value in shown(wanted).items()
                if nodes is NODES or key != "absent"
            }
            for layer, wanted in both(name, distribution, kernel).items()
        }
        for nodes, sets in ((NODES, SETS), (LATER, SETS_OF_LATER))
        for distribution, kernel in nodes
        for name in sets
    }
    assert {node[0].system for node in (*NODES, *LATER)} == {
        system for system in SYSTEMS if system.driver is not None and system.title != "Ubuntu 22.04"
    }
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


# Earlier packages on nodes: packages.ubuntu.com, NVIDIA/gpu-driver-container ubuntu26.04/install.sh
# at bd20cb2, images of AWS and Azure. `{}` is a branch.
FABRIC_ONCE = (
    "nvidia-fabricmanager-{}",
    "nvidia-fabricmanager-dev-{}",
    "cuda-drivers-fabricmanager-{}",
    "libnvidia-nscq-{}",
    "libnvsdm-{}",
    "nvidia-imex-{}",
)
ONCE = (
    "nvidia-driver-{}-open",
    "nvidia-driver-{}",
    "nvidia-dkms-{}-open",
    "libnvidia-compute-{}",
    "nvidia-utils-{}",
    "nvidia-compute-utils-{}",
    "nvidia-kernel-common-{}",
    "cuda-drivers-{}",
    "nvidia-headless-{}-open",
    "nvidia-headless-no-dkms-{}",
    "xserver-xorg-video-nvidia-{}",
    "nvidia-firmware-{}-{}.71.05",
    "nvidia-open-{}",
    "nvlink5-{}",
    *FABRIC_ONCE,
)
BRANCHES = ("450", "535", "550", "560", "565", "570", "575", "580", "590", "595", "610", "615")
BY_UBUNTU = (
    "nvidia-open",
    "nvidia-headless-no-dkms-open",
    "nvidia-headless-open",
    "libnvidia-compute",
)
KEPT = (
    "nvidia-settings",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-container-toolkit",
    "linux-modules-nvidia-fs-6.8.0-1019-nvidia",
    "nvidia-fs-dkms",
    "nvidia-gds-13-0",
    "libnvidia-container1",
    "libnvidia-egl-wayland1",
    "nvidia-driver-assistant",
    "cuda-toolkit-12-4",
    "nvidia-cuda-toolkit",
    "datacenter-gpu-manager-exporter",
)


@pytest.mark.parametrize("version", ["575.57.08", "580.95.05", "595.71.05", "620.10.01"])
def test_every_other_branch_leaves_ubuntu_whatever_its_number(version: str) -> None:
    found = software(driver={"version": version, "gpu": "H100"}, cuda="12.9")
    wanted = gpu_packages(found, UBUNTU, "6.8.0-60-generic", KEYS)
    own, installed = version[:3], {package.name for package in wanted.packages}
    for branch in (each for each in BRANCHES if each != own):
        for name in (each.format(branch, branch) for each in ONCE):
            assert any_matches(name, wanted.absent), name
    assert any_matches("libnvidia-gl-450:i386", wanted.absent)
    for name in KEPT:
        assert not any_matches(name, wanted.absent), name
    suffixed = int(own) <= 580
    for name in BY_UBUNTU:
        assert any_matches(name, wanted.absent) is (suffixed and name not in installed), name
    # Other names for packages of the set's branch: Ubuntu's, or with an earlier suffix.
    for name in (each.format(own) for each in FABRIC_ONCE):
        gone = any_matches(name, wanted.absent) and name not in installed
        assert gone is (int(own) > 575), name
    assert any_matches(f"libnvidia-compute-{own}", wanted.absent) is not suffixed
    assert not any_matches("nvidia-fabricmanager", wanted.absent) or int(own) <= 575


def test_what_el_called_otherwise_goes_with_its_branch() -> None:
    """Names of 570 next to those of 580, as in images of AWS (nvidia-imex-570)."""
    for version, gone, stays in (
        ("580.95.05", ("nvidia-fabric-manager", "nvidia-imex-570"), "nvidia-fabricmanager"),
        ("575.57.08", ("nvidia-fabricmanager", "nvidia-imex"), "nvidia-fabric-manager"),
    ):
        found = software(driver={"version": version, "gpu": "H100"}, cuda="12.9")
        absent = gpu_packages(found, ROCKY, NODES[1][1], KEYS).absent
        both = ("libnvidia-nscq-550", "cuda-drivers-fabricmanager-550", "nvidia-fabricmanager-450")
        kernel = "kmod-nvidia-555.42.02-5.14.0-427.20.1"  # built by NVIDIA, without DKMS
        assert all(any_matches(name, absent) for name in (*gone, *both, kernel))
        branch = version[:3]
        for name in (stays, f"nvlink5-{branch}", "kmod-nvidia-open-dkms", "nvidia-kmod-common"):
            assert not any_matches(name, absent), name


DCGM = "datacenter-gpu-manager"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        # For the CUDA of the driver: NVIDIA/DCGM issues 254 and 255, infra-controller PR 384.
        ({"cuda": "12.9"}, ["-4-cuda13", "-4-proprietary", "-4-proprietary-cuda13"]),
        ({"cuda": ""}, ["-4-cuda13", "-4-proprietary", "-4-proprietary-cuda13"]),
        ({"cuda": "14.0"}, ["-4-cuda14", "-4-proprietary", "-4-proprietary-cuda14"]),
        (
            {"cuda": "12.9", "driver__version": "575.57.08"},
            ["-4-cuda12", "-4-proprietary", "-4-proprietary-cuda12"],
        ),
        ({"dcgm_profiling": False}, ["-4-cuda13"]),
        ({"dcgm": "3.3.9"}, [""]),
        ({"dcgm": "5.0.0", "dcgm_profiling": False}, ["-5-cuda13"]),
        ({"dcgm": ""}, []),
    ],
)
@pytest.mark.parametrize(("distribution", "kernel"), NODES)
def test_dcgm_goes_by_the_driver(
    distribution: Distribution, kernel: str, changes: dict[str, Any], names: list[str]
) -> None:
    wanted = gpu_packages(software(**changes), distribution, kernel, KEYS)
    found = [each.name for each in wanted.packages if each.name.startswith(DCGM)]
    assert found == [f"{DCGM}{name}" for name in names]
    assert not [name for name in found if any_matches(name, wanted.absent)]


def test_other_dcgm_versions_are_removed() -> None:
    wanted = gpu_packages(software(), UBUNTU, "6.8.0-60-generic", KEYS)
    (stage,) = [each for each in wanted.stages if each.name == "DCGM"]
    for name in ("", "-config", "-5-core", "-5-cuda13"):
        assert any_matches(DCGM + name, wanted.absent), name
    for name in ("-4-cuda12", "-4-proprietary-cuda12", "-4-multinode-cuda12", "-4-cuda11"):
        assert any_matches(DCGM + name, stage.replaced), name
        assert not any_matches(DCGM + name, wanted.absent), name
    for name in ("-4-core", "-4-cuda13", "-4-proprietary-cuda13", "-exporter"):
        assert not any_matches(DCGM + name, [*stage.replaced, *wanted.absent]), name
    three = gpu_packages(software(dcgm="3.3.9"), UBUNTU, "6.8.0-60-generic", KEYS).absent
    assert any_matches(f"{DCGM}-4-core", three) and not any_matches(DCGM, three)
    assert not any_matches(DCGM, gpu_packages(software(dcgm=""), UBUNTU, "", KEYS).absent)


def test_the_launcher_has_nothing_of_a_gpu() -> None:
    nothing = dict.fromkeys(("cuda", "dcgm", "gdrcopy", "nccl"), "")
    found = software(driver=None, rdma={"source": "inbox"}, repositories={}, **nothing)
    with pytest.raises(PlanError, match=r"the set has no software\.driver"):
        gpu_packages(found, UBUNTU, "6.8.0-60-generic", {})
    assert not rdma_packages(found, UBUNTU, {}).repositories


@pytest.mark.parametrize(("distribution", "kernel"), NODES)
def test_named_kernel_is_installed_with_inbox_drivers(
    distribution: Distribution, kernel: str
) -> None:
    inbox = software(kernel=kernel, rdma={"source": "inbox"})
    wanted = rdma_packages(inbox, distribution, KEYS, kernel)
    stages = [stage.name for stage in wanted.stages if stage.name != "version lock"]
    assert stages == ["kernel", "kernel headers", "RDMA"]
    assert wanted.held == rdma_packages(software(), distribution, KEYS, kernel).held
    unnamed = rdma_packages(software(rdma={"source": "inbox"}), distribution, KEYS, kernel)
    assert [stage.name for stage in unnamed.stages if stage.name != "version lock"] == ["RDMA"]


@pytest.mark.parametrize("release", ["6.8.0-60-generic", "6.8.0-1030-aws"])
def test_inbox_drivers_need_extra_modules_on_ubuntu(release: str) -> None:
    """linux-virtual has no mlx5_ib and no ib_umad: NVIDIA/gpu-operator 2781."""
    extra = WantedPackage(f"linux-modules-extra-{release}", "", MODULES, optional=True)
    for kernel in ("", release):
        inbox = software(kernel=kernel, rdma={"source": "inbox"})
        assert rdma_packages(inbox, UBUNTU, KEYS, release).packages[-1] == extra
        for other in (
            rdma_packages(inbox, UBUNTU, KEYS, release, own_kernel=False),
            rdma_packages(software(kernel=kernel), UBUNTU, KEYS, release),
            rdma_packages(inbox, ROCKY, KEYS, "5.14.0-570.12.1.el9_6.x86_64"),
            rdma_packages(inbox, DEBIAN, KEYS, "6.1.0-40-amd64"),
        ):
            assert not any("modules-extra" in each.name for each in other.packages)


def test_nfs_over_rdma_with_doca() -> None:
    found = software()
    found = replace(found, rdma=replace(found.rdma, nfs=True))
    for distribution, kernel in NODES:
        stage = rdma_packages(found, distribution, KEYS, kernel).stages[-1]
        assert [one.name for one in stage.packages] == ["doca-ofed", "mlnx-nfsrdma-dkms"]
    older = replace(found, rdma=replace(found.rdma, version="2.9.3"))
    lasts = [rdma_packages(older, node[0], KEYS, node[1]).stages[-1].packages[-1] for node in NODES]
    assert [one.name for one in lasts] == ["mlnx-nfsrdma-dkms", "kmod-mlnx-nfsrdma"]
    inbox = replace(found, rdma=replace(found.rdma, source="inbox"))
    for distribution, kernel in NODES:
        names = [one.name for one in rdma_packages(inbox, distribution, KEYS, kernel).packages]
        assert "mlnx-nfsrdma-dkms" not in names


def test_doca_ucx_replaces_ubuntu_s() -> None:
    (ucx,) = [
        one for one in table.repositories("ubuntu")["first"]["doca/3.2.1"] if one.name == "ucx"
    ]
    stage = rdma_packages(software(), UBUNTU, KEYS).stages[-1]
    assert {word.split()[0] for word in ucx.conflicts} == {*stage.replaced}


@pytest.mark.parametrize("provider", ["hpcx", "impi"])
def test_other_mpi_replaces_ubuntu_s(provider: str) -> None:
    """DOCA 2.9 does not. The distribution's MPI, if it is the set's, is not removed."""
    found = software(rdma__version="2.9.3")
    kept = rdma_packages(found, UBUNTU, KEYS).stages[-1].replaced
    assert not any_matches("libopenmpi3t64", kept)
    other = replace(found, mpi=Mpi(provider))
    gone = rdma_packages(other, UBUNTU, KEYS).stages[-1].replaced
    names = ("libucx0", "libopenmpi3", "libopenmpi3t64", "openmpi-bin", "openmpi-common")
    for name in (*names, "mpi-default-bin", "python3-mpi4py"):
        assert any_matches(name, gone), name
    assert not any_matches("openmpi", gone), "that is DOCA's own"


@pytest.mark.parametrize(
    ("profile", "claims"),
    [("doca-ofed", {"/etc/pmix-mca-params.conf": "openmpi"}), ("doca-roce", {})],
)
def test_doca_openmpi_claims_a_file_of_pmix(profile: str, claims: dict[str, str]) -> None:
    found = software(rdma__profile=profile)
    assert rdma_packages(found, UBUNTU, KEYS).claims == claims
    assert rdma_packages(software(rdma={"source": "inbox"}), UBUNTU, KEYS).claims == {}


def test_debian_has_inbox_rdma_and_nothing_else() -> None:
    inbox = software(rdma={"source": "inbox"})
    stages = rdma_packages(inbox, DEBIAN, {}).stages
    assert "rdma-core" in [one.name for one in stages[0].packages]
    with pytest.raises(PlanError, match="debian 12"):
        rdma_packages(software(), DEBIAN, KEYS, "6.1.0-40-amd64")
    with pytest.raises(PlanError, match="debian 12"):
        gpu_packages(inbox, DEBIAN, "6.1.0-40-amd64", KEYS)


def test_a_missing_key_is_refused() -> None:
    with pytest.raises(PlanError, match=r"repository cuda: its key \(keys/cuda\.asc\)"):
        gpu_packages(software(), UBUNTU, "6.8.0-60-generic", {"doca": b"x"})


def test_urls_have_the_names_of_the_vendors_folders() -> None:
    found = software(
        repositories__cuda__url="https://mirror/{distribution}/{architecture}",
        repositories__doca__url="https://mirror/{version}/{distribution}/{architecture}",
    )
    urls = []
    for distribution, kernel in NODES:
        urls += [one.url for one in rdma_packages(found, distribution, KEYS).repositories]
        urls += [one.url for one in gpu_packages(found, distribution, kernel, KEYS).repositories]
    assert urls == [
        "https://mirror/3.2.1/ubuntu24.04/x86_64",
        "https://mirror/ubuntu2404/x86_64",
        "https://mirror/3.2.1/rhel9/x86_64",
        "https://mirror/rhel9/x86_64",
    ]


def test_el_10_has_no_module_streams() -> None:
    """NVIDIA's driver installation guide 620, Kernel Modules: on 8 and 9 a branch is a stream, on
    10 `dnf versionlock \\*nvidia\\*580\\*`."""
    for name in EL:
        for release, streams in (("9.8", ["580-open"]), ("10.0", []), ("10.2", [])):
            node = distribution_of(name, release)
            wanted = gpu_packages(software(), node, "", KEYS)
            assert [stream.stream for stream in wanted.streams] == streams
            assert wanted.stages[0].name == "version lock"


@pytest.mark.parametrize(
    ("name", "release", "driver", "doca", "refused"),
    [
        ("ubuntu", "26.04", "580.178.04", "3.4.0", "the NVIDIA driver 580.178.04 "),
        ("ubuntu", "26.04", "595.91.07", "3.3.1", "DOCA 3.3.1 "),
        ("ubuntu", "26.04", "615.71.09", "3.10.0", ""),
        ("rocky", "10.0", "575.57.08", "3.1.0", "the NVIDIA driver 575.57.08 "),
        ("almalinux", "10.1", "580.95.05", "3.0.0", "DOCA 3.0.0 "),
        ("rhel", "10.2", "580.95.05", "3.1.0", ""),
        ("rocky", "9.6", "570.172.08", "2.9.3", ""),
    ],
)
def test_software_missing_for_a_system_is_refused(
    name: str, release: str, driver: str, doca: str, refused: str
) -> None:
    node = distribution_of(name, release)
    found = software(driver__version=driver, rdma__version=doca, cuda="")
    problems = []
    for packages in (partial(rdma_packages, found, node), partial(gpu_packages, found, node, "")):
        try:
            packages(KEYS)
        except PlanError as error:
            problems.append(str(error))
    assert len(problems) == bool(refused)
    for problem in problems:
        assert problem.startswith(f"{refused}for {name} {release}: NVIDIA's packages for it begin")


def test_ubuntus_own_doca_leaves_for_nvidias() -> None:
    """Names: ubuntu.com/server/docs/how-to/networking/install-doca-ofed, packages.ubuntu.com."""
    node, kernel = LATER[0]
    absent = both("B300, 595, DOCA 3.4", node, kernel)["rdma"].absent
    own = ("doca-ofed-generic", "doca-ofed-generic-hwe-26.04", "doca-ofed-26.01-dkms")
    modules = ("linux-modules-doca-ofed-26.01-generic",)
    modules += ("linux-main-modules-doca-ofed-26.01-7.0.0-27-generic",)
    for package in (*own, *modules):
        assert any_matches(package, absent), package
    for package in ("doca-ofed", "doca-ofed-userspace", "mlnx-ofed-kernel-dkms"):
        assert not any_matches(package, absent), package
    inbox = software(rdma={"source": "inbox"})
    assert not rdma_packages(inbox, node, KEYS, kernel).absent


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("Ubuntu", "22.04", "ubuntu 22.04"),
        ("Ubuntu", "24.04.3", "ubuntu 24.04"),
        ("RedHat", "9.6", "rhel 9.6"),
        ("AlmaLinux", "9", "almalinux 9"),
        ("Rocky", "10.0", "rocky 10.0"),
        ("debian", "12", "debian 12"),
    ],
)
def test_distributions(name: str, version: str, wanted: str) -> None:
    assert distribution_of(name, version).label == wanted


@pytest.mark.parametrize(
    ("name", "version", "architecture"),
    [
        ("Ubuntu", "20.04", "x86_64"),
        ("Ubuntu", "22.041", "x86_64"),
        ("Debian", "13", "x86_64"),
        ("Rocky", "100.1", "x86_64"),
        ("Fedora", "42", "x86_64"),
        ("", "", "x86_64"),
        ("Ubuntu", "24.04", "aarch64"),
    ],
)
def test_other_systems_are_refused_by_name(name: str, version: str, architecture: str) -> None:
    with pytest.raises(PlanError) as caught:
        distribution_of(name, version, architecture)
    assert str(caught.value).startswith(f"{name} {version} ({architecture}): ")


@pytest.mark.parametrize(
    ("full", "wanted", "means"),
    [
        ("3:580.95.05-1.el9", "580.95.05", True),
        ("580.95.05-0ubuntu1", "580", True),
        ("580.95.05-0ubuntu1", "95.05", False),
        ("580.95.051-1", "580.95.05", False),
        ("13.0.2-1", "13.0", True),
        ("13.01-1", "13.0", False),
        ("13.0~rc1-1", "13.0", False),
        ("13.0rc1-1", "13.0", False),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda13", True),
        ("2.28.3-1+cuda130.0", "2.28.3-1+cuda13", False),
        ("5.14.0-570.12.1.el9_60", "5.14.0-570.12.1.el9_6", False),
        ("4.4.1", "", True),
    ],
)
def test_version_prefixes_match_whole_numbers(full: str, wanted: str, means: bool) -> None:
    assert matches(wanted, full) is means


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

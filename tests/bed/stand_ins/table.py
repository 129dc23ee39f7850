# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the stand-in repositories, with the vendors' names and relations.

Relations are as loose as the vendor's where those are known: `nvlink5-580` accepts any fabric
manager from 580 on, and an unconstrained solver takes the newest. doca.py has the packages of DOCA.
"""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from . import doca, lustre
from .debian import Debian
from .package import File, Package
from .pieces import (
    EL,
    FAULT,
    LIBRARIES,
    RELOAD,
    UNITS,
    Y,
    dkms_scripts,
    dkms_source,
    document,
    library,
    mft,
    shared_object,
    tool,
    unit,
)
from .versions import DOCAS, DRIVERS, FLOATING, KERNELS, NVCC, Driver

CONTENT = Path(__file__).parent / "content"
SUFFIXED = "580"
"""The last branch that is part of package names on Ubuntu."""


@functools.cache
def nvml(version: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "library")
        command = [
            "gcc", "-shared", "-fPIC", "-O1", "-s", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
            f'-DVERSION="{version}"', f'-DNVML_VERSION="13.{version}"',
            "-Wl,-soname,libnvidia-ml.so.1", "-o", str(built), str(CONTENT / "libnvidia-ml.c"),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return built.read_bytes()


def nvml_files(family: str, version: str) -> dict[str, File]:
    folder = LIBRARIES[family]
    return {
        f"{folder}/libnvidia-ml.so.{version}": File(nvml(version)),
        f"{folder}/libnvidia-ml.so.1": File(link=f"libnvidia-ml.so.{version}"),
    }


def fabric_files(version: str) -> dict[str, File]:
    return {
        "/usr/bin/nv-fabricmanager": tool("nv-fabricmanager", version),
        "/usr/share/nvidia/nvswitch/fabricmanager.cfg": File(b"# stand-in\nFABRIC_MODE=0\n"),
        f"{UNITS}/nvidia-fabricmanager.service": unit(
            "NVIDIA fabric manager service", "/usr/bin/nv-fabricmanager -c /dev/null"
        ),
    }


def persistence_files(version: str) -> dict[str, File]:
    return {
        "/usr/bin/nvidia-persistenced": tool("nvidia-persistenced", version),
        f"{UNITS}/nvidia-persistenced.service": unit(
            "NVIDIA Persistence Daemon", "/usr/bin/nvidia-persistenced --verbose"
        ),
    }


def smi_files(version: str) -> dict[str, File]:
    return {"/usr/bin/nvidia-smi": tool("nvidia-smi", version)}


# The repository of CUDA.


def ubuntu_driver(driver: Driver) -> list[Package]:
    """On Ubuntu names include the branch up to 580. Only one branch can be installed."""
    upstream, suffix = driver.version, driver.suffix
    full = f"{upstream}-1ubuntu1"
    plain = f"{upstream}-1"

    def named(name: str, end: str = "") -> str:
        return f"{name}{suffix}{end}"

    def same(name: str, end: str = "") -> str:
        return f"{named(name, end)} (= {full})"

    def piece(name: str, end: str = "", **more: object) -> Package:
        """A package of which only one branch can be installed: newer ones replace older ones."""
        older = () if suffix else (f"{name}-{SUFFIXED}{end}",)
        return Package(
            named(name, end),
            full,
            provides=(f"{name}{end}",) if suffix else (),
            conflicts=older,
            replaces=older,
            **{"files": document(named(name, end), full), **more},  # type: ignore[arg-type]
        )

    kernel_part = f"nvidia-dkms{suffix}-open"
    return [
        Package(
            named("nvidia-open"),
            full,
            requires=(same("nvidia-driver", "-open"),),
            conflicts=(named("cuda-drivers"), named("nvidia-driver")),
            files=document(named("nvidia-open"), full),
        ),
        piece(
            "nvidia-driver",
            "-open",
            requires=(
                same("nvidia-dkms", "-open"),
                same("nvidia-kernel-common"),
                same("libnvidia-compute"),
                same("nvidia-utils"),
                same("libnvidia-cfg1"),
                f"nvidia-persistenced (>= {upstream})",
                f"nvidia-modprobe (>= {upstream})",
            ),
        ),
        piece(
            "nvidia-dkms",
            "-open",
            requires=("dkms", same("nvidia-kernel-common"), same("nvidia-kernel-source", "-open")),
            **dkms_scripts("nvidia", upstream),
        ),
        piece("nvidia-kernel-source", "-open", files=dkms_source("nvidia", upstream)),
        piece(
            "nvidia-kernel-common",
            before=FAULT,
            files={
                "/usr/lib/modprobe.d/nvidia-graphics-drivers.conf": File(
                    b"# stand-in\nblacklist nouveau\noptions nouveau modeset=0\n"
                )
            },
        ),
        piece(
            "libnvidia-compute",
            files={**nvml_files(Y, upstream), **library(Y, "libcuda", upstream)},
        ),
        piece("nvidia-utils", requires=(same("libnvidia-compute"),), files=smi_files(upstream)),
        piece("libnvidia-cfg1", files=library(Y, "libnvidia-cfg", upstream)),
        Package(
            "nvidia-persistenced",
            full,
            files=persistence_files(upstream),
            after=RELOAD,
            conflicts=("nvidia-compute-utils-575",),
        ),
        Package("nvidia-modprobe", full, files=document("nvidia-modprobe", full)),
        # The proprietary modules, which do not support Blackwell.
        Package(
            named("cuda-drivers"),
            full,
            requires=(same("nvidia-driver"),),
            conflicts=(named("nvidia-open"),),
            files=document(named("cuda-drivers"), full),
        ),
        Package(
            named("nvidia-driver"),
            full,
            requires=(same("libnvidia-compute"), same("nvidia-utils")),
            conflicts=(kernel_part,),
            files=document(named("nvidia-driver"), full),
        ),
        Package(
            f"nvidia-driver-pinning-{driver.branch}",
            plain,
            provides=("nvidia-driver-pinning",),
            conflicts=("nvidia-driver-pinning",),
            replaces=("nvidia-driver-pinning",),
            files={
                f"/etc/apt/preferences.d/nvidia-driver-pinning-{driver.branch}": File(
                    f"Package: src:*nvidia*:any\nPin: version {driver.branch}.*\n"
                    "Pin-Priority: 1000\n".encode()
                )
            },
        ),
        Package(
            "nvidia-fabricmanager",
            plain,
            files=fabric_files(upstream),
            after=RELOAD,
            conflicts=("nvidia-fabricmanager-575", "nvidia-fabricmanager-570"),
        ),
        Package("libnvidia-nscq", plain, files=library(Y, "libnvidia-nscq", upstream)),
        Package("libnvsdm", plain, files=library(Y, "libnvsdm", upstream)),
        Package("nvidia-imex", plain, files=document("nvidia-imex", plain)),
        Package(
            f"nvlink5{suffix}",
            plain,
            provides=("nvlink5-branch",),
            requires=(
                *(
                    f"{name} (>= {driver.branch})"
                    for name in (
                        "libnvidia-nscq",
                        "libnvsdm",
                        "nvidia-fabricmanager",
                        "nvidia-imex",
                    )
                ),
                f"{kernel_part} | nvidia-kernel-open-dkms (>= {driver.branch})",
                f"libnvidia-compute{suffix} | nvidia-driver-cuda (>= {driver.branch})",
                "collectx-bringup (>= 1.22.1)",
                "mft (>= 4.33.0)",
                "nvlsm (>= 2025.06.11)",
            ),
            files=document(f"nvlink5{suffix}", plain),
        ),
    ]


NVLINK_PARTS = ("libnvidia-nscq", "libnvsdm", "nvidia-fabricmanager", "nvidia-imex")


def el_driver(driver: Driver) -> list[Package]:
    """On EL all branches share the names, and are streams of a module."""
    upstream = driver.version
    full, plain = f"3:{upstream}-1.el9", f"{upstream}-1"
    streams = (f"nvidia-driver:{driver.branch}-open",)
    if driver.branch == DRIVERS[-1].branch:
        streams += ("nvidia-driver:open-dkms",)

    def same(name: str) -> str:
        return f"{name} = {full}"

    def piece(name: str, **more: object) -> Package:
        return Package(
            name,
            full,
            modular=streams,
            **{"files": document(name, full), **more},  # type: ignore[arg-type]
        )

    return [
        piece(
            "nvidia-open",
            requires=(
                same("nvidia-driver"),
                same("nvidia-driver-cuda"),
                same("kmod-nvidia-open-dkms"),
            ),
            conflicts=("cuda-drivers",),
        ),
        piece("nvidia-driver", requires=(same("nvidia-kmod-common"), same("nvidia-driver-libs"))),
        piece("nvidia-driver-libs", files=library(EL, "libnvidia-glcore", upstream)),
        piece(
            "nvidia-driver-cuda",
            requires=(
                same("nvidia-kmod-common"),
                same("nvidia-driver-cuda-libs"),
                same("nvidia-persistenced"),
            ),
            files=smi_files(upstream),
        ),
        piece(
            "nvidia-driver-cuda-libs",
            requires=(same("libnvidia-ml"), same("libnvidia-cfg")),
            files=library(EL, "libcuda", upstream),
        ),
        piece("libnvidia-ml", files=nvml_files(EL, upstream)),
        piece("libnvidia-cfg", files=library(EL, "libnvidia-cfg", upstream)),
        piece(
            "nvidia-kmod-common",
            before=FAULT,
            requires=(same("nvidia-modprobe"),),
            files={
                "/usr/lib/modprobe.d/nvidia.conf": File(
                    b"# stand-in\nblacklist nouveau\noptions nouveau modeset=0\n"
                )
            },
        ),
        piece(
            "kmod-nvidia-open-dkms",
            requires=("dkms", same("nvidia-kmod-common")),
            provides=(f"nvidia-kmod = {full}",),
            conflicts=("kmod-nvidia-latest-dkms",),
            files=dkms_source("nvidia-open", upstream),
            **dkms_scripts("nvidia-open", upstream),
        ),
        piece("nvidia-modprobe"),
        piece("nvidia-persistenced", files=persistence_files(upstream), after=RELOAD),
        Package(
            "nvidia-fabricmanager",
            plain,
            modular=streams,
            files=fabric_files(upstream),
            after=RELOAD,
            conflicts=("nvidia-fabric-manager",),
        ),
        Package(
            "libnvidia-nscq", plain, modular=streams, files=library(EL, "libnvidia-nscq", upstream)
        ),
        Package("libnvsdm", plain, modular=streams, files=library(EL, "libnvsdm", upstream)),
        Package("nvidia-imex", plain, files=document("nvidia-imex", plain)),
        *(
            Package(
                name,
                plain,
                requires=(
                    *(f"{part} >= {driver.branch}" for part in NVLINK_PARTS),
                    "collectx-bringup >= 1.22.1",
                    "mft >= 4.33.0",
                    "nvlsm >= 2025.06.11",
                ),
                files=document(name, plain),
            )
            for name in {f"nvlink5{driver.suffix}": 0, "nvlink5": 0}
        ),
    ]


def toolkit(family: str, version: str) -> list[Package]:
    major, minor = version.split(".")[:2]
    tail = f"{major}-{minor}"
    full = f"{version}-1"
    nvcc = NVCC[version]
    prefix = f"/usr/local/cuda-{major}.{minor}"
    exact = "(= {})" if family == Y else "= {}"

    def same(name: str) -> str:
        return f"{name} {exact.format(full)}"

    return [
        Package(
            f"cuda-toolkit-{tail}",
            full,
            requires=(
                f"cuda-nvcc-{tail} {exact.format(f'{nvcc}-1')}",
                same(f"cuda-libraries-{tail}"),
                same(f"cuda-toolkit-{tail}-config-common"),
            ),
            files={
                f"{prefix}/version.json": File(
                    json.dumps(
                        {"cuda": {"name": "CUDA SDK (simulated)", "version": version}}
                    ).encode()
                )
            },
        ),
        Package(f"cuda-nvcc-{tail}", f"{nvcc}-1", files={f"{prefix}/bin/nvcc": tool("nvcc", nvcc)}),
        Package(
            f"cuda-libraries-{tail}",
            full,
            files={
                f"{prefix}/lib64/libcudart.so.{major}": File(shared_object(f"libcudart.so.{major}"))
            },
        ),
        Package(
            f"cuda-toolkit-{tail}-config-common",
            full,
            requires=("cuda-toolkit-config-common",),
            files={f"{prefix}/stand-in": File(b"simulated: stand-in for tests\n")},
            # On EL this is the name of a link to alternatives; nodes that imitate EL have no other
            # name.
            after=f"update-alternatives --install /usr/local/cuda cuda {prefix} 1{major}{minor}",
        ),
        Package(
            "cuda-toolkit-config-common",
            full,
            files={
                "/etc/ld.so.conf.d/000_cuda.conf": File(b"/usr/local/cuda/lib64\n"),
            },
        ),
    ]


def floating(family: str, versions: dict[str, str], cudas: Iterable[str]) -> list[Package]:
    """Packages with separate versions, without a branch."""
    exact = "(= {})" if family == Y else "= {}"
    end = "" if family == Y else ".el9"
    found = []
    dcgm = versions["dcgm"]
    epoch = f"1:{dcgm}-1"
    found += [
        Package(
            "datacenter-gpu-manager-4-core",
            epoch,
            files={
                "/usr/bin/dcgmi": tool("dcgmi", dcgm),
                "/usr/bin/nv-hostengine": tool("nv-hostengine", dcgm),
                f"{UNITS}/nvidia-dcgm.service": unit(
                    "NVIDIA DCGM service", "/usr/bin/nv-hostengine -n --service-account nvidia-dcgm"
                ),
            },
            after=RELOAD,
        ),
        Package(
            "datacenter-gpu-manager-4-cuda13",
            epoch,
            requires=(f"datacenter-gpu-manager-4-core {exact.format(epoch)}",),
            files=document("datacenter-gpu-manager-4-cuda13", epoch),
        ),
        # Versions of the others: Azure/azhpc-images, components/install_dcgm.sh.
        *(
            Package(
                f"datacenter-gpu-manager-4-proprietary{end}",
                epoch,
                requires=(f"datacenter-gpu-manager-4-core {exact.format(epoch)}",),
                files=document(f"datacenter-gpu-manager-4-proprietary{end}", epoch),
            )
            for end in ("", "-cuda13")
        ),
    ]
    gdr = versions["gdrcopy"]
    plain = f"{gdr}-1{end}"
    module = "gdrdrv-dkms" if family == Y else "gdrcopy-kmod"
    api, devel = ("libgdrapi", "") if family == Y else ("gdrcopy", "gdrcopy-devel")
    found.append(
        Package(
            module,
            plain,
            requires=("dkms",),
            files=dkms_source("gdrdrv", gdr),
            **dkms_scripts("gdrdrv", gdr),  # type: ignore[arg-type]
        )
    )
    found.append(Package(api, plain, files=library(family, "libgdrapi", gdr, "2")))
    if family == Y:
        found.append(
            Package(
                "gdrcopy",
                plain,
                requires=(f"{api} {exact.format(plain)}",),
                files=document("gdrcopy", gdr),
            )
        )
    else:
        found.append(
            Package(
                devel, plain, requires=(f"{api} {exact.format(plain)}",), files=document(devel, gdr)
            )
        )
    nccl, nccl_devel = ("libnccl2", "libnccl-dev") if family == Y else ("libnccl", "libnccl-devel")
    for cuda in ("12.9", *sorted({".".join(one.split(".")[:2]) for one in cudas})):
        full = f"{versions['nccl']}-1+cuda{cuda}"
        found += [
            Package(nccl, full, files=library(family, "libnccl", versions["nccl"], "2")),
            Package(
                nccl_devel,
                full,
                requires=(f"{nccl} {exact.format(full)}",),
                files=document(nccl_devel, full),
            ),
        ]
    found.append(mft(versions["mft"], "cuda"))
    found += [
        Package(
            "nvlsm",
            f"{versions['nvlsm']}-1",
            requires=(("libibumad3" if family == Y else "libibumad"), "infiniband-diags"),
            files={"/opt/nvidia/nvlsm/sbin/nvlsm": tool("nvlsm", versions["nvlsm"])},
        ),
        Package(
            "collectx-bringup",
            f"{versions['collectx']}-1",
            files=document("collectx-bringup", versions["collectx"]),
        ),
    ]
    return found


def cuda(family: str, edition: str) -> list[Package]:
    """The repository of CUDA: `first` is the initial one, `all` includes later versions."""
    drivers = DRIVERS[:1] if edition == "first" else DRIVERS
    make = ubuntu_driver if family == Y else el_driver
    found = [package for driver in drivers for package in make(driver)]
    cudas = list(dict.fromkeys(driver.cuda for driver in drivers))
    found += [package for version in cudas for package in toolkit(family, version)]
    for name in ("first",) if edition == "first" else ("first", "all"):
        found += floating(family, FLOATING[name], cudas)
    return found


# Packages of the distribution that the layers need and the nodes lack.


def distribution(family: str) -> list[Package]:
    kernel = KERNELS[family]
    if family == Y:
        return [
            Package("dkms", "3.0.11-1ubuntu13", files={"/usr/sbin/dkms": tool("dkms", "3.0.11")}),
            Package(
                f"linux-headers-{kernel}",
                f"{kernel.rpartition('-')[0]}.63",
                files={f"/usr/src/linux-headers-{kernel}/Makefile": File(b"# stand-in\n")},
            ),
            Package(
                "infiniband-diags", "50.0-2ubuntu0.2", files=document("infiniband-diags", "50")
            ),
        ]
    version = kernel.removesuffix(".x86_64")
    return [
        # Interpreters of package scripts: nodes that imitate EL have them from another source.
        Package("stand-in-shell", "1-1", provides=("/bin/sh",), files=document("shell", "1")),
        Package("dkms", "3.2.2-1.el9", files={"/usr/sbin/dkms": tool("dkms", "3.2.2")}),
        Package(
            "kernel-devel",
            version,
            files={f"/usr/src/kernels/{kernel}/Makefile": File(b"# stand-in\n")},
        ),
        Package("kernel-headers", version, files=document("kernel-headers", version)),
        Package("infiniband-diags", "54.0-2.el9_6", files=document("infiniband-diags", "54")),
    ]


def repositories(family: str, mpi: Debian | None = None) -> dict[str, dict[str, list[Package]]]:
    """Packages by edition and repository. `first` is the initial edition."""
    docas = {f"doca/{one.version}": doca.packages(family, one, mpi) for one in DOCAS}
    first = f"doca/{DOCAS[0].version}"
    common = {
        "distribution": distribution(family),
        lustre.PLACE: lustre.packages(family, KERNELS[family]),
    }
    return {
        "first": {"cuda": cuda(family, "first"), first: docas[first], **common},
        "all": {"cuda": cuda(family, "all"), **docas, **common},
    }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A recipe of HPCCM (PyPI package hpccm) for an image with the MPI of the software set.

HPCCM turns it into a Dockerfile or a definition of Apptainer. The image has UCX, Open MPI and
mpi4py of the set, the user-space RDMA drivers of its distribution, and NCCL; drivers are those of
the node.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from ...module_utils.core.distribution import Distribution
from ...module_utils.core.files import HEADER
from ...module_utils.core.messages import message
from ...module_utils.core.part import PlanError
from ...module_utils.mpi.build import DIRECTORIES
from ...module_utils.software.software_set import DISTRIBUTION, HPCX, IMPI, Mpi, SoftwareSet
from .providers import archive_of, layout_of_hpcx, prefix_of

BASES = {
    "ubuntu": "docker.io/library/ubuntu:{release}",
    "debian": "docker.io/library/debian:{release}",
    "rocky": "quay.io/rockylinux/rockylinux:{major}",
    "almalinux": "docker.io/library/almalinux:{major}",
    "rhel": "registry.access.redhat.com/ubi{major}/ubi",
}
"""Images of the distributions, for a set without CUDA."""
DOWNLOADS = "/var/tmp/baremetal"
TOOLS = {"debian": ("ca-certificates", "curl", "python3-pip"), "redhat": ("curl", "python3-pip")}
EPEL = "dnf install -y epel-release"


def recipe(software: SoftwareSet, distribution: Distribution, base: str = "") -> str:
    """The recipe as text. `base`: the image to begin with; required for a set with CUDA.

    Raises PlanError for a set from which no image can be made.
    """
    mpi = software.mpi
    if mpi.provider == IMPI:
        raise PlanError(
            message("recipe.impi", "software.mpi.provider is impi: images need Open MPI")
        )
    if software.cuda and not base:
        raise PlanError(
            message(
                "recipe.base",
                "the set has CUDA {cuda}: name an image with it as recipe_base, such as "
                "nvcr.io/nvidia/cuda:{cuda}.0-devel-{folder}",
                cuda=software.cuda,
                folder=distribution.cuda_folder,
            )
        )
    image = base or BASES[distribution.name].format(
        release=distribution.release, major=distribution.major
    )
    family, of = distribution.family, distribution.mpi
    packages = [*family.inbox_rdma, *TOOLS[family.name]]
    steps = [f"baseimage(image={_text(image)})"]
    if mpi.provider == DISTRIBUTION:
        packages += [*of.packages, *of.ucx]
        if family.name == "redhat":
            steps.append(_shell([EPEL]))
    elif mpi.provider == HPCX:
        packages += ["bzip2", "python3-numpy"]
    else:
        packages += [*of.build, "python3-numpy"]
    packages += _nccl(software, family.name)
    block = "apt_get" if family.name == "debian" else "yum"
    steps.append(f"{block}(ospackages={_list(dict.fromkeys(packages))})")
    if mpi.provider == DISTRIBUTION:
        variables = _variables(of.bin_directory, of.library_directory, of.python_directory)
    else:
        steps.append(_shell([*_unpacked(mpi, distribution), _mpi4py(mpi, distribution)]))
        layout = layout_of_hpcx(prefix_of(mpi, distribution), _python(mpi, distribution))
        names = ("bin_directory", "library_directory", "python_directory")
        variables = {**layout["variables"], **_variables(*(layout[name] for name in names))}
    if variables:
        steps.append(f"environment(variables={json.dumps(variables, indent=4)})")
    head = [f"# {HEADER}", f"# {distribution.label}: hpccm --recipe FILE --format docker"]
    return "\n".join([*head, *(f"Stage0 += {step}" for step in steps), ""])


def _nccl(software: SoftwareSet, family: str) -> list[str]:
    if not software.nccl:
        return []
    version = f"{software.nccl}-1+cuda{software.cuda_major}"
    return [f"libnccl2={version}" if family == "debian" else f"libnccl-{version}"]


def _unpacked(mpi: Mpi, distribution: Distribution) -> list[str]:
    """Commands that leave HPC-X, or UCX and Open MPI, below the directory of the nodes."""
    prefix = prefix_of(mpi, distribution)
    if mpi.provider == HPCX:
        archive = archive_of(mpi, distribution)
        if not archive.sha256:
            raise PlanError(
                message("recipe.sha256", "{url} has no sha256 in the model", url=archive.url)
            )
        return [*_fetched(archive.url, archive.sha256, prefix), f"rm -rf {DOWNLOADS}"]
    commands = []
    for build in mpi.sources.builds if mpi.sources else ():
        name, tree = build["name"], f"{DOWNLOADS}/{build['name']}"
        options = [f"--prefix={prefix}/{DIRECTORIES[name]}"]
        if name == "openmpi":
            options += [f"--with-ucx={prefix}/ucx", f"LDFLAGS=-Wl,-rpath,{prefix}/ucx/lib"]
        commands += _fetched(build["url"], build["sha256"], tree)
        words = " ".join(map(shlex.quote, [*options, *build["options"]]))
        commands += [f"cd {tree} && ./configure {words}", f'make -C {tree} -j"$(nproc)" install']
    return [*commands, f"rm -rf {DOWNLOADS}"]


def _fetched(url: str, sha256: str, directory: str) -> list[str]:
    archive = f"{DOWNLOADS}/archive"
    return [
        f"mkdir -p {DOWNLOADS} {directory}",
        f"curl -fsSL -o {archive} {shlex.quote(url)}",
        f"echo '{sha256}  {archive}' | sha256sum -c -",
        f"tar -xf {archive} -C {directory} --strip-components=1",
    ]


def _python(mpi: Mpi, distribution: Distribution) -> str:
    return f"{prefix_of(mpi, distribution)}/mpi4py-{mpi.mpi4py}"


def _mpi4py(mpi: Mpi, distribution: Distribution) -> str:
    target = _python(mpi, distribution)
    only = "--no-deps --only-binary :all:"
    return f"python3 -m pip install {only} --target {target} mpi4py=={mpi.mpi4py}"


def _variables(programs: str, libraries: str, python: str) -> dict[str, str]:
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    found = {
        "PATH": f"{programs}:{usual}" if programs else "",
        "LD_LIBRARY_PATH": f"{libraries}:$LD_LIBRARY_PATH" if libraries else "",
        "PYTHONPATH": python,
    }
    return {name: value for name, value in found.items() if value}


def _shell(commands: Sequence[str]) -> str:
    return f"shell(commands={_list(commands)})"


def _list(words: Any) -> str:
    return json.dumps(list(words), indent=4)


def _text(word: str) -> str:
    return json.dumps(word)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of a release of DOCA. Names, versions and relations are from public sources, which
README.md lists together with the guesses.

Open MPI and UCX are Debian's programs and libraries, and work. The other packages are simulated.
"""

from __future__ import annotations

import re

from . import debian
from .debian import Debian
from .package import File, Package
from .pieces import FAULT, LIBRARIES, Y, dkms_scripts, dkms_source, document, mft, tool
from .versions import Doca

EPOCH = "3:"
"""Epoch of `openmpi` on EL."""


def packages(family: str, release: Doca, mpi: Debian | None = None) -> list[Package]:
    """Without `mpi` the packages have no files of Open MPI and UCX."""
    ubuntu = family == Y
    end = "" if ubuntu else release.distribution
    core = release.rdma_core + end
    exact = [
        *_drivers(family, release),
        *_devices(ubuntu, release, core),
        _open_mpi(family, release, mpi),
        *_ucx(family, release, mpi),
        _plain("sharp", release.sharp),
    ]
    others = [
        _plain("rdmacm-utils" if ubuntu else "librdmacm-utils", core),
        _plain("infiniband-diags", core),
        _plain("mlnx-tools", release.mlnx_tools),
        mft(release.mft, "doca"),
    ]
    beside = [_nfs(family, release)]
    if ubuntu:
        beside.append(Package("dkms", "3.2.2-1", files={"/usr/sbin/dkms": tool("dkms", "3.2.2")}))
    else:
        others.append(_plain("infiniband-diags-compat", core))
        of_mpi = (("hcoll", release.hcoll), ("mpitests_openmpi", release.mpitests))
        others += [_plain(name, version) for name, version in of_mpi if version]
        beside.append(_plain("doca-extra", f"{release.extra}.el9"))
    requires = (*(same(one, ubuntu) for one in exact), *(one.name for one in others))
    full = f"{release.version}-{release.build}{end}"
    profiles = [
        Package(name, full, requires=requires, files=document(name, full))
        for name in ("doca-ofed", "doca-roce", "doca-all")
    ]
    return [*profiles, *exact, *others, *beside]


def _plain(name: str, version: str) -> Package:
    return Package(name, version, files=document(name, version))


def _devices(ubuntu: bool, release: Doca, core: str) -> list[Package]:
    rules = {"/usr/lib/udev/rules.d/60-stand-in-rdma.rules": File(b"\n")}
    tools = {
        f"/usr/bin/{name}": tool(name, release.rdma_core) for name in ("ibv_devinfo", "ibv_devices")
    }
    write = {"/usr/bin/ib_write_bw": tool("ib_write_bw", release.perftest)}
    found = [
        Package("rdma-core", core, files=rules),
        Package("ibverbs-utils" if ubuntu else "libibverbs-utils", core, files=tools),
        Package("perftest", release.perftest, files=write),
        _plain("libibumad3" if ubuntu else "libibumad", core),
    ]
    return found if ubuntu else [*found, _plain("libibverbs", core)]


def same(package: Package, ubuntu: bool) -> str:
    relation = f"(= {package.version})" if ubuntu else f"= {package.version}"
    return f"{package.name} {relation}"


def _module(
    family: str, release: Doca, name: str, package: str, *requires: str, before: str = ""
) -> Package:
    """A source of kernel modules. On EL, DKMS has another version of it than the package."""
    ubuntu = family == Y
    source = f"{release.stream}.{release.drivers}" if ubuntu else release.stream
    revision = "-1" if ubuntu else f"-{release.drivers}{release.distribution}"
    return Package(
        package,
        source + revision,
        requires=("dkms", *requires),
        files=dkms_source(name, source),
        before=before,
        **dkms_scripts(name, source),  # type: ignore[arg-type]
    )


def _drivers(family: str, release: Doca) -> list[Package]:
    if family == Y:
        name = "mlnx-ofed-kernel"
        return [_module(family, release, name, f"{name}-dkms", before=FAULT)]
    name = "mlnx-ofa_kernel"
    dkms = _module(family, release, name, f"{name}-dkms", name, before=FAULT)
    return [dkms, _plain(name, dkms.version)]


def _nfs(family: str, release: Doca) -> Package:
    """NFS over RDMA, which is in no profile."""
    drivers = _drivers(family, release)[0].name
    return _module(family, release, "mlnx-nfsrdma", "mlnx-nfsrdma-dkms", drivers)


def _open_mpi(family: str, release: Doca, mpi: Debian | None) -> Package:
    ubuntu, settings = family == Y, "/etc/pmix-mca-params.conf"
    files = debian.open_mpi(mpi.open_mpi, release.mpi_prefix) if mpi else {}
    return Package(
        "openmpi",
        release.openmpi if ubuntu else EPOCH + release.openmpi,
        requires=("ucx", *(mpi.depends if mpi and ubuntu else ())),
        provides=() if ubuntu else ("mpi",),
        files={**document("openmpi", release.openmpi), **files, settings: File(b"# stand-in\n")},
        settings=(settings,),
    )


def _ucx(family: str, release: Doca, mpi: Debian | None) -> list[Package]:
    """On Ubuntu one package, which replaces the distribution's; on EL one package per transport."""
    name, version = "ucx", release.ucx
    ubuntu = family == Y
    libraries = "/usr/lib" if ubuntu else LIBRARIES[family]
    files = {**document(name, version), **(debian.ucx(mpi.ucx, libraries) if mpi else {})}
    if ubuntu:
        inbox = ("libucx0", "libucx-dev", "ucx-utils")
        older = tuple(f"{each} (<< {version})" for each in inbox)
        provides = tuple(f"{each} (= {version})" for each in inbox)
        if version < "1.19":  # conflicts with every package that needs libucx0
            provides = ()
        return [Package(name, version, (), provides, older, older, files)]
    found = []
    for part in ("cma", "ib", "ib_mlx5", "rdmacm", "knem", "xpmem", "devel"):
        package = f"{name}-{part.replace('_', '-')}"
        mine = {path for path in files if re.search(rf"/libuct_{part}\.so", path)}
        needs = f"{name}-ib" if part == "rdmacm" else name
        found.append(
            Package(
                package,
                version,
                requires=(f"{needs} = {version}",),
                files={**document(package, version), **{path: files[path] for path in mine}},
            )
        )
        files = {path: file for path, file in files.items() if path not in mine}
    # Not a %config: an update overwrites it.
    files["/etc/ucx/ucx.conf"] = File(b"# stand-in\n")
    return [Package(name, version, files=files), *found]

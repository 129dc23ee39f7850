# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `software`, and its compilation to the software set (`cluster_software`).

Messages and pages under docs/ are generated from the keys. software_rules.py has the rules for
combinations of versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Optional

from ...module_utils.software.software_set import (
    CUDA_URL,
    DISTRIBUTION,
    DOCA,
    DOCA_PROFILE,
    DOCA_URL,
    HPCX,
    IMPI,
    INBOX,
    NO_RDMA,
    OPEN,
    PROPRIETARY,
    SOURCE,
    SoftwareSet,
)
from ..schema.findings import Findings, Path, RefusedError, dotted
from ..schema.kinds import Boolean, Key, ListOf, OneOf, OrNull, Section, Text
from .software_rules import REFUSED, evaluate

KEY = "software"
"""Key in the cluster model."""
VARIABLE = "cluster_software"
"""Variable with the compiled value."""

GPUS = ("B300", "B200", "H200", "H100")
PREFIXES = "/opt/baremetal-mpi-roce"
"""Directory for unpacked archives on every host."""
_OF_THE_GPU = ("cuda", "dcgm", "gdrcopy", "nccl")
_INSTALLED = ("dcgm", "gdrcopy", "nccl")
"""The repository is configured only for the driver; the toolkit is also needed to build MPI."""
_OF_PROVIDERS = {
    "archives": (HPCX,),
    "impi": (IMPI,),
    "sources": (SOURCE,),
    "mpi4py": (HPCX, IMPI, SOURCE),
}
CUDA = "/usr/local/cuda"
"""Location of the toolkit that the packages install."""
CUDA_MODULES = "--enable-mca-dso=accelerator-cuda,btl-smcuda,rcache-rgpusm,rcache-gpusm"
OPTIONS = {
    "ucx": (
        *("--disable-logging", "--disable-debug", "--disable-assertions"),
        *("--disable-params-check", "--disable-doxygen-doc", "--disable-static", "--enable-mt"),
        *("--with-verbs", "--with-rdmacm", "--without-java", "--without-go", "--with-bfd=no"),
    ),
    "openmpi": (
        *("--disable-oshmem", "--enable-mpi-fortran=none", "--disable-static", "--without-verbs"),
        *("--with-hwloc=internal", "--with-libevent=internal", "--with-pmix=internal"),
        *("--without-ofi", "--with-libnl=no"),
    ),
}
"""Options of configure, in build order: those of UCX's contrib/configure-release, without
libraries that only the build host has."""


def _version(parts: int, wanted: str, example: str, empty: bool = True) -> Text:
    form = r"\.".join([r"\d+"] * parts)
    return Text(form, wanted, f'"{example}" (in quotes)', 40, empty)


def _checksum(empty: bool = False) -> Text:
    wanted = "a SHA-256 checksum (64 digits 0 to 9, a to f)"
    return Text(r"[0-9a-f]{64}", wanted, "what sha256sum prints", empty=empty)


RDMA = Section(
    "software.rdma",
    "RDMA drivers and tools.",
    (
        Key(
            "source",
            OneOf((DOCA, INBOX, NO_RDMA)),
            "`doca`: NVIDIA DOCA-OFED. `inbox`: drivers of the kernel, tools of the "
            "distribution. `none`: the layer does nothing.",
            default=INBOX,
        ),
        Key(
            "version",
            _version(3, "a release of DOCA", "3.2.0"),
            "DOCA release; only for the source `doca`.",
            default="",
        ),
        Key(
            "profile",
            Text(r"doca-[a-z0-9-]+", "a profile of DOCA", "doca-ofed", 40, empty=True),
            "Meta package: `doca-ofed`, `doca-roce`, `doca-all`, ...",
            default_text=f"`{DOCA_PROFILE}` with the source `doca`",
        ),
    ),
)

DRIVER = Section(
    "software.driver",
    "NVIDIA driver; enables the layer `gpu`. Fabric manager, NSCQ, IMEX and persistenced "
    "always have the same version.",
    (
        Key(
            "manage",
            Boolean(),
            "Install the driver. `false`: only verify one [installed by "
            "others](software-set.md#a-driver-that-others-installed).",
            default=True,
        ),
        # All three numbers, as DKMS and the driver report them.
        Key(
            "version",
            _version(3, "a driver version with all its numbers", "580.95.05"),
            "Driver version; the first number is the branch. Optional with `manage: "
            "false`: then any version that all components share.",
            default="",
        ),
        Key("modules", OneOf((OPEN, PROPRIETARY)), "Kernel modules.", default=OPEN),
        Key(
            "gpu",
            OneOf(GPUS),
            "GPU model of the nodes.",
            default=GPUS[0],
        ),
    ),
)


class _Repository(Section):
    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        checked = super().check(value, findings, path)
        plain = checked and str(checked["url"]).startswith("http:")
        if plain and checked["signed_metadata"] is False:
            findings.add(
                "software.unchecked_metadata",
                (*path, "signed_metadata"),
                "is false and url begins with http://: the list of packages is not verified",
                f"Write https:// in {dotted((*path, 'url'))}, or signed_metadata: true",
                False,
            )
        return checked


def repository(name: str, text: str, fields: tuple[str, ...], url: str = "") -> Section:
    """The keys of a package repository. `fields` are placeholders in its URL; `url` is the default.

    No other braces are allowed, so that no computed value can be a template.
    """
    filled_in = ", ".join(f"{{{field}}}" for field in fields)
    form = r"(https?://[^\s{}'\"@]|file:///)([^\s{}'\"@]|\{(" + "|".join(fields) + r")\})*"
    wanted = f"a URL (https, http, file) without user or password, with placeholders {filled_in}"
    return _Repository(
        name,
        text,
        (
            Key(
                "url",
                Text(form, wanted, "file:///srv/packages/{distribution}", 500, secret=True),
                "Base URL; may be a mirror or a directory (`file:///`).",
                required=not url,
                default=url,
            ),
            Key(
                "key",
                Text(r"[^\s{}'\"]+", "a file of the controller", "keys/cuda.asc", 500),
                "Public signing key: a file on the controller, relative to the inventory.",
                required=True,
            ),
            Key(
                "key_sha256",
                _checksum(empty=True),
                "SHA-256 of that file; compare the key's fingerprint first. While empty, "
                "the repository is not used.",
                required=True,
            ),
            Key(
                "signed_metadata",
                Boolean(),
                "Also verify the signature of metadata (dnf). Packages are always verified.",
                default=True,
            ),
        ),
    )


_CUDA = repository(
    "software.repositories.cuda",
    "Driver, CUDA, DCGM, GDRCopy, NCCL. `{distribution}`: `ubuntu2404`, `rhel9`, ...",
    ("distribution", "architecture"),
    CUDA_URL,
)
_DOCA = repository(
    "software.repositories.doca",
    "DOCA-OFED. `{version}` is `rdma.version`; `{distribution}`: `ubuntu24.04`, `rhel9`, ...",
    ("version", "distribution", "architecture"),
    DOCA_URL,
)
ARCHIVE = Section(
    "software.mpi.archives",
    "A build of HPC-X, such as hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz.",
    (
        Key(
            "distribution",
            Text(r"[a-z]+\d+(\.\d+)?", "a distribution as HPC-X names it", "ubuntu24.04", 20),
            "Distribution of the hosts: `ubuntu24.04`, `redhat9`, `debian12`.",
            required=True,
        ),
        Key(
            "url",
            Text(
                r"(https?://[^\s{}'\"@]+|file:///[^\s{}'\"@]+)/[A-Za-z0-9._+-]+\.(tbz|tar\.bz2|tgz|tar\.gz)",
                "a URL (https, http, file) of a .tbz or .tgz without user or password",
                "https://mirror.example.net/hpcx-v2.24.1-....tbz",
                500,
                secret=True,
            ),
            "Download URL for every host; `file:///` is a path on the host.",
            required=True,
        ),
        Key(
            "sha256",
            _checksum(empty=True),
            "Checksum. While empty, the layer `mpi` stops.",
            required=True,
        ),
    ),
)
WHEEL = Section(
    "software.mpi.impi",
    "The wheel `impi-rt` in the directory of wheels.",
    (
        Key(
            "version",
            _version(3, "a version of impi-rt", "2021.18.1", empty=False),
            "Version. Releases after 2021.18.1 no longer bundle libfabric.",
            required=True,
        ),
        Key("sha256", _checksum(), "Checksum.", required=True),
    ),
)
_OPTION = Text(r"[A-Za-z-][^\s{}'\"]*", "an option of configure", "--with-gdrcopy=/usr", 500)


def _source(name: str, what: str, example: str) -> Key:
    url = Text(
        r"(https?://[^\s{}'\"@]+|file:///[^\s{}'\"@]+)/[A-Za-z0-9._+~-]+\.(tgz|tbz|tar\.(gz|bz2|xz))",
        "a URL (https, http, file) of a .tar.gz, .tar.bz2 or .tar.xz without user or password",
        f"https://mirror.example.net/{example}",
        500,
        secret=True,
    )
    keys = (
        Key("url", url, "Download URL, reachable from the build node.", required=True),
        Key("sha256", _checksum(), "Checksum.", required=True),
        Key(
            "options",
            ListOf(_OPTION, "options of configure"),
            "Extra configure options, appended to those of the collection.",
            default=[],
        ),
    )
    section = Section(f"software.mpi.sources.{name}", f"A release archive of {what}.", keys)
    return Key(name, section, f"A release archive of {what}.", required=True)


SOURCES = Section(
    "software.mpi.sources",
    "Sources of the provider `source`.",
    (
        _source("ucx", "UCX", "ucx-1.19.0.tar.gz"),
        _source("openmpi", "Open MPI", "openmpi-4.1.8.tar.bz2"),
    ),
)
MPI = Section(
    "software.mpi",
    "MPI, UCX and mpi4py: [mpi.md](mpi.md#provider).",
    (
        Key(
            "provider",
            OneOf((DISTRIBUTION, HPCX, IMPI, SOURCE)),
            "`distribution`: packages of the distribution. `hpcx`: archive of NVIDIA "
            "HPC-X, with UCX for GPU memory. `impi`: wheel of Intel MPI. `source`: UCX "
            "and Open MPI, built on a node.",
            default=DISTRIBUTION,
        ),
        Key(
            "archives",
            ListOf(ARCHIVE, "archives"),
            "For `hpcx`: one for each distribution.",
            default=[],
        ),
        Key("impi", OrNull(WHEEL), "For `impi`: its wheel."),
        Key("sources", OrNull(SOURCES), "For `source`: the archives."),
        Key(
            "mpi4py",
            _version(3, "a version of mpi4py", "4.1.1"),
            "Version of mpi4py, for all but `distribution`. Since 4.1.0 its wheels work "
            "with any MPI.",
            default="",
        ),
        Key(
            "mpi4py_sha256",
            ListOf(_checksum(), "checksums"),
            "Checksums of its wheels, one per Python version. Empty: not checked.",
            default=[],
        ),
        Key(
            "wheels",
            Text(r"[^\s{}'\"]+", "a directory of the controller", "wheels", 200),
            "Directory of wheels, relative to the inventory, for all but `distribution`.",
            default="wheels",
        ),
    ),
)
REPOSITORIES = Section(
    "software.repositories",
    "Package repositories of the set.",
    (
        Key("cuda", OrNull(_CUDA), "Required with a driver."),
        Key("doca", OrNull(_DOCA), "Required with `rdma.source: doca`."),
    ),
)

SOFTWARE = Section(
    "software",
    "The versions that the layers `rdma`, `gpu` and `mpi` install and pin: "
    "[software-set.md](software-set.md).",
    (
        Key(
            "kernel",
            Text(r"[0-9][A-Za-z0-9._+~-]*", "a kernel release", "6.8.0-79-generic", 80, empty=True),
            "Required kernel, as printed by `uname -r`. Empty: hold the installed kernel.",
            default="",
        ),
        Key("rdma", RDMA, "RDMA drivers and tools."),
        Key("driver", OrNull(DRIVER), "The NVIDIA driver. Left out, there is no layer `gpu`."),
        Key(
            "cuda",
            _version(2, "a CUDA toolkit by its first two numbers", "13.0"),
            "CUDA toolkit. Empty: not in the set; likewise `dcgm`, `gdrcopy` and `nccl`.",
            default="",
        ),
        Key("dcgm", _version(3, "a version of DCGM", "4.4.1"), "DCGM.", default=""),
        Key(
            "dcgm_profiling",
            Boolean(),
            "With DCGM 4: install the profiling packages (`DCGM_FI_PROF_*`), which are "
            "not open source.",
            default=True,
        ),
        Key(
            "gdrcopy",
            _version(3, "a version of GDRCopy with all its numbers", "2.5.1"),
            "GDRCopy.",
            default="",
        ),
        Key("nccl", _version(3, "a version of NCCL", "2.28.3"), "NCCL.", default=""),
        Key("mpi", MPI, "MPI, the layer `mpi`."),
        Key("repositories", REPOSITORIES, "Package repositories."),
    ),
)


class SoftwareError(RefusedError):
    """The set is refused."""

    what = f"{VARIABLE} cannot be installed"


def read_software(value: Optional[Mapping[str, Any]]) -> SoftwareSet:
    """The set that `value` describes; None and {} mean the defaults. Raises SoftwareError."""
    findings, path = Findings(), (VARIABLE,)
    checked = SOFTWARE.check({} if value is None else value, findings, path)
    software = None if findings else finish(checked, findings, path)
    if software is None or findings:
        raise SoftwareError(findings.found)
    return software


def finish(value: dict[str, Any], findings: Findings, path: Path) -> SoftwareSet:
    """The software set for a value that has passed SOFTWARE.check."""
    before = len(findings.found)
    _check_keys(value, findings, path)
    rdma = value["rdma"]
    profile = rdma["profile"] or (DOCA_PROFILE if rdma["source"] == DOCA else "")
    archives = [{**item, "prefix": _prefix(**item)} for item in value["mpi"]["archives"]]
    mpi = value["mpi"]
    wheel = mpi["impi"]
    if wheel:
        prefix = f"{PREFIXES}/impi-{wheel['version']}-{wheel['sha256'][:12]}"
        wheel = {**wheel, "prefix": prefix}
    sources = _built(value) if mpi["sources"] else None
    mpi = {**mpi, "archives": archives, "impi": wheel, "sources": sources}
    software = SoftwareSet.of({**value, "rdma": {**rdma, "profile": profile}, "mpi": mpi})
    if len(findings.found) == before:
        for rule in evaluate(software):
            if rule.status == REFUSED:
                key = (*path, *rule.key.split("."))
                findings.add(f"software.{rule.name}", key, rule.problem(software), rule.remedy)
    return software


def _built(value: dict[str, Any]) -> dict[str, Any]:
    """The builds, and their prefix, which depends on archives, options and drivers."""
    builds = []
    for name, given in value["mpi"]["sources"].items():
        options = [*OPTIONS[name]]
        if value["cuda"]:
            options.append(f"--with-cuda={CUDA}")
            # Built as modules, so that Open MPI also starts on the launcher, which has no driver.
            if re.search(r"openmpi[-_]5\.", given["url"]):
                options += [f"--with-cuda-libdir={CUDA}/lib64/stubs", CUDA_MODULES]
        builds.append({**given, "name": name, "options": [*options, *given["options"]]})
    known = {**value["rdma"], "cuda": value["cuda"]}
    inputs = [[build["sha256"], build["options"]] for build in builds]
    text = json.dumps([known, inputs], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return {"prefix": f"{PREFIXES}/source-{digest}", "cuda": bool(value["cuda"]), "builds": builds}


def _prefix(url: str, sha256: str, **_distribution: str) -> str:
    name = re.sub(r"\.(tbz|tar\.bz2|tgz|tar\.gz)$", "", url.rpartition("/")[2])
    return f"{PREFIXES}/{name}-{sha256[:12]}"


def _check_keys(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Check keys that require or exclude each other, whatever their versions."""
    rdma, driver, repositories = value["rdma"], value["driver"], value["repositories"]
    if rdma["source"] == DOCA and not rdma["version"]:
        findings.add(
            "software.no_doca_version",
            (*path, "rdma", "version"),
            "is missing, but the source is doca",
            "Write the release of DOCA",
        )
    for key in ("version", "profile"):
        if rdma["source"] != DOCA and rdma[key]:
            findings.add(
                "software.of_doca",
                (*path, "rdma", key),
                f"{rdma[key]!r} belongs to DOCA, but {dotted((*path, 'rdma', 'source'))} is "
                f"{rdma['source']}",
                "Remove it, or write source: doca",
                rdma[key],
            )
    for key in _OF_THE_GPU:
        if value[key] and not driver:
            findings.add(
                "software.needs_driver",
                (*path, key),
                f"{value[key]!r} needs the NVIDIA driver, which is not in the set",
                f"Write {dotted((*path, 'driver', 'version'))}, or remove it",
                value[key],
            )
    if driver and driver["manage"] and not driver["version"]:
        findings.add(
            "software.no_driver_version",
            (*path, "driver", "version"),
            "is missing",
            "Write it, or write manage: false if others install the driver",
        )
    for key in _INSTALLED:
        if value[key] and driver and not driver["manage"]:
            findings.add(
                "software.not_managed",
                (*path, key),
                f"{value[key]!r} would be installed, but {dotted((*path, 'driver', 'manage'))} is "
                "false",
                "Remove it: software installed by others is not changed",
                value[key],
            )
    mpi = value["mpi"]
    for key, providers in _OF_PROVIDERS.items():
        if bool(mpi[key]) is not (mpi["provider"] in providers):
            of = " or ".join(providers)
            findings.add(
                "software.of_provider",
                (*path, "mpi", key),
                f"is {'missing' if not mpi[key] else f'for {of}'}, but "
                f"{dotted((*path, 'mpi', 'provider'))} is {mpi['provider']}",
                "Write it" if not mpi[key] else f"Remove it, or write provider: {of}",
            )
    for name, needed, reason in (
        ("cuda", bool(driver and driver["manage"]), "it provides the driver"),
        ("doca", rdma["source"] == DOCA, "rdma.source is doca"),
    ):
        if needed and not repositories[name]:
            findings.add(
                "software.no_repository",
                (*path, "repositories", name),
                f"is missing, but {reason}",
                "Add it with key and key_sha256",
            )

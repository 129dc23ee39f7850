# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `software`, and the set that its value is compiled to (`cluster_software`).

Messages and the pages under docs/ come from the keys; software_rules.py has which versions go
together.
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
"""The key of a cluster model."""
VARIABLE = "cluster_software"
"""The variable that it is compiled to."""

GPUS = ("B300", "B200", "H200", "H100")
PREFIXES = "/opt/baremetal-mpi-roce"
"""Archives are unpacked below this directory of every host."""
_OF_THE_GPU = ("cuda", "dcgm", "gdrcopy", "nccl")
_INSTALLED = ("dcgm", "gdrcopy", "nccl")
"""Of those, the ones that only its packages need. MPI is built with the toolkit as well."""
_OF_PROVIDERS = {
    "archives": (HPCX,),
    "impi": (IMPI,),
    "sources": (SOURCE,),
    "mpi4py": (HPCX, IMPI, SOURCE),
}
CUDA = "/usr/local/cuda"
"""Where its packages have the toolkit of the set."""
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
"""Of configure, in the order of builds: what UCX's contrib/configure-release has, and no library
that a host without the build's packages would lack."""


def _version(parts: int, wanted: str, example: str, empty: bool = True) -> Text:
    form = r"\.".join([r"\d+"] * parts)
    return Text(form, wanted, f'"{example}" (in quotes)', 40, empty)


def _checksum(empty: bool = False) -> Text:
    wanted = "a SHA-256 checksum (64 digits 0 to 9, a to f)"
    return Text(r"[0-9a-f]{64}", wanted, "what sha256sum prints", empty=empty)


RDMA = Section(
    "software.rdma",
    "RDMA drivers and tools, the layer `rdma`.",
    (
        Key(
            "source",
            OneOf((DOCA, INBOX, NO_RDMA)),
            "`doca`: DOCA-OFED of NVIDIA. `inbox`: drivers of the kernel, tools of the "
            "distribution. `none`: the layer does nothing.",
            default=INBOX,
        ),
        Key(
            "version",
            _version(3, "a release of DOCA", "3.2.0"),
            "Release of DOCA, for the source `doca` alone.",
            default="",
        ),
        Key(
            "profile",
            Text(r"doca-[a-z0-9-]+", "a profile of DOCA", "doca-ofed", 40, empty=True),
            "Its meta package: `doca-ofed`, `doca-roce`, `doca-all`, ...",
            default_text=f"`{DOCA_PROFILE}` with the source `doca`",
        ),
    ),
)

DRIVER = Section(
    "software.driver",
    "The NVIDIA driver, and with it the layer `gpu`. Fabric manager, NSCQ, IMEX and persistenced "
    "have its version by construction: there is no key for them.",
    (
        Key(
            "manage",
            Boolean(),
            "Whether it is installed here. `false`: "
            "[others did](software-set.md#a-driver-that-others-installed); it is verified, and no "
            "package is touched.",
            default=True,
        ),
        # All numbers: DKMS and the driver itself report all of them.
        Key(
            "version",
            _version(3, "a driver version with all its numbers", "580.95.05"),
            "Its version; the branch is the first number. With `manage: false` it may be left out: "
            "any, as long as all parts have it.",
            default="",
        ),
        Key("modules", OneOf((OPEN, PROPRIETARY)), "Its kernel modules.", default=OPEN),
        Key(
            "gpu",
            OneOf(GPUS),
            "The GPU of the nodes, which decides what is needed beside the driver.",
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
                "is false, and url begins with http://: nothing checks which packages there are",
                f"Write https:// in {dotted((*path, 'url'))}, or signed_metadata: true",
                False,
            )
        return checked


def repository(name: str, text: str, fields: tuple[str, ...], url: str = "") -> Section:
    """The keys of a package repository. `fields` in its URL are filled in; `url` is the default.

    The URL has no braces but these: nothing that is computed can be a template.
    """
    filled_in = ", ".join(f"{{{field}}}" for field in fields)
    form = r"(https?://[^\s{}'\"@]|file:///)([^\s{}'\"@]|\{(" + "|".join(fields) + r")\})*"
    wanted = (
        f"a URL (https, http, file) without user or password, in which {filled_in} are filled in"
    )
    return _Repository(
        name,
        text,
        (
            Key(
                "url",
                Text(form, wanted, "file:///srv/packages/{distribution}", 500, secret=True),
                "Its base; a mirror or a folder (`file:///`) serves too.",
                required=not url,
                default=url,
            ),
            Key(
                "key",
                Text(r"[^\s{}'\"]+", "a file of the controller", "keys/cuda.asc", 500),
                "File with the public key that signs it, on the controller, relative to the "
                "inventory.",
                required=True,
            ),
            Key(
                "key_sha256",
                _checksum(empty=True),
                "Checksum of that file: compare the key's fingerprint first, then run sha256sum. "
                "While it is empty, no layer uses the repository.",
                required=True,
            ),
            Key(
                "signed_metadata",
                Boolean(),
                "Whether dnf checks the signature of the metadata too; of packages it always does.",
                default=True,
            ),
        ),
    )


_CUDA = repository(
    "software.repositories.cuda",
    "Driver, CUDA, DCGM, GDRCopy, NCCL. `{distribution}` is of the form `ubuntu2404` or `rhel9`.",
    ("distribution", "architecture"),
    CUDA_URL,
)
_DOCA = repository(
    "software.repositories.doca",
    "DOCA-OFED. `{version}` is `rdma.version`, `{distribution}` is of the form `ubuntu24.04` or "
    "`rhel9`.",
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
            "The hosts that it is for, such as `ubuntu24.04`, `redhat9`, `debian12`.",
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
            "Where every host gets it; `file:///` is a path of the host, such as a mount.",
            required=True,
        ),
        Key(
            "sha256",
            _checksum(empty=True),
            "Its checksum. While it is empty, the layer `mpi` stops.",
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
            "Its version. Later ones than 2021.18.1 lack libfabric.",
            required=True,
        ),
        Key("sha256", _checksum(), "Its checksum, as sha256sum prints it.", required=True),
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
        Key("url", url, "Where the node that builds it gets it.", required=True),
        Key("sha256", _checksum(), "Its checksum.", required=True),
        Key(
            "options",
            ListOf(_OPTION, "options of configure"),
            "Further ones, after those of the collection.",
            default=[],
        ),
    )
    section = Section(f"software.mpi.sources.{name}", f"A release archive of {what}.", keys)
    return Key(name, section, f"A release archive of {what}.", required=True)


SOURCES = Section(
    "software.mpi.sources",
    "What the provider `source` is built from.",
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
            "`distribution`: its packages. `hpcx`: NVIDIA HPC-X, whose UCX has GPU memory, from an "
            "archive, below /opt/baremetal-mpi-roce. `impi`: Intel MPI, from its wheel. `source`: "
            "UCX and Open MPI, built on a node.",
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
            "For all but `distribution`: version of mpi4py. From 4.1.0 on its wheels are for any "
            "MPI.",
            default="",
        ),
        Key(
            "mpi4py_sha256",
            ListOf(_checksum(), "checksums"),
            "Of its wheels, one for each Python. Empty: not checked.",
            default=[],
        ),
        Key(
            "wheels",
            Text(r"[^\s{}'\"]+", "a directory of the controller", "wheels", 200),
            "For all but `distribution`: directory with the wheels, relative to the inventory.",
            default="wheels",
        ),
    ),
)
REPOSITORIES = Section(
    "software.repositories",
    "Where the packages of the set come from.",
    (
        Key("cuda", OrNull(_CUDA), "Needed with a driver."),
        Key("doca", OrNull(_DOCA), "Needed with `rdma.source: doca`."),
    ),
)

SOFTWARE = Section(
    "software",
    "The one set of versions that the layers `rdma` and `gpu` install, pin and hold: "
    "[software-set.md](software-set.md).",
    (
        Key(
            "kernel",
            Text(r"[0-9][A-Za-z0-9._+~-]*", "a kernel release", "6.8.0-79-generic", 80, empty=True),
            "The kernel that has to run, as `uname -r` reports it. Empty: the one that is "
            "installed is held.",
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
            "With DCGM 4: its packages of profiling (`DCGM_FI_PROF_*`: tensor cores, NVLink). They "
            "are not open source. Up to DCGM 3 profiling is always there.",
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
    """The set that `value` describes; None and {} are the defaults. Raises SoftwareError."""
    findings, path = Findings(), (VARIABLE,)
    checked = SOFTWARE.check({} if value is None else value, findings, path)
    software = None if findings else finish(checked, findings, path)
    if software is None or findings:
        raise SoftwareError(findings.found)
    return software


def finish(value: dict[str, Any], findings: Findings, path: Path) -> SoftwareSet:
    """The set of a value in which SOFTWARE.check found nothing."""
    before = len(findings.found)
    _check_keys(value, findings, path)
    rdma = value["rdma"]
    profile = rdma["profile"] or (DOCA_PROFILE if rdma["source"] == DOCA else "")
    archives = [{**each, "prefix": _prefix(**each)} for each in value["mpi"]["archives"]]
    mpi = value["mpi"]
    wheel = mpi["impi"]
    if wheel:
        place = f"{PREFIXES}/impi-{wheel['version']}-{wheel['sha256'][:12]}"
        wheel = {**wheel, "prefix": place}
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
    """What is built, and its place: another archive, option or set of drivers gets another."""
    builds = []
    for name, given in value["mpi"]["sources"].items():
        options = [*OPTIONS[name]]
        if value["cuda"]:
            options.append(f"--with-cuda={CUDA}")
            # As modules, so that the launcher, without the driver, starts it as well.
            if re.search(r"openmpi[-_]5\.", given["url"]):
                options += [f"--with-cuda-libdir={CUDA}/lib64/stubs", CUDA_MODULES]
        builds.append({**given, "name": name, "options": [*options, *given["options"]]})
    known = {**value["rdma"], "cuda": value["cuda"]}
    text = json.dumps([known, [[one["sha256"], one["options"]] for one in builds]], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return {"prefix": f"{PREFIXES}/source-{digest}", "cuda": bool(value["cuda"]), "builds": builds}


def _prefix(url: str, sha256: str, **_distribution: str) -> str:
    name = re.sub(r"\.(tbz|tar\.bz2|tgz|tar\.gz)$", "", url.rpartition("/")[2])
    return f"{PREFIXES}/{name}-{sha256[:12]}"


def _check_keys(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Keys that need or exclude each other, whatever the versions."""
    rdma, driver, repositories = value["rdma"], value["driver"], value["repositories"]
    if rdma["source"] == DOCA and not rdma["version"]:
        findings.add(
            "software.no_doca_version",
            (*path, "rdma", "version"),
            "is missing, and the source is doca",
            "Write the release of DOCA",
        )
    for key in ("version", "profile"):
        if rdma["source"] != DOCA and rdma[key]:
            findings.add(
                "software.of_doca",
                (*path, "rdma", key),
                f"{rdma[key]!r} is of DOCA, and {dotted((*path, 'rdma', 'source'))} is "
                f"{rdma['source']}",
                "Leave it out, or write source: doca",
                rdma[key],
            )
    for key in _OF_THE_GPU:
        if value[key] and not driver:
            findings.add(
                "software.needs_driver",
                (*path, key),
                f"{value[key]!r} needs the NVIDIA driver, and the set has none",
                f"Write {dotted((*path, 'driver', 'version'))}, or leave it out",
                value[key],
            )
    if driver and driver["manage"] and not driver["version"]:
        findings.add(
            "software.no_driver_version",
            (*path, "driver", "version"),
            "is missing",
            "Write it; or manage: false, where others install the driver",
        )
    for key in _INSTALLED:
        if value[key] and driver and not driver["manage"]:
            findings.add(
                "software.not_managed",
                (*path, key),
                f"{value[key]!r} would be installed, and {dotted((*path, 'driver', 'manage'))} is "
                "false",
                "Leave it out: what others installed stays as it is",
                value[key],
            )
    mpi = value["mpi"]
    for key, providers in _OF_PROVIDERS.items():
        if bool(mpi[key]) is not (mpi["provider"] in providers):
            of = " or ".join(providers)
            findings.add(
                "software.of_provider",
                (*path, "mpi", key),
                f"is {'missing' if not mpi[key] else f'of {of}'}, and "
                f"{dotted((*path, 'mpi', 'provider'))} is {mpi['provider']}",
                "Write it" if not mpi[key] else f"Leave it out, or write provider: {of}",
            )
    for name, needed, why in (
        ("cuda", bool(driver and driver["manage"]), "the driver comes from it"),
        ("doca", rdma["source"] == DOCA, "rdma.source is doca"),
    ):
        if needed and not repositories[name]:
            findings.add(
                "software.no_repository",
                (*path, "repositories", name),
                f"is missing, and {why}",
                "Add it with key and key_sha256",
            )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `software`, and its compilation to the software set (`cluster_software`).

Messages and pages under docs/ are generated from the keys. software_rules.py has the rules for
combinations of versions.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Optional

from ...module_utils.software.floors import FLOORS
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
    Rdma,
    SoftwareSet,
)
from ..schema.findings import Findings, Path, RefusedError, dotted
from ..schema.kinds import Boolean, Key, ListOf, OneOf, OrNull, Section, Text, needed
from .node_kinds import Kinds
from .software_rules import REFUSED, evaluate

VARIABLE = "cluster_software"
"""Variable with the compiled value."""

GPUS = ("B300", "B200", "H200", "H100")
PREFIXES = "/opt/baremetal-mpi-roce"
"""Directory for unpacked archives on every host."""
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


def _archive(ends: str, wanted: str, example: str) -> Text:
    """The URL of an archive. Braces are excluded, so that no computed value can be a template."""
    return Text(
        rf"(https?://[^\s{{}}'\"@]+|file:///[^\s{{}}'\"@]+)/[A-Za-z0-9._+~-]+\.({ends})",
        f"a URL (https, http, file) of a {wanted} without user or password",
        f"https://mirror.example.net/{example}",
        500,
        secret=True,
    )


_OTHER_GPUS = tuple(
    (name, "Nodes with Grace (arm64) are not supported") for name in ("GB300", "GB200", "GH200")
)
_PATH = Text(r"[^\s{}'\"]+", "a file or directory of the controller", "keys/cuda.asc", 500)
_PROFILE = Text(r"doca-[a-z0-9-]+", "a profile of DOCA", "doca-ofed", 40, empty=True)
_DRIVER_VERSION = _version(3, "a driver version with all its numbers", "595.71.05")
RDMA = Section(
    "software.rdma",
    "RDMA drivers and tools.",
    (
        Key(
            "source",
            OneOf((DOCA, INBOX, NO_RDMA)),
            "`doca`: NVIDIA DOCA-OFED. `inbox`: drivers of the kernel, tools of the "
            "distribution. `none`: nothing is installed.",
            default=INBOX,
        ),
        Key("version", _version(3, "a release of DOCA", "3.2.0"), "With `doca`.", default=""),
        Key("profile", _PROFILE, "Meta package, with `doca`.", default_text=f"`{DOCA_PROFILE}`"),
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
            "`false`: only [verify](software-set.md#a-driver-that-others-installed).",
            default=True,
        ),
        Key("version", _DRIVER_VERSION, "Required unless `manage: false`.", default=""),
        Key("modules", OneOf((OPEN, PROPRIETARY)), "Kernel modules.", default=OPEN),
        Key("gpu", OneOf(GPUS, _OTHER_GPUS), "GPU model of the nodes.", default=GPUS[0]),
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
    kind = Text(form, wanted, "file:///srv/packages/{distribution}", 500, secret=True)
    return _Repository(
        name,
        text,
        (
            Key("url", kind, "May be a mirror or a directory.", required=not url, default=url),
            needed("key", _PATH, "Public signing key, relative to the inventory."),
            needed(
                "key_sha256",
                _checksum(empty=True),
                "Of that file; compare the fingerprint first. While empty, it is not used.",
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
_SYSTEM = Text(r"[a-z]+\d+(\.\d+)?", "a distribution as HPC-X names it", "ubuntu24.04", 20)
ARCHIVE = Section(
    "software.mpi.archives",
    "A build of HPC-X, such as hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz.",
    (
        needed("distribution", _SYSTEM, "Of the hosts: `ubuntu24.04`, `redhat9`, `debian12`."),
        needed(
            "url",
            _archive(r"tbz|tar\.bz2|tgz|tar\.gz", ".tbz or .tgz", "hpcx-v2.24.1-....tbz"),
            "For every host; `file:///` is a path on the host.",
        ),
        needed("sha256", _checksum(empty=True), "While empty, the layer `mpi` stops."),
    ),
)
WHEEL = Section(
    "software.mpi.impi",
    "The wheel `impi-rt` in the directory of wheels.",
    (
        needed(
            "version",
            _version(3, "a version of impi-rt", "2021.18.1", empty=False),
            "Releases after 2021.18.1 no longer bundle libfabric.",
        ),
        needed("sha256", _checksum(), ""),
    ),
)
_OPTION = Text(r"[A-Za-z-][^\s{}'\"]*", "an option of configure", "--with-gdrcopy=/usr", 500)


def _source(name: str, what: str, example: str) -> Key:
    url = _archive(r"tgz|tbz|tar\.(gz|bz2|xz)", ".tar.gz, .tar.bz2 or .tar.xz", example)
    options = ListOf(_OPTION, "options of configure")
    keys = (
        needed("url", url, "Reachable from the build node."),
        needed("sha256", _checksum(), ""),
        Key("options", options, "Appended to those of the collection.", default=[]),
    )
    section = Section(f"software.mpi.sources.{name}", f"A release archive of {what}.", keys)
    return needed(name, section, "")


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
    "MPI, UCX and mpi4py.",
    (
        Key(
            "provider",
            OneOf((DISTRIBUTION, HPCX, IMPI, SOURCE)),
            "[Provider](mpi.md#provider). All but `distribution` need `mpi4py`.",
            default=DISTRIBUTION,
        ),
        Key("archives", ListOf(ARCHIVE, "archives"), "One for each distribution.", default=[]),
        Key("impi", OrNull(WHEEL), ""),
        Key("sources", OrNull(SOURCES), ""),
        Key("mpi4py", _version(3, "a version of mpi4py", "4.1.1"), "", default=""),
        Key(
            "mpi4py_sha256",
            ListOf(_checksum(), "checksums"),
            "Of its wheels, one per Python version. Empty: not checked.",
            default=[],
        ),
        Key("wheels", _PATH, "Directory of wheels, relative to the inventory.", default="wheels"),
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

_DATE = Text(r"\d{4}-\d{2}-\d{2}", "a date", "2027-01-31", 10)
ACCEPTED = Section(
    "software.accepted",
    "A version below its [minimum](software-set.md#minimum-versions) that the site uses for a "
    "limited time.",
    (
        needed("component", OneOf(tuple(FLOORS)), ""),
        needed("version", Text(r"[0-9][A-Za-z0-9.+~-]*", "a version", "580.95.05", 40), ""),
        needed("reason", Text(r"[^{}\x00-\x1f]+", "a reason in one line", "", 200), ""),
        needed("until", _DATE, "The last day."),
    ),
)
_KERNEL = Text(
    r"[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9._+~-]*",
    "a kernel release as `uname -r` prints it, with at least three numbers",
    "6.8.0-79-generic",
    80,
    empty=True,
)
SOFTWARE = Section(
    "software",
    "The versions that the layers `rdma`, `gpu` and `mpi` install and pin: "
    "[software-set.md](software-set.md). Empty: not in the set.",
    (
        Key("kernel", _KERNEL, "As `uname -r` prints it. Empty: the installed one.", default=""),
        Key("rdma", RDMA, ""),
        Key("driver", OrNull(DRIVER), "Without it, the layer `gpu` is not applicable."),
        Key("cuda", _version(2, "a CUDA toolkit by its first two numbers", "13.2"), "", default=""),
        Key("dcgm", _version(3, "a version of DCGM", "4.5.3"), "", default=""),
        Key("dcgm_profiling", Boolean(), "For `DCGM_FI_PROF_*`, not open source.", default=True),
        Key("gdrcopy", _version(3, "a full version of GDRCopy", "2.5.1"), "", default=""),
        Key("nccl", _version(3, "a version of NCCL", "2.29.7"), "", default=""),
        Key("mpi", MPI, ""),
        Key("repositories", REPOSITORIES, ""),
        Key("accepted", ListOf(ACCEPTED, "accepted versions"), "", default=[]),
    ),
)


OF_KINDS = ("kernel", "rdma", "driver", "cuda", "dcgm", "dcgm_profiling", "gdrcopy", "nccl")
"""Keys that a kind of nodes may have. Repositories and MPI are the same for all."""


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
    rdma, mpi = {**value["rdma"]}, {**value["mpi"]}
    rdma["profile"] = rdma["profile"] or (DOCA_PROFILE if rdma["source"] == DOCA else "")
    mpi["archives"] = [
        {**item, "prefix": _prefix(item["url"].rpartition("/")[2], item["sha256"])}
        for item in mpi["archives"]
    ]
    if wheel := mpi["impi"]:
        mpi["impi"] = {**wheel, "prefix": _prefix(f"impi-{wheel['version']}", wheel["sha256"])}
    mpi["sources"] = _built(value) if mpi["sources"] else None
    software = SoftwareSet.of({**value, "rdma": rdma, "mpi": mpi})
    if len(findings.found) == before:
        for rule in evaluate(software):
            if rule.status == REFUSED:
                key = (*path, *rule.key.split("."))
                findings.add(f"software.{rule.name}", key, rule.problem(software), rule.remedy)
    return software


def of_kinds(
    model: Mapping[str, Any], common: SoftwareSet, kinds: Kinds, findings: Findings
) -> dict[str, SoftwareSet]:
    """The software sets of kinds for which it is not `common`."""
    found: dict[str, SoftwareSet] = {}
    for name, kind in kinds.items():
        own = model["kinds"][name]["software"] if kind.path else None
        if own is not None:
            value = merged(model["software"], own)
            if own["rdma"] and value["rdma"]["source"] != common.rdma.source:
                value["rdma"] = merged(RDMA.check({}, Findings()), own["rdma"])
            # MPI is the same on all nodes, wherever it was built.
            found[name] = replace(finish(value, findings, (*kind.path, "software")), mpi=common.mpi)
        elif kind.path and not kind.rails["count"] and not kind.gpus["count"]:
            nothing = SoftwareSet(common.kernel, Rdma(NO_RDMA), mpi=common.mpi)
            found[name] = replace(nothing, repositories=common.repositories)
    return {name: software for name, software in found.items() if software != common}


def merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a kind, and those of the top level where it has none."""
    found = {**common}
    for key, value in own.items():
        if isinstance(value, dict):
            found[key] = merged(common[key] or DRIVER.check({}, Findings()), value)
        elif value is not None:
            found[key] = value
    return found


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
    digest = hashlib.sha256(json.dumps([known, inputs], sort_keys=True).encode()).hexdigest()
    prefix = _prefix("source", digest)
    return {"prefix": prefix, "cuda": bool(value["cuda"]), "builds": builds}


def _prefix(name: str, sha256: str) -> str:
    name = re.sub(r"\.(tbz|tar\.bz2|tgz|tar\.gz)$", "", name)
    return f"{PREFIXES}/{name}-{sha256[:12]}"


def _check_keys(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Check keys that require or exclude each other, whatever their versions."""
    rdma, driver, mpi = value["rdma"], value["driver"], value["mpi"]
    doca, managed = rdma["source"] == DOCA, bool(driver and driver["manage"])
    manage, provider = (
        dotted((*path, *key)) for key in (("driver", "manage"), ("mpi", "provider"))
    )

    def _add(code: str, key: Path, wrong: Any, problem: str, remedy: str) -> None:
        if wrong:
            shown = wrong if isinstance(wrong, str) else None
            problem = f"{shown!r} {problem}" if shown else problem
            findings.add(code, (*path, *key), problem, remedy, shown)

    version, problem = ("rdma", "version"), "is missing, but the source is doca"
    wrong = doca and not rdma["version"]
    _add("software.no_doca_version", version, wrong, problem, "Write the release of DOCA")
    for key in ("version", "profile"):
        problem = f"belongs to DOCA, but the source is {rdma['source']}"
        remedy = "Remove it, or write source: doca"
        _add("software.of_doca", ("rdma", key), not doca and rdma[key], problem, remedy)
    for key in ("cuda", "dcgm", "gdrcopy", "nccl"):
        problem = "needs the NVIDIA driver, which is not in the set"
        remedy = f"Write {dotted((*path, 'driver', 'version'))}, or remove it"
        _add("software.needs_driver", (key,), not driver and value[key], problem, remedy)
    wrong, remedy = managed and not driver["version"], f"Write it, or {manage}: false"
    _add("software.no_driver_version", ("driver", "version"), wrong, "is missing", remedy)
    # Without a managed driver, the repository's toolkit is still used to build MPI.
    for key in ("dcgm", "gdrcopy", "nccl"):
        wrong, problem = driver and not managed and value[key], f"is set, but {manage} is false"
        remedy = "Remove it: software installed by others is not changed"
        _add("software.not_managed", (key,), wrong, problem, remedy)
    for key, providers in _OF_PROVIDERS.items():
        of, wrong = " or ".join(providers), bool(mpi[key]) is not (mpi["provider"] in providers)
        problem = f"is {f'for {of}' if mpi[key] else 'missing'}, but {provider} is "
        remedy = f"Remove it, or write provider: {of}" if mpi[key] else "Write it"
        _add("software.of_provider", ("mpi", key), wrong, problem + mpi["provider"], remedy)
    for index, each in enumerate(value["accepted"]):
        with suppress(ValueError):
            datetime.date.fromisoformat(each["until"])
            continue
        problem, remedy = "is not a day of the calendar", "Correct it"
        _add(
            "software.accepted_until", ("accepted", index, "until"), each["until"], problem, remedy
        )
    for key, wanted in {"cuda": managed, "doca": doca}.items():
        wrong, remedy = wanted and not value["repositories"][key], "Add it with key and key_sha256"
        problem = "is missing, but provides the drivers"
        _add("software.no_repository", ("repositories", key), wrong, problem, remedy)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's Open MPI and UCX under the paths of DOCA's: they work, also without RDMA.

Nodes are based on Debian 12, whatever the controller runs. apt fetches the packages and verifies
their signature with Debian's keyring.
"""

from __future__ import annotations

import io
import re
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .package import File

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
OPEN_MPI, UCX = ("openmpi-bin", "libopenmpi3", "openmpi-common"), ("libucx0", "ucx-utils")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PROGRAMS = ("mpirun", "mpiexec", "orterun", "orted", "ompi_info")
"""Programs of `openmpi-bin` that run MPI. Compilers are left out: there are no headers for them."""
UNUSED = re.compile(
    "oshmem|java|mpifh|usempi|romio|psm|ofi|openib|memheap|sshmem|spml|scoll|mca_atomic"
)
"""Libraries and plugins for other languages and networks: half of the total size."""

Files = Mapping[str, File]


@dataclass(frozen=True)
class Debian:
    """Files by their path in Debian, and the packages that they depend on."""

    open_mpi: Files
    ucx: Files
    depends: tuple[str, ...]


def fetched(folder: Path) -> Debian:
    """Return the packages in `folder`; fetch them the first time."""
    names = (*OPEN_MPI, *UCX)
    if not all(any(folder.glob(f"{name}_*.deb")) for name in names):
        _fetch(folder, names)
    debs = {name: next(folder.glob(f"{name}_*.deb")) for name in names}
    depends: set[str] = set()
    for name in names:
        text = _run("dpkg-deb", "--field", debs[name], "Depends").decode()
        depends.update(re.findall(r"(?:^|, )([a-z0-9][a-z0-9+.-]*)", text))
    return Debian(
        {path: file for name in OPEN_MPI for path, file in _files(debs[name]).items()},
        {path: file for name in UCX for path, file in _files(debs[name]).items()},
        tuple(sorted(depends - {*names, "openssh-client"})),
    )


def _fetch(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "lists/partial").mkdir(parents=True)
        (work / "list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {SUITE} main\n")
        options = (
            f"Dir::Etc::sourcelist={work}/list", "Dir::Etc::sourceparts=/dev/null",
            f"Dir::State::lists={work}/lists", "Dir::Cache::pkgcache=",
            "Dir::Cache::srcpkgcache=", "Acquire::Languages=none", "APT::Sandbox::User=root",
        )  # fmt: skip
        apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
        _run(*apt, "update")
        _run(*apt, "download", *(f"{name}/{SUITE}" for name in names), cwd=folder)


def _run(*argv: str | Path, cwd: Path | None = None) -> bytes:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def _files(deb: Path) -> dict[str, File]:
    """Files of a package, without documentation."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(_run("dpkg-deb", "--fsys-tarfile", deb))) as tar:
        for member in tar:
            path = member.name.removeprefix(".")
            stream = tar.extractfile(member) if member.isfile() else None
            if path.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/lintian")):
                continue
            if stream:
                found[path] = File(stream.read(), member.mode)
            elif member.issym():
                found[path] = File(link=member.linkname)
    return found


def open_mpi(files: Files, prefix: str) -> dict[str, File]:
    """Return Open MPI as DOCA's `openmpi` has it: all files under `prefix`, and functional
    there."""
    found = {}
    for path, file in files.items():
        folder, _slash, name = path.rpartition("/")
        target = {
            "/usr/bin": "bin",
            LIBRARIES: "lib",
            f"{LIBRARIES}/openmpi/lib/openmpi3": "lib/openmpi",
            "/usr/share/openmpi": "share/openmpi",
            "/etc/openmpi": "etc",
        }.get(folder)
        name = name.removesuffix(".openmpi")
        if target and (name in PROGRAMS if target == "bin" else not UNUSED.search(name)):
            content = relocated(file.content, prefix.encode())
            found[f"{prefix}/{target}/{name}"] = File(content, file.mode, file.link)
    return found


def relocated(content: bytes, prefix: bytes) -> bytes:
    """Return a program or library of Open MPI that looks for all its files under `prefix`.

    Open MPI's variable OPAL_PREFIX does the same, but only for programs that mpirun starts.
    """
    run_path = f"{LIBRARIES}/openmpi/lib".encode()
    content = content.replace(run_path + b"\0", (prefix + b"/lib").ljust(len(run_path) + 1, b"\0"))
    headers, manuals = b"${prefix}/lib/x86_64-linux-gnu/openmpi/include", b"${prefix}/share/man"
    if headers + b"\0" not in content:
        return content
    # The library with its table of directories. Longer names are stored in place of unused ones,
    # and the table points to them: the read-only part has the same offset in memory as in the file.
    for old, slot in ((b"/usr", headers), (b"/etc/openmpi", manuals)):
        pointers = (struct.pack("<QQ", 8, _offset(content, offset)) for offset in (old, slot))
        content = content.replace(*pointers)
    for old, new in (
        (headers, prefix),
        (manuals, b"${prefix}/etc"),
        (b"${prefix}/lib/x86_64-linux-gnu/openmpi/lib", b"${prefix}/lib"),
        (b"${libdir}/openmpi3", b"${libdir}/openmpi"),
    ):
        start = _offset(content, old)
        content = content[:start] + new.ljust(len(old), b"\0") + content[start + len(old) :]
    return content


def _offset(content: bytes, text: bytes) -> int:
    return content.index(b"\0" + text + b"\0") + 1


def ucx(files: Files, libraries: str) -> dict[str, File]:
    """Return UCX as DOCA's `ucx` has it, with libraries and plugins under `libraries`."""
    return {
        path.replace(LIBRARIES, libraries): file
        for path, file in files.items()
        if path.startswith((LIBRARIES, "/usr/bin/"))
    }

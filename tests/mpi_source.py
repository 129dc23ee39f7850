# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stand-in archives of UCX and Open MPI, and a fake `make`: nothing is compiled.

Like a release, an archive has one directory with `configure`, which accepts the options of
Autoconf. `make install DESTDIR=` installs the archive's `files` below the prefix, and a file with
the options.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from ansible_collections.baremetal.bed.plugins.module_utils.containers import (
    choose_limits,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import DEBIAN

from tests.nodes import Nodes

CONFIGURE = """\
#!/bin/sh
if [ "${STAND_IN_FAILS:-}" = @NAME@ ] || [ -e /var/tmp/stand-in-fails ]; then
  echo "configure: error: C compiler cannot create executables" >&2
  i=0; while [ $i -lt 20 ]; do echo "line $i"; i=$((i + 1)); done
  exit 77
fi
[ ! -e /var/tmp/stand-in-waits ] || sleep 300
printf '%s\\n' "$@" > OPTIONS
"""
MAKE = """\
#!/bin/sh
# A stand-in of make for tests only.
for word; do case $word in DESTDIR=*) root=${word#DESTDIR=};; esac; done
[ "$1" = install ] || exit 0
prefix=$(sed -n 's/^--prefix=//p' OPTIONS)
mkdir -p "$root$prefix/lib"
cp -a OPTIONS "$root$prefix"
: > "$root$prefix/lib/libstand_in.la"
[ ! -d files ] || cp -a files/. "$root$prefix"
"""


def stand_in(path: Path, name: str, files: Optional[Mapping[str, tuple[str, int]]] = None) -> None:
    """Write an archive; `files` have text and mode by path below the prefix."""
    top = f"{name}-1.0"
    every = {"configure": (CONFIGURE.replace("@NAME@", name), 0o755)}
    every.update({f"files/{key}": value for key, value in (files or {}).items()})
    with tarfile.open(path, "w:gz") as tar:
        for each, (text, mode) in every.items():
            entry = tarfile.TarInfo(f"{top}/{each}")
            data = text.encode()
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))


def make(path: Path) -> None:
    path.write_text(MAKE, encoding="utf-8")
    path.chmod(0o755)


def archives(hpcx: Path, folder: Path) -> dict[str, str]:
    """Archives of the parts of a stand-in of HPC-X (tests/hpcx.py); returns SHA-256 by name."""
    found = {}
    for name, part in (("ucx", "ucx"), ("openmpi", "ompi")):
        path = folder / f"{name}-1.0.tar.gz"
        stand_in(path, name)
        with gzip.open(path) as stream:
            plain = io.BytesIO(stream.read())
        with tarfile.open(hpcx) as source, tarfile.open(fileobj=plain, mode="a") as tar:
            for entry in source.getmembers():
                _top, _slash, below = entry.name.partition("/")
                if not below.startswith(f"{part}/"):
                    continue
                data = source.extractfile(entry) if entry.isfile() else None
                entry.name = f"{name}-1.0/files/{below.partition('/')[2]}"
                tar.addfile(entry, data)
        path.write_bytes(gzip.compress(plain.getvalue(), 1))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def download(folder: Path, *requirements: str) -> None:
    """Download wheels without their dependencies."""
    argv = [sys.executable, "-m", "pip", "download", *requirements, "--no-deps"]
    argv += ["--only-binary=:all:", f"--dest={folder}"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def send(nodes: Nodes, host: str, path: Path, place: str) -> None:
    argv = ["ssh", "-F", str(nodes.ssh_config), host, f"cat > {place}"]
    with path.open("rb") as stream:
        subprocess.run(argv, stdin=stream, check=True)


POOL = "http://deb.debian.org/debian/pool/main"
DEBIAN_SOURCES = {
    "ucx": (
        f"{POOL}/u/ucx/ucx_1.13.1.orig.tar.xz",
        "1a88e09ca1b406c046a469c2ae271d2c330050b5664c0bcd9890e26c6ef09f3c",
    ),
    "openmpi": (
        f"{POOL}/o/openmpi/openmpi_4.1.4.orig.tar.xz",
        "ddaee7dbdb01eb4fab1fda5b5e03e8bbff026711806c095c1f39bb410f99f263",
    ),
}
"""Source packages of Debian 12: URL and SHA-256."""
LACKING = ("compat", "copyright", "ucx.prerm", "ucx.postinst")
TEMPLATES = ("rules.in", "control.in", "changelog.in")
"""Files of UCX's debian/ that Debian removed and UCX's configure needs."""


def debian_sources(folder: Path) -> dict[str, Path]:
    """Debian's archives by name; UCX's with empty files for the missing ones."""
    found = {}
    for name, (url, digest) in DEBIAN_SOURCES.items():
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"{url} is not the archive that this test knows")
        if name == "ucx":
            plain = io.BytesIO(lzma.decompress(data))
            with tarfile.open(fileobj=plain, mode="a") as tar:
                top = tar.getnames()[0].partition("/")[0]
                for each in (*LACKING, *TEMPLATES):
                    tar.addfile(tarfile.TarInfo(f"{top}/debian/{each}"))
            data = gzip.compress(plain.getvalue(), 1, mtime=0)
        found[name] = folder / f"{name}-debian.tar.{'gz' if name == 'ucx' else 'xz'}"
        found[name].write_bytes(data)
    return found


DOWNLOAD = """
apt-get -q update && apt-get -q -y --no-install-recommends --download-only \\
  -o Dir::Cache::archives=/packages install {}
"""


def compilers(nodes: Nodes, host: str) -> list[str]:
    """Install the build dependencies; returns the names of packages."""
    return of_debian(nodes, host, DEBIAN.mpi.build)


def of_debian(nodes: Nodes, host: str, packages: Sequence[str]) -> list[str]:
    """Install packages that the nodes' repository lacks, with dependencies; returns their names."""
    listed = ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    images = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    base = next(name for name in images if "virtual-node-base:" in name)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "partial").mkdir()
        argv = ["podman", "run", "--rm", "--network=host"]
        argv += [f"--ulimit={limit}" for limit in choose_limits()]
        argv += [f"--volume={folder}:/packages", base]
        script = DOWNLOAD.format(" ".join(packages))
        subprocess.run([*argv, "sh", "-c", script], check=True, stdout=subprocess.DEVNULL)
        packed = Path(folder, "all.tar")
        with tarfile.open(packed, "w") as tar:
            for path in sorted(Path(folder).glob("*.deb")):
                tar.add(path, path.name)
        send(nodes, host, packed, "/var/tmp/debs.tar")
    return nodes.on(host).check_output(INSTALL).split()


INSTALL = """
set -e; mkdir /var/tmp/debs; cd /var/tmp/debs; tar -xf ../debs.tar
DEBIAN_FRONTEND=noninteractive dpkg -i ./*.deb >/dev/null
for deb in *.deb; do dpkg-deb -f "$deb" Package; done
rm -r /var/tmp/debs /var/tmp/debs.tar
"""

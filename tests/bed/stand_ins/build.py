# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the stand-ins, unless they exist for the same sources.

`made()` returns the folder: `ubuntu.tar.gz` and `el.tar.gz` for nodes, `keys/` with the public
keys.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import debian, debs, lustre, node, rpms, table
from .keys import Key, home
from .package import Package

TOP = Path(__file__).resolve().parents[3]
BUILT = TOP / "build/stand-ins"
SOURCES = (
    "tests/bed/stand_ins/*.py",
    "tests/bed/stand_ins/content/*",
    "tests/hardware/*.py",
    "tests/hardware/gpu/*",
    "tests/hardware/b300-8x800g.sysfs",
    "tools/record_hardware.py",
)
KEPT = 3
"""Number of earlier builds that are retained."""
FAMILIES = ("ubuntu", "el")
LAYOUTS = {"ubuntu": ("ubuntu2404", "ubuntu24.04"), "el": ("rhel9", "rhel9")}
KEYS = ("cuda", "doca", "distribution", "lustre")
DEFAULT_STREAMS = {"nvidia-driver": "open-dkms"}
"""As in the vendor's repository: a node that enables no stream gets the newest driver."""


def fingerprint() -> str:
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(TOP.glob(pattern)):
            if path.is_file():
                digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def made() -> Path:
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = BUILT / fingerprint()
        if not target.exists():
            # Recent builds may still be copied to nodes.
            older = sorted(BUILT.glob("*[0-9a-f]/el.tar.gz"), key=lambda path: path.stat().st_mtime)
            for old in older[:-KEPT]:
                shutil.rmtree(old.parent)
            with tempfile.TemporaryDirectory(dir=BUILT) as work:
                _build(Path(work))
                Path(work, "out").rename(target)
            newest = BUILT / "now.new"
            newest.unlink(missing_ok=True)
            newest.symlink_to(target.name)
            newest.rename(BUILT / "now")
    return target


def _build(work: Path) -> None:
    out = work / "out"
    (out / "keys").mkdir(parents=True)
    with home() as gpg_home:
        keys = {name: Key(gpg_home, f"Stand-in of {name}, for tests only") for name in KEYS}
        for name, key in keys.items():
            (out / "keys" / f"{name}.asc").write_bytes(key.public)
        node.states(work / "home")
        mpi = debian.fetched(BUILT / "debian")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(_family, family, work, keys, mpi) for family in FAMILIES]:
                done.result()
    for family in FAMILIES:
        tree = work / family / "tree"
        shutil.copytree(work / "home", tree / node.HOME)
        for name, key in keys.items():
            (tree / f"srv/stand-ins/{name}.asc").write_bytes(key.public)
        node.archive(family, "first", tree, out / f"{family}.tar.gz")


def _family(family: str, work: Path, keys: dict[str, Key], mpi: debian.Debian) -> None:
    """Build the packages of one family, and its repositories as a node has them."""
    base = work / family
    editions = table.repositories(family, mpi)
    built: dict[tuple[str, str], Path] = {}
    for name, key in keys.items():
        wanted: dict[str, Package] = {}
        for repositories in editions.values():
            for location, packages in repositories.items():
                if location.partition("/")[0] == name:
                    wanted.update({package.key: package for package in packages})
        pool = base / "pool" / name
        if family == "ubuntu":
            found = debs.build(wanted.values(), pool)
        else:
            found = rpms.build(wanted.values(), pool, base / "work" / name, key)
        built.update({(name, package): path for package, path in found.items()})
    cuda_layout, doca_layout = LAYOUTS[family]
    for edition, repositories in editions.items():
        for location, packages in repositories.items():
            name = location.partition("/")[0]
            layout = f"{cuda_layout if name == 'cuda' else doca_layout}/x86_64"
            if name == "lustre":
                layout = lustre.LAYOUT
            folder = base / "tree/srv/stand-ins"
            if name == "distribution":
                if edition != "first":
                    continue
                folder /= name
            else:
                folder = folder / edition / location / layout
            members = [(package, built[name, package.key]) for package in packages]
            folder.parent.mkdir(parents=True, exist_ok=True)
            if family == "ubuntu":
                debs.repository(members, folder, f"stand-in {name}", keys[name])
            else:
                streams = DEFAULT_STREAMS if (name, edition) == ("cuda", "all") else {}
                rpms.repository(members, folder, keys[name], streams)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which QEMU runs the machines: the system's, or a newer one from Debian's backports beside it.

QEMU 8 brought the igb card, which has SR-IOV, and later ones translate instructions in half the
time. Debian 12 has 7.2. Its backports are asked with apt's own source and keys, into folders of our
own: the system's QEMU, its apt sources and what it may be upgraded to stay as they are.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from ..core.commands import CommandError, Runner

PROGRAM = "qemu-system-x86_64"
FETCHED = Path("/var/lib/baremetal-mpi-roce/virtual/qemu")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


class EmulatorError(Exception):
    """There is no QEMU that can do what is asked; the text says why and what to do."""


@dataclass(frozen=True)
class Emulator:
    words: tuple[str, ...]
    """The program, and where its firmware lies."""
    sriov: bool


def system_emulator(
    run: Runner, which: Callable[[str], Optional[str]] = shutil.which
) -> Optional[Emulator]:
    program = which(PROGRAM)
    return Emulator((program,), _has_igb(run, (program,))) if program else None


def fetched_emulator(run: Runner, folder: Path = FETCHED) -> Optional[Emulator]:
    if not (folder / f"usr/bin/{PROGRAM}").exists():
        return None
    words = _words(folder)
    try:
        return Emulator(words, _has_igb(run, words))
    except CommandError:
        return None  # its libraries were upgraded away, for instance: it is fetched again


def _words(folder: Path) -> tuple[str, ...]:
    """A QEMU beside the system's has to be told where its own firmware and modules lie."""
    modules = folder / "usr/lib/x86_64-linux-gnu/qemu"
    share = folder / "usr/share"
    firmware = ("-L", str(share / "seabios"), "-L", str(share / "qemu"))
    return ("env", f"QEMU_MODULE_DIR={modules}", str(folder / f"usr/bin/{PROGRAM}"), *firmware)


def _has_igb(run: Runner, words: tuple[str, ...]) -> bool:
    """Asked for the card alone: a list of all of them would load every module."""
    return bool(run([*words, "-device", "igb,help"]).stdout.strip())


def fetch(run: Runner, *, root: Path = Path("/"), folder: Path = FETCHED) -> Emulator:
    """QEMU of this Debian's backports, verified by apt, unpacked into `folder`."""
    suite = _suite(root)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="qemu-") as name:
        place = Path(name)
        place.chmod(0o755)
        try:
            _unpack(run, suite, place)
            found = Emulator(_words(place / "root"), _has_igb(run, _words(place / "root")))
        except CommandError as error:
            raise EmulatorError(f"no newer QEMU from {suite}-backports: {error}") from error
        shutil.rmtree(folder, ignore_errors=True)
        (place / "root").replace(folder)
    return Emulator(_words(folder), found.sriov)


def _suite(root: Path) -> str:
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise EmulatorError(
            "this is no Debian with backports: install a QEMU that has the igb card (8 or later)"
        )
    return release["VERSION_CODENAME"]


def _unpack(run: Runner, suite: str, place: Path) -> None:
    archive = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
         f"Codename: {suite}"]
    ).stdout.split()  # fmt: skip
    if not archive:
        raise CommandError(f"apt has no source of {suite} itself")
    (place / "lists/partial").mkdir(parents=True)
    source = f"deb [signed-by={KEYRING}] {archive[0]} {suite}-backports main\n"
    (place / "sources.list").write_text(source, encoding="utf-8")
    apt = [
        "apt-get", "-q",
        "-o", f"Dir::Etc::sourcelist={place}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", f"Dir::State::lists={place}/lists", "-o", "Dir::Cache::pkgcache=",
        "-o", "Dir::Cache::srcpkgcache=", "-o", f"Dir::Cache::archives={place}/debs",
        "-o", "Acquire::Languages=none", "-o", "APT::Get::List-Cleanup=false",
    ]  # fmt: skip
    (place / "debs/partial").mkdir(parents=True)
    run([*apt, "update"])
    debs = place / "debs"
    # Installing into nothing resolves no dependencies; `download` takes these four and no more.
    run(["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(debs), *apt,
         "-o", "APT::Sandbox::User=root", "download",
         *(f"{name}/{suite}-backports" for name in PACKAGES)])  # fmt: skip
    for deb in sorted(debs.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(deb), str(place / "root")])

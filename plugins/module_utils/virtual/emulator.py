# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which QEMU runs the machines, and whether on KVM.

QEMU 8 brought the igb card, which has SR-IOV. Debian 12 has 7.2: then the one of its backports is
fetched with apt's own source and keys and unpacked beside the system's.

A /dev/kvm that opens is no proof: some hosts have one that cannot run an ordinary kernel. So the
image's kernel is started on it without a disk: where KVM works it ends after a second, for want of
a root file system, and where it does not the time runs out."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from ..core.commands import CommandError, Runner, run
from ..core.files import write_atomically
from .inventory import VirtualError

PROGRAM = "qemu-system-x86_64"
FETCHED = Path("/var/lib/baremetal-mpi-roce/virtual/qemu")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


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
            raise VirtualError(f"no newer QEMU from {suite}-backports: {error}") from error
        shutil.rmtree(folder, ignore_errors=True)
        (place / "root").replace(folder)
    return Emulator(_words(folder), found.sriov)


def _suite(root: Path) -> str:
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise VirtualError(
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


KVM = ("-accel", "kvm", "-cpu", "host")
# Each vector instruction is translated: what a guest does not see, its libraries do not use.
TCG = (
    "-accel", "tcg,thread=multi",
    "-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+popcnt",
)  # fmt: skip
DEVICE = "dev/kvm"
RECORD = Path("/run/baremetal-mpi-roce/kvm.json")
PROBE_S = 12.0


def choose(
    wanted: str,
    emulator: Sequence[str],
    kernel: Path,
    *,
    root: Path = Path("/"),
    record: Optional[Path] = None,
) -> tuple[str, ...]:
    """QEMU's words for the accelerator: `wanted` is auto, kvm or tcg."""
    if wanted == "tcg":
        return TCG
    problem = kvm_problem(emulator, kernel, root=root, record=record or RECORD)
    if not problem:
        return KVM
    if wanted == "kvm":
        raise VirtualError(
            f"virtual_nodes_accelerator is kvm, which does not work here: {problem}. Set it to "
            "auto or tcg: slower, and it works anywhere."
        )
    return TCG


def kvm_problem(emulator: Sequence[str], kernel: Path, *, root: Path, record: Path) -> str:
    """Why KVM cannot be used, or nothing. Tried once per boot of the host, emulator and kernel."""
    if not (root / DEVICE).exists():
        return f"there is no /{DEVICE}"
    subject = f"{' '.join(emulator)} {kernel.name}"
    known = _remembered(record)
    if subject not in known:
        known[subject] = _try(emulator, kernel)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(record, json.dumps(known, indent=2) + "\n", 0o644, 0, 0)
    return known[subject]


def _remembered(record: Path) -> dict[str, str]:
    try:
        return dict(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def _try(emulator: Sequence[str], kernel: Path) -> str:
    command = [
        *emulator, *KVM, "-machine", "q35", "-m", "256", "-nodefaults", "-no-user-config",
        "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        printed = run(command, timeout_s=PROBE_S).stdout
    except CommandError as error:
        return str(error).splitlines()[0].replace(" ".join(command), "a kernel started on it")
    return "" if "Linux version" in printed else "a kernel started on it printed nothing"

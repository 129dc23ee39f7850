# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build .deb packages (directly, which is faster than dpkg-deb) and flat apt repositories."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .keys import Key
from .package import NOTE, File, Package

ARCHITECTURE = "amd64"


def archive(files: Mapping[str, File]) -> bytes:
    """Return a gzipped tar of files and their parent directories, reproducibly."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder in sorted({str(above) for path in files for above in Path(path).parents}):
            if folder not in ("/", "."):
                member = tarfile.TarInfo(f".{folder}" if folder.startswith("/") else folder)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
        for path, file in sorted(files.items()):
            member = tarfile.TarInfo(f".{path}" if path.startswith("/") else f"./{path}")
            member.mode = file.mode
            if file.link:
                member.type, member.linkname = tarfile.SYMTYPE, file.link
                tar.addfile(member)
            else:
                member.size = len(file.content)
                tar.addfile(member, io.BytesIO(file.content))
    return gzip.compress(plain.getvalue(), compresslevel=1, mtime=0)


def script(text: str, when: str) -> File:
    return File(
        f'#!/bin/sh\nset -e\ncase "$1" in {when}) ;; *) exit 0 ;; esac\n{text}\n'.encode(), 0o755
    )


def control(package: Package) -> str:
    """Return the stanza for the package and for the package list of its repository."""
    relations = {
        "Depends": package.requires,
        "Provides": package.provides,
        "Conflicts": package.conflicts,
        "Replaces": package.replaces,
    }
    return "".join(
        [
            f"Package: {package.name}\nVersion: {package.version}\nArchitecture: {ARCHITECTURE}\n",
            "Maintainer: Stand-ins for tests <tests@example.invalid>\nSection: devel\n",
            "Priority: optional\n",
            *(f"{name}: {', '.join(words)}\n" for name, words in relations.items() if words),
            f"Description: stand-in for {package.name}\n {NOTE}\n",
        ]
    )


def deb(package: Package) -> bytes:
    own = {"control": File(control(package).encode())}
    if package.before:
        own["preinst"] = script(package.before, "install | upgrade")
    if package.after:
        own["postinst"] = script(package.after, "configure")
    if package.libraries:
        own["triggers"] = File(b"activate-noawait ldconfig\n")
    if package.gone:
        own["postrm"] = script(package.gone, "remove | purge")
    if package.settings:
        own["conffiles"] = File("".join(f"{path}\n" for path in package.settings).encode())
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": archive(own),
        "data.tar.gz": archive(package.files),
    }
    whole = b"!<arch>\n"
    for name, content in members.items():
        whole += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        whole += content + b"\n" * (len(content) % 2)
    return whole


def build(packages: Iterable[Package], folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    built = {}
    for package in packages:
        version = package.version.replace(":", "%3a")
        built[package.key] = folder / f"{package.name}_{version}_{ARCHITECTURE}.deb"
        built[package.key].write_bytes(deb(package))
    return built


def repository(debs: Sequence[tuple[Package, Path]], folder: Path, origin: str, key: Key) -> None:
    """Write a flat repository like the vendor's: lists next to the packages, and both forms of
    signature.

    Only the compressed list exists: so apt copies the list of a `file:` repository, as it does with
    HTTP.
    """
    folder.mkdir(parents=True)
    stanzas = []
    for package, path in debs:
        (folder / path.name).hardlink_to(path)
        content = path.read_bytes()
        stanzas.append(
            f"{control(package)}Filename: ./{path.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    plain = "\n".join(stanzas).encode()
    lists = {"Packages": plain, "Packages.gz": gzip.compress(plain, mtime=0)}
    (folder / "Packages.gz").write_bytes(lists["Packages.gz"])
    sums = "".join(
        f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n"
        for name, content in lists.items()
    )
    release = folder / "Release"
    release.write_text(
        f"Origin: {origin}\nLabel: {origin}\nArchitecture: {ARCHITECTURE}\n"
        f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nDescription: {NOTE}\nSHA256:\n{sums}"
    )
    key.sign(release, folder / "Release.gpg")
    key.clear_sign(release, folder / "InRelease")

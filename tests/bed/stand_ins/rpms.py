# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build signed .rpm packages, and dnf repositories with module streams.

One run of rpmbuild builds many packages: each is a subpackage with a separate version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .keys import Key, run
from .package import NOTE, File, Package

ARCHITECTURE = "x86_64"


def batches(packages: Iterable[Package]) -> list[list[Package]]:
    """Split packages into as few batches as possible: in a batch each name and file is unique."""
    found: list[list[Package]] = []
    for package in packages:
        for batch in found:
            taken = {path for other in batch for path in other.files}
            if package.name not in {other.name for other in batch} and not taken & {*package.files}:
                batch.append(package)
                break
        else:
            found.append([package])
    return found


def section(package: Package) -> list[str]:
    version, _dash, release = package.upstream.rpartition("-")
    name = package.name
    relations = {
        "Requires": package.requires,
        "Provides": package.provides,
        "Conflicts": package.conflicts,
        "Obsoletes": package.replaces,
    }
    # The linker's cache names the newest file: it must be updated when that file is removed.
    linker = "ldconfig" if package.libraries else ""
    gone = f"if [ $1 -eq 0 ]; then\n{package.gone}\nfi" if package.gone else ""
    scripts = {
        "pre": package.before,
        "post": "\n".join(filter(None, [package.after, linker])),
        "postun": "\n".join(filter(None, [gone, linker])),
    }
    files = [
        (f"%config(noreplace) {path}" if path in package.settings else path)
        for path in sorted(package.files)
    ]
    return [
        f"%package -n {name}",
        *([f"Epoch: {package.epoch}"] if package.epoch else []),
        f"Version: {version}",
        f"Release: {release}",
        f"Summary: stand-in for {name}\nAutoReqProv: no",
        *(f"{tag}: {word}" for tag, words in relations.items() for word in words),
        f"%description -n {name}",
        NOTE,
        *(f"%{when} -n {name}\n{text}" for when, text in scripts.items() if text),
        f"%files -n {name}",
        *files,
    ]


def specification(packages: Sequence[Package], number: int, root: Path) -> str:
    return "\n".join(
        [
            f"Name: stand-ins-{number}",
            "Version: 1\nRelease: 1\nLicense: GPLv3+\nAutoReqProv: no",
            f"Summary: {NOTE}",
            "%description",
            NOTE,
            "%install",
            f"cp -a {root}/. %{{buildroot}}/",
            *(line for package in packages for line in ("", *section(package))),
            "",
        ]
    )


def stage(files: Mapping[str, File], root: Path) -> None:
    for name, file in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(file.mode)


def build(packages: Iterable[Package], folder: Path, work: Path, key: Key) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    built = {}
    for number, batch in enumerate(batches(packages)):
        root = work / f"root{number}"
        root.mkdir(parents=True)
        for package in batch:
            stage(package.files, root)
            built[package.key] = folder / f"{package.filename}.{ARCHITECTURE}.rpm"
        spec = work / f"{number}.spec"
        spec.write_text(specification(batch, number, root))
        run(
            "rpmbuild", "-bb", "--quiet", "--target", f"{ARCHITECTURE}-linux",
            "--define", f"_topdir {work}/rpm{number}", "--define", f"_rpmdir {folder}",
            "--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "--define", "__os_install_post %{nil}", "--define", "_build_id_links none",
            "--define", "debug_package %{nil}", "--define", "_binary_payload w1.gzdio",
            "--define", "source_date_epoch_from_changelog 0", spec,
        )  # fmt: skip
    run(
        "rpmsign", "--addsign", "--define", f"_gpg_name {key.name}",
        "--define", f"_gpg_path {key.home}", "--define", "__gpg /usr/bin/gpg",
        "--define", "_gpg_digest_algo sha256", *built.values(),
    )  # fmt: skip
    return built


def repository(
    rpms: Sequence[tuple[Package, Path]],
    folder: Path,
    key: Key,
    default_streams: Mapping[str, str] | None = None,
) -> None:
    """Write a repository like the vendor's: signed packages and metadata, with module streams."""
    folder.mkdir(parents=True)
    for _package, path in rpms:
        (folder / path.name).hardlink_to(path)
    streams: dict[str, list[Package]] = {}
    for package, _path in rpms:
        for stream in package.modular:
            streams.setdefault(stream, []).append(package)
    run(
        "createrepo_c", "--quiet", "--no-database", "--workers", str(os.cpu_count() or 1), folder
    )  # fmt: skip
    if streams:
        modules = folder / "modules.yaml"
        modules.write_text(modulemd(streams, default_streams or {}))
        run("modifyrepo_c", "--mdtype=modules", modules, folder / "repodata")
        modules.unlink()
    key.sign(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")


def modulemd(streams: Mapping[str, Sequence[Package]], defaults: Mapping[str, str]) -> str:
    documents = []
    for name, packages in streams.items():
        module, _colon, stream = name.partition(":")
        names = sorted({package.name for package in packages})
        documents.append(
            f"""---
document: modulemd
version: 2
data:
  name: {module}
  stream: "{stream}"
  version: 1
  context: abcdef12
  arch: {ARCHITECTURE}
  summary: stand-in for {name}
  description: {NOTE!r}
  license: {{module: [GPLv3+]}}
  dependencies: [{{}}]
  profiles:
    default: {{rpms: [{", ".join(names)}]}}
  artifacts:
    rpms: [{", ".join(_nevra(package) for package in packages)}]
..."""
        )
    for module, stream in defaults.items():
        documents.append(
            f"""---
document: modulemd-defaults
version: 1
data:
  module: {module}
  stream: "{stream}"
  profiles: {{"{stream}": [default]}}
..."""
        )
    return "\n".join(documents) + "\n"


def _nevra(package: Package) -> str:
    return f"{package.name}-{package.epoch or 0}:{package.upstream}.{ARCHITECTURE}"

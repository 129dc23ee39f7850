# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of dnf: definitions of repositories with their keys, and versionlock's list."""

from __future__ import annotations

import base64
import configparser
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..core.files import FilePlan, plan_file, replace_block, with_header
from .dnf_program import OURS
from .package import ARMOUR, PackageSet, Repository, check_key

DEFINITIONS = Path("etc/yum.repos.d")
KEYS = Path("etc/pki/rpm-gpg")


def repository_id(repository: Repository, layer: str) -> str:
    """With the layer in it: two layers may use one repository and define it twice."""
    return f"{OURS}{layer}-{repository.name}"


def definition_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / DEFINITIONS / f"{repository_id(repository, layer)}.repo"


def key_path(repository: Repository, layer: str, root: Path) -> Path:
    return root / KEYS / f"RPM-GPG-KEY-{repository_id(repository, layer)}"


def armour(key: bytes) -> str:
    """The key as text that rpm takes: as it is where it is armoured already."""
    if ARMOUR in key:
        return key.decode("utf-8")
    body = base64.b64encode(key).decode("ascii")
    check = base64.b64encode(_crc24(key).to_bytes(3, "big")).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    end = ARMOUR.decode().replace("BEGIN", "END")
    return "\n".join([ARMOUR.decode(), "", *lines, f"={check}", end, ""])


def _crc24(data: bytes) -> int:
    """RFC 4880, 6.1: rpm reads no armour without it."""
    value = 0xB704CE
    for byte in data:
        value ^= byte << 16
        for _bit in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value & 0xFFFFFF


def definition(repository: Repository, wanted: PackageSet, layer: str, key: Path) -> str:
    """One section of dnf's configuration, every signature checked."""
    name = repository_id(repository, layer)
    lines = [
        f"[{name}]",
        f"name={repository.name} (baremetal.mpi_roce, layer {layer})",
        f"baseurl={repository.url}",
        "enabled=1",
        "gpgcheck=1",
        f"repo_gpgcheck={int(repository.check_metadata)}",
        f"gpgkey={key.as_uri()}",
        "skip_if_unavailable=0",
    ]
    if not wanted.streams:
        # A module that another repository has must not hide a package of this one.
        lines.append("module_hotfixes=1")
    elsewhere = excluded(repository.name, wanted.preferred)
    if elsewhere:
        lines.append(f"excludepkgs={','.join(elsewhere)}")
    return with_header("\n".join(lines) + "\n")


def excluded(name: str, preferred: Mapping[str, str]) -> list[str]:
    """Patterns of packages that come from another repository."""
    return sorted(pattern for pattern, chosen in preferred.items() if chosen != name)


def plan(
    repositories: Sequence[Repository], wanted: PackageSet, layer: str, root: Path
) -> list[FilePlan]:
    """Keys first, then the definitions that name them; those of an older set go."""
    plans = []
    for repository in repositories:
        check_key(repository)
        text = armour(repository.key)
        plans.append(plan_file(key_path(repository, layer, root), text))
    for repository in repositories:
        key = key_path(repository, layer, root)
        text = definition(repository, wanted, layer, key)
        plans.append(plan_file(definition_path(repository, layer, root), text))
    kept = {planned.path for planned in plans}
    for folder, pattern in (
        (DEFINITIONS, f"{OURS}{layer}-*.repo"),
        (KEYS, f"RPM-GPG-KEY-{OURS}{layer}-*"),
    ):
        for path in sorted((root / folder).glob(pattern)):
            if path not in kept:
                plans.append(plan_file(path, None))
    return plans


def defined(name: str, root: Path) -> bool:
    """Whether any layer has defined the repository."""
    return any((root / DEFINITIONS).glob(f"{OURS}*-{name}.repo"))


# versionlock's list: one block per layer, the rest is the operator's.
#
# A line `name-epoch:version-release.*` hides every other version of that package in the
# repositories, and whatever obsoletes it. Two lines of one package allow both versions.

PLUGIN = "python3-dnf-plugin-versionlock"
"""The package of the plugin on EL 9. A lock list without it holds nothing."""
CONFIGURATION = Path("etc/dnf/plugins/versionlock.conf")
LIST = Path("etc/dnf/plugins/versionlock.list")
MAIN = Path("etc/dnf/dnf.conf")
OFF = ("0", "no", "false", "off")
_BLOCK = "baremetal.mpi_roce "
_BEGIN, _END = f"# BEGIN {_BLOCK}", f"# END {_BLOCK}"


def line(name: str, version: str) -> str:
    """The plugin's own form; the epoch is always written, as `dnf versionlock add` does."""
    return f"{name}-{version if ':' in version else f'0:{version}'}.*"


def name_of(entry: str) -> str:
    """The package that a line is about; the whole line where it does not end in a version."""
    text = entry.strip().lstrip("!")
    parts = text.rsplit("-", 2)
    if len(parts) == 3 and (":" in parts[1] or parts[1][:1].isdigit()):
        return parts[0].split(":", 1)[1] if parts[0].split(":", 1)[0].isdigit() else parts[0]
    return text


def with_block(text: str, pins: Mapping[str, Collection[str]], layer: str) -> str:
    """The list with the block of `layer` holding exactly `pins`: package to its versions."""
    lines = [line(name, one) for name in sorted(pins) for one in sorted(pins[name])]
    return replace_block(text, lines, layer)


def entries(text: str) -> list[tuple[str, str]]:
    """(layer, line) of every lock; the layer is empty for what is not ours."""
    found, layer = [], ""
    for raw in text.splitlines():
        entry = raw.strip()
        if entry.startswith(_BEGIN):
            layer = entry[len(_BEGIN) :].strip()
        elif entry.startswith(_END):
            layer = ""
        elif entry and not entry.startswith("#"):
            found.append((layer, entry))
    return found


def without(text: str, layer: str, free: Iterable[str] = ()) -> str:
    """The list as the solver may see it for a planned change of `layer`: all other locks stay.

    But for those of another layer of ours on packages that match `free`.
    """
    patterns = list(free)
    kept = [
        entry
        for owner, entry in entries(text)
        if (owner != layer or not layer)
        and not (owner and any(fnmatchcase(name_of(entry), each) for each in patterns))
    ]
    return "".join(f"{entry}\n" for entry in kept)


def of_operators(text: str, names: Collection[str]) -> list[str]:
    """Locks that are not ours on these packages, for the message when a solver fails on them."""
    return [entry for owner, entry in entries(text) if not owner and name_of(entry) in names]


def list_path(root: Path) -> Path:
    """Where the plugin reads its list: its configuration may say so."""
    configured = settings(root, CONFIGURATION).get("locklist", "").strip()
    return Path(configured) if configured else root / LIST


def settings(root: Path, path: Path) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(root / path, encoding="utf-8")
        return dict(parser["main"])
    except (configparser.Error, KeyError, UnicodeDecodeError):
        return {}


def is_installed(paths: Sequence[Path]) -> bool:
    return any((path / "versionlock.py").is_file() for path in paths)


def not_effective(root: Path, paths: Sequence[Path]) -> str:
    """Why the locks hold nothing on this node, with the way out; empty when they do."""
    if not is_installed(paths):
        return f"dnf's versionlock plugin is not installed: install {PLUGIN}"
    main = settings(root, MAIN)
    if main.get("plugins", "1").strip().lower() in OFF:
        return f"{root / MAIN} disables every plugin of dnf: remove plugins = 0 there"
    said = settings(root, CONFIGURATION)
    off = said.get("enabled", "1").strip().lower() in OFF
    if off or not said.get("locklist", "").strip():
        return (
            f"{root / CONFIGURATION} does not enable versionlock: set enabled = 1 and locklist = "
            f"/{LIST} there"
        )
    return ""


def version_of(entry: str) -> str:
    """The version that a line of ours locks."""
    text = entry.strip().removesuffix(".*")
    return text[len(name_of(entry)) + 1 :].removeprefix("0:")


def plugin_paths(root: Path) -> list[Path]:
    """Where dnf's Python looks for plugins."""
    return sorted(
        path
        for pattern in ("usr/lib/python3*/site-packages", "usr/lib/python3/dist-packages")
        for path in root.glob(f"{pattern}/dnf-plugins")
    )

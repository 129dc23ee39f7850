# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of dnf: definitions of repositories with their keys, and versionlock's list."""

from __future__ import annotations

import base64
import configparser
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan, plan_file, replace_block, with_header
from .dnf_program import OURS
from .package import ARMOUR, PackageError, PackageSet, Repository, check_key

DEFINITIONS = Path("etc/yum.repos.d")
KEYS = Path("etc/pki/rpm-gpg")


def repository_id(repository: Repository, layer: str) -> str:
    """With the layer in it: two layers may use one repository and define it twice."""
    return f"{OURS}{layer}-{repository.name}"


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
    preferred = wanted.preferred.items()
    elsewhere = sorted(pattern for pattern, chosen in preferred if chosen != repository.name)
    if elsewhere:
        lines.append(f"excludepkgs={','.join(elsewhere)}")
    return with_header("\n".join(lines) + "\n")


def plan(
    repositories: Sequence[Repository], wanted: PackageSet, layer: str, root: Path
) -> list[FilePlan]:
    """Keys first, then the definitions that name them; those of an older set go."""
    keys, plans = [], []
    for repository in repositories:
        check_key(repository)
        key = key_path(repository, layer, root)
        keys.append(plan_file(key, armour(repository.key)))
        path = root / DEFINITIONS / f"{repository_id(repository, layer)}.repo"
        plans.append(plan_file(path, definition(repository, wanted, layer, key)))
    plans = [*keys, *plans]
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
CONFIGURATION = "etc/dnf/plugins/versionlock.conf"
LIST = "etc/dnf/plugins/versionlock.list"
MAIN = "etc/dnf/dnf.conf"
NOT_IN_FORCE = (
    f"nothing would keep packages at their versions: dnf's versionlock is not in force. Install "
    f"{PLUGIN}, set enabled = 1 and locklist = /{LIST} in /{CONFIGURATION}, and remove plugins = 0 "
    f"from /{MAIN}"
)
_OFF = ("0", "no", "false", "off")
_BEGIN, _END = "# BEGIN baremetal.mpi_roce ", "# END baremetal.mpi_roce "


class VersionLock:
    """The list of one node, and whether dnf reads it. `plugins` is where dnf's Python looks."""

    def __init__(self, root: Path, plugins: Optional[Sequence[Path]] = None) -> None:
        self._root, self._plugins = root, plugins

    @property
    def path(self) -> Path:
        configured = self._settings(CONFIGURATION).get("locklist", "").strip()
        return Path(configured) if configured else self._root / LIST

    def text(self) -> str:
        try:
            return self.path.read_text("utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return ""

    def plan(self, pins: Mapping[str, Collection[str]], layer: str) -> list[FilePlan]:
        """The block of `layer` holding exactly `pins`: package to its versions."""
        lines = [lock(name, one) for name in sorted(pins) for one in sorted(pins[name])]
        try:
            text = replace_block(self.text(), lines, layer)
        except ValueError as error:
            raise PackageError(f"{self.path}: {error}. Put the missing line back") from error
        return [plan_file(self.path, text)] if text or self.path.exists() else []

    def entries(self) -> list[tuple[str, str]]:
        """(layer, line) of every lock; the layer is empty for one of the operator."""
        found, layer = [], ""
        for raw in self.text().splitlines():
            entry = raw.strip()
            if entry.startswith(_BEGIN):
                layer = entry[len(_BEGIN) :].strip()
            elif entry.startswith(_END):
                layer = ""
            elif entry and not entry.startswith("#"):
                found.append((layer, entry))
        return found

    def pins(self, layer: str = "") -> dict[str, list[str]]:
        """Package to its locked versions, of one layer or of all."""
        found: dict[str, list[str]] = {}
        for owner, entry in self.entries():
            if owner and (not layer or owner == layer):
                name, version = locked(entry)
                found.setdefault(name, []).append(version)
        return found

    def without(self, layer: str, free: Sequence[str] = ()) -> str:
        """The list for a planned change of `layer`: all other locks stay, but for those of another
        layer on packages that match `free`."""
        return "".join(
            f"{entry}\n"
            for owner, entry in self.entries()
            if not owner
            or (owner != layer and not any(fnmatchcase(locked(entry)[0], each) for each in free))
        )

    def installed(self) -> bool:
        paths = self._plugins
        if paths is None:
            places = ("usr/lib/python3*/site-packages", "usr/lib/python3/dist-packages")
            paths = [path for place in places for path in self._root.glob(f"{place}/dnf-plugins")]
        return any((path / "versionlock.py").is_file() for path in paths)

    def in_force(self) -> bool:
        own = self._settings(CONFIGURATION)
        switches = (self._settings(MAIN).get("plugins", "1"), own.get("enabled", "1"))
        off = any(value.strip().lower() in _OFF for value in switches)
        return self.installed() and not off and bool(own.get("locklist", "").strip())

    def _settings(self, name: str) -> Mapping[str, str]:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(self._root / name, encoding="utf-8")
            return dict(parser["main"])
        except (configparser.Error, KeyError, UnicodeDecodeError):
            return {}


def lock(name: str, version: str) -> str:
    """The plugin's own form; the epoch is always written, as `dnf versionlock add` does."""
    return f"{name}-{version if ':' in version else f'0:{version}'}.*"


def locked(entry: str) -> tuple[str, str]:
    """Package and version of a line that `lock` wrote."""
    name, version, release = entry.removesuffix(".*").rsplit("-", 2)
    return name, f"{version}-{release}".removeprefix("0:")

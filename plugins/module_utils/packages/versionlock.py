# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""versionlock's list: one block per layer; other lines are the operator's.

A line `name-epoch:version-release.*` hides all other versions of the package, and packages that
obsolete it. Two lines for one package allow both versions.
"""

from __future__ import annotations

import configparser
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from ..core.files import replace_block
from .package import PackageError

CONFIGURATION = "etc/dnf/plugins/versionlock.conf"
LIST = "etc/dnf/plugins/versionlock.list"
_OFF = ("0", "no", "false", "off")
_BEGIN, _END = "# BEGIN baremetal.mpi_roce ", "# END baremetal.mpi_roce "


class VersionLock:
    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def path(self) -> Path:
        configured = self._settings().get("locklist", "").strip()
        return Path(configured) if configured else self._root / LIST

    def text(self) -> str:
        try:
            return self.path.read_text("utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return ""

    def with_pins(self, pins: Mapping[str, Collection[str]], layer: str) -> str:
        lines = [lock(name, pin) for name in sorted(pins) for pin in sorted(pins[name])]
        try:
            return replace_block(self.text(), lines, layer)
        except ValueError as error:
            raise PackageError(f"{self.path}: {error}. Put the missing line back") from error

    def entries(self) -> list[tuple[str, str]]:
        """(layer, line) of every lock; the operator's have no layer."""
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
        found: dict[str, list[str]] = {}
        for owner, entry in self.entries():
            if owner and (not layer or owner == layer):
                name, version = locked(entry)
                found.setdefault(name, []).append(version)
        return found

    def without(self, layer: str, free: Sequence[str] = ()) -> str:
        """The list without the locks of `layer`, and those of other layers on `free` packages."""
        return "".join(
            f"{entry}\n"
            for owner, entry in self.entries()
            if not owner
            or (owner != layer and not any(fnmatchcase(locked(entry)[0], each) for each in free))
        )

    def in_force(self) -> bool:
        """Whether dnf reads the list: the plugin is installed and enabled."""
        # Debian's Python has dist-packages.
        found = self._root.glob("usr/lib/python3*/*-packages/dnf-plugins/versionlock.py")
        return not self.off() and any(found)

    def off(self) -> bool:
        return self._settings().get("enabled", "1").strip().lower() in _OFF

    def _settings(self) -> Mapping[str, str]:
        parser = configparser.ConfigParser(interpolation=None)
        with suppress(configparser.Error, UnicodeDecodeError):
            parser.read(self._root / CONFIGURATION, encoding="utf-8")
        return parser["main"] if parser.has_section("main") else {}


def lock(name: str, version: str) -> str:
    """A line in the plugin's format; like `dnf versionlock add`, it always includes the epoch."""
    return f"{name}-{version if ':' in version else f'0:{version}'}.*"


def locked(entry: str) -> tuple[str, str]:
    name, version, release = entry.removesuffix(".*").rsplit("-", 2)
    return name, f"{version}-{release}".removeprefix("0:")

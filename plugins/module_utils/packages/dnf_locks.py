# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lock list of dnf's versionlock plugin: one block per layer, the rest is the operator's.

A line `name-epoch:version-release.*` hides every other version of that package in the
repositories, and whatever obsoletes it. Two lines of one package allow both versions.
"""

from __future__ import annotations

import configparser
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..core.files import replace_block

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

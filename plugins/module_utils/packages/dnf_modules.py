# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module streams that are enabled on a node, as dnf writes them down."""

from __future__ import annotations

import configparser
from pathlib import Path

DIRECTORY = Path("etc/dnf/modules.d")


def enabled(root: Path) -> dict[str, str]:
    """Module to its enabled stream."""
    found = {}
    for path in sorted((root / DIRECTORY).glob("*.module")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # dnf itself refuses such a file, and says where
        for name in parser.sections():
            section = parser[name]
            if section.get("state") == "enabled" and section.get("stream"):
                found[section.get("name", name)] = section["stream"]
    return found

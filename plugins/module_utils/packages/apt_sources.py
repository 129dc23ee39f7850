# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other definitions of the set's repositories, in both formats of sources.list(5).

apt reads no repository at all while two definitions of one repository name different keys, as after
an installation of NVIDIA's cuda-keyring (NVIDIA/cuda-repo-management issue 4). The other definition
is disabled; its text stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..core.files import FilePlan, plan_file
from .package import OURS

MAIN, PARTS = "etc/apt/sources.list", "etc/apt/sources.list.d"
FLAT = "/"
"""Suite of the set's repositories."""
WHY = "# Turned off: baremetal.mpi_roce defines this repository, with the key of its software set."
_ONE_LINE = re.compile(r"\s*deb(-src)?\s+(\[[^\]]*\]\s*)?(?P<address>\S+)\s+(?P<suite>\S+)")
_FIELD = re.compile(r"^(?P<name>[A-Za-z-]+):(?P<value>.*(?:\n[ \t].*)*)", re.MULTILINE)
_OFF = ("no", "false", "without", "off", "disable", "0")
"""apt's StringToBool."""


def address(url: str) -> str:
    """Normalise an address as apt does before comparing."""
    return re.sub(r"^file:/+", "file:/", url).rstrip("/")


def rivals(root: Path, addresses: Collection[str]) -> Iterator[FilePlan]:
    """Files that define the same repositories, with their new content."""
    parts = sorted((root / PARTS).glob("*")) if addresses else []
    for path in (root / MAIN, *(part for part in parts if part.suffix in (".list", ".sources"))):
        if not path.is_file() or path.name.startswith(OURS):
            continue
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        other = turned_off(path, text, addresses)
        if addresses and other != text:
            it = path.stat()
            mode, login = it.st_mode & 0o7777, "@" in text
            yield plan_file(path, other, mode=mode, uid=it.st_uid, gid=it.st_gid, secret=login)


def twice(others: Sequence[FilePlan]) -> str:
    if not others:
        return ""
    return (
        f"{', '.join(str(other.path) for other in others)}: repositories of the set are defined "
        "here a second time, so apt reads none. To disable this definition, run --tags rdma,gpu. "
    )


def turned_off(path: Path, text: str, addresses: Collection[str]) -> str:
    if path.suffix == ".sources":
        return re.sub(r"(?:^.+\n?)+", lambda it: _stanza(it.group(), addresses), text, flags=re.M)
    return "".join(_line(line, addresses) for line in text.splitlines(keepends=True))


def _line(line: str, addresses: Collection[str]) -> str:
    found = _ONE_LINE.match(line)
    if found and found["suite"] == FLAT and address(found["address"]) in addresses:
        return f"{WHY}\n# {line.lstrip()}"
    return line


def _stanza(stanza: str, addresses: Collection[str]) -> str:
    """Turn a deb822 stanza off, or leave its other repositories."""
    fields = {each["name"].lower(): each for each in _FIELD.finditer(stanza)}
    words = {name: each["value"].split() for name, each in fields.items()}
    urls = words.get("uris", [])
    others = [url for url in urls if address(url) not in addresses]
    off = [word.lower() for word in words.get("enabled", [])]
    if len(others) == len(urls) or FLAT not in words.get("suites", []) or (off and off[0] in _OFF):
        return stanza
    if others:
        start, end = fields["uris"].span("value")
        return f"{stanza[:start]} {' '.join(others)}{stanza[end:]}"
    if "enabled" in fields:
        stanza = stanza.replace(fields["enabled"].group(), "", 1).replace("\n\n", "\n").lstrip("\n")
    return f"{WHY}\nEnabled: no\n{stanza}"

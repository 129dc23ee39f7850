# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of the operator's that claim a rail as well: that rail is left alone.

A claim is the rail's name, its MAC address or its PCI address in a file of any network service,
whichever key it stands at. What a key means is left to the service; a file that takes the rail over
in another way is found by the read-back (`rail_config`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..core.part import NAME
from .plan import RailPlan
from .state import NETWORK_PREFIX, Link

_SYSTEMD = [f"{each}/systemd/network" for each in ("etc", "run", "usr/lib", "lib")]
_KINDS = (
    [f"{each}/netplan/*.yaml" for each in ("etc", "run", "lib", "usr/lib")],
    [f"{each}/*.network" for each in _SYSTEMD],
    [f"{each}/*.link" for each in _SYSTEMD],
    [f"{each}/NetworkManager/system-connections/*.nmconnection" for each in ("etc", "usr/lib")],
    ["etc/sysconfig/network-scripts/ifcfg-*"],
    ["etc/network/interfaces", "etc/network/interfaces.d/*"],
)
_ORDERED = (".network", ".link")
"""Of these the first one that matches an interface is used, in the order of their names."""
_COMMENT = re.compile(r"(^|\s)#.*|^\s*;.*")
_BETWEEN = re.compile(r"[\s,;=\[\]{}\"']+")


def find_claims(
    rails: Sequence[RailPlan], links: Mapping[str, Link], root: Path
) -> dict[str, tuple[str, ...]]:
    """By rail the lines that claim it."""
    found: dict[str, tuple[str, ...]] = {}
    for path in _files(root):
        first = path.suffix not in _ORDERED or path.name < NETWORK_PREFIX
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            words = [word.rstrip(":") for word in _BETWEEN.split(_COMMENT.sub("", line))]
            for rail in rails:
                link = links.get(rail.interface)
                if any(_claims(word, rail, link.mac if link else "", first) for word in words):
                    where = f"/{path.relative_to(root)} line {number}"
                    claim = f"{where}: {line.strip()!r} claims {rail.interface}"
                    found[rail.interface] = (*found.get(rail.interface, ()), claim)
    return found


def _files(root: Path) -> Iterator[Path]:
    """Those that are neither ours nor netplan's product; a name hides itself in later places."""
    for kind in _KINDS:
        seen: dict[str, Path] = {}
        for path in (path for pattern in kind for path in sorted(root.glob(pattern))):
            if NAME not in path.name and not path.name.startswith("10-netplan-"):
                seen.setdefault(path.name, path)
        yield from (path for _name, path in sorted(seen.items()) if path.is_file())


def _claims(word: str, rail: RailPlan, mac: str, first: bool) -> bool:
    """`first`: the file is used before ours, so a pattern in it is enough."""
    if word == rail.interface:
        return True
    if not first or not word:
        return False
    same_mac = mac.lower() == word.lower().replace("-", ":")
    at = f"pci-{rail.pci}"
    return same_mac or fnmatchcase(rail.interface, word) or fnmatchcase(at, word)

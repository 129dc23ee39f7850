# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What applying a difference costs.

NVUE reloads switchd, and no port goes down for it. Forwarding is touched where the buffers of the
chip are laid out anew: NVIDIA names PFC, link pause and whatever changes qos_infra.conf.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..system import Impact
from .tree import Path

_BUFFERS = {
    "roce": "RoCE",
    "pfc": "PFC",
    "traffic-pool": "traffic pools",
    "egress-queue-mapping": "queue mapping",
    "link-pause": "link pause",
}
"""Branches of qos that lay out the buffers anew."""


def impact(paths: Iterable[Path]) -> Impact:
    paths = tuple(paths)
    losses: list[str] = []
    buffers = {
        _BUFFERS[path[1]]: None for path in paths if path[0] == "qos" and path[1] in _BUFFERS
    }
    if buffers:
        losses.append(
            f"buffers of the whole switch are laid out anew ({', '.join(buffers)}): packets can be "
            "lost for a moment on all of its ports"
        )
    bound = _ports(path for path in paths if path[2:4] in (("qos", "pfc"), ("qos", "link-pause")))
    if bound:
        losses.append(f"PFC changes on {_listed(bound)}: packets can be lost there for a moment")
    sized = _ports(path for path in paths if path[2:4] == ("link", "mtu"))
    if sized:
        losses.append(
            f"the MTU changes on {_listed(sized)}: until both ends of a link have the same, "
            "packets of a size between the two are lost"
        )
    return Impact(losses=tuple(losses))


def _ports(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple({path[1]: None for path in paths if path[0] == "interface"})


def _listed(ports: tuple[str, ...]) -> str:
    if len(ports) <= 4:
        return ", ".join(ports)
    return f"{len(ports)} ports ({ports[0]} to {ports[-1]})"

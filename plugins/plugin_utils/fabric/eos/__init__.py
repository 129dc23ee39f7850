# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arista EOS: configuration written by pyavd, applied in a session over eAPI.

docs/fabric.md lists the sources of every line.
"""

from __future__ import annotations

from ...schema.kinds import Boolean, Key, OneOf
from ..base import HTTPS, System
from ..port_names import PortNaming

QUEUE, ECN_COUNT = "eos_queue", "eos_ecn_count"
"""Keys of a chip in the model (`asics`)."""
QUEUES = ("tx-queue", "uc-tx-queue")
"""EOS's names of a unicast queue, which differ between chips."""

SYSTEM = System(
    __name__,
    "EOS",
    PortNaming(
        "Ethernet{}/1",
        start=1,
        step=1,
        # EOS User Manual, Ethernet Ports: port/lane, and card/port/lane in a chassis
        form=r"Ethernet(?:(?P<port>[1-9][0-9]{0,3})(?:/(?P<first>[1-8]))?"
        r"|[1-9][0-9]*(?:/[1-9][0-9]*){1,2})",
        shown="Ethernet1/1",
        parts="Ethernet[1-64]/[1,5]",
    ),
    largest_mtu=9214,  # of the 7060X class
    transport=HTTPS,
    # Arista's data sheets: Broadcom's chips in the 7050X, 7060X, 7280R, 7300X, 7500R and 7800R
    families=("tomahawk", "trident", "jericho"),
    also=("arista", "arista-eos", "arista_eos"),
    chip_keys=(
        Key(
            QUEUE,
            OneOf(QUEUES),
            "Name of a unicast queue in EOS, for a switch that does not show it.",
            default_text="what the switch shows",
        ),
        Key(
            ECN_COUNT,
            Boolean(),
            "Whether EOS must be told to count marked packets (`random-detect ecn count`). On some "
            "platforms `show qos interfaces ecn counters queue` has no figures without it; others "
            "reject it.",
            default=False,
        ),
    ),
)

#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom of SN5600 (Spectrum-4) at 400G and 800G over 5 to 300 m, beside what is published.

Exits with 1 when a published figure is missed by a byte. With --table: every speed from 100G on and
every metre from 1 to 300.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import SPECTRUM4  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.headroom import (  # noqa: E402
    MOST_METRES,
    Headroom,
    headroom,
)

FRAME = 9216
"""Bytes of the largest Ethernet frame that the published figures are for."""
PUBLISHED = {
    (400, 5): Headroom(250880, 19456, 231424),
    (800, 5): Headroom(304128, 38912, 257024),
    (800, 40): Headroom(410624, 38912, 362496),
    (800, 300): Headroom(1198080, 38912, 1150976),
}
"""By speed and metres, in SONiC's tables for SN5600."""

SPEEDS = (400, 800)
METRES = (5, 10, 20, 30, 40, 50, 100, 150, 200, 300)
TABLE_SPEEDS = (100, 200, 400, 800)


def compared() -> tuple[list[str], int]:
    """Lines to print, and how many published figures are missed."""
    lines, missed = [], 0
    for speed in SPEEDS:
        for metres in METRES:
            wanted = headroom(SPECTRUM4, speed, metres, FRAME)
            published = PUBLISHED.get((speed, metres))
            line = f"headroom_{speed}G_{metres}m: {wanted.xoff_bytes} bytes xoff"
            if published is not None:
                equal = wanted == published
                missed += not equal
                line += f" (published {published.xoff_bytes}: {'equal' if equal else 'MISSED'}; "
                line += f"size {wanted.size_bytes}, published {published.size_bytes}; "
                line += f"xon {wanted.xon_bytes}, published {published.xon_bytes})"
            lines.append(line)
    return lines, missed


def table() -> Iterator[str]:
    """xoff and size by metres and speed, for frames of 9216 bytes."""
    yield "metres" + "".join(
        f"{f'xoff {speed}G':>11}{f'size {speed}G':>11}" for speed in TABLE_SPEEDS
    )
    for metres in range(1, MOST_METRES + 1):
        row = [headroom(SPECTRUM4, speed, metres, FRAME) for speed in TABLE_SPEEDS]
        yield f"{metres:6}" + "".join(f"{one.xoff_bytes:11}{one.size_bytes:11}" for one in row)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./test --bench headroom")
    parser.add_argument("--table", action="store_true", help="every speed and metre")
    if parser.parse_args().table:
        print("\n".join(table()))
        return 0
    lines, missed = compared()
    print("\n".join(lines))
    print(
        f"headroom_published: {len(PUBLISHED) - missed} of {len(PUBLISHED)} rows equal to the byte"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

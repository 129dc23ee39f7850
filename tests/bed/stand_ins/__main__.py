# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the stand-ins, and write an inventory that uses them (README.md)."""

from __future__ import annotations

import argparse
from pathlib import Path

from .build import BUILT, made
from .inventory import write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bed.stand_ins", description=__doc__)
    parser.add_argument("--inventory", type=Path, default=BUILT / "inventory", metavar="DIR")
    parser.add_argument("--name", default="stand-ins", help="of the cluster")
    parser.add_argument("--octet", type=int, default=238, help="10.OCTET.0.0/24 is its management")
    words = parser.parse_args()
    folder = write(words.inventory, made(), words.name, words.octet)
    print(folder)


main()

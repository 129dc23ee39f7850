#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Allreduce times of a cluster that is up: `smoke_BYTES: SECONDS s`, the median of each size.

The cluster is that of inventories/virtual, or of the inventory named as argument. Beside each time
stands what the line rate of the rails would allow; on virtual nodes that is nominal.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests.nodes import Nodes  # noqa: E402

SHOWN = 2000
"""Characters of Ansible's output shown when the run fails."""


def run(inventory: str, directory: str) -> dict:
    """The result of one smoke test, as the controller saves it."""
    words = f"--extra-vars=mpi_smoke_report_directory={directory}"
    done = Nodes(Path(inventory).resolve()).play("playbooks/smoke.yml", words, expect=None)
    if done.rc != 0:
        print(done.output[-SHOWN:], file=sys.stderr)
        raise SystemExit(
            f"smoke: the test on {inventory} failed; its cluster has to be up and configured "
            "(./demo brings up inventories/virtual)"
        )
    return json.loads((Path(directory) / "smoke-latest.json").read_text(encoding="utf-8"))


def ideal_s(size: int, ranks: int, line_rate_gbytes_s: float) -> float:
    """What the rails would need at line rate: the bytes of the bus, and nothing for latency."""
    return size * 2 * (ranks - 1) / ranks / (line_rate_gbytes_s * 1e9)


def main() -> None:
    inventory = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "inventories/virtual")
    with tempfile.TemporaryDirectory(prefix="bench-smoke-") as directory:
        begin = time.monotonic()
        result = run(inventory, directory)
        took = time.monotonic() - begin
    figures = result["figures"]
    nominal = ", nominal: virtual nodes" if figures["virtual"] else ""
    for one in figures["by_size"]:
        line = f"smoke_{one['bytes']}: {one['median_us'] / 1e6:.6f} s"
        if figures["line_rate_gbytes_s"]:
            limit = ideal_s(one["bytes"], figures["ranks"], figures["line_rate_gbytes_s"])
            line += f" (line rate: {limit:.9f} s{nominal})"
        print(line)
    print(f"smoke_test: {result['seconds']:.1f} s ({figures['ranks']} ranks, limit 10 s)")
    print(f"smoke_playbook: {took:.1f} s (the whole play, seen from the controller)")


if __name__ == "__main__":
    main()

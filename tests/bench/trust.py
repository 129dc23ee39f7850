#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What SSH trust of 100, 1,000 and 10,000 nodes costs the controller.

A figure is everything that is computed for a cluster laid for the first time: authorities made, two
certificates signed for each node and written into the journal, and the text of every file each node
gets. Key pairs are made by the nodes themselves, so here they stand ready. A second figure is the
same for an unchanged cluster. Ansible's own work for each host comes on top.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import trust  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import AuthorityStore  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Issued, Journal  # noqa: E402

SIZES = (100, 1_000, 10_000)
RAILS = 8
SAMPLE = 200
"""Certificates signed for the figure of one."""
KEYS_MADE = 64
"""Key pairs that are really made; nodes share them in turn, for signing does not look at them."""

LIMIT_RATIO = 1.5
"""Processor time of a node at 10,000: at most this times that at 1,000."""


class Took(NamedTuple):
    """Seconds by the clock, and of processors, which do not depend on what else runs here."""

    clock: float
    processor: float


def processor_seconds() -> float:
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def directory(count: int) -> list[dict[str, Any]]:
    """A launcher and so many compute nodes, each with its rails, as the inventory gives them."""
    entries: list[dict[str, Any]] = [
        {"name": "launcher01", "role": "launcher", "management_address": "10.0.0.10", "rails": []}
    ]
    for index in range(count):
        third, fourth = divmod(index, 250)
        rails = [
            {
                "rail": rail,
                "plane": 0,
                "interface": f"rail{rail}",
                "address": f"100.{64 + rail}.{third}.{fourth + 1}",
                "network": f"100.{64 + rail}.0.0/16",
            }
            for rail in range(RAILS)
        ]
        entries.append(
            {
                "name": f"node{index:05d}",
                "role": "compute",
                "management_address": f"10.1.{third}.{fourth + 1}",
                "rails": rails,
            }
        )
    return entries


def make_keys(folder: Path) -> list[str]:
    for index in range(KEYS_MADE):
        path = folder / str(index)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    lines = (folder.joinpath(f"{index}.pub").read_text("ascii") for index in range(KEYS_MADE))
    return [" ".join(line.split()[:2]) for line in lines]


def lay(count: int, folder: Path, keys: list[str]) -> tuple[Took, Took]:
    """What the first time and an unchanged cluster take."""
    entries = directory(count)
    journal = Journal(folder / f"state-{count}")
    took = []
    for _run in ("first", "unchanged"):
        began, used = time.perf_counter(), processor_seconds()
        told, known = prepare(entries, journal)
        for index, entry in enumerate(publishing.members(entries)):
            name = str(entry["name"])
            public = {"user": keys[index % KEYS_MADE], "host": keys[(index + 1) % KEYS_MADE]}
            if not known[name]["issued"]:
                issued, _records = publishing.issue(
                    journal,
                    name,
                    ["user", "host"],
                    public,
                    told,
                    user="mpi",
                    names=publishing.names_of(entry),
                    validity_days=365,
                    now=int(began) + 1_800_000_000,
                )
                assert len(issued) == 2
            trust.sshd_text("mpi")
            trust.ssh_text("mpi", told["patterns"])
            trust.authority_lines(told["host_authorities"], told["patterns"])
            if not known[name]["trusts"]:
                journal.trusts(name, told["trusted"])
        took.append(Took(time.perf_counter() - began, processor_seconds() - used))
    return took[0], took[1]


def prepare(
    entries: list[dict[str, Any]], journal: Journal
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the authority's action does, once for all nodes."""
    members = publishing.members(entries)
    with journal.locked():
        outcome = AuthorityStore(journal).prepare(
            [str(entry["name"]) for entry in members],
            comment="bench",
            now=1_800_000_000,
            write=True,
        )
    told = publishing.published(members, "mpi@bench", outcome.authorities, outcome.krl)
    publishing.probes_of(members)
    return told, {name: node.known() for name, node in outcome.nodes.items()}


def sign(folder: Path, keys: list[str]) -> tuple[float, float]:
    """Milliseconds of one signature, as the collection makes it and by ssh-keygen."""
    authority = folder / "0"
    names_of = [f"node00000-rail{rail}" for rail in range(2 * RAILS)]
    began = time.perf_counter()
    for serial in range(SAMPLE):
        end = 1_800_000_000
        record = Issued("host", serial, "a", end, key=keys[serial % KEYS_MADE], principals=names_of)
        publishing.sign(authority, record, "node")
    ours = time.perf_counter() - began
    argv = ["ssh-keygen", "-q", "-s", authority, "-h", "-I", "node", "-n", ",".join(names_of)]
    began = time.perf_counter()
    for serial in range(SAMPLE):
        subprocess.run([*argv, "-z", str(serial), folder / "1.pub"], check=True)
    theirs = time.perf_counter() - began
    return ours / SAMPLE * 1000, theirs / SAMPLE * 1000


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bench-trust-") as name:
        folder = Path(name)
        keys = make_keys(folder)
        ours, theirs = sign(folder, keys)
        print(f"trust_sign: {ours:.2f} ms a certificate (by ssh-keygen -s: {theirs:.2f} ms)")
        laid = {}
        for count in SIZES:
            laid[count], again = lay(count, folder, keys)
            print(
                f"trust_{count}: {laid[count].clock:.2f} s"
                f" ({laid[count].clock / count * 1000:.2f} ms a node)"
            )
            print(
                f"trust_unchanged_{count}: {again.clock:.2f} s"
                f" ({again.clock / count * 1000:.2f} ms a node)",
                flush=True,
            )
    few, many = (laid[count].processor / count for count in SIZES[1:])
    ratio = many / few
    print(
        f"trust_linearity: {ratio:.2f} ratio (processor time a node at {SIZES[2]} to {SIZES[1]};"
        f" limit {LIMIT_RATIO:g})"
    )
    return 1 if ratio > LIMIT_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())

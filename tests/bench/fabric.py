#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time to plan every switch of a fabric, as new as from the factory, for each system and for all.

The reference cluster with every leaf port in use (8 leaves of 64 x 800G, 4 spines), and a fabric of
512 nodes. What is timed is everything but the network: compile the intent, render, compare, report,
judge. Exits with 1 when a figure is over its limit.
"""

from __future__ import annotations

import copy
import gc
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import (  # noqa: E402
    eos,
    nvue,
    promises,
    sonic,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compiler import (  # noqa: E402
    compile_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import (  # noqa: E402
    Present as EosPresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (  # noqa: E402
    compile_model,
    inventory_of,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract  # noqa: E402

from tests.unit import eos_switch, nvue_switch, sonic_switch  # noqa: E402

SYSTEMS = {"sonic": "spectrum4", "nvue": "spectrum4", "eos": "tomahawk5"}
MIXED = "mixed"


class Size(NamedTuple):
    name: str
    limit_s: float
    nodes: int
    leaves: int
    nodes_per_set: int
    spines: int
    spine_ports: int
    links_per_leaf: int


SIZES = (
    Size("reference", 5.0, 48, 8, 48, 4, 64, 4),
    Size("512_nodes", 60.0, 512, 128, 32, 32, 128, 1),
)
LIMIT_RATIO = 1.5
"""What a port takes in the large fabric: at most this times that in the reference cluster."""

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: bench
management: {{subnet: 10.10.0.0/16}}
nodes: {{count: {nodes}, name: "node{{:03d}}", management_first: 10.10.128.1}}
gpus: {{count: 8}}
rails: {{count: 8, speed_gbps: 800, mtu: 9000}}
addresses: {{pool: 100.64.0.0/10, prefix: 24}}
leaves:
  count: {leaves}
  name: leaf{{:03d}}
  management_first: 10.10.2.1
  ports: 64
  nodes_per_set: {nodes_per_set}
  system: [{leaf_systems}]
  asic: [{leaf_asics}]
spines:
  count: {spines}
  name: spine{{:03d}}
  management_first: 10.10.3.1
  ports: {spine_ports}
  links_per_leaf: {links_per_leaf}
  system: [{spine_systems}]
  asic: [{spine_asics}]
launcher: {{name: launcher01, management: 10.10.0.10}}
"""


def switches(size: Size, system: str) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Name, role, its variables and those of all hosts, as an inventory has them."""

    def systems(count: int) -> list[str]:
        return [list(SYSTEMS)[n % 3] if system == MIXED else system for n in range(count)]

    leaves, spines = systems(size.leaves), systems(size.spines)
    text = MODEL.format(
        **size._asdict(),
        leaf_systems=", ".join(leaves),
        leaf_asics=", ".join(SYSTEMS[each] for each in leaves),
        spine_systems=", ".join(spines),
        spine_asics=", ".join(SYSTEMS[each] for each in spines),
    )
    compiled = inventory_of(compile_model(read("cluster.yml", text)))
    everywhere = compiled.group_variables["all"]
    return [
        (host.name, host.groups[0], host.variables, everywhere)
        for host in compiled.hosts
        if host.groups[0] in ("leaf", "spine")
    ]


def factory(system: str, ports: int) -> Any:
    """A new switch with so many ports, as the unit tests of each system have it."""
    if system == "sonic":
        text = json.dumps(sonic_switch.new_switch(ports))
        if ports > 64:  # two ports of four lanes in place of one of eight
            text = re.sub(r"Ethernet(\d+)", lambda name: f"Ethernet{int(name[1]) // 2}", text)
        return sonic_switch.present(json.loads(text))
    if system == "nvue":
        return nvue_switch.present({}, ports)
    running = eos_switch.show(eos_switch.empty())
    return EosPresent(
        version="simulation",
        running=running,
        startup=running,
        interfaces={
            f"Ethernet{number}/1": {"linkStatus": "connected", "bandwidth": 800 * 10**9}
            for number in range(1, ports + 1)
        },
        neighbours=(),
    )


PACKAGES: dict[str, Any] = {"sonic": sonic.SYSTEM, "nvue": nvue.SYSTEM, "eos": eos.SYSTEM}


def plan(
    name: str, role: str, host: dict[str, Any], everywhere: dict[str, Any], present: Any
) -> int:
    """What the role does for one switch once it was read. Returns the number of ports."""
    intent = compile_switch(
        name,
        role,
        host["cluster_system"],
        host["cluster_asic"],
        everywhere["cluster_asics"],
        host["cluster_ports"],
        read_contract(everywhere["roce_qos"]),
    )
    system = PACKAGES[intent.system]
    difference = system.difference(intent, system.wanted(intent), present)
    if not difference:
        raise SystemExit(f"{name}: a new switch has nothing to change, which cannot be")
    report = system.report(intent, present)
    promises.checks(intent, report, difference, check_mode=True)
    return len(intent.ports)


def timed(do: Callable[[], int]) -> tuple[float, int]:
    """CPU time: the machine may have other work."""
    gc.collect()
    begin = time.process_time()
    ports = do()
    return time.process_time() - begin, ports


def main() -> int:
    broken = False
    for system in (*SYSTEMS, MIXED):
        per_port: list[float] = []
        for size in SIZES:
            found = switches(size, system)
            presents = [
                copy.deepcopy(
                    factory(host["cluster_system"], size.spine_ports if role == "spine" else 64)
                )
                for _name, role, host, _everywhere in found
            ]
            work = list(zip(found, presents))
            # The first one also loads what renders EOS: no matter of ports.
            start, first = timed(lambda: plan(*work[0][0], work[0][1]))  # noqa: B023
            seconds, ports = timed(
                lambda: sum(plan(*each, present) for each, present in work[1:])  # noqa: B023
            )
            per_port.append(seconds / ports)
            seconds, ports = seconds + start, ports + first
            broken |= seconds > size.limit_s
            print(
                f"fabric_{size.name}_{system}: {seconds:.2f} s (limit {size.limit_s:g} s; "
                f"{len(found)} switches, {ports} ports, {1e6 * seconds / ports:.0f} us a port)",
                flush=True,
            )
        ratio = per_port[1] / per_port[0]
        broken |= ratio > LIMIT_RATIO
        print(
            f"fabric_linearity_{system}: {ratio:.2f} ratio "
            f"(time a port at 512 nodes to that of the reference; limit {LIMIT_RATIO:g})"
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

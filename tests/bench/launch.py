#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time the start and end of MPI ranks on 4, 8 and 16 virtual nodes, launched flat and as a tree.

For comparison, simultaneous ssh connections to these nodes without MPI are timed as well. `true`
measures only the start, `init` includes MPI_Init with mpi4py; each runs with one rank per node and
with one per slot. The default tree of mpirun has 64 branches and is flat for up to 64 nodes; here
it has 4. All nodes share the cores of this machine, so linear growth is the best possible result;
separate nodes show less growth.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nodes import Nodes  # noqa: E402

SIZES = (4, 8, 16)
SLOTS = 2
LIMIT = 1.2
"""Ratio of the time per node at the largest size to that at the smallest; 1 is linear."""
MODEL = f"""\
plugin: baremetal.mpi_roce.cluster
name: vnlaunch
mpi: {{user: mpi, uid: 2000}}
management: {{subnet: 10.235.0.0/24, interface: mgmt0}}
nodes: {{count: {SIZES[-1]}, name: "node{{:02d}}", management_first: 10.235.0.11, slots: {SLOTS}}}
gpus: {{count: 1}}
rails: {{count: 1, speed_gbps: 10, mtu: 9000}}
addresses: {{plan: subnet_per_rail, pool: 10.135.0.0/16, prefix: 24, first_host: 11}}
leaves: {{count: 1, management_first: 10.235.0.101, ports: 64}}
launcher: {{name: launcher01, management: 10.235.0.10}}
"""
LAYERS = "names,rails,mpi,ssh,hostfile"

# Runs on the launcher in a login shell of the MPI user.
PROGRAM = """\
import json, statistics, subprocess, sys, tempfile, time
SIZES, SLOTS, RUNS = json.loads(sys.argv[1])
PROGRAMS = {"true": ["true"], "init": ["python3", "-c", "from mpi4py import MPI"]}
MODES = {"flat": ["plm_rsh_no_tree_spawn", "1"],
         "tree": ["plm_rsh_no_tree_spawn", "0", "--mca", "routed_radix", "4"]}

def measured(*commands):
    times = []
    for _ in range(RUNS):
        began = time.monotonic()
        running = [subprocess.Popen(argv, stdin=subprocess.DEVNULL) for argv in commands]
        codes = [process.wait() for process in running]
        times.append(time.monotonic() - began)
        if any(codes):
            sys.exit(f"{commands[0]}: exit status {codes}")
    return statistics.median(times)

for size in SIZES:
    nodes = [f"node{number:02d}" for number in range(1, size + 1)]
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write("".join(f"{node} slots={SLOTS}\\n" for node in nodes))
        hosts.flush()
        print(json.dumps(["ssh", size, 0, measured(*(["ssh", "-x", n, "true"] for n in nodes))]))
        for mode, parameters in MODES.items():
            for name, program in PROGRAMS.items():
                for ranks in (1, SLOTS):
                    argv = ["mpirun", "--mca", *parameters, "--hostfile", hosts.name]
                    argv += ["-np", str(size * ranks), "--map-by", "node", *program]
                    print(json.dumps([f"{mode}_{name}", size, ranks, measured(argv)]), flush=True)
"""


def main() -> int:
    runs = 3
    with tempfile.TemporaryDirectory(prefix="bench-launch-") as folder:
        inventory = Path(folder, "inventory")
        shutil.copytree(ROOT / "inventories/virtual", inventory)
        (inventory / "cluster.yml").write_text(MODEL, encoding="utf-8")
        nodes = Nodes(inventory)
        try:
            nodes.state(present=True)
            nodes.play("site.yml", f"--tags={LAYERS}")
            figures = json.dumps([SIZES, SLOTS, runs])
            command = f"runuser -l mpi -c \"python3 - '{figures}'\""
            done = subprocess.run(
                ["ssh", "-F", str(nodes.ssh_config), "launcher01", f"sudo {command}"],
                input=PROGRAM,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        finally:
            nodes.state(present=False)
    times = {}
    for line in done.stdout.splitlines():
        name, size, ranks, seconds = json.loads(line)
        times[name, ranks, size] = seconds
    over = 0
    for name, ranks in dict.fromkeys((name, ranks) for name, ranks, _size in times):
        label = f"launch_{name}_{ranks}_a_node" if ranks else "launch_ssh"
        for size in SIZES:
            seconds, ssh = times[name, ranks, size], times["ssh", 0, size]
            share = f" (only ssh {ssh:.2f} s, {ssh / seconds:.0%})" if ranks else ""
            print(f"{label}_{size}: {seconds:.2f} s{share}")
        few, many = (times[name, ranks, size] / size for size in (SIZES[0], SIZES[-1]))
        over += many / few > LIMIT
        print(f"{label}_linearity: {many / few:.2f} ratio (limit {LIMIT:g}; 1 is linear)")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

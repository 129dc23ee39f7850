#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure the controller's cost of site.yml for 50, 200 and 500 nodes with canned answers.

    ./test --bench controller [TAG...]

The connection plugin in connection/ answers every module immediately, so CPU time, memory and bytes
are those of the controller. Switches, which need sessions, and layers that evaluate measurements
(smoke, verbs, use of storage, SSH probe) are excluded. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.inventory import model  # noqa: E402

SIZES = (50, 200, 500)
LIMIT = "compute:launcher:storage:localhost"
TAGS = ("names", "os", "rdma", "gpu", "rails", "storage", "mpi", "hostfile", "ssh")
LIMIT_CPU_S = 1.0
"""CPU seconds of the controller per host, for the whole site."""
LIMIT_LINEARITY = 1.15
"""Ratio of the CPU time per host with 500 nodes to that with 50."""
LIMIT_MIB = 300.0
VARIABLES = """\
ansible_connection: canned
ansible_python_interpreter: /usr/bin/python3
shared_storage_use: false
ssh_trust_probe: false
ssh_trust_state_directory: {folder}/trust
"""


class Cost(NamedTuple):
    cpu_s: float
    mib: float
    """Peak memory of the largest process."""
    sent: dict[str, tuple[int, int]]
    """Executions and bytes by module."""
    hosts: frozenset[str]
    """Those on which a module was executed."""
    wall_s: float


def measure(nodes: int, tags: tuple[str, ...], folder: Path, limit: str = LIMIT) -> Cost:
    inventory = folder / f"bench{nodes}"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "cluster.yml").write_text(model(nodes), encoding="utf-8")
    variables = VARIABLES.format(folder=folder)
    (inventory / "group_vars/all.yml").write_text(variables, encoding="utf-8")
    log = folder / f"sent{nodes}"
    log.touch()
    argv = [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, "site.yml"]
    argv += ["--limit", limit, "--tags", ",".join(tags)]
    output = folder / f"output{nodes}"
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection"),
        "BAREMETAL_MPI_ROCE_REPORTS": str(folder / "reports"),
        "ANSIBLE_PIPELINING": "1",
        "CANNED_SENT": str(log),
    }
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with output.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            list(map(str, argv)),
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(
            f"controller: {nodes} nodes:\n{output.read_text(encoding='utf-8')[-4000:]}"
        )
    sent: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    hosts = set()
    for line in log.read_text(encoding="ascii").splitlines():
        host, module, size = line.split()
        hosts.add(host)
        count, total = sent[module]
        sent[module] = count + 1, total + int(size)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall_s = time.monotonic() - began
    return Cost(used, after.ru_maxrss / 1024, dict(sent), frozenset(hosts), wall_s)


def main(tags: tuple[str, ...]) -> int:
    first = last = 0.0
    over = False
    cost = Cost(0.0, 0.0, {}, frozenset(), 0.0)
    for nodes in SIZES:
        with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
            cost = measure(nodes, tags, Path(folder))
        last = cost.cpu_s / nodes
        first = first or last
        over |= last > LIMIT_CPU_S or cost.mib > LIMIT_MIB
        sent = sum(size for _count, size in cost.sent.values()) / nodes / 1000
        executions = sum(count for count, _size in cost.sent.values()) / nodes
        print(
            f"controller_{nodes}: {last:.2f} CPU s per host (limit {LIMIT_CPU_S:g} s), "
            f"{cost.mib:.0f} MiB (limit {LIMIT_MIB:g}), {executions:.1f} executions and "
            f"{sent:.0f} kB sent per host",
            flush=True,
        )
    print(f"controller_linearity: {last / first:.2f} (limit {LIMIT_LINEARITY:g})")
    for module, (count, size) in sorted(cost.sent.items(), key=lambda item: -item[1][1]):
        print(f"  {module:<20} {count:>6} executions, {size / count / 1000:.0f} kB each")
    return int(over or last / first > LIMIT_LINEARITY)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or TAGS))

#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure the controller's cost of site.yml with canned answers, and the proofs that grow with the
cluster.

    ./test --bench controller [--docs] [SIZE...] [TAG...]     site.yml; 50, 200 and 500 nodes
    ./test --bench controller [--docs] proofs [SIZE...]       50, 200, 500, 1000 and 2000 nodes
    ./test --bench controller [--docs] settings [SIZE...]     site.yml, another setting each; 50

The connection plugin in connection/ answers every module immediately, so CPU time, memory and bytes
are those of the controller. Switches, which need sessions, and layers that evaluate measurements
(smoke, verbs, use of storage, SSH probe) are excluded from site.yml. CPU time counts, which a busy
machine changes less than seconds. --docs writes the table to docs/scale.md. Exits with 1 if a limit
is exceeded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.baremetal.mpi_roce.plugins.action import ssh_authority  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import names  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (  # noqa: E402
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import hostfile  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import (  # noqa: E402
    readiness,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (  # noqa: E402
    LaunchNode,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import (  # noqa: E402
    KINDS,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import (  # noqa: E402
    model as models,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import (  # noqa: E402
    rail_pairs,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import (  # noqa: E402
    publishing,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (  # noqa: E402
    Issued,
    Journal,
)

from tests.bench.inventory import model  # noqa: E402
from tests.unit.link_fabric import Fabric  # noqa: E402

SIZES = (50, 200, 500)
PROOF_SIZES = (50, 200, 500, 1000, 2000)
UNCHANGED = MappingProxyType({"CANNED_UNCHANGED": "1"})
"""Every host answers the look that all of its layers are unchanged."""
LIMIT = "compute:launcher:storage:localhost"
TAGS = ("names", "os", "rdma", "gpu", "rails", "storage", "mpi", "hostfile", "ssh")
LIMIT_CPU_S = 0.3
"""CPU seconds of the controller per host, for the whole site."""
LIMIT_LINEARITY = 1.1
"""Ratio of the CPU time per host with most nodes to that with fewest."""
LIMIT_MB, LIMIT_KB = 600.0, 300.0
"""Peak memory of the main process, and what each host adds to it."""
LIMIT_PROOF_MS = 5.0
"""CPU time per node of one proof, where it is largest."""
LIMIT_PROOF_LINEARITY = 1.5
"""Ratio of the time per node of the largest size to that of 200 nodes, for proofs above 0.2 ms."""
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "as in ansible.cfg": {},
    "forks = 5": {"ANSIBLE_FORKS": "5"},
    "forks = 128": {"ANSIBLE_FORKS": "128"},
    "stdout_callback = default": {"ANSIBLE_STDOUT_CALLBACK": "default"},
    "no summary": {
        "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.minimal",  # not loaded: of type stdout
        "BAREMETAL_MPI_ROCE_SUMMARY": "false",
    },
}
VARIABLES = """\
ansible_connection: canned
ansible_python_interpreter: /usr/bin/python3
shared_storage_use: false
ssh_trust_probe: false
ssh_trust_state_directory: {folder}/trust
"""


class Cost(NamedTuple):
    cpu_s: float
    mb: float
    """Peak memory of the main process, in 10^6 bytes."""
    sent: dict[str, tuple[int, int]]
    """Executions and bytes by module."""
    lines: int
    """Lines of output."""
    hosts: frozenset[str]
    """Those on which something was executed."""
    wall_s: float


def measure(
    nodes: int,
    tags: Sequence[str],
    folder: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
    limit: str = LIMIT,
) -> Cost:
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
        **settings,
    }
    began = time.monotonic()
    with output.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            list(map(str, argv)), cwd=ROOT, env=environment, stdout=stream, stderr=stream
        )
        peak, pid = 0, 0
        while not pid:  # rusage has the largest process, which may be a worker
            time.sleep(0.1)
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            peak = int((re.search(r"VmHWM:\s+(\d+) kB", status) or [0, peak])[1])
            pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(code)
    printed = output.read_text(encoding="utf-8")
    if process.returncode:
        raise SystemExit(f"controller: {nodes} nodes:\n{printed[-4000:]}")
    sent: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    hosts = set()
    for line in log.read_text(encoding="ascii").splitlines():
        host, module, size = line.split()
        hosts.add(host)
        count, total = sent[module]
        sent[module] = count + 1, total + int(size)
    used = usage.ru_utime + usage.ru_stime
    wall_s = time.monotonic() - began
    lines = len(printed.splitlines())
    return Cost(used, peak * 1024 / 1e6, dict(sent), lines, frozenset(hosts), wall_s)


def compiled(nodes: int) -> dict[str, dict[str, Any]]:
    """The variables of all hosts, by host."""
    found = models.inventory_of(models.compile_model(models.read("cluster.yml", model(nodes))))
    return {host.name: found.merged(host) for host in found.hosts}


def trust(nodes: int, folder: Path) -> None:
    """The SSH authority after a run on every host, which has two certificates."""
    defaults = {name: of.get("default") for name, of in ssh_authority.ARGUMENTS.items()}
    of_hosts, state = compiled(nodes), str(folder / "trust")
    (prefix,) = {own["cluster_management"]["prefix"] for own in of_hosts.values()}
    arguments = {
        **defaults,
        "directory": facts.build(of_hosts),
        "management_prefix": prefix,
        "cluster_name": f"bench{nodes}",
        "state_directory": state,
    }
    told = ssh_authority.prepare(arguments, write=True)
    authority, hosts = told["authority"], told["hosts"]
    lines = []
    for number, (name, host) in enumerate(hosts.items()):
        certificates = [
            Issued(
                kind=kind,
                serial=2 * number + place,
                authority=authority["signs"],
                valid_before=1 << 32,
                digest=f"SHA256:{number:043}",
                key=f"ssh-ed25519 {number:068}",
                principals=host["names"] if place else [host["principal"]],
                sources=() if place else host["sources"],
                signer=f"SHA256:{place:043}",
            )
            for place, kind in enumerate(KINDS)
        ]
        krl = hashlib.sha256(base64.b64decode(authority["revoked"])).hexdigest()
        serials = [each.serial for each in certificates]
        own = {"trusts": authority["trusted"], "krl": krl, "serials": serials}
        lines += [{"node": name, **record} for record in (*map(asdict, certificates), own)]
    with open(Journal(Path(state)).path, "a", encoding="utf-8") as stream:
        stream.writelines(f"\n{json.dumps(line)}" for line in lines)


def site(sizes: Sequence[int], tags: Sequence[str], rows: list[list[str]]) -> int:
    rows.append(["nodes", "CPU s", "CPU s a node", "MB", "executions a node", "kB a node", "lines"])
    costs: dict[int, Cost] = {}
    over = False
    print(f"controller: site.yml --tags {','.join(tags)} on {', '.join(map(str, sizes))} nodes")
    for nodes in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
            trust(nodes, Path(folder))
            costs[nodes] = cost = measure(nodes, tags, Path(folder), UNCHANGED)
        each = cost.cpu_s / nodes
        over |= each > LIMIT_CPU_S or cost.mb > LIMIT_MB
        sent = sum(size for _count, size in cost.sent.values()) / nodes / 1000
        executions = sum(count for count, _size in cost.sent.values()) / nodes
        print(
            f"controller_{nodes}: {each:.2f} CPU s per host (limit {LIMIT_CPU_S:g} s), "
            f"{cost.mb:.0f} MB (limit {LIMIT_MB:g}), {executions:.1f} executions and "
            f"{sent:.0f} kB sent per host, {cost.lines} lines",
            flush=True,
        )
        figures = f"{cost.cpu_s:.0f} {each:.2f} {cost.mb:.0f} {executions:.1f} {sent:.0f}"
        rows.append([str(nodes), *figures.split(), str(cost.lines)])
    (least, first), (most, last) = min(costs.items()), max(costs.items())
    ratio = last.cpu_s / most / (first.cpu_s / least)
    print(f"controller_linearity: {ratio:.2f} (limit {LIMIT_LINEARITY:g})")
    if most > least:
        memory = (last.mb - first.mb) * 1000 / (most - least)
        print(f"controller_memory: {memory:.0f} kB per host (limit {LIMIT_KB:g})")
        over |= memory > LIMIT_KB
    for module, (count, size) in sorted(last.sent.items(), key=lambda item: -item[1][1]):
        print(f"  {module:<20} {count:>6} executions, {size / count / 1000:.0f} kB each")
    return int(over or ratio > LIMIT_LINEARITY)


def compared(sizes: Sequence[int], tags: Sequence[str], rows: list[list[str]]) -> int:
    rows.append(["setting", "nodes", "CPU s a node", "MB", "executions a node", "lines"])
    for nodes in sizes:
        for name, settings in SETTINGS.items():
            with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
                trust(nodes, Path(folder))
                cost = measure(nodes, tags, Path(folder), {**UNCHANGED, **settings})
            executions = sum(count for count, _size in cost.sent.values()) / nodes
            row = [f"{cost.cpu_s / nodes:.2f}", f"{cost.mb:.0f}", f"{executions:.1f}"]
            rows.append([f"`{name}`", str(nodes), *row, str(cost.lines)])
            print(*rows[-1], sep=" | ", flush=True)
    return 0


def answered(argv: Sequence[str], **_options: Any) -> Result:
    """What a node that is ready answers to the preflight of smoke."""
    lines = ["program abc", "daemon yes", "version (Open MPI) 4.1.9", "ucx 1.18", "end"]
    return Result(tuple(argv), 0, "".join(f"mpi-ready {line}\n" for line in lines), "")


def proofs_of(nodes: int) -> dict[str, Callable[[], Any]]:
    hosts = compiled(nodes)
    directory = facts.build(hosts)
    compute = [entry["name"] for entry in directory if entry["role"] == "compute"]
    table = facts.names(directory, "example.org")["table"]
    lines = [tuple(line.split()) for line in table.splitlines()]
    text, _changed = names.plan("127.0.0.1 localhost\n", lines, compute[0])
    launched = [LaunchNode(name, 8) for name in compute]
    links = Fabric(nodes=nodes, rails=8, leaves=8 * -(-nodes // 32), spines="")
    return {
        "directory of the cluster": lambda: facts.build(hosts),
        "names: table of the cluster": lambda: facts.names(directory, "example.org"),
        "names: /etc/hosts of a node": lambda: names.plan(text, lines, compute[0]),
        "hostfile": lambda: hostfile.render(hostfile.compile_membership(directory), "openmpi"),
        "ssh: known hosts": lambda: publishing.published(directory, [], b""),
        "ssh: logins and packets": lambda: publishing.probes_of(directory),
        "links: both ends of every cable": links.check,
        "verbs: pairs": lambda: rail_pairs.parts(directory, compute, 18515),
        "smoke: preflight": lambda: readiness.preflight(answered, "mpi", launched, "tcp"),
    }


def proofs(sizes: Sequence[int], rows: list[list[str]]) -> int:
    rows.append(["ms a node with", *(f"{size} nodes" for size in sizes)])
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for nodes in sizes:
        for name, proof in proofs_of(nodes).items():
            spent = []
            for _attempt in range(3):
                began = time.process_time()
                proof()
                spent.append(time.process_time() - began)
            found[name][nodes] = min(spent) * 1000 / nodes
    over = False
    for name, by_size in found.items():
        rows.append([name, *(f"{by_size[size]:.3f}" for size in sizes)])
        most, base = max(by_size), min([size for size in by_size if size >= 200] or by_size)
        ratio = by_size[most] / by_size[base]
        linear = ratio <= LIMIT_PROOF_LINEARITY or by_size[most] < 0.2
        over |= max(by_size.values()) > LIMIT_PROOF_MS or not linear
        figures = ", ".join(f"{size}: {by_size[size]:.3f}" for size in sizes)
        print(f"{name}: ms per node {figures}; ratio {ratio:.2f}{'' if linear else ' NOT LINEAR'}")
    return int(over)


def document(kind: str, rows: Sequence[Sequence[str]]) -> None:
    """Replace a table of docs/scale.md."""
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        processor = re.search(r"model name\s*: (.*)", stream.read())
    machine = f"{os.cpu_count()} CPUs ({processor[1] if processor else platform.machine()})"
    day = datetime.now(timezone.utc).date()
    lines = [f"Measured on {day}, {machine}, Python {platform.python_version()}:", ""]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(3, "|" + "---|" * len(rows[0]))
    page = ROOT / "docs/scale.md"
    begin, end = f"<!-- ./test --bench controller --docs {kind} -->\n", "\n<!-- end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    if not (found and after):
        raise SystemExit(f"docs/scale.md: no table {kind}")
    page.write_text("".join([before, begin, "\n".join(lines), end, after]), encoding="utf-8")


def main(words: Sequence[str]) -> int:
    sizes = [int(word) for word in words if word.isdigit()]
    tags = [word for word in words if not word.isdigit() and word in TAGS] or TAGS
    rows: list[list[str]] = []
    if "proofs" in words:
        kind, status = "proofs", proofs(sizes or PROOF_SIZES, rows)
    elif "settings" in words:
        kind, status = "settings", compared(sizes or SIZES[:1], tags, rows)
    else:
        kind, status = "site", site(sizes or SIZES, tags, rows)
    if "--docs" in words:
        document(kind, rows)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

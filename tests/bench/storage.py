#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Storage over NFS/TCP and NFS/RDMA of the real-kernel nodes, against their own network's limit.

The cluster is that of inventories/virtual-rdma, or of the inventory named as argument; it has to be
up and configured (--tags storage). One client writes and reads a file on each mount, by dd with
fsync and with nothing in its cache, the best of some; in the same run TCP streams and ib_write_bw
over Soft-RoCE between the same two hosts say what the network there carries. All of it is copies in
memory on shared cores, so ratios are what counts: `storage_TRANSPORT_WHAT_ratio`. Exits with 1
where nothing could be measured.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from tests.nodes import Nodes  # noqa: E402

MIB = 32
REPEATS = 2
STREAM_S = 5
STREAM_PORT, RDMA_PORT = 18999, 18998
LIMIT_S = 120

RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    server.settimeout(60)
    handle = server.accept()[0]
    while handle.recv(1 << 20):
        pass
"""
SEND = """
import socket, sys, time
handle = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
block, sent, begin = bytes(1 << 20), 0, time.monotonic()
while time.monotonic() - begin < float(sys.argv[3]):
    handle.sendall(block)
    sent += len(block)
handle.shutdown(socket.SHUT_WR)
handle.recv(1)  # until the other end has it all
print(sent / (time.monotonic() - begin))
"""


class Mounted(NamedTuple):
    name: str
    transport: str
    mount: str
    server: str
    """The address it is mounted from."""


class Hosts:
    """Programs on the hosts of a cluster, over ssh, with the rights of root."""

    def __init__(self, nodes: Nodes) -> None:
        self.config = nodes.ssh_config
        if not self.config.exists():
            raise SystemExit(f"storage: {self.config} is not there: is {nodes.inventory} up?")

    def argv(self, host: str, *words: str) -> list[str]:
        return ["ssh", "-F", str(self.config), host, "sudo", *words]

    def run(self, host: str, script: str, *words: str, program: str = "sh -s --") -> str:
        done = subprocess.run(
            self.argv(host, program, *words),
            input=script,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"storage: {host}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout


def mounts_of(host: dict[str, Any], name: str) -> list[Mounted]:
    """The NFS mounts of a host, one for each transport, that it does not serve itself."""
    found: dict[str, Mounted] = {}
    for fs in host.get("cluster_filesystems") or []:
        served_by = (fs.get("serve") or {}).get("host")
        if fs["type"] == "nfs" and served_by != name:
            transport = fs["nfs"]["transport"]
            server = fs["source"].rpartition(":/")[0]
            found.setdefault(transport, Mounted(fs["name"], transport, fs["mount"], server))
    return list(found.values())


WRITE = """
set -e
directory=$1/.baremetal-mpi-roce-bench
user=$2
trap 'runuser -u "$user" -- rm -rf "$directory"' EXIT
runuser -u "$2" -- mkdir -p "$directory"
runuser -u "$2" -- dd if=/dev/zero of="$directory/file" bs=1M count="$3" conv=fsync 2>&1 | tail -n 1
sync
echo 3 > /proc/sys/vm/drop_caches
runuser -u "$2" -- dd if="$directory/file" of=/dev/null bs=1M 2>&1 | tail -n 1
"""


def dd_rates(text: str) -> list[float]:
    """Bytes per second of each dd, from its bytes and its seconds: its own rate is rounded."""
    return [
        int(size) / float(seconds)
        for size, seconds in re.findall(r"^(\d+) bytes .* copied, ([\d.e+-]+) s", text, re.M)
    ]


def storage(hosts: Hosts, client: str, mounted: Mounted, user: str) -> tuple[float, float]:
    """Writing and reading, the best of some."""
    best = [0.0, 0.0]
    for _unused in range(REPEATS):
        rates = dd_rates(hosts.run(client, WRITE, mounted.mount, user, str(MIB)))
        if len(rates) != 2:
            raise SystemExit(f"storage: {client}: dd did not say how fast it was")
        best = [max(pair) for pair in zip(best, rates)]
    return best[0], best[1]


def stream(hosts: Hosts, sender: str, receiver: str, address: str) -> float:
    """One TCP stream between two hosts, bytes per second."""
    listening = subprocess.Popen(
        hosts.argv(receiver, "python3", "-", address, str(STREAM_PORT)),
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        if listening.stdin is not None:
            listening.stdin.write(RECEIVE)
            listening.stdin.close()
        words = (address, str(STREAM_PORT), str(STREAM_S))
        return float(until_it_listens(lambda: hosts.run(sender, SEND, *words, program="python3 -")))
    finally:
        listening.terminate()
        listening.wait(10)


def until_it_listens(do: Callable[[], str]) -> str:
    """The other end takes a moment to be there."""
    for _unused in range(20):
        try:
            return do()
        except SystemExit as error:
            if "refused" not in str(error) and "connect" not in str(error).lower():
                raise
            time.sleep(0.5)
    return do()


def write_bw(hosts: Hosts, sender: str, receiver: str, address: str) -> Optional[float]:
    """ib_write_bw over Soft-RoCE, bytes per second; None where it is not installed.

    It asks all the time whether there is something, and so takes the one processor of a machine
    from the kernel's threads that carry the data: NFS over RDMA can be faster than it.
    """
    if not hosts.run(sender, "command -v ib_write_bw || true\n").strip():
        return None
    words = f"-D {STREAM_S} -p {RDMA_PORT} -F --report_gbits"
    listening = subprocess.Popen(
        hosts.argv(receiver, f"ib_write_bw -R {words}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = until_it_listens(lambda: hosts.run(sender, f"ib_write_bw -R {words} {address}\n"))
    finally:
        listening.terminate()
        listening.wait(10)
    rows = [line.split() for line in told.splitlines() if re.match(r"\s*65536\s", line)]
    return float(rows[-1][3]) * 1e9 / 8 if rows else None


def main() -> int:
    given = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "inventories/virtual-rdma"
    nodes = Nodes(given)
    hosts = Hosts(nodes)
    names = nodes.group("compute")
    client = next((name for name in reversed(names) if mounts_of(nodes.of(name), name)), "")
    if not client:
        raise SystemExit(f"storage: no node of {given} mounts an NFS file system of another host")
    user = nodes.of(client)["cluster_mpi_user"]
    for mounted in mounts_of(nodes.of(client), client):
        server = next(
            name for name in names if mounted.server in addresses_of(nodes.of(name), name)
        )
        limits = {
            "tcp": (
                stream(hosts, client, server, mounted.server),
                stream(hosts, server, client, own_address(nodes, client, mounted.server)),
            ),
        }
        over_a_rail = own_address(nodes, client, mounted.server) in rails_of(nodes.of(client))
        carried = write_bw(hosts, client, server, mounted.server) if over_a_rail else None
        if carried is not None:
            limits["rdma"] = (carried, carried)
        rates = storage(hosts, client, mounted, user)
        for place, what in enumerate(("write", "read")):
            head = f"storage_{mounted.transport}_{what}"
            print(f"{head}_{MIB}MiB: {rates[place] / 1e6:.1f} MB/s ({client} to {server})")
            for by, limit in limits.items():
                print(
                    f"{head}_of_{by}: {rates[place] / limit[place]:.2f} ratio "
                    f"(the network by {by}: {limit[place] / 1e6:.1f} MB/s)",
                    flush=True,
                )
    return 0


def rails_of(host: dict[str, Any]) -> set[str]:
    return {rail["address"] for rail in host.get("cluster_rails") or []}


def addresses_of(host: dict[str, Any], name: str) -> set[str]:
    return {name, host["cluster_management"]["address"], *rails_of(host)}


def own_address(nodes: Nodes, client: str, server: str) -> str:
    """The client's address in the network of the server's."""
    for rail in nodes.of(client)["cluster_rails"]:
        if rail["address"].rpartition(".")[0] == server.rpartition(".")[0]:
            return str(rail["address"])
    return str(nodes.of(client)["cluster_management"]["address"])


if __name__ == "__main__":
    sys.exit(main())

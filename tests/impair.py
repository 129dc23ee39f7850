# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slow, lossy and missing parts of a cluster of virtual nodes whose switches route (fabric `bgp`).

Each is a context manager that restores the part exactly. Rates are those of `tbf`, losses those of
`iptables`, as kernels without netem have both; the share of a CPU is that of a container's cgroup.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests import waiting
from tests.nodes import Nodes

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
QUOTAS = "cpu.cfs_quota_us", "cpu.max"
"""Of cgroups v1 and v2."""
BURST = ("burst", "64kb", "limit", "16mb")
"""As in roles/virtual_nodes/files/switch/router."""


class End(NamedTuple):
    """A port of a switch, or a rail of a node."""

    host: str
    port: str


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Bed:
    """The parts of one cluster, on this machine."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.rate_mbits = int(nodes.of(nodes.group("leaf")[0])["virtual_nodes_rate_mbits"])

    def cables(self) -> list[tuple[End, End]]:
        """The leaves' and the spines' ends of cables between switches."""
        return [
            (End(leaf, port), End(spine, group["peer_interface"]))
            for leaf in self.nodes.group("leaf")
            for group in self.nodes.of(leaf)["cluster_ports"]
            if group["kind"] == "uplink"
            for port, spine in group["peers"].items()
        ]

    def rail(self, node: str, interface: str) -> tuple[End, End]:
        """The node's and the leaf's end of a rail."""
        rails = {rail["interface"]: rail for rail in self.nodes.of(node)["cluster_rails"]}
        rail = rails[interface]
        return End(node, interface), End(rail["leaf"], rail["leaf_port"])

    def inside(self, end: End, *words: str) -> str:
        return run("ip", "netns", "exec", f"{self.cluster}.{end.host}", *words)

    @functools.cached_property
    def cluster(self) -> str:
        return str(self.nodes.of(self.nodes.group("leaf")[0])["cluster_name"])

    def state(self, end: End) -> str:
        """What these faults change, to compare before and after."""
        device = _device(end)
        queue = json.loads(self.inside(end, "tc", "-json", "qdisc", "show", "dev", device))
        link = json.loads(self.inside(end, "ip", "-json", "link", "show", "dev", device))
        dropped = ""
        if end.host in self.nodes.group("leaf", "spine"):
            dropped = self.inside(end, "iptables-save", "-t", "raw").partition("*raw")[2]
            dropped = "".join(line for line in dropped.splitlines() if line.startswith("-A"))
        kept = [(each["kind"], each.get("options")) for each in queue]
        return json.dumps([kept, link[0]["operstate"], dropped])

    @contextlib.contextmanager
    def slow(self, *ends: End, share: float = 0.1) -> Iterator[None]:
        """Send a share of the rate at these ends. The rails of nodes have no limit otherwise."""
        rates = {end: self._rate(end) for end in ends}
        for end, rate in rates.items():
            self._limit(end, (rate or self.rate_mbits * 1e6) * share)
        try:
            yield
        finally:
            for end, rate in rates.items():
                if rate:
                    self._limit(end, rate)
                else:
                    self.inside(end, "tc", "qdisc", "delete", "dev", _device(end), "root")

    def _rate(self, end: End) -> int:
        """Bits per second; 0 without a limit."""
        (queue,) = json.loads(
            self.inside(end, "tc", "-json", "qdisc", "show", "dev", _device(end), "root")
        )
        return int(queue["options"]["rate"]) * 8 if queue["kind"] == "tbf" else 0

    def _limit(self, end: End, rate: float) -> None:
        words = ("tc", "qdisc", "replace", "dev", _device(end), "root", "tbf", "rate")
        self.inside(end, *words, f"{rate:.0f}bit", *BURST)

    @contextlib.contextmanager
    def lossy(self, *ends: End, share: float = 0.02) -> Iterator[None]:
        """Lose a share of the packets that arrive at these ends, which are ports of switches."""
        statistic = ("-m", "statistic", "--mode", "random", "--probability", f"{share}")
        for end in ends:
            rule = ("-i", _device(end), *statistic, "-j", "DROP")
            self.inside(end, "iptables", "-t", "raw", "-A", "PREROUTING", *rule)
        try:
            yield
        finally:
            for end in ends:
                rule = ("-i", _device(end), *statistic, "-j", "DROP")
                self.inside(end, "iptables", "-t", "raw", "-D", "PREROUTING", *rule)

    @contextlib.contextmanager
    def removed(self, end: End) -> Iterator[None]:
        """Take a cable between switches out; wait for BGP when it is back."""
        before = self.paths()
        self.inside(end, "ip", "link", "set", _device(end), "down")
        try:
            waiting.until(lambda: self.paths() < before, "BGP to lose paths", 20)
            yield
        finally:
            self.inside(end, "ip", "link", "set", _device(end), "up")
            waiting.until(lambda: self.paths() == before, "BGP to restore paths", 30)

    def paths(self) -> int:
        """Number of paths that BGP installed on all switches."""
        return sum(
            run("ip", "-n", f"{self.cluster}.{switch}", "route", "show", "proto", "bgp").count(
                " via "
            )
            for switch in self.nodes.group("leaf", "spine")
        )

    @contextlib.contextmanager
    def busy(self, node: str, cpus: float = 0.1) -> Iterator[None]:
        """Limit the CPU time of a node, which podman cannot undo."""
        quota = f"{PERIOD_US * cpus:.0f}"
        with _written(self._group(node), dict(zip(QUOTAS, (quota, f"{quota} {PERIOD_US}")))):
            yield

    def quota(self, node: str) -> str:
        return _existing(self._group(node), QUOTAS).read_text(encoding="ascii")

    @contextlib.contextmanager
    def preferred(self) -> Iterator[None]:
        """Prefer the containers to other programs: figures depend on CPU time."""
        group = self._group(self.nodes.group("launcher")[0]).parent
        with _written(group, {"cpu.shares": "8192", "cpu.weight": "800"}):
            yield

    def _group(self, host: str) -> Path:
        place = "{{.State.CgroupPath}}"
        path = run("podman", "inspect", "--format", place, f"{self.cluster}.{host}").strip()
        old = CGROUPS / "cpu" / path.lstrip("/")
        return old if old.exists() else CGROUPS / path.lstrip("/")


@contextlib.contextmanager
def _written(group: Path, values: dict[str, str]) -> Iterator[None]:
    """Write the setting of this version of cgroups, and restore it."""
    file = _existing(group, values)
    before = file.read_text(encoding="ascii")
    file.write_text(values[file.name], encoding="ascii")
    try:
        yield
    finally:
        file.write_text(before, encoding="ascii")


def _existing(group: Path, names: Iterable[str]) -> Path:
    return next(group / name for name in names if (group / name).exists())


def _device(end: End) -> str:
    return end.port.replace("/", "-")

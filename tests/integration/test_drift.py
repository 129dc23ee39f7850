# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults injected by hand in every layer at the same time. One run of drift reports exactly these,
its commands repair them, each only on the affected hosts, and its history has both times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import faults
from tests.nodes import Nodes, Run

NODE_CHECK = "/usr/local/libexec/baremetal-mpi-roce/node-check"
pytestmark = pytest.mark.nodes

FINGERPRINT = """
find /etc /usr/local /var/lib/baremetal-mpi-roce -xdev -type f -print0 | sort -z |
    xargs -0 sha256sum | sed 's/\\([0-9a-f]*\\) *\\(.*\\)/file \\2 \\1/'
find /etc /usr/local /var/lib/baremetal-mpi-roce -xdev -printf 'mode %p %m %u:%g %l\\n'
find /srv /home -maxdepth 1 -printf 'mode %p %m %u:%g\\n'
grep -r . /proc/sys/net/core /proc/sys/net/ipv4 2>/dev/null |
    grep -v fib_multipath_hash_seed | sed 's/^/sysctl /; s/:/ /' | sort
ip -o link | sed 's/^[0-9]*: \\([^:@]*\\)[^ ]* .* mtu \\([0-9]*\\) .*/link \\1 mtu \\2/'
ip -o -4 address | awk '{print "address", $2, $4}' | sort
ip neigh show nud permanent | sed 's/^/neighbour /'
ip rule | sed 's/^/rule /'
ip -4 route show table all | sed 's/^/route /; s/ metric [0-9]*//'
"""
"""One line per object that a layer could change, with its state."""
OTHER = re.compile(
    r"(file|mode) /etc/(baremetal-mpi-roce/ssh/(id_ed25519|revoked)|\w*shadow|passwd-)"
    r"|(file|mode) /var/lib/baremetal-mpi-roce/node-check\b"
)
"""Lines that differ after a repair: a new key, the revocation of the old certificate, and the
day counts and backup copies of usermod. The timer of node-check writes its state at any time."""
SHOWN = [
    r"sysctl net\.core\.somaxconn \(running\)\n@@.*@@\n-4096\n\+16384",
    r"\n-\* hard memlock 64\n",
    r"\n-10\.9\.9\.9\s",
    r"\n-UCX_TLS=self\n",
    r"\n\+node01 slots=",
    r"\n-X11Forwarding yes\n",
]
"""Lines of a diff."""


def fingerprints(nodes: Nodes) -> dict[str, set[str]]:
    hosts = nodes.group("compute", "launcher")

    def take(host: str) -> set[str]:
        lines = nodes.on(host).check_output(FINGERPRINT).splitlines()
        return {line for line in lines if not OTHER.match(line)}

    with ThreadPoolExecutor() as pool:
        return dict(zip(hosts, pool.map(take, hosts)))


@pytest.fixture(scope="module")
def converged(nodes: Nodes) -> dict[str, set[str]]:
    return fingerprints(nodes)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of reports without the history of earlier tests."""
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def seen(nodes: Nodes, converged: dict[str, set[str]], reports: Path) -> Iterator[Run]:
    faults.inject(nodes)
    broken = fingerprints(nodes)
    if faults.RECORD:
        words = ("playbooks/verify.yml", "--skip-tags=verbs,smoke")
        faults.record("nodes", nodes.play(*words, expect=2))
    told = {name: nodes.on(name).run(f"{NODE_CHECK} --json") for name in nodes.group("compute")}
    run = faults.drift(nodes, reports, "--diff", expect=2)
    run.report["node-check"] = {name: json.loads(each.stdout) for name, each in told.items()}
    assert fingerprints(nodes) == broken, "drift changed a node"
    yield run
    if fingerprints(nodes) != converged:
        faults.undo(nodes)
        nodes.play("site.yml", "--skip-tags=smoke")


def test_one_run_finds_every_fault_and_nothing_else(seen: Run) -> None:
    assert faults.missed(seen) == []
    assert faults.surplus(seen) == []
    assert faults.outdated("nodes", seen, faults.NODE_FAULTS) == set(), "set RECORD_FAULTS"
    assert [part for part in SHOWN if not re.search(part, seen.output)] == []
    check = next(check for check in seen.failed("rails", "node04") if check["name"] == "rail_mtu")
    assert (check["subject"], check["wanted"], check["found"]) == ("rail1", 9000, 1500)
    assert check["part"].startswith("node04 rail1")
    for each in seen.report["findings"]:
        assert each["new"] and each["since"] == seen.report["started"]
        assert each["found"] != each["desired"] and bool(each["command"]) != bool(each["by_hand"])


def test_node_check_finds_what_a_node_can_see_by_the_same_check(seen: Run) -> None:
    found = {
        name: {finding["name"] for finding in told["findings"]}
        for name, told in seen.report["node-check"].items()
    }
    visible = [fault for fault in faults.NODE_FAULTS if fault.on_node and fault.host in found]
    assert len(visible) > 20
    assert [fault for fault in visible if fault.check not in found[fault.host]] == []


def test_the_printed_commands_repair_only_the_affected_hosts(
    nodes: Nodes, converged: dict[str, set[str]], seen: Run, reports: Path
) -> None:
    faults.undo(nodes)
    before = fingerprints(nodes)
    for words in faults.repairs(seen):
        nodes.play(*words)
        after = fingerprints(nodes)
        limited = words[words.index("--limit") + 1].split(",")
        assert [host for host in after if host not in limited and after[host] != before[host]] == []
        before = after
    left = {host: lines ^ converged[host] for host, lines in before.items()}
    assert {host: lines for host, lines in left.items() if lines} == {}
    # The key of one host was lost: the others reject its old certificate after the next run.
    nodes.play("site.yml", "--tags=ssh")
    clean = faults.drift(nodes, reports, expect=0)
    assert (clean.report["verdict"], clean.report["findings"]) == ("no drift", [])
    every = {faults.key(each) for each in seen.report["findings"]}
    assert faults.history(reports, "found") == dict.fromkeys(every, seen.report["started"])
    assert faults.history(reports, "repaired") == dict.fromkeys(every, clean.report["started"])


def test_a_firewall_is_found_before_the_smoke_test(nodes: Nodes) -> None:
    """On the node that drops incoming traffic, and only there."""
    drop = faults.DROP.format(interface="mgmt0")
    with nodes.by_hand(faults.FIRST, drop, "tc qdisc del dev mgmt0 clsact"):
        run = nodes.play("playbooks/verify.yml", "--tags=ssh", expect=2)
    found = {name: run.failed("ssh", name) for name in nodes.group("compute", "launcher")}
    (check,) = found.pop(faults.FIRST)
    assert (check["name"], check["subject"]) == ("tcp_reachable", "node02 -> node01 management")
    assert "ETIMEDOUT" in check["found"]
    assert not any(found.values())

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Somebody changes a node by hand: seen in --check --diff, repaired by one tag, no more than that.

Every layer drifts at once, on the first and last compute node and the launcher. Each is then
repaired with its own tag on its own node, while the others' drift, still there, shows that no run
reaches further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

FIRST, LAST, LAUNCHER = "first compute node", "last compute node", "launcher"

FINGERPRINT = """
find /etc /usr/local /var/lib/baremetal-mpi-roce -xdev -type f -print0 | sort -z |
    xargs -0 sha256sum | sed 's/\\([0-9a-f]*\\) *\\(.*\\)/file \\2 \\1/'
find /etc /usr/local /var/lib/baremetal-mpi-roce -xdev -printf 'mode %p %m %u:%g %l\\n'
grep -r . /proc/sys/net/core /proc/sys/net/ipv4 2>/dev/null |
    grep -v fib_multipath_hash_seed | sed 's/^/sysctl /; s/:/ /' | sort
ip -o link | sed 's/^[0-9]*: \\([^:@]*\\)[^ ]* .* mtu \\([0-9]*\\) .*/link \\1 mtu \\2/'
ip -o -4 address | awk '{print "address", $2, $4}' | sort
ip rule | sed 's/^/rule /'
ip -4 route show table all | sed 's/^/route /'
"""
"""One line per thing that a layer could change: what it is, and how it is."""


@dataclass(frozen=True)
class Drift:
    """`by_hand` is done as root on `where`; `shows` is then in the diff of the layer `tag`."""

    name: str
    tag: str
    where: str
    by_hand: str
    touches: str
    shows: str


DRIFTS = [
    Drift(
        "network parameter",
        "os",
        FIRST,
        "echo 4096 >/proc/sys/net/core/somaxconn",
        "sysctl /proc/sys/net/core/somaxconn",
        r"sysctl net\.core\.somaxconn \(running\)\n@@.*@@\n-4096\n\+16384",
    ),
    Drift(
        "limit of sessions",
        "os",
        LAST,
        "echo '* hard memlock 64' >>/etc/security/limits.d/90-baremetal-mpi-roce.conf",
        "file /etc/security/limits.d/90-baremetal-mpi-roce.conf",
        r"\n-\* hard memlock 64\n",
    ),
    Drift(
        "hosts table",
        "names",
        LAST,
        r"sed -i 's/^\([0-9.]*\)\([ \t].*node01\)/10.9.9.9\2/' /etc/hosts",
        "file /etc/hosts",
        r"\n-10\.9\.9\.9\s",
    ),
    Drift(
        "MTU of a rail",
        "rails",
        FIRST,
        "ip link set rail1 mtu 1500",
        "link rail1 ",
        r"rail1",
    ),
    Drift(
        "MPI environment",
        "mpi",
        LAST,
        "echo UCX_TLS=self >>/etc/baremetal-mpi-roce/mpi.env",
        "file /etc/baremetal-mpi-roce/mpi.env",
        r"\n-UCX_TLS=self\n",
    ),
    Drift(
        "hostfile",
        "hostfile",
        LAUNCHER,
        "sed -i '/^node01/d' /etc/baremetal-mpi-roce/hostfile",
        "file /etc/baremetal-mpi-roce/hostfile",
        r"\n\+node01 slots=",
    ),
    Drift(
        "settings of sshd",
        "ssh",
        FIRST,
        "echo 'X11Forwarding yes' >>/etc/ssh/sshd_config.d/10-baremetal-mpi-roce.conf",
        "file /etc/ssh/sshd_config.d/",
        r"\n-X11Forwarding yes\n",
    ),
]

PROVED_BY = {"links": {"rails"}, "ssh": {"ssh", "names"}}
"""Layers that prove what others set: a rail is an end of a link, and logins go by name."""


def host_of(nodes: Nodes, drift: Drift) -> str:
    compute = nodes.group("compute")
    return {FIRST: compute[0], LAST: compute[-1], LAUNCHER: nodes.group("launcher")[0]}[drift.where]


def fingerprints(nodes: Nodes) -> dict[str, set[str]]:
    """What is on each node, as a set of lines."""
    hosts = nodes.group("compute", "launcher")

    def take(host: str) -> set[str]:
        return set(nodes.on(host).check_output(FINGERPRINT).splitlines())

    with ThreadPoolExecutor() as pool:
        return dict(zip(hosts, pool.map(take, hosts)))


@pytest.fixture(scope="module")
def converged(nodes: Nodes) -> dict[str, set[str]]:
    """The fingerprints that every repair has to come back to."""
    return fingerprints(nodes)


@pytest.fixture(scope="module")
def seen(nodes: Nodes, converged: dict[str, set[str]]) -> Iterator[Run]:
    """All drift at once, and what `--check --diff` of the whole site says of it."""
    for drift in DRIFTS:
        nodes.on(host_of(nodes, drift)).check_output(drift.by_hand)
    drifted = fingerprints(nodes)
    run = nodes.play("site.yml", "--check", "--diff", "--skip-tags=smoke", expect=None)
    assert fingerprints(nodes) == drifted, "check mode changed a node"
    yield run
    if fingerprints(nodes) != converged:
        nodes.play("site.yml", "--skip-tags=smoke")


def name(drift: Drift) -> str:
    return drift.name.replace(" ", "-")


def pending(run: Run, layer: str) -> set[str]:
    return {
        host
        for host, found in run.report["layers"][layer]["hosts"].items()
        if any(check["status"] == "pending" for check in found["checks"])
    }


@pytest.mark.parametrize("drift", DRIFTS, ids=name)
def test_a_check_shows_what_differs_and_where(nodes: Nodes, seen: Run, drift: Drift) -> None:
    assert re.search(drift.shows, seen.output)
    assert host_of(nodes, drift) in pending(seen, drift.tag)


def test_a_check_accuses_only_those_that_drifted(nodes: Nodes, seen: Run) -> None:
    accused = seen.hosts_with("changed")
    assert accused == {host_of(nodes, drift) for drift in DRIFTS}
    for layer, found in seen.report["layers"].items():
        shown_by = PROVED_BY.get(layer, {layer})
        drifted = {host_of(nodes, drift) for drift in DRIFTS if drift.tag in shown_by}
        assert pending(seen, layer) == drifted, layer
        assert found["counts"]["failed"] == 0, layer


def test_a_proof_fails_for_it_with_what_was_wanted_and_found(nodes: Nodes, seen: Run) -> None:
    before = fingerprints(nodes)
    proof = nodes.play("playbooks/verify.yml", "--tags=rails", expect=2)
    assert fingerprints(nodes) == before
    host = nodes.group("compute")[0]
    assert proof.hosts_with("failed") == {host}
    assert ("rail_mtu", "rail1", 9000, 1500) in [
        (each["name"], each["subject"], each["wanted"], each["found"])
        for each in proof.failed("rails", host)
    ]


@pytest.mark.parametrize("drift", DRIFTS, ids=name)
def test_one_tag_on_one_node_repairs_it_and_nothing_else(
    nodes: Nodes, converged: dict[str, set[str]], seen: Run, drift: Drift
) -> None:
    host = host_of(nodes, drift)
    before = fingerprints(nodes)
    assert before[host] != converged[host], "it has not drifted"
    nodes.play("site.yml", f"--tags={drift.tag}", f"--limit={host}")
    after = fingerprints(nodes)
    for other in after:
        if other != host:
            assert after[other] == before[other], f"{other} was changed as well"
    touched = before[host] ^ after[host]
    assert touched, "nothing was repaired"
    assert [line for line in touched if not line.startswith(drift.touches)] == []
    assert {line for line in after[host] if line.startswith(drift.touches)} == {
        line for line in converged[host] if line.startswith(drift.touches)
    }


def test_in_the_end_the_cluster_is_as_it_was(
    nodes: Nodes, converged: dict[str, set[str]], seen: Run
) -> None:
    assert fingerprints(nodes) == converged

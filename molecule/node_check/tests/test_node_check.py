# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The health check runs by its timer, finds a fault made by hand, and is removed completely."""

from __future__ import annotations

import json

from tests import waiting

PROGRAM = "/usr/local/libexec/baremetal-mpi-roce/node-check"
STATE = "/var/lib/baremetal-mpi-roce/node-check/last.json"
TRACES = (
    "find / -xdev -not -path '/proc/*' \\( -name '*node-check*' -o -name '*node_check*'"
    " -o -lname '*node-check*' -o -name 'slurm-*log' -o -name 'slurm-health-check' \\)"
    " -not -path '/root/*' -not -path '/tmp/*'"
)


def verdict(host, *words):
    done = host.run(f"{PROGRAM} --json {' '.join(words)}")
    assert done.rc in (0, 1), done.stderr
    return json.loads(done.stdout)


def faults(host, *words):
    told = verdict(host, *words)
    return {(each["name"], each["subject"]) for each in told["findings"]}


def test_every_node_is_healthy(nodes):
    for name in nodes.group("compute"):
        told = verdict(nodes.on(name))
        assert (told["verdict"], told["host"], told["findings"]) == ("healthy", name, [])


def test_the_timer_runs_it(nodes):
    host = nodes.on(nodes.group("compute")[0])
    waiting.until(lambda: host.file(STATE).exists, "the timer", 120)
    assert host.run("systemctl is-active baremetal-mpi-roce-node-check.timer").rc == 0


def test_a_fault_has_the_check_of_its_layer(nodes):
    name = nodes.group("compute")[0]
    undo = "ip link set rail1 mtu 9000"
    with nodes.by_hand(name, "ip link set rail1 mtu 1500", undo) as host:
        assert faults(host) == faults(host, "--prolog") == {("rail_mtu", "rail1")}
        assert host.run(f"{PROGRAM} --nagios").rc == 2
        # Without consent, Slurm is told nothing.
        assert host.run(PROGRAM.replace("node-check", "slurm-prolog")).rc == 0


def test_removed_completely_and_installed_again(nodes, converge):
    name = nodes.group("compute")[0]
    gone = ["--limit", name, "--extra-vars", "{node_check_enabled: false}"]
    nodes.play(converge, *gone)
    assert nodes.on(name).check_output(TRACES) == ""
    assert nodes.play(converge, *gone).total("changed") == 0
    assert nodes.play(converge, "--limit", name).total("changed") == 1

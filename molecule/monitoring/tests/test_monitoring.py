# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exporters and Prometheus answer only with the password, and monitoring is removed completely."""

from __future__ import annotations

import json
import urllib.parse

from tests import waiting
from tests.monitored import LAUNCHER, get, secrets

OFF = ("--extra-vars", "{monitoring_enabled: false}")
TRACES = (
    "find /etc /usr /var -xdev \\( -path '*/baremetal-mpi-roce/monitoring*'"
    " -o -path '*prometheus*baremetal*' -o -path '*/written.d/monitoring.json'"
    " -o -lname '*prometheus*.service' \\) -not -path '/var/lib/systemd/*'"
    " -not -path '/etc/alternatives/*'"
)
PORTS = "ss -Hltn '( sport = :9100 or sport = :9090 )'"
EVERYONE = ("compute", "launcher", "storage")


def listening(host) -> list[str]:
    return sorted(line.split()[3] for line in host.check_output(PORTS).splitlines())


def test_every_host_answers_on_its_management_address_only(nodes):
    password = secrets(nodes)["password"]
    for name in nodes.group(*EVERYONE):
        address = nodes.of(name)["ansible_host"]
        ports = ["9090", "9100"] if name == LAUNCHER else ["9100"]
        assert listening(nodes.on(name)) == [f"{address}:{port}" for port in ports]
        found = [get(nodes, name, "9100/metrics", each)[0] for each in ("", "x", password)]
        assert found == [401, 401, 200]


def test_prometheus_reads_every_host(nodes):
    query = "up{job='baremetal_node'} == 1"
    rest = f"9090/api/v1/query?{urllib.parse.urlencode({'query': query})}"

    def read() -> set[str]:
        status, text = get(nodes, LAUNCHER, rest, secrets(nodes)["password"])
        assert status == 200
        return {each["metric"]["instance"] for each in json.loads(text)["data"]["result"]}

    waiting.until(lambda: read() == {*nodes.group(*EVERYONE)}, query, 60)


def test_removed_completely_and_installed_again(nodes, converge):
    hosts = nodes.group(*EVERYONE)
    kept = {name: nodes.on(name).check_output("ls /usr/bin/*node*exporter") for name in hosts}
    assert nodes.play(converge, *OFF, "--check").hosts_with("changed") == {*hosts}
    assert all(listening(nodes.on(name)) for name in hosts)
    gone = nodes.play(converge, *OFF, "--diff")
    assert gone.hosts_with("changed") == {*hosts} and "PRIVATE" not in gone.output
    for name in hosts:
        host = nodes.on(name)
        assert (host.check_output(TRACES), listening(host)) == ("", []), name
        assert host.check_output("ls /usr/bin/*node*exporter") == kept[name]
    again = nodes.play(converge, *OFF)
    assert again.total("changed") == 0 and again.hosts_with("skipped") == {*hosts}
    nodes.play(converge)
    assert all(listening(nodes.on(name)) for name in hosts)

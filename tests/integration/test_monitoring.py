# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's Prometheus, and node_exporter on nodes of both families: TLS and a password, every host
read, an injected fault raises its alert within two scrapes and its repair clears it, and an
exporter of the site stays as it is."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.monitoring import dashboards

from tests import waiting
from tests.bed.instances import describe
from tests.monitored import ETC, LAUNCHER, get, secrets
from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnmonitor
management: {subnet: 10.248.0.0/24, interface: mgmt0}
nodes:
  count: 2
  name: node{:02d}
  management_first: 10.248.0.11
  slots: 2
  overrides:
    node02:
      vars: {virtual_nodes_family: el}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10, mtu: 9000}
addresses: {pool: 10.150.0.0/16, prefix: 24}
leaves: {count: 2, management_first: 10.248.0.101, ports: 64}
launcher: {name: launcher01, management: 10.248.0.10}
vars:
  all: {virtual_nodes_family: ubuntu}
"""
SCRAPE_S = 5
SETTINGS = f"""\
monitoring_enabled: true
monitoring_server: true
monitoring_scrape_interval_s: {SCRAPE_S}
monitoring_files_directory: "{{{{ inventory_dir }}}}/../for_the_site"
monitoring_thresholds: {{fault_minutes: 0, exporter_minutes: 0}}
node_check_interval_s: 30
"""
SEEN = ("--tags=names,os,rails,node_check,monitoring",)
NODE_CHECK = "systemctl start baremetal-mpi-roce-node-check.service; true"
SITE = """
    systemctl disable --now prometheus-node-exporter
    rm -r /etc/systemd/system/prometheus-node-exporter.service.d
    mkdir -p /srv/textfiles
    printf 'ARGS="--collector.textfile.directory=/srv/textfiles"\\n' \\
        >/etc/default/prometheus-node-exporter
    systemctl daemon-reload
    systemctl enable --now prometheus-node-exporter
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = describe(tmp_path_factory.mktemp("monitoring") / "inventory", MODEL)
    (nodes.inventory / "group_vars/all").mkdir(exist_ok=True)
    (nodes.inventory / "group_vars/all.yml").rename(nodes.inventory / "group_vars/all/nodes.yml")
    (nodes.inventory / "group_vars/all/monitoring.yml").write_text(SETTINGS)
    with nodes.new():
        nodes.play("site.yml", *SEEN)
        yield nodes


def ask(nodes: Nodes, query: str) -> list[dict[str, Any]]:
    """The result of an instant query."""
    rest = f"9090/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    status, text = get(nodes, LAUNCHER, rest, secrets(nodes)["password"])
    assert status == 200
    return list(json.loads(text)["data"]["result"])


def firing(nodes: Nodes) -> set[tuple[str, str]]:
    found = ask(nodes, 'ALERTS{alertstate="firing"}')
    return {(each["metric"]["alertname"], each["metric"].get("instance", "")) for each in found}


def within(scrapes: float, condition: Callable[[], bool], what: str) -> float:
    """Wait, and return the seconds. A scrape and an evaluation take an interval each."""
    began = time.monotonic()
    waiting.until(condition, what, 2 * scrapes * SCRAPE_S + 5)
    return time.monotonic() - began


def test_a_second_run_changes_nothing_and_shows_no_secret(nodes: Nodes) -> None:
    again = nodes.play("site.yml", *SEEN, "--diff", "-vvv")
    assert (again.total("changed"), again.failed("monitoring")) == (0, [])
    shown = again.output + json.dumps(again.report)
    known = secrets(nodes)
    assert known["password"] not in shown and known["hash"] not in shown
    assert "PRIVATE KEY" not in shown
    quiet = nodes.play("playbooks/verify.yml", "--tags=monitoring")
    assert quiet.failed("monitoring") == []


def test_exporters_need_tls_and_the_password(nodes: Nodes) -> None:
    password = secrets(nodes)["password"]
    found = [get(nodes, "node01", "9100/metrics", each)[0] for each in ("", "x", password)]
    assert found == [401, 401, 200]
    address = nodes.of("node01")["ansible_host"]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=20)
    listening = nodes.on("node01").check_output("ss -Hltn sport = :9100")
    assert [line.split()[3] for line in listening.splitlines()] == [f"{address}:9100"]
    modes = nodes.on("node01").check_output(f"stat -c '%n %a %U:%G' {ETC}/*")
    assert f"{ETC}/tls.key 640 root:prometheus" in modes.splitlines()
    assert f"{ETC}/password" not in modes


def test_prometheus_reads_every_host_and_the_metrics_that_dashboards_need(nodes: Nodes) -> None:
    hosts = {"node01", "node02", LAUNCHER}
    up = 'up{job="baremetal_node"} == 1'
    waiting.until(lambda: {e["metric"]["instance"] for e in ask(nodes, up)} == hosts, up, 60)
    for name in nodes.group("compute"):
        nodes.on(name).run(NODE_CHECK)
    healthy = "baremetal_node_check_healthy"
    within(2, lambda: len(ask(nodes, healthy)) == 2, healthy)
    names = {each["metric"]["__name__"] for each in ask(nodes, 'count by (__name__) ({job!=""})')}
    assert dashboards.NODE_EXPORTER - names == set()
    info = ask(nodes, 'baremetal_rail_info{instance="node01"}')
    assert {(e["metric"]["rail"], e["metric"]["leaf"]) for e in info} == {
        ("rail0", "leaf01"), ("rail1", "leaf02")
    }  # fmt: skip
    assert "SUCCESS" in nodes.on(LAUNCHER).check_output(f"promtool check rules {ETC}/rules.yml")
    published = {path.name for path in (nodes.inventory.parent / "for_the_site").iterdir()}
    assert {"rules.yml", "nodes.json", "fabric.json", "alertmanager.yml"} <= published


def test_a_fault_raises_its_alert_within_two_scrapes_and_repair_clears_it(nodes: Nodes) -> None:
    fault = ("BaremetalNodeFault", "node01")
    waiting.until(lambda: fault not in firing(nodes), "a healthy node", 120)
    node = nodes.on("node01")
    node.check_output("ip link set rail1 mtu 1500")
    node.run(NODE_CHECK)
    raised = within(2, lambda: fault in firing(nodes), "the alert")
    finding = ask(nodes, 'baremetal_node_check_finding{severity="fault",instance="node01"}')
    assert {(e["metric"]["check"], e["metric"]["subject"]) for e in finding} == {
        ("rail_mtu", "rail1")
    }
    node.check_output("ip link set rail1 mtu 9000")
    node.run(NODE_CHECK)
    cleared = within(2, lambda: fault not in firing(nodes), "no alert")
    print(f"raised after {raised:.1f} s, cleared after {cleared:.1f} s")


def test_a_stopped_exporter_is_an_alert_and_a_failed_check(nodes: Nodes) -> None:
    down = ("BaremetalExporterDown", "node02")
    nodes.on("node02").check_output("systemctl stop prometheus-node-exporter")
    within(2, lambda: down in firing(nodes), "the alert")
    seen = nodes.play("playbooks/verify.yml", "--tags=monitoring", expect=2)
    found = [(each["name"], each["status"]) for each in seen.failed("monitoring", "node02")]
    assert found == [("monitoring_exporter", "failed")]
    nodes.play("site.yml", "--tags=monitoring", "--limit=node02")
    within(2, lambda: down not in firing(nodes), "no alert")


def test_an_exporter_of_the_site_stays_and_its_directory_is_compared(nodes: Nodes) -> None:
    nodes.on("node01").check_output(SITE)
    before = nodes.on("node01").check_output("systemctl show -p MainPID prometheus-node-exporter")
    seen = nodes.play("site.yml", "--tags=monitoring", "--limit=node01", expect=2)
    assert [each["name"] for each in seen.failed("monitoring", "node01")] == [
        "monitoring_textfiles"
    ]
    place = ("--extra-vars", "monitoring_textfile_directory=/srv/textfiles")
    done = nodes.play("site.yml", "--tags=node_check,monitoring", "--limit=node01", *place)
    assert done.failed("monitoring") == []
    nodes.on("node01").run(NODE_CHECK)
    assert nodes.on("node01").file("/srv/textfiles/node_check.prom").exists
    after = nodes.on("node01").check_output("systemctl show -p MainPID prometheus-node-exporter")
    assert before == after

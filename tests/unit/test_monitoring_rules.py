# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules, configuration and dashboards: promtool accepts them, each alert fires for its fault, stays
quiet without it and is resolved after it; docs/monitoring/ holds what the generator writes."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.source import (
    read,
    read_file,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.versions import compiled
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.monitoring import (
    dashboards,
    rules,
    targets,
)

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = runpy.run_path(str(ROOT / "docs/generate_monitoring.py"))
HOSTS: Mapping[str, Mapping[str, Any]] = GENERATOR["reference"]()
PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool (requirements/apt-test.txt)")
ETC = "/etc/baremetal-mpi-roce/monitoring"
RAIL = 'instance="node01",rail="rail0",device="mlx5_0"'
UP = 'up{job="baremetal_node",role="compute",instance="node01"}'
AGES = "baremetal_node_check_time_seconds"
END = "baremetal_certificate_end_time_seconds"
QUIET, FAULTY, REPAIRED = "40m", "60m", "140m"
BURST = "0x45 1+{}x15 {}x120"


def growing(name: str, each: int, more: str = "") -> tuple[str, str]:
    """A counter that grows from minute 46 to 61 only."""
    return f"{name}{{{RAIL}{more}}}", BURST.format(each, 1 + 15 * each)


def gauge(name: str, good: str, bad: str, labels: str = 'instance="node01"') -> tuple[str, str]:
    return f"{name}{{{labels}}}", f"{good}x45 {bad}x20 {good}x120"


PAUSES, DISCARDS = "baremetal_rail_pause_frames_total", "baremetal_rail_discards_total"
LOST, CNPS = "baremetal_rail_lost_packets_total", "baremetal_rdma_np_cnp_sent_total"
MARKS = "baremetal_rdma_np_ecn_marked_roce_packets_total"
TIMEOUTS = "baremetal_rdma_local_ack_timeout_err_total"
SPEED, DEVICE = "node_network_speed_bytes", 'instance="node01",device="rail0"'
FIRES: dict[str, list[tuple[str, str]]] = {
    "BaremetalPauseOnOtherPriority": [growing(PAUSES, 9, ',direction="rx",priority="0"')],
    "BaremetalMarksWithoutCnps": [growing(MARKS, 90), (f"{CNPS}{{{RAIL}}}", "7x200")],
    "BaremetalCnpsIgnored": [growing("baremetal_rdma_rp_cnp_ignored_total", 2)],
    "BaremetalLosslessDiscards": [growing(DISCARDS, 1, ',priority="3",reason="buffer"')],
    "BaremetalRdmaTimeouts": [growing(TIMEOUTS, 1)],
    "BaremetalRailBelowModelSpeed": [gauge(SPEED, "1e11", "5e10", DEVICE)],
    "BaremetalRailFlaps": [growing("baremetal_node_link_downs_total", 1)],
    "BaremetalNodeFault": [gauge("baremetal_node_check_healthy", "1", "0")],
    "BaremetalNodeCheckSilent": [
        (f'{AGES}{{instance="node01"}}', "0+60x35 2100x29 3900+60x120"),
    ],
    "BaremetalExporterDown": [gauge(UP.split("{")[0], "1", "0", UP[3:-1])],
    "BaremetalCertificateEnds": [gauge(END, "1e9", "9e5", 'instance="node01",certificate="tls"')],
    "BaremetalDriftNotLooked": [
        ("baremetal_drift_last_run_timestamp_seconds", "0x40 -90000x20 3600x120")
    ],
    "BaremetalDrift": [gauge("baremetal_drift_findings", "0", "2", 'layer="rails"')],
}
"""Series of each alert with a fault between QUIET and REPAIRED, in steps of a minute."""
NEVER: list[tuple[str, list[tuple[str, str]]]] = [
    ("BaremetalPauseOnOtherPriority", [growing(PAUSES, 9, ',direction="rx",priority="3"')]),
    ("BaremetalMarksWithoutCnps", [growing(MARKS, 90), growing(CNPS, 1)]),
    ("BaremetalMarksWithoutCnps", [growing(MARKS, 3)]),
    ("BaremetalLosslessDiscards", [growing(DISCARDS, 1, ',priority="0"')]),
    (
        "BaremetalLosslessDiscards",
        [growing(LOST, 1, ',counter="rx_discards_phy"'), growing(DISCARDS, 1, ',priority="0"')],
    ),
    ("BaremetalRailBelowModelSpeed", [gauge(SPEED, "1e11", "-125000", DEVICE)]),
    ("BaremetalRailBelowModelSpeed", [gauge(SPEED, "1e8", "1e7", 'device="mgmt0"')]),
    ("BaremetalNodeCheckSilent", [(UP, "1x200"), (f'{AGES}{{instance="node01"}}', "0+60x200")]),
    ("BaremetalNodeFault", [gauge("baremetal_node_check_healthy", "1", "1")]),
    # Short, few, or long ago: just inside of each threshold.
    ("BaremetalNodeFault", [("baremetal_node_check_healthy", "1x52 0x9 1x140")]),
    ("BaremetalExporterDown", [(UP, "1x57 0x4 1x140")]),
    ("BaremetalRailFlaps", [(f"baremetal_node_link_downs_total{{{RAIL}}}", "0x45 1+1x2 3x160")]),
    ("BaremetalCnpsIgnored", [(f"baremetal_rdma_rp_cnp_ignored_total{{{RAIL}}}", "5x200")]),
    ("BaremetalRdmaTimeouts", [(f"{TIMEOUTS}{{{RAIL}}}", "9x45 0x160")]),  # a new driver
    ("BaremetalCertificateEnds", [(f'{END}{{instance="node01"}}', "1230000x200")]),
    ("BaremetalDriftNotLooked", [("baremetal_drift_last_run_timestamp_seconds", "-77000x200")]),
    ("BaremetalDrift", [('baremetal_drift_findings{layer="rails"}', "0x200")]),
]
AHEAD = [(UP, "1x200"), (f'{AGES}{{instance="node01"}}', "0+60x40 9000+60x19 3600+60x120")]
ALSO = [
    ("BaremetalNodeCheckSilent", AHEAD),  # the clock of the host
    (
        "BaremetalLosslessDiscards",
        [growing(LOST, 1, ',counter="rx_discards_phy"')],
    ),
    (
        "BaremetalNodeCheckSilent",
        [(UP, "1x200"), (f'{AGES}{{instance="node01"}}', "0+60x40 _x20 3600+60x120")],
    ),
]
"""Second ways in which an alert fires."""


def of_cluster(series: str, cluster: str = "b300") -> str:
    name, _brace, labels = series.partition("{")
    return f'{name}{{cluster="{cluster}"' + (f",{labels}" if labels else "}")


def case(
    alert: str, series: list[tuple[str, str]], fires: bool, cluster: str = "b300"
) -> dict[str, Any]:
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = {QUIET: [], FAULTY: [{"labels": "{}", "value": 1}] if fires else [], REPAIRED: []}
    return {
        "interval": "1m",
        "input_series": [
            {"series": of_cluster(name, cluster), "values": values} for name, values in series
        ],
        "promql_expr_test": [
            {"expr": expr, "eval_time": time, "exp_samples": found}
            for time, found in samples.items()
        ],
    }


def promtool(*words: str, cwd: Path, text: str = "") -> None:
    done = subprocess.run(
        [PROMTOOL, *words], cwd=cwd, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def facts(**more: Any) -> rules.Facts:
    return rules.Facts.of(HOSTS, **more)


@needs_promtool
def test_every_alert_fires_for_its_fault_and_is_resolved(tmp_path: Path) -> None:
    known = {each.name for each in rules.alerts(facts())}
    assert FIRES.keys() == known == {alert for alert, _series in NEVER}
    (tmp_path / "rules.yml").write_text(rules.rules(facts()))
    cases = [case(alert, series, True) for alert, series in (*FIRES.items(), *ALSO)]
    cases += [case(alert, series, False) for alert, series in NEVER]
    # Another cluster of the same Prometheus, and targets without the label.
    cases += [case(alert, series, False, "b3000") for alert, series in FIRES.items()]
    cases += [case(alert, series, True, "") for alert, series in FIRES.items()]
    silent = "BaremetalNodeCheckSilent"
    both = case(silent, dict([*FIRES.items(), *ALSO])[silent], True)
    both["input_series"].append(
        {"series": of_cluster(f'{AGES}{{instance="node01"}}', "other"), "values": "0+60x200"}
    )
    cases.append(both)
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(content))
    promtool("check", "rules", "rules.yml", cwd=tmp_path)
    promtool("test", "rules", "tests.yml", cwd=tmp_path)


@needs_promtool
@pytest.mark.parametrize("downs", [3, 4])
def test_the_accepted_number_of_flaps_is_exact_between_two_scrapes(
    downs: int, tmp_path: Path
) -> None:
    name = "BaremetalRailFlaps"
    (expr,) = [each.expr for each in rules.alerts(facts()) if each.name == name]
    series = of_cluster(f"baremetal_node_link_downs_total{{{RAIL}}}")
    labels = of_cluster(f"{{{RAIL}}}")
    found = [{"labels": labels, "value": downs}] if downs > 3 else []
    content = {
        "interval": "1m",
        "input_series": [{"series": series, "values": f"0x45 1+1x{downs - 1} {downs}x60"}],
        "promql_expr_test": [{"expr": expr, "eval_time": "70m30s", "exp_samples": found}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"tests": [content]}))
    promtool("test", "rules", "tests.yml", cwd=tmp_path)


EXAMPLES = sorted((ROOT / "inventories").rglob("cluster.yml"))


@needs_promtool
def test_every_example_has_rules_and_targets(tmp_path: Path) -> None:
    """Planes, port channels, bonds, kinds with and without GPUs, several units."""
    kinds = 0
    for number, path in enumerate(EXAMPLES):
        hosts = compiled(read_file(str(path))).hosts
        found = rules.Facts.of(hosts)
        (tmp_path / f"{number}.yml").write_text(rules.rules(found))
        files = targets.files(hosts)
        told = json.loads(files[targets.NODES_FILE])
        assert {each["labels"]["instance"] for each in told} == {
            name for name, known in hosts.items() if known["cluster_role"] in targets.SERVERS
        }
        gpus = {each["labels"]["instance"] for each in json.loads(files[targets.DCGM_FILE])}
        assert gpus == {
            name
            for name, known in hosts.items()
            if known.get("cluster_gpus") and known["cluster_software"].get("dcgm")
        }
        # Each port of a rail has one speed, among the nodes that its rule chooses.
        chosen = [(kind, port) for kind, _gbps, ports in found.speeds for port in ports]
        assert len(chosen) == len(set(chosen)), path
        kinds += len({kind for kind, _port in chosen}) > 1
    assert kinds
    promtool("check", "rules", *(f"{n}.yml" for n in range(len(EXAMPLES))), cwd=tmp_path)


INFO = "baremetal_rail_info"
RECORDED = {
    "instance_rail:baremetal_pauses:ratio": 0.25,
    "instance_rail:baremetal_bytes:rate": 2,
    "instance_rail:baremetal_discards:rate": 3,
    "instance_rail:baremetal_marks:rate": 4,
    "instance_rail:baremetal_cnps:rate": 5,
    'leaf:baremetal_bytes:rate{leaf="leaf01",rail="rail0",direction="tx"}': 2,
    'leaf:baremetal_pauses:ratio{leaf="leaf01",rail="rail0",direction="tx"}': 0.25,
    "cluster:baremetal_faulty_nodes:count": 1,
}
"""Values of the recording rules for the series of the test, by the name with perhaps labels."""


@needs_promtool
def test_recording_rules_have_the_values_of_their_series(tmp_path: Path) -> None:
    rates = {"baremetal_rail_pause_seconds_total": 15, "baremetal_rail_bytes_total": 120}
    rates |= {DISCARDS: 180, MARKS: 240, CNPS: 300}
    series = {f'{name}{{{RAIL},direction="tx"}}': f"0+{n}x60" for name, n in rates.items()}
    series[f'{INFO}{{{RAIL},leaf="leaf01",leaf_port="Ethernet0"}}'] = "1x60"
    series |= {f'baremetal_node_check_healthy{{instance="node0{n}"}}': f"{n}x60" for n in (0, 1)}
    content = {
        "interval": "1m",
        "input_series": [
            {"series": of_cluster(name, cluster), "values": values}
            for name, values in series.items()
            for cluster in ("b300", "other")  # with the same names
        ],
        "promql_expr_test": [
            {"expr": f"sum({e})", "eval_time": "50m", "exp_samples": [{"labels": "{}", "value": v}]}
            for e, v in RECORDED.items()
        ],
    }
    assert {name.partition("{")[0] for name in RECORDED} == rules.RECORDINGS.keys()
    (tmp_path / "rules.yml").write_text(rules.rules(facts()))
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [content]}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", "tests.yml", cwd=tmp_path)


@needs_promtool
@pytest.mark.parametrize("tls", [True, False])
def test_prometheus_accepts_the_configuration(tls: bool, tmp_path: Path) -> None:
    how = targets.Scraping(str(tmp_path), tls=tls, alertmanagers=["10.0.0.1:9093"])
    for name, text in {**targets.files(HOSTS), "ca.pem": "", "password": "x"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "rules.yml").write_text(rules.rules(facts()))
    text = targets.prometheus("b300", how)
    (tmp_path / "prometheus.yml").write_text(text)
    promtool("check", "config", "--syntax-only", "prometheus.yml", cwd=tmp_path)
    node, dcgm = yaml.safe_load(text)["scrape_configs"]
    assert node.get("scheme") == ("https" if tls else None) and "scheme" not in dcgm


MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: lossy
management: {subnet: 10.241.0.0/24, interface: mgmt0}
nodes: {count: 2, name: "node{:02d}", management_first: 10.241.0.11, slots: 2}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 400, mtu: 9000}
addresses: {pool: 10.141.0.0/16, prefix: 24}
leaves: {count: 2, management_first: 10.241.0.101, ports: 64}
launcher: {name: launcher01, management: 10.241.0.10}
roce_qos:
"""


@pytest.mark.parametrize(
    ("contract", "absent"),
    [
        (
            "  roce: {lossless: false}",
            {"BaremetalLosslessDiscards", "BaremetalRdmaTimeouts"},
        ),
        (
            "  congestion_control: {notification_point: false, reaction_point: false}",
            {"BaremetalMarksWithoutCnps", "BaremetalCnpsIgnored"},
        ),
        ("  fabric_mode: spectrum_x", {"BaremetalMarksWithoutCnps", "BaremetalCnpsIgnored"}),
    ],
)
def test_what_the_contract_does_not_promise_has_no_alert(contract: str, absent: set[str]) -> None:
    hosts = compiled(read("cluster.yml", MODEL + contract + "\n")).hosts
    found = rules.Facts.of(hosts)
    assert FIRES.keys() - {each.name for each in rules.alerts(found)} == absent
    assert found.speeds == [("", 400.0, ["rail0", "rail1"])]
    others = next(each for each in rules.alerts(found) if "Other" in each.name).expr
    assert ("priority!~" in others) is ("lossless" not in contract)


def test_thresholds_and_windows_follow_the_options() -> None:
    found = facts(interval_s=60, thresholds={"fault_minutes": 0, "link_downs_per_hour": 7.5})
    by_name = {each.name: each for each in rules.alerts(found)}
    assert "for" not in by_name["BaremetalNodeFault"].as_rule()
    assert by_name["BaremetalRailFlaps"].expr.endswith("> 7.5")
    assert (found.window, facts().window) == ("600s", "900s")
    assert "> 180 " in by_name["BaremetalNodeCheckSilent"].expr
    for wrong in ({"pauses": 1}, {"fault_minutes": -1}, {"fault_minutes": "x"}):
        with pytest.raises(rules.RulesError, match="thresholds"):
            facts(thresholds=wrong)


def test_targets_are_management_addresses_with_their_place() -> None:
    found = targets.files(HOSTS)
    nodes = {each["labels"]["instance"]: each for each in json.loads(found[targets.NODES_FILE])}
    assert set(nodes) == {*(f"node{n:02d}" for n in range(1, 5)), "launcher01", "storage01"}
    labels = {"cluster": "b300", "instance": "node03", "role": "compute", "rack": "r02"}
    assert nodes["node03"] == {"targets": ["10.10.1.3:9100"], "labels": labels}
    dcgm = json.loads(found[targets.DCGM_FILE])
    assert [each["targets"] for each in dcgm] == [[f"10.10.1.{n}:9400"] for n in range(1, 5)]
    switches = json.loads(found[targets.SWITCHES_FILE])
    assert {each["labels"]["role"] for each in switches} == {"leaf", "spine"}


def metrics_of(expr: str) -> set[str]:
    """Names of metrics in an expression of PromQL."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", bare)
    bare = re.sub(r"\b(by|on|group_left|without)\s*\([^)]*\)", " ", bare)
    names = set(re.findall(r"[A-Za-z_:][\w:]*(?!\w*\s*\()", bare))
    return {n for n in names if not re.fullmatch(r"e\d+|or|and|unless", n)}


def test_rules_and_dashboards_read_only_known_metrics() -> None:
    exprs = [e["expr"] for g in yaml.safe_load(rules.rules(facts()))["groups"] for e in g["rules"]]
    panels = [panel for board in dashboards.ALL for panel in board.panels]
    exprs += [expr for panel in panels for expr, _legend in panel.queries]
    assert all(metrics_of(expr) for expr in exprs)
    found = {name for expr in exprs for name in metrics_of(expr)}
    assert found - dashboards.KNOWN == set()
    assert {*dashboards.DCGM, *dashboards.NODE_EXPORTER} - found <= {
        "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "node_load1",
        "node_network_up", "node_network_carrier_changes_total",
    }  # fmt: skip


def test_panels_fill_their_rows_and_have_one_number() -> None:
    for text in dashboards.files().values():
        board = json.loads(text)
        spaces = [panel["gridPos"] for panel in board["panels"]]
        cells = [(x, y) for p in spaces for x in range(p["x"], p["x"] + p["w"])
                 for y in range(p["y"], p["y"] + p["h"])]  # fmt: skip
        assert len(cells) == len(set(cells)) and max(x for x, _y in cells) < 24
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 8


def test_the_pages_and_examples_are_up_to_date() -> None:
    folder = ROOT / "docs/monitoring"
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert found == GENERATOR["files"](), "run docs/generate_monitoring.py"
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    assert page == GENERATOR["page"](page), "run docs/generate_monitoring.py"

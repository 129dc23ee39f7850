# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Three dashboards of Grafana: the fabric by leaf and rail, a node, and a job of Slurm.

They read only metrics of KNOWN, and choose cluster, node and job by variables, so that the same
files serve every cluster. A job's nodes are those whose GPUs dcgm-exporter gives the label
`hpc_job`, with its option --hpc-job-mapping-dir.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils.node_check import counters
from .rules import RECORDINGS

OURS = frozenset(
    [
        *(f"{counters.PREFIX}{name}" for name in counters.METRICS),
        *RECORDINGS,
        "baremetal_drift_findings",
        "baremetal_drift_last_run_timestamp_seconds",
    ]
)
NODE_EXPORTER = frozenset(
    [
        *("node_cpu_seconds_total", "node_load1", "node_boot_time_seconds"),
        *("node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes"),
        *("node_filesystem_avail_bytes", "node_filesystem_size_bytes"),
        *("node_network_speed_bytes", "node_network_up", "node_network_carrier_changes_total"),
        *("node_network_receive_bytes_total", "node_network_transmit_bytes_total"),
    ]
)
"""Collectors cpu, loadavg, stat, meminfo, filesystem, netclass and netdev of node_exporter 1.3 to
1.11, all on by default; tests/integration/test_monitoring.py finds them in 1.5."""
DCGM = frozenset(
    [
        *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"),
        *("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS"),
        *("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    ]
)
"""NVIDIA/dcgm-exporter b54068a9feef, etc/default-counters.csv: on by default."""
KNOWN = OURS | NODE_EXPORTER | DCGM | {"up", "ALERTS"}
"""Metrics that rules and dashboards may read; Prometheus has the last two."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 24, 8


@dataclass(frozen=True)
class Panel:
    title: str
    queries: Sequence[tuple[str, str]]
    """Expression, and legend."""
    unit: str = "short"
    kind: str = "timeseries"
    """Or `stat`, `table`."""
    width: int = 12
    about: str = ""
    faulty_from: float = 0
    """Value from which a `stat` is red; 0: none."""


def _faults(title: str, expression: str) -> Panel:
    """A count that must be 0."""
    return Panel(title, [(expression, "")], kind="stat", width=6, faulty_from=1)


@dataclass(frozen=True)
class Variable:
    name: str
    query: str


@dataclass(frozen=True)
class Dashboard:
    file: str
    title: str
    variables: Sequence[Variable]
    panels: Sequence[Panel]


_CLUSTER = Variable("cluster", "label_values(up, cluster)")
_NODE = Variable("instance", 'label_values(up{cluster="$cluster",role="compute"}, instance)')
_JOB = Variable("job_id", 'label_values(DCGM_FI_DEV_GPU_UTIL{cluster="$cluster"}, hpc_job)')
_C, _N = 'cluster="$cluster"', 'cluster="$cluster",instance="$instance"'
_J = 'cluster="$cluster",hpc_job="$job_id"'
_OF_JOB = f"and on (instance) DCGM_FI_DEV_GPU_UTIL{{{_J}}}"

FABRIC = Dashboard(
    "fabric.json",
    "Fabric by leaf and rail",
    (_CLUSTER,),
    (
        _faults("Nodes with a fault", f"cluster:baremetal_faulty_nodes:count{{{_C}}}"),
        _faults(
            "Alerts of the fabric",
            f'count(ALERTS{{{_C},part="fabric",alertstate="firing"}}) or vector(0)',
        ),
        _faults("Settings that differ from the model", f"sum(baremetal_drift_findings{{{_C}}})"),
        _faults("Hosts that do not answer", f"count(up{{{_C}}} == 0) or vector(0)"),
        Panel(
            "Sent by nodes, by leaf",
            [
                (
                    f'sum by (leaf) (leaf:baremetal_bytes:rate{{{_C},direction="tx"}})',
                    "{{leaf}}",
                )
            ],
            "Bps",
            about="All traffic with RDMA. Rails with equal load have equal leaves.",
        ),
        Panel(
            "Received by nodes, by leaf",
            [
                (
                    f'sum by (leaf) (leaf:baremetal_bytes:rate{{{_C},direction="rx"}})',
                    "{{leaf}}",
                )
            ],
            "Bps",
        ),
        Panel(
            "Paused by the leaf (nodes must not send)",
            [
                (
                    f'max by (leaf, rail) (leaf:baremetal_pauses:ratio{{{_C},direction="rx"}})',
                    "{{leaf}} {{rail}}",
                )
            ],
            "percentunit",
            about="Greatest share of time of a node. Pauses are the last resort: marks come first.",
        ),
        Panel(
            "Pauses sent by nodes (leaf must not send)",
            [
                (
                    f'max by (leaf, rail) (leaf:baremetal_pauses:ratio{{{_C},direction="tx"}})',
                    "{{leaf}} {{rail}}",
                )
            ],
            "percentunit",
            about="A node that does not take its data: PCIe, GPU.",
        ),
        Panel(
            "Packets with congestion marks, by rail",
            [(f"sum by (rail) (instance_rail:baremetal_marks:rate{{{_C}}})", "{{rail}}")],
            "pps",
        ),
        Panel(
            "Congestion notifications (CNPs), by rail",
            [(f"sum by (rail) (instance_rail:baremetal_cnps:rate{{{_C}}})", "{{rail}}")],
            "pps",
        ),
        Panel(
            "Frames lost on arrival, by rail and priority",
            [
                (
                    f"sum by (rail, priority) (instance_rail:baremetal_discards:rate{{{_C}}})",
                    "{{rail}} priority {{priority}}",
                )
            ],
            "pps",
        ),
        Panel(
            "Links lost in an hour",
            [
                (
                    f"increase(baremetal_node_link_downs_total{{{_C}}}[1h]) > 0",
                    "{{instance}} {{rail}}",
                )
            ],
        ),
        Panel(
            "Alerts",
            [(f'ALERTS{{{_C},alertstate="firing"}}', "")],
            kind="table",
            width=_WIDTH,
        ),
    ),
)
NODE = Dashboard(
    "node.json",
    "Node",
    (_CLUSTER, _NODE),
    (
        _faults("Fault (1), or none (0)", f"1 - baremetal_node_check_healthy{{{_N}}}"),
        Panel(
            "Last run of node-check",
            [(f"time() - baremetal_node_check_time_seconds{{{_N}}}", "")],
            "s",
            "stat",
            6,
        ),
        Panel(
            "Certificates end in",
            [
                (
                    f"baremetal_certificate_end_time_seconds{{{_N}}} - time()",
                    "{{certificate}}",
                )
            ],
            "s",
            "stat",
            6,
        ),
        Panel("Up for", [(f"time() - node_boot_time_seconds{{{_N}}}", "")], "s", "stat", 6),
        Panel("Findings", [(f"baremetal_node_check_finding{{{_N}}}", "")], "short", "table", 24),
        Panel(
            "Bytes by rail (RoCE and all other traffic)",
            [
                (
                    f"sum by (rail, direction) (instance_rail:baremetal_bytes:rate{{{_N}}})",
                    "{{rail}} {{direction}}",
                )
            ],
            "Bps",
        ),
        Panel(
            "Bytes of the kernel, by interface",
            [
                (f"rate(node_network_receive_bytes_total{{{_N}}}[5m])", "{{device}} rx"),
                (f"rate(node_network_transmit_bytes_total{{{_N}}}[5m])", "{{device}} tx"),
            ],
            "Bps",
        ),
        Panel(
            "Time paused, by rail",
            [
                (
                    f"instance_rail:baremetal_pauses:ratio{{{_N}}}",
                    "{{rail}} priority {{priority}} {{direction}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Sent again, by rail",
            [
                (f"increase(baremetal_rdma_{name}_total{{{_N}}}[15m])", f"{{{{rail}}}} {name}")
                for name in ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence")
            ],
        ),
        Panel(
            "Speed of interfaces", [(f"node_network_speed_bytes{{{_N}}} * 8", "{{device}}")], "bps"
        ),
        Panel(
            "Processors in use",
            [
                (
                    f'1 - avg by (instance) (rate(node_cpu_seconds_total{{{_N},mode="idle"}}[5m]))',
                    "in use",
                ),
            ],
            "percentunit",
        ),
        Panel(
            "Memory and file systems, free",
            [
                (
                    f"node_memory_MemAvailable_bytes{{{_N}}} / node_memory_MemTotal_bytes{{{_N}}}",
                    "memory",
                ),
                (
                    f"node_filesystem_avail_bytes{{{_N}}} / node_filesystem_size_bytes{{{_N}}}",
                    "{{mountpoint}}",
                ),
            ],
            "percentunit",
        ),
        Panel("GPUs in use", [(f"DCGM_FI_DEV_GPU_UTIL{{{_N}}}", "GPU {{gpu}}")], "percent"),
        Panel("Power of GPUs", [(f"DCGM_FI_DEV_POWER_USAGE{{{_N}}}", "GPU {{gpu}}")], "watt"),
        Panel("Temperature of GPUs", [(f"DCGM_FI_DEV_GPU_TEMP{{{_N}}}", "GPU {{gpu}}")], "celsius"),
    ),
)
JOB = Dashboard(
    "job.json",
    "Job",
    (_CLUSTER, _JOB),
    (
        Panel(
            "Nodes",
            [(f"count(count by (instance) (DCGM_FI_DEV_GPU_UTIL{{{_J}}}))", "")],
            "short",
            "stat",
            8,
        ),
        Panel("GPUs", [(f"count(DCGM_FI_DEV_GPU_UTIL{{{_J}}})", "")], "short", "stat", 8),
        Panel(
            "Nodes with a fault",
            [(f"count(baremetal_node_check_healthy{{{_C}}} == 0 {_OF_JOB}) or vector(0)", "")],
            kind="stat",
            width=8,
            faulty_from=1,
        ),
        Panel(
            "GPUs in use, by node",
            [(f"avg by (instance) (DCGM_FI_DEV_GPU_UTIL{{{_J}}})", "{{instance}}")],
            "percent",
            about="A node below the others waits, or holds them up.",
        ),
        Panel(
            "Clock of GPUs, lowest of each node",
            [(f"min by (instance) (DCGM_FI_DEV_SM_CLOCK{{{_J}}}) * 1e6", "{{instance}}")],
            "hertz",
        ),
        Panel(
            "Sent by rail",
            [
                (
                    f'sum by (rail) (instance_rail:baremetal_bytes:rate{{{_C},direction="tx"}} '
                    f"{_OF_JOB})",
                    "{{rail}}",
                )
            ],
            "Bps",
        ),
        Panel(
            "NVLink",
            [
                (
                    f"sum by (instance) (rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{{_J}}}[5m]))",
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            "Time paused, greatest of each node",
            [
                (
                    f"max by (instance) (instance_rail:baremetal_pauses:ratio{{{_C}}} {_OF_JOB})",
                    "{{instance}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Sent again after a timeout",
            [
                (
                    "sum by (instance, rail) (increase("
                    f"baremetal_rdma_local_ack_timeout_err_total{{{_C}}}[15m]) {_OF_JOB})",
                    "{{instance}} {{rail}}",
                )
            ],
        ),
        Panel("Power", [(f"sum(DCGM_FI_DEV_POWER_USAGE{{{_J}}})", "all GPUs")], "watt"),
        Panel(
            "Memory of GPUs",
            [(f"DCGM_FI_DEV_FB_USED{{{_J}}} * 1048576", "{{instance}} {{gpu}}")],
            "bytes",
        ),
    ),
)
ALL = (FABRIC, NODE, JOB)


def files() -> dict[str, str]:
    """The dashboards by file name."""
    return {each.file: json.dumps(as_grafana(each), indent=1) + "\n" for each in ALL}


def as_grafana(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"baremetal-{dashboard.file.removesuffix('.json')}",
        "title": dashboard.title,
        "tags": ["baremetal.mpi_roce"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_data_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, and from top to bottom."""
    x = y = 0
    height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _WIDTH:
            x, y, height = 0, y + height, 0
        own = 4 if panel.kind == "stat" else _HEIGHT
        place = {"x": x, "y": y, "w": panel.width, "h": own}
        x, height = x + panel.width, max(height, own)
        yield {**_panel(panel), "id": number, "gridPos": place}


def _panel(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    shape = {"format": "table", "instant": True} if table else {}
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": expr,
            "legendFormat": legend,
            **shape,
        }
        for index, (expr, legend) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "stat":
        steps: list[Mapping[str, Any]] = [{"color": "green", "value": None}]
        if panel.faulty_from:
            steps.append({"color": "red", "value": panel.faulty_from})
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    about = {"description": panel.about} if panel.about else {}
    return {
        "type": panel.kind,
        "title": panel.title,
        **about,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Recording and alert rules of Prometheus, generated from the QoS contract and the cluster model.

Each alert has a summary, a description, the next step, and the page that explains it. What the
contract does not promise has no alert: without lossless classes, discards are no fault. Rules read
only their own cluster, as a Prometheus of the site may have several, with equal names of hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ...module_utils.node_check.settings import THRESHOLDS as NODE_CHECK
from ..qos.contract import Contract, contract_of
from .targets import NODE_JOB, as_yaml

PAGE = "https://github.com/baremetal/mpi_roce/blob/main/docs/monitoring.md"
CRITICAL, WARNING = "critical", "warning"
FABRIC, NODE, CLUSTER = "fabric", "node", "cluster"
"""Values of the label `part`, by which Alertmanager routes."""
OURS = "ours"


@dataclass(frozen=True)
class Threshold:
    value: float
    unit: str
    source: str


LIMITS: Mapping[str, Threshold] = {
    "link_downs_per_hour": Threshold(
        NODE_CHECK["link_downs_per_hour"], "link downs", "NVIDIA/NVSentinel, NIC monitor"
    ),
    "unanswered_marks": Threshold(100, "marked packets", OURS),
    "certificate_days": Threshold(14, "days", "ssh_trust_warn_days"),
    "drift_hours": Threshold(24, "hours", OURS),
    "silent_intervals": Threshold(3, "intervals of node-check", "docs/node-check.md"),
    "fault_minutes": Threshold(10, "minutes", OURS),
    "exporter_minutes": Threshold(5, "minutes", OURS),
}
"""Thresholds of alerts, which the option `thresholds` changes."""


class RulesError(ValueError):
    """Thresholds that cannot be used; the text names them."""


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    summary: str
    """Also the meaning in docs/monitoring.md; without values."""
    description: str
    next_step: str
    part: str = FABRIC
    severity: str = WARNING
    minutes: float = 0
    """How long it must hold before it fires."""

    def as_rule(self) -> dict[str, Any]:
        held = {"for": f"{self.minutes * 60:g}s"} if self.minutes else {}
        return {
            "alert": self.name,
            "expr": self.expr,
            **held,
            "labels": {"severity": self.severity, "part": self.part},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "next_step": self.next_step,
                "runbook_url": f"{PAGE}#{self.name.lower()}",
            },
        }


@dataclass(frozen=True)
class Facts:
    """What the rules need of a cluster."""

    contract: Contract
    cluster: str = ""
    speeds: Sequence[tuple[str, float, Sequence[str]]] = ()
    """Kind of nodes (empty: all), speed in Gb/s, interfaces with it."""
    interval_s: int = 300
    """Time between two runs of node-check."""
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        hosts: Mapping[str, Mapping[str, Any]],
        interval_s: int = 300,
        thresholds: Optional[Mapping[str, float]] = None,
    ) -> Facts:
        """From the compiled variables of all hosts. Raises RulesError."""
        given = {name: value for name, value in (thresholds or {}).items() if value is not None}
        if unknown := given.keys() - LIMITS.keys():
            known = ", ".join(sorted(LIMITS))
            raise RulesError(f"thresholds: {', '.join(sorted(unknown))}: unknown; known: {known}")
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise RulesError(f"thresholds.{name}: {value!r} must be a number from 0")
        first = next(iter(hosts.values()))
        cluster = str(first["cluster_name"])
        return cls(contract_of(first["roce_qos"]), cluster, _speeds(hosts), interval_s, given)

    def limit(self, name: str) -> float:
        return self.thresholds.get(name, LIMITS[name].value)

    @property
    def window(self) -> str:
        """Time over which counters grow: node-check writes them once in an interval."""
        return f"{max(600, 3 * self.interval_s)}s"

    @property
    def lossless(self) -> str:
        """Regular expression of the priorities with PFC; empty if there are none."""
        return "|".join(
            str(p) for p in sorted({c.priority for c in self.contract.lossless_classes})
        )


def _speeds(hosts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float, Sequence[str]]]:
    by_kind: dict[str, dict[float, set[str]]] = {}
    for known in hosts.values():
        found = by_kind.setdefault(str(known.get("cluster_kind") or ""), {})
        for rail in known.get("cluster_rails") or ():
            for port in rail.get("members") or [rail]:
                speed = float(port.get("speed_gbps") or 0)
                found.setdefault(speed, set()).add(str(port["interface"]))
    return [
        (kind, speed, sorted(names))
        for kind, by_speed in sorted(by_kind.items())
        for speed, names in sorted(by_speed.items())
        if speed
    ]


def rules(facts: Facts) -> str:
    """The rule file of the cluster, as YAML."""
    groups = [
        {"name": "baremetal_recording", "rules": list(recordings(facts))},
        {"name": "baremetal_alerts", "rules": [alert.as_rule() for alert in alerts(facts)]},
    ]
    return as_yaml({"groups": groups})


RECORDINGS: Mapping[str, str] = {
    "instance_rail:baremetal_pauses:ratio": "rate(baremetal_rail_pause_seconds_total[{w}])",
    "instance_rail:baremetal_bytes:rate": "rate(baremetal_rail_bytes_total[{w}])",
    "instance_rail:baremetal_discards:rate": "rate(baremetal_rail_discards_total[{w}])",
    "instance_rail:baremetal_marks:rate": (
        "rate(baremetal_rdma_np_ecn_marked_roce_packets_total[{w}])"
    ),
    "instance_rail:baremetal_cnps:rate": "rate(baremetal_rdma_np_cnp_sent_total[{w}])",
    "leaf:baremetal_bytes:rate": (
        "sum by (cluster, leaf, rail, direction) (rate(baremetal_rail_bytes_total[{w}])"
        " * on (instance, rail) group_left (leaf) baremetal_rail_info)"
    ),
    "leaf:baremetal_pauses:ratio": (
        "max by (cluster, leaf, rail, direction) (rate(baremetal_rail_pause_seconds_total[{w}])"
        " * on (instance, rail) group_left (leaf) baremetal_rail_info)"
    ),
    "cluster:baremetal_faulty_nodes:count": (
        "count by (cluster) (baremetal_node_check_healthy == 0) or"
        " 0 * count by (cluster) (baremetal_node_check_healthy)"
    ),
}


def recordings(facts: Facts) -> Iterator[dict[str, str]]:
    for name, expr in RECORDINGS.items():
        yield {"record": name, "expr": within(expr.format(w=facts.window), facts.cluster)}


def alerts(facts: Facts) -> Iterator[Alert]:
    for parts in (_of_contract, _of_model, _of_nodes, _of_cluster):
        for each in parts(facts):
            yield replace(each, expr=within(each.expr, facts.cluster))


_SELECTOR = re.compile(r'"[^"]*"|\b(?:baremetal_\w+|node_network_\w+|up)\b(\{)?')


def within(expr: str, cluster: str) -> str:
    """The expression for metrics of one cluster, or of targets without the label, such as a
    controller that the site reads."""
    label = f'cluster=~"{_literal(cluster)}|"'

    def chosen(match: re.Match[str]) -> str:
        if match[0].startswith('"'):
            return match[0]
        return f"{match[0]}{label}," if match[1] else f"{match[0]}{{{label}}}"

    return _SELECTOR.sub(chosen, expr)


def _of_contract(facts: Facts) -> Iterator[Alert]:
    contract, w, lossless = facts.contract, facts.window, facts.lossless
    control = contract.congestion_control
    others = f'{{priority!~"{lossless}"}}' if lossless else ""
    where = "{{ $labels.rail }} of {{ $labels.instance }}"
    yield Alert(
        "BaremetalPauseOnOtherPriority",
        f"increase(baremetal_rail_pause_frames_total{others}[{w}]) > 0",
        "Pause frames of a priority that has no PFC in the contract",
        f"{where}: {{{{ $value }}}} pause frames ({{{{ $labels.direction }}}}) of priority "
        f"{{{{ $labels.priority }}}}; the contract has PFC on: {lossless or 'none'}.",
        "Run playbooks/verify.yml --tags rails,fabric,links: one end pauses another priority, or "
        "the whole link.",
    )
    if contract.dcqcn and control.notification_point:
        marks, cnps = "np_ecn_marked_roce_packets", "np_cnp_sent"
        yield Alert(
            "BaremetalMarksWithoutCnps",
            f"increase(baremetal_rdma_{marks}_total[{w}]) > {facts.limit('unanswered_marks'):g} "
            f"unless on (instance, rail, device) increase(baremetal_rdma_{cnps}_total[{w}]) > 0",
            "Packets arrive with congestion marks, and the NIC sends no notification (CNP)",
            f"{where}: {{{{ $value }}}} marked packets and no CNP: senders do not slow down.",
            "Run playbooks/site.yml --tags rails --limit {{ $labels.instance }}: the notification "
            "point of the NIC is off.",
        )
    if contract.dcqcn and control.reaction_point:
        yield Alert(
            "BaremetalCnpsIgnored",
            f"increase(baremetal_rdma_rp_cnp_ignored_total[{w}]) > 0",
            "The NIC ignores congestion notifications (CNPs)",
            f"{where}: {{{{ $value }}}} CNPs ignored: this sender does not slow down.",
            "Run playbooks/site.yml --tags rails --limit {{ $labels.instance }}: the reaction "
            "point of the NIC is off.",
        )
    if lossless:
        yield Alert(
            "BaremetalLosslessDiscards",
            f'increase(baremetal_rail_discards_total{{priority=~"{lossless}"}}[{w}]) > 0 or '
            f'(increase(baremetal_rail_lost_packets_total{{counter="rx_discards_phy"}}[{w}]) > 0 '
            "unless on (instance, rail) baremetal_rail_discards_total)",
            "Frames of a lossless priority were lost on arrival",
            f"{where}: {{{{ $value }}}} frames lost; lossless priorities: {lossless}.",
            "Run playbooks/verify.yml --tags rails,fabric,links: PFC is off at one end, or the "
            "receive buffer is too small for the cable.",
            severity=CRITICAL,
        )
        yield Alert(
            "BaremetalRdmaTimeouts",
            f"increase(baremetal_rdma_local_ack_timeout_err_total[{w}]) > 0",
            "RDMA messages were sent again after a timeout, on a lossless fabric",
            f"{where}: {{{{ $value }}}} timeouts: packets are lost on a path from this rail.",
            "Run playbooks/verify.yml --tags links,verbs, and look for discards on the leaf "
            "and the spines.",
        )


def _of_model(facts: Facts) -> Iterator[Alert]:
    for kind, gbps, names in facts.speeds:
        chosen = [
            f'device=~"{"|".join(map(_literal, names))}"',
            *([f'kind="{kind}"'] if kind else []),
        ]
        yield Alert(
            "BaremetalRailBelowModelSpeed",
            f"(node_network_speed_bytes{{{','.join(chosen)}}} > 0) * 8 / 1e9 < {gbps:g}",
            "A rail is slower than in the model",
            "{{ $labels.device }} of {{ $labels.instance }}: {{ $value }} Gb/s; the model has "
            f"{gbps:g} Gb/s.",
            "Look at cable and transceivers, and at the speed of the leaf's port "
            "(playbooks/verify.yml --tags rails,links).",
            minutes=2,
        )
    downs = facts.limit("link_downs_per_hour")
    yield Alert(
        "BaremetalRailFlaps",
        # Between two samples, Prometheus extrapolates 3 to 3.05.
        f"round(increase(baremetal_node_link_downs_total[1h])) > {downs:g}",
        "A rail loses its link again and again",
        "{{ $labels.rail }} of {{ $labels.instance }} lost its link {{ $value }} times in an hour; "
        f"{downs:g} are accepted.",
        "Clean or replace cable and transceivers, here and at the leaf.",
        severity=CRITICAL,
    )


def _literal(name: str) -> str:
    """As a regular expression in a string of PromQL."""
    return re.escape(name).replace("\\", "\\\\")


def _of_nodes(facts: Facts) -> Iterator[Alert]:
    silent_s = facts.limit("silent_intervals") * facts.interval_s
    yield Alert(
        "BaremetalNodeFault",
        "baremetal_node_check_healthy == 0",
        "node-check finds a fault of a node",
        "{{ $labels.instance }} has a fault; baremetal_node_check_finding has its checks.",
        "Run node-check on {{ $labels.instance }}: it names the next step of each fault.",
        part=NODE,
        severity=CRITICAL,
        minutes=facts.limit("fault_minutes"),
    )
    yield Alert(
        "BaremetalNodeCheckSilent",
        f"abs(time() - baremetal_node_check_time_seconds) > {silent_s:g} or on (instance) "
        f'(up{{job="{NODE_JOB}",role="compute"}} == 1 '
        "unless on (instance) baremetal_node_check_time_seconds)",
        "node-check does not run on a node",
        f"{{{{ $labels.instance }}}}: no run of node-check for {silent_s:g} s, or none at all, or "
        "its clock differs.",
        "Run systemctl status baremetal-mpi-roce-node-check.timer on {{ $labels.instance }}, then "
        "playbooks/site.yml --tags node_check,monitoring.",
        part=NODE,
        minutes=facts.limit("exporter_minutes"),
    )
    yield Alert(
        "BaremetalExporterDown",
        f'up{{job="{NODE_JOB}"}} == 0',
        "A host does not answer Prometheus",
        "node_exporter of {{ $labels.instance }} does not answer.",
        "Log in to {{ $labels.instance }}; if it is up, run playbooks/site.yml --tags monitoring "
        "--limit {{ $labels.instance }}.",
        part=NODE,
        severity=CRITICAL,
        minutes=facts.limit("exporter_minutes"),
    )
    days = facts.limit("certificate_days")
    yield Alert(
        "BaremetalCertificateEnds",
        f"(baremetal_certificate_end_time_seconds - time()) / 86400 < {days:g}",
        "A certificate is near its end",
        "The certificate {{ $labels.certificate }} of {{ $labels.instance }} ends in {{ $value }} "
        "days.",
        "Run playbooks/site.yml --tags ssh,monitoring --limit {{ $labels.instance }}, which renews "
        "certificates.",
        part=NODE,
    )


def _of_cluster(facts: Facts) -> Iterator[Alert]:
    hours = facts.limit("drift_hours")
    yield Alert(
        "BaremetalDriftNotLooked",
        f"time() - baremetal_drift_last_run_timestamp_seconds > {hours * 3600:g}",
        "Drift was not looked for",
        f"playbooks/drift.yml has not run for {hours:g} hours.",
        "Run playbooks/drift.yml, and look at the timer or cron job that runs it.",
        part=CLUSTER,
    )
    yield Alert(
        "BaremetalDrift",
        "sum by (cluster, layer) (baremetal_drift_findings) > 0",
        "Hosts differ from the model",
        "{{ $value }} settings of the layer {{ $labels.layer }} differ from the model.",
        "Run playbooks/drift.yml: its report has the command that repairs each.",
        part=CLUSTER,
    )

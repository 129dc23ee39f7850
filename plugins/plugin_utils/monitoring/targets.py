# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What Prometheus reads of a cluster: targets (file_sd) by management address, its configuration,
and an example of routes for Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ...module_utils.core.files import HEADER
from ...module_utils.monitoring import SERVER_FILES, USER

NODE_PORT, DCGM_PORT = 9100, 9400
"""Defaults of node_exporter and of dcgm-exporter."""
NODE_JOB, DCGM_JOB = "baremetal_node", "baremetal_dcgm"
SERVERS, SWITCHES = ("compute", "launcher", "storage"), ("leaf", "spine")
PROMETHEUS_FILE, RULES_FILE, NODES_FILE, DCGM_FILE, SWITCHES_FILE = SERVER_FILES
ALERTMANAGER_FILE = "alertmanager.yml"
_LABELS = {
    "role": "cluster_role",
    "rack": "cluster_rack",
    "set": "cluster_set",
    "unit": "cluster_unit",
    "plane": "cluster_plane",
    "kind": "cluster_kind",
    "system": "cluster_system",
}


@dataclass(frozen=True)
class Scraping:
    """How exporters are read. Without `tls`, they have no password either."""

    directory: str
    """Of the files that the configuration names."""
    interval_s: int = 15
    tls: bool = True
    user: str = USER
    alertmanagers: Sequence[str] = ()
    """HOST:PORT of each."""


def targets(hosts: Mapping[str, Mapping[str, Any]], roles: Collection[str], port: int = 0) -> str:
    """The JSON of file_sd for hosts of these roles, in the order of the model."""
    entries = []
    for name, known in hosts.items():
        address = known.get("ansible_host")
        if str(known.get("cluster_role")) in roles and address:
            where = f"[{address}]" if ":" in str(address) else str(address)
            labels = {"cluster": str(known["cluster_name"]), "instance": name}
            for label, variable in _LABELS.items():
                if known.get(variable) not in (None, ""):
                    labels[label] = str(known[variable])
            entries.append({"targets": [f"{where}:{port}" if port else where], "labels": labels})
    return json.dumps(entries, indent=1) + "\n"


def with_dcgm(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Hosts with GPUs whose software set has DCGM."""
    return {
        name: known
        for name, known in hosts.items()
        if known.get("cluster_gpus") and (known.get("cluster_software") or {}).get("dcgm")
    }


def files(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of targets by name. Exporters of switches have no common port."""
    return {
        NODES_FILE: targets(hosts, SERVERS, NODE_PORT),
        DCGM_FILE: targets(with_dcgm(hosts), SERVERS, DCGM_PORT),
        SWITCHES_FILE: targets(hosts, SWITCHES),
    }


def prometheus(cluster: str, how: Scraping) -> str:
    """The configuration of Prometheus for the cluster."""
    secured: dict[str, Any] = {}
    if how.tls:
        secured = {
            "scheme": "https",
            "tls_config": {"ca_file": f"{how.directory}/ca.pem"},
            "basic_auth": {"username": how.user, "password_file": f"{how.directory}/password"},
        }
    jobs = [
        {"job_name": NODE_JOB, **secured, **_files_of(how, NODES_FILE)},
        {"job_name": DCGM_JOB, **_files_of(how, DCGM_FILE)},
    ]
    content: dict[str, Any] = {
        "global": {
            "scrape_interval": f"{how.interval_s}s",
            "evaluation_interval": f"{how.interval_s}s",
            "external_labels": {"cluster": cluster},
        },
        "rule_files": [f"{how.directory}/{RULES_FILE}"],
        "scrape_configs": jobs,
    }
    if how.alertmanagers:
        to = {"static_configs": [{"targets": list(how.alertmanagers)}]}
        content["alerting"] = {"alertmanagers": [to]}
    return as_yaml(content)


def _files_of(how: Scraping, name: str) -> dict[str, Any]:
    return {"file_sd_configs": [{"files": [f"{how.directory}/{name}"]}]}


def alertmanager() -> str:
    """An example of routes. A fault of a node hides its warnings, and a node that does not answer
    hides what it last said."""
    by_cluster = ["cluster", "alertname"]
    return as_yaml(
        {
            "route": {
                "receiver": "operators",
                "group_by": by_cluster,
                "group_wait": "30s",
                "group_interval": "5m",
                "repeat_interval": "12h",
                "routes": [
                    {"receiver": "on_call", "matchers": ['severity="critical"']},
                    {
                        "receiver": "network",
                        "matchers": ['part="fabric"'],
                        "group_by": [*by_cluster, "rail"],
                    },
                ],
            },
            "inhibit_rules": [
                {
                    "source_matchers": ['alertname="BaremetalExporterDown"'],
                    "target_matchers": ['alertname=~"Baremetal.+"', 'severity="warning"'],
                    "equal": ["cluster", "instance"],
                }
            ],
            "receivers": [{"name": name} for name in ("operators", "on_call", "network")],
        }
    )


def as_yaml(content: Any) -> str:
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=72)
    return f"---\n# {HEADER}\n{text}"


class _Dumper(yaml.SafeDumper):
    """Indents lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

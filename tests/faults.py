# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults injected on virtual nodes, and the check of playbooks/verify.yml that finds each.

docs/generate_faults.py writes docs/faults.md from tests/faults.yml.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.nodes import TOP, Nodes, Run

FIRST = "node01"
ELSEWHERE = {
    *("ssh_login", "rail_peer", "tcp_reachable", "rail_path", "ucx_device"),
    *("names_resolve", "localhost_resolves"),
}
"""Checks that may fail as a consequence, on this or another host."""


ON_NODE = {
    *("file", "names_in_table", "host_name", "sysctl", "sysctl_at_boot"),
    *("rail_mtu", "rail_address", "rail_link", "rail_rule", "rail_route", "rail_arp"),
    *("rail_neighbour", "rail_config"),
}
"""Checks of node-check that faults of containers have; their mounts are not made."""
NOT_ON_NODE = {("names", "file"), ("hostfile", "file")}
"""/etc/hostname has no header, and launchers have no node-check."""


@dataclass(frozen=True)
class Fault:
    """An entry of tests/faults.yml."""

    name: str
    layer: str
    check: str
    host: str
    by_hand: str
    undo: str = ""
    subject: str = ""

    @property
    def on_node(self) -> bool:
        """Whether node-check finds it, by the same check (docs/node-check.md)."""
        return self.check in ON_NODE and (self.layer, self.check) not in NOT_ON_NODE


DROP = (
    "tc qdisc add dev {interface} clsact && tc filter add dev {interface} ingress protocol ip bpf"
    " da bytecode '10,48 0 0 23,21 0 7 6,48 0 0 47,84 0 0 18,21 0 4 2,40 0 0 36,21 2 0 22,53 0 1"
    " 32768,6 0 0 2,6 0 0 4294967295'"
)
"""Drop the first TCP packet to ports from 32768, like a firewall, if IP has no options. Tested
separately, because logins must work for the other faults."""
CLIENT = {"ssh_client", "ssh_login"}
"""Checks of the client of a login; the other checks of the layer concern the server."""

FAULTS = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
NODE_FAULTS = [
    Fault(name, layer, **fault)
    for layer, faults in FAULTS.items()
    for name, fault in faults.items()
]


def inject(nodes: Nodes, faults: Iterable[Fault] = NODE_FAULTS) -> None:
    for fault in faults:
        nodes.on(fault.host).check_output(fault.by_hand)


def failed(run: Run, layer: str, host: str) -> list[dict[str, Any]]:
    """Failed checks; a report of drift lists no host without them."""
    return run.failed(layer, host) if host in run.report["layers"][layer]["hosts"] else []


def missed(run: Run, faults: Iterable[Fault] = NODE_FAULTS) -> list[str]:
    """Faults without the expected failed check on their host."""
    return [
        f"{fault.host}, {fault.layer}: {fault.name}"
        for fault in faults
        if not any(
            check["name"] == fault.check and fault.subject in ("", check["subject"])
            for check in failed(run, fault.layer, fault.host)
        )
    ]


def surplus(run: Run, faults: Sequence[Fault] = NODE_FAULTS) -> list[Mapping[str, Any]]:
    """Failed checks without a fault, and failures attributed to the wrong host.

    The layer links is excluded: its checks repeat those of both ends.
    """
    made = {(fault.layer, fault.host) for fault in faults}
    return [
        {**check, "host": host}
        for layer, found in run.report["layers"].items()
        for host in found["hosts"]
        if layer != "links"
        for check in run.failed(layer, host)
        if _wrongly_blamed(check, host, faults)
        or ((layer, host) not in made and check["name"] not in ELSEWHERE)
    ]


def _wrongly_blamed(check: Mapping[str, Any], host: str, faults: Iterable[Fault]) -> bool:
    """Whether a failed login, or packets that a rail lost, are attributed to a host without a
    fault.

    A fault of the server is attributed to it; faults of names, rails or the client are not.
    """
    at = check.get("at", "")
    if check["name"] == "rail_peer":
        rails = {f.host for f in faults if f.layer == "rails" or f.check == "rail_peer"}
        return bool(at) and at not in rails
    if check["name"] != "ssh_login":
        return False
    if at:
        culprits = {f.host for f in faults if f.layer == "ssh" and f.check not in CLIENT}
        return at not in culprits
    ways = {f.host for f in faults if f.layer in ("names", "rails") or f.check in CLIENT}
    return host not in ways


def by_layer(findings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Findings of drift in the form of the layers in a report of verify."""
    layers: dict[str, Any] = {}
    for each in findings:
        at = each["part"].split()[0]
        check = {**each, "name": each["check"], "wanted": each["desired"], "status": "failed"}
        check |= {"at": at} if at != each["host"] else {}
        hosts = layers.setdefault(each["layer"], {"hosts": {}})["hosts"]
        hosts.setdefault(each["host"], {"checks": []})["checks"].append(check)
    return layers


def repairs(run: Run) -> list[list[str]]:
    """Arguments of the commands of drift, without the inventory; one per layer, for its hosts."""
    limits: dict[tuple[str, str], set[str]] = {}
    for each in run.report["findings"]:
        if each["command"]:
            command = re.fullmatch(
                r"ansible-playbook (\S+) -i \S+ --tags (\S+) --limit (\S+)", each["command"]
            )
            # The rail between two hosts, of which the layer ssh has no answer.
            of_rail = each["check"] == "rail_peer" and command and command[2] == "rails"
            assert command and (of_rail or command[2] == each["layer"])
            limits.setdefault((command[1], command[2]), set()).add(command[3])
    return [
        [playbook, "--tags", tag, "--limit", ",".join(sorted(hosts))]
        for (playbook, tag), hosts in limits.items()
    ]


RECORDED = Path(__file__).parent / "unit/data/faults"
RECORD = os.environ.get("RECORD_FAULTS", "")
"""With this variable, tests on nodes record what playbooks/verify.yml finds, for unit tests."""


def record(name: str, run: Run) -> None:
    """Save the failed checks of a run of playbooks/verify.yml by layer and host."""
    found = {
        layer: {host: run.failed(layer, host) for host in each["hosts"] if run.failed(layer, host)}
        for layer, each in run.report["layers"].items()
    }
    text = json.dumps({layer: hosts for layer, hosts in found.items() if hosts}, indent=1)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def recorded(name: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return dict(json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8")))


def outdated(name: str, run: Run, made: Iterable[Fault]) -> set[tuple[str, ...]]:
    """Findings of faults that a run of drift has and the recording lacks, or the reverse."""
    checks = {(f.layer, f.host, f.check) for f in made if f.check not in ELSEWHERE}
    before = {
        (layer, host, check["name"], check["subject"])
        for layer, hosts in recorded(name).items()
        for host, found in hosts.items()
        for check in found
    }
    now = {(f["layer"], f["host"], f["check"], f["subject"]) for f in run.report["findings"]}
    return {each for each in before ^ now if each[:3] in checks}


def drift(nodes: Nodes, reports: Path, *words: str, expect: int) -> Run:
    """Run playbooks/drift.yml; its findings are also in the form of `layers`."""
    environment = {"BAREMETAL_MPI_ROCE_REPORTS": str(reports)}
    run = nodes.play("playbooks/drift.yml", *words, expect=expect, environment=environment)
    schema = json.loads((TOP / "docs/drift.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(run.report, schema)
    run.report["layers"] = by_layer(run.report["findings"])
    return run


def key(finding: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(finding[name] for name in ("host", "layer", "check", "subject"))


def history(reports: Path, event: str) -> dict[tuple[str, ...], str]:
    """Times of the appearances (`found`) or repairs (`repaired`) of findings."""
    (path,) = reports.rglob("history/drift.jsonl")
    events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {key(each): each["at"] for each in events if each["event"] == event}


def undo(nodes: Nodes, faults: Iterable[Fault] = NODE_FAULTS) -> None:
    """Run the commands that must precede the repair."""
    for fault in faults:
        if fault.undo:
            nodes.on(fault.host).run(fault.undo)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Summary of a run: the checks of all layers and hosts, as a table and as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Optional, Union

from ...module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    STATUSES,
    Check,
    as_dicts,
)
from ...module_utils.core.files import make_directories
from ...module_utils.core.reboots import DIRECTORY as RECORDS
from ...module_utils.core.text import columns, one_line, shortened, some
from .. import answers
from ..answers import json_text
from ..fabric.cabling import SwitchEntry, cables_of
from ..layers import MEASURING, TAGS
from ..model.cluster import ROLES
from ..reboot import table

COLLECTION = "baremetal.mpi_roce."
SHOWN = (OK, NOT_APPLICABLE, FAILED, PENDING, REBOOT)
"""Statuses in the order of the table's columns."""
BOOKKEEPING = frozenset(
    [
        *("changed", "checks", "diff", "failed", "invocation", "layer", "msg"),
        *("deprecations", "exception", "remote_executions", "simulated", "warnings"),
    ]
)
"""Keys of a result that are not measurements."""
SLURM, OUT = "slurm", ("nodes", "since", "by", "reason")
"""The layer that lists nodes out of service, and keys of its entries."""
NOT_REACHED = "the run stopped before it"
MAX_NAMES = 12
"""Maximum number of host names or groups in a line; the rest are counted."""
MAX_LINES = 40
"""Maximum number of lines of one kind, such as reasons; the rest are in the report."""
MAX_LINE_CHARACTERS = 1000
"""Maximum length of a host's text in a line."""
MAX_SIMULATED = 20
"""Maximum number of simulated items of one result."""
Place = Union[bytes, tuple[int, int]]
"""A record that is compressed in memory, or its beginning and length in the file."""


class Records:
    """Results of layers, a line of JSON each, in a file that grows with the run.

    Memory holds where they are: Ansible forks often, and the cost of a fork grows with the memory
    of the process. Lines that no file takes stay in memory.
    """

    def __init__(self) -> None:
        self.path: Optional[Path] = None
        """The file, which the first line creates."""
        self._handle: Optional[int] = None
        self._end = 0

    def add(self, record: Mapping[str, Any]) -> Place:
        line = json_text(record).encode() + b"\n"
        if self.path:
            written = 0
            with contextlib.suppress(OSError):  # no permission, a full disk
                if self._handle is None:
                    make_directories(self.path.parent, 0o750)
                    self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
                written = os.pwrite(self._handle, line, self._end)
            if written == len(line):
                self._end += written
                return self._end - written, written
        return zlib.compress(line)

    def remove(self) -> None:
        """Remove the file's name, after everything in it is in the report; it can still be read."""
        if self.path and self._handle is not None:
            self.path.unlink(missing_ok=True)

    def read(self, place: Place) -> dict[str, Any]:
        if isinstance(place, bytes):
            line = zlib.decompress(place)
        else:
            line = os.pread(self._handle or -1, place[1], place[0])
        record: dict[str, Any] = json.loads(line)
        return record


class LayerOnHost:
    """Checks and measurements of one layer on one host. A repeated check replaces the earlier."""

    __slots__ = ("_key", "_place", "_records", "counts")

    def __init__(self, records: Records, layer: str, host: str) -> None:
        self._records, self._key = records, (layer, host)
        self._place: Optional[Place] = None
        self.counts: tuple[int, ...] = (0,) * len(STATUSES)
        """Number of checks by status, in the order of STATUSES."""

    @property
    def record(self) -> dict[str, Any]:
        """The checks, and `measured` if there are measurements."""
        return {"checks": []} if self._place is None else self._records.read(self._place)

    @property
    def checks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.record["checks"]
        return found

    def add(self, checks: Iterable[Mapping[str, Any]], measured: Mapping[str, Any]) -> None:
        """Add checks in the form that answers.checks returns."""
        before = self.record
        found = {(item["name"], item["subject"]): item for item in (*before["checks"], *checks)}
        kept = list(found.values())[-answers.MAX_CHECKS :]
        counts = Counter(check["status"] for check in kept)
        self.counts = tuple(counts[status] for status in STATUSES)
        measured = {**before.get("measured", {}), **measured}
        layer, host = self._key
        record = {"layer": layer, "host": host, **({"measured": measured} if measured else {})}
        self._place = self._records.add({**record, "checks": kept})


class HostsOfLayer(Mapping[str, Any]):
    """The report of each host, read when it is asked for."""

    def __init__(self, hosts: Mapping[str, LayerOnHost]) -> None:
        self._hosts = hosts

    def __getitem__(self, host: str) -> dict[str, Any]:
        record = self._hosts[host].record
        return {key: record[key] for key in ("measured", "checks") if key in record}

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


@dataclass
class RunSummary:
    """Collects results during a run, for `lines` and `report` at its end."""

    playbook: str = "site.yml"
    cluster: str = ""
    roles: dict[str, str] = field(default_factory=dict)
    """Role of every host in the inventory; below, its rack and a switch's ports (cluster_ports)."""
    racks: dict[str, str] = field(default_factory=dict)
    ports: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    layers: dict[str, dict[str, LayerOnHost]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Maps a host to the name of its failed task and the first line of the message."""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Maps a host to the reason."""
    changed: Counter[str] = field(default_factory=Counter)
    executions: Counter[str] = field(default_factory=Counter)
    """Number of modules executed on each host over its connection."""
    simulated: dict[str, list[str]] = field(default_factory=dict)
    """Simulated items, and their hosts."""
    out_of_service: list[dict[str, str]] = field(default_factory=list)
    """Nodes out of service in Slurm, as `sinfo -R` lists them."""
    reboot_plan: Optional[Mapping[str, Any]] = None
    """The plan of playbooks/reboot.yml; below, the outcome of each host."""
    reboot_outcomes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    inventories: tuple[str, ...] = ()
    """Inventories as given on the command line."""
    by_name: bool = False
    """Whether the playbook was given by its name in the collection, not as a file."""
    expected: dict[str, dict[str, str]] = field(default_factory=dict)
    """For playbooks/verify.yml: by layer and host, why it was not verified; empty if it was."""

    verifies: bool = False
    """Whether the playbook has plays of playbooks/verify.yml, selected or not."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Requested layers without hosts in this run, with their hosts, which --limit excludes."""
    named: set[str] = field(default_factory=set)
    """The layers among them that --tags names."""
    limit: str = ""
    idle: bool = False
    """Whether no task of a layer ran, in a playbook of layers."""

    def add_result(self, host: str, result: Mapping[str, Any]) -> None:
        """Add a layer's result, which may be any JSON, for `host`."""
        layer = result.get("layer")
        if not isinstance(layer, str) or layer not in TAGS or "checks" not in result:
            return
        measured = measurement(result) if result.get("figures") else {}
        self._entry(layer, host).add(answers.checks(result["checks"]), measured)
        for item in answers.sequence(result.get("simulated"))[:MAX_SIMULATED]:
            hosts = self.simulated.setdefault(_line(str(item)), [])
            if host not in hosts:
                hosts.append(host)
        if layer == SLURM and self.roles.get(host) == "launcher" and "out_of_service" in result:
            rows = map(answers.mapping, answers.sequence(result["out_of_service"]))
            self.out_of_service = [
                {key: answers.sentence(row.get(key)) for key in OUT} for row in rows
            ]

    def add_reboots(self, host: str, result: Mapping[str, Any]) -> None:
        """Add results of the steps of playbooks/reboot.yml, computed on the controller.

        Answers from modules are never added here: one host could then report a plan for all.
        """
        if isinstance(result.get("reboot_plan"), Mapping):
            self.reboot_plan = result["reboot_plan"]
        if isinstance(result.get("reboot_outcome"), Mapping):
            self.reboot_outcomes[host] = result["reboot_outcome"]

    def would_change(self, layer: str, host: str, task: str, result: Mapping[str, Any]) -> None:
        """Record a task that would change a host during verification.

        Changes of reboot records are ignored, as checks report the reason.
        """
        diffs = result.get("diff")
        if isinstance(diffs, list) and diffs:
            headers = [str(answers.mapping(item).get("after_header")) for item in diffs]
            if all(str(RECORDS) in header for header in headers):
                return
        reason = f"show it with --check --diff --tags {layer} --limit {host}"
        found = Check("unchanged", True, False, FAILED, task, reason)
        self._entry(layer, host).add(as_dicts([found]), {})

    def _entry(self, layer: str, host: str) -> LayerOnHost:
        hosts = self.layers.setdefault(layer, {})
        return hosts.setdefault(host, LayerOnHost(self.records, layer, host))

    def unverified(self) -> dict[str, dict[str, list[str]]]:
        """By layer and reason, the hosts that playbooks/verify.yml did not verify."""
        found: dict[str, dict[str, list[str]]] = {}
        for layer, hosts in self.expected.items():
            failed = self._failed_hosts(layer)
            for host, reason in hosts.items():
                if reason and host not in failed:  # otherwise its checks report the failure
                    reason = self.unreachable.get(host, reason)
                    found.setdefault(layer, {}).setdefault(reason, []).append(host)
        return found

    def wrong(self) -> dict[str, list[str]]:
        """By layer, the hosts that failed verification or were not verified."""
        unverified = self.unverified()
        found = {layer: self._failed_hosts(layer) for layer in self.expected}
        for layer, hosts in unverified.items():
            found[layer].update(*hosts.values())
        return {layer: sorted(hosts) for layer, hosts in found.items() if hosts}

    def counts(self, layer: str) -> Counter[str]:
        """Number of checks of a layer per status, over all hosts."""
        entries = [entry.counts for entry in self.layers.get(layer, {}).values()]
        return +Counter(dict(zip(STATUSES, map(sum, zip(*entries)))))

    def reasons(self) -> list[tuple[int, str, Counter[str]]]:
        """Why checks were not applicable: count, reason, and affected checks."""
        found: dict[str, Counter[str]] = {}
        for layer, _host, check in self._checks(NOT_APPLICABLE):
            reason = str(check.get("reason", ""))
            found.setdefault(reason, Counter())[f"{layer} {check['name']}"] += 1
        ordered = sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))
        return [(sum(names.values()), reason, names) for reason, names in ordered]

    def reboots(self) -> dict[str, list[str]]:
        """Hosts that need a reboot, with reasons."""
        found: dict[str, list[str]] = {}
        for layer, host, check in self._checks(REBOOT):
            reason = str(check.get("reason") or check["name"])
            found.setdefault(host, []).append(f"{layer}: {_line(reason)}")
        return found

    def rebooted(self) -> dict[str, dict[str, Any]]:
        """Outcome of every host in the plan of playbooks/reboot.yml."""
        if self.reboot_plan is None:
            return {}
        check_mode = bool(self.reboot_plan.get("check_mode"))
        return table.outcomes(self.reboot_plan, self.reboot_outcomes, check_mode)

    def busiest(self) -> tuple[str, int]:
        """The compute node with most module executions, and their number; empty and 0 if none."""
        counts = {host: self.executions[host] for host, role in self.roles.items()}
        of_compute = {host: many for host, many in counts.items() if self.roles[host] == "compute"}
        host = max(of_compute, key=lambda host: of_compute[host], default="")
        return (host, of_compute[host]) if host and of_compute[host] else ("", 0)

    @property
    def any(self) -> bool:
        """Whether there is anything to show, such as checks or failed hosts."""
        shown = self.layers or self.expected or self.failed or self.unreachable
        return bool(
            shown or self.reboot_plan or self.left_out or self.idle or self._verified_nothing
        )

    @property
    def incomplete(self) -> bool:
        """Whether the run did not do what was requested, or verification found a difference."""
        return self.undone or bool(self.wrong())

    @property
    def undone(self) -> bool:
        """Whether the run did not do what was requested."""
        excluded = any(self.left_out[layer] for layer in self.named)
        return self.idle or excluded or self._verified_nothing

    @property
    def _verified_nothing(self) -> bool:
        return self.verifies and not self.expected

    def lines(self, seconds: float, limit: int) -> list[str]:
        """The summary as text, without the path of the report."""
        of = f" on {self.cluster}" if self.cluster else ""
        lines = [f"{self.playbook}{of}: {seconds:.1f} s"]
        if self.layers or self.expected:
            lines += self._table()
        shown = []
        for count, reason, names in self.reasons():
            what = some([f"{name} {many}" for name, many in sorted(names.items())], MAX_LINES)
            if not reason.startswith("not applicable"):
                reason = f"not applicable, {reason}"
            shown.append(f"{count} {_line(reason)}: {what}")
        lines += _at_most(shown, MAX_LINES, "not applicable")
        for layer, by_reason in self.unverified().items():
            for why, hosts in by_reason.items():
                lines.append(f"not verified: {layer} on {_listed(hosts)}: {why}")
        lines += self.problems()
        if self.unreachable:
            lines.append(f"unreachable: {_listed(self.unreachable)}")
        lines += self.stand_ins() + self._repairs() + self._reboot_lines()
        shown = ["{nodes}: {reason} ({by}, {since})".format(**row) for row in self.out_of_service]
        lines += _at_most([f"out of service in Slurm: {row}" for row in shown], MAX_LINES, "Slurm")
        host, count = self.busiest()
        if count:
            verdict = "" if count <= limit else ", OVER THE LIMIT"
            lines.append(
                f"remote module executions per compute node: {count} at most ({host}), "
                f"limit {limit}{verdict}"
            )
        return lines

    def report(self, started: str, seconds: float, limit: int, check_mode: bool) -> dict[str, Any]:
        """The summary as data, with every check, which HostsOfLayer reads one host at a time."""
        return {
            "format": 1,
            "playbook": self.playbook,
            "cluster": self.cluster,
            "started": started,
            "seconds": round(seconds, 1),
            "check_mode": check_mode,
            "inventories": list(self.inventories),
            "topology": self.topology(),
            "changed": dict(self.changed),
            "failed": self.failed,
            "unreachable": self.unreachable,
            **({"unverified": self.unverified()} if self.expected else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            "reboots": self.reboots(),
            **({"rebooted": self.rebooted()} if self.reboot_plan is not None else {}),
            "simulated": self.simulated,
            **({"out_of_service": self.out_of_service} if self.out_of_service else {}),
            "remote_module_executions": {
                "limit_per_compute_node": limit,
                "most_on_a_compute_node": self.busiest()[1],
                "hosts": dict(self.executions),
            },
            "layers": {
                layer: {
                    "counts": {**dict.fromkeys(STATUSES, 0), **self.counts(layer)},
                    "hosts": HostsOfLayer(hosts),
                }
                for layer, hosts in self.layers.items()
            },
        }

    def problems(self) -> list[str]:
        """What was not done, and the hosts on which a task failed."""
        failed: dict[str, list[str]] = {}
        for host, why in self.failed.items():
            failed.setdefault(why, []).append(host)
        shown = [f"failed: {_listed(hosts)}: {why}" for why, hosts in failed.items()]
        return self._not_done() + _at_most(shown, MAX_NAMES, "failed")

    def stand_ins(self) -> list[str]:
        shown = [f"SIMULATED: {line}: {_listed(hosts)}" for line, hosts in self.simulated.items()]
        return _at_most(shown, MAX_LINES, "SIMULATED")

    def topology(self) -> dict[str, Any]:
        """Hosts by role and by rack, and every cable once: host, port, host, port."""
        roles: dict[str, list[str]] = {}
        racks: dict[str, list[str]] = {}
        for host, role in self.roles.items():
            roles.setdefault(role, []).append(host)
            if self.racks.get(host):
                racks.setdefault(self.racks[host], []).append(host)
        cables = cables_of(SwitchEntry(host, own) for host, own in self.ports.items())
        return {
            "roles": roles,
            "racks": racks,
            "cables": [[*cable.first, *cable.second] for cable in cables],
        }

    def _not_done(self) -> list[str]:
        lines = []
        for layer in [layer for layer in self.left_out if layer in self.named]:
            hosts = self.left_out[layer]
            reason = "the inventory has no host for it"
            if hosts:
                reason = f"its hosts ({_listed(hosts)}) are excluded by --limit {self.limit}"
            lines.append(f"not done: {layer}: {reason}")
        others = [layer for layer, hosts in self.left_out.items() if hosts]
        others = [layer for layer in others if layer not in self.named]
        if others:
            lines.append(f"not done because of --limit {self.limit}: {', '.join(others)}")
        if self.idle or self._verified_nothing:
            verb = "verified" if self.verifies else "done"
            lines.append(
                f"nothing was {verb}: no layer has both the requested tags and the requested "
                "hosts; check --tags, --skip-tags, --limit and --start-at-task"
            )
        return lines

    def _command(self, playbook: str) -> str:
        if self.by_name:
            playbook = f"{COLLECTION}{PurePath(playbook).stem}"
        given = [word for item in self.inventories for word in ("-i", shlex.quote(item))]
        return " ".join(["ansible-playbook", playbook, *given])

    def faults(self, layer: str) -> list[tuple[str, str, Mapping[str, Any]]]:
        """The failed checks of a layer with the host that differs and the one that found it.

        A host that differs reports the fault and the remedy itself: what others say is left out.
        """
        failed = [(host, check) for _layer, host, check in self._checks(FAILED, layer)]
        differ = {host for host, check in failed if not check.get("at")}
        found = []
        for host, check in failed:
            # A host may only name hosts in the inventory.
            named = check.get("at")
            at = str(named) if named in self.roles else host
            if at == host or at not in differ:
                found.append((at, host, check))
        return found

    def repair(self, layer: str, hosts: Iterable[str]) -> str:
        if self.playbook == "pull.yml":  # on a node
            return f"{self._command(self.playbook)} --tags {layer} -e pull_apply=true"
        return f"{self._command('site.yml')} --tags {layer} --limit {','.join(hosts)}"

    def repairs(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The hosts for each manual step, and those on which to run each layer.

        A check that failed because of another host is repaired on that host.
        """
        steps: dict[str, list[str]] = {}
        layers: dict[str, list[str]] = {}
        unverified = self.unverified()
        for layer in self.wrong():
            hosts = {host for hosts in unverified.get(layer, {}).values() for host in hosts}
            for at, host, check in self.faults(layer):
                step = check.get("by_hand")
                if step:
                    # Name the host that claims it: a compromised host could suggest any command.
                    where = at if at == host else f"{at} (says {host})"
                    if where not in steps.setdefault(step, []):
                        steps[step].append(where)
                else:
                    hosts.add(at)
            reached = sorted(hosts - self.unreachable.keys())
            if reached and layer not in MEASURING:
                layers[layer] = reached
        return steps, layers

    def _repairs(self) -> list[str]:
        steps, layers = self.repairs()
        shown = [f"by hand: {_listed(hosts)}: {_line(step)}" for step, hosts in steps.items()]
        return _at_most(shown, MAX_NAMES, "by hand") + [
            f"repair: {self.repair(layer, hosts)}" for layer, hosts in layers.items()
        ]

    def _reboot_lines(self) -> list[str]:
        """The table of playbooks/reboot.yml; after other runs, hosts that need a reboot."""
        if self.reboot_plan is not None:
            found = self.rebooted()
            return table.lines(found) if found else ["no host waits for a reboot"]
        shown = [
            f"reboot needed: {host} ({_line('; '.join(reasons))})"
            for host, reasons in self.reboots().items()
        ]
        if not shown:
            return []
        return [
            *_at_most(shown, MAX_NAMES, "reboot needed"),
            f"reboot them with: {self._command('playbooks/reboot.yml')} (--check shows the plan "
            "and hosts waiting from earlier runs)",
        ]

    def _failed_hosts(self, layer: str) -> set[str]:
        return {host for _layer, host, _check in self._checks(FAILED, layer)}

    def _checks(self, status: str, of: str = "") -> Iterable[tuple[str, str, Mapping[str, Any]]]:
        at = STATUSES.index(status)
        for layer, hosts in self.layers.items():
            for host, entry in hosts.items() if layer == (of or layer) else ():
                for check in entry.checks if entry.counts[at] else ():
                    if check["status"] == status:
                        yield layer, host, check

    def _verified_hosts(self, layer: str) -> str:
        """`4 compute, 1 launcher`; `3 of 4 compute` if some were not reached or not selected, with
        the name if only one was."""
        total = Counter(self.roles.values())
        verified = {host for host, reason in self.expected.get(layer, {}).items() if not reason}
        verified.update(self.layers.get(layer, {}))
        here: dict[str, list[str]] = {}
        for host in verified:
            here.setdefault(self.roles.get(host, "other"), []).append(host)
        shown = []
        for role in filter(here.get, (*ROLES, "other")):
            (name, *others), number = here[role], total[role]
            of = f" of {number}" if len(here[role]) < number else ""
            name = f" ({name})" if of and not others else ""
            shown.append(f"{len(here[role])}{of} {role}{name}")
        return ", ".join(shown)

    def _table(self) -> list[str]:
        rows = [["layer", "hosts", *(status.replace("_", " ") for status in SHOWN)]]
        for layer in dict.fromkeys([*self.expected, *self.layers]):
            counts = self.counts(layer)
            cells = [str(counts[status]) if counts[status] else "-" for status in SHOWN]
            rows.append([layer, self._verified_hosts(layer) or "not verified", *cells])
        return columns(rows, left=(0, 1))


evaluating = False
"""Whether the callback is loaded and evaluates this run. Actions read it in forked workers."""
directory = "reports"
"""Directory of reports, as configured for the callback."""


def measurement(result: Mapping[str, Any]) -> dict[str, Any]:
    """Measurements of a module: its result without bookkeeping."""
    return {
        key: value
        for key, value in result.items()
        if key not in BOOKKEEPING and not key.startswith(("_ansible", "ansible_"))
    }


def _line(text: str) -> str:
    return shortened(one_line(text), MAX_LINE_CHARACTERS)


def _listed(names: Iterable[str]) -> str:
    return some(list(names), MAX_NAMES)


def _at_most(lines: list[str], most: int, what: str) -> list[str]:
    left = len(lines) - most
    return [*lines[:most], f"{what}: {left} more, see the report"] if left > 0 else lines

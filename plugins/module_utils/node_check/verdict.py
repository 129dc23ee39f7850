# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The verdict on a node: which failed checks are faults, what to do next, and how it is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..core.checks import FAILED, NOT_APPLICABLE, OK, REBOOT, Check
from ..core.text import counted, one_line, shortened
from . import counters
from .counters import Sample

HEALTHY, WARNING, FAULT, UNKNOWN = "healthy", "warning", "fault", "unknown"

WARNS = frozenset(
    [
        *("file", "names_in_table", "host_name", "sysctl", "sysctl_at_boot"),
        *("rails_service", "rail_config", "rail_claim", "rail_max_read_request_bytes"),
        *("gpu_persistence", "gpu_vbios", "gpu_slowdown", "gpu_warnings", "gpu_nvml"),
        *("storage_automount", "storage_drop_in", "time_service", "node_leftover_memory"),
        "node_look_error",
    ]
)
"""Checks that neither stop a job nor spoil its result now."""

RESET_GPU, RESTART, CABLE, DRAIN, RMA, LAYER, END, SPACE, COOLING = (
    "reset_gpu", "reboot", "cable", "drain", "rma", "run_layer", "end_processes", "free_space",
    "cooling",
)  # fmt: skip
STEPS: Mapping[str, str] = {
    RESET_GPU: "stop the jobs of the node and reset the GPU (docs/gpu.md)",
    RESTART: "drain the node and reboot it (playbooks/reboot.yml)",
    CABLE: "clean or replace cable and transceivers",
    DRAIN: "drain the node and find out what hangs",
    RMA: "drain the node, power it off and on; if it stays, have the part replaced",
    LAYER: "run playbooks/site.yml --tags {tag} --limit {host}",
    END: "end the processes",
    SPACE: "free space",
    COOLING: "check fans, coolant and power supplies",
}
_BY_NAME: Sequence[tuple[str, str]] = (
    ("gpu_present", RMA),
    ("gpu_count", RMA),
    ("gpu_row_remap", RMA),
    ("gpu_pcie", RMA),
    ("gpu_rail", RMA),
    ("gpu_slowdown", COOLING),
    ("gpu_ecc", RESET_GPU),
    ("gpu_nvlinks", RESET_GPU),
    ("gpu_fabric", RESET_GPU),
    ("gpu_driver*", RESTART),
    ("gpu_*", LAYER),
    ("rail_nic", RMA),
    ("rail_rdma", RESTART),
    ("rail_pcie", RMA),
    ("rail_speed", CABLE),
    ("rail_gpu", RMA),
    ("rail_numa", RMA),
    ("rail_lacp", CABLE),
    ("rail*", LAYER),
    ("storage_mount", DRAIN),
    ("storage_*", LAYER),
    ("node_link_downs", CABLE),
    ("node_symbol_errors", CABLE),
    ("node_leftover_processes", END),
    ("node_leftover_memory", SPACE),
    ("node_leftover_gpu", RESET_GPU),
    ("node_space", SPACE),
    ("node_look", DRAIN),
    ("*", LAYER),
)
"""The first pattern that a check's name matches decides, unless what was found does (next_step)."""
_TAGS: Sequence[tuple[str, str]] = (
    ("rail*", "rails"),
    ("gpu_*", "gpu"),
    ("storage_*", "storage"),
    ("names_in_table", "names"),
    ("host_name", "names"),
)
_OF_MESSAGE: Mapping[str, str] = {"cable": CABLE, "firmware": RESTART, "heat": COOLING}


@dataclass(frozen=True)
class Finding:
    check: Check
    warns: bool
    step: str

    def next_step(self, host: str) -> str:
        if self.check.by_hand:
            return self.check.by_hand
        return STEPS[self.step].format(tag=_tag(self.check), host=host)

    @property
    def name(self) -> str:
        return f"{self.check.name} {one_line(self.check.subject)}".strip()


@dataclass(frozen=True)
class NodeVerdict:
    """All checks of one run, and the findings among them."""

    host: str
    mode: str
    checks: Sequence[Check]
    findings: Sequence[Finding]
    seconds: float = 0.0
    at: int = 0
    notes: Sequence[str] = ()
    """What was done in Slurm, or why nothing was."""
    samples: Sequence[Sample] = ()
    """Counters for the metrics."""

    @property
    def faults(self) -> list[Finding]:
        return [each for each in self.findings if not each.warns]

    @property
    def word(self) -> str:
        return FAULT if self.faults else WARNING if self.findings else HEALTHY

    @property
    def sentence(self) -> str:
        read = [check for check in self.checks if check.status != NOT_APPLICABLE]
        if not self.findings:
            return f"{self.host} is healthy: {counted(len(read), 'check')} hold"
        kinds = [(self.faults, "fault"), ([x for x in self.findings if x.warns], "warning")]
        return f"{self.host} has {', '.join(counted(len(x), word) for x, word in kinds if x)}"


def judge(
    host: str, mode: str, checks: Sequence[Check], warns: Collection[str] = (), **more: Any
) -> NodeVerdict:
    failing = [check for check in checks if check.status not in (OK, NOT_APPLICABLE)]
    known = WARNS.union(warns)
    found = [Finding(check, check.name in known, _step(check)) for check in failing]
    return NodeVerdict(host, mode, checks, sorted(found, key=lambda each: each.warns), **more)


def _step(check: Check) -> str:
    """The next step by what was found, else by the name of the check."""
    found = str(check.found)
    if check.name == "gpu_xid":
        from ..gpu import xids
        from ..gpu.evaluation import REMEDIES

        by_action = {xids.REBOOT: RESTART, xids.RESET: RESET_GPU, xids.SUPPORT: RMA}
        steps = (s for action, s in by_action.items() if REMEDIES[action] in check.reason)
        return next(steps, RESET_GPU if "reset all GPUs" in check.reason else DRAIN)
    if check.name == "gpu_recovery":
        return RESTART if "reboot" in found.lower() else RESET_GPU
    if check.name == "gpu_present" and check.status == REBOOT:
        return RESET_GPU
    if check.name == "gpu_row_remap" and check.status == REBOOT:
        return RESET_GPU
    if check.name == "gpu_driver" and "no answer" in found:
        return DRAIN
    if check.name == "rail_link" and found == "no carrier":
        return CABLE
    if check.name == "node_nic_messages":
        return _OF_MESSAGE.get(found, RESTART)
    if check.name.startswith("gpu_") and check.status == REBOOT:
        return RESTART
    return next(step for pattern, step in _BY_NAME if fnmatchcase(check.name, pattern))


def _tag(check: Check) -> str:
    if check.name == "file" and "--tags " in check.reason:
        return check.reason.rpartition("--tags ")[2]
    return next((tag for pattern, tag in _TAGS if fnmatchcase(check.name, pattern)), "os")


# Output


def text(verdict: NodeVerdict) -> str:
    lines = [f"{verdict.sentence} ({verdict.mode}, {verdict.seconds:.1f} s)"]
    for each in verdict.findings:
        lines.append(f"{'warning' if each.warns else 'FAULT'} {each.check.line()}")
        lines.append(f"  next: {each.next_step(verdict.host)}")
    return "".join(f"{line}\n" for line in (*lines, *verdict.notes))


def as_json(verdict: NodeVerdict, status: int) -> str:
    findings = [
        {
            "name": each.check.name,
            "subject": each.check.subject,
            "wanted": each.check.wanted,
            "found": each.check.found,
            "reason": shortened(one_line(each.check.reason), 2000),
            "severity": WARNING if each.warns else FAULT,
            "next": each.step,
            "next_step": each.next_step(verdict.host),
        }
        for each in verdict.findings
    ]
    count = {s: sum(c.status == s for c in verdict.checks) for s in (OK, FAILED, NOT_APPLICABLE)}
    content = {
        "host": verdict.host,
        "mode": verdict.mode,
        "verdict": verdict.word,
        "exit_status": status,
        "at": verdict.at,
        "seconds": round(verdict.seconds, 2),
        "checks": count,
        "findings": findings,
        "notes": list(verdict.notes),
    }
    return json.dumps(content, sort_keys=True) + "\n"


NAGIOS = {HEALTHY: (0, "OK"), WARNING: (1, "WARNING"), FAULT: (2, "CRITICAL")}
"""Exit status and word of the plugin interface; 3 is UNKNOWN."""


def nagios(verdict: NodeVerdict) -> tuple[int, str]:
    status, word = NAGIOS[verdict.word]
    names = ", ".join(each.name for each in verdict.findings)
    first = shortened(f"NODE {word} - {verdict.sentence}{f': {names}' if names else ''}", 1000)
    faults = len(verdict.faults)
    figures = f"faults={faults};;0 warnings={len(verdict.findings) - faults} "
    details = [each.check.line() for each in verdict.findings]
    # A bar separates figures from the text.
    shown = "".join(f"{line}\n".replace("|", "/") for line in details)
    return status, f"{first.replace('|', '/')} | {figures}time={verdict.seconds:.2f}s\n{shown}"


def metrics(verdict: NodeVerdict, totals: Mapping[tuple[str, str], int]) -> str:
    """The text format of Prometheus. `totals`: of a rail, by rail and counter (rates.py)."""
    of_rates = [
        Sample(f"{name}_total", total, {"rail": rail})
        for (rail, name), total in sorted(totals.items())
    ]
    return counters.text([*_samples(verdict), *of_rates, *verdict.samples])


def _samples(verdict: NodeVerdict) -> Iterator[Sample]:
    yield Sample("node_check_healthy", int(not verdict.faults), {})
    for each in verdict.findings:
        severity = WARNING if each.warns else FAULT
        name, subject = each.check.name, each.check.subject
        labels = {"check": name, "subject": subject, "severity": severity, "next": each.step}
        yield Sample("node_check_finding", 1, labels)
    yield Sample("node_check_time_seconds", verdict.at, {})
    yield Sample("node_check_duration_seconds", verdict.seconds, {})


def reason(findings: Iterable[Finding]) -> str:
    """The findings in short, for a reason in Slurm: printable, in one line."""
    shown = ", ".join(each.name for each in findings)
    plain = re.sub(r"[^ !#-&(-\[\]-_a-~]", "?", shown)
    return shortened(plain, 120) if len(plain) > 120 else plain

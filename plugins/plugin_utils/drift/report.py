# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of drift, as JSON of docs/drift.schema.json, as text and as metrics."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ...module_utils.core.files import directory_of_trust, write_beside
from ...module_utils.core.locks import HeldError
from ...module_utils.core.text import columns, counted, one_line, shortened
from ..layers import ROLES
from ..report.summary import RunSummary
from .findings import Facts, Looked, Settings, findings_of
from .history import FILE, Event, History, Key, changing, key_of, since

Finding = Mapping[str, Any]
NO_DRIFT, DRIFT, INCOMPLETE = "no drift", "drift", "incomplete"
UNUSED_DAYS = 30
"""A rule that matched nothing for so long gets a note."""
MOST_ROWS = 40
"""Maximum number of rows of a table, and of lines of one kind; the rest are in the report."""
MOST_CELL = 36
MOST_LINE = 1000


@dataclass(frozen=True)
class Drift:
    report: dict[str, Any]
    warnings: list[str]

    @property
    def status(self) -> int:
        """The exit status of the run, as in playbooks/verify.yml."""
        if self.report["hosts"]["silent"]:
            return 4
        return 0 if self.report["verdict"] == NO_DRIFT else 2


def evaluate(
    run: RunSummary,
    settings: Settings,
    folder: Path,
    started: datetime,
    seconds: float,
    *,
    facts: Facts,
    whole: bool = True,
) -> Drift:
    """The report of a run; writes its history in the folder of the cluster's reports, and metrics.

    `whole`: no host or layer was selected on the command line. Metrics describe the whole cluster.
    """
    at, day = started.isoformat(), started.date().isoformat()
    findings = findings_of(run, facts)
    asked = {host for hosts in run.expected.values() for host in hosts}
    silent = {host: shortened(reason, MOST_LINE) for host, reason in run.unreachable.items()}
    history, before, warnings = History(), dict[Key, Event](), list[str]()
    try:
        with changing(folder) as history:
            before = dict(history.open)
            if asked:
                history.take(at, findings, Looked(run).at, silent)
    except (HeldError, OSError) as error:
        warnings.append(
            f"drift: the history was not written, so that ages and offenders lack: {error}. "
            f"Make {folder / FILE} writable"
        )
    current = [rule for rule in settings.rules if not rule.expired(day)]
    for finding in findings:
        key = key_of(finding)
        old = before.get(key)
        rule = next((each for each in current if each.covers(key[0], key[2], key[3])), None)
        finding["since"] = min(old["at"], at) if old else at  # the clock may have been set back
        finding["new"] = old is None
        finding["ignored"] = rule and {"reason": rule.reason, "until": rule.until}
    expired = [rule.as_dict() for rule in settings.rules if rule.expired(day)]
    recent = since(started, UNUSED_DAYS)
    present = history.present(recent) if history.covers(recent) else None
    unused = [
        rule.as_dict()
        for rule in current
        if present is not None
        and not any(rule.covers(host, check, subject) for host, _layer, check, subject in present)
    ]
    counting = [finding for finding in findings if not finding["ignored"]]
    verdict = DRIFT if counting or expired else NO_DRIFT
    report = {
        "format": 1,
        "kind": "drift",
        "cluster": run.cluster,
        "started": at,
        "seconds": round(seconds, 1),
        "verdict": INCOMPLETE if silent or run.undone else verdict,
        "hosts": {"asked": len(asked), "answered": len(asked - silent.keys()), "silent": silent},
        "findings": findings,
        "topology": run.topology(),
        "expired": expired,
        "unused": unused,
        "offenders": history.offenders(
            settings.offender_times, since(started, settings.offender_days), started
        ),
    }
    if settings.textfile and whole and not run.undone:
        try:
            text = metrics(report, [of for of, on in run.expected.items() if on.keys() - silent])
            path = Path(settings.textfile)
            directory = directory_of_trust(path.parent)
            try:
                write_beside(directory, path.name, text)
            finally:
                os.close(directory)
        except OSError as error:
            warnings.append(f"drift_textfile was not written: {error}. Make it writable")
    return Drift(report, warnings)


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report for the operator: new findings, old ones, ignored ones, and the rest."""
    found: Sequence[Finding] = report["findings"]
    hosts = report["hosts"]
    counting = [each for each in found if not each["ignored"]]
    new = [each for each in counting if each["new"]]
    old = sorted((each for each in counting if not each["new"]), key=lambda each: each["since"])
    ignored = [each for each in found if each["ignored"]]
    of = f" on {report['cluster']}" if report["cluster"] else ""
    shown = [
        f"{report['verdict']}{of}: {counted(len(counting), 'finding')}, {len(new)} new, "
        f"{len(ignored)} ignored; {hosts['answered']} of {counted(hosts['asked'], 'host')} answered"
        f"; {report['seconds']:.1f} s"
    ]
    repairs: dict[str, int] = {}
    for title, rows in (("new", new), ("old", old), ("ignored", ignored)):
        shown += _table(title, rows, repairs)
    shown += [f"repair {number}: {text}" for text, number in repairs.items()]
    silent = [f"{host}: {_cut(reason)}" for host, reason in hosts["silent"].items()]
    offenders = [
        f"{each['part']}: {each['times']} times, last {_moment(each['last'])}"
        for each in report["offenders"]
    ]
    for title, texts in (
        ("silent", silent),
        ("expired rule", [*map(_rule, report["expired"])]),
        (f"rule without a match in {UNUSED_DAYS} days", [*map(_rule, report["unused"])]),
        ("offender", offenders),
    ):
        shown += [f"{title}: {text}" for text in texts[:MOST_ROWS]] + _more(title, texts)
    return shown


def _table(title: str, found: Sequence[Finding], repairs: dict[str, int]) -> list[str]:
    """Rows of findings; `repairs` numbers their commands and manual steps."""
    if not found:
        return []
    rows = [[title, "layer", "check", "subject", "found -> desired", "since", "repair"]]
    for each in found[:MOST_ROWS]:
        if each["ignored"]:
            last = "ignored until {until}: {reason}".format(**each["ignored"])
        else:
            text = each["command"] or f"by hand: {each['host']}: {_cut(each['by_hand'])}"
            last = str(repairs.setdefault(text, len(repairs) + 1))
        values = f"{_value(each['found'])} -> {_value(each['desired'])}"
        head = [each["host"], each["layer"], each["check"], _cell(each["subject"]), values]
        rows.append([*head, _moment(each["since"]), last])
    return columns(rows, left=range(7)) + _more(title, found)


def _more(title: str, found: Sequence[Any]) -> list[str]:
    left = len(found) - MOST_ROWS
    return [f"{title}: {left} more, see the report"] if left > 0 else []


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return _cell(one_line(text))


def _cell(text: str) -> str:
    return f"{text[: MOST_CELL - 3]}..." if len(text) > MOST_CELL else text


def _cut(text: str) -> str:
    return shortened(one_line(text), MOST_LINE)


def _moment(at: str) -> str:
    return at[:16].replace("T", " ")


def _rule(rule: Mapping[str, Any]) -> str:
    subject = f" {rule['subject']}" if rule["subject"] else ""
    return f"{rule['check']}{subject} on {rule['host']} until {rule['until']}: {rule['reason']}"


def metrics(report: Mapping[str, Any], verified: Collection[str]) -> str:
    """The text format of Prometheus: findings that count, for each layer that a host answered."""
    counts = Counter(each["layer"] for each in report["findings"] if not each["ignored"])
    at = datetime.fromisoformat(report["started"]).timestamp()
    shown = [
        "# HELP baremetal_drift_findings Differences from the model that no rule ignores.",
        "# TYPE baremetal_drift_findings gauge",
        *(
            f'baremetal_drift_findings{{layer="{layer}"}} {counts[layer]}'
            for layer in ROLES
            if layer in verified
        ),
        "# HELP baremetal_drift_silent_hosts Hosts that did not answer.",
        "# TYPE baremetal_drift_silent_hosts gauge",
        f"baremetal_drift_silent_hosts {len(report['hosts']['silent'])}",
        "# HELP baremetal_drift_last_run_timestamp_seconds Start of the last run (UNIX).",
        "# TYPE baremetal_drift_last_run_timestamp_seconds gauge",
        f"baremetal_drift_last_run_timestamp_seconds {at:.0f}",
    ]
    return "".join(f"{line}\n" for line in shown)

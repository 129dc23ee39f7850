# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Send the auditor's wheels to a host, and show its verdicts next to the checks of the last run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.checks import Check, as_dicts, failure_message
from ..module_utils.core.messages import message
from ..module_utils.core.text import some
from ..plugin_utils import clustermax
from ..plugin_utils.answers import AnswerError, mapping
from ..plugin_utils.answers import checks as checks_of
from ..plugin_utils.report import reports
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "audit"
MODULE = "baremetal.mpi_roce.cluster_audit"
CONTROLLER_ONLY = frozenset(["wheels_directory", "audited", "node", "report_directory"])
LOCK = Path(__file__).resolve().parents[2] / "requirements/audit.txt"
REQUIREMENT = re.compile(r"^(?P<name>[\w-]+)==(?P<version>[\w.]+)(?P<rest>(?:.*\\\n)+.*)", re.M)
MOST_WHEEL_BYTES = 4 << 20
MOST_REPORT_BYTES = 256 << 20
MOST_REPORTS = 20
PREVIOUS = ("verify", "site")
"""Playbooks whose saved reports have the checks of all layers."""


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {"audit": self._audit, "node": self._node, "report": self._report}

    def _audit(self, task_vars: Any) -> dict[str, Any]:
        directory = Path(self._task.args.get("wheels_directory") or "wheels")
        sent = {} if self._task.check_mode else wheels(directory, LOCK.read_text("utf-8"))
        return self._node(task_vars, wheels=sent)

    def _node(self, task_vars: Any, **more: Any) -> dict[str, Any]:
        given = self._task.args.items()
        sent = {**{key: value for key, value in given if key not in CONTROLLER_ONLY}, **more}
        result: dict[str, Any] = self._execute_module(MODULE, module_args=sent, task_vars=task_vars)
        if "checks" in result:
            result["checks"] = checks_of(result["checks"])
        return result

    def _report(self, task_vars: Any) -> dict[str, Any]:
        arguments, hostvars = self._task.args, task_vars["hostvars"]
        found: dict[str, list[clustermax.Verdict]] = {}
        strange, targets, lacking = [], set(), []
        for host in task_vars["ansible_play_hosts_all"]:
            answer, node = (
                mapping(mapping(hostvars.raw_get(host).get(arguments.get(step_of))).get(key))
                for step_of, key in (("audited", "audit"), ("node", "node"))
            )
            try:
                if node:
                    lacking.append(clustermax.lacks(host, node))
                if not answer:
                    continue
                found[host] = clustermax.read(host, answer)
                targets.add(clustermax.TARGET.of(answer.get("target"), f"{host}: target"))
            except AnswerError as error:
                lacking.append(set())  # nothing is known of it
                strange.append(Check("answer", "verdicts", None, "failed", host, str(error)))
        result: dict[str, Any] = {"changed": False, "layer": LAYER, "checks": as_dicts(strange)}
        if found:
            directory = Path(arguments.get("report_directory") or "")
            missing = clustermax.missing(lacking)
            statuses, reports_of = last_runs(directory)
            title = f"cmax {version(LOCK.read_text('utf-8'))} ({', '.join(sorted(targets))})"
            rows = clustermax.classified(found, statuses, missing)
            for line in clustermax.lines(rows, found, statuses, title):
                display.display(line)
            where = some(reports_of, 3) if reports_of else "no saved run: playbooks/verify.yml"
            display.display(f"audit: ours from {where}")
            if not lacking:
                display.display(f"audit: {clustermax.UNREAD}")
            if arguments.get("report_directory"):
                checks = clustermax.as_report(rows, found, statuses)
                text = {"title": title, "counts": clustermax.counts(rows), "checks": checks}
                option = "cluster_audit_report_directory"
                result["report"] = reports.keep(directory, "clustermax", text, display, option)
        failed = failure_message(LAYER, strange, "Find out who changed Python on the host.")
        return {**result, "failed": True, "msg": failed} if failed else result


def version(lock: str) -> str:
    return next(each["version"] for each in REQUIREMENT.finditer(lock))


def wheels(directory: Path, lock: str) -> dict[str, dict[str, str]]:
    """The wheels that the lock file names, from the directory, as arguments of the module."""
    found, missing = {}, []
    for each in REQUIREMENT.finditer(lock):
        name, release = each["name"].replace("-", "_"), each["version"]
        hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", each["rest"]))
        files = sorted(directory.glob(f"{name}-{release}-*.whl"))
        contents = [path.read_bytes() for path in files if path.stat().st_size < MOST_WHEEL_BYTES]
        named = {hashlib.sha256(content).hexdigest(): content for content in contents}
        matching = sorted(hashes & set(named))
        if not matching:
            seen = f"{files[0].name} has another SHA-256" if files else "not there"
            missing.append(f"{name} {release} ({seen})")
            continue
        encoded = base64.b64encode(named[matching[0]]).decode("ascii")
        found[f"{name}-{release}"] = {"sha256": matching[0], "content": encoded}
    if missing:
        raise AnsibleActionFail(
            message(
                "audit_wheels",
                "audit: {directory} lacks wheels of {lock}: {missing}. Download them: pip download "
                "--no-deps --only-binary :all: --require-hashes -r {lock} -d {directory}",
                directory=directory,
                lock=LOCK,
                missing=", ".join(missing),
            )
        )
    return found


def last_runs(directory: Path) -> tuple[Mapping[str, Counter[str]], list[str]]:
    """Statuses of checks, for each layer in its latest saved report, and the names of the reports:
    a run with --tags has some layers."""
    layers: dict[str, Any] = {}
    used = []
    saved = sorted(_saved(directory), key=lambda path: path.name.partition("-")[2], reverse=True)
    for path in saved[:MOST_REPORTS]:
        try:
            if path.stat().st_size > MOST_REPORT_BYTES:
                continue
            found = mapping(mapping(json.loads(path.read_text(encoding="utf-8"))).get("layers"))
        except (OSError, RecursionError, ValueError):
            continue  # unreadable or incomplete
        used += [path.name] if set(found) - set(layers) else []
        layers = {**found, **layers}
    return clustermax.ours({"layers": layers}), used


def _saved(directory: Path) -> Iterable[Path]:
    return (path for name in PREVIOUS for path in directory.glob(f"{name}-[0-9]*T*Z.json"))

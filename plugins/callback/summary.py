# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary of a run: what every layer verified, and the path of the report."""

from __future__ import annotations

DOCUMENTATION = r"""
name: summary
type: aggregate
short_description: Shows what every layer verified at the end of a run, and saves it as JSON
version_added: "1.0.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - For each layer, prints how many of the C(checks) returned by this collection's modules passed,
    failed, or do not apply to these machines and why. Lists hosts that failed, were unreachable or
    need a reboot, and whatever was simulated. After C(playbooks/reboot.yml), prints the outcome of
    each host.
  - Counts the modules executed on each host. Connections of type V(local) do not count. An action
    of another collection counts as one module.
  - Saves the same data as JSON, and as a page that a browser opens from disk. Prints nothing if no
    layer ran or was skipped and no host failed.
  - In playbooks of this collection, rejects a C(--tags) value that no task has before any host is
    contacted. Ends the run with exit status 2, or 4 after unreachable hosts, if C(--limit) excludes
    all hosts of a layer named in C(--tags), if nothing was done, or if C(playbooks/verify.yml) or
    C(playbooks/drift.yml) found a difference.
  - After C(playbooks/drift.yml), shows and saves the report of drift, and adds to its history.
options:
  report_directory:
    description:
      - Directory for reports, which are saved in a subdirectory named after the cluster.
      - A relative path is resolved against the working directory if it is set in the environment,
        and against the configuration file if it is set there.
    type: path
    default: reports
    env:
      - name: BAREMETAL_MPI_ROCE_REPORTS
    ini:
      - section: callback_summary
        key: report_directory
  remote_execution_limit:
    description: Maximum number of module executions on one compute node before the summary warns.
    type: int
    default: 60
    env:
      - name: BAREMETAL_MPI_ROCE_REMOTE_EXECUTION_LIMIT
    ini:
      - section: callback_summary
        key: remote_execution_limit
requirements:
  - The inventory plugin P(baremetal.mpi_roce.cluster#inventory) enables it. For other inventories,
    set C(callbacks_enabled = baremetal.mpi_roce.summary) in ansible.cfg or
    E(ANSIBLE_CALLBACKS_ENABLED=baremetal.mpi_roce.summary).
  - List it last if other callbacks are enabled. It may end the run, and those after it then get no
    statistics.
"""

import gc
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any, Optional

from ansible import constants as C
from ansible import context
from ansible.plugins.callback import CallbackBase

from ..module_utils.core.checks import STRICT
from ..module_utils.core.text import printable, shortened
from ..plugin_utils import asked, look, pages
from ..plugin_utils.actions import EXECUTIONS
from ..plugin_utils.drift import report as drift
from ..plugin_utils.drift.findings import Settings
from ..plugin_utils.layers import TAGS
from ..plugin_utils.model.cluster import ROLES
from ..plugin_utils.report import summary as report
from ..plugin_utils.report.reports import save
from ..plugin_utils.report.summary import COLLECTION, RunSummary
from ..plugin_utils.terminal import Terminal

REBOOT = f"{COLLECTION}cluster_reboot"
VERIFY = f"{COLLECTION}cluster_verify"
LOOK = f"{COLLECTION}cluster_look"
SHARE = f"{COLLECTION}cluster_share"
MAX_REASON_CHARACTERS = 1000
"""Maximum length of a host's failure reason in the summary."""
EXIT_STATUS = 2
"""Exit status of a run that did not do what was requested; Ansible uses it for failed hosts."""
UNREACHABLE_STATUS = 4
"""The same if hosts were unreachable, as in Ansible."""
WORKER_THRESHOLD = 100_000
"""New objects after which a worker collects garbage; Python's default is 700."""
MODULE_KEYS = ("invocation", "censored")
"""A result returned by a module has one of these keys; one made on the controller has neither."""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = f"{COLLECTION}summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._terminal = Terminal()
        self._summary = RunSummary()
        self._drift: Optional[Settings] = None  # of playbooks/drift.yml
        self._shared: Mapping[str, Any] = {}  # the result of playbooks/share.yml
        self._verified = ""  # layer of the current play of playbooks/verify.yml
        self._always = False  # the current play has the tag `always`
        self._idle = False  # no task has run yet in a play that --tags can select
        self._play: Any = None
        self._local_hosts: dict[str, bool] = {}
        self._began = time.monotonic()
        self._started = datetime.now(timezone.utc)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        _spare_workers()
        look.forget()
        summary = self._summary
        summary.playbook = Path(playbook._file_name).name
        self._drift = None
        given = context.CLIARGS.get("args") or ()
        summary.by_name = any(str(name).startswith(COLLECTION) for name in given)
        sources = context.CLIARGS.get("inventory") or ()
        summary.inventories = tuple(_as_given(source) for source in sources)
        summary.limit = printable(str(context.CLIARGS.get("subset") or ""))
        if C.INJECT_FACTS_AS_VARS:
            self._terminal.warning(
                "inject_facts_as_vars is on. A compromised host can then set role variables, such "
                "as file names on the controller, by its facts. Set it to False in ansible.cfg."
            )
        plays = playbook.get_plays()
        summary.verifies = any(STRICT in str(play.environment) for play in plays)
        if len(given) == 1:  # a tag may belong to another one
            errors = asked.misspelt(plays)
            for line in errors:
                self._terminal.error(line)
            if errors:
                raise SystemExit(EXIT_STATUS)  # Ansible turns exceptions of callbacks into warnings
            only = context.CLIARGS.get("tags") or ()
            self._idle = "always" not in only and any(map(asked.layer_of, plays))
        report.evaluating = True
        report.directory = self.get_option("report_directory")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        # Ansible forks for each task and host. Without this, garbage collection in each child
        # copies all memory of the parent: 4 % of the run time for 100 nodes.
        gc.freeze()
        self._play = play
        inventory = play.get_variable_manager()._inventory
        selected = asked.is_asked(play)
        hosts: list[str] = []
        if selected and STRICT in str(play.environment):
            hosts = [host.name for host in inventory.get_hosts(play.hosts)]
        self._verified = asked.tag_of(play) if hosts else ""
        self._always = asked.tag_of(play) == "always"
        layer = asked.layer_of(play) if selected else ""
        excluded = asked.left_out(play, inventory) if layer else None
        if excluded is not None:
            self._summary.left_out[layer] = excluded
            if layer in play.only_tags:
                self._summary.named.add(layer)
        if hosts:
            seen = self._summary.expected.setdefault(self._verified, {})
            seen.update((host, report.NOT_REACHED) for host in hosts if host not in seen)
        if not self._summary.roles:
            self._read_inventory(play, inventory)

    def _read_inventory(self, play: Any, inventory: Any) -> None:
        hosts = inventory.get_hosts(ignore_limits=True, ignore_restrictions=True)
        for host in hosts:
            groups = {group.name: group.vars for group in host.get_groups()}
            role = next((role for role in ROLES if role in groups), None)
            if role:
                racks = [own.get("cluster_rack") for own in (host.vars, *groups.values())]
                self._summary.roles[host.name] = role
                self._summary.racks[host.name] = str(next(filter(None, racks), ""))
                self._summary.ports[host.name] = host.vars.get("cluster_ports") or ()
        if hosts:
            variables = play.get_variable_manager().get_vars(play=play, host=hosts[0])
            self._summary.cluster = str(variables.get("cluster_name", ""))
        self._summary.records.path = self._path(Path(self._summary.playbook).stem, "jsonl")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._take(result)
        self.v2_runner_on_skipped(result)
        if self._verified and result._result.get("changed"):
            host, task = result._host.get_name(), result._task.get_name()
            self._summary.would_change(self._verified, host, task, result._result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        # What the look did is known from its answers.
        self._idle = self._idle and (self._always or _looks(result._task))
        hosts = self._summary.expected.get(self._verified, {})
        host = result._host.get_name()
        # On an unreachable host, tasks that need no connection still succeed.
        if hosts.get(host) == report.NOT_REACHED and host not in self._summary.unreachable:
            hosts[host] = ""

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._take(result)
        if ignore_errors:
            return
        host, task, fields = result._host.get_name(), result._task.get_name(), result._result
        reason = ": ".join(filter(None, (task, _first_line(fields))))
        self._summary.failed[host] = reason
        if self._verified:
            self._summary.expected[self._verified][host] = reason
            if result._task.diff and fields.get("diff"):  # Ansible shows no diff of failed tasks
                self._terminal.display(self._get_diff(printable(fields["diff"])))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        host, reason = result._host.get_name(), _first_line(result._result)
        self._summary.unreachable[host] = reason
        if self._verified:
            self._summary.expected[self._verified][host] = reason

    def v2_playbook_on_stats(self, stats: Any) -> None:
        summary = self._summary
        # Rescued failures do not count, except in verification; neither does a host that came back.
        if not summary.expected:
            summary.failed = {h: t for h, t in summary.failed.items() if stats.failures.get(h)}
        summary.unreachable = {h: t for h, t in summary.unreachable.items() if stats.dark.get(h)}
        summary.changed = Counter({h: n for h, n in stats.changed.items() if n})
        # The look answers for all layers of a host before the first play of a layer.
        summary.layers = {tag: summary.layers[tag] for tag in TAGS if tag in summary.layers}
        summary.idle = self._idle and not (stats.failures or stats.dark)
        wrong = UNREACHABLE_STATUS if stats.dark else EXIT_STATUS
        status = wrong if summary.expected else 0  # until all records are read
        try:
            incomplete = summary.incomplete
            status = wrong if incomplete else 0
            if self._drift:
                status = self._show_drift(self._drift)
            elif self._shared:
                status = self._shared["status"]
                self._show_lines("SUMMARY", self._shared["summary_lines"], bool(status))
            elif summary.any:
                self._show(bool(summary.failed or summary.unreachable or incomplete))
        except Exception as error:  # Ansible would only warn, and the run might succeed
            self._terminal.error(f"The summary cannot be shown: {error!r}")
            status = status or EXIT_STATUS * bool(self._drift)
        # Not left to Ansible, whose status is 0 if a layer's rescue has cleared its failed hosts.
        if status:
            raise SystemExit(status)

    def _show(self, failed: bool) -> None:
        summary = self._summary
        seconds = time.monotonic() - self._began
        limit = self.get_option("remote_execution_limit")
        check_mode = bool(context.CLIARGS.get("check"))
        content = summary.report(self._started.isoformat(), seconds, limit, check_mode)
        self._print("SUMMARY", summary.lines(seconds, limit), failed, content)

    def _show_drift(self, settings: Settings) -> int:
        """The exit status."""
        summary, seconds = self._summary, time.monotonic() - self._began
        inventory = self._play.get_variable_manager()._inventory
        asked_of = context.CLIARGS
        found = drift.evaluate(
            summary,
            settings,
            self._folder(),
            self._started,
            seconds,
            facts=lambda name: inventory.get_host(name).get_vars(),
            whole=not asked_of.get("subset")
            and not asked_of.get("skip_tags")
            and "all" in (asked_of.get("tags") or ["all"]),
        )
        lines = drift.lines(found.report) + (summary.problems() if summary.undone else [])
        self._print("DRIFT", lines + summary.stand_ins(), bool(found.status), found.report)
        for warning in found.warnings:
            self._terminal.warning(warning)
        return found.status

    def _print(
        self, title: str, lines: list[str], failed: bool, content: Mapping[str, Any]
    ) -> None:
        """Show the lines and the path of the report, which is saved."""
        self._show_lines(title, lines, failed)
        try:
            self._terminal.display(f"report: {self._save(content)}")
        except OSError as error:
            self._terminal.warning(
                f"The report was not saved: {error}. Set BAREMETAL_MPI_ROCE_REPORTS to a writable "
                "directory."
            )

    def _show_lines(self, title: str, lines: list[str], failed: bool) -> None:
        self._display.banner(title)
        for line in lines:
            self._terminal.display(line, color=C.COLOR_ERROR if failed else C.COLOR_OK)

    def _take(self, result: Any) -> None:
        host = result._host.get_name()
        fields = printable(result._result)  # modules of other collections may return arbitrary text
        self._summary.add_result(host, fields)
        if result._task.action == VERIFY and "drift" in fields:  # computed on the controller
            self._drift = Settings.of(fields["drift"])
        if result._task.action == LOOK and "unchanged" in fields:
            self._take_look(host)
        if result._task.action == SHARE and "summary_lines" in fields:
            self._shared = fields
        if result._task.action == REBOOT:
            self._summary.add_reboots(host, fields)
        items = [fields]
        if result._task.loop is not None:
            items = [item for item in fields.get("results") or [] if isinstance(item, dict)]
            for item in items:
                self._summary.add_result(host, item)
        count = sum(_executions(result._task.action, item) for item in items)
        delegate = result._task_fields.get("delegate_to")
        if count and not self._is_local(str(delegate or host), result):
            self._summary.executions[str(delegate or host)] += count

    def _take_look(self, host: str) -> None:
        """Count the unchanged layers of a host as if each had its own task."""
        for tag, layer in look.kept(host).items():
            self._idle = False
            self._summary.add_result(host, layer)
            if self._summary.verifies:
                self._summary.expected.setdefault(tag, {})[host] = ""

    def _is_local(self, name: str, result: Any) -> bool:
        if name not in self._local_hosts:
            manager = self._play.get_variable_manager()
            host = manager._inventory.get_host(name)
            variables = manager.get_vars(play=self._play, host=host, include_hostvars=False)
            connection = variables.get("ansible_connection") or result._task_fields["connection"]
            self._local_hosts[name] = str(connection).rpartition(".")[2] == "local"
        return self._local_hosts[name]

    def _folder(self) -> Path:
        cluster = re.sub(r"[^A-Za-z0-9._-]", "_", self._summary.cluster) or "unnamed"
        return Path(self.get_option("report_directory")) / cluster

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder() / f"{name}-{self._started:%Y%m%dT%H%M%S.%f}Z.{suffix}"

    def _save(self, content: Mapping[str, Any]) -> str:
        path = self._path(content.get("kind") or Path(self._summary.playbook).stem, "json")
        save(path, content)
        self._summary.records.remove()
        pages.write(path, self._terminal)
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@cache
def _spare_workers() -> None:
    """Let a worker, which executes one task, collect garbage seldom: 16 % of its CPU time."""
    os.register_at_fork(after_in_child=partial(gc.set_threshold, WORKER_THRESHOLD))


def _looks(task: Any) -> bool:
    """Whether a task belongs to the look, after which a run may have nothing to do."""
    own = str(task.action).startswith(COLLECTION)
    return task.action == LOOK or (own and bool(task.args.get("look")))


def _executions(action: str, fields: Mapping[str, Any]) -> int:
    """Number of modules executed for a result; actions of this collection report theirs."""
    count = fields.get(EXECUTIONS, 0)
    if action.startswith(COLLECTION):
        return count if isinstance(count, int) else 0
    return int(any(key in fields for key in MODULE_KEYS))


def _as_given(source: str) -> str:
    """An inventory source relative to the working directory; Ansible made its path absolute."""
    path = Path(source)
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(source)


def _first_line(fields: Mapping[str, Any]) -> str:
    line = printable(str(fields.get("msg") or "").strip().partition("\n")[0])
    return shortened(line, MAX_REASON_CHARACTERS)

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
  - Prints, layer by layer, how many of the C(checks) that this collection's modules return hold,
    cannot apply to these machines and why, or fail; hosts that failed, were not reached or need a
    reboot; and what was simulated. After C(playbooks/reboot.yml), the outcome of each host.
  - Counts the modules executed on each host over its connection, unless that is V(local).
  - Saves all of it as JSON. Prints nothing when no layer ran or was left out, and no host failed.
  - Of this collection's playbooks, refuses C(--tags) that nothing in the playbook has, before any
    host is touched; and ends the run with exit status 2 when C(--limit) leaves out all hosts of a
    layer that C(--tags) names, and when nothing was done.
options:
  report_directory:
    description:
      - Directory of the reports; a directory named after the cluster is made in it.
      - A relative path in the environment starts at the working directory, one in a configuration
        file at that file.
    type: path
    default: reports
    env:
      - name: BAREMETAL_MPI_ROCE_REPORTS
    ini:
      - section: callback_summary
        key: report_directory
  remote_execution_limit:
    description: Number of module executions on one compute node above which the summary warns.
    type: int
    default: 60
    env:
      - name: BAREMETAL_MPI_ROCE_REMOTE_EXECUTION_LIMIT
    ini:
      - section: callback_summary
        key: remote_execution_limit
requirements:
  - To be enabled, C(callbacks_enabled = baremetal.mpi_roce.summary) in ansible.cfg or
    E(ANSIBLE_CALLBACKS_ENABLED=baremetal.mpi_roce.summary).
"""

import contextlib
import fcntl
import functools
import gc
import json
import os
import re
import tempfile
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase
from ansible.utils import color as terminal
from ansible.utils.display import Display

from ..module_utils.core.checks import STRICT
from ..module_utils.core.text import bytes_text, printable, shortened
from ..plugin_utils import asked
from ..plugin_utils.answers import finite
from ..plugin_utils.report import summary as report
from ..plugin_utils.report.reports import save
from ..plugin_utils.report.summary import ROLES, RunSummary

MOST_BYTES = 32 << 20
"""Of what a command prints on a host, a module among them."""
MOST_CHARACTERS = 20_000
"""Of a module's message."""
MOST_OF_REASON = 1000
"""Characters of why a host failed, in the summary."""
MOST_SHOWN = 1 << 20
"""Characters of a line, a result or a difference, on the terminal and in the log."""
EXIT_STATUS = 2
"""Of a run that did not do what was asked for: Ansible's own for failed hosts."""
NOISE = ("Shared connection to ", "Connection to ", "debug1: ", "debug2: ", "debug3: ", "OpenSSH_")
"""How lines of ssh itself begin, next to what the host printed."""
REBOOT = "baremetal.mpi_roce.cluster_reboot"
COLOUR = re.compile(r"(\x1b\[(?:0|[01];3[0-7]|38;5;\d{1,3})m)")
"""As Ansible puts it into its own lines."""


def _instead(owner, name, method):
    """Has `method` called in the place of one of Ansible's, with that one first.

    Workers are forked from this process, so what stands here stands there.
    """
    original = getattr(owner, name)
    original = getattr(original, "stands_for", original)

    @functools.wraps(original)
    def called(*args, **kwargs):
        return method(original, *args, **kwargs)

    called.stands_for = original
    setattr(owner, name, called)


def _display(original, display, msg, *args, **kwargs):
    """All that Ansible shows or logs comes by here: results, differences, complaints of ssh."""
    if getattr(display, "_final_q", None):  # of a worker: it comes by here in the main process
        return original(display, msg, *args, **kwargs)
    # A program reads JSON of all hosts, which is one message; half a message has no last colour.
    if len(msg) > MOST_SHOWN and "json" not in C.DEFAULT_STDOUT_CALLBACK:
        msg = shortened(COLOUR.sub("", msg), MOST_SHOWN)
    parts = COLOUR.split(msg) if terminal.ANSIBLE_COLOR else [msg]
    parts[::2] = map(printable, parts[::2])
    return original(display, "".join(parts), *args, **kwargs)


def _command(original, *args, **kwargs):
    answer = original(*args, **kwargs)
    size = len(answer["stdout"]) + len(answer["stderr"])
    if size > MOST_BYTES:
        raise AnsibleError(
            f"the host answered a command with {bytes_text(size)}, and more than "
            f"{bytes_text(MOST_BYTES)} are not taken: log in there, and look at what prints it"
        )
    return answer


class ExecutionCount:
    """Counts module executions on remote hosts, in whichever worker they happen, and makes their
    answers printable.

    Each execution appends one line to a nameless file that all workers hold open.
    """

    def __init__(self):
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the run)
        number = self._file.fileno()
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)

    def install(self):
        _instead(Display, "display", _display)
        _instead(ActionBase, "_low_level_execute_command", _command)
        _instead(ActionBase, "_execute_module", self._counted)

    def _counted(self, original, action, *args, **kwargs):
        try:
            # Raises when the host is unreachable. Reports and other tasks have the answer.
            result = printable(original(action, *args, **kwargs))
        except RecursionError:
            raise AnsibleError("the module's answer is JSON of too many levels") from None
        if "module_stdout" in result:  # Ansible's message has no word of what the host printed
            result["msg"] = _without_result(result)
        if len(str(result.get("msg"))) > MOST_CHARACTERS:
            result["msg"] = shortened(str(result["msg"]), MOST_CHARACTERS)
            result.pop("exception", None)  # it has the message too
        with contextlib.suppress(Exception):  # a figure less, never a run less
            self._note(action, kwargs.get("task_vars") or {})
        return result

    def _note(self, action, task_vars):
        if action._connection.transport.rpartition(".")[2] == "local":
            return
        host = action._task.delegate_to or task_vars.get("inventory_hostname", "unknown")
        os.write(self._file.fileno(), f"{host}\n".encode())

    def read(self):
        number = self._file.fileno()
        size = os.fstat(number).st_size
        return Counter(os.pread(number, size, 0).decode().split())


def _without_result(fields):
    """Why a module did not answer: the last line of sudo, a shell or Python, where it is said."""
    printed = f"{fields['module_stdout']}\n{fields.get('module_stderr') or ''}".splitlines()
    said = [line.strip() for line in printed if line.strip() and not line.startswith(NOISE)]
    status = fields.get("rc")
    why = said[-1] if said else "it printed nothing"
    at = "" if said and status in (0, 1) else f" with exit status {status}"
    return f"the module ended without a result{at}: {why}"


def _shown(source):
    """An inventory as a command may name it: Ansible has made the path of each an absolute one."""
    path = Path(source)
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(source)


def _first_line(fields):
    line = printable(str(fields.get("msg") or "").strip().partition("\n")[0])
    return shortened(line, MOST_OF_REASON)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "baremetal.mpi_roce.summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._summary = report.current = RunSummary()
        self._verified = ""  # layer of the play, if it is one of playbooks/verify.yml
        self._always = False  # whether the play is one of those that no --tags leaves out
        self._idle = False  # until a task ends in another play, if the playbook has layers
        self._count = None
        self._began = time.monotonic()
        self._started = datetime.now(timezone.utc)

    def v2_playbook_on_start(self, playbook):
        self._summary.playbook = Path(playbook._file_name).name
        given = context.CLIARGS.get("inventory") or ()
        self._summary.inventories = tuple(_shown(source) for source in given)
        if C.INJECT_FACTS_AS_VARS:
            self._display.warning(
                "inject_facts_as_vars is on: a compromised host sets variables of roles, such as"
                " names of files on the controller, by its facts. Set it to False in ansible.cfg."
            )
        self._summary.limit = printable(str(context.CLIARGS.get("subset") or ""))
        if len(context.CLIARGS.get("args") or ()) == 1:  # or a layer may be in another playbook
            plays = playbook.get_plays()
            wrong = asked.misspelt(plays)
            for line in wrong:
                self._display.error(printable(line), wrap_text=False)
            if wrong:
                raise SystemExit(EXIT_STATUS)  # Ansible makes a warning of an exception
            only = context.CLIARGS.get("tags") or ()
            self._idle = "always" not in only and any(map(asked.layer_of, plays))
        self._count = ExecutionCount()
        self._count.install()

    def v2_playbook_on_play_start(self, play):
        # Ansible forks for each task and host. A child's garbage collector would go through all
        # that there is, and copy it: 4 % of the time with 100 nodes (--bench controller).
        gc.freeze()
        manager = play.get_variable_manager()
        inventory = manager._inventory
        strict = STRICT in str(play.environment)
        wanted = asked.is_asked(play)
        hosts = [host.name for host in inventory.get_hosts(play.hosts)] if strict and wanted else []
        self._verified = asked.tag_of(play) if hosts else ""
        self._always = asked.tag_of(play) == "always"
        layer = asked.layer_of(play) if wanted else ""
        absent = asked.left_out(play, inventory) if layer else None
        if absent is not None:
            self._summary.left_out[layer] = absent
            if layer in play.only_tags:
                self._summary.named.add(layer)
        if hosts:
            self._summary.expected[self._verified] = dict.fromkeys(hosts, report.NOT_LOOKED_AT)
        if self._summary.roles:
            return
        hosts = inventory.get_hosts(ignore_limits=True, ignore_restrictions=True)
        for host in hosts:
            groups = {group.name for group in host.get_groups()}
            role = next((role for role in ROLES if role in groups), None)
            if role:
                self._summary.roles[host.name] = role
        if hosts:
            variables = manager.get_vars(play=play, host=hosts[0])
            self._summary.cluster = str(variables.get("cluster_name", ""))

    def v2_runner_on_ok(self, result):
        self._take(result)
        self.v2_runner_on_skipped(result)
        if self._verified and result._result.get("changed"):
            host, task = result._host.get_name(), result._task.get_name()
            self._summary.would_change(self._verified, host, task, result._result)

    def v2_runner_on_skipped(self, result):
        self._idle = self._idle and self._always
        hosts = self._summary.expected.get(self._verified, {})
        host = result._host.get_name()
        lost = host in self._summary.unreachable  # on it, only what needs no connection ends well
        if hosts.get(host) == report.NOT_LOOKED_AT and not lost:
            hosts[host] = ""

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._take(result)
        if ignore_errors or "verdict" in result._result:
            return
        host, task, fields = result._host.get_name(), result._task.get_name(), result._result
        self._summary.failed[host] = why = ": ".join(filter(None, (task, _first_line(fields))))
        if self._verified:
            self._summary.expected[self._verified][host] = why
            if result._task.diff and fields.get("diff"):  # Ansible shows those of successes alone
                self._display.display(self._get_diff(fields["diff"]))

    def v2_runner_on_unreachable(self, result):
        host, why = result._host.get_name(), _first_line(result._result)
        self._summary.unreachable[host] = why
        if self._verified:
            self._summary.expected[self._verified][host] = why

    def v2_playbook_on_stats(self, stats):
        summary = self._summary
        # A rescued failure is none, except where it is verified; a host that came back is not
        # unreachable.
        if not summary.expected:
            summary.failed = {h: t for h, t in summary.failed.items() if stats.failures.get(h)}
        summary.unreachable = {h: t for h, t in summary.unreachable.items() if stats.dark.get(h)}
        summary.changed = Counter({h: n for h, n in stats.changed.items() if n})
        if self._count:
            summary.executions = self._count.read()
        failed = stats.failures or stats.dark  # Ansible has its exit status for it
        summary.idle = self._idle and not failed
        if summary.any:
            self._show()
        if summary.incomplete and not failed:
            raise SystemExit(EXIT_STATUS)

    def _show(self):
        summary = self._summary
        seconds = time.monotonic() - self._began
        limit = self.get_option("remote_execution_limit")
        self._display.banner("SUMMARY")
        bad = summary.failed or summary.unreachable or summary.incomplete
        for line in summary.lines(seconds, limit):
            self._display.display(line, color=C.COLOR_ERROR if bad else C.COLOR_OK)
        try:
            self._display.display(f"report: {self._save(seconds, limit)}")
        except OSError as error:
            self._display.warning(
                f"The report was not saved: {error}. Set BAREMETAL_MPI_ROCE_REPORTS to a directory "
                "that can be written."
            )

    def _take(self, result):
        host = result._host.get_name()
        fields = printable(result._result)  # a switch's answer comes by no module execution
        self._summary.add_result(host, fields)
        if result._task.action == REBOOT:
            self._summary.add_reboots(host, fields)
        for item in fields.get("results") or [] if result._task.loop is not None else ():
            if isinstance(item, dict):
                self._summary.add_result(host, item)

    def _save(self, seconds, limit):
        check_mode = bool(context.CLIARGS.get("check"))
        report = self._summary.report(self._started.isoformat(), seconds, limit, check_mode)
        name = Path(self._summary.playbook).stem
        cluster = re.sub(r"[^A-Za-z0-9._-]", "_", self._summary.cluster) or "unnamed"
        directory = Path(self.get_option("report_directory")) / cluster
        path = directory / f"{name}-{self._started:%Y%m%dT%H%M%S.%f}Z.json"
        save(path, json.dumps(finite(report), default=str) + "\n")
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The terminal of a run on many hosts: a line per play, and hosts only where they differ."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: stdout
short_description: Shows a line per play, and hosts only where they differ
version_added: "1.0.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Output of ansible-playbook for hundreds of hosts. At the end of each play, prints one line with
    the numbers of hosts that completed it, changed, failed and were unreachable, the host that took
    longest, and the time. Until then, a terminal shows the current task and its progress in the
    last line; a log gets at most one such line a minute.
  - Hosts that changed are one line per task, or their diffs with C(--diff). Failed and unreachable
    hosts, warnings and messages of C(debug) are shown in full, as the default callback does. The
    recap lists hosts with equal numbers in one line.
  - With fewer hosts than O(hosts), and with C(-v), this is the default callback.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
options:
  hosts:
    description: Minimum number of hosts that the inventory and C(--limit) select. 0 disables it.
    type: int
    default: 32
    env:
      - name: BAREMETAL_MPI_ROCE_PROGRESS_HOSTS
    ini:
      - section: callback_progress
        key: hosts
requirements:
  - Set C(stdout_callback = baremetal.mpi_roce.progress) in the section C(defaults) of ansible.cfg.
"""

import argparse
import time
from typing import Any, Optional

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default

from ..module_utils.core.text import counted, one_line
from ..plugin_utils.report.preflight import ranges
from ..plugin_utils.report.summary import COLLECTION
from ..plugin_utils.terminal import Terminal

REDRAW_S = 0.2
LOG_S = 60.0
MAX_NAME = 48
COUNTS = ("changed", "failed", "unreachable")


class CallbackModule(Default):
    CALLBACK_NAME = f"{COLLECTION}progress"

    def __init__(self) -> None:
        super().__init__()
        self._terminal = Terminal()
        self._compact: Optional[bool] = None  # not known before the first play
        self._live = False  # the last line is redrawn in place
        self._drawn = False
        self._title = ""
        self._hosts = 0
        self._began = self._shown = 0.0
        self._task = ""
        self._task_done = 0
        self._done: set[str] = set()  # hosts with a result in this play
        self._bad: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._changed: dict[str, tuple[Any, list[str]]] = {}  # task and hosts, not yet shown

    # The play: one line at its end.

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self._compact is None:
            manager = play.get_variable_manager()
            least, number = self.get_option("hosts"), len(manager._inventory.get_hosts())
            self._compact = 0 < least <= number and not self._display.verbosity
            self._live = self._compact and self._terminal.redraws
            if self._compact:
                self.set_option("display_ok_hosts", False)
                self.set_option("display_skipped_hosts", False)
        if not self._compact:
            super().v2_playbook_on_play_start(play)
            return
        self._end_play()
        self._play = play  # of the default callback
        self._title = one_line(play.get_name()).partition(" - ")[0][:MAX_NAME]
        self._hosts = len(play.get_variable_manager()._inventory.get_hosts(play.hosts))
        self._began = self._shown = time.monotonic()
        self._done, self._bad, self._took = set(), {key: set() for key in COUNTS}, {}

    def _end_play(self) -> None:
        self._show_changed()
        self._erase()
        if self._done:
            parts = [f"{len(self._done)} of {counted(self._hosts, 'host')}"]
            parts += [f"{len(self._bad[key])} {key}" for key in COUNTS if self._bad[key]]
            slowest = max(self._took, key=self._took.__getitem__)
            parts.append(f"slowest {slowest} {_seconds(self._took[slowest])}")
            parts.append(_seconds(time.monotonic() - self._began))
            wrong = self._bad["failed"] or self._bad["unreachable"]
            color = C.COLOR_ERROR if wrong else C.COLOR_OK
            color = C.COLOR_CHANGED if self._bad["changed"] and not wrong else color
            self._terminal.display(f"{self._title}: {', '.join(parts)}", color=color)
        self._done = set()

    # A task: progress.

    def _task_start(self, task: Any, prefix: Optional[str] = None) -> None:
        if self._compact:
            self._show_changed()
            self._task, self._task_done = one_line(task.get_name()).rpartition(" : ")[2], 0
            self._draw()
        super()._task_start(task, prefix)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if self._compact:
            self._since[host.name] = time.monotonic()
        super().v2_runner_on_start(host, task)

    def _took_part(self, result: Any, kind: str = "") -> None:
        host, now = result._host.get_name(), time.monotonic()
        self._done.add(host)
        self._took[host] = self._took.get(host, 0.0) + now - self._since.pop(host, now)
        self._task_done += 1
        if kind:
            self._bad[kind].add(host)

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._shown < (REDRAW_S if self._live else LOG_S):
            return
        self._shown = now
        line = f"{self._title}: {self._task}: {self._task_done} of {self._hosts} hosts"
        line += f", {_seconds(now - self._began)}"
        if self._live:
            self._terminal.redraw(line)
            self._drawn = True
        else:
            self._terminal.display(line)

    def _erase(self) -> None:
        if self._drawn:
            self._terminal.redraw()
            self._drawn = False

    # Results.

    def v2_runner_on_ok(self, result: Any) -> None:
        if not self._compact:
            super().v2_runner_on_ok(result)
            return
        changed, task = result.is_changed(), result._task
        self._took_part(result, "changed" if changed else "")
        if task.action in C._ACTION_DEBUG:
            self.set_option("display_ok_hosts", True)
            self._erase()
            super().v2_runner_on_ok(result)
            self.set_option("display_ok_hosts", False)
        elif changed and (task.loop is not None or (task.diff and result._result.get("diff"))):
            self._erase()
            super().v2_runner_on_ok(result)
        else:
            self._warn(result)
            if changed:
                self._changed.setdefault(task._uuid, (task, []))[1].append(result._host.get_name())
        self._draw()

    def _warn(self, result: Any) -> None:
        if not hasattr(result, "warnings"):  # ansible-core 2.18
            self._handle_warnings(result._result)
        elif result.warnings or result.deprecations:
            self._erase()
            self._handle_warnings_and_exception(result)

    def _show_changed(self) -> None:
        """Tasks and the hosts that they changed."""
        waiting, self._changed = self._changed, {}
        for task, hosts in waiting.values():
            self._erase()
            if self._last_task_banner != task._uuid:
                self._print_task_banner(task)
            of = f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""
            self._terminal.display(f"changed: [{ranges(hosts)}]{of}", color=C.COLOR_CHANGED)

    def v2_runner_on_skipped(self, result: Any) -> None:
        if self._compact:
            self._took_part(result)
            self._warn(result)
            self._draw()
        else:
            super().v2_runner_on_skipped(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if self._compact:
            self._took_part(result, "" if ignore_errors else "failed")
            self._erase()
        super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if self._compact:
            self._took_part(result, "unreachable")
            self._erase()
        super().v2_runner_on_unreachable(result)

    def v2_on_file_diff(self, result: Any) -> None:
        if not self._compact or result.is_changed():
            self._erase()
            super().v2_on_file_diff(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        if not self._compact or result.is_changed():
            self._erase()
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._erase()
        super().v2_runner_item_on_failed(result)

    def v2_runner_retry(self, result: Any) -> None:
        self._erase()
        super().v2_runner_retry(result)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        if not self._compact:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        if not self._compact:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self._show_changed()
        self._erase()
        super().v2_playbook_on_no_hosts_remaining()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if not self._compact:
            super().v2_playbook_on_stats(stats)
            return
        self._end_play()
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for host in sorted(stats.processed):
            groups.setdefault(tuple(stats.summarize(host).items()), []).append(host)
        rows = {
            ranges(hosts) + (f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""): dict(numbers)
            for numbers, hosts in groups.items()
        }
        super().v2_playbook_on_stats(
            argparse.Namespace(processed=rows, summarize=rows.get, custom=stats.custom)
        )


def _seconds(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes} min {int(seconds) % 60} s" if minutes else f"{seconds:.1f} s"

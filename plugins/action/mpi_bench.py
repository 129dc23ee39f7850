# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the sweeps as jobs on the launcher, and reports what they printed."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ..module_utils.core.checks import as_dicts, failures
from ..module_utils.core.part import PlanError
from ..module_utils.mpi.job import LAST_BYTES
from ..modules.mpi_bench import ARGUMENTS
from ..plugin_utils import bench
from ..plugin_utils.answers import PATH, AnswerError, form_of
from ..plugin_utils.marked import answer, question
from ..plugin_utils.report import bench as table
from ..plugin_utils.report import reports
from .mpi_job import ActionModule as JobAction

display = Display()

LAYER = "bench"
OF_JOB = ("nodes", "user", "hostfile", "provider", "parameters", "transport", "time_limit_s")
"""Options that go to the module mpi_job as they are."""


class ActionModule(JobAction):
    LAYER = LAYER

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super(JobAction, self).run(tmp, task_vars)
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            return {**result, **self.measured(given, task_vars)}
        except (AnswerError, PlanError) as error:
            raise AnsibleActionFail(f"{LAYER}: {error}") from error

    def measured(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """All of it, with options as the specification makes them."""
        names = [each.name for each in fields(bench.Wanted)]
        listed = {
            name: tuple(given[name]) if isinstance(given[name], list) else given[name]
            for name in names
        }
        wanted = bench.Wanted(**listed)
        ranks = bench.ranks_of(given["nodes"])
        try:
            launches = bench.launches(wanted, ranks)
        except PlanError as error:
            raise AnsibleActionFail(f"{LAYER}: nothing was started: {error}") from error
        sweeps: list[bench.Sweep] = []
        virtual = False
        for launch in launches:
            of_job = {name: given[name] for name in OF_JOB}
            arguments = {**of_job, **launch.arguments, "storage": False}
            found = self.job(arguments, task_vars)
            if self._task.check_mode:
                display.display("bench: check mode, nothing is measured")
            if found.get("failed") or self._task.check_mode:
                return {**found, "layer": LAYER, "changed": False}
            virtual = virtual or bool(found.get("virtual"))
            try:
                directory = PATH.of(found.get("directory"), "the directory of the job")
            except AnswerError as error:
                raise AnsibleActionFail(f"{LAYER}: {error}: the launcher answered it") from None
            output = self._output(directory)
            with form_of("what the ranks printed"):
                if wanted.program == "nccl":
                    read = [bench.parse_nccl(output, launch.where)]
                else:
                    read = bench.parse(output, launch.where, len(ranks))
            if len(read) < launch.tables:
                raise AnsibleActionFail(
                    f"{LAYER}: {len(read)} of {launch.tables} tables are in the last "
                    f"{LAST_BYTES >> 20} MiB of {directory}/output.log on the launcher: "
                    "look there for other output; fewer mpi_bench_benchmarks leave room"
                )
            sweeps += read[: launch.tables]
        with form_of("what the ranks printed"):
            for sweep in sweeps:
                bench.expect(sweep, wanted, ranks)
        return self._reported(given, wanted, sweeps, virtual)

    def show(self, line: str) -> None:
        """Headings and what went wrong; figures come as a table."""
        text = bench.TAG.sub("", line)
        if text.strip() and not text[0].isdigit() and not text.startswith("# Size"):
            display.display(f"bench: {text.lstrip('# ')}")

    def _output(self, directory: str) -> str:
        command = question(f"tail -c {LAST_BYTES} {shlex.quote(directory)}/output.log")
        return answer(self._low_level_execute_command(command)["stdout"]) or ""

    def _reported(
        self, given: dict[str, Any], wanted: bench.Wanted, sweeps: list[bench.Sweep], virtual: bool
    ) -> dict[str, Any]:
        for line in table.lines(wanted.program, sweeps, virtual):
            display.display(line)
        checks = [bench.judge(sweep, virtual) for sweep in sweeps]
        found = {
            "program": wanted.program,
            "transport": given["transport"],
            "virtual": virtual,
            "sweeps": [sweep.as_dict() for sweep in sweeps],
            "checks": as_dicts(checks),
        }
        result = {**found, "changed": False, "layer": LAYER}
        if given["report_directory"]:
            directory = Path(given["report_directory"])
            path = reports.keep(directory, LAYER, found, display, "mpi_bench_report_directory")
            result["report"] = path
            drawn = path and table.draw(Path(path).parent, Path(path).stem, sweeps, virtual)
            if drawn is None:
                display.display(table.WITHOUT)
            for drawing in drawn or []:
                display.display(f"bench: drawn in {drawing}")
        wrong = failures(checks)
        if wrong:
            listed = "\n".join(f"  {check.line()}" for check in wrong)
            result.update(failed=True, msg=f"bench: below what is expected:\n{listed}")
        return result

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the sweeps as jobs on the launcher, and reports their figures."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.checks import as_dicts, failures
from ..module_utils.core.part import PlanError
from ..module_utils.mpi.job.run import MAX_BYTES
from ..modules.mpi_bench import ARGUMENTS
from ..plugin_utils import pages
from ..plugin_utils.answers import PATH, AnswerError, form_of
from ..plugin_utils.marked import answer, question
from ..plugin_utils.mpi import bench
from ..plugin_utils.report import bench as table
from ..plugin_utils.report import reports
from ..plugin_utils.terminal import display
from .mpi_job import ActionModule as JobAction

LAYER = "bench"
OF_JOB = (
    *("nodes", "user", "hostfile", "provider", "start_with", "slurm_options", "parameters"),
    *("transport", "time_limit_s"),
)
"""Options passed unchanged to the module mpi_job."""


class ActionModule(JobAction):
    LAYER = LAYER
    OUTPUT_BYTES = MAX_BYTES

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            return self.measured(given, task_vars)
        except (AnswerError, PlanError) as error:
            raise AnsibleActionFail(f"{LAYER}: {error}") from error

    def measured(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        values = {option.name: given[option.name] for option in fields(bench.BenchOptions)}
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        kinds = bench.kinds_of(given["nodes"], given["kind"], given["program"])
        nodes = [node for node in given["nodes"] if not kinds or node.get("kind") in kinds]
        if not any(node["rails"] for node in bench.measured(nodes)):
            given = {**given, "transport": "tcp"}  # as the job chooses
        ranks = bench.ranks_of(nodes)
        options = bench.BenchOptions(**{**values, **lists})
        jobs = bench.jobs_of(options, ranks)
        sweeps: list[bench.Sweep] = []
        of_job, virtual = {**{name: given[name] for name in OF_JOB}, "kind": kinds}, False
        for job in jobs:
            found = self.job({**of_job, **job.arguments, "storage": False}, task_vars)
            if found.get("failed") or self._task.check_mode:
                return {**found, "layer": LAYER, "changed": False}
            virtual = virtual or bool(found.get("virtual"))
            directory = PATH.of(found.get("directory"), "the directory of the job")
            output = self._output(directory)
            with form_of("output of the ranks"):
                parsed = bench.tables_of(options.program, output, job, len(ranks))
            if len(parsed) < job.tables:
                raise AnsibleActionFail(
                    f"{LAYER}: {len(parsed)} of {job.tables} tables are in the last "
                    f"{self.OUTPUT_BYTES >> 20} MiB of {directory}/output.log on the launcher: "
                    "check it for other output, or select fewer mpi_bench_benchmarks"
                )
            sweeps += parsed[: job.tables]
        with form_of("output of the ranks"):
            for sweep in sweeps:
                bench.expect(sweep, options, ranks)
        return self._reported(given, sweeps, virtual)

    def show(self, line: str) -> None:
        """Show headings and errors; figures are shown as a table later."""
        text = bench.TAG.sub("", line)
        if text.strip() and not text[0].isdigit() and not text.startswith("# Size"):
            display.display(f"bench: {text.lstrip('# ')}")

    def _output(self, directory: str) -> str:
        command = question(f"tail -c {self.OUTPUT_BYTES} {shlex.quote(directory)}/output.log")
        return answer(self._low_level_execute_command(command)["stdout"]) or ""

    def _reported(
        self, given: dict[str, Any], sweeps: list[bench.Sweep], virtual: bool
    ) -> dict[str, Any]:
        for line in table.lines(given["program"], sweeps, virtual):
            display.display(line)
        checks = [bench.evaluate(sweep, virtual) for sweep in sweeps]
        report = {
            "program": given["program"],
            "transport": given["transport"],
            "virtual": virtual,
            "sweeps": [sweep.as_dict() for sweep in sweeps],
            "checks": as_dicts(checks),
        }
        result = {**report, "changed": False, "layer": LAYER}
        if given["report_directory"]:
            directory = Path(given["report_directory"])
            path = reports.keep(directory, LAYER, report, display, "mpi_bench_report_directory")
            result["report"] = path
            if path:
                pages.write(path, display)
            drawn = path and table.draw(Path(path).parent, Path(path).stem, sweeps, virtual)
            if drawn is None:
                display.display(table.WITHOUT)
            for drawing in drawn or []:
                display.display(f"bench: drawn in {drawing}")
        failed = failures(checks)
        if failed:
            listed = "\n".join(f"  {check.line()}" for check in failed)
            result.update(failed=True, msg=f"bench: below the thresholds:\n{listed}")
        return result

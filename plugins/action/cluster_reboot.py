# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rolling reboot: each task of the role cluster_reboot is one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..modules.cluster_reboot import ARGUMENTS
from ..plugin_utils.reboot.host import MODULE, RebootingHost
from ..plugin_utils.reboot.steps import STEPS, RebootSteps
from ..plugin_utils.steps import Step, SteppedAction


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {name: partial(self._run_step, step) for name, step in STEPS.items()}

    def _run_step(
        self, step: Callable[[RebootSteps], dict[str, Any]], task_vars: Any
    ) -> dict[str, Any]:
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        host = RebootingHost(self, task_vars)
        return step(RebootSteps(host, arguments, task_vars, bool(self._task.check_mode)))

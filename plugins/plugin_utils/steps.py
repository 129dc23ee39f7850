# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Actions that a play calls several times, each time for a different step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from .actions import NodeAction

Step = Callable[[Any], dict[str, Any]]
"""A step: takes the variables of the task and returns its result."""


class SteppedAction(NodeAction):
    MODULE = ""
    """Module whose documentation lists the steps."""

    @abstractmethod
    def steps(self) -> Mapping[str, Step]:
        """Steps by the names that tasks use."""

    def act(self, task_vars: Any) -> dict[str, Any]:
        steps = self.steps()
        step = self._task.args.get("step")
        if step not in steps:
            raise AnsibleActionFail(f"step {step!r} is not known; see ansible-doc {self.MODULE}")
        return steps[step](task_vars)

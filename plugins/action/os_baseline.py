# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the module that the task names: this one, or one that meta/runtime.yml routes here."""

from __future__ import annotations

from typing import Any

from ..plugin_utils.actions import NodeAction


class ActionModule(NodeAction):
    _supports_async = True

    def act(self, task_vars: Any) -> dict[str, Any]:
        wrap_async = self._task.async_val and not self._connection.has_native_async
        return self._execute_module(task_vars=task_vars, wrap_async=wrap_async)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs on the controller, because only it has the variables of all hosts."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import VirtualError
from ansible_collections.baremetal.bed.plugins.plugin_utils.cluster import plan_cluster

ARGUMENTS: dict[str, dict[str, Any]] = {
    "names": {"type": "list", "elements": "str"},
    "defaults": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        groups = task_vars["groups"]
        hosts = {name: task_vars["hostvars"][name] for name in groups["all"]}
        try:
            plan = plan_cluster(hosts, groups, arguments["defaults"], arguments["names"])
        except VirtualError as error:
            return {**result, "failed": True, "msg": str(error)}
        return {**result, "changed": False, "plan": plan}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An action that returns a switch's text unchanged, in its diff or in its exception."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.actions import NodeAction


class ActionModule(NodeAction):
    def act(self, task_vars):
        text = "".join(map(str, self._task.args["said"]))  # without Ansible's tags
        if self._task.args.get("raise"):
            raise AnsibleActionFail(text)
        return {"changed": True, "diff": {"before": text, "after": "", "after_header": text}}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An action that has text of a switch in its difference or in its exception, as it came."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        said = "".join(map(str, self._task.args["said"]))  # text without a mark
        if self._task.args.get("raise"):
            raise AnsibleActionFail(said)
        return {"changed": True, "diff": {"before": said, "after": "", "after_header": said}}

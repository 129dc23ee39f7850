# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the folder of a new site on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..modules.cluster_site import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.site_folder import SCHEMA, SiteError, check, content, write
from ..plugin_utils.terminal import display


class ActionModule(NodeAction):
    _requires_connection = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if not given["path"]:
            raise AnsibleActionFail("the folder has no name: add --extra-vars site=PATH")
        site = Path(given["path"]).absolute()
        try:
            files = content(given["design"])
            check(site, files)
            if not self._task.check_mode:
                write(site, files)
                display.display(f"new site: {site}; {site}/README.md has the next steps")
        except SiteError as error:
            raise AnsibleActionFail(str(error)) from error
        diff = [
            {"before": "", "after": text, "before_header": "", "after_header": str(site / name)}
            for name, text in files.items()
            if text and name != SCHEMA
        ]
        return {"changed": True, "path": str(site), "files": sorted(files), "diff": diff}

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of shared storage: who the clients of a host are, and the key of Lustre.

A host that serves is told the addresses of its clients. All others are told nothing of the
cluster: ten thousand hosts that each hear of ten thousand would be no linear work.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.storage.reading import StorageError, read_filesystems
from ..plugin_utils.model.key_files import KeyFileError
from ..plugin_utils.report.storage import ADDRESSES, clients_of, lustre_key, servers_of

MODULE = "baremetal.mpi_roce.shared_storage"
LAYER = "storage"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        directory: Sequence[Mapping[str, Any]] = arguments.pop("directory", None) or []
        host = arguments.setdefault("host", str(task_vars["inventory_hostname"]))
        groups = arguments.setdefault("groups", list(task_vars["group_names"]))
        try:
            filesystems = read_filesystems(arguments.get("filesystems"))
            if "clients" not in arguments:
                further = partial(_further, task_vars["hostvars"])
                arguments["clients"] = clients_of(
                    host, filesystems, directory, task_vars["groups"], further
                )
            if "servers" not in arguments:
                variables = partial(_variables, task_vars["hostvars"])
                arguments["servers"] = servers_of(
                    host, filesystems, groups, variables, (AnsibleError,)
                )
            key = lustre_key(
                arguments.get("lustre"),
                filesystems,
                groups,
                Path(str(task_vars.get("inventory_dir") or ".")),
            )
        except (StorageError, KeyFileError) as error:
            return {
                "failed": True,
                "msg": f"storage: nothing was changed:\n{error}",
                "layer": LAYER,
                "checks": [],
            }
        if key:
            arguments["lustre_key"] = base64.b64encode(key).decode()
        found: dict[str, Any] = self._execute_module(
            MODULE, module_args=arguments, task_vars=task_vars
        )
        return found


def _variables(hostvars: Any, host: str) -> Mapping[str, Any]:
    """Templated as they are taken out; none of a host that is not in the inventory."""
    if host not in hostvars:  # whose value would be a marker, and no error
        return {}
    found: Mapping[str, Any] = hostvars[host]
    return found


def _further(hostvars: Any, host: str) -> Sequence[str]:
    """Without templating: of ten thousand hosts hardly one has any."""
    if ADDRESSES not in hostvars.raw_get(host):
        return ()
    found = hostvars[host][ADDRESSES]
    return [found] if isinstance(found, str) else list(found)

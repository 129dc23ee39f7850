# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prepare the arguments of shared_storage on the controller, and install the packages of Lustre.

Only a server receives the addresses of its clients, so that the work is linear in the number of
hosts. A separate module, which contains the code of package managers, installs Lustre packages.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..module_utils.storage.file_system import of_variable
from ..module_utils.storage.lustre import PRESENT
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.model.key_files import KeyFileError
from ..plugin_utils.shared_storage import (
    ADDRESSES,
    ClientError,
    LustreError,
    clients_of,
    lustre_key,
    lustre_settings,
    o2ib,
)

MODULE = "baremetal.mpi_roce.shared_storage"
PACKAGES = "baremetal.mpi_roce.lustre_packages"
LAYER = "storage"


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        arguments = dict(self._task.args)
        directory: Sequence[Mapping[str, Any]] = arguments.pop("directory", None) or []
        host = arguments.setdefault("host", str(task_vars["inventory_hostname"]))
        groups = arguments.setdefault("groups", list(task_vars["group_names"]))
        try:
            every = map(of_variable, arguments.get("filesystems") or [])
            filesystems = [fs for fs in every if fs.managed]
            if "clients" not in arguments:
                further = partial(_further_addresses, task_vars["hostvars"])
                arguments["clients"] = clients_of(
                    host, filesystems, directory, task_vars["groups"], further
                )
            lustre = lustre_settings(arguments.get("lustre"), filesystems, groups)
            key = lustre_key(lustre, Path(str(task_vars.get("inventory_dir") or ".")))
        except (ClientError, KeyFileError, LustreError) as error:
            return {
                "failed": True,
                "msg": f"storage: nothing was changed:\n{error}",
                "layer": LAYER,
                "checks": [],
            }
        arguments["lustre"] = lustre
        rdma_source = arguments.pop("rdma_source", "")
        packages = lustre.get("packages") or {}
        first: dict[str, Any] = {}
        if packages.get("method", PRESENT) != PRESENT:
            given = {
                "packages": packages,
                "key": base64.b64encode(key).decode(),
                "root": arguments.get("lustre_root", "/"),
                "o2ib": o2ib(lustre, filesystems),
                "rdma_source": rdma_source,
            }
            first = self._execute_module(PACKAGES, module_args=given, task_vars=task_vars)
            if first.get("failed"):
                return first
        result: dict[str, Any] = self._execute_module(
            MODULE, module_args=arguments, task_vars=task_vars
        )
        if first:
            result["changed"] = first["changed"] or result.get("changed", False)
            for name in ("diff", "checks"):
                result[name] = [*first.get(name, []), *result.get(name, [])]
        return result


def _further_addresses(hostvars: Any, host: str) -> Sequence[str]:
    """Addresses set on a host. Variables are templated only for hosts with such addresses."""
    if ADDRESSES not in hostvars.raw_get(host):
        return ()
    addresses = hostvars[host][ADDRESSES]
    return [addresses] if isinstance(addresses, str) else list(addresses)

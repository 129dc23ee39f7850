# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the cabling list of the model, and compare a wire map with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.text import counted
from ..modules.fabric_cabling import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.fabric import wire_map, wiring
from ..plugin_utils.model.cluster import DIGEST
from ..plugin_utils.report.reports import FolderError, replace_folder
from ..plugin_utils.schema.findings import listed
from ..plugin_utils.terminal import display


class ActionModule(NodeAction):
    """Reads the inventory on the controller; needs no connection, and ignores --limit."""

    _requires_connection = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if not given["directory"] and not given["wire_map"]:
            raise AnsibleActionFail(
                "nothing to do: add --extra-vars cabling_directory=FOLDER to write the list, or "
                "--extra-vars wire_map=FILE.csv to compare a list"
            )
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        raw = {name: hostvars.raw_get(name) for name in groups["all"]}
        hosts = {name: own for name, own in raw.items() if DIGEST in own}
        if not hosts:
            raise AnsibleActionFail("no host of the inventory is in a cluster model: check -i")
        wires = wiring.wires_of(hosts)
        result: dict[str, Any] = {"changed": False, "cables": len(wires)}
        if given["directory"]:
            result.update(self._write(Path(given["directory"]), wires, next(iter(hosts.values()))))
        if given["wire_map"]:
            result.update(_compared(Path(given["wire_map"]), wires))
        return result

    def _write(self, folder: Path, wires: list[wiring.Wire], variables: Any) -> dict[str, Any]:
        files = wiring.files_of(wires, str(variables["cluster_name"]))
        check_mode = bool(self._task.check_mode)
        try:
            changed = replace_folder(folder, files, wiring.NAMES, check_mode)
        except (FolderError, OSError) as error:
            raise AnsibleActionFail(f"the cabling list was not written: {error}") from error
        pages = counted(len(files) - 2, "page")
        where = f"{counted(len(changed), 'file')} to write in {folder}"
        where = where if check_mode else f"{pages} in {folder}/index.html"
        display.display(f"cabling: {counted(len(wires), 'cable')}, {where}")
        return {"changed": bool(changed), "files": changed}


def _compared(path: Path, wires: list[wiring.Wire]) -> dict[str, Any]:
    cables = [wire.cable for wire in wires]
    try:
        found = wire_map.compare(wire_map.read_lines(path), cables)
    except wire_map.WireMapError as error:
        raise AnsibleActionFail(f"{path}: {error}") from error
    display.display(
        f"cabling: {found.agree} of {counted(len(cables), 'cable')} in the model are in {path}; "
        f"{counted(found.outside, 'line')} of cables outside the model"
    )
    result = {
        "agree": found.agree,
        "outside": found.outside,
        "findings": [finding.text() for finding in found.findings],
    }
    if found.findings:
        return {**result, "failed": True, "msg": listed(f"{path}:", found.findings)}
    return result

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draft a model from the results of rdma_facts, or compare them with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.text import counted, some
from ..modules.cluster_discover import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import AnswerError
from ..plugin_utils.discover import differences
from ..plugin_utils.discover.differences import MachineDifference
from ..plugin_utils.discover.draft import Draft
from ..plugin_utils.discover.machines import DiscoveredMachine, read
from ..plugin_utils.discover.plan import NoDraftError
from ..plugin_utils.model import ModelError
from ..plugin_utils.model.cluster import DIGEST
from ..plugin_utils.terminal import display


class ActionModule(NodeAction):
    _requires_connection = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        hostvars = task_vars["hostvars"]
        machines, lost = [], []
        for host in task_vars["ansible_play_hosts_all"]:
            facts = (hostvars[host].get(given["read"]) or {}).get("ansible_facts")
            if not facts:
                lost.append(host)
                continue
            try:
                machines.append(read(host, facts, str(hostvars[host].get("ansible_host", host))))
            except AnswerError as error:
                display.warning(f"discover: {host}: {error}: find out who changed it")
                lost.append(host)
        if lost:
            display.warning(f"discover: not read, and skipped: {some(lost)}")
        raw = {machine.host: hostvars.raw_get(machine.host) for machine in machines}
        if any(DIGEST in variables for variables in raw.values()):
            found = against_model(machines, raw)
            self._show(found, machines, "the model")
            done = {"changed": False}
        else:
            path = Path(given["path"]).absolute()
            if path.exists():
                raise AnsibleActionFail(
                    f"{path} exists and is not overwritten: move it, or name another file "
                    "by --extra-vars discover_file=PATH"
                )
            try:
                draft = Draft(machines, task_vars["groups"])
            except (NoDraftError, ModelError) as error:
                raise AnsibleActionFail(f"no draft was written: {error}") from error
            found = against_most(draft)
            self._show(found, draft.nodes, "most of them")
            done = self._write(path, draft.text)
        return {
            **done,
            "differences": [difference._asdict() for difference in found],
            "not_read": lost,
        }

    def _write(self, path: Path, text: str) -> dict[str, Any]:
        if not self._task.check_mode:
            part = path.with_name(f".{path.name}.part")
            try:
                part.write_text(text, encoding="utf-8")
                path.hardlink_to(part)  # fails if the file has come into existence
                part.unlink()
            except OSError as error:
                part.unlink(missing_ok=True)
                raise AnsibleActionFail(f"the draft was not written: {error}") from error
            display.display(f"discover: draft in {path}; complete the lines with CHECK")
        shown = {"before": "", "after": text, "before_header": "", "after_header": str(path)}
        return {"changed": True, "path": str(path), "diff": [shown]}

    def _show(
        self, found: Sequence[MachineDifference], machines: Sequence[DiscoveredMachine], what: str
    ) -> None:
        hosts = {item.host for item in found}
        read_of = counted(len(machines), "node")
        display.display(f"discover: {read_of} read, {len(hosts)} differ from {what}")
        for line in differences.lines(found) if found else ():
            display.display(f"  {line}")


def against_model(
    machines: Sequence[DiscoveredMachine], variables: Mapping[str, Mapping[str, Any]]
) -> list[MachineDifference]:
    """Compare compute nodes with the variables that the model compiled."""
    nodes = [item for item in machines if variables[item.host].get("cluster_role") == "compute"]
    gpus = {
        node.host: [gpu["pci"] for gpu in variables[node.host]["cluster_gpus"] if gpu["pci"]]
        for node in nodes
    }
    wanted = {node.host: differences.wanted_by_model(node, variables[node.host]) for node in nodes}
    return [
        *differences.of_rails(nodes, differences.by_model(nodes, variables), aliases=True),
        *differences.of_gpus(nodes, gpus),
        *differences.of_systems(nodes, wanted),
    ]


def against_most(draft: Draft) -> list[MachineDifference]:
    nodes, shape = draft.nodes, draft.shape
    wanted = differences.by_majority(nodes, shape, draft.addressed())
    return [
        *differences.of_rails(nodes, wanted),
        *differences.of_gpus(nodes, {node.host: shape.of(node).gpus for node in nodes}),
        *(found for group in shape.groups(nodes) for found in differences.of_systems(group)),
    ]

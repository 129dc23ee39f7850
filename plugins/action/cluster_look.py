# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask a host once whether its layers are as the last run left them.

Nothing here fails a host that answers: without a usable answer, the plays of its layers run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ..plugin_utils import look
from ..plugin_utils.answers import mapping, sentence, sequence
from ..plugin_utils.layers import LOOK
from ..plugin_utils.steps import Step, SteppedAction
from . import slurm, ssh_trust


class ActionModule(SteppedAction):
    MODULE = "baremetal.mpi_roce.cluster_look"
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def steps(self) -> dict[str, Step]:
        return {"prepare": self._prepare, "look": self._look}

    def _prepare(self, task_vars: Any) -> dict[str, Any]:
        root = look.PLUGINS.parent
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        places = [root / name for name in look.OF_CONTROLLER]
        places += look.files_of_operator(map(hostvars.raw_get, groups["all"]))
        content = look.made()
        path = Path(C.DEFAULT_LOCAL_TMP) / "look.pyz"
        path.write_bytes(content)
        return {
            "changed": False,
            "program": str(path),
            "sha256": hashlib.sha256(content).hexdigest(),
            "files": look.of_files(places),
            "cluster": look.of_cluster(hostvars, groups),
        }

    def _look(self, task_vars: Any) -> dict[str, Any]:
        plan: Mapping[str, Any] = self._task.args["plan"]
        strict = boolean(self._task.args.get("strict", False))
        host = str(task_vars["inventory_hostname"])
        result: dict[str, Any] = {"changed": False, "unchanged": [], "host": "", "whole": ""}
        look.keep(host, {})  # another playbook of this run may have looked
        # No pattern excludes a host that has the name of a group.
        tags = [] if host in task_vars["groups"] else look.wanted(task_vars)
        try:
            own = look.of_host(self._templar, task_vars)
        except AnsibleError:  # the role that needs the variable reports it
            return result
        keys = {"host": look.digest([plan["files"], own])}
        keys["whole"] = look.digest([keys["host"], plan["cluster"]])
        current = self._current(tags, task_vars)
        tags = [tag for tag in tags if tag != ssh_trust.LAYER or tag in current]
        if not tags:
            return {**result, **keys}
        request = {
            "layers": [(tag, LOOK[tag][0], keys[LOOK[tag][1]]) for tag in tags],
            "now": time.time(),
            "strict": strict,
            "current": current,
        }
        send = not (strict or self._task.check_mode)
        found, result["sent"] = look.ask(self.command, plan, request, send=send)
        layers = mapping(mapping(found).get("layers"))
        unchanged = []
        for tag in tags:
            layer = mapping(layers.get(tag))
            if not look.unchanged(layer):
                break
            unchanged.append(tag)
        look.keep(host, {tag: layers[tag] for tag in unchanged})
        stopped = [sentence(word) for word in sequence(mapping(found).get("stopped"))[:2]]
        given = mapping(mapping(found).get("seconds"))
        seconds = {tag: given[tag] for tag in tags if isinstance(given.get(tag), (int, float))}
        return {**result, **keys, "unchanged": unchanged, "stopped": stopped, "seconds": seconds}

    def _current(self, tags: Sequence[str], task_vars: Any) -> dict[str, dict[str, Any]]:
        """Options that this run determines, by layer. Without those of SSH, its play runs."""
        found = {slurm.LAYER: self._of_slurm(task_vars)} if slurm.LAYER in tags else {}
        seen = task_vars.get("__ssh_trust_seen")
        own = ssh_trust.current(seen, str(task_vars["inventory_hostname"]))
        return {**found, ssh_trust.LAYER: own} if own else found

    def _of_slurm(self, task_vars: Any) -> dict[str, Any]:
        """Options of the layer that this run determines: the key, and the hosts of its play."""
        members = {*slurm.concerned(task_vars)}
        path = Path(str(self._task.args.get("munge_key"))).expanduser()
        return {
            "munge_digest": slurm.digest_of(path),
            "reached": [name for name in task_vars["ansible_play_hosts"] if name in members],
        }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads a host for its preflight; a host that cannot be read is reported as a finding. `read` shows
all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils.core.checks import FAILED, Check, as_dicts
from ..module_utils.software.software_set import DISTRIBUTION, SoftwareSet
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import checks, mapping
from ..plugin_utils.marked import no_prompt
from ..plugin_utils.model.key_files import KeyFileError, read_keys
from ..plugin_utils.report import preflight
from ..plugin_utils.terminal import display

MODULE = "baremetal.mpi_roce.cluster_preflight"
REACH = "ssh HOST with user and key of the inventory, and its host key among the known ones"
MAX_ERROR_CHARACTERS = 400
"""Number of an error's last characters that are shown."""
RUN = "ansible HOST -b -m ping: sudo without a password (or -K), Python 3.9 or later"


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        read = self._task.args.get("read")
        own = self._report(read, task_vars) if read else {"checks": self._look(task_vars)}
        return {"changed": False, "layer": "preflight", **own}

    def _look(self, task_vars: Any) -> list[dict[str, Any]]:
        given, name, why = {**self._task.args, "clock": time.time()}, "node_read", RUN
        try:
            found = self._execute_module(MODULE, module_args=given, task_vars=task_vars)
            if not found.get("failed"):
                return checks(found.get("checks"))
            printed = [str(found.get(x, "")) for x in ("module_stdout", "module_stderr")]
            text = "\n".join(filter(None, map(str.strip, printed))) or str(found.get("msg"))
        except AnsibleConnectionFailure as error:
            text, name, why = str(error), "node_reached", REACH
            bmc = task_vars.get("cluster_bmc")
            why = f"{why}; its BMC is {bmc}" if bmc else why
        except AnsibleError as error:
            text = str(error)
            why = no_prompt(text) or why
        text = " | ".join(text.strip().splitlines())[-MAX_ERROR_CHARACTERS:]
        return as_dicts([Check(name, "an answer", text, FAILED, reason=why)])

    def _report(self, read: str, task_vars: Any) -> dict[str, Any]:
        hostvars, hosts = task_vars["hostvars"], task_vars["ansible_play_hosts_all"]
        found = {
            host: checks(mapping(hostvars[host].get(read)).get("checks", [])) for host in hosts
        }
        software = SoftwareSet.of(task_vars.get("cluster_software") or {})
        keys = []
        for layer, variable in (("rdma", "cluster_rails"), ("gpu", "cluster_gpus")):
            try:
                if any(hostvars[host].get(variable) for host in hosts):
                    read_keys(software, layer, Path(task_vars.get("inventory_dir") or "."))
            except KeyFileError as error:
                why = str(error)
                keys.append(Check("repository_key", "checked", "not usable", FAILED, layer, why))
        keys += _mpi(software, Path(task_vars.get("inventory_dir") or "."))
        findings = preflight.findings({**found, "the controller": as_dicts(keys)})
        lines = preflight.lines(findings, len(hosts))
        for line in lines:
            display.display(line)
        stops = any(each[0] for each in findings)
        return {"checks": [], "failed": stops, **({"msg": lines[0]} if stops else {})}


def _mpi(software: SoftwareSet, directory: Path) -> Iterator[Check]:
    """Files that the operator must provide for an MPI other than the distribution's."""
    mpi, where = software.mpi, "software.mpi.archives"
    if mpi.provider == DISTRIBUTION:
        return
    for archive in mpi.archives:
        if not archive.sha256:
            why = f"compare it with NVIDIA's, and write the output of sha256sum into {where}"
            name = archive.url.rpartition("/")[2]
            yield Check("mpi_archive", "a sha256", "none", FAILED, name, why)
    wheels = [f"mpi4py-{mpi.mpi4py}-*.whl"]
    wheels += [f"impi_rt-{mpi.impi.version}-*.whl"] if mpi.impi else []
    for wheel in wheels:
        if not any((directory / mpi.wheels).glob(wheel)):
            why = f"download it into {directory / mpi.wheels}: docs/mpi.md"
            yield Check("mpi_wheel", wheel, "not found", FAILED, reason=why)

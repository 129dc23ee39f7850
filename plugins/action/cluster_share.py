# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the site, or its verification, over several controllers."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.cli import CLI
from ansible.errors import AnsibleActionFail
from ansible.utils.vars import load_extra_vars

from ..module_utils.core.files import make_directories
from ..module_utils.core.locks import HeldError, UnsafeError, alone
from ..module_utils.core.text import counted, some
from ..modules.cluster_share import ARGUMENTS
from ..plugin_utils import pages
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import finite
from ..plugin_utils.model.cluster import ROLES
from ..plugin_utils.report import summary as report
from ..plugin_utils.report.reports import FolderError, replace_folder, save
from ..plugin_utils.report.summary import COLLECTION, RunSummary
from ..plugin_utils.schema.findings import RefusedError
from ..plugin_utils.share import data, nodes
from ..plugin_utils.share.cut import layers_of
from ..plugin_utils.share.run import Run
from ..plugin_utils.share.workers import Workers, ends_with_parent
from ..plugin_utils.terminal import display

PACKAGES = ("ansible-core", "ansible-runner")
"""Whose versions must be the same on all controllers."""
STATE = Path("~/.local/state/baremetal.mpi_roce").expanduser()
MARGIN_BYTES = 32 << 20
"""Free space for the report and Ansible's temporary files, next to the sent files."""
EXECUTION_LIMIT = 60


class ActionModule(NodeAction):
    _requires_connection = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if not report.evaluating:
            raise AnsibleActionFail(
                f"the callback {COLLECTION}summary, which sets the exit status, is not loaded: add "
                "it to callbacks_enabled in ansible.cfg"
            )
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        summary = _summary(task_vars, given["playbook"])
        named = {name: hostvars[name] for name in groups.get(given["group"]) or []}
        racks = list(dict.fromkeys(rack for rack in summary.racks.values() if rack))
        cluster = re.sub(r"[^A-Za-z0-9._-]", "_", summary.cluster)
        try:
            execution = nodes.read(given["group"], named, racks)
            if given["receptor"]:
                return self._receptor(execution, named, Path(given["receptor"]))
            with alone(STATE / cluster / "share.lock", 0.0):
                return self._share(execution, given, summary, cluster, task_vars)
        except (HeldError, UnsafeError) as error:
            raise AnsibleActionFail(f"no host was touched: {error}") from error
        except (RefusedError, OSError) as error:
            raise AnsibleActionFail(str(error)) from error

    def _receptor(
        self, execution: list[nodes.ExecutionNode], named: Mapping[str, Any], folder: Path
    ) -> dict[str, Any]:
        addresses = {name: str(own.get("ansible_host") or name) for name, own in named.items()}
        files = nodes.receptor(execution, addresses)
        try:
            names = replace_folder(folder, files, r"[\w.-]+\.yml", bool(self._task.check_mode))
        except FolderError as error:
            raise AnsibleActionFail(f"share_receptor: {error}") from error
        display.display(f"Receptor: {folder}; docs/several-controllers.md has the next steps")
        return {"changed": bool(names), "files": sorted(files)}

    def _share(
        self,
        execution: list[nodes.ExecutionNode],
        given: Mapping[str, Any],
        summary: RunSummary,
        cluster: str,
        task_vars: Any,
    ) -> dict[str, Any]:
        started = datetime.now(timezone.utc)
        settings, home = self._settings(given, task_vars), Path.home()
        folder = Path(report.directory).absolute() / cluster
        stamp = f"{started:%Y%m%dT%H%M%S.%f}Z"
        logs = folder / "logs" / f"{given['playbook']}-{stamp}"
        make_directories(logs, 0o750)
        ends_with_parent(signal.SIGKILL)
        with data.made(settings, cluster, home) as (root, size):
            workers = Workers(settings, root, logs, cluster, int(given["lease_s"]))
            _check(workers, execution, 2 * size + MARGIN_BYTES)
            limited = task_vars.get("ansible_limit") is not None
            chosen = set(task_vars["ansible_play_hosts_all"]) if limited else summary.roles.keys()
            roles = {host: role for host, role in summary.roles.items() if host in chosen}
            named = set(context.CLIARGS.get("tags") or ())
            layers = layers_of(named, context.CLIARGS.get("skip_tags") or ())
            run = Run(
                workers,
                execution,
                roles,
                summary.racks,
                limited,
                summary.verifies,
                lambda text: display.display(f"share: {text}"),
                _whole(task_vars),
            )
            run.run(layers)
        status = run.finish(summary, layers, named)
        seconds = (datetime.now(timezone.utc) - started).total_seconds()
        content = {
            **summary.report(started.isoformat(), seconds, EXECUTION_LIMIT, settings.check),
            "execution": {"runs": run.history, "lost": run.lost},
        }
        path = folder / f"{given['playbook']}-{stamp}.json"
        save(path, json.dumps(finite(content), default=str) + "\n")
        page = pages.write(path)
        lines = [*summary.lines(seconds, EXECUTION_LIMIT), *run.lines(), f"report: {_shown(path)}"]
        lines += [f"page: {_shown(Path(page))}"] if page else []
        return {
            "changed": bool(summary.changed),
            "msg": f"{given['playbook']}.yml: exit status {status}; output of each run: {logs}",
            "report": str(path),
            "status": status,
            "lost": run.lost,
            "summary_lines": lines,
        }

    def _settings(self, given: Mapping[str, Any], task_vars: Any) -> data.Settings:
        options = context.CLIARGS
        play = self._play_context
        secrets = getattr(self._loader, "_vault", None)
        vaults: dict[str, bytes] = {}
        for label, secret in getattr(secrets, "secrets", None) or ():
            vaults.setdefault(str(label), secret.bytes)
        passwords = {
            "connection": play.password if options.get("ask_pass") else "",
            "become": play.become_pass if options.get("become_ask_pass") else "",
        }
        files = (("connection", "connection_password_file"), ("become", "become_password_file"))
        for kind, option in files:
            if options.get(option):
                passwords[kind] = CLI.get_password_from_file(options[option])
        extra = load_extra_vars(self._loader)
        return data.Settings(
            given["playbook"],
            [Path(source) for source in task_vars.get("ansible_inventory_sources") or []],
            Path(C.CONFIG_FILE) if C.CONFIG_FILE else None,
            bool(options.get("check")),
            bool(options.get("diff")),
            int(options.get("forks") or C.DEFAULT_FORKS),
            int(options.get("verbosity") or 0),
            str(options.get("remote_user") or ""),
            bool(C.config.get_config_value("HOST_KEY_CHECKING")),
            given["files"],
            {key: value for key, value in extra.items() if not key.startswith("share_")},
            list(vaults.items()),
            {kind: text for kind, text in passwords.items() if text},
        )


def _summary(task_vars: Any, playbook: str) -> RunSummary:
    """A summary without results, as the callback makes one from the inventory."""
    hostvars, groups = task_vars["hostvars"], task_vars["groups"]
    summary = RunSummary(playbook=f"{playbook}.yml", verifies=playbook == "verify")
    role_of = {host: role for role in reversed(ROLES) for host in groups.get(role) or ()}
    for host in filter(role_of.__contains__, groups["all"]):
        variables = hostvars.raw_get(host)
        summary.roles[host] = role_of[host]
        summary.racks[host] = str(variables.get("cluster_rack") or "")
        summary.ports[host] = variables.get("cluster_ports") or ()
        summary.cluster = summary.cluster or str(variables.get("cluster_name") or "")
    given = context.CLIARGS.get("args") or ()
    summary.by_name = any(str(name).startswith(COLLECTION) for name in given)
    sources = [Path(source) for source in context.CLIARGS.get("inventory") or ()]
    summary.inventories = tuple(map(_shown, sources))
    summary.limit = str(context.CLIARGS.get("subset") or "")
    return summary


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _whole(task_vars: Any) -> list[str]:
    """MPI that is built once, or unpacked from archives of this controller, is installed here."""
    hostvars = task_vars["hostvars"]
    for host in task_vars["groups"].get("compute") or ():
        software = hostvars.raw_get(host).get("cluster_software") or {}
        if (software.get("mpi") or {}).get("provider", "distribution") != "distribution":
            return ["mpi"]
    return []


def _check(workers: Workers, execution: list[nodes.ExecutionNode], needed: int) -> None:
    """Refuse before any host is touched if an execution node cannot run a job."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise AnsibleActionFail(
                f"no host was touched: {package} is not installed here: install the version that "
                "the execution nodes have"
            ) from None
    began = time.monotonic()
    with ThreadPoolExecutor(len(execution)) as pool:
        answers = dict(zip((node.name for node in execution), pool.map(workers.probe, execution)))
    found = nodes.refusals(answers, versions, needed)
    if found:
        raise AnsibleActionFail(
            "\n  ".join([f"no host was touched: {counted(len(found), 'error')}:", *found])
        )
    seconds = time.monotonic() - began
    display.display(
        f"share: {some([nodes.racks_text(node) for node in execution], 12)}; ready in "
        f"{seconds:.1f} s"
    )

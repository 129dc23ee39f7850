# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Monitor a host: install what its module lacks, sign its certificate, and give the host of
Prometheus its files. A host that has everything takes one call of the module. Where monitoring is
off, the module is called only if the layer left files there."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..module_utils.core import written
from ..module_utils.core.files import diff, make_directories, write_beside
from ..module_utils.monitoring import DIRECTORY
from ..module_utils.monitoring.host import EXPORTERS, SERVER
from ..module_utils.monitoring.service import drop_in_of
from ..modules.monitoring import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import sentence
from ..plugin_utils.model.cluster import ROLES
from ..plugin_utils.monitoring import dashboards, pki, rules, targets

MODULE = "baremetal.mpi_roce.monitoring"
ETC = f"/{DIRECTORY}"
LEFT = " ".join(
    f"/{path}"
    for path in (
        DIRECTORY,
        *map(drop_in_of, (*EXPORTERS, SERVER)),
        written.DIRECTORY / "monitoring.json",
    )
)
LOOK = f"for f in {LEFT}; do if [ -e $f ]; then echo left; fi; done; echo looked"
LEAST = {"scrape_interval_s": 1, "retention_days": 1, "interval_s": 1}
MOST_BYTES = 64 << 20
"""Of a file in `files_directory` that is compared."""
ADDED = ("authority", "certificate", "password", "password_hash", "files")
ON_CONTROLLER = ("state_directory", "files_directory", "alertmanagers", "thresholds")
"""Arguments that hosts need not know."""


class ActionModule(NodeAction):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        arguments.update((name, {} if name == "files" else "") for name in ADDED)
        if not arguments["enabled"]:
            return self._remove(arguments, task_vars)
        try:
            _refuse(arguments)
            return self._converge(arguments, task_vars)
        except (pki.PkiError, rules.RulesError) as error:
            return _failed(str(error))
        except OSError as error:
            return _failed(f"on the controller: {error.filename}: {error.strerror or error}")

    def _remove(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        seen = str(self._low_level_execute_command(LOOK).get("stdout")).split()
        if seen == ["looked"]:
            return {"skipped": True, "skip_reason": "monitoring_enabled is false", "changed": False}
        return self._module(arguments, task_vars)

    def _converge(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        groups, write = task_vars["groups"], not self._task.check_mode
        launchers = groups.get("launcher") or [""]
        serves = arguments["server"] and arguments["host"] == launchers[0]
        hosts: Mapping[str, Mapping[str, Any]] = {}
        written: list[dict[str, str]] = []
        # Hosts that were lost in an earlier play are not among these.
        first = task_vars["ansible_play_hosts"][0] == task_vars["inventory_hostname"]
        if serves or (arguments["files_directory"] and first):
            raw = task_vars["hostvars"].raw_get
            names = [name for role in ROLES for name in groups.get(role, ())]
            hosts = {name: raw(name) for name in names}
        if arguments["files_directory"] and first:
            folder = Path(arguments["files_directory"]).expanduser().resolve()
            for source in task_vars.get("ansible_inventory_sources") or []:
                if Path(source).is_dir() and folder.is_relative_to(Path(source).resolve()):
                    return _failed(
                        f"monitoring_files_directory: {folder} is in the inventory {source}, whose "
                        "files Ansible would read as hosts. Name a directory outside of it"
                    )
            written = publish(arguments, hosts, write=write)
        authority = None
        directory = Path(arguments["state_directory"]).expanduser()
        if arguments["tls"]:
            cluster = str(task_vars["cluster_name"])
            authority = pki.Authority(directory, cluster, write=write)
            secret = pki.password(directory, write=write)
            arguments.update(authority=authority.pem, password_hash=secret.hash)
            if serves:
                secret.prove(directory)
                arguments["password"] = secret.text
        if serves:
            arguments["files"] = of_server(arguments, hosts)
        answer = self._with_packages(arguments, task_vars)
        if authority is not None and answer.get("request") and write:
            names = [arguments["host"], arguments["address"]]
            certificate = str(answer.get("certificate") or "")
            fresh = authority.renewed(str(answer["request"]), certificate, names)
            if fresh:
                answer = self._again(answer, {**arguments, "certificate": fresh}, task_vars)
        internal = ("request", "certificate", "packages", "manager")
        answer = {k: v for k, v in answer.items() if k not in internal}
        if write and not answer.get("failed") and not answer.get("checks"):
            return _failed(
                f"{arguments['host']} was not read back: after the installation of its packages it "
                f"has none of {', '.join(EXPORTERS)}, or it made no key"
            )
        if written:
            answer["changed"] = True
            answer["diff"] = [*written, *_diffs(answer)]
        return answer

    def _with_packages(self, arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        answer = self._module(arguments, task_vars)
        packages = [str(name) for name in answer.get("packages") or ()]
        if answer.get("failed") or not packages:
            return answer
        known: Sequence[str] = arguments_of_packages(packages)
        if not known:
            return _failed(f"unknown packages: {sentence(packages)}")
        done = self._install(packages, answer.get("manager") == "apt", task_vars)
        if done.get("failed"):
            return {**_failed(f"packages {' '.join(packages)}: {sentence(done.get('msg'))}")}
        shown = [diff(f"package {name}", "absent\n", "installed\n") for name in packages]
        return self._again({"changed": True, "diff": shown}, arguments, task_vars)

    def _install(self, packages: Sequence[str], apt: bool, task_vars: Any) -> dict[str, Any]:
        """Install packages without starting their services, which listen on every address."""
        common = {"name": list(packages), "state": "present", "lock_timeout": 300}
        if apt:
            more = {"update_cache": True, "cache_valid_time": 86400, "install_recommends": False}
            given = {**common, **more, "policy_rc_d": 101}
            return self._execute_module(
                "ansible.legacy.apt", module_args=given, task_vars=task_vars
            )
        return self._execute_module(
            "ansible.legacy.dnf",
            module_args={**common, "install_weak_deps": False},
            task_vars=task_vars,
        )

    def _again(
        self, before: Mapping[str, Any], arguments: Mapping[str, Any], task_vars: Any
    ) -> dict[str, Any]:
        answer = self._module(arguments, task_vars)
        answer["changed"] = bool(before.get("changed")) or bool(answer.get("changed"))
        answer["diff"] = [*_diffs(before), *_diffs(answer)]
        return answer

    def _module(self, arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        given = {key: value for key, value in arguments.items() if key not in ON_CONTROLLER}
        return self._execute_module(MODULE, module_args=given, task_vars=task_vars)


PACKAGES = frozenset(["openssl", "prometheus", "prometheus-node-exporter", "node-exporter"])


def arguments_of_packages(packages: Sequence[str]) -> Sequence[str]:
    """The packages, if a host asks only for those that the layer may install."""
    return packages if PACKAGES.issuperset(packages) else ()


def _diffs(answer: Mapping[str, Any]) -> list[Any]:
    found = answer.get("diff") or []
    return list(found) if isinstance(found, list) else [found]


def of_server(
    arguments: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """The files of Prometheus by name."""
    cluster = str(next(iter(hosts.values()))["cluster_name"])
    interval_s, tls = arguments["scrape_interval_s"], arguments["tls"]
    how = targets.Scraping(ETC, interval_s, tls, alertmanagers=arguments["alertmanagers"])
    facts = rules.Facts.of(hosts, arguments["interval_s"], arguments["thresholds"])
    return {
        **targets.files(hosts),
        targets.RULES_FILE: rules.rules(facts),
        targets.PROMETHEUS_FILE: targets.prometheus(cluster, how),
    }


def publish(
    arguments: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]], *, write: bool
) -> list[dict[str, str]]:
    """Write the files for the site's Prometheus, Alertmanager and Grafana; return their diff."""
    files = {
        **of_server(arguments, hosts),
        **dashboards.files(),
        targets.ALERTMANAGER_FILE: targets.alertmanager(),
    }
    folder = Path(arguments["files_directory"]).expanduser()
    found = {name: _before(folder / name) for name in files}
    differing = [name for name, text in files.items() if found[name] != text]
    if write and differing:
        make_directories(folder)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in differing:
                _put(opened, folder / name, files[name])
        finally:
            os.close(opened)
    return [diff(str(folder / name), found[name], files[name]) for name in differing]


def _put(directory: int, path: Path, text: str) -> None:
    """A link of that name is replaced, wherever it leads."""
    try:
        write_beside(directory, path.name, text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _before(path: Path) -> str:
    """The content of a regular file; empty without one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return ""
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _refuse(arguments: Mapping[str, Any]) -> None:
    """Raises RulesError for settings with which Prometheus would not start."""
    for name, least in LEAST.items():
        if arguments[name] < least:
            raise rules.RulesError(f"{name}: {arguments[name]} must be at least {least}")
    for each in arguments["alertmanagers"] or ():
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", each):
            raise rules.RulesError(f"alertmanagers: {each!r} must be HOST:PORT, without a scheme")


def _failed(text: str) -> dict[str, Any]:
    msg = f"monitoring: nothing was changed: {text}"
    return {"failed": True, "msg": msg, "layer": "monitoring", "checks": []}

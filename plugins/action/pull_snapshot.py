# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Publish snapshots of nodes on the controller; read and verify its own one on a node."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.commands import CommandError
from ..module_utils.core.files import write_atomically
from ..module_utils.core.locks import HeldError
from ..module_utils.core.program import PYTHON
from ..module_utils.core.text import counted
from ..module_utils.ssh.keys import DAY, digest
from ..modules.pull_snapshot import ALLOWED, ARGUMENTS, SETTINGS
from ..plugin_utils.answers import mapping
from ..plugin_utils.pull import fetch, publish, renewal
from ..plugin_utils.pull.snapshot import (
    PURPOSE,
    SUFFIX,
    Snapshot,
    SnapshotError,
    Taken,
    contents,
    of_text,
    take,
)
from ..plugin_utils.ssh.authority import passphrase_of
from ..plugin_utils.ssh.journal import Journal
from ..plugin_utils.ssh.rotation import AuthorityError
from ..plugin_utils.ssh.signer import Signer
from ..plugin_utils.ssh.signing import SigningError
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

MODULE = "baremetal.mpi_roce.pull_snapshot"
ROOT = Path("/")
STATE = "var/lib/baremetal-mpi-roce/pull"
"""What a node remembers, and the files of its snapshot."""
GROUP = "pulled"


class ActionModule(SteppedAction):
    MODULE = MODULE
    _supports_check_mode = True

    def steps(self) -> dict[str, Step]:
        return {
            "publish": self._publish,
            "install": self._install,
            "read": self._read,
            "renew": self._renew,
        }

    def act(self, task_vars: Any) -> dict[str, Any]:
        try:
            return super().act(task_vars)
        except (SnapshotError, SigningError, AuthorityError, CommandError, HeldError) as error:
            raise AnsibleActionFail(f"pull: {error}") from error
        except OSError as error:
            where = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
            raise AnsibleActionFail(f"pull: {where}") from error

    def _given(self) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        found: dict[str, Any] = given
        return found

    def _install(self, task_vars: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._execute_module(MODULE, task_vars=task_vars)
        return found

    # On the controller.

    def _publish(self, task_vars: Any) -> dict[str, Any]:
        given, hostvars = self._given(), task_vars["hostvars"]
        now, write = int(time.time()), not self._task.check_mode
        groups: dict[str, list[str]] = {name: [] for name in given["hosts"]}
        for group, members in sorted(task_vars["groups"].items()):
            for name in members:
                if name in groups and group not in ("all", "ungrouped"):
                    groups[name].append(group)
        variables = publish.resolved(hostvars, groups)
        signer = self._signer(given, task_vars)
        public = digest(signer.public())
        folder = Path(given["directory"]).absolute() / given["cluster"]
        renewal = self._renewal(given, task_vars) if write and given["trust"] else None
        wanted = []
        for name, own in variables.items():
            inventory = Path(str(hostvars.raw_get(name).get("inventory_dir") or "."))
            before = publish.earlier(folder / f"{name}{SUFFIX}")
            kept = before.certificates if before else {}
            wanted.append(
                Snapshot(
                    given["cluster"],
                    name,
                    serial=1,  # as the dates, set where something is published
                    made=1,
                    expires=1,
                    signer=public,
                    groups=groups[name],
                    variables=own,
                    files=publish.files_of(own.get("cluster_software") or {}, inventory),
                    certificates=renewal.certificates(name, kept, now) if renewal else {},
                )
            )
        validity_s = int(given["validity_days"] * DAY)
        published, removed = publish.publish(folder, wanted, signer, now, validity_s, write=write)
        done = "to publish" if self._task.check_mode else "published"
        count = counted(len(wanted), "node")
        display.display(f"pull: {len(published)} of {count} {done} in {folder}")
        return {
            "changed": bool(published or removed),
            "published": published,
            "removed": removed,
            "allowed_signers": signer.allowed(),
        }

    def _signer(self, given: Mapping[str, Any], task_vars: Any) -> Signer:
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        names = [name for role in ("compute", "launcher") for name in groups.get(role, ())]
        key = Path(given["key"]) if given["key"] else None
        return Signer(
            given["cluster"],
            Path(given["state_directory"]),
            "" if key else passphrase_of(self._templar, task_vars),
            {name: hostvars.raw_get(name)["cluster_management"]["address"] for name in names},
            bool(task_vars.get("ssh_trust_signer")),
            PURPOSE,
            key,
        )

    def _renewal(self, given: Mapping[str, Any], task_vars: Any) -> publish.Renewal:
        trust = given["trust"]
        return publish.Renewal(
            Journal(Path(trust["state_directory"])),
            trust["authority"],
            trust["hosts"],
            given["user"],
            given["certificate_days"],
            given["renew_days"],
            passphrase_of(self._templar, task_vars),
        )

    # On a node.

    def _read(self, _task_vars: Any) -> dict[str, Any]:
        given = self._given()
        settings, allowed = ROOT / SETTINGS.lstrip("/"), ROOT / ALLOWED.lstrip("/")
        source = fetch.Source.of(fetch.trusted(settings), str(settings))
        source = replace(source, place=given["from"] or source.place, ca=given["ca"] or source.ca)
        fetch.trusted(allowed)
        text = fetch.verified(fetch.read(source), source, allowed)
        made = of_text(text, publish.known())
        state = ROOT / STATE
        _take(made, source, state)
        values: dict[str, Any] = {"ansible_connection": "local", "ansible_become": False}
        values["ansible_python_interpreter"] = PYTHON
        return {
            "changed": False,
            "node": made.node,
            "serial": made.serial,
            "expires": made.expires,
            "certificates": made.certificates,
            "add_host": {
                "host_name": made.node,
                "groups": [GROUP, *made.groups],
                "host_vars": {**made.variables, **values, "inventory_dir": str(state)},
            },
        }

    def _renew(self, _task_vars: Any) -> dict[str, Any]:
        given = mapping(self._given()["certificates"])
        renewed = renewal.plan(given, int(time.time()), ROOT)
        if not self._task.check_mode:
            renewal.install(renewed, ROOT)
        return {"changed": bool(renewed), "renewed": [each.kind for each in renewed]}


def _take(made: Snapshot, source: fetch.Source, state: Path) -> None:
    """Refuse a snapshot that this node must not take, then remember it."""
    record = state / "taken.json"
    last = Taken()
    if record.exists():
        last = Taken.of(fetch.trusted(record), str(record))
    taken = take(made, source.node, source.cluster, int(time.time()), last)
    for path, content in contents(made).items():
        text = content.decode("utf-8", "surrogateescape")
        write_atomically(state / path, text, 0o644, os.geteuid(), os.getegid())
    if taken != last:
        write_atomically(record, taken.text(), 0o600, os.geteuid(), os.getegid())

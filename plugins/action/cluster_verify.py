# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Steps around the layers of playbooks/verify.yml and playbooks/drift.yml: read the rules of drift,
skip unreachable hosts, require the summary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ..module_utils.core.text import shortened
from ..plugin_utils.drift import rules
from ..plugin_utils.drift.findings import Settings
from ..plugin_utils.marked import answer, no_prompt, question
from ..plugin_utils.report import summary
from ..plugin_utils.schema.findings import listed
from ..plugin_utils.steps import Step, SteppedAction

NODES = ("compute", "launcher", "storage")
TIMEOUT_S = 45
"""Time limit short enough to report a dead host within a minute."""
SUDO = "check sudo there; if it needs a password, pass that of ansible_user with -K"
MAX_ERROR_CHARACTERS = 300
"""Number of characters taken from the end of an error."""
MAX_MESSAGE_CHARACTERS = 20_000
SUMMARY = "baremetal.mpi_roce.summary"


class ActionModule(SteppedAction):
    MODULE = "baremetal.mpi_roce.cluster_verify"

    def steps(self) -> dict[str, Step]:
        return {"reach": self._reach, "drift": self._drift, "verdict": self._verdict}

    def _drift(self, task_vars: Any) -> dict[str, Any]:
        """The callback writes a report of drift also if this fails."""
        try:
            return {"changed": False, "drift": self._settings(task_vars).as_dict()}
        except AnsibleError as error:
            return {"failed": True, "msg": str(error), "drift": Settings().as_dict()}

    def _settings(self, task_vars: Any) -> Settings:
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        # HostVars.raw_get merges the variables of a host without templating them.
        given = {name: hostvars.raw_get(name).get(rules.VARIABLE) for name in groups["all"]}
        found, findings = rules.read(given, groups)
        if findings:
            what = f"{rules.VARIABLE}: no host was touched;"
            raise AnsibleActionFail(shortened(listed(what, findings), MAX_MESSAGE_CHARACTERS))
        options = self._task.args
        textfile = str(options.get("textfile") or "")
        if textfile and not (textfile.isprintable() and re.fullmatch(r"/.*[^/]\.prom", textfile)):
            raise AnsibleActionFail(
                f"drift_textfile is {textfile!r}: node_exporter reads files that end in .prom. "
                "Write an absolute path"
            )
        return Settings(
            found,
            textfile=textfile,
            offender_times=_positive(options, "offender_times", 3),
            offender_days=_positive(options, "offender_days", 30),
        )

    def _reach(self, task_vars: Any) -> dict[str, Any]:
        if task_vars.get("cluster_role") not in NODES:
            return {"changed": False}
        reason = self._unreachable()
        return {"changed": False, **({"unreachable": True, "msg": reason} if reason else {})}

    def _unreachable(self) -> str:
        """Why no command runs on this host, with a remedy; empty if one ran."""
        limit = int(self._task.args.get("timeout_s", TIMEOUT_S))
        connection = self._connection
        if connection.has_option("timeout"):
            limit = min(limit, int(connection.get_option("timeout")))
            connection.set_option("timeout", limit)
        try:
            done = self._low_level_execute_command(question("echo ready"))
        except AnsibleConnectionFailure as error:
            return (
                f"no SSH connection within {limit} s: {_end(error)}; check its power, its "
                "management address and sshd, and ansible_user and the known host keys of the "
                "inventory"
            )
        except AnsibleError as error:
            remedy = no_prompt(str(error))
            if remedy or "timeout" not in str(error).lower():
                return f"no command runs as root: {_end(error)}; {remedy or SUDO}"
            return (
                f"SSH connects, but no command ran within {limit} s: {_end(error)}; the host is "
                "paused, out of memory or waiting for a disk: check its console"
            )
        # Lines after it are of the shell's next programs, for example by /etc/ld.so.preload.
        if (answer(done.get("stdout")) or "").partition("\n")[0] == "ready":
            return ""
        # sudo may require a terminal, which merges its messages into stdout.
        printed = (str(done.get("stdout")), str(done.get("stderr")))
        text = "\n".join(filter(None, map(str.strip, printed))) or f"exit status {done['rc']}"
        return f"no command runs as root: {_end(text)}; {SUDO}"

    def _verdict(self, _task_vars: Any) -> dict[str, Any]:
        if not summary.evaluating:
            raise AnsibleActionFail(
                f"verify needs the callback {SUMMARY}, which evaluates the run and is not loaded: "
                "add it to callbacks_enabled in ansible.cfg, or correct the error with which it "
                "was skipped"
            )
        return {"changed": False}


def _positive(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name, default)
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10_000):
        raise AnsibleActionFail(f"drift_{name} is {value!r}: use a number from 1 to 9999")
    return int(text)


def _end(error: object) -> str:
    return " | ".join(str(error).strip().splitlines())[-MAX_ERROR_CHARACTERS:]

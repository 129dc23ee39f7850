# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which hosts answer, before playbooks/verify.yml, and its verdict over all of its plays."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ..module_utils.core.text import some
from ..plugin_utils.marked import answer, no_prompt, question
from ..plugin_utils.report import summary
from ..plugin_utils.steps import Step, SteppedAction

NODES = ("compute", "launcher", "storage")
TIMEOUT_S = 45
"""A dead host is named within a minute."""
SUDO = "check sudo on it; if it asks for a password, -K takes that of ansible_user"
SHOWN = 300
"""Characters of an error, from its end."""


class ActionModule(SteppedAction):
    MODULE = "baremetal.mpi_roce.cluster_verify"

    def steps(self) -> dict[str, Step]:
        return {"reach": self._reach, "verdict": self._verdict}

    def _reach(self, task_vars: Any) -> dict[str, Any]:
        if task_vars.get("cluster_role") not in NODES:
            return {"changed": False}
        why = self._why_not()
        return {"changed": False, **({"unreachable": True, "msg": why} if why else {})}

    def _why_not(self) -> str:
        """Why no command can be run on this host, with what to look at; empty if one ran."""
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
                "paused, out of memory or waits for a disk: look at its console"
            )
        if (answer(done.get("stdout")) or "").split() == ["ready"]:
            return ""
        # With a terminal, as sudo may need one, its message is in the output.
        printed = (str(done.get("stdout")), str(done.get("stderr")))
        text = "\n".join(filter(None, map(str.strip, printed))) or f"exit status {done['rc']}"
        return f"no command runs as root: {_end(text)}; {SUDO}"

    def _verdict(self, task_vars: Any) -> dict[str, Any]:
        run = summary.current
        if run is None:
            raise AnsibleActionFail(
                "verify needs the callback baremetal.mpi_roce.summary, which is not enabled: add "
                "it to callbacks_enabled in ansible.cfg"
            )
        if not run.expected:
            raise AnsibleActionFail(
                "nothing was verified: no layer has both the tags and the hosts that were asked "
                "for; check --tags, --skip-tags and --limit"
            )
        wrong = run.wrong()
        result: dict[str, Any] = {"changed": False, "verdict": wrong}
        if wrong:
            listed = "; ".join(f"{layer}: {some(hosts, 8)}" for layer, hosts in wrong.items())
            result.update(failed=True, msg=f"failed or not verified, see the summary: {listed}")
        return result


def _end(error: object) -> str:
    return " | ".join(str(error).strip().splitlines())[-SHOWN:]

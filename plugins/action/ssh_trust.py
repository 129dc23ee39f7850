# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of the trust: sign what the node needs, and record it in the journal."""

from __future__ import annotations

import base64
import hashlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..module_utils.core.commands import CommandError
from ..module_utils.core.locks import HeldError
from ..module_utils.ssh.keys import HOST, KINDS, digest
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import mapping, sentence, sequence
from ..plugin_utils.ssh.authority import passphrase_of
from ..plugin_utils.ssh.journal import Journal
from ..plugin_utils.ssh.publishing import SigningError, issue

MODULE = "baremetal.mpi_roce.ssh_trust"
RESERVED = ("issued", "certificates", "now", "refused_keys")
"""Arguments of the module that only the action sets."""
ON_CONTROLLER = ("private_keys", "signer")
"""How the authority signs: no node needs it."""


class ActionModule(NodeAction):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        arguments = {key: value for key, value in self._task.args.items() if key not in RESERVED}
        state_directory = arguments.pop("state_directory", None)
        known = (arguments.get("host") or {}).get("known")
        if not state_directory or not known:
            return {
                "failed": True,
                "msg": "ssh: state_directory and host of ssh_authority are required",
            }
        secret, journal = (
            passphrase_of(self._templar, task_vars),
            Journal(Path(str(state_directory))),
        )
        try:
            return self._configure(arguments, journal, known, task_vars, secret)
        except (SigningError, CommandError, HeldError) as error:
            return {"failed": True, "msg": f"ssh: on the controller: {error}"}
        except OSError as error:
            where = f"{error.filename or state_directory}: {error.strerror or error}"
            return {"failed": True, "msg": f"ssh: on the controller: {where}"}

    def _configure(
        self,
        arguments: dict[str, Any],
        journal: Journal,
        known: dict[str, Any],
        task_vars: Any,
        passphrase: str,
    ) -> dict[str, Any]:
        name, now = str(task_vars["inventory_hostname"]), int(time.time())
        if arguments["host"].get("revoked"):
            remedy = f"Install {name} anew, and take it off the list: it gets other keys then"
            return {
                "failed": True,
                "msg": f"ssh: {name} is in ssh_trust_revoke: nothing is signed for it. {remedy}",
            }
        validity_days = float(arguments.pop("validity_days", 90))
        if float(arguments.get("renew_days", 45)) >= validity_days:
            days = f"ssh_trust_validity_days ({validity_days:g})"
            return {"failed": True, "msg": f"ssh: ssh_trust_renew_days must be less than {days}"}
        arguments.update(now=now, issued=known["issued"], refused_keys=known["refused_keys"])
        if known["recorded"]:  # one that left, or was revoked, and missed a rotation
            arguments["replace_authority"] = True
        authority = arguments["authority"]
        of_nodes = {key: value for key, value in authority.items() if key not in ON_CONTROLLER}
        arguments["authority"] = of_nodes
        first = self._execute(arguments, task_vars)
        if self._task.check_mode or not _ended_well(first):
            return first
        result = first
        asked = mapping(first["sign"])
        sign = {kind: sentence(asked[kind], 300) for kind in KINDS if kind in asked}
        if sign:
            certificates, records = issue(
                journal,
                name,
                sign,
                mapping(first.get("public_keys")),
                authority,
                user=str(arguments.get("user", "mpi")),
                host=arguments["host"],
                validity_days=validity_days,
                now=now,
                passphrase=passphrase,
                refused=known["refused_keys"],
            )
            issued = {kind: asdict(record) for kind, record in records.items()}
            arguments.update(certificates=certificates, issued={**known["issued"], **issued})
            arguments["now"] = int(time.time())  # a signer's certificate may begin after the first
            result = self._execute(arguments, task_vars)
            result["changed"] = True
            result["diff"] = [*sequence(first.get("diff")), *sequence(result.get("diff"))]
            if not _ended_well(result):
                return result
            if result["sign"]:
                again = mapping(result["sign"])
                why = ", ".join(f"{kind}: {text}" for kind, text in again.items())
                msg = f"ssh: a new certificate is refused: {why}"
                return {**result, "failed": True, "msg": msg}
            result["sign"] = sign
            before = known["issued"].get(HOST, {}).get("key")
            if HOST in records and before not in (None, records[HOST].key):
                result.setdefault("warnings", []).append(
                    f"ssh: {name} has another host key than before: {digest(before)} was replaced"
                    f" by {digest(records[HOST].key)}. Compare it with the console of {name} if it"
                    " was not installed anew."
                )
        krl = hashlib.sha256(base64.b64decode(authority["revoked"])).hexdigest()
        if (
            sign
            or known["pending"]
            or (known["trusts"], known["krl"]) != (authority["trusted"], krl)
        ):
            serials = [record["serial"] for record in arguments["issued"].values()]
            journal.trusts(name, authority["trusted"], krl, serials)
        return result

    def _execute(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(
            module_name=MODULE, module_args=arguments, task_vars=task_vars
        )
        return result


def _ended_well(result: dict[str, Any]) -> bool:
    return not result.get("failed") and not result.get("unreachable") and "sign" in result

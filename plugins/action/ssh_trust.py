# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign a node's certificates on the controller, and record them in the journal.

The module runs once when nothing is missing. Otherwise its first run reports the certificates that
it needs, and the second installs them.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from ..module_utils.core.commands import CommandError
from ..module_utils.core.locks import HeldError
from ..module_utils.core.messages import message
from ..module_utils.ssh.keys import HOST, KINDS, digest
from ..plugin_utils import look
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import mapping, sentence, sequence
from ..plugin_utils.ssh.authority import passphrase_of
from ..plugin_utils.ssh.journal import Issued, Journal
from ..plugin_utils.ssh.signing import SigningError, issue

MODULE = "baremetal.mpi_roce.ssh_trust"
LAYER = "ssh"
ON_CONTROLLER = ("private_keys", "signer")
"""How the authority signs; nodes do not need to know."""
MAX_REASON = 300
"""Maximum length of the reason for which a node requests a certificate."""


class NotSignedError(Exception):
    """Nothing is signed for this node."""


class ActionModule(NodeAction):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        arguments = {key: value for key, value in self._task.args.items() if key != "signed"}
        state_directory = arguments.pop("state_directory", None)
        if not state_directory or not (arguments.get("host") or {}).get("known"):
            return {
                "failed": True,
                "msg": "ssh: state_directory and host of ssh_authority are required",
            }

        try:
            session = SigningSession(
                arguments,
                name=str(task_vars["inventory_hostname"]),
                journal=Journal(Path(str(state_directory))),
                passphrase=passphrase_of(self._templar, task_vars),
                execute=lambda given: self._execute_module(
                    module_name=MODULE, module_args=given, task_vars=task_vars
                ),
            )
            return session.configure(check_mode=self._task.check_mode)
        except NotSignedError as error:
            return {"failed": True, "msg": f"ssh: {error}"}
        except (SigningError, CommandError, HeldError) as error:
            return {"failed": True, "msg": f"ssh: on the controller: {error}"}
        except OSError as error:
            where = f"{error.filename or state_directory}: {error.strerror or error}"
            return {"failed": True, "msg": f"ssh: on the controller: {where}"}


def current(seen: Any, name: str) -> Optional[dict[str, Any]]:
    """The options of a node that this run determines, from ssh_authority's result for the look.
    None if this action has more to do than to compare, which is for its play."""
    host = mapping(mapping(seen).get("hosts")).get(name)
    if not host or host["revoked"]:
        return None
    authority = seen["authority"]
    return None if _is_behind(host["known"], authority) else _told(authority, host)


def _told(authority: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the module that differ from run to run. They contain no secrets."""
    known = host["known"]
    return {
        "host": host,
        "signed": {
            "now": int(time.time()),
            "issued": known["issued"],
            "refused_keys": known["refused_keys"],
        },
        "authority": {k: v for k, v in authority.items() if k not in ON_CONTROLLER},
    }


def _is_behind(known: Mapping[str, Any], authority: Mapping[str, Any]) -> bool:
    """Whether the journal does not have that the node trusts this."""
    trusts = (authority["trusted"], _krl(authority))
    return bool(known["pending"]) or (known["trusts"], known["krl"]) != trusts


def _krl(authority: Mapping[str, Any]) -> str:
    return hashlib.sha256(base64.b64decode(authority["revoked"])).hexdigest()


class SigningSession:
    """A run on one node: converge, sign missing certificates, converge again, record."""

    def __init__(
        self,
        arguments: dict[str, Any],
        *,
        name: str,
        journal: Journal,
        passphrase: str,
        execute: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        """Check the task's arguments and add those of the module. Raises NotSignedError."""
        self.name, self.journal, self.passphrase, self.execute = name, journal, passphrase, execute
        self.validity_days = float(arguments.pop("validity_days", 90))
        if arguments["host"].get("revoked"):
            raise NotSignedError(
                message(
                    "ssh_node_revoked",
                    "{name} is in ssh_trust_revoke: nothing is signed for it. Reinstall {name}, so"
                    " that it gets new keys, and remove it from the list",
                    name=name,
                )
            )
        if float(arguments.get("renew_days", 45)) >= self.validity_days:
            raise NotSignedError(
                message(
                    "ssh_renewal_too_early",
                    "ssh_trust_renew_days must be less than ssh_trust_validity_days ({days:g})",
                    days=self.validity_days,
                )
            )
        self.known, self.authority = arguments["host"]["known"], arguments["authority"]
        """The journal's record of the node (`Member.known`), and the result of ssh_authority."""
        self.arguments = {
            **arguments,
            **_told(self.authority, arguments["host"]),
        }
        """Arguments of the module. They contain no secrets."""
        if self.known["recorded"]:  # it had left or was revoked, and missed a rotation
            self.arguments["replace_authority"] = True

    def configure(self, *, check_mode: bool = False) -> dict[str, Any]:
        """Returns the module's result. A run is recorded in the journal only after it succeeded."""
        result = self.execute(self.arguments)
        if check_mode or not _succeeded(result):
            return result
        requested = mapping(result["sign"])
        sign = {kind: sentence(requested[kind], MAX_REASON) for kind in KINDS if kind in requested}
        if not sign:
            self._record(signed=False)
            return result
        records = self._sign(sign, mapping(result.get("public_keys")))
        again = self.execute(self.arguments)
        again["changed"] = True
        again["diff"] = [*sequence(result.get("diff")), *sequence(again.get("diff"))]
        if not _succeeded(again):
            return again
        refused = mapping(again["sign"])
        if refused:
            reasons = ", ".join(f"{kind}: {reason}" for kind, reason in refused.items())
            msg = f"ssh: a new certificate is refused: {reasons}"
            return {**again, "failed": True, "msg": msg}
        if warnings := self._host_key_changed(records):
            again["warnings"] = [*again.get("warnings", []), *warnings]
        self._record(signed=True)
        return {**again, "sign": sign}

    def _sign(self, sign: Mapping[str, str], public_keys: Mapping[str, Any]) -> dict[str, Issued]:
        certificates, records = issue(
            self.journal,
            self.name,
            sign,
            public_keys,
            self.authority,
            user=str(self.arguments.get("user", "mpi")),
            host=self.arguments["host"],
            validity_days=self.validity_days,
            now=self.arguments["signed"]["now"],
            passphrase=self.passphrase,
            refused=self.known["refused_keys"],
        )
        issued = {kind: asdict(record) for kind, record in records.items()}
        self.arguments["signed"].update(
            certificates=certificates,
            issued={**self.known["issued"], **issued},
            # The validity of a signer's certificate may begin only after the first call.
            now=int(time.time()),
        )
        return records

    def _host_key_changed(self, records: dict[str, Issued]) -> list[str]:
        before = self.known["issued"].get(HOST, {}).get("key")
        if HOST not in records or before in (None, records[HOST].key):
            return []
        return [
            f"ssh: the host key of {self.name} changed from {digest(before)} to"
            f" {digest(records[HOST].key)}. Unless {self.name} was reinstalled, compare the new key"
            " with the one on its console."
        ]

    def _record(self, *, signed: bool) -> None:
        """Record what the node now trusts, if that differs from the journal."""
        if signed or _is_behind(self.known, self.authority):
            serials = [record["serial"] for record in self.arguments["signed"]["issued"].values()]
            trusted = self.authority["trusted"]
            self.journal.trusts(self.name, trusted, _krl(self.authority), serials)
        if signed or self.known["pending"]:
            look.again(LAYER)  # all nodes get the list with the replaced certificates


def _succeeded(result: dict[str, Any]) -> bool:
    return not result.get("failed") and not result.get("unreachable") and "sign" in result

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On the controller, once for all nodes: authorities, revocation, and what every node gets."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ansible.plugins.action import ActionBase

from ..module_utils.core.commands import CommandError
from ..module_utils.core.files import diff, write_atomically
from ..module_utils.core.locks import HeldError
from ..module_utils.core.text import some
from ..module_utils.ssh.keys import HOST, USER
from ..module_utils.ssh.texts import authority_lines
from ..modules.ssh_authority import ARGUMENTS
from ..plugin_utils.ssh import identity, publishing
from ..plugin_utils.ssh.authority import (
    AuthorityError,
    AuthorityStore,
    Outcome,
    expiring,
    passphrase_of,
)
from ..plugin_utils.ssh.journal import Journal


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        arguments["ca_passphrase"] = passphrase_of(self._templar, task_vars)
        try:
            result.update(prepare(arguments, write=not self._task.check_mode))
        except (AuthorityError, CommandError, HeldError) as error:
            result.update(failed=True, msg=f"ssh: {error}")
        except OSError as error:
            where = error.filename or state_directory_of(arguments)
            result.update(
                failed=True, msg=f"ssh: on the controller: {where}: {error.strerror or error}"
            )
        return result


def prepare(arguments: dict[str, Any], *, write: bool) -> dict[str, Any]:
    now = int(time.time())
    entries = publishing.members(arguments["directory"])
    names = [str(entry["name"]) for entry in entries]
    arguments["extra_sources"] = [_network(each) for each in arguments["extra_sources"]]
    journal = Journal(state_directory_of(arguments))
    store = AuthorityStore(journal, arguments.get("ca_passphrase", ""))
    supplied = _supplied(arguments["user_ca_key"], arguments["host_ca_key"], arguments["signer"])
    if arguments["after"]:
        outcome = store.after(names)
        result = _result(arguments, entries, journal, outcome)
        away = [name for name in outcome.outdated if name not in arguments["reached"]]
        revoke = arguments["revoke"]
        have = [
            name
            for name, node in outcome.nodes.items()
            if node.complete and name not in [*away, *revoke]
        ]
        warnings = []
        if revoke:
            warnings.append(f"ssh: {some(revoke, 20)} refused by {some(have, 100)}")
        if away:
            warnings.append(f"ssh: nodes with an old revocation list: {some(away, 20)}")
        return {**result, "warnings": warnings}
    with journal.locked() if write else contextlib.nullcontext():
        rotating = bool(store.state().current)
        addresses = {str(each["name"]): str(each["management_address"]) for each in entries}
        name, word = arguments["cluster_name"], arguments["take_over"]
        handed_over = identity.claim(journal, addresses, name, word)
        outcome = store.prepare(
            names,
            comment=f"{arguments['cluster_name']} MPI SSH authority",
            generation=arguments["ca_generation"],
            overlap=arguments["ca_overlap"],
            supplied=supplied,
            now=now,
            write=write,
            max_removed=sys.maxsize if handed_over else arguments["max_removed"],
            revoke=arguments["revoke"],
        )
        if write:
            identity.record(journal, addresses)
        result = _result(arguments, entries, journal, outcome)
        known_hosts = _known_hosts(journal.directory / "known_hosts", result["authority"], write)
    warnings = [f"ssh: {step}" for step in outcome.steps] if rotating else []
    if outcome.removed:
        warnings.insert(
            0,
            f"ssh: {', '.join(outcome.removed)} left the inventory, or is in ssh_trust_revoke:"
            " certificates revoked, refused by every node that is reached",
        )
    # Of the whole cluster, whatever the limit: a node seldom reached expires unseen.
    soon = expiring(outcome.nodes, now, arguments["warn_days"])
    if soon:
        warnings.append(
            f"ssh: certificates of {soon} expire within {arguments['warn_days']:g} days:"
            " a run of --tags ssh that reaches them signs new ones"
        )
    return {
        **result,
        "changed": bool(outcome.removed or outcome.made or known_hosts),
        "diff": known_hosts,
        "removed": outcome.removed,
        "steps": outcome.steps,
        "warnings": warnings,
    }


def _result(
    arguments: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    journal: Journal,
    outcome: Outcome,
) -> dict[str, Any]:
    """What nodes get: all the same, and each its own."""
    account = f"{arguments['user']}@{arguments['cluster_name']}"
    between, sources = arguments["between_compute"], arguments["extra_sources"]
    probes = publishing.probes_of(entries, between)
    return {
        "authority": publishing.published(
            entries,
            outcome.authorities,
            outcome.krl,
            arguments["management_prefix"],
            arguments["signer"],
            arguments["domain"],
        ),
        "state_directory": str(journal.directory),
        # One that left is no longer admitted: a login there fails, as long as no run reaches it.
        "incomplete": [
            name
            for name, node in outcome.nodes.items()
            if not node.complete and (not node.revoked or name in arguments["revoke"])
        ],
        "outdated": outcome.outdated,
        "hosts": {
            str(entry["name"]): {
                "names": publishing.names_of(entry, arguments["domain"]),
                **publishing.logins_of(entry, account, sources, between),
                "revoked": str(entry["name"]) in arguments["revoke"],
                "probes": probes[str(entry["name"])],
                "port": publishing.port_of(entry),
                "addresses": publishing.addresses_of(entry),
                "known": {
                    **outcome.nodes[str(entry["name"])].known(),
                    "refused_keys": outcome.refused_keys,
                },
            }
            for entry in entries
        },
    }


def _known_hosts(path: Path, authority: dict[str, Any], write: bool) -> list[dict[str, str]]:
    """The nodes' own known_hosts, for operators and the controller; the diff where it changes."""
    text = authority_lines(authority)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if before == text or not authority["host_authorities"]:  # none was made yet (check mode)
        return []
    if write:
        write_atomically(path, text, 0o644, os.getuid(), os.getgid())
    return [diff(str(path), before, text)]


def _network(text: str) -> str:
    """As sshd reads it. One that it does not makes it refuse the whole certificate."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise AuthorityError(
            f"ssh_trust_extra_sources: {error}: wanted addresses and networks, as 10.30.0.0/24"
        ) from error


def state_directory_of(arguments: dict[str, Any]) -> Path:
    default = Path.home() / ".local/state/baremetal.mpi_roce" / arguments["cluster_name"] / "ssh-ca"
    return Path(arguments["state_directory"] or default)


def _supplied(user: str, host: str, signer: Sequence[str]) -> Optional[dict[str, Path]]:
    if bool(user) != bool(host):
        raise AuthorityError(
            "an authority of your own needs both: set ssh_trust_user_ca_key and"
            " ssh_trust_host_ca_key (they may name the same file)"
        )
    if signer and not (user.endswith(".pub") and host.endswith(".pub")):
        raise AuthorityError(
            "ssh_trust_signer has the private keys: set ssh_trust_user_ca_key and"
            " ssh_trust_host_ca_key to files with its public keys (.pub)"
        )
    return {USER: Path(user), HOST: Path(host)} if user else None

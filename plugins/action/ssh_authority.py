# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prepare authorities, revocation list and trust data on the controller, once for all nodes."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.commands import CommandError
from ..module_utils.core.files import diff, write_atomically
from ..module_utils.core.locks import HeldError
from ..module_utils.core.text import some
from ..module_utils.ssh.keys import HOST, USER
from ..module_utils.ssh.texts import authority_lines
from ..modules.ssh_authority import ARGUMENTS
from ..plugin_utils import look
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.model import facts
from ..plugin_utils.model.source import ModelError
from ..plugin_utils.ssh import identity, publishing
from ..plugin_utils.ssh.authority import AuthorityStore, ClusterTrust, passphrase_of
from ..plugin_utils.ssh.journal import Journal
from ..plugin_utils.ssh.rotation import AuthorityError, expiring

LAYER = "ssh"
LOOKED = ("names", "principal", "admits", "sources", "revoked", "port", "known")
"""Keys of a host that its module needs; Ansible holds a registered result until the run ends."""


class ActionModule(NodeAction):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        if boolean(self._task.args.get("look", False)):
            return self._look(task_vars)
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        arguments["ca_passphrase"] = passphrase_of(self._templar, task_vars)
        try:
            if not arguments["directory"]:
                arguments["directory"] = _directory(task_vars)
            return _only(arguments["only"], prepare(arguments, write=not self._task.check_mode))
        except (AuthorityError, CommandError, HeldError, ModelError) as error:
            return {"failed": True, "msg": f"ssh: {error}"}
        except OSError as error:
            where = f"{error.filename or state_directory_of(arguments)}: {error.strerror or error}"
            return {"failed": True, "msg": f"ssh: on the controller: {where}"}

    def _look(self, task_vars: Any) -> dict[str, Any]:
        """What the look asks nodes with. Nothing if that fails: then all hosts take part in the
        play of the layer, which reports it."""
        result: dict[str, Any] = {"changed": False}
        if not look.is_selected(LAYER, task_vars):
            return result
        # Not as arguments of the task: a template that fails would fail it.
        variables = {name: f"ssh_trust_{name}" for name in ARGUMENTS}
        with contextlib.suppress(
            AnsibleError, AuthorityError, CommandError, HeldError, ModelError, OSError
        ):
            given = {
                name: self._templar.template(task_vars[variable])
                for name, variable in variables.items()
                if variable in task_vars
            }
            management = self._templar.template(task_vars.get("cluster_management")) or {}
            own = {
                "cluster_name": self._task.args["cluster_name"],
                "domain": self._templar.template(task_vars.get("cluster_domain")) or "",
                "management_prefix": management.get("prefix", 24),
                "directory": _directory(task_vars),
            }
            validated = ArgumentSpecValidator(ARGUMENTS).validate({**given, **own})
            if not validated.error_messages:
                result.update(_only(LOOKED, looked(validated.validated_parameters)))
        return result


def _directory(task_vars: Any) -> list[dict[str, Any]]:
    return facts.of_inventory(task_vars["hostvars"], task_vars["groups"])


def _only(keys: Sequence[str], result: dict[str, Any]) -> dict[str, Any]:
    if not keys or "hosts" not in result:
        return result
    hosts = {name: {key: own[key] for key in keys} for name, own in result["hosts"].items()}
    return {**result, "hosts": hosts}


def looked(arguments: dict[str, Any]) -> dict[str, Any]:
    """What `prepare` returns, if it would take no step and warn of nothing. Otherwise nothing: the
    play of the layer, with all hosts, does and reports it."""
    found = prepare(arguments, write=False)
    if found["changed"] or found["warnings"]:
        return {"changed": False}
    return {"changed": False, "authority": found["authority"], "hosts": found["hosts"]}


def prepare(arguments: dict[str, Any], *, write: bool) -> dict[str, Any]:
    entries = publishing.members(arguments["directory"])
    arguments["extra_sources"] = [_network(source) for source in arguments["extra_sources"]]
    journal = Journal(state_directory_of(arguments))
    store = AuthorityStore(journal, arguments.get("ca_passphrase", ""))
    supplied = _supplied(arguments["user_ca_key"], arguments["host_ca_key"], arguments["signer"])
    if arguments["after"]:
        return _after(arguments, entries, store, warn=write)
    now = int(time.time())
    with journal.locked() if write else contextlib.nullcontext():
        rotating = bool(store.rotation().current)
        addresses = {str(entry["name"]): str(entry["management_address"]) for entry in entries}
        name, word = arguments["cluster_name"], arguments["take_over"]
        handed_over = identity.claim(journal, addresses, name, word)
        trust = store.prepare(
            list(addresses),
            comment=f"{name} MPI SSH authority",
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
        result = _result(arguments, entries, journal, trust)
        known_hosts = _known_hosts(journal.directory / "known_hosts", result["authority"], write)
    warnings = []
    if trust.removed:
        warnings.append(
            f"ssh: {', '.join(trust.removed)} left the inventory, or is in ssh_trust_revoke:"
            " certificates revoked, refused by every node that this run reaches"
        )
    if rotating:
        warnings += [f"ssh: {step}" for step in trust.steps]
    # For the whole cluster, whatever the limit: certificates of a rarely reached node expire too.
    soon = expiring(trust.nodes, now, arguments["warn_days"])
    if soon:
        warnings.append(
            f"ssh: certificates of {soon} expire within {arguments['warn_days']:g} days: run"
            " --tags ssh on these nodes to renew them"
        )
    return {
        **result,
        "changed": bool(trust.removed or trust.made or known_hosts),
        "diff": known_hosts,
        "removed": trust.removed,
        "steps": [str(step) for step in trust.steps],
        "warnings": warnings,
    }


def _after(
    arguments: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    store: AuthorityStore,
    *,
    warn: bool,
) -> dict[str, Any]:
    """The trust data after the run, with warnings about nodes that lack it. In check mode, no node
    was told to refuse another (`warn`)."""
    trust = store.after([str(entry["name"]) for entry in entries])
    revoke, reached = arguments["revoke"], set(arguments["reached"])
    away = [name for name in trust.outdated if name not in reached]
    complete = (name for name, node in trust.nodes.items() if node.complete)
    left = {*away, *revoke}
    updated = [name for name in complete if name not in left]
    warnings = []
    if revoke and warn:
        warnings.append(f"ssh: {some(revoke, 20)} refused by {some(updated, 100)}")
    if away:
        warnings.append(f"ssh: nodes with an old revocation list: {some(away, 20)}")
    return {**_result(arguments, entries, store.journal, trust), "warnings": warnings}


def _result(
    arguments: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    journal: Journal,
    trust: ClusterTrust,
) -> dict[str, Any]:
    """The data common to all nodes (`authority`), and the data of each node (`hosts`)."""
    account = f"{arguments['user']}@{arguments['cluster_name']}"
    between, sources = arguments["between_compute"], arguments["extra_sources"]
    probes = publishing.probes_of(entries, between)
    return {
        "authority": publishing.published(
            entries,
            trust.authorities,
            trust.krl,
            arguments["management_prefix"],
            arguments["signer"],
            arguments["domain"],
        ),
        "state_directory": str(journal.directory),
        # A node that left the cluster is no longer trusted: logins to it fail until a run reaches
        # it.
        "incomplete": [
            name
            for name, node in trust.nodes.items()
            if not node.complete and (not node.revoked or name in arguments["revoke"])
        ],
        "outdated": trust.outdated,
        "hosts": {
            name: {
                "names": publishing.names_of(entry, arguments["domain"]),
                **publishing.logins_of(entry, account, sources, between),
                "revoked": name in arguments["revoke"],
                "probes": probes[name],
                "port": publishing.port_of(entry),
                "addresses": publishing.addresses_of(entry),
                "known": {**trust.nodes[name].known(), "refused_keys": trust.revoked.keys},
            }
            for name, entry in ((str(entry["name"]), entry) for entry in entries)
        },
    }


def _known_hosts(path: Path, authority: dict[str, Any], write: bool) -> list[dict[str, str]]:
    """Write the nodes' known_hosts for operators and the controller; returns the diff, if any."""
    text = authority_lines(authority)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if before == text or not authority["host_authorities"]:  # no authority exists yet (check mode)
        return []
    if write:
        write_atomically(path, text, 0o644, os.getuid(), os.getgid())
    return [diff(str(path), before, text)]


def _network(text: str) -> str:
    """Normalize an address or network. With an invalid one, sshd would refuse the certificate."""
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
            "your own authority needs both keys: set ssh_trust_user_ca_key and"
            " ssh_trust_host_ca_key (they may name the same file)"
        )
    if signer and not (user.endswith(".pub") and host.endswith(".pub")):
        raise AuthorityError(
            "ssh_trust_signer holds the private keys: set ssh_trust_user_ca_key and"
            " ssh_trust_host_ca_key to files with the public keys (.pub)"
        )
    return {USER: Path(user), HOST: Path(host)} if user else None

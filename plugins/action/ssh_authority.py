# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On the controller, once for all nodes: authorities, revocation, and what every node is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.commands import CommandError
from ..module_utils.ssh_trust.node import CERTIFICATE, MODES
from ..plugin_utils.ssh import names, publishing
from ..plugin_utils.ssh.authority import (
    MAX_REMOVED,
    AuthorityError,
    AuthorityStore,
    Outcome,
    Supplied,
    days_left,
    leaving,
)
from ..plugin_utils.ssh.ledger import Ledger, LedgerError, Node
from ..plugin_utils.ssh.ledger import told as told_of

ARGUMENTS = {
    "directory": {"type": "list", "elements": "dict", "required": True},
    "cluster_name": {"type": "str", "required": True},
    "domain": {"type": "str", "default": ""},
    "management_prefix": {"type": "int", "default": 24},
    "user": {"type": "str", "default": "mpi"},
    "mode": {"type": "str", "choices": list(MODES), "default": CERTIFICATE},
    "state_dir": {"type": "path", "default": ""},
    "ca_generation": {"type": "int", "default": 1},
    "ca_overlap": {"type": "bool", "default": True},
    "user_ca_key": {"type": "path", "default": ""},
    "host_ca_key": {"type": "path", "default": ""},
    "warn_days": {"type": "int", "default": 30},
    "max_removed": {"type": "int", "default": MAX_REMOVED},
}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            result.update(prepare(arguments, write=not self._task.check_mode))
        except (AuthorityError, LedgerError, CommandError) as error:
            result.update(failed=True, msg=f"ssh: {error}")
        except OSError as error:
            where = told_of(error, state_dir_of(arguments))
            result.update(failed=True, msg=f"ssh: on the controller: {where}")
        return result


def prepare(arguments: dict[str, Any], *, write: bool) -> dict[str, Any]:
    now = int(time.time())
    entries = names.members(arguments["directory"])
    members = [str(entry["name"]) for entry in entries]
    state_dir = state_dir_of(arguments)
    ledger = Ledger(state_dir)
    user = arguments["user"]
    told = publishing.empty(
        arguments["mode"],
        entries,
        f"{user}@{arguments['cluster_name']}",
        arguments["management_prefix"],
    )
    nodes = {name: node for name in members if (node := ledger.read(name)) is not None}
    unlaid = [name for name in members if name not in nodes or not nodes[name].laid]
    warnings: list[str] = []
    if arguments["mode"] == CERTIFICATE:
        rotating = bool(AuthorityStore(ledger).state().current)
        outcome = _authorities(arguments, ledger, members, now, write=write)
        publishing.by_authority(told, outcome.authorities, outcome.krl)
        if outcome.removed:
            warnings.append(
                f"ssh: {', '.join(outcome.removed)} left the inventory:"
                " certificates revoked, refused by every node that is reached"
            )
        warnings += [f"ssh: {step}" for step in outcome.steps] if rotating else []
        warnings += _expiring(nodes, now, arguments["warn_days"])
    else:
        outcome = _leavers(ledger, members, arguments["max_removed"], write=write)
        waiting = publishing.by_lists(told, entries, ledger, user, arguments["domain"])
        if waiting:
            outcome.steps.append(f"{len(waiting)} nodes have yet to show their keys")
    probes = names.probes_of(entries)
    return {
        "changed": bool(outcome.removed or outcome.made),
        "authority": told,
        "state_dir": str(state_dir),
        "removed": outcome.removed,
        "unlaid": unlaid,
        "steps": outcome.steps,
        "warnings": warnings,
        "hosts": {
            str(entry["name"]): {
                "names": names.names_of(entry, arguments["domain"]),
                "probes": probes.get(str(entry["name"]), []),
            }
            for entry in entries
        },
    }


def state_dir_of(arguments: dict[str, Any]) -> Path:
    return Path(arguments["state_dir"] or default_state_dir(arguments["cluster_name"]))


def default_state_dir(cluster_name: str) -> Path:
    return Path.home() / ".local/state/baremetal.mpi_roce" / cluster_name / "ssh-ca"


def _authorities(
    arguments: dict[str, Any], ledger: Ledger, members: list[str], now: int, *, write: bool
) -> Outcome:
    """The authorities as wanted; one process at a time where anything is written."""
    paths = arguments["user_ca_key"], arguments["host_ca_key"]
    if any(paths) and not all(paths):
        raise AuthorityError(
            "an authority of your own needs both: set ssh_trust_user_ca_key and"
            " ssh_trust_host_ca_key (they may name the same file)"
        )
    supplied = Supplied(Path(paths[0]), Path(paths[1])) if all(paths) else None

    def go() -> Outcome:
        return AuthorityStore(ledger).prepare(
            members,
            comment=f"{arguments['cluster_name']} MPI SSH authority",
            generation=arguments["ca_generation"],
            overlap=arguments["ca_overlap"],
            supplied=supplied,
            now=now,
            write=write,
            max_removed=arguments["max_removed"],
        )

    if not write:
        return go()
    with ledger.locked():
        return go()


def _leavers(ledger: Ledger, members: list[str], max_removed: int, *, write: bool) -> Outcome:
    """Classic mode: a node that has left needs no revocation, its lines go."""
    outcome = Outcome(removed=leaving(ledger, members, max_removed))
    if write and outcome.removed:
        with ledger.locked():
            for name in outcome.removed:
                ledger.remove(name)
    return outcome


def _expiring(nodes: dict[str, Node], now: int, warn_days: int) -> list[str]:
    """Of the whole cluster, whatever the limit of the run: a node seldom reached expires unseen."""
    left = days_left(nodes, now)
    soon = sorted((days, name) for name, days in left.items() if days < warn_days)
    if not soon:
        return []
    shown = ", ".join(f"{name} ({days} days)" for days, name in soon[:5])
    more = f" and {len(soon) - 5} more" if len(soon) > 5 else ""
    return [
        f"ssh: certificates of {shown}{more} expire within {warn_days} days:"
        " a run of --tags ssh that reaches them signs new ones"
    ]

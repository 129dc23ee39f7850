# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names and addresses of the cluster, rendered once for all hosts.

The module receives the table as one string. Ansible would template and copy a structure again for
each host, which takes quadratic time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.names import is_host_name, rail_name
from ..schema.findings import Findings

Line = tuple[str, ...]
"""An address and its names, the canonical one first."""


def lines(
    directory: Iterable[Mapping[str, Any]], domain: str, findings: Findings
) -> dict[str, list[Line]]:
    """Lines by host: its own, and one per rail, in the order of the model.

    With a domain, the canonical name of a host is the full one. Rails have only short names.
    """
    found: dict[str, list[Line]] = {}
    owner: dict[str, str] = {}
    for host in directory:
        name = str(host["name"])
        full = (f"{name}.{domain}",) if domain and not name.endswith(f".{domain}") else ()
        mine: list[Line] = [(str(host["management_address"]), *full, name)]
        mine += [
            (str(rail["address"]), rail_name(name, str(rail["interface"])))
            for rail in host["rails"]
        ]
        for address, *names in mine:
            for item in names:
                _check(item, address, owner, findings)
        found.setdefault(name, []).extend(mine)
    return found


def rendered(of_hosts: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """Arguments of the module cluster_hosts: `table`, and `own` names by host."""
    return {
        "table": "".join(f"{' '.join(line)}\n" for mine in of_hosts.values() for line in mine),
        "own": {
            host: {name: address for address, *names in mine for name in names}
            for host, mine in of_hosts.items()
        },
    }


def _check(name: str, address: str, owner: dict[str, str], findings: Findings) -> None:
    if not is_host_name(name):
        findings.add(
            "inventory.host_name",
            (name,),
            f"{name!r} is not a host name",
            "Use letters, digits and hyphens",
            value=name,
        )
    elif name in owner:
        findings.add(
            "inventory.host_name_twice",
            (name,),
            f"both {owner[name]} and {address} have this name",
            "Rename one of the hosts",
            value=name,
        )
    owner[name] = address

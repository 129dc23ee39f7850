# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every name of the cluster with its address, rendered once for all hosts.

A host is sent the table as one string: a structure would be templated and copied again for each
host, which is quadratic in their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.names import is_host_name, rail_name
from ..schema.findings import Findings

Line = tuple[str, ...]
"""An address, then its names, the canonical one first."""


def lines(
    directory: Iterable[Mapping[str, Any]], domain: str, findings: Findings
) -> dict[str, list[Line]]:
    """By host: its own line and one for each of its rails, in the order of the model.

    With a domain a host's canonical name is its full one; rails have short names only.
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
            for each in names:
                _check(each, address, owner, findings)
        found.setdefault(name, []).extend(mine)
    return found


def rendered(of_hosts: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """As the module cluster_hosts takes it: `table`, and by host its `own` names."""
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

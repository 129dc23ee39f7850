# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS contract as every host of an inventory has it: one that can be kept, the same everywhere.

A model gives one to group `all`. Written by hand, or overridden for a group, it was checked by
nobody, and two ends of a link that differ lose packets without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import some
from ..fabric.compiler import ASICS, check_asics
from ..qos import Contract
from ..qos.keys import CONTRACT, VARIABLE
from ..qos.rules import check_rail, finish
from ..schema.findings import Findings, Path
from ..schema.kinds import check

# What an inventory says of switches, compiled by a model or written by hand.


CHIPS = "cluster_asics"
VARIABLES = (CHIPS,)


def check_switches(switches: Iterable[tuple[str, Mapping[str, Any]]], findings: Findings) -> None:
    """Findings for chips that no layer could read, by switch."""
    seen: list[Any] = []
    for name, variables in switches:
        chips = variables.get(CHIPS)
        # Group `all` has them: one mistake is told once.
        if CHIPS in variables and chips not in seen:
            seen.append(chips)
            own = Findings()
            read = check(ASICS, chips, own, (name, CHIPS))
            check_asics(read or {}, own, (name, CHIPS))
            findings.found.extend(own.found)


@dataclass(frozen=True)
class Holder:
    """A host, its `roce_qos` (None where it has none), and its rails as the inventory has them."""

    name: str
    value: Any
    rails: Any = None


@dataclass
class _Version:
    """One contract, and who has it. `contract` is None where it cannot be kept."""

    value: Any
    contract: Optional[Contract]
    holders: list[str] = field(default_factory=list)
    mtus: set[int] = field(default_factory=set)


def check_contracts(holders: Iterable[Holder], findings: Findings) -> None:
    """Findings for contracts that cannot be kept, rails that cannot keep them, hosts that differ.

    Ten thousand hosts with the same mistake have it once. A path MTU that nobody wrote is what the
    rails carry, as a model has it; where rails differ it has to be written.
    """
    everybody = list(holders)
    mtus = {mtu for holder in everybody for _index, mtu in _mtus(holder)}
    rail_mtu = mtus.pop() if len(mtus) == 1 else None
    versions: list[_Version] = []
    for holder in everybody:
        version = next((known for known in versions if known.value == holder.value), None)
        if version is None:
            version = _Version(holder.value, _read(holder, rail_mtu, findings))
            versions.append(version)
        version.holders.append(holder.name)
        if version.contract is not None:
            _check_rails(version, version.contract, holder, findings)
    _check_same(versions, findings)


def _read(holder: Holder, rail_mtu: Optional[int], findings: Findings) -> Optional[Contract]:
    path = (holder.name, VARIABLE)
    value = {} if holder.value is None else holder.value
    # Its own findings: what is wrong with the host besides hides nothing that is wrong here.
    own = Findings()
    contract = finish(check(CONTRACT, value, own, path), own, path, rail_mtu)
    findings.found.extend(own.found)
    return contract


def _check_rails(version: _Version, contract: Contract, holder: Holder, findings: Findings) -> None:
    for index, mtu in _mtus(holder):
        if mtu in version.mtus:
            continue
        version.mtus.add(mtu)
        place = (holder.name, "cluster_rails", index, "mtu")
        check_rail(contract, mtu, findings, place, (holder.name, VARIABLE))


def _mtus(holder: Holder) -> Iterator[tuple[int, int]]:
    """The rails that have a usable MTU; the directory tells of the others."""
    for index, rail in enumerate(holder.rails if isinstance(holder.rails, list) else []):
        mtu = rail.get("mtu") if isinstance(rail, dict) else None
        if isinstance(mtu, int):
            yield index, mtu


def _check_same(versions: list[_Version], findings: Findings) -> None:
    """The same contract can be written in two ways: compared is what it says."""
    alike: dict[Contract, list[str]] = {}
    for version in versions:
        if version.contract is not None:
            alike.setdefault(version.contract, []).extend(version.holders)
    if len(alike) < 2:
        return
    usual = max(alike, key=lambda contract: len(alike[contract]))
    wanted = dict(_values(usual.as_variable()))
    for contract, names in alike.items():
        found = dict(_values(contract.as_variable()))
        for key in wanted:
            if found[key] != wanted[key]:
                also = f" (also on {some(names[1:], 3)})" if names[1:] else ""
                findings.add(
                    "qos.hosts_differ",
                    (names[0], VARIABLE, *key),
                    f"{json.dumps(found[key])}{also}, but {json.dumps(wanted[key])} on "
                    f"{some(alike[usual], 3)}: both ends of a link keep one contract",
                    f"Set {VARIABLE} once, for group all",
                    value=(found[key], wanted[key]),
                )


def _values(value: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a contract with its place; a list is one value."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _values(item, (*path, key))
        else:
            yield (*path, key), item

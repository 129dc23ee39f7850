# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the variable `roce_qos` to a contract, or to every reason why it cannot be kept."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Optional

from ..schema.findings import Findings, Path, RefusedError
from ..schema.kinds import check
from . import rules
from .contract import (
    BestEffort,
    Cables,
    CnpClass,
    CongestionControl,
    Contract,
    Ecn,
    FurtherClass,
    Mtu,
    Pfc,
    RoceClass,
    Watchdog,
)
from .keys import CONTRACT, VARIABLE
from .path_mtu import largest_path_mtu


class ContractError(RefusedError):
    """The contract is refused."""

    what = f"{VARIABLE} cannot be kept"


def read_contract(value: Optional[Mapping[str, Any]], rail_mtu: Optional[int] = None) -> Contract:
    """The contract that `value` describes; None and {} are the defaults. Raises ContractError.

    `rail_mtu`: what the rails are set to, where that is known.
    """
    findings = Findings()
    checked = check(CONTRACT, {} if value is None else value, findings, (VARIABLE,))
    contract = finish(checked, findings, (VARIABLE,), rail_mtu)
    if contract is None:
        raise ContractError(findings.found)
    return contract


def finish(
    checked: Any, findings: Findings, path: Path, rail_mtu: Optional[int] = None
) -> Optional[Contract]:
    """The contract of a value that went through `check`; None where anything was found in it.

    Rules speak of what is left after the first look: one wrong type hides no contradiction
    elsewhere. `rail_mtu`: what the rails are set to, where that is known.
    """
    if checked is None:
        return None
    value = _complete(copy.deepcopy(checked), rail_mtu)
    rules.check_contract(value, findings, path)
    return _contract(value) if findings.clean(path) else None


def _complete(value: dict[str, Any], rail_mtu: Optional[int]) -> dict[str, Any]:
    """Fill in what depends on other keys, as far as these can be read."""
    classes = [value["roce"], value["cnp"], value["best_effort"], *(value["classes"] or [])]
    for entry in classes:
        if entry and entry["traffic_class"] is None:
            entry["traffic_class"] = entry["priority"]
    best_effort, mtu = value["best_effort"], value["mtu"]
    if best_effort and best_effort["bandwidth_percent"] is None:
        others = [entry.get("bandwidth_percent") for entry in classes if entry]
        best_effort["bandwidth_percent"] = 100 - sum(filter(None, others))
    if mtu and mtu["roce_path"] is None and None not in (mtu["fabric"], mtu["fabric_layer"]):
        carried = Mtu(mtu["fabric"], mtu["fabric_layer"], 0).fabric_ip
        mtu["roce_path"] = largest_path_mtu(min(carried, rail_mtu or carried))
    return value


def _contract(value: dict[str, Any]) -> Contract:
    pfc = value["pfc"]
    return Contract(
        roce=RoceClass(**value["roce"]),
        cnp=CnpClass(**value["cnp"]),
        best_effort=BestEffort(**value["best_effort"]),
        classes=tuple(
            FurtherClass(**{**entry, "dscps": tuple(entry["dscps"])}) for entry in value["classes"]
        ),
        ecn=Ecn(**value["ecn"]),
        pfc=Pfc(pfc["xoff_bytes"], Watchdog(**pfc["watchdog"])),
        mtu=Mtu(**value["mtu"]),
        cable_metres=Cables(**value["cable_metres"]),
        congestion_control=CongestionControl(**value["congestion_control"]),
    )

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One 800G port is one device, or two of 400G: do the machine and the model agree?"""

from __future__ import annotations

from typing import Optional

from ..checks import FAILED, Check
from .inventory import RAIL, RdmaDevice
from .modelled import Modelled, Rail, named

PLANES = "rail_planes"


def planes(model: Modelled) -> Optional[Check]:
    """One check for the whole machine where they disagree: all its NICs are split, or none."""
    split = [rail for rail in model.rails if model.split(rail)]
    if split:
        return _split(model, split)
    merged = [rail for rail in model.rails if model.merged(rail)]
    return _merged(model, merged) if merged else None


def _split(model: Modelled, rails: list[Rail]) -> Check:
    first = rails[0]
    functions = model.functions_on_card(first.pci)
    wanted, found = model.planes(first), len(functions)
    addresses = ", ".join(f'"{each.pci}"' for each in functions)
    reason = (
        f"this machine has {len(model.machine.of_kind(RAIL))} functions for rails, {found} on each "
        f"card ({named(functions)}, {_rate(functions[0])} each), and the model gives each rail "
        f"{wanted}. Say rails.planes: {found} in the model, rails.speed_gbps of one function, and "
        f"for each rail the addresses of all, as [{addresses}]; or make each port one device again "
        "in the NICs' firmware."
    )
    return Check(PLANES, wanted, found, FAILED, "", reason)


def _merged(model: Modelled, rails: list[Rail]) -> Check:
    first = rails[0]
    functions = model.functions_on_card(first.pci)
    wanted, found = model.planes(first), len(functions)
    reason = (
        f"the model gives each rail {wanted} planes, and {named(functions)} is one device of "
        f"{_rate(functions[0])}; {len(rails)} planes have no function, the first is {first.place}. "
        f"Say rails.planes: {found} in the model, rails.speed_gbps of the whole port, and one "
        "address for each rail; or split the ports in the NICs' firmware."
    )
    return Check(PLANES, wanted, found, FAILED, "", reason)


def _rate(port: RdmaDevice) -> str:
    return f"{port.speed_gbps:g} Gb/s" if port.speed_gbps else "unknown speed"

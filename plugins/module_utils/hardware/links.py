# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Do the links of a rail's NIC, to the machine and to the leaf, carry what the rail is to carry?"""

from __future__ import annotations

from typing import Optional

from ..checks import FAILED, OK, PENDING, Check
from .inventory import PcieLink
from .inventory import RdmaDevice as Port
from .modelled import Modelled, Rail
from .pci import GENERATIONS, best, capacity_gbps, describe, slowest_for

PCIE = "rail_pcie"
SPEED = "rail_speed"


def pcie(model: Modelled, rail: Rail, port: Port) -> Check:
    """The PCIe link: as good as both its ends can, and enough for all rails of the card."""
    link, above = port.link, _port_above(model, port)
    could = best(link, above)
    found = describe(link.speed_gts, link.width)
    if link.speed_gts is None or link.width is None:
        wanted = describe(could.speed_gts, could.width)
        reason = f"the kernel does not know the link; see lspci -vv -s {port.pci}"
        return Check(PCIE, wanted, found, FAILED, rail.name, reason)
    speed, width = could.speed_gts or link.speed_gts, could.width or link.width
    needed = sum(each.speed or 0 for each in model.on_card(rail.pci))
    carries = capacity_gbps(link.speed_gts, link.width)
    short = (
        f": it carries {carries:.0f} Gb/s, and the rails on it take {needed:g} Gb/s"
        if carries < needed
        else ""
    )
    wanted = describe(speed, width)
    if link.width < width:
        reason = (
            f"{rail.place} runs on {link.width} of {width} lanes{short}. Power the node off, "
            "reseat the NIC or its cable, look for dirt and bent pins; if it stays so, replace the "
            "NIC, then the riser."
        )
    elif link.speed_gts < speed:
        reason = (
            f"{rail.place} trained at {_generation(link.speed_gts)}, and both its ends can do "
            f"{_generation(speed)}{short}. Look for PCIe errors (dmesg, AER) and for a limit of "
            "the slot in the BIOS, power the node off and on, then reseat the NIC."
        )
    elif short:
        enough = slowest_for(needed)
        wanted = f"at least {describe(enough, 16)}" if enough else f"{needed:g} Gb/s"
        limit = "slot" if above and _limits(above, link) else "NIC"
        reason = (
            f"{rail.place} is at the best that its {limit} can do{short}. Move the NIC to a slot "
            "that carries it, or correct rails.speed_gbps in the model."
        )
    else:
        return Check(PCIE, wanted, found, OK, rail.name)
    return Check(PCIE, wanted, found, FAILED, rail.name, reason)


def _port_above(model: Modelled, port: Port) -> Optional[PcieLink]:
    """The other end of the link: the bridge that the NIC hangs off."""
    function = model.machine.functions.get(port.pci or "")
    above = (
        model.machine.functions.get(function.bridges[-1]) if function and function.bridges else None
    )
    return above.link if above else None


def _limits(above: PcieLink, link: PcieLink) -> bool:
    """Whether the port above is made for less than the NIC."""
    unknown = float("inf")
    return (above.max_speed_gts or unknown) < (link.max_speed_gts or unknown) or (
        above.max_width or unknown
    ) < (link.max_width or unknown)


def _generation(speed_gts: float) -> str:
    number = GENERATIONS.get(speed_gts)
    return f"{speed_gts:g} GT/s (PCIe {number})" if number else f"{speed_gts:g} GT/s"


def speed(model: Modelled, rail: Rail, port: Port, *, check_mode: bool) -> Optional[Check]:
    """The rate of the port, which NIC, cable and leaf agree on once its interface is up."""
    wanted, found = rail.speed, port.speed_gbps
    if wanted is None:
        return None
    if found == wanted:
        return Check(SPEED, wanted, found, OK, rail.name)
    leaf = " ".join(str(rail.entry.get(key) or "") for key in ("leaf", "leaf_port")).strip()
    far = f"the leaf's port ({leaf})" if leaf else "the leaf's port"
    ethtool = f"ethtool {port.netdev or rail.name}"
    if found is None and not port.name:
        reason = "nobody can say without a driver: see rail_rdma"
    elif found is None and port.netdev and not port.up:
        reason = f"the interface {port.netdev} is down, and its link with it"
        return Check(SPEED, wanted, found, PENDING if check_mode else FAILED, rail.name, reason)
    elif found is None:
        reason = (
            f"the link of {rail.place} is down. Look at the cable, the transceivers and {far}; "
            f"{ethtool} says what the NIC sees."
        )
    elif model.split(rail):
        reason = "its card has more functions than the model has planes: see rail_planes"
    else:
        reason = (
            f"{rail.place} runs at {found:g} Gb/s. Look at the speed of {far}, at the transceivers "
            f"or the cable, and at {ethtool}; if that is what the rail is for, correct "
            "rails.speed_gbps in the model."
        )
    return Check(SPEED, wanted, found, FAILED, rail.name, reason)

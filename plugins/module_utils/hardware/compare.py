# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine against the rails of the cluster model: every difference with its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import FAILED, Check
from . import links, neighbours, planes, presence
from .inventory import Machine
from .modelled import Modelled, Rail, is_nic


def compare_with_model(
    machine: Machine,
    rails: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]] = (),
    *,
    check_mode: bool = False,
) -> list[Check]:
    """One check per promise of each rail; `rails` and `gpus` as `cluster_rails`, `cluster_gpus`.

    Hardware cannot be set, so a difference is `failed` in check mode too. Only what the role brings
    about is `pending` there: virtual functions are removed, interfaces are set up. A rail without a
    PCI address is looked up by its interface. What only a physical RoCE NIC has is not asked of
    anything else.
    """
    model = Modelled(machine, rails, gpus)
    disagreement = planes.planes(model)
    found = [disagreement] if disagreement else []
    for rail in model.rails:
        found += _of_rail(model, rail, check_mode=check_mode)
    return found


def _of_rail(model: Modelled, rail: Rail, *, check_mode: bool) -> list[Check]:
    nic = presence.nic(model, rail)
    if nic.status == FAILED:
        return [nic]
    port = rail.port
    if port is None or not is_nic(port):
        return [nic, presence.stand_in(model, rail)]
    checks = (
        nic,
        presence.rdma(model, rail, port),
        links.pcie(model, rail, port),
        links.speed(model, rail, port, check_mode=check_mode),
        neighbours.gpu(model, rail, port),
        neighbours.numa(model, rail, port),
        neighbours.virtual_functions(rail, port, check_mode=check_mode),
    )
    return [check for check in checks if check is not None]

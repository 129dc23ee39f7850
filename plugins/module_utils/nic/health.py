# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Physical health of a rail: errors that its port counts, and the temperature of its module.

Counters have grown since the driver was loaded, pulled cables included. Judged is what they grow by
between a run's first look and its end: at 800 Gb/s and a bit error ratio of 1e-12 that is one error
in 1.25 s. Names and meaning: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
counters.rst (16f448d47a86).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ..hardware import tree
from .nic_settings import Ethtool

NAME = "rail_health"
ERRORS = ("link_down_events_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy")
"""By the source above, cable or transceiver are to be replaced where they increase."""
CORRECTED = "rx_corrected_bits_phy"
_LANE = "rx_err_lane_"
_MODULE = "Module"
"""Begin of the module's label beside that of the chip, `asic`."""
_NOTHING = "not applicable: its driver shows no counters of the physical port"
_CABLE = "Clean or replace cable and transceivers, here and at the leaf (mlxlink -d PCI -m -c)"
_SETTLING = "links were set up in this run, so errors are shown and not judged: run again"


@dataclass(frozen=True)
class Look:
    """What a port had counted, and when; nothing with other drivers than mlx5."""

    counted: Mapping[str, int]
    at: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, ethtool: Ethtool, interface: str) -> Look:
        try:
            counters = ethtool.statistics(interface)
        except OSError:
            return cls({})
        names = (*ERRORS, CORRECTED)
        return cls({n: v for n, v in counters.items() if n in names or n.startswith(_LANE)})


def module_celsius(function: Path) -> tuple[Optional[float], Optional[float]]:
    """The module's temperature and its own limit, from hwmon; `function` is the PCI function.

    Linux, drivers/net/ethernet/mellanox/mlx5/core/hwmon.c (189f164e573e): millidegrees, and
    `crit` is the threshold that the device has for it. A cable without a sensor has no label.
    """
    for label in sorted(function.glob("hwmon/hwmon*/temp*_label")):
        if tree.text(label).startswith(_MODULE):
            names = (label.name.replace("label", what) for what in ("input", "crit"))
            now, limit = (tree.number(label.parent / name) for name in names)
            return now / 1000 if now else None, limit / 1000 if limit else None
    return None, None


def check(
    rail: str,
    before: Look,
    now: Look,
    speed_gbps: Optional[float],
    module: tuple[Optional[float], Optional[float]],
    limits: Mapping[str, Any],
    *,
    quiet: bool,
) -> Check:
    """`quiet`: nothing was set up meanwhile, which takes links down and counts errors."""
    celsius, own_limit = module
    wanted = {**limits, "module_celsius": limits["module_celsius"] or own_limit}
    if not now.counted:
        return Check(NAME, wanted, None, NOT_APPLICABLE, rail, _NOTHING)
    seconds = now.at - before.at
    grown = {name: count - before.counted.get(name, count) for name, count in now.counted.items()}
    found: dict[str, Any] = {
        **now.counted,
        "seconds": round(seconds, 1),
        "new": {name: count for name, count in grown.items() if count},
        "raw_ber": None,
        "module_celsius": celsius,
    }
    errors: list[tuple[str, float]] = []
    if limits["new_errors"] is not None:
        errors += [(n, grown[n]) for n in ERRORS if grown.get(n, 0) > limits["new_errors"]]
    if speed_gbps and CORRECTED in grown:
        ratio = found["raw_ber"] = float(f"{grown[CORRECTED] / (speed_gbps * 1e9 * seconds):.1e}")
        if limits["raw_ber"] is not None and ratio > limits["raw_ber"]:
            errors.append(("raw bit error ratio", ratio))
    faults = []
    if errors and quiet:
        shown = ", ".join(f"{name} {count}" for name, count in errors)
        faults.append(f"in {seconds:.1f} s: {shown}. {_CABLE}")
    if celsius and wanted["module_celsius"] and celsius >= wanted["module_celsius"]:
        faults.append(f"its module is at {celsius:g} degrees Celsius: see airflow and fans")
    if faults:
        return Check(NAME, wanted, found, FAILED, rail, "; ".join(faults))
    if not quiet:
        return Check(NAME, wanted, found, NOT_APPLICABLE, rail, _SETTLING)
    return Check(NAME, wanted, found, OK, rail)

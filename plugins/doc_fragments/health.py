# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Option `health` of the modules that evaluate the physical health of rails.

Its arguments: LIMITS in plugins/module_utils/nic/mlx5/health.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  health:
    description:
      - Limits of the check C(rail_health), for the errors that a rail's port counts during a run
        and for the readings of its module. Without a limit, a value is reported but not evaluated.
    type: dict
    default: {}
    suboptions:
      new_errors:
        description:
          - Link downs, symbol errors that FEC did not correct, lost packets of a lossless class, and
            pauses of the whole link, each kind counted separately. Also for C(rail_losses).
        type: int
      raw_ber:
        description: Bits corrected by FEC, as a share of all bits.
        type: float
      effective_ber:
        description: Symbol errors that FEC did not correct, as a share of all bits.
        type: float
      module_celsius:
        description: Temperature. Defaults to the module's own limit (hwmon, C(mlxlink -m)).
        type: float
      power_margin_db:
        description: Accepted excess of optical power over the module's own limits.
        type: float
"""

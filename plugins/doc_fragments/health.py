# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules that judge the physical health of rails are given alike.

Its arguments: LIMITS in plugins/module_utils/nic/mlx5/health.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  health:
    description:
      - Limits of the check C(rail_health) for what a rail's port counts between two looks, and for
        what its module measures. Without a limit a figure is shown and not judged.
    type: dict
    default: {}
    suboptions:
      new_errors:
        description:
          - Link downs, symbol errors that FEC did not correct, packets that a lossless class lost,
            and pauses of the whole link, one kind at a time. In C(verbs) also of C(rail_losses).
        type: int
      raw_ber:
        description: Bits that FEC corrected, as a share of all.
        type: float
      effective_ber:
        description: Symbol errors that FEC did not correct, as a share of all bits.
        type: float
      module_celsius:
        description: Temperature of the module, by default its own limit (hwmon, C(mlxlink -m)).
        type: float
      power_margin_db:
        description: By how much optical power may be beyond the module's own limits.
        type: float
"""

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NICs, GPUs and RDMA devices a machine has, read from sysfs: `survey(root)`.

The root is `/sys` or a recorded tree; nothing here runs a program or writes a file. `compare` holds
the machine against the rails of the cluster model. It is not imported here, as most callers only
look up a device.
"""

from __future__ import annotations

from .inventory import Function, Gid, Machine, PcieLink, RdmaDevice
from .survey import SurveyError, survey

__all__ = [
    "Function",
    "Gid",
    "Machine",
    "PcieLink",
    "RdmaDevice",
    "SurveyError",
    "survey",
]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs, GPUs and RDMA devices of a machine, read from sysfs: `survey(root)`.

The root is `/sys` or a recorded tree. `compare` compares the machine with the rails of the cluster
model; it is not imported here, as most callers only look up a device. `iproute` reads the kernel's
network state from `ip`, and `host` the facts of an operating system that no model describes yet.
"""

from __future__ import annotations

from .inventory import Function, Gid, Machine, PcieLink, RdmaDevice
from .survey import SurveyError, survey

__all__ = ["Function", "Gid", "Machine", "PcieLink", "RdmaDevice", "SurveyError", "survey"]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of a ConnectX port: the cable length of its receive buffer, and RoCE accelerations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Optional

from ...core.checks import FAILED, PENDING
from ..dcb import Dcb, DcbSetting
from ..setting import SOFTWARE_REASON, NicSetting, RailNic, Reading

if TYPE_CHECKING:
    from ..nics import NicOptions

ROCE_ACCL = "ROCE_ACCL"
PROGRAMS = ("mlxreg", "mstreg")
"""Programs in MFT (DOCA-OFED) and mstflint that access registers, which a reset clears."""
_FIELD = re.compile(r"^(\w+)\s*\|\s*(0x[0-9a-fA-F]+)\s*$", re.M)


class Accelerations(NicSetting):
    """Adaptive routing and other fields of ROCE_ACCL that the operator can set."""

    name = "accelerations"

    def __init__(self, rail: RailNic, options: NicOptions, program: Optional[str]) -> None:
        """`program`: the one of PROGRAMS that is installed."""
        self.wanted = dict(sorted(options.accelerations.items()))
        self._real, self._program = rail.physical, program
        self._node = options.node
        self._argv = (program or "", "-d", rail.pci or "", "--reg_name", ROCE_ACCL)

    def read(self) -> Reading:
        if not self._real:
            return Reading(None, SOFTWARE_REASON, FAILED)
        if self._program is None:
            missing = f"neither {' nor '.join(PROGRAMS)} is installed"
            reason = f"{missing}: the layer rdma installs mft (with DOCA) or mstflint"
            return Reading(None, reason, PENDING if self._node.check_mode else FAILED)
        output = self._node.run((*self._argv, "--get")).stdout
        fields = {name: int(value, 16) for name, value in _FIELD.findall(output)}
        lacking = [name for name in self.wanted if name not in fields]
        if lacking:
            return Reading(None, f"its firmware has no {', '.join(lacking)} in {ROCE_ACCL}", FAILED)
        return Reading({name: fields[name] for name in self.wanted})

    def set(self, value: Any) -> None:
        text = ",".join(f"{name}={field:#x}" for name, field in value.items())
        self._node.run((*self._argv, "--set", text, "--yes"))


class CableLength(DcbSetting):
    """Cable length in metres for which the driver computes its receive buffer; 7 by default.

    mlx5 interprets `delay` of PFC as this length if the NIC reports its buffers (Linux 6.16,
    drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c, mlx5e_dcbnl_ieee_setpfc), as
    `mlnx_qos --cable_len` sends it (Mellanox/mlnx-tools caad4192, python/dcbnetlink.py). The driver
    uses it after a buffer size was set (Linux 451d2849ea66); until then firmware sizes the buffer.
    """

    optional = True
    otherwise = "its driver has no cable length, and its firmware sizes the receive buffer"

    def __init__(self, rail: RailNic, options: NicOptions) -> None:
        super().__init__(
            "cable_length",
            lambda state: state.cable_metres or None,
            Dcb.put_cable,
            rail,
            options.dcb,
            options.contract,
        )

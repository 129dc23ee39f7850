# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of a ConnectX port: the cable length of its receive buffer, and RoCE accelerations."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from ...core.checks import FAILED, PENDING
from ...hardware import tree
from ...hardware.survey import interface_speed
from ...qos import IP_MTU_LIMITS
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
        lacking = [
            name
            for name in self.wanted
            # The flag of `X_en` is `X_field_select` or `X_en_field_select`; 0: not settable.
            if name not in fields
            or 0 in (fields.get(f"{x}_field_select") for x in (name, name.removesuffix("_en")))
        ]
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
        self._priorities = options.contract.pfc_priorities
        self._net = options.node.root / "sys/class/net" / rail.interface

    def read(self) -> Reading:
        reading = super().read()
        return reading if reading.status else replace(reading, reason=self._headroom())

    def _headroom(self) -> str:
        """Return the actual and required size of each lossless receive buffer; empty if not
        reported."""
        speed, mtu = interface_speed(self._net), tree.number(self._net / "mtu")
        buffers: dict[int, tuple[int, int]] = {}
        for priority in self._priorities:
            buffer = self._dcb.buffer(self._interface, priority) if self._dcb else None
            if buffer is not None:
                buffers.setdefault(buffer[0], (buffer[1], priority))
        if speed is None or mtu is None:
            return ""
        needed = lossless_bytes(self.wanted, speed, mtu)
        texts = []
        for number, (size, priority) in buffers.items():
            remedy = f"dcb buffer set dev {self._interface} buffer-size {number}:{needed}"
            texts.append(
                f"receive buffer {number} (priority {priority}) has {size} bytes; the driver "
                f"needs {needed} for {self.wanted} m at {speed:g} Gb/s and MTU {mtu}"
                + (f". Where packets are lost (rx_discards_phy): {remedy}" if size < needed else "")
            )
        return "; ".join(texts)


def lossless_bytes(metres: int, speed_gbps: float, mtu: int) -> int:
    """Return the minimum size of a lossless receive buffer with headroom after a pause.

    Linux 6.16, drivers/net/ethernet/mellanox/mlx5/core/en/port_buffer.c: calculate_xoff, and
    update_xoff_threshold, which adds the largest frame and a cell of 128 bytes.
    """
    megabits = max(int(speed_gbps * 1000), 40000)
    xoff = (301 + 216 * metres // 100) * megabits // 1000 + 272 * mtu // 100
    return xoff + IP_MTU_LIMITS[1] + 128

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware that is compared with the model and never set: the mode of the fabric, and planes.

NVIDIA's own tools set up Spectrum-X and split ports; names and values are those of its operator
(Mellanox/nic-configuration-operator, bindata/spectrum-x: RA2.0.yaml of b4a78227, 2026-03-19, and
RA2.2.yaml of 76977935, 2026-04-21; LOAD_BALANCE_MODE_P1: docs/dospcx-legacy-parameter-mapping.md of
ea00777e). A NIC in the other mode keeps all its settings: half of both modes is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..qos import SPECTRUM_X, HostSettings
from ..rails.state import pci_address
from .firmware import VARIABLE, Firmwares, FirmwareSetting
from .setting import MLX5, Rail, Reading, Setting

Profile = Mapping[str, int]
"""Parameter to value, as the first port of a card has it."""
Verdict = Callable[[Reading, str, str], Reading]
"""Of a value that differs (None: unknown to the firmware), its parameter, and the remedy."""

ROUTING, PROGRAM = "ROCE_ADAPTIVE_ROUTING_EN", "USER_PROGRAMMABLE_CC"
"""Both on: set up for Spectrum-X. Each alone goes with DCQCN, which runs until a program of DOCA
does (docs.nvidia.com/doca/sdk/doca-pcc: the parameter is off until it is set)."""
_ROCE: Sequence[Profile] = (
    {ROUTING: 1, PROGRAM: 0},
    {ROUTING: 0, PROGRAM: 0},
    {ROUTING: 0, PROGRAM: 1},
)
FUNCTIONS = "NUM_OF_PF"


def compared_settings(
    host: HostSettings,
    lanes: Mapping[str, tuple[int, int]],
    firmwares: Firmwares,
    named: Collection[str],
    root: Path,
    rail: Rail,
) -> list[Setting]:
    """`lanes`: by rail its planes in the model, and how many rails of the model are on its card.

    Parameters that the operator has `named` are the operator's.
    """
    pci = pci_address(root / "sys/class/net" / rail.interface)
    if rail.device is None or rail.driver != MLX5 or pci is None:
        return []
    profiles = _spectrum_x(host.cnp_dscp)
    asked: list[tuple[Sequence[str], Sequence[Profile], Verdict]] = [
        (tuple(profiles[0]), profiles, _not_spectrum_x)
        if host.fabric_mode == SPECTRUM_X
        else ((PROGRAM,), _ROCE, _not_roce)
    ]
    if rail.name in lanes:
        planes, rails = lanes[rail.name]
        profiles = _of_planes(planes, rails)
        asked.append((tuple(profiles[0]), profiles, partial(_other_planes, planes, rails)))
    return [
        Compared(name, profiles, verdict, firmwares, pci)
        for names, profiles, verdict in asked
        for name in names
        if name not in named
    ]


def _spectrum_x(cnp_dscp: int) -> list[Profile]:
    """RA2.0 leaves the DSCP of answers to probes to the device; RA2.2 gives them that of CNPs."""
    common = {
        ROUTING: 1,
        PROGRAM: 1,
        "TX_SCHEDULER_LOCALITY_MODE": 2,
        "ROCE_CC_STEERING_EXT": 2,
    }
    mode, dscp = "ROCE_RTT_RESP_DSCP_MODE_P1", "ROCE_RTT_RESP_DSCP_P1"
    return [{**common, mode: 0, dscp: 0}, {**common, mode: 1, dscp: cnp_dscp}]


def _of_planes(planes: int, rails: int) -> list[Profile]:
    """Packets spread over planes by software, or by hardware with either balance of load."""
    kinds = ((0, 0), (planes, 0), (planes, 2))
    names = (FUNCTIONS, "NUM_OF_PLANES_P1", "LOAD_BALANCE_MODE_P1")
    return [dict(zip(names, (planes * rails, *kind))) for kind in kinds]


def _not_spectrum_x(reading: Reading, _name: str, remedy: str) -> Reading:
    return _refused(
        reading,
        "it is not set up for Spectrum-X, so no setting of this NIC was made. Set its firmware "
        f"with the tools that install DOCA SPC-X CC, or: {remedy}. Or write roce_qos.fabric_mode: "
        "roce",
    )


def _not_roce(reading: Reading, name: str, remedy: str) -> Reading:
    if reading.found is None:
        return Reading.kept_otherwise(f"its firmware has no {name}: it cannot do Spectrum-X")
    return _refused(
        reading,
        "it is set up for Spectrum-X, so no setting of this NIC was made. Write "
        f"roce_qos.fabric_mode: {SPECTRUM_X}, or: {remedy}",
    )


def _refused(reading: Reading, reason: str) -> Reading:
    return replace(reading, supported=False, reason=reason, refused=reason)


def _other_planes(planes: int, rails: int, reading: Reading, name: str, remedy: str) -> Reading:
    if reading.found is None:
        return Reading.kept_otherwise(f"its firmware has no {name}, and no planes of its own")
    if name == FUNCTIONS and planes == 1:
        reason = "right for a card with further ports; a port that is split needs rails.planes"
        return replace(reading, supported=False, excused=True, reason=reason)
    reason = (
        f"rails.planes is {planes}, and {rails} rails are on this card. Correct the model, or: "
        f"{remedy}. Where a card is meant to differ, write null for it in {VARIABLE}"
    )
    return replace(reading, supported=False, reason=reason)


class Compared(FirmwareSetting):
    """One parameter of a profile; of several profiles, of the one that the NIC is nearest to."""

    alone = True

    def __init__(
        self,
        parameter: str,
        profiles: Sequence[Profile],
        verdict: Verdict,
        firmwares: Firmwares,
        pci: str,
    ) -> None:
        super().__init__(parameter, profiles[0][parameter], firmwares, pci, "", ())
        self._profiles = profiles
        self._verdict = verdict

    def judge(self, reading: Reading) -> Reading:
        nearest = min(self._profiles, key=lambda profile: len(self._apart(profile)))
        self.wanted = nearest[self._first_port_parameter]
        if reading.to_come == self.wanted:
            return reading
        if reading.found == self.wanted:
            reading = replace(reading, found=f"{reading.found}, and {reading.pending} to come")
        return self._verdict(reading, self.parameter, self._remedy(self._apart(nearest)))

    def _apart(self, profile: Profile) -> dict[str, int]:
        """What the profile has and the card has not, by the names of this port."""
        known = self._firmwares.parameters(self._pci)
        named = {self._firmwares.port_parameter(self._pci, name): name for name in profile}
        return {
            own: profile[name]
            for own, name in named.items()
            if own not in known or known[own].next_boot != profile[name]
        }

    def _remedy(self, apart: Profile) -> str:
        known = self._firmwares.parameters(self._pci)
        words = [f"{name}={value}" for name, value in apart.items() if name in known]
        missing = [name for name in apart if name not in known]
        update = [f"update its firmware, which has no {', '.join(missing)}"] if missing else []
        command = f"mlxconfig -d {self._pci} set {' '.join(words)}, and power-cycle the host"
        return "; ".join([*update, *([command] if words else [])])

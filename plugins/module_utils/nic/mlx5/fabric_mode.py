# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware settings that are compared with the model but never set: fabric mode and planes.

NVIDIA's tools set up Spectrum-X and split ports. Names and values are those used by its Kubernetes
operator (Mellanox/nic-configuration-operator, bindata/spectrum-x: RA2.0.yaml of b4a78227,
2026-03-19, and RA2.2.yaml of 76977935, 2026-04-21; LOAD_BALANCE_MODE_P1:
docs/dospcx-legacy-parameter-mapping.md of ea00777e). No setting of a NIC in the other mode is
changed, as a mixture of both modes is useless.

A port is split by its lanes: MODULE_SPLIT_M0[i] is the number of the port of lane i, from 1, or
0xff if it belongs to none (Mellanox/mstflint b9d9e844, mlxconfig_host.db, nv_module_split). RA2.2
lists the lanes of a ConnectX-8 and a ConnectX-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Optional

from ...core.checks import FAILED, NOT_APPLICABLE
from ...hardware.survey import pci_address
from ...qos import SPECTRUM_X
from ..setting import NicSetting, RailNic, Reading
from .firmware import VARIABLE, Firmwares, FirmwareSetting, Value, assignments, split_name

if TYPE_CHECKING:
    from ..nics import NicOptions

Profile = Mapping[str, Value]
"""Maps parameters to values, with the names of a card's first port."""
Evaluation = Callable[[Reading, str, str], Reading]
"""Evaluates a differing reading (None: unknown to the firmware), given parameter and remedy."""

ROUTING, PROGRAM = "ROCE_ADAPTIVE_ROUTING_EN", "USER_PROGRAMMABLE_CC"
"""If both are on, the mode is Spectrum-X. Either of them without the other is compatible with
DCQCN, which runs until a DOCA program replaces it (docs.nvidia.com/doca/sdk/doca-pcc: the parameter
is off by default).
"""
_ROCE: Sequence[Profile] = (
    {ROUTING: 1, PROGRAM: 0},
    {ROUTING: 0, PROGRAM: 0},
    {ROUTING: 0, PROGRAM: 1},
)
FUNCTIONS, BY_HARDWARE = "NUM_OF_PF", "NUM_OF_PLANES_P1"
LANES = {"1023": 8, "1025": 8}
"""By device ID, the lanes of the only cage, which are split into a port per plane."""
SPLIT, SECOND_CAGE = "MODULE_SPLIT_M0[0..15]", "MODULE_SPLIT_M1"
_NO_LANE = 0xFF
_HIDDEN = dict.fromkeys((PROGRAM, "ROCE_CC_STEERING_EXT"), "ROCE_CC_LEGACY_DCQCN")
"""Parameters that another one hides while it is 1 (mlxconfig_host.db, `dependency`)."""


def compared_settings(options: NicOptions, firmwares: Firmwares, rail: RailNic) -> list[NicSetting]:
    """Return the settings that are only compared, except those that the operator has named."""
    host = options.contract
    pci = pci_address(options.node.root / "sys/class/net" / rail.interface)
    if rail.device is None or pci is None:
        return []
    profiles = _spectrum_x(host.cnp_dscp)
    asked: list[tuple[Sequence[str], Sequence[Profile], Evaluation]] = [
        (tuple(profiles[0]), profiles, _not_spectrum_x)
        if host.fabric_mode == SPECTRUM_X
        else ((PROGRAM,), _ROCE, _not_roce)
    ]
    if rail.name in options.lanes:
        planes, rails = options.lanes[rail.name]
        profiles = _of_planes(planes, rails, LANES.get(rail.device.device_id))
        if rail.shared:
            # With planes balanced by software, each has an RDMA device.
            profiles = [profile for profile in profiles if profile[BY_HARDWARE]]
        verdict = partial(_other_planes, planes, rails, rail.shared)
        asked.append((tuple(profiles[0]), profiles, verdict))
    theirs = {split_name(name)[0] for name in options.firmware_parameters}
    return [
        Compared(name, profiles, verdict, firmwares, pci, rail.shared)
        for names, profiles, verdict in asked
        for name in names
        if split_name(name)[0] not in theirs
    ]


def _spectrum_x(cnp_dscp: int) -> list[Profile]:
    """RA2.0 leaves the DSCP of probe responses to the device; RA2.2 sets it to that of CNPs."""
    common = {ROUTING: 1, PROGRAM: 1, "TX_SCHEDULER_LOCALITY_MODE": 2, "ROCE_CC_STEERING_EXT": 2}
    mode, dscp = "ROCE_RTT_RESP_DSCP_MODE_P1", "ROCE_RTT_RESP_DSCP_P1"
    return [{**common, mode: 0, dscp: 0}, {**common, mode: 1, dscp: cnp_dscp}]


def _of_planes(planes: int, rails: int, lanes: Optional[int]) -> list[Profile]:
    """Planes balanced by software, or by hardware with either mode of load balancing."""
    kinds = ((0, 0), (planes, 0), (planes, 2))
    names = (FUNCTIONS, BY_HARDWARE, "LOAD_BALANCE_MODE_P1")
    profiles: list[Profile] = []
    for by_hardware, balance in kinds:
        profile: dict[str, Value] = dict(zip(names, (planes * rails, by_hardware, balance)))
        if planes > 1:
            profile["LAG_RESOURCE_ALLOCATION"] = int(bool(by_hardware))
        if planes > 1 and rails == 1 and lanes:
            # Balanced by hardware, all lanes form one port, which the NIC divides into planes.
            profile[SPLIT] = _split(lanes, 1 if by_hardware else planes)
        profiles.append(profile)
    return profiles


def _split(lanes: int, ports: int) -> Value:
    numbers = [1 + lane * ports // lanes for lane in range(lanes)]
    return numbers + [_NO_LANE] * (16 - lanes)


def _not_spectrum_x(reading: Reading, _name: str, remedy: str) -> Reading:
    reason = (
        "it is not set up for Spectrum-X, so no setting of this NIC was changed. Set its firmware "
        f"with the tools that install DOCA SPC-X CC, or: {remedy}. Or set roce_qos.fabric_mode: "
        "roce"
    )
    return replace(reading, refused=reason)


def _not_roce(reading: Reading, name: str, remedy: str) -> Reading:
    if reading.found is None:
        reason = f"its firmware has no {name}: it does not support Spectrum-X"
        return Reading(None, reason, NOT_APPLICABLE)
    reason = (
        "it is set up for Spectrum-X, so no setting of this NIC was changed. Set "
        f"roce_qos.fabric_mode: {SPECTRUM_X}, or: {remedy}"
    )
    return replace(reading, refused=reason)


def _other_planes(
    planes: int, rails: int, shared: bool, reading: Reading, name: str, remedy: str
) -> Reading:
    if shared and name == BY_HARDWARE and not reading.found:
        reason = (
            "it has no RDMA device, and its firmware does not balance planes by hardware, which "
            "would make it share that of the first function. RoCE may be off (devlink dev param "
            "show ... name enable_roce), or mlx5_ib failed (dmesg). To balance planes by hardware: "
            f"{remedy}"
        )
        return replace(reading, status=FAILED, reason=reason)
    if reading.found is None:
        return Reading(None, f"its firmware has no {name}, and no planes", NOT_APPLICABLE)
    if name == FUNCTIONS and planes == 1:
        reason = "right for a card with more ports; a split port needs rails.planes"
        return replace(reading, status=NOT_APPLICABLE, reason=reason)
    if name == FUNCTIONS and SPLIT.partition("[")[0] not in remedy:
        example = " ".join(assignments(SPLIT, _split(LANES["1023"], planes)))
        remedy += (
            ". More functions do not split a port: also set its lanes as in the manual of the card "
            f"(one cage of a ConnectX-8: LAG_RESOURCE_ALLOCATION=0 {example})"
        )
    reason = (
        f"rails.planes is {planes}, and {rails} rails are on this card. Correct the model, or: "
        f"{remedy}. If a card is meant to differ, set the parameter to null in {VARIABLE}"
    )
    return replace(reading, status=FAILED, reason=reason)


class Compared(FirmwareSetting):
    """One parameter of the profile that is closest to the NIC's values."""

    optional = True

    def __init__(
        self,
        parameter: str,
        profiles: Sequence[Profile],
        verdict: Evaluation,
        firmwares: Firmwares,
        pci: str,
        shared: bool,
    ) -> None:
        super().__init__(parameter, profiles[0][parameter], firmwares, pci, shared)
        self._profiles = profiles
        self._verdict = verdict

    def evaluate(self, reading: Reading) -> Reading:
        if self._first_port_parameter == SPLIT and self._two_cages:
            return Reading(None, "it has a second cage: lanes are not compared", NOT_APPLICABLE)
        nearest = min(self._profiles, key=lambda profile: len(self._missing_from(profile)))
        self.wanted = nearest[self._first_port_parameter]
        if reading.to_come == self.wanted:
            return reading
        if reading.found == self.wanted:
            reading = replace(reading, found=f"{reading.found}, and {reading.pending} to come")
        return self._verdict(reading, self.parameter, self._remedy(self._missing_from(nearest)))

    def _missing_from(self, profile: Profile) -> dict[str, Value]:
        """Return the profile's values that the card does not have, under the names of this port."""
        found: dict[str, Value] = {}
        for name, value in profile.items():
            here = self._firmwares.parameter(self._pci, self.of_port(name))
            differs = here is None or here.next_boot != value
            if differs and not (name == SPLIT and self._two_cages):
                found[self.of_port(name)] = value
        return found

    @property
    def _two_cages(self) -> bool:
        return SECOND_CAGE in self._firmwares.table(self._pci).arrays

    def _remedy(self, missing_values: Profile) -> str:
        known = self._firmwares.table(self._pci).known
        command: list[str] = []
        missing: list[str] = []
        for name, value in missing_values.items():
            if self._firmwares.parameter(self._pci, name):
                command += assignments(name, value)
            else:
                missing.append(name)
        by = {_HIDDEN[name] for name in missing if name in _HIDDEN}
        hiding = [name for name in by if name in known and known[name].next_boot]
        update = [f"update its firmware, which has no {', '.join(missing)}"] if missing else []
        if hiding:
            update = [f"{', '.join(missing)} is shown after the reset: run again then"]
            command += [f"{name}=0" for name in hiding]
        text = f"mlxconfig -d {self._pci} set {' '.join(command)}, and power-cycle the host"
        return "; ".join([*update, *([text] if command else [])])

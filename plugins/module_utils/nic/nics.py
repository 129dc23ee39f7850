# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs of one host's rails: reading their settings, and the steps that set those that differ.

The run-time settings of a rail are one unit, and so are the firmware parameters of its NIC: a unit
that cannot be set as a whole is not touched, and one that fails is restored
(`core/engine.Group`). A failure on one rail does not affect the others.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Optional, TypeVar

from ..core.checks import FAILED, REBOOT, Check, not_applicable
from ..core.commands import find_program
from ..core.engine import Group
from ..core.files import diff
from ..core.part import Node, PlanError, Step
from ..core.reboots import Reason
from ..hardware import Machine, RdmaDevice, survey
from ..hardware.compare import compare_with_model
from ..hardware.inventory import card_of
from ..hardware.survey import interface_speed
from ..qos import SPECTRUM_X, HostSettings
from . import dcb, health, mlx5
from .health import PortCounters, PortReading
from .port_settings import Ethtool, LinkPause, MaxReadRequest, RingSizes
from .rdma_cm import rdma_cm_settings
from .setting import (
    FIRMWARE,
    SOFTWARE_REASON,
    NicSetting,
    Provider,
    RailNic,
    Reading,
    number,
    shown,
)
from .sriov import sriov_settings


@dataclass(frozen=True)
class NicOptions:
    """Options of the module roce_rails that concern vendors, after validation."""

    contract: HostSettings
    node: Node
    which: Callable[[str], Optional[str]]
    dcb: Optional[dcb.Dcb]
    """None if `dcb` is not installed."""
    congestion_control: Mapping[str, int]
    accelerations: Mapping[str, int]
    firmware: bool
    firmware_parameters: Mapping[str, Any]
    lanes: Mapping[str, tuple[int, int]]
    """For each rail: its planes in the model, and the number of rails on its card."""


VENDORS: dict[str, Callable[[NicOptions], Provider]] = {mlx5.DRIVER: mlx5.provider}
"""The providers of vendors' packages, by kernel driver."""

WHOLE = "rail_settings"
"""The only check of a rail without settings: its NIC is not a RoCE NIC."""
PROMISE = "the NIC settings of the QoS contract"
AS_IT_WAS = "as it was, all or nothing on a rail"
OPTIONS = ("qos", "nic", "firmware", "firmware_parameters", "remove_vfs_in_use")
"""The options of the module that concern NICs; the boot program reads them from its file."""
QUICK_S = 10.0
"""Time limit of one call of `dcb`, which answers immediately or never."""
MAX_READ_REQUEST_BYTES = 4096
_T = TypeVar("_T")


class RailSettings:
    """The settings of one rail, and those that are written as a group."""

    def __init__(self, rail: RailNic, settings: Sequence[NicSetting]) -> None:
        self.rail = rail
        self.settings = settings
        self.group: Optional[Group] = None
        for setting in settings:
            setting.physical = rail.physical
            setting.look()

    def fault(self, setting: NicSetting) -> str:
        """Why it was not written or did not persist: faults of others in its unit."""
        names = [
            other.name
            for other in self.settings
            if other.fault
            and (other.reading.refused or (other.unit == setting.unit and not other.optional))
        ]
        return f"{AS_IT_WAS}: see {', '.join(names)}" if names else ""

    @property
    def to_write(self) -> list[NicSetting]:
        return [setting for setting in self.settings if setting.differs and not self.fault(setting)]

    def act(self) -> None:
        changes = self.to_write
        if changes:
            self.group = Group(changes, self.look)
            self.group.act()

    def look(self) -> None:
        for setting in self.settings:
            setting.forget()
        for setting in self.settings:
            setting.look()

    def states(self, check_mode: bool) -> dict[str, dict[str, Any]]:
        return {
            setting.name: setting.state(check_mode, self.fault(setting))
            for setting in self.settings
        }

    def checks(self, check_mode: bool) -> list[Check]:
        """Return a check per setting, or one for all settings that failed for the same reason."""
        checks = [self._no_roce()] if self.rail.device is None else []
        failed: dict[str, dict[str, dict[str, Any]]] = {}
        for name, state in self.states(check_mode).items():
            if state["status"] == FAILED:
                failed.setdefault(state["reason"], {})[name] = state
            else:
                checks.append(self._check(name, state))
        # Causes come before the settings that were not written because of them.
        for reason in sorted(failed, key=lambda reason: reason.startswith(AS_IT_WAS)):
            states = failed[reason]
            name, state = next(iter(states.items()))
            if len(states) > 1:
                for key in ("wanted", "found"):
                    state = {**state, key: {each: of[key] for each, of in states.items()}}
            checks.append(self._check(name, state))
        return checks

    def _check(self, name: str, state: Mapping[str, Any]) -> Check:
        wanted, found, status = (state[key] for key in ("wanted", "found", "status"))
        return Check(f"rail_{name}", wanted, found, status, self.rail.name, state["reason"])

    def _no_roce(self) -> Check:
        name, driver = self.rail.name, self.rail.driver or "none"
        if driver in VENDORS:
            reason = f"driver {driver} without an RDMA device: see rail_rdma"
            return Check(WHOLE, PROMISE, "no RDMA device", FAILED, name, reason)
        reason = f"not applicable: not a RoCE NIC (driver {driver})"
        return not_applicable(WHOLE, PROMISE, reason, subject=name)

    def diff(self) -> list[dict[str, str]]:
        differing = self.to_write
        before = "".join(f"{each.name}: {shown(each.reading.to_come)}\n" for each in differing)
        after = "".join(f"{each.name}: {shown(each.wanted)}\n" for each in differing)
        return [diff(f"{self.rail.name} (settings)", before, after)] if differing else []

    def resets(self, check_mode: bool) -> list[Reason]:
        """Return what waits for a reset; in check mode, also what would after a run."""
        name = self.rail.name
        return [
            Reason(
                subject=f"{name} {setting.name}",
                wanted=str(setting.wanted),
                running=str(setting.reading.found),
                reason=f"{name}: the new value of {setting.name} takes effect at a firmware reset",
            )
            for setting in self.settings
            if setting.unit == FIRMWARE
            and (setting.waits or (check_mode and setting in self.to_write))
            and setting.reading.found != setting.wanted
        ]


class Nics:
    """The NICs of one host's rails: read by `look`, set by `steps`."""

    def __init__(
        self,
        given: Mapping[str, Any],
        node: Node,
        model: Sequence[Mapping[str, Any]] = (),
        gpus: Sequence[Mapping[str, Any]] = (),
        *,
        ethtool: Optional[Ethtool] = None,
        which: Callable[[str], Optional[str]] = find_program,
    ) -> None:
        """`given` has the OPTIONS; the hardware is compared with `model` and `gpus`."""
        self.given = given
        self.node = node
        self.ethtool = ethtool or Ethtool()
        self.which = which
        self._model = model
        self._gpus = gpus
        self._machine = Machine()
        self._rails: dict[str, RailSettings] = {}
        self._first: dict[str, PortCounters] = {}
        """Counters of each rail's port when it was first read."""
        self.written: list[str] = []
        """Rails on which a setting was written; a NIC may take its link down for a moment."""

    def look(
        self, interfaces: Mapping[str, str], reached_by: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Read all settings. Raises PlanError for an impossible option.

        `interfaces`: the current interface name of each rail; `reached_by`: interfaces through
        which the host is reached, with the reason.
        """
        self._machine = self._survey()
        rails = [self._rail(*entry) for entry in interfaces.items()]
        sources = providers(
            self.given, self.node, self.ethtool, self.which, reached_by, self._lanes(rails)
        )
        self.read(rails, sources)
        for rail in rails if "health" in self.given else ():
            if rail.physical and rail.name not in self._first:
                self._first[rail.name] = self._counters(rail)

    def read(self, rails: Sequence[RailNic], sources: Sequence[Provider]) -> None:
        self._rails = {
            rail.name: RailSettings(rail, [each for provide in sources for each in provide(rail)])
            for rail in rails
        }

    def steps(self) -> list[Step]:
        """Return one step per rail, for its latest reading."""
        return [
            Step(
                "rails",
                "",
                "",
                partial(self._act, name),
                essential=True,
                shown=rail.diff(),
                silent=not rail.diff(),
                holds=partial(self._with_group, name, Group.holds, True),
                undo=partial(self._with_group, name, Group.undo, ""),
            )
            for name, rail in self._rails.items()
        ]

    @property
    def diff(self) -> list[dict[str, str]]:
        return [entry for rail in self._rails.values() for entry in rail.diff()]

    def _act(self, name: str) -> None:
        rail = self._rails.get(name)
        if rail is None:  # it disappeared, which its checks report
            return
        rail.act()
        if rail.group:
            self.written.append(name)

    def _with_group(self, name: str, do: Callable[[Group], _T], otherwise: _T) -> _T:
        rail = self._rails.get(name)
        return do(rail.group) if rail and rail.group else otherwise

    def _lanes(self, rails: Sequence[RailNic]) -> dict[str, tuple[int, int]]:
        """By rail: its planes in the model, and the number of rails on its card."""
        numbers = {str(entry["interface"]): entry["rail"] for entry in self._model}
        modelled = [rail for rail in rails if rail.pci and rail.name in numbers]
        cards = {rail.name: card_of(rail.pci or "") for rail in modelled}
        planes = Counter(numbers.values())
        on_card = Counter(card for card, _rail in {(cards[r], numbers[r]) for r in cards})
        return {name: (planes[numbers[name]], on_card[card]) for name, card in cards.items()}

    def _survey(self) -> Machine:
        return survey(self.node.root / "sys")

    def _rail(self, name: str, interface: str) -> RailNic:
        port = self._machine.device_of(interface)
        driver = port.driver if port is not None else ""
        with contextlib.suppress(OSError):
            # The driver of the PCI function may differ: virtio-pci below virtio_net.
            driver = self.ethtool.driver(interface)
        device = port if port is not None and port.name else None
        first = self._first_function(port) if port is not None else None
        if port is not None and first is not None:
            # The PCI function of this rail, with the RDMA device of the first function.
            device = replace(first, pci=port.pci, netdev=port.netdev, link=port.link)
        pci = port.pci if port else None
        return RailNic(name, interface, driver, pci, device, shared=first is not None)

    def _first_function(self, port: RdmaDevice) -> Optional[RdmaDevice]:
        """Return the function whose RDMA device this one shares, unless both are rails."""
        first = self._machine.first_of(port)
        numbers = {str(entry.get("pci") or ""): entry["rail"] for entry in self._model}
        known = [numbers[each.pci] for each in (first, port) if each and each.pci in numbers]
        return first if len(set(known)) < 2 else None

    def checks(self, *, check_mode: bool) -> list[Check]:
        return [check for rail in self._rails.values() for check in rail.checks(check_mode)]

    def rail_checks(
        self, later: Mapping[str, str], *, check_mode: bool, quiet: bool = True
    ) -> list[Check]:
        """Return the checks of hardware, health and settings, and of rails that will be named
        `later`.

        `quiet`: this run changed nothing, so the first reading of the machine is still valid.
        """
        machine, rails = self._machine if quiet else self._survey(), self._rails
        hardware = compare_with_model(machine, self._model, self._gpus, check_mode=check_mode)
        return [
            *hardware,
            *(self._health(rails[name].rail, quiet) for name in rails if name in self._first),
            *self.checks(check_mode=check_mode),
            *(Check(WHOLE, PROMISE, None, REBOOT, name, why) for name, why in later.items()),
        ]

    def _health(self, rail: RailNic, quiet: bool) -> Check:
        root, settings = self.node.root, HostSettings.of(self.given["qos"])
        return health.check(
            rail.name,
            self._first[rail.name],
            self._counters(rail),
            interface_speed(root / "sys/class/net" / rail.interface),
            PortReading.of(rail.pci or "-", self.node.run, self.which),
            self.given["health"],
            quiet=quiet,
            lossless=settings.pfc_priorities,
            notified=settings.dcqcn,
        )

    def _counters(self, rail: RailNic) -> PortCounters:
        with contextlib.suppress(OSError):
            read = health.of_port(self.ethtool.statistics(rail.interface))
            if read and rail.device is not None:
                device, sys = rail.device, self.node.root / "sys"
                read.update(health.of_device(device.name, device.port, sys, health.OF_DEVICE))
            return PortCounters(read)
        return PortCounters({})

    @property
    def with_rdma(self) -> tuple[str, ...]:
        """Rails with an unshared RDMA device."""
        rails = [settings.rail for settings in self._rails.values()]
        return tuple(rail.name for rail in rails if rail.device is not None and not rail.shared)

    @property
    def in_other_mode(self) -> list[str]:
        """Rails on which nothing may be set, because of their firmware."""
        return [
            name
            for name, rail in self._rails.items()
            if any(each.reading.refused and each.unit == FIRMWARE for each in rail.settings)
        ]

    @property
    def rolled_back(self) -> list[str]:
        return [name for name, rail in self._rails.items() if rail.group and rail.group.restored]

    def settings(self, *, check_mode: bool) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: rail.states(check_mode) for name, rail in self._rails.items()}

    def resets(self, *, check_mode: bool) -> list[Reason]:
        return [reason for rail in self._rails.values() for reason in rail.resets(check_mode)]


def providers(
    given: Mapping[str, Any],
    node: Node,
    ethtool: Ethtool,
    which: Callable[[str], Optional[str]],
    reached_by: Mapping[str, str],
    lanes: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> list[Provider]:
    """Return the providers in the order in which the settings of a rail are written.

    `reached_by`: interfaces through which the host is reached. `lanes`: for each rail, its planes
    in the model and the number of rails on its card. Raises PlanError for an impossible option.
    """
    qos, nic, root = HostSettings.of(given["qos"]), given["nic"], node.root
    read_request = nic.get("max_read_request_bytes", MAX_READ_REQUEST_BYTES)
    if read_request is not None:
        read_request = number("roce_rails_nic: max_read_request_bytes", read_request)
    rings = _numbers("rings", nic.get("rings"))
    tool = dcb.Dcb(node.look) if which(dcb.PROGRAM) else None
    options = NicOptions(
        contract=qos,
        node=node,
        which=which,
        dcb=tool,
        congestion_control=_congestion_control(nic, qos),
        accelerations=_accelerations(nic),
        firmware=given["firmware"],
        firmware_parameters=given["firmware_parameters"],
        lanes=lanes,
    )

    def port_settings(rail: RailNic) -> list[NicSetting]:
        if rail.device is None:
            return []
        # Link pause comes before PFC: a port cannot have both.
        settings: list[NicSetting] = [LinkPause(rail, ethtool)]
        if read_request is not None:
            settings.append(MaxReadRequest(rail, read_request, root))
        if rings:
            settings.append(RingSizes(rail, rings, ethtool))
        return settings

    return [
        port_settings,
        partial(dcb.qos_settings, qos, tool),
        partial(rdma_cm_settings, qos, node.run, root),
        _vendor_settings(options),
        partial(sriov_settings, node.run, given["remove_vfs_in_use"], reached_by, root),
    ]


class Unsupported(NicSetting):
    """The traffic class of a NIC whose driver has no package: a failure on a RoCE NIC."""

    name = "traffic_class"

    def __init__(self, wanted: int, rail: RailNic, drivers: str) -> None:
        self.wanted = wanted
        self._reason = SOFTWARE_REASON
        if rail.physical:
            self._reason = f"its driver is {rail.driver}; only {drivers} is supported"

    def read(self) -> Reading:
        return Reading(None, self._reason, FAILED)

    def set(self, value: Any) -> None:
        raise ValueError(self._reason)


def _vendor_settings(options: NicOptions) -> Provider:
    by_driver = {driver: provider(options) for driver, provider in VENDORS.items()}

    def settings(rail: RailNic) -> Sequence[NicSetting]:
        if rail.driver in by_driver:
            return by_driver[rail.driver](rail)
        if rail.device is None or rail.shared:
            return []
        return [Unsupported(options.contract.traffic_class, rail, " or ".join(VENDORS))]

    return settings


def _congestion_control(nic: Mapping[str, Any], qos: HostSettings) -> dict[str, int]:
    parameters = {
        f"{point}/{name}": value
        for point, values in (nic.get("congestion_control") or {}).items()
        for name, value in _numbers(f"congestion_control.{point}", values).items()
    }
    if parameters and qos.fabric_mode == SPECTRUM_X:
        raise PlanError(
            "roce_rails_nic: congestion_control has parameters of DCQCN: remove it, as "
            f"roce_qos.fabric_mode {SPECTRUM_X} does not use them"
        )
    return parameters


def _accelerations(nic: Mapping[str, Any]) -> dict[str, int]:
    fields = _numbers("accelerations", nic.get("accelerations"))
    if nic.get("adaptive_routing") is not None:
        fields["adaptive_routing_forced_en"] = int(nic["adaptive_routing"])
    return fields


def _numbers(option: str, given: Optional[Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: number(f"roce_rails_nic: {option}.{name}", value)
        for name, value in (given or {}).items()
        if value is not None
    }

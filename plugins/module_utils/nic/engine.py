# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the settings of the rails' NICs as they are to those wanted, rail by rail.

Read everything; leave alone what belongs together on a rail and cannot be set as a whole; write
what differs; read it back. Where anything fails, what belongs together gets back what was read
before, and the others go on. Running settings belong together, and so does a NIC's firmware.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Optional

from ..core.checks import FAILED, REBOOT, Check, not_applicable
from ..core.commands import find_program
from ..core.files import diff
from ..core.part import Node, PlanError
from ..core.reboots import Reason
from ..hardware import Machine, RdmaDevice, survey
from ..hardware.compare import compare_with_model
from ..hardware.inventory import card_of
from ..hardware.survey import interface_speed
from ..qos import SPECTRUM_X, HostSettings
from . import dcb, firmware, health
from .fabric_mode import compared_settings
from .nic_settings import (
    PROGRAMS,
    Accelerations,
    Ethtool,
    LinkPause,
    MaxReadRequest,
    RingSizes,
)
from .rdma_settings import rdma_settings
from .setting import (
    FAULTS,
    FIRMWARE,
    MLX5,
    Provider,
    Rail,
    Reading,
    Setting,
    fault_text,
    number,
    shown,
)
from .sriov import sriov_settings

WHOLE = "rail_settings"
"""The one check of a rail without settings of its own: its NIC is not a RoCE NIC."""
PROMISE = "the NIC settings of the QoS contract"
AS_IT_WAS = "as it was, all or nothing on a rail"
ROCE_DRIVERS = (MLX5, "bnxt_en")
OPTIONS = ("qos", "nic", "firmware", "firmware_parameters", "remove_vfs_in_use")
"""Those of the module that matter here; the boot program has them in its file."""
QUICK_S = 10.0
"""Time limit of `dcb`, at each question: it answers at once or never."""
MAX_READ_REQUEST_BYTES = 4096


class RailRun:
    """One rail on its way."""

    def __init__(self, rail: Rail, settings: Sequence[Setting]) -> None:
        self.rail = rail
        self.settings = settings
        self.rolled_back = False
        for setting in settings:
            setting.physical = rail.physical
            setting.look()

    def fault(self, setting: Setting) -> str:
        """Why it was not written, or did not stay: the faults of what it is set with."""
        kind = setting.persistence
        names = [
            each.name
            for each in self.settings
            if each.fault
            and (each.reading.refused or (each.persistence == kind and not each.alone))
        ]
        return f"{AS_IT_WAS}: see {', '.join(names)}" if names else ""

    @property
    def to_write(self) -> list[Setting]:
        return [each for each in self.settings if each.differs and not self.fault(each)]

    def write(self) -> None:
        """All that differs, of those that belong together all or nothing."""
        begun: list[tuple[Setting, Reading]] = []
        failures: dict[Setting, str] = {}
        for setting in self.to_write:
            if setting.persistence in _failed(failures):
                continue
            begun.append((setting, setting.reading))
            try:
                setting.write()
            except FAULTS as error:
                failures[setting] = f"could not be set: {fault_text(error)}"
        self.look()
        failed = _failed(failures)
        for setting, _reading in begun:
            if setting in failures or setting.persistence in failed:
                continue
            if setting.error or not (setting.holds or setting.waits):
                found = setting.error or shown(setting.reading.found)
                failures[setting] = f"was set and read back as {found}"
        if failures:
            failed = _failed(failures)
            back = (each for each in begun if each[0] in failures or each[0].persistence in failed)
            done = self._roll_back(list(back))
            self.rolled_back = bool(failed)
            for setting, failure in failures.items():
                setting.complaint = f"{failure}; {done}"

    def _roll_back(self, begun: Sequence[tuple[Setting, Reading]]) -> str:
        """Returns what was done."""
        troubles = []
        for setting, reading in reversed(begun):
            try:
                setting.restore(reading)
            except FAULTS as error:
                troubles.append(f"{setting.name} could not be put back: {fault_text(error)}")
        self.look()
        return "; ".join(troubles) or "what was set with it was put back to what it was"

    def look(self) -> None:
        """Read all of this rail again."""
        for setting in self.settings:
            setting.forget()
        for setting in self.settings:
            setting.look()

    def states(self, check_mode: bool) -> dict[str, dict[str, Any]]:
        return {each.name: each.state(check_mode, self.fault(each)) for each in self.settings}

    def checks(self, check_mode: bool) -> list[Check]:
        """One for each setting; what failed for one and the same reason is reported once."""
        found = [self._no_roce()] if self.rail.device is None else []
        alike: dict[str, dict[str, dict[str, Any]]] = {}
        for name, state in self.states(check_mode).items():
            if state["status"] == FAILED:
                alike.setdefault(state["reason"], {})[name] = state
            else:
                found.append(self._check(name, state))
        # the causes first, then what was left as it was because of them
        for reason in sorted(alike, key=lambda reason: reason.startswith(AS_IT_WAS)):
            states = alike[reason]
            name, state = next(iter(states.items()))
            if len(states) > 1:
                both = {key: {n: each[key] for n, each in states.items()} for key in _BOTH}
                state = {**state, **both}
            found.append(self._check(name, state))
        return found

    def _check(self, name: str, state: Mapping[str, Any]) -> Check:
        wanted, found = (state[key] for key in _BOTH)
        status, reason = state["status"], state["reason"]
        return Check(f"rail_{name}", wanted, found, status, self.rail.name, reason)

    def _no_roce(self) -> Check:
        name, driver = self.rail.name, self.rail.driver or "none"
        if driver in ROCE_DRIVERS:
            why = f"driver {driver} without an RDMA device: see rail_rdma"
            return Check(WHOLE, PROMISE, "no RDMA device", FAILED, name, why)
        why = f"not applicable: not a RoCE NIC (driver {driver})"
        return not_applicable(WHOLE, PROMISE, why, subject=name)

    def diff(self) -> list[dict[str, str]]:
        """Exactly the settings that would be written, as one diff."""
        differing = self.to_write
        before = "".join(f"{each.name}: {shown(each.reading.to_come)}\n" for each in differing)
        after = "".join(f"{each.name}: {shown(each.wanted)}\n" for each in differing)
        return [diff(f"{self.rail.name} (settings)", before, after)] if differing else []

    def resets(self, check_mode: bool) -> list[Reason]:
        """What waits for a reset; in check mode also what would after a run."""
        name = self.rail.name
        return [
            Reason(
                subject=f"{name} {each.name}",
                wanted=str(each.wanted),
                running=str(each.reading.found),
                reason=f"firmware of {name} takes {each.name} up at its reset",
            )
            for each in self.settings
            if each.persistence == FIRMWARE
            and (each.waits or (check_mode and each in self.to_write))
            and each.reading.found != each.wanted
        ]


_BOTH = ("wanted", "found")


def _failed(failures: Iterable[Setting]) -> set[str]:
    """The persistences of which nothing may stay written."""
    return {setting.persistence for setting in failures if not setting.alone}


class Nics:
    """The NICs of one host's rails: read by `look`, written by `act`."""

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
        """`given` has the OPTIONS; `model` and `gpus` are what the hardware is compared with."""
        self.given = given
        self.node = node
        self.ethtool = ethtool or Ethtool()
        self.which = which
        self._model = model
        self._gpus = gpus
        self._machine = Machine()
        self._runs: list[RailRun] = []
        self._acted = False
        self._first: dict[str, health.Look] = {}
        """What each rail's port had counted at first."""
        self.diff: list[dict[str, str]] = []
        """Per rail what would be written."""
        self.written: list[str] = []
        """Rails on which something was written; a NIC may take its link down for a moment."""

    def look(
        self,
        interfaces: Mapping[str, str],
        reached_by: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`interfaces`: rail to its present name; `reached_by`: those that management needs."""
        self._machine = self._survey()
        rails = [self._rail(*each) for each in interfaces.items()]
        lanes = self._lanes(rails)
        found = providers(self.given, self.node, self.ethtool, self.which, reached_by, lanes)
        self.read(rails, found)
        for run in self._runs if "health" in self.given else ():
            if run.rail.physical and run.rail.name not in self._first:
                self._first[run.rail.name] = self._counted(run.rail)

    def read(self, rails: Sequence[Rail], sources: Sequence[Provider]) -> None:
        self._runs = [
            RailRun(rail, [each for of in sources for each in of(rail)]) for rail in rails
        ]
        self.diff = [shown for run in self._runs for shown in run.diff()]

    def _lanes(self, rails: Sequence[Rail]) -> dict[str, tuple[int, int]]:
        """By rail of the model: its planes there, and how many rails are on its card."""
        numbers = {str(entry["interface"]): entry["rail"] for entry in self._model}
        found = [rail for rail in rails if rail.pci and rail.name in numbers]
        cards = {rail.name: card_of(rail.pci or "") for rail in found}
        planes = Counter(numbers.values())
        on_card = Counter(card for card, _rail in {(cards[r], numbers[r]) for r in cards})
        return {name: (planes[numbers[name]], on_card[card]) for name, card in cards.items()}

    def _survey(self) -> Machine:
        return survey(self.node.root / "sys")

    def _rail(self, name: str, interface: str) -> Rail:
        port = self._machine.device_of(interface)
        driver = port.driver if port is not None else ""
        with contextlib.suppress(OSError):
            # A PCI function's driver may be another one: virtio-pci has virtio_net on top.
            driver = self.ethtool.driver(interface)
        device = port if port is not None and port.name else None
        first = self._first_function(port) if port is not None else None
        if port is not None and first is not None:
            # Its own function, with the device of another one.
            device = replace(first, pci=port.pci, netdev=port.netdev, link=port.link)
        pci = port.pci if port else None
        return Rail(name, interface, driver, pci, device, shared=first is not None)

    def _first_function(self, port: RdmaDevice) -> Optional[RdmaDevice]:
        """Whose RDMA device it shares, unless the model has them as two rails."""
        first = self._machine.first_of(port)
        numbers = {str(entry.get("pci") or ""): entry["rail"] for entry in self._model}
        known = [numbers[each.pci] for each in (first, port) if each and each.pci in numbers]
        return first if len(set(known)) < 2 else None

    def act(self) -> list[str]:
        """Write what differs, rail after rail. Returns the rails on which anything was written."""
        self._acted = True
        for run in self._runs:
            if run.to_write:
                self.written.append(run.rail.name)
                run.write()
        return self.written

    def checks(self, *, check_mode: bool) -> list[Check]:
        return [check for run in self._runs for check in run.checks(check_mode)]

    def rail_checks(
        self, later: Mapping[str, str], *, check_mode: bool, quiet: bool = True
    ) -> list[Check]:
        """Hardware against the model, its health, settings, and rails that get their names `later`.

        `quiet`: no link was set up in this run.
        """
        machine = self._survey() if self._acted else self._machine
        hardware = compare_with_model(machine, self._model, self._gpus, check_mode=check_mode)
        return [
            *hardware,
            *(self._health(run.rail, quiet) for run in self._runs if run.rail.name in self._first),
            *self.checks(check_mode=check_mode),
            *(Check(WHOLE, PROMISE, None, REBOOT, name, why) for name, why in later.items()),
        ]

    def _health(self, rail: Rail, quiet: bool) -> Check:
        system = self.node.root / "sys"
        speed = interface_speed(system / "class/net" / rail.interface)
        link = health.Link.of(rail.pci or "-", system, self.node.run, self.which)
        looks = self._first[rail.name], self._counted(rail)
        lossless, limits = HostSettings.of(self.given["qos"]).pfc_priorities, self.given["health"]
        return health.check(rail.name, *looks, speed, link, limits, quiet=quiet, lossless=lossless)

    def _counted(self, rail: Rail) -> health.Look:
        return health.Look.of(self.ethtool.statistics, rail.interface)

    @property
    def with_rdma(self) -> tuple[str, ...]:
        """Rails that have an RDMA device of their own."""
        rails = [run.rail for run in self._runs]
        return tuple(each.name for each in rails if each.device is not None and not each.shared)

    @property
    def in_other_mode(self) -> list[str]:
        """Rails of which nothing may be set because of their firmware."""
        return [
            run.rail.name
            for run in self._runs
            if any(each.reading.refused and each.persistence == FIRMWARE for each in run.settings)
        ]

    @property
    def rolled_back(self) -> list[str]:
        return [run.rail.name for run in self._runs if run.rolled_back]

    def settings(self, *, check_mode: bool) -> dict[str, dict[str, dict[str, Any]]]:
        """Rail, setting, and its state."""
        return {run.rail.name: run.states(check_mode) for run in self._runs}

    def resets(self, *, check_mode: bool) -> list[Reason]:
        return [reason for run in self._runs for reason in run.resets(check_mode)]


# The settings that the module's options ask of a rail's NIC, now and at every boot


def providers(
    given: Mapping[str, Any],
    node: Node,
    ethtool: Ethtool,
    which: Callable[[str], Optional[str]],
    keep: Mapping[str, str],
    lanes: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> list[Provider]:
    """In the order in which a rail is written. `keep`: interfaces the host is reached by.

    `lanes`: by rail its planes in the model, and how many rails are on its card. Raises PlanError
    where an option cannot be.
    """
    qos, nic, root = HostSettings.of(given["qos"]), given["nic"], node.root
    read_request = nic.get("max_read_request_bytes", MAX_READ_REQUEST_BYTES)
    if read_request is not None:
        read_request = number("roce_rails_nic: max_read_request_bytes", read_request)
    rings = _numbers("rings", nic.get("rings"))
    accelerations = _numbers("accelerations", nic.get("accelerations"))
    if nic.get("adaptive_routing") is not None:
        accelerations["adaptive_routing_forced_en"] = int(nic["adaptive_routing"])
    congestion_control = {
        f"{point}/{name}": value
        for point, values in (nic.get("congestion_control") or {}).items()
        for name, value in _numbers(f"congestion_control.{point}", values).items()
    }
    if congestion_control and qos.fabric_mode == SPECTRUM_X:
        raise PlanError(
            "roce_rails_nic: congestion_control has parameters of DCQCN: remove it, as "
            f"roce_qos.fabric_mode {SPECTRUM_X} does not use them"
        )
    register = next(filter(which, PROGRAMS), None)

    def nic_settings(rail: Rail) -> list[Setting]:
        if rail.device is None:
            return []
        # Pause first: a port cannot have both, and PFC is written after it.
        settings: list[Setting] = [LinkPause(rail, ethtool)]
        if read_request is not None:
            settings.append(MaxReadRequest(rail, read_request, root))
        if rings:
            settings.append(RingSizes(rail, rings, ethtool))
        if accelerations:
            more = (node.run, register, node.check_mode)
            settings.append(Accelerations(rail, accelerations, *more))
        return settings

    found: list[Provider] = [
        nic_settings,
        partial(dcb.qos_settings, qos, dcb.Dcb(node.look) if which(dcb.PROGRAM) else None, root),
        partial(rdma_settings, qos, node.run, root, congestion_control),
    ]
    if given["firmware"]:
        named = given["firmware_parameters"]
        wanted = firmware.wanted_parameters(qos, named)
        tool = next(filter(which, firmware.TOOLS), None)
        firmwares = firmware.Firmwares(tool, node.run, node.check_mode)
        found.append(partial(firmware.firmware_settings, firmwares, wanted, named, root))
        found.append(partial(compared_settings, qos, lanes, firmwares, named, root))
    return [*found, partial(sriov_settings, node.run, given["remove_vfs_in_use"], keep, root)]


def _numbers(option: str, given: Optional[Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: number(f"roce_rails_nic: {option}.{name}", value)
        for name, value in (given or {}).items()
        if value is not None
    }

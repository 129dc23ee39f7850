# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Validate the value of `roce_qos`, and turn it into a contract."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Optional, Union

from ...module_utils.qos import SPECTRUM_X
from ..schema.findings import Findings, Path, RefusedError, dotted
from .contract import (
    CONTRACT,
    FRAME_OVERHEAD,
    IP,
    LOSSLESS_POOL_PERCENT,
    ROCE_DSCP,
    VARIABLE,
    BestEffort,
    CnpClass,
    Contract,
    FurtherClass,
    Mtu,
    RoceClass,
    contract_of,
    largest_path_mtu,
    needed_ip_mtu,
)

_PATH: Path = (VARIABLE,)


class _Class(NamedTuple):
    path: Path
    entry: Union[RoceClass, CnpClass, BestEffort, FurtherClass]
    dscps: tuple[tuple[Path, int], ...]


def _classes(contract: Contract) -> Iterator[_Class]:
    for name in ("roce", "cnp"):
        entry, path = getattr(contract, name), (*_PATH, name)
        also = enumerate(getattr(entry, "also_dscps", ()))
        more = [((*path, "also_dscps", number), dscp) for number, dscp in also]
        yield _Class(path, entry, (((*path, "dscp"), entry.dscp), *more))
    yield _Class((*_PATH, "best_effort"), contract.best_effort, ())
    for index, further in enumerate(contract.classes):
        path = (*_PATH, "classes", index)
        dscps = ((*path, "dscps", number) for number in range(len(further.dscps)))
        yield _Class(path, further, tuple(zip(dscps, further.dscps)))


def _twice(entries: Iterable[tuple[Path, Any]]) -> Iterator[tuple[Path, Any, Path]]:
    """Paths whose value is there before, with the value and the first path."""
    first: dict[Any, Path] = {}
    for path, value in entries:
        if first.setdefault(value, path) != path:
            yield path, value, first[value]


def _names(contract: Contract, findings: Findings) -> None:
    names: list[tuple[Path, Any]] = [((*_PATH, n), n) for n in ("roce", "cnp", "best_effort")]
    names += [((*_PATH, "classes", n), each.name) for n, each in enumerate(contract.classes)]
    for path, name, other in _twice(names):
        problem = f"{name!r} is also the name of {dotted(other)}"
        findings.add("qos.class_twice", (*path, "name"), problem, "Rename one of them", name)


def _one_class_each(contract: Contract, findings: Findings) -> None:
    """Check that each class has a separate priority and queue: CNPs in the lossless class can
    deadlock a fabric."""
    for key, noun, reason in (
        ("priority", "priority", "a pause stops a priority as a whole"),
        ("traffic_class", "traffic class", "one queue has one scheduler and one ECN profile"),
    ):
        numbers = ((each.path, getattr(each.entry, key)) for each in _classes(contract))
        for path, number, other in _twice(numbers):
            findings.add(
                "qos.number_twice",
                (*path, key),
                f"{number} is also the {noun} of {dotted(other)}: {reason}",
                f"Give each class a separate {noun}",
                (number, dotted(other)),
            )


def _priority_zero(contract: Contract, findings: Findings) -> None:
    for path, entry, _dscps in _classes(contract):
        if entry.priority == 0 and not isinstance(entry, BestEffort):
            findings.add(
                "qos.priority_zero",
                (*path, "priority"),
                "0 is the priority of packets without a DSCP, such as ARP and LLDP",
                "Write one from 1 to 7",
            )


def _dscps(contract: Contract, findings: Findings) -> None:
    for path, dscp, other in _twice(each for entry in _classes(contract) for each in entry.dscps):
        findings.add(
            "qos.dscp_twice",
            path,
            f"{dscp} is already mapped by {dotted(other)}: a DSCP belongs to one class",
            "Give one of them another DSCP",
            (dscp, dotted(other)),
        )


def _shares(contract: Contract, findings: Findings) -> None:
    """Best effort carries SSH, BGP and TCP, which starve without a share."""
    shares = {
        dotted((*entry.path, "bandwidth_percent")): entry.entry.bandwidth_percent
        for entry in _classes(contract)
        if not isinstance(entry.entry, CnpClass)
    }
    if sum(shares.values()) != 100 or contract.best_effort.bandwidth_percent < 1:
        findings.add(
            "qos.shares",
            (*_PATH, "best_effort", "bandwidth_percent"),
            "the shares of a port are "
            + " + ".join(f"{percent} ({key})" for key, percent in shares.items()),
            "Make them 100 percent, with at least 1 for best effort, which gets the remainder if "
            "its key is left out",
            tuple(shares.values()),
        )


def _ecn(contract: Contract, findings: Findings) -> None:
    low, high = contract.ecn.minimum_bytes, contract.ecn.maximum_bytes
    xoff = contract.pfc.xoff_bytes
    if low > high:
        findings.add(
            "qos.ecn_order",
            (*_PATH, "ecn", "minimum_bytes"),
            f"{low} is above the maximum, {high}",
            "Write at most that, or raise the maximum",
            (low, high),
        )
    if xoff is not None and high >= xoff:
        findings.add(
            "qos.ecn_after_pfc",
            (*_PATH, "ecn", "maximum_bytes"),
            f"{high} is not below the PFC point, {VARIABLE}.pfc.xoff_bytes {xoff}: "
            "links would pause before senders slow down",
            f"Write less than {xoff}, or raise the PFC point",
            (high, xoff),
        )


def _spectrum_x(contract: Contract, findings: Findings) -> None:
    """Refuse values without effect, unless they are the defaults."""
    if contract.roce.dscp != ROCE_DSCP[SPECTRUM_X]:
        findings.add(
            "qos.spectrum_x_dscp",
            (*_PATH, "roce", "dscp"),
            f"{contract.roce.dscp}: NVIDIA's tools configure Spectrum-X with DSCP "
            f"{ROCE_DSCP[SPECTRUM_X]}",
            f"Leave it out, or write {ROCE_DSCP[SPECTRUM_X]}",
            contract.roce.dscp,
        )
    usual = CONTRACT.check({}, Findings())
    for name in ("ecn", "congestion_control"):
        if vars(getattr(contract, name)) != usual[name]:
            findings.add(
                "qos.not_in_spectrum_x",
                (*_PATH, name),
                "has no effect with fabric_mode spectrum_x: switches do not mark, and Spectrum-X "
                "has a different congestion control",
                "Leave it out",
            )


def _lossless(contract: Contract, findings: Findings) -> None:
    """Refuse settings of pauses without effect, and classes that Spectrum-X does not have."""
    further = [index for index, entry in enumerate(contract.classes) if entry.lossless]
    paths: list[Path] = [(*_PATH, "classes", index, "lossless") for index in further]
    paths += [] if contract.roce.lossless else [(*_PATH, "roce", "lossless")]
    for path in paths if not contract.dcqcn else ():
        findings.add(
            "qos.spectrum_x_lossless",
            path,
            "with fabric_mode spectrum_x, RoCE data is the only lossless class, as in NVIDIA's "
            "reference architectures",
            "Leave it out",
        )
    usual = CONTRACT.check({}, Findings())["pfc"]
    if not contract.lossless_classes and asdict(contract.pfc) != usual and contract.dcqcn:
        findings.add(
            "qos.no_pauses",
            (*_PATH, "pfc"),
            f"has no effect: {VARIABLE}.roce.lossless is false, and no other class is lossless",
            "Leave it out",
        )


def _watchdog(contract: Contract, findings: Findings) -> None:
    watchdog = contract.pfc.watchdog
    detection, restoration = watchdog.detection_ms, watchdog.restoration_ms
    if restoration < detection:
        findings.add(
            "qos.watchdog_order",
            (*_PATH, "pfc", "watchdog", "restoration_ms"),
            f"{restoration} is below detection_ms, {detection}: a queue would be served again "
            "before the watchdog could detect that it is still stuck",
            f"Write at least {detection}",
            (restoration, detection),
        )


def _congestion_control(contract: Contract, findings: Findings) -> None:
    control = contract.congestion_control
    if control.notification_point != control.reaction_point:
        findings.add(
            "qos.half_congestion_control",
            (*_PATH, "congestion_control"),
            "one of notification_point and reaction_point is false: CNP are sent and not obeyed, "
            "or expected and not sent",
            "Set both to true, or both to false",
        )


def _path_mtu(contract: Contract, findings: Findings) -> None:
    mtu = contract.mtu
    if needed_ip_mtu(mtu.roce_path) > mtu.fabric_ip:
        findings.add(
            "qos.path_mtu_above_fabric",
            (*_PATH, "mtu", "roce_path"),
            f"{mtu.roce_path} needs IP packets of {needed_ip_mtu(mtu.roce_path)} bytes, "
            f"{_fabric(mtu)}",
            f"Write {largest_path_mtu(mtu.fabric_ip)}, or raise {VARIABLE}.mtu.fabric",
            (mtu.roce_path, mtu.fabric_ip),
        )


def _fabric(mtu: Mtu) -> str:
    frame = f"{mtu.fabric} with {FRAME_OVERHEAD} of frame"
    counts = "layer ip" if mtu.fabric_layer == IP else frame
    return f"and the fabric carries {mtu.fabric_ip} ({VARIABLE}.mtu.fabric, {counts})"


_Rules = tuple[Callable[[Contract, Findings], None], ...]
_RULES: _Rules = (
    *(_names, _one_class_each, _priority_zero, _dscps, _shares, _lossless, _watchdog, _path_mtu),
)
_OF_DCQCN: _Rules = (_ecn, _congestion_control)


def check_rail(contract: Contract, mtu: int, findings: Findings, rail: Path) -> None:
    if mtu > contract.mtu.fabric_ip:
        findings.add(
            "qos.rail_mtu",
            rail,
            f"{mtu} is above the fabric's: a node would send IP packets of {mtu} bytes, "
            f"{_fabric(contract.mtu)}",
            f"Write at most {contract.mtu.fabric_ip}, or raise {dotted((*_PATH, 'mtu', 'fabric'))}",
            (mtu, contract.mtu.fabric_ip),
        )
    size = contract.mtu.roce_path
    if mtu < needed_ip_mtu(size):
        findings.add(
            "qos.path_mtu_above_rail",
            (*_PATH, "mtu", "roce_path"),
            f"{size} needs IP packets of {needed_ip_mtu(size)} bytes, and {dotted(rail)} is {mtu}",
            f"Write {largest_path_mtu(mtu)}, or raise the rail's MTU to {needed_ip_mtu(size)}",
            (size, mtu),
        )


class ContractError(RefusedError):
    what = f"{VARIABLE} is not valid"


def read_contract(value: Optional[Mapping[str, Any]], rail_mtu: Optional[int] = None) -> Contract:
    """The contract for a value; None and {} mean the defaults. Raises ContractError."""
    findings = Findings()
    checked = CONTRACT.check({} if value is None else value, findings, _PATH)
    contract = None if findings else finish(checked, findings, rail_mtu)
    if contract is None or findings:
        raise ContractError(findings.found)
    return contract


def finish(checked: Mapping[str, Any], findings: Findings, rail_mtu: Optional[int]) -> Contract:
    """The contract for a value that CONTRACT.check has accepted."""
    contract = contract_of(_complete(copy.deepcopy(dict(checked)), rail_mtu))
    for rule in (*_RULES, *(_OF_DCQCN if contract.dcqcn else (_spectrum_x,))):
        rule(contract, findings)
    return contract


def _complete(value: dict[str, Any], rail_mtu: Optional[int]) -> dict[str, Any]:
    """Fill in defaults that depend on other keys."""
    if value["roce"]["dscp"] is None:
        value["roce"]["dscp"] = ROCE_DSCP[value["fabric_mode"]]
    if value["pfc"]["pool_percent"] is None:
        value["pfc"]["pool_percent"] = LOSSLESS_POOL_PERCENT.get(value["fabric_mode"])
    classes = [value["roce"], value["cnp"], value["best_effort"], *value["classes"]]
    for entry in classes:
        if entry["traffic_class"] is None:
            entry["traffic_class"] = entry["priority"]
    best_effort, mtu = value["best_effort"], value["mtu"]
    if best_effort["bandwidth_percent"] is None:
        others = [entry.get("bandwidth_percent") for entry in classes]
        best_effort["bandwidth_percent"] = 100 - sum(filter(None, others))
    if mtu["roce_path"] is None:
        carried = Mtu(mtu["fabric"], mtu["fabric_layer"], 0).fabric_ip
        mtu["roce_path"] = largest_path_mtu(min(carried, rail_mtu or carried))
    return value

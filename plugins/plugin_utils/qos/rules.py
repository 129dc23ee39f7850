# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From what an operator wrote to a contract, or to every reason why it cannot be kept.

Every value has its type and range already; a section is None where it has not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import some
from ..schema.findings import Findings, Path, RefusedError, dotted
from ..schema.kinds import check
from .contract import FRAME_OVERHEAD, PATH_MTUS, Contract, Mtu, contract_of, needed_ip_mtu
from .keys import CONTRACT, IP, RESERVED_NAMES, ROCE_PATH_MTU, VARIABLE

Value = dict[str, Any]
CLASSES = ("roce", "cnp", "best_effort", "classes")


def check_contract(value: Value, findings: Findings, path: Path) -> None:
    for sections, rule in _RULES:
        if findings.clean(*((*path, section) for section in sections)):
            rule(value, findings, path)


class _Class(NamedTuple):
    """A class with its place, as the rules over all of them see it."""

    place: Path
    name: str
    entry: Value
    dscps: tuple[int, ...]


def _classes(value: Value) -> Iterator[_Class]:
    yield _Class(("roce",), "RoCE data", value["roce"], (value["roce"]["dscp"],))
    yield _Class(("cnp",), "CNP", value["cnp"], (value["cnp"]["dscp"],))
    yield _Class(("best_effort",), "best effort", value["best_effort"], ())
    for index, entry in enumerate(value["classes"]):
        yield _Class(("classes", index), entry["name"], entry, tuple(entry["dscps"]))


def _names(value: Value, findings: Findings, path: Path) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(value["classes"]):
        place = (*path, "classes", index, "name")
        name = entry["name"]
        if name in RESERVED_NAMES:
            findings.add(
                "qos.class_reserved",
                place,
                f"{name!r} is a class that every contract has",
                f"Change {VARIABLE}.{name}, or choose another name",
                value=name,
            )
        elif name in first:
            findings.add(
                "qos.class_twice",
                place,
                f"{name!r} is also the name of {dotted((*path, 'classes', first[name]))}",
                "Rename one of them",
                value=name,
            )
        first.setdefault(name, index)


def _cnp_is_lossy(value: Value, findings: Findings, path: Path) -> None:
    """Told apart from other classes that share: it is the mistake that deadlocks a fabric."""
    for key, what in (("priority", "priority"), ("traffic_class", "traffic class")):
        if value["cnp"][key] == value["roce"][key]:
            findings.add(
                "qos.cnp_lossless",
                (*path, "cnp", key),
                f"{value['cnp'][key]} puts CNP into the lossless class, {what} of "
                f"{dotted((*path, 'roce'))}: a pause would hold back the very packets that end "
                "the congestion",
                f"Give CNP a {what} of its own",
                value=value["cnp"][key],
            )


def _one_class_each(value: Value, findings: Findings, path: Path) -> None:
    for key, what, why in (
        ("priority", "priority", "a pause stops a priority as a whole"),
        ("traffic_class", "traffic class", "one queue has one scheduler and one ECN profile"),
    ):
        first: dict[int, _Class] = {}
        for entry in _classes(value):
            number = entry.entry[key]
            other = first.setdefault(number, entry)
            # CNP with RoCE data has been told with its own reason.
            if other is not entry and (other.place, entry.place) != (("roce",), ("cnp",)):
                findings.add(
                    "qos.number_twice",
                    (*path, *entry.place, key),
                    f"{number} is also the {what} of {dotted((*path, *other.place))}: {why}",
                    f"Give {entry.name} one of its own",
                    value=(number, dotted((*path, *other.place))),
                )


def _priority_zero(value: Value, findings: Findings, path: Path) -> None:
    for entry in _classes(value):
        if entry.place != ("best_effort",) and entry.entry["priority"] == 0:
            findings.add(
                "qos.priority_zero",
                (*path, *entry.place, "priority"),
                f"0 is the priority of packets that have no DSCP, such as ARP and LLDP, and "
                f"{entry.name} would share it with them",
                "Write one from 1 to 7",
            )


def _dscps(value: Value, findings: Findings, path: Path) -> None:
    first: dict[int, Path] = {}
    for entry in _classes(value):
        further = entry.place[0] == "classes"
        if further and not entry.dscps:
            findings.add(
                "qos.class_without_dscps",
                (*path, *entry.place, "dscps"),
                f"the list is empty: no packet would be in {entry.name}",
                "Write its DSCPs, or remove the class",
            )
        for index, dscp in enumerate(entry.dscps):
            place: Path = (*path, *entry.place, *(("dscps", index) if further else ("dscp",)))
            if dscp == 0:
                findings.add(
                    "qos.dscp_zero",
                    place,
                    "0 is the DSCP of every packet that nobody marked",
                    "Write one from 1 to 63; what has 0 is best effort",
                )
            elif dscp in first:
                findings.add(
                    "qos.dscp_twice",
                    place,
                    f"{dscp} is mapped already, by {dotted(first[dscp])}: a DSCP leads to one "
                    "class",
                    "Give one of them another DSCP",
                    value=(dscp, dotted(first[dscp])),
                )
            first.setdefault(dscp, place)


def _shares(value: Value, findings: Findings, path: Path) -> None:
    shares = {
        dotted((*path, *entry.place, "bandwidth_percent")): entry.entry["bandwidth_percent"]
        for entry in _classes(value)
        if "bandwidth_percent" in entry.entry
    }
    best_effort = dotted((*path, "best_effort", "bandwidth_percent"))
    left = shares.pop(best_effort)
    taken = " + ".join(f"{percent} ({place})" for place, percent in shares.items())
    if left < 1:
        # Only what was filled in can be below 1.
        findings.add(
            "qos.nothing_left",
            (*path, "best_effort", "bandwidth_percent"),
            f"nothing is left of 100 percent: {taken}",
            "Leave at least 1 for best effort, which carries SSH, BGP and TCP",
        )
    elif left + sum(shares.values()) != 100:
        findings.add(
            "qos.shares",
            (*path, "best_effort", "bandwidth_percent"),
            f"{left} with {taken} makes {left + sum(shares.values())} percent of a port, not 100",
            f"Leave {best_effort} out: it is what the others leave",
            value=left + sum(shares.values()),
        )


def _cnp_is_strict(value: Value, findings: Findings, path: Path) -> None:
    if not value["cnp"]["strict"]:
        findings.add(
            "qos.cnp_not_strict",
            (*path, "cnp", "strict"),
            "false lets CNP wait behind the queues that they are about, and senders slow down "
            "too late",
            "Write true, or leave it out",
            value=False,
        )


def _ecn_order(value: Value, findings: Findings, path: Path) -> None:
    low, high = value["ecn"]["minimum_bytes"], value["ecn"]["maximum_bytes"]
    if low > high:
        findings.add(
            "qos.ecn_order",
            (*path, "ecn", "minimum_bytes"),
            f"{low} is above {dotted((*path, 'ecn', 'maximum_bytes'))}, {high}",
            "Write at most that, or raise the maximum",
            value=(low, high),
        )


def _ecn_before_pfc(value: Value, findings: Findings, path: Path) -> None:
    high, xoff = value["ecn"]["maximum_bytes"], value["pfc"]["xoff_bytes"]
    if xoff is not None and high >= xoff:
        findings.add(
            "qos.ecn_after_pfc",
            (*path, "ecn", "maximum_bytes"),
            f"{high} is not below the PFC point, {dotted((*path, 'pfc', 'xoff_bytes'))} {xoff}: "
            "links would be paused before senders are told to slow down",
            f"Write less than {xoff}, or raise the PFC point",
            value=(high, xoff),
        )


def _watchdog(value: Value, findings: Findings, path: Path) -> None:
    watchdog = value["pfc"]["watchdog"]
    detection, restoration = watchdog["detection_ms"], watchdog["restoration_ms"]
    if restoration < detection:
        findings.add(
            "qos.watchdog_order",
            (*path, "pfc", "watchdog", "restoration_ms"),
            f"{restoration} is below detection_ms, {detection}: a queue would be served again "
            "before the watchdog could see that it is still stuck",
            f"Write at least {detection}",
            value=(restoration, detection),
        )


def _congestion_control(value: Value, findings: Findings, path: Path) -> None:
    control = value["congestion_control"]
    if control["notification_point"] and not control["reaction_point"]:
        findings.add(
            "qos.cnp_unheeded",
            (*path, "congestion_control", "reaction_point"),
            "false, and notification_point is true: receivers would send CNP that no sender heeds",
            "Set both to true, or both to false",
        )
    if control["reaction_point"] and not control["notification_point"]:
        findings.add(
            "qos.cnp_never_sent",
            (*path, "congestion_control", "notification_point"),
            "false, and reaction_point is true: senders would wait for CNP that nobody sends",
            "Set both to true, or both to false",
        )


def _path_mtu(value: Value, findings: Findings, path: Path) -> None:
    size = value["mtu"]["roce_path"]
    place = (*path, "mtu", "roce_path")
    if size not in PATH_MTUS:
        below = max(known for known in PATH_MTUS if known <= size)
        findings.add(
            "qos.path_mtu",
            place,
            f"{size} is no path MTU: RDMA has {some(PATH_MTUS)}",
            f"Write {below}; the MTU of the rail's IP packets is rails.mtu",
            value=size,
        )
        return
    mtu = Mtu(**value["mtu"])
    if needed_ip_mtu(size) > mtu.fabric_ip:
        findings.add(
            "qos.path_mtu_above_fabric",
            place,
            f"{size} needs IP packets of {needed_ip_mtu(size)} bytes, {_fabric(mtu, path)}",
            f"Write {largest_path_mtu(mtu.fabric_ip)}, or raise {dotted((*path, 'mtu', 'fabric'))}",
            value=(size, mtu.fabric_ip),
        )


def _fabric(mtu: Mtu, path: Path) -> str:
    """What the fabric carries, with its key and the layer that this counts."""
    key = dotted((*path, "mtu", "fabric"))
    if mtu.fabric_layer == IP:
        return f"and the fabric carries {mtu.fabric_ip} ({key}, layer ip)"
    return (
        f"and the fabric carries {mtu.fabric_ip} ({key} {mtu.fabric} counts the frame, "
        f"{FRAME_OVERHEAD} more)"
    )


_RULES: tuple[tuple[tuple[str, ...], Callable[[Value, Findings, Path], None]], ...] = (
    (("classes",), _names),
    (("roce", "cnp"), _cnp_is_lossy),
    (("cnp",), _cnp_is_strict),
    (CLASSES, _one_class_each),
    (CLASSES, _priority_zero),
    (CLASSES, _dscps),
    (CLASSES, _shares),
    (("ecn",), _ecn_order),
    (("ecn", "pfc"), _ecn_before_pfc),
    (("pfc",), _watchdog),
    (("congestion_control",), _congestion_control),
    (("mtu",), _path_mtu),
)


def check_rail(contract: Contract, mtu: int, findings: Findings, rail: Path, path: Path) -> None:
    """A rail's MTU (IP packets) lies between what RoCE needs and what the fabric carries.

    `rail` is the place of the MTU, `path` that of the contract.
    """
    if mtu > contract.mtu.fabric_ip:
        findings.add(
            "qos.rail_mtu",
            rail,
            f"{mtu} is above the fabric's: a node would send IP packets of {mtu} bytes, "
            f"{_fabric(contract.mtu, path)}",
            f"Write at most {contract.mtu.fabric_ip}, or raise {dotted((*path, 'mtu', 'fabric'))}",
            value=(mtu, contract.mtu.fabric_ip),
        )
    size = contract.mtu.roce_path
    if mtu < needed_ip_mtu(size):
        findings.add(
            "qos.path_mtu_above_rail",
            (*path, "mtu", "roce_path"),
            f"{size} needs IP packets of {needed_ip_mtu(size)} bytes, and {dotted(rail)} is {mtu}",
            f"Write {largest_path_mtu(mtu)}, or raise the rail's MTU to {needed_ip_mtu(size)}",
            value=(size, mtu),
        )


def largest_path_mtu(ip_mtu: int) -> int:
    """The path MTU of links that carry IP packets of `ip_mtu`, where nobody asks for one."""
    fitting = [size for size in PATH_MTUS if needed_ip_mtu(size) <= ip_mtu]
    return min(fitting[-1] if fitting else PATH_MTUS[0], ROCE_PATH_MTU)


class ContractError(RefusedError):
    """The contract is refused."""

    what = f"{VARIABLE} cannot be kept"


def read_contract(value: Optional[Mapping[str, Any]], rail_mtu: Optional[int] = None) -> Contract:
    """The contract that `value` describes; None and {} are the defaults. Raises ContractError.

    `rail_mtu`: what the rails are set to, where that is known.
    """
    findings = Findings()
    checked = check(CONTRACT, {} if value is None else value, findings, (VARIABLE,))
    contract = finish(checked, findings, (VARIABLE,), rail_mtu)
    if contract is None:
        raise ContractError(findings.found)
    return contract


def finish(
    checked: Any, findings: Findings, path: Path, rail_mtu: Optional[int] = None
) -> Optional[Contract]:
    """The contract of a value that went through `check`; None where anything was found in it.

    Rules speak of what is left after the first look: one wrong type hides no contradiction
    elsewhere. `rail_mtu`: what the rails are set to, where that is known.
    """
    if checked is None:
        return None
    value = _complete(copy.deepcopy(checked), rail_mtu)
    check_contract(value, findings, path)
    return contract_of(value) if findings.clean(path) else None


def _complete(value: dict[str, Any], rail_mtu: Optional[int]) -> dict[str, Any]:
    """Fill in what depends on other keys, as far as these can be read."""
    classes = [value["roce"], value["cnp"], value["best_effort"], *(value["classes"] or [])]
    for entry in classes:
        if entry and entry["traffic_class"] is None:
            entry["traffic_class"] = entry["priority"]
    best_effort, mtu = value["best_effort"], value["mtu"]
    if best_effort and best_effort["bandwidth_percent"] is None:
        others = [entry.get("bandwidth_percent") for entry in classes if entry]
        best_effort["bandwidth_percent"] = 100 - sum(filter(None, others))
    if mtu and mtu["roce_path"] is None and None not in (mtu["fabric"], mtu["fabric_layer"]):
        carried = Mtu(mtu["fabric"], mtu["fabric_layer"], 0).fabric_ip
        mtu["roce_path"] = largest_path_mtu(min(carried, rail_mtu or carried))
    return value

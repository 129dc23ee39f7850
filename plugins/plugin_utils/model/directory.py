# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One view of everybody, built from host variables, compiled by the model or written by hand.

Checks what it reads, since a hand-written inventory was checked by nobody: every finding is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import nearest, some
from ...module_utils.rails.plan import INTERFACE
from ..schema.findings import Findings, Path
from .addresses import Network, number
from .kinds import is_system_account

ROLES = ("compute", "launcher", "storage")
"""Groups in the directory, in its order."""

EVERYWHERE = (
    "cluster_name",
    "cluster_domain",
    "cluster_mpi_user",
    "cluster_mpi_uid",
    "cluster_addressing",
    "cluster_role",
    "cluster_management",
)
ON_COMPUTE = (
    "cluster_index",
    "cluster_rack",
    "cluster_slots",
    "cluster_drained",
    "cluster_gpus",
    "cluster_rails",
)
VARIABLES = EVERYWHERE + ON_COMPUTE
"""All that the directory reads of a host."""


@dataclass(frozen=True)
class Record:
    """A host as the inventory has it: its groups among ROLES, and its variables.

    Nothing more is said of `unreadable` variables: whoever read them has told why.
    """

    name: str
    roles: tuple[str, ...]
    variables: Mapping[str, Any]
    unreadable: frozenset[str] = frozenset()


@dataclass
class Directory:
    """The entries, and what most readers ask of them."""

    cluster_name: str
    entries: list[dict[str, Any]]

    @property
    def compute_hosts(self) -> list[str]:
        return [entry["name"] for entry in self.entries if entry["role"] == "compute"]

    @property
    def drained_hosts(self) -> list[str]:
        return [entry["name"] for entry in self.entries if entry["drained"]]

    @property
    def total_slots(self) -> int:
        """MPI slots of all compute hosts that are not drained: the world size."""
        return sum(entry["slots"] for entry in self.entries if not entry["drained"])


def build(records: Iterable[Record], findings: Findings) -> Directory:
    """The directory of `records`. Complete only when nothing was found."""
    hosts = list(records)
    uses = _Uses(findings)
    entries: list[tuple[tuple[int, int], dict[str, Any]]] = []
    for place, record in enumerate(hosts):
        reader = _Reader(record, findings)
        role = _role(record, reader)
        reader.everywhere(hosts[0])
        if record is hosts[0]:
            reader.mpi_user()
        entry = _entry(record.name, role, reader)
        index = reader.integer("cluster_index", 0) if role == "compute" else place
        entries.append(((ROLES.index(role), place if index is None else index), entry))
        listed = record.variables.get("cluster_rails")
        uses.take(
            entry, index, whole=isinstance(listed, list) and len(listed) == len(entry["rails"])
        )
    if not any(entry["role"] == "compute" for _place, entry in entries):
        findings.add(
            "inventory.no_compute",
            ("compute",),
            "the inventory has no compute hosts",
            "Check -i, and any message above that an inventory source could not be read",
        )
    if hosts:
        _one_launcher(hosts, findings)
    uses.finish()
    entries.sort(key=lambda pair: pair[0])
    name = str(hosts[0].variables.get("cluster_name", "")) if hosts else ""
    return Directory(name, [entry for _place, entry in entries])


def _one_launcher(hosts: list[Record], findings: Findings) -> None:
    """Hostfile and smoke test are the launcher's: none would skip both, two would do each twice."""
    launchers = [record.name for record in hosts if "launcher" in record.roles]
    if not launchers:
        findings.add(
            "inventory.no_launcher",
            ("launcher",),
            "the inventory has no launcher, and mpirun is started there",
            "Put one host into the group launcher",
        )
    elif len(launchers) > 1:
        findings.add(
            "inventory.launchers",
            ("launcher",),
            f"{len(launchers)} hosts are launchers: {some(launchers)}",
            "Keep one in the group launcher",
            value=len(launchers),
        )


def _role(record: Record, reader: _Reader) -> str:
    role = reader.value("cluster_role", str, "one of " + ", ".join(ROLES))
    if role is None:
        return record.roles[0]
    if role not in record.roles:
        reader.add(
            "inventory.role",
            ("cluster_role",),
            f"{role!r} is not a group of this host",
            f"Its groups are {', '.join(record.roles)}",
            role,
        )
        return record.roles[0]
    return str(role)


def _entry(name: str, role: str, reader: _Reader) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "role": role,
        "management_address": reader.management(),
        "rack": "",
        "slots": 0,
        "gpus": 0,
        "drained": False,
        "rails": [],
    }
    if role == "compute":
        entry["rack"] = reader.value("cluster_rack", str, "the name of a rack") or ""
        entry["slots"] = reader.integer("cluster_slots", 1) or 0
        entry["drained"] = reader.value("cluster_drained", bool, "true or false") or False
        gpus = reader.value("cluster_gpus", list, "a list of GPUs")
        entry["gpus"] = len(gpus or [])
        entry["rails"] = reader.rails(entry["gpus"])
    return entry


class _Reader:
    """Reads one host's variables; what is wrong becomes a finding and a harmless value."""

    def __init__(self, record: Record, findings: Findings) -> None:
        self.record = record
        self.findings = findings

    def add(self, code: str, path: Path, problem: str, remedy: str, value: Any = None) -> None:
        self.findings.add(code, (self.record.name, *path), problem, remedy, value)

    def value(self, name: str, kind: type, wanted: str) -> Any:
        if name in self.record.unreadable:
            return None
        if name not in self.record.variables:
            self.add("inventory.not_set", (name,), "is not set", f"Set it to {wanted}")
            return None
        value = self.record.variables[name]
        if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
            return value
        self.add("inventory.wrong_type", (name,), f"{value!r} is not {wanted}", "Correct it", value)
        return None

    def integer(self, name: str, low: int) -> Optional[int]:
        wanted = f"a whole number from {low} on"
        value = self.value(name, int, wanted)
        if value is None:
            return None
        if value < low:
            self.add(
                "inventory.too_small", (name,), f"{value} is too small", f"Write {wanted}", value
            )
            return None
        return int(value)

    def everywhere(self, first: Record) -> None:
        """What must be equal on all hosts."""
        for name, kind, wanted in (
            ("cluster_name", str, "the name of the cluster"),
            ("cluster_domain", str, "a DNS domain, or ''"),
            ("cluster_mpi_user", str, "the name of the MPI user"),
            ("cluster_mpi_uid", int, "the user id of the MPI user"),
            ("cluster_addressing", str, "subnet_per_rail or point_to_point"),
        ):
            value = self.value(name, kind, wanted)
            if value is None or self.record is first:
                continue
            other = first.variables.get(name)
            if other is not None and value != other:
                self.add(
                    "inventory.hosts_differ",
                    (name,),
                    f"{value!r}, but {other!r} on {first.name}",
                    "Set it once, for group all",
                    value,
                )

    def mpi_user(self) -> None:
        """Jobs run as somebody who can do nothing else."""
        user = self.record.variables.get("cluster_mpi_user")
        uid: Any = self.record.variables.get("cluster_mpi_uid")
        if isinstance(user, str) and is_system_account(user):
            self.add(
                "inventory.system_account",
                ("cluster_mpi_user",),
                f"{user!r} is an account of the system",
                "Name an unprivileged one of its own, such as mpi",
                user,
            )
        if _is_int(uid) and uid < 1000:
            self.add(
                "inventory.system_uid",
                ("cluster_mpi_uid",),
                f"{uid} is the user id of an account of the system",
                "Write one from 1000 on",
                uid,
            )

    def management(self) -> str:
        value = self.value("cluster_management", dict, "{address, prefix, interface}")
        if value is None:
            return ""
        address = value.get("address")
        if number(address) is None:
            self.add(
                "inventory.management_address",
                ("cluster_management", "address"),
                f"{address!r} is not an IPv4 address",
                "Write the host's management address",
                address,
            )
            return ""
        return str(address)

    def rails(self, gpus: int) -> list[dict[str, Any]]:
        rails = self.value("cluster_rails", list, "a list of rails")
        return [
            checked
            for index, rail in enumerate(rails or [])
            if (checked := self.rail(rail, ("cluster_rails", index), gpus)) is not None
        ]

    def rail(self, rail: Any, path: Path, gpus: int) -> Optional[dict[str, Any]]:
        if not isinstance(rail, dict):
            self.add(
                "inventory.rail_not_a_mapping",
                path,
                f"{rail!r} is not a mapping",
                "Write the keys of a rail",
                rail,
            )
            return None
        good = True
        if rail.keys() != _RAIL.keys():
            for key in rail.keys() - _RAIL.keys():
                self.add("inventory.unknown_key", (*path, key), "unknown key", nearest(key, _RAIL))
            for key in _RAIL.keys() - rail.keys():
                self.add(
                    "inventory.missing_key",
                    (*path, key),
                    "is not set",
                    f"Set it to {_RAIL[key][1]}",
                )
                good = False
        for key, value in rail.items():
            if key in _RAIL and not _RAIL[key][0](value):
                wanted = _RAIL[key][1]
                self.add(
                    "inventory.rail_value",
                    (*path, key),
                    f"{value!r} is not {wanted}",
                    "Correct it",
                    value,
                )
                good = False
        if not good:
            return None
        self._geometry(rail, path)
        management = self.record.variables.get("cluster_management")
        if isinstance(management, dict) and rail["interface"] == management.get("interface"):
            self.add(
                "inventory.rail_is_management",
                (*path, "interface"),
                f"{rail['interface']!r} is also the management interface",
                "Give the rail its own",
                rail["interface"],
            )
        if rail["gpu"] is not None and rail["gpu"] >= gpus:
            self.add(
                "inventory.no_gpu",
                (*path, "gpu"),
                f"there is no GPU {rail['gpu']}: the host has {gpus}",
                "Write null",
                rail["gpu"],
            )
        return {key: rail[key] for key in _SHOWN}

    def _geometry(self, rail: dict[str, Any], path: Path) -> None:
        """Address, gateway and prefix belong to the network."""
        first, _separator, length = rail["network"].partition("/")
        network = Network(number(first) or 0, int(length))
        if network.prefix != rail["prefix"]:
            self.add(
                "inventory.prefix",
                (*path, "prefix"),
                f"{rail['prefix']}, but {network} is the network",
                "Correct one",
                rail["prefix"],
            )
        for key in ("address", "gateway"):
            value = number(rail[key])
            if value is not None and value not in network:
                self.add(
                    "inventory.outside_network",
                    (*path, key),
                    f"{rail[key]} lies outside {network}",
                    "Correct one of them",
                    rail[key],
                )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_address(value: Any) -> bool:
    return number(value) is not None


def _is_network(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    first, _separator, length = value.partition("/")
    start = number(first)
    if start is None or not (length.isdigit() and len(length) <= 2 and int(length) <= 32):
        return False
    return start % (1 << (32 - int(length))) == 0


def _or_null(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or test(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_interface(value: Any) -> bool:
    return isinstance(value, str) and INTERFACE.fullmatch(value) is not None


def _is_speed(value: Any) -> bool:
    return _is_int(value) and value > 0


_RAIL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rail": (_is_int, "a whole number"),
    "plane": (_is_int, "a whole number"),
    "interface": (
        _is_interface,
        "an interface name (a letter, then letters, digits, - or _, 15 characters at most)",
    ),
    "pci": (_or_null(_is_text), "a PCI address or null"),
    "address": (_is_address, "an IPv4 address"),
    "prefix": (_is_int, "a prefix length"),
    "network": (_is_network, "an IPv4 network such as 10.0.0.0/24"),
    "gateway": (_or_null(_is_address), "an IPv4 address or null"),
    "mtu": (_is_int, "a whole number of bytes"),
    "speed_gbps": (_is_speed, "a whole number of Gb/s from 1 on"),
    "leaf": (_is_text, "the name of a leaf"),
    "leaf_port": (_is_text, "the name of a port"),
    "gpu": (_or_null(_is_int), "the number of a GPU, or null"),
    "numa": (_or_null(_is_int), "the number of a NUMA node, or null"),
}
_SHOWN = (
    "rail",
    "plane",
    "interface",
    "address",
    "prefix",
    "network",
    "speed_gbps",
    "leaf",
    "gpu",
    "numa",
)


class _Uses:
    """What may be used once in the cluster, and what must be alike."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.addresses: dict[str, str] = {}
        self.indexes: dict[int, str] = {}
        self.lanes: dict[tuple[tuple[int, int, str], ...], list[str]] = {}

    def take(self, entry: dict[str, Any], index: Optional[int], whole: bool) -> None:
        """`whole`: no rail was left out because something was found in it."""
        name = entry["name"]
        self._address(entry["management_address"], f"{name} management", (name,))
        if entry["role"] != "compute":
            return
        if index is not None and self.indexes.setdefault(index, name) != name:
            self.findings.add(
                "inventory.index_twice",
                (name, "cluster_index"),
                f"{index} is also that of {self.indexes[index]}",
                "Number the compute hosts from 0",
                value=index,
            )
        names: set[str] = set()
        for place, rail in enumerate(entry["rails"]):
            path = (name, "cluster_rails", place)
            self._address(rail["address"], f"{name} {rail['interface']}", path)
            if rail["interface"] in names:
                self.findings.add(
                    "inventory.interface_twice",
                    (*path, "interface"),
                    f"{rail['interface']!r} is there twice",
                    "Give each rail its own",
                    value=rail["interface"],
                )
            names.add(rail["interface"])
        if not whole:
            return
        lanes = tuple((rail["rail"], rail["plane"], rail["interface"]) for rail in entry["rails"])
        self.lanes.setdefault(lanes, []).append(name)

    def _address(self, address: str, owner: str, path: Path) -> None:
        if address and self.addresses.setdefault(address, owner) != owner:
            self.findings.add(
                "inventory.address_twice",
                path,
                f"the address {address} of {owner} is also that of {self.addresses[address]}",
                "Give each its own",
                value=address,
            )

    def finish(self) -> None:
        """Hosts whose rails are not those of most others have a rail that is known nowhere else."""
        if len(self.lanes) < 2:
            return
        usual = max(self.lanes, key=lambda lanes: len(self.lanes[lanes]))
        for lanes, names in self.lanes.items():
            odd = sorted(set(lanes) - set(usual))
            missing = sorted(set(usual) - set(lanes))
            told = [f"unknown rail {_lane(lane)}" for lane in odd]
            told += [f"no rail {_lane(lane)}" for lane in missing]
            for name in names if lanes != usual else []:
                self.findings.add(
                    "inventory.rails_differ",
                    (name, "cluster_rails"),
                    f"{', '.join(told) or 'rails in another order'}; "
                    f"{self.lanes[usual][0]} and most others have {len(usual)} rails",
                    "Give all compute hosts the same rails, ordered by rail and plane",
                    value=(odd, missing),
                )


def _lane(lane: tuple[int, int, str]) -> str:
    rail, plane, interface = lane
    return f"{rail} plane {plane} ({interface})"

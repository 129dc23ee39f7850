# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of a cluster model. Validation, messages and docs/cluster-model.md come from here."""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.qos import IP_MTU_LIMITS
from ..fabric.base import UNNAMED, PortNaming
from ..fabric.chip_keys import CHIP_NAME, CHIPS
from ..fabric.systems import SYSTEMS
from ..qos.contract import CONTRACT, VARIABLE
from ..schema.findings import Findings, Path
from ..schema.kinds import (
    Boolean,
    Integer,
    Key,
    Kind,
    ListOf,
    OneOf,
    OneOrList,
    OrNull,
    Section,
    Table,
    Text,
    Wrong,
    is_mapping,
    shown,
)
from .addresses import Network
from .software import KEY as SOFTWARE_KEY
from .software import SOFTWARE
from .storage_keys import FILE_SYSTEMS
from .storage_keys import KEY as FILESYSTEMS_KEY

PLUGIN = "baremetal.mpi_roce.cluster"
SUBNET_PER_RAIL = "subnet_per_rail"
POINT_TO_POINT = "point_to_point"

# Kinds that only a cluster model has

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = Text(
    _LABEL, "a host name (a to z, 0 to 9 and inner hyphens, at most 63 characters)", "node01", 63
)
_SYSTEM_ACCOUNTS = (
    *("root", "daemon", "bin", "sys", "adm", "sync", "shutdown", "halt", "operator", "games"),
    *("man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "gnats"),
    *("ftp", "nobody", "nfsnobody", "sshd", "dbus", "messagebus", "polkitd", "chrony", "tss"),
)
_USER = Text(
    rf"(?!(?:{'|'.join(_SYSTEM_ACCOUNTS)})$)(?!systemd-)[a-z][a-z0-9_-]*",
    "a Linux user name that is no system account",
    "mpi",
    32,
)
INTERFACE = Text(
    r"[A-Za-z0-9_.-]+", "an interface name of at most 15 characters", "mgmt0", 15, empty=True
)


@dataclass(frozen=True)
class _Pci(Text):
    def convert(self, value: Any) -> str:
        return super().convert(value.lower() if isinstance(value, str) else value)


_PCI = _Pci(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]",
    "PCI address `0000:11:00.0`",
    "0000:11:00.0 (domain:bus:device.function)",
)


@dataclass(frozen=True)
class _Address(Kind):
    reads_text = True

    def convert(self, value: Any) -> int:
        try:
            return int(ipaddress.IPv4Address(str(value)))
        except ValueError as error:
            problem = f"{shown(value)} is not an IPv4 address"
            raise Wrong("model.address", problem, "Write one such as 10.0.0.10") from error

    def describe(self) -> str:
        return "IPv4 address"


PRIVATE = "10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"


@dataclass(frozen=True)
class _Subnet(Kind):
    reads_text = True

    def convert(self, value: Any) -> Network:
        try:
            if not re.search(r"/\d{1,2}$", str(value)):
                raise ValueError("no prefix length")
            network = ipaddress.IPv4Network(str(value))
        except ValueError as error:
            problem = f"{shown(value)} is not an IPv4 network ({error})"
            raise Wrong("model.network", problem, "Write one such as 10.0.0.0/24") from error
        found = Network(int(network.network_address), network.prefixlen)
        if found.no_hosts:
            problem = f"{found} is, or overlaps, {found.no_hosts}, where no host has an address"
            raise Wrong("model.network_without_hosts", problem, f"Choose one in {PRIVATE}")
        return found

    def describe(self) -> str:
        return "IPv4 network `10.0.0.0/24`"


@dataclass(frozen=True)
class _Pattern(Kind):
    """A name pattern over numbers: `node{:02d}`, or with named ones `rail{rail}p{plane}`."""

    example: str
    fields: tuple[str, ...] = ("",)
    """The first one is needed."""
    reads_text = True

    def convert(self, value: Any) -> str:
        problem = self._problem(value) if isinstance(value, str) else "it is not text"
        if problem:
            text = f"{shown(value)} is not a pattern: {problem}"
            raise Wrong("model.pattern", text, f"Write one such as {self.example}")
        return str(value)

    def _problem(self, pattern: str) -> str:
        try:
            parts = list(string.Formatter().parse(pattern))
        except ValueError as error:
            return str(error)
        for literal, field, form, conversion in parts:
            if re.search(r"[\s{}]", literal):
                return "it has a blank or a brace in its text"
            if field is None:
                continue
            if (
                field not in self.fields
                or conversion
                or not re.fullmatch(r"(0?[1-9])?d?", form or "")
            ):
                return f"{{{field}{':' if form else ''}{form}}} is unknown"
        if [part[1] for part in parts].count(self.fields[0]) != 1:
            return f"it needs {{{self.fields[0]}}} exactly once"
        return ""

    def describe(self) -> str:
        return f"pattern `{self.example}`"


@dataclass(frozen=True)
class _Variables(Kind):
    """Ansible variables: any values, but names that Ansible takes and the model does not set."""

    def describe(self) -> str:
        return "Ansible variables"

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Optional[dict[str, Any]]:
        if not is_mapping(value, path, findings):
            return None
        for name in value:
            if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
                findings.add(
                    "model.variable_name",
                    (*path, str(name)),
                    "is not the name of a variable",
                    "Write letters, digits and underscores",
                )
            elif name.startswith("cluster_") or name in ("ansible_host", VARIABLE):
                findings.add(
                    "model.variable_of_model",
                    (*path, name),
                    "is set by the model itself",
                    "Change the key of the model it comes from; of one node, under nodes.overrides",
                )
        return dict(value)


_ADDRESS, _VARIABLES = _Address(), _Variables()
_PCI_LIST = ListOf(OneOrList(_PCI, _PCI), "PCI addresses, one per rail (a list of them per plane)")
_GPU_PCI_LIST = ListOf(_PCI, "PCI addresses, one per GPU")
_MTU = Integer(*IP_MTU_LIMITS, "bytes, layer 3")
_SPEED = Integer(1, 3200, "Gb/s")
_SLOTS = Integer(1, 4096)

_OF_ONE_NODE = (
    Key(
        "management",
        _ADDRESS,
        "Its management address, instead of one counted from `management_first`.",
    ),
    Key(
        "rack",
        Text(
            r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a rack name (letters, digits, -, _ and dots)", "r01", 60
        ),
        "Its rack, instead of the one counted by `nodes_per_rack`.",
    ),
    Key("slots", _SLOTS, "Its MPI slots."),
    Key("drained", Boolean(), "Whether it is configured but gets no ranks."),
    Key("pci", _PCI_LIST, "PCI addresses of its rails, instead of `rails.pci`."),
    Key("gpu_pci", _GPU_PCI_LIST, "PCI addresses of its GPUs, instead of `gpus.pci`."),
    Key("vars", _VARIABLES, "Variables of this host alone.", default={}),
)

LISTED_NODE = Section(
    "nodes.list",
    "One node of a cluster that is listed and not counted.",
    (Key("name", HOST_NAME, "Its host name.", required=True), *_OF_ONE_NODE),
)

NODE_OVERRIDE = Section(
    "nodes.overrides", "What differs on one node, under its name.", _OF_ONE_NODE
)

MPI = Section(
    "mpi",
    "The unprivileged user that runs MPI jobs, the same on every node.",
    (
        Key("user", _USER, "Its name.", default="mpi"),
        Key("uid", Integer(1000, 60000), "Its user and group id.", default=2000),
    ),
)

MANAGEMENT = Section(
    "management",
    "The network that Ansible, SSH and mpirun's own messages use; never a rail.",
    (
        Key("subnet", _Subnet(), "All management addresses lie in it.", required=True),
        Key(
            "interface",
            INTERFACE,
            "Its interface on the hosts; empty where it differs or does not matter.",
            default="",
        ),
    ),
)

NODES = Section(
    "nodes",
    "The compute nodes: either `count` of them by pattern, or a `list`.",
    (
        Key("count", Integer(0, 100_000), "How many there are."),
        Key("list", ListOf(LISTED_NODE), "Each by itself."),
        Key("name", _Pattern("node{:02d}"), "Their names.", default="node{:02d}"),
        Key("start", Integer(0, 1_000_000), "The number of the first.", default=1),
        Key(
            "management_first",
            _ADDRESS,
            "Management address of the first; the others follow it one by one. Not needed when "
            "every node has its own `management`.",
        ),
        Key("slots", Integer(1, 4096), "MPI slots of a node.", default_text="one per GPU"),
        Key("rack", _Pattern("r{:02d}"), "Names of racks.", default="r{:02d}"),
        Key(
            "nodes_per_rack",
            Integer(1, 1000),
            "A new rack begins after so many nodes.",
            default_text="all in one rack",
        ),
        Key(
            "drained",
            ListOf(HOST_NAME, "host names"),
            "Nodes that are configured but get no ranks.",
            default=[],
        ),
        Key(
            "absent",
            ListOf(HOST_NAME, "host names"),
            "Nodes that are not there, yet or any more: left out of the inventory, their place "
            "(address, port, number) kept free.",
            default=[],
        ),
        Key(
            "overrides",
            Table(NODE_OVERRIDE, "host name"),
            "What differs on single nodes.",
            default={},
        ),
    ),
)

RAILS = Section(
    "rails",
    "The network of every node: rail k of all nodes meets on one leaf. A rail has one plane unless "
    "its port shows up as several devices.",
    (
        Key("count", Integer(1, 64), "Rails of a node.", required=True),
        Key("planes", Integer(1, 8), "Devices, each with its own address, of a rail.", default=1),
        Key("speed_gbps", _SPEED, "Line rate of one plane.", required=True),
        Key("mtu", _MTU, "Largest IP packet.", default=9000),
        Key(
            "interface",
            _Pattern("rail{rail}", ("rail", "plane")),
            "Interface names; `{rail}` and `{plane}` count from 0.",
            default_text="`rail{rail}`, with planes `rail{rail}p{plane}`",
        ),
        Key(
            "pci",
            _PCI_LIST,
            "The device of each rail, the same on every node. Left out, the interfaces must "
            "already carry their names.",
        ),
        Key(
            "gpu",
            ListOf(OrNull(Integer(0, 63)), "GPU numbers (or null), one per rail"),
            "The GPU beside each rail.",
            default_text="rail k belongs to GPU k",
        ),
        Key(
            "numa",
            ListOf(OrNull(Integer(0, 63)), "NUMA nodes (or null), one per rail"),
            "The NUMA node of each rail.",
            default_text="that of its GPU",
        ),
    ),
)

GPUS = Section(
    "gpus",
    "The GPUs of every node. Left out, nodes have none and need `nodes.slots`.",
    (
        Key("count", Integer(0, 64), "GPUs of a node.", default=0),
        Key("pci", _GPU_PCI_LIST, "Their PCI addresses, the same on every node."),
        Key("numa", ListOf(Integer(0, 63), "NUMA nodes, one per GPU"), "Their NUMA nodes."),
    ),
)

ADDRESSES = Section(
    "addresses",
    "How rails get their addresses. Adding nodes at the end never changes an address.",
    (
        Key(
            "plan",
            OneOf((SUBNET_PER_RAIL, POINT_TO_POINT)),
            "`subnet_per_rail`: one subnet per rail, plane and set of leaves, its first address "
            "the gateway on the leaf. `point_to_point`: a /31 from every rail to its leaf port.",
            default=SUBNET_PER_RAIL,
        ),
        Key("pool", _Subnet(), "The network that is cut up.", required=True),
        Key(
            "prefix",
            Integer(8, 30),
            "Prefix length of each subnet of `subnet_per_rail`.",
            default=24,
        ),
        Key(
            "first_host",
            Integer(2, 65535),
            "Place of the first node in each subnet of `subnet_per_rail`: 11 gives .11.",
            default=2,
        ),
    ),
)


_PORT_NAMES = Text(
    r"[A-Za-z0-9_./:{},-]+", "a port's name, or several in braces", "swp{1..64}s{0..1}", 100
)


def _by_system(text: Callable[[PortNaming], str]) -> str:
    """The default of a switch without a system, then the systems that differ from it."""
    usual = text(UNNAMED)
    others: dict[str, list[str]] = {}
    for name, system in SYSTEMS.items():
        if text(system.naming) != usual:
            others.setdefault(text(system.naming), []).append(name)
    return "; ".join(
        [usual, *(f"{value} with {' and '.join(names)}" for value, names in others.items())]
    )


def _switch_names(example: str) -> tuple[Key, ...]:
    return (
        Key("count", Integer(1, 10_000), "How many there are.", required=True),
        Key(
            "name",
            OneOrList(_Pattern(example), HOST_NAME),
            "Their names, counted from 1.",
            default=example,
        ),
        Key(
            "management_first",
            _ADDRESS,
            "Management address of the first; the others follow it one by one.",
            required=True,
        ),
        Key("ports", Integer(1, 4096, "ports"), "Ports of each.", required=True),
        Key(
            "system",
            OneOrList(OneOf(tuple(SYSTEMS)), OneOf(tuple(SYSTEMS))),
            "What they are configured in: one for all, or one for each. Left out, the fabric layer "
            "leaves them alone.",
        ),
        Key(
            "asic",
            OneOrList(CHIP_NAME, CHIP_NAME),
            "Their chip, which the headroom of ports depends on: one for all, or one for each.",
        ),
        Key(
            "port",
            OneOrList(_Pattern("Ethernet{}"), _PORT_NAMES),
            "Names of ports in their order: a pattern, or a list of names and of ranges in braces, "
            "as a shell expands them: `swp{1..64}s{0..1}`, `Ethernet{1..64}/{1,5}`, "
            "`Ethernet{0..504..8}`.",
            default_text=_by_system(lambda naming: f"`{naming.pattern}`"),
        ),
        Key(
            "port_start",
            Integer(0, 1000),
            "The number of the first port.",
            default_text=_by_system(lambda naming: f"`{naming.start}`"),
        ),
        Key(
            "port_step",
            Integer(1, 16),
            "From one port's number to the next: 8 where a port has eight lanes.",
            default_text=_by_system(
                lambda naming: f"`{naming.step}`" if naming.step else "the lanes of a port"
            ),
        ),
    )


LEAVES = Section(
    "leaves",
    "The switches that rails plug into, in sets: a set has one leaf for each rail and plane. Nodes "
    "fill one set after the other.",
    (
        *_switch_names("leaf{:02d}"),
        Key(
            "rail_to_leaf",
            ListOf(Integer(0, 511), "numbers, one per rail and plane"),
            "Which leaf of a set, from 0, each rail goes to (rail by rail, plane by plane). For "
            "fewer leaves than rails.",
            default_text="each its own",
        ),
        Key(
            "nodes_per_set",
            Integer(1, 4096),
            "Nodes that one set of leaves serves.",
            default_text="as many as there are ports",
        ),
    ),
)

SPINES = Section(
    "spines",
    "The switches between the leaves: every leaf has links to every spine, on its last ports.",
    (
        *_switch_names("spine{:02d}"),
        Key("links_per_leaf", Integer(1, 512), "Links from one leaf to one spine.", default=1),
        Key("speed_gbps", _SPEED, "Line rate of one link.", default_text="`rails.speed_gbps`"),
    ),
)

_HOST = (
    Key("name", HOST_NAME, "Its host name.", required=True),
    Key("management", _ADDRESS, "Its management address.", required=True),
    Key("vars", _VARIABLES, "Variables of this host alone.", default={}),
)
LAUNCHER = Section("launcher", "The host that mpirun is started on. It has no rails.", _HOST)

STORAGE_LINK = Section(
    "storage.links",
    "One cable from a storage host to a leaf, for what switches do on its port.",
    (
        Key("leaf", HOST_NAME, "The leaf it is plugged into.", required=True),
        Key(
            "port",
            Text(r"[A-Za-z0-9_./:-]+", "the name of a switch port", "Ethernet8", 40),
            "The port there: one that no node and no spine has.",
            required=True,
        ),
        Key(
            "interface",
            replace(INTERFACE, example="ens1f0np0", empty=False),
            "The interface of the host.",
            required=True,
        ),
        Key("speed_gbps", _SPEED, "Line rate.", default_text="`rails.speed_gbps`"),
    ),
)
STORAGE = Section(
    "storage",
    "One storage host.",
    (*_HOST, Key("links", ListOf(STORAGE_LINK), "Its cables to leaves.", default=[])),
)

MODEL = Section(
    "model",
    "The whole file.",
    (
        Key("plugin", OneOf((PLUGIN,)), "Says that this file is a cluster model.", required=True),
        Key(
            "name",
            Text(r"[a-z0-9][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "b300", 40),
            "Name of the cluster: names reports and state.",
            required=True,
        ),
        Key(
            "domain",
            Text(rf"{_LABEL}(\.{_LABEL})*", "a DNS domain", "example.net", 189, empty=True),
            "DNS domain of the hosts.",
            default="",
        ),
        Key("mpi", MPI, "The MPI user."),
        Key("management", MANAGEMENT, "The management network.", required=True),
        Key("nodes", NODES, "The compute nodes.", required=True),
        Key("gpus", GPUS, "Their GPUs."),
        Key("rails", RAILS, "Their rails.", required=True),
        Key("addresses", ADDRESSES, "Addresses of the rails.", required=True),
        Key("leaves", LEAVES, "The leaf switches.", required=True),
        Key("spines", OrNull(SPINES), "The spine switches."),
        Key("asics", CHIPS, "What is to be known of further switch chips.", default={}),
        Key(VARIABLE, CONTRACT, "The QoS contract."),
        Key(SOFTWARE_KEY, SOFTWARE, "Versions of kernel, RDMA and GPU software."),
        Key("launcher", LAUNCHER, "The host that starts jobs.", required=True),
        Key("storage", ListOf(STORAGE), "Storage hosts.", default=[]),
        Key(FILESYSTEMS_KEY, FILE_SYSTEMS, "Shared file systems.", default=[]),
        Key(
            "vars",
            Table(_VARIABLES, "group"),
            "Variables of a group (`all`, `compute`, `launcher`, `storage`, `leaf`, `spine` or a "
            "`rack_...`), for what a site sets besides the model.",
            default={},
        ),
    ),
)

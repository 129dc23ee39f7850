# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of a cluster model: source of validation, messages and docs/cluster-model.md."""

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
    Invalid,
    Key,
    Kind,
    ListOf,
    OneOf,
    OneOrList,
    OrNull,
    Section,
    Table,
    Text,
    is_mapping,
    shown,
)
from .addresses import Subnet
from .software import KEY as SOFTWARE_KEY
from .software import SOFTWARE
from .storage_keys import FILE_SYSTEMS
from .storage_keys import KEY as FILESYSTEMS_KEY

PLUGIN = "baremetal.mpi_roce.cluster"
SUBNET_PER_RAIL = "subnet_per_rail"
POINT_TO_POINT = "point_to_point"

# Kinds of values in a cluster model

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
    "a Linux user name other than a system account",
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
            raise Invalid("model.address", problem, "Write one such as 10.0.0.10") from error

    def describe(self) -> str:
        return "IPv4 address"


PRIVATE = "10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"


@dataclass(frozen=True)
class _Subnet(Kind):
    reads_text = True

    def convert(self, value: Any) -> Subnet:
        try:
            if not re.search(r"/\d{1,2}$", str(value)):
                raise ValueError("no prefix length")
            network = ipaddress.IPv4Network(str(value))
        except ValueError as error:
            problem = f"{shown(value)} is not an IPv4 network ({error})"
            raise Invalid("model.network", problem, "Write one such as 10.0.0.0/24") from error
        found = Subnet(int(network.network_address), network.prefixlen)
        if found.no_hosts:
            problem = f"{found} overlaps {found.no_hosts}, which has no host addresses"
            raise Invalid("model.network_without_hosts", problem, f"Choose one in {PRIVATE}")
        return found

    def describe(self) -> str:
        return "IPv4 network `10.0.0.0/24`"


@dataclass(frozen=True)
class _Pattern(Kind):
    """A name pattern with numbers: `node{:02d}`, or with named fields `rail{rail}p{plane}`."""

    example: str
    fields: tuple[str, ...] = ("",)
    """The first one is required."""
    reads_text = True

    def convert(self, value: Any) -> str:
        problem = self._problem(value) if isinstance(value, str) else "it is not text"
        if problem:
            text = f"{shown(value)} is not a pattern: {problem}"
            raise Invalid("model.pattern", text, f"Write one such as {self.example}")
        return str(value)

    def _problem(self, pattern: str) -> str:
        try:
            parts = list(string.Formatter().parse(pattern))
        except ValueError as error:
            return str(error)
        for literal, field, form, conversion in parts:
            if re.search(r"[\s{}]", literal):
                return "it contains a blank or a brace"
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
    """Ansible variables: any value, with a valid name that the model does not set."""

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
                    "is not a valid variable name",
                    "Use letters, digits and underscores",
                )
            elif name.startswith("cluster_") or name in ("ansible_host", VARIABLE):
                findings.add(
                    "model.variable_of_model",
                    (*path, name),
                    "is set by the model",
                    "Change the key of the model; for one node, under nodes.overrides",
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
        "Management address.",
    ),
    Key(
        "rack",
        Text(
            r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a rack name (letters, digits, -, _ and dots)", "r01", 60
        ),
        "Rack.",
    ),
    Key("slots", _SLOTS, "MPI slots."),
    Key("drained", Boolean(), "Configured, but without ranks."),
    Key("pci", _PCI_LIST, "Replaces `rails.pci`."),
    Key("gpu_pci", _GPU_PCI_LIST, "Replaces `gpus.pci`."),
    Key("vars", _VARIABLES, "Host variables.", default={}),
)

LISTED_NODE = Section(
    "nodes.list",
    "One listed node.",
    (Key("name", HOST_NAME, "Host name.", required=True), *_OF_ONE_NODE),
)

NODE_OVERRIDE = Section("nodes.overrides", "Values of a single node, by host name.", _OF_ONE_NODE)

MPI = Section(
    "mpi",
    "The unprivileged user that runs MPI jobs on every node.",
    (
        Key("user", _USER, "User name.", default="mpi"),
        Key("uid", Integer(1000, 60000), "User and group ID.", default=2000),
    ),
)

MANAGEMENT = Section(
    "management",
    "Used by Ansible, SSH and the control traffic of mpirun; never a rail.",
    (
        Key("subnet", _Subnet(), "Contains every management address.", required=True),
        Key(
            "interface",
            INTERFACE,
            "Interface on the hosts; empty if it differs or is irrelevant.",
            default="",
        ),
    ),
)

NODES = Section(
    "nodes",
    "Compute nodes: `count` of them, or a `list`.",
    (
        Key("count", Integer(0, 100_000), "Number of nodes."),
        Key("list", ListOf(LISTED_NODE), "Individual nodes."),
        Key("name", _Pattern("node{:02d}"), "Host names.", default="node{:02d}"),
        Key("start", Integer(0, 1_000_000), "Number of the first node.", default=1),
        Key(
            "management_first",
            _ADDRESS,
            "Management address of the first node; the others follow in order. Optional "
            "if every node has `management`.",
        ),
        Key("slots", Integer(1, 4096), "MPI slots per node.", default_text="one per GPU"),
        Key("rack", _Pattern("r{:02d}"), "Rack names.", default="r{:02d}"),
        Key(
            "nodes_per_rack",
            Integer(1, 1000),
            "Nodes per rack.",
            default_text="all in one rack",
        ),
        Key(
            "drained",
            ListOf(HOST_NAME, "host names"),
            "Nodes that are configured, but get no ranks.",
            default=[],
        ),
        Key(
            "absent",
            ListOf(HOST_NAME, "host names"),
            "Missing nodes: not in the inventory, with address, port and number reserved.",
            default=[],
        ),
        Key(
            "overrides",
            Table(NODE_OVERRIDE, "host name"),
            "Values of single nodes.",
            default={},
        ),
    ),
)

RAILS = Section(
    "rails",
    "Rail k of all nodes connects to the same leaf. A rail has several planes if its "
    "port appears as several devices.",
    (
        Key("count", Integer(1, 64), "Rails per node.", required=True),
        Key("planes", Integer(1, 8), "Devices per rail, each with an address.", default=1),
        Key("speed_gbps", _SPEED, "Line rate of one plane.", required=True),
        Key("mtu", _MTU, "Largest IP packet.", default=9000),
        Key(
            "interface",
            _Pattern("rail{rail}", ("rail", "plane")),
            "Interface names; `{rail}` and `{plane}` start at 0.",
            default_text="`rail{rail}`, with planes `rail{rail}p{plane}`",
        ),
        Key(
            "pci",
            _PCI_LIST,
            "PCI address of each rail on every node. If unset, interfaces must already "
            "have their names.",
        ),
        Key(
            "gpu",
            ListOf(OrNull(Integer(0, 63)), "GPU numbers (or null), one per rail"),
            "GPU closest to each rail.",
            default_text="rail k: GPU k",
        ),
        Key(
            "numa",
            ListOf(OrNull(Integer(0, 63)), "NUMA nodes (or null), one per rail"),
            "NUMA node of each rail.",
            default_text="the GPU's",
        ),
    ),
)

GPUS = Section(
    "gpus",
    "If unset, nodes have no GPUs and need `nodes.slots`.",
    (
        Key("count", Integer(0, 64), "GPUs per node.", default=0),
        Key("pci", _GPU_PCI_LIST, "PCI addresses on every node."),
        Key("numa", ListOf(Integer(0, 63), "NUMA nodes, one per GPU"), "NUMA nodes."),
    ),
)

ADDRESSES = Section(
    "addresses",
    "Adding nodes at the end never changes an address.",
    (
        Key(
            "plan",
            OneOf((SUBNET_PER_RAIL, POINT_TO_POINT)),
            "`subnet_per_rail`: one subnet per rail, plane and leaf set; its first "
            "address is the gateway on the leaf. `point_to_point`: a /31 between each "
            "rail and its leaf port.",
            default=SUBNET_PER_RAIL,
        ),
        Key("pool", _Subnet(), "Network to allocate from.", required=True),
        Key(
            "prefix",
            Integer(8, 30),
            "Prefix length per subnet (`subnet_per_rail`).",
            default=24,
        ),
        Key(
            "first_host",
            Integer(2, 65535),
            "Host part of the first node's address (`subnet_per_rail`): 11 gives .11.",
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
        Key("count", Integer(1, 10_000), "Number of switches.", required=True),
        Key(
            "name",
            OneOrList(_Pattern(example), HOST_NAME),
            "Host names, numbered from 1.",
            default=example,
        ),
        Key(
            "management_first",
            _ADDRESS,
            "Management address of the first switch; the others follow in order.",
            required=True,
        ),
        Key("ports", Integer(1, 4096, "ports"), "Ports per switch.", required=True),
        Key(
            "system",
            OneOrList(OneOf(tuple(SYSTEMS)), OneOf(tuple(SYSTEMS))),
            "Network operating system, for all or for each. If unset, the layer `fabric` "
            "skips the switch.",
        ),
        Key(
            "asic",
            OneOrList(CHIP_NAME, CHIP_NAME),
            "Switch chip, for all or for each; determines port headroom.",
        ),
        Key(
            "port",
            OneOrList(_Pattern("Ethernet{}"), _PORT_NAMES),
            "Port names in order: a pattern, or names and brace ranges as in a shell "
            "(`swp{1..64}s{0..1}`, `Ethernet{1..64}/{1,5}`, `Ethernet{0..504..8}`).",
            default_text=_by_system(lambda naming: f"`{naming.pattern}`"),
        ),
        Key(
            "port_start",
            Integer(0, 1000),
            "Number of the first port.",
            default_text=_by_system(lambda naming: f"`{naming.start}`"),
        ),
        Key(
            "port_step",
            Integer(1, 16),
            "Increment between port numbers: 8 for ports of eight lanes.",
            default_text=_by_system(
                lambda naming: f"`{naming.step}`" if naming.step else "the lanes of a port"
            ),
        ),
    )


LEAVES = Section(
    "leaves",
    "Leaf sets: each set has one leaf per rail and plane. Nodes fill one set after another.",
    (
        *_switch_names("leaf{:02d}"),
        Key(
            "rail_to_leaf",
            ListOf(Integer(0, 511), "numbers, one per rail and plane"),
            "Leaf of each rail and plane within a set, from 0; needed if there are fewer "
            "leaves than rails.",
            default_text="one leaf each",
        ),
        Key(
            "nodes_per_set",
            Integer(1, 4096),
            "Nodes per leaf set.",
            default_text="number of ports",
        ),
    ),
)

SPINES = Section(
    "spines",
    "Every leaf has links to every spine, on its last ports.",
    (
        *_switch_names("spine{:02d}"),
        Key("links_per_leaf", Integer(1, 512), "Links between one leaf and one spine.", default=1),
        Key("speed_gbps", _SPEED, "Line rate of one link.", default_text="`rails.speed_gbps`"),
    ),
)

_HOST = (
    Key("name", HOST_NAME, "Host name.", required=True),
    Key("management", _ADDRESS, "Management address.", required=True),
    Key("vars", _VARIABLES, "Host variables.", default={}),
)
LAUNCHER = Section("launcher", "The host that runs mpirun. It has no rails.", _HOST)

STORAGE_LINK = Section(
    "storage.links",
    "A cable between a storage host and a leaf.",
    (
        Key("leaf", HOST_NAME, "Leaf.", required=True),
        Key(
            "port",
            Text(r"[A-Za-z0-9_./:-]+", "the name of a switch port", "Ethernet8", 40),
            "Port of the leaf, not used by nodes or spines.",
            required=True,
        ),
        Key(
            "interface",
            replace(INTERFACE, example="ens1f0np0", empty=False),
            "Interface of the host.",
            required=True,
        ),
        Key("speed_gbps", _SPEED, "Line rate.", default_text="`rails.speed_gbps`"),
    ),
)
STORAGE = Section(
    "storage",
    "One storage host.",
    (*_HOST, Key("links", ListOf(STORAGE_LINK), "Cables to leaves.", default=[])),
)

MODEL = Section(
    "model",
    "The top level of the file.",
    (
        Key("plugin", OneOf((PLUGIN,)), "Identifies a cluster model.", required=True),
        Key(
            "name",
            Text(r"[a-z0-9][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "b300", 40),
            "Cluster name, used for reports and state.",
            required=True,
        ),
        Key(
            "domain",
            Text(rf"{_LABEL}(\.{_LABEL})*", "a DNS domain", "example.net", 189, empty=True),
            "DNS domain of the hosts.",
            default="",
        ),
        Key("mpi", MPI, "MPI user."),
        Key("management", MANAGEMENT, "Management network.", required=True),
        Key("nodes", NODES, "Compute nodes.", required=True),
        Key("gpus", GPUS, "GPUs of each node."),
        Key("rails", RAILS, "Rails of each node.", required=True),
        Key("addresses", ADDRESSES, "Rail addresses.", required=True),
        Key("leaves", LEAVES, "Leaf switches.", required=True),
        Key("spines", OrNull(SPINES), "Spine switches."),
        Key("asics", CHIPS, "Properties of further switch chips.", default={}),
        Key(VARIABLE, CONTRACT, "QoS contract."),
        Key(SOFTWARE_KEY, SOFTWARE, "Versions of kernel, RDMA, GPU and MPI software."),
        Key("launcher", LAUNCHER, "Host that starts jobs.", required=True),
        Key("storage", ListOf(STORAGE), "Storage hosts.", default=[]),
        Key(FILESYSTEMS_KEY, FILE_SYSTEMS, "Shared file systems.", default=[]),
        Key(
            "vars",
            Table(_VARIABLES, "group"),
            "Variables per group: `all`, `compute`, `launcher`, `storage`, `leaf`, "
            "`spine` or `rack_...`.",
            default={},
        ),
    ),
)

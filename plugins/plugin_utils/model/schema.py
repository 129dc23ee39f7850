# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of a cluster model: source of validation, messages and docs/cluster-model.md."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.qos import IP_MTU_LIMITS
from ...module_utils.slurm.cluster import SLURM
from ..fabric.chip_keys import CHIP_NAME, CHIPS, OUT_OF_SCOPE, SYSTEM_NAME
from ..qos.contract import CONTRACT, VARIABLE
from ..schema import meant
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
    OrSection,
    Section,
    Table,
    Text,
    foreign,
    is_mapping,
    json_pattern,
    needed,
    section_in,
    shown,
)
from .addresses import Subnet, Subnets
from .software import OF_KINDS, SOFTWARE
from .storage_keys import FILE_SYSTEMS
from .wiring import DIVISIONS

PLUGIN = "baremetal.mpi_roce.cluster"
SUBNET_PER_RAIL = "subnet_per_rail"
POINT_TO_POINT = "point_to_point"
BY_NODE, BY_RAIL, BY_PLANE = "node", "rail", "plane"
BY_SYSTEM = "[by system](#systems-and-port-names)"

# Kinds of values in a cluster model

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


@dataclass(frozen=True)
class _HostName(Text):
    def convert(self, value: Any) -> str:
        try:
            return super().convert(value)
        except Invalid as error:
            label, dot, domain = str(value).lower().replace("_", "-").partition(".")
            if not (isinstance(value, str) and re.fullmatch(self.form, label)):
                raise
            remedy = f"Write {label}" + (f", and domain: {domain} at the top" if dot else "")
            raise Invalid(error.code, error.problem, remedy) from error


HOST_NAME = _HostName(
    _LABEL, "a host name (a to z, 0 to 9 and inner hyphens, at most 63 characters)", "node01", 63
)
_USER = Text(
    r"(?!(root|daemon|nobody|sshd)$)(?!systemd-)[a-z][a-z0-9_-]*",
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
        try:
            return super().convert(value.lower() if isinstance(value, str) else value)
        except Invalid as error:
            remedy = f"Write {meant.pci(value)}" if meant.pci(value) else error.remedy
            if re.match(r"(mlx|bnxt|irdma|roce|ib|en|eth|rail)[a-z0-9_]*\d", str(value)):
                remedy = f"Write its bus-info of `ethtool -i`: {self.example}"
            raise Invalid(error.code, error.problem, remedy) from error

    def json(self) -> dict[str, Any]:
        return {"type": "string", "pattern": json_pattern(self.form).replace("a-f", "a-fA-F")}


_PCI = _Pci(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]",
    "PCI address `0000:11:00.0`",
    "0000:11:00.0 (domain:bus:device.function)",
)


_DOTTED = r"([0-9]{1,3}\.){3}[0-9]{1,3}"


@dataclass(frozen=True)
class _Address(Kind):
    reads_text = True

    def convert(self, value: Any) -> int:
        try:
            return int(ipaddress.IPv4Address(str(value)))
        except ValueError as error:
            problem = f"{shown(value)} is not an IPv4 address" + _ipv6(value)
            plain = _ipv4(value, "ip") or meant.address(value) or "one such as 10.0.0.10"
            remedy = f"Write {plain}"
            raise Invalid("model.address", problem, remedy) from error

    def describe(self) -> str:
        return "IPv4 address"

    def json(self) -> dict[str, Any]:
        return {"type": "string", "pattern": json_pattern(_DOTTED)}


def _ipv4(value: Any, part: str) -> str:
    """The address or network of an address with a prefix length or mask; empty for others."""
    try:
        return str(getattr(ipaddress.IPv4Interface(value), part)) if "/" in str(value) else ""
    except ValueError:
        return ""


def _ipv6(value: Any) -> str:
    """A remark about an IPv6 address or network."""
    try:
        ipaddress.IPv6Network(str(value), strict=False)
    except ValueError:
        return ""
    return ": IPv6 is not supported"


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
            problem = f"{shown(value)} is not an IPv4 network ({error})" + _ipv6(value)
            remedy = f"Write {_ipv4(value, 'network') or 'one such as 10.0.0.0/24'}"
            raise Invalid("model.network", problem, remedy) from error
        found = Subnet(int(network.network_address), network.prefixlen)
        if found.no_hosts:
            problem = f"{found} overlaps {found.no_hosts}, which has no host addresses"
            raise Invalid("model.network_without_hosts", problem, f"Choose one in {PRIVATE}")
        return found

    def describe(self) -> str:
        return "IPv4 network `10.0.0.0/24`"

    def json(self) -> dict[str, Any]:
        return {"type": "string", "pattern": json_pattern(rf"{_DOTTED}/[0-9]{{1,2}}")}


@dataclass(frozen=True)
class _Subnets(OneOrList):
    """Networks of one purpose, such as one per rack."""

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Optional[Subnets]:
        before, found = len(findings.found), super().check(value, findings, path)
        if len(findings.found) > before:
            return None
        if found == []:
            problem, remedy = "is an empty list", "Write a network such as 10.0.0.0/24"
            findings.add("model.no_subnet", path, problem, remedy)
            return None
        subnets = sorted(found if isinstance(found, list) else [found], key=lambda one: one.first)
        for one, other in zip(subnets, subnets[1:]):
            if one.overlaps(other):
                problem, remedy = f"{other} overlaps {one}", "Write each network once"
                findings.add("model.subnets_overlap", path, problem, remedy, str(other))
        return Subnets(tuple(subnets))


@dataclass(frozen=True)
class _Pattern(Kind):
    """A name pattern with numbers: `node{:02d}`, or with named fields `rail{rail}p{plane}`."""

    example: str
    fields: tuple[str, ...] = ("",)
    """The first one is required, once."""
    otherwise: str = ""
    """A remedy if no pattern fits."""
    reads_text = True

    def convert(self, value: Any) -> str:
        field = rf"\{{({'|'.join(self.fields)})(?::(?:0?[1-9])?d?)?\}}"
        text = value if isinstance(value, str) else ""
        found = [match[1] for match in re.finditer(field, text)]
        if found.count(self.fields[0]) != 1 or re.search(r"[\s{}]", re.sub(field, "", text)):
            problem = f"{shown(value)} is not a pattern with {{{self.fields[0]}}} once"
            remedy = f"Write {meant.pattern(value) or f'one such as {self.example}'}"
            raise Invalid("model.pattern", problem, remedy + self.otherwise)
        return text

    def describe(self) -> str:
        return f"pattern `{self.example}`"

    def json(self) -> dict[str, Any]:
        first, *others = (rf"\{{{field}(:(0?[1-9])?d?)?\}}" for field in self.fields)
        rest = "|".join([r"[^\s{}]", *others])
        return {"type": "string", "pattern": json_pattern(f"({rest})*{first}({rest})*")}


@dataclass(frozen=True)
class _Variables(Kind):
    """Ansible variables: any value, with a valid name that the model does not set."""

    def describe(self) -> str:
        return "Ansible variables"

    def json(self) -> dict[str, Any]:
        return {"type": ["object", "null"]}

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Optional[dict[str, Any]]:
        if value is None:
            return {}  # the variables are commented out
        if not is_mapping(value, path, findings):
            return None
        for name in value:
            if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
                problem, remedy = "is not a valid variable name", "Use letters, digits and _"
                remedy += foreign(name)
                findings.add("model.variable_name", (*path, str(name)), problem, remedy)
            elif name.startswith("cluster_") or name in ("ansible_host", VARIABLE):
                remedy = "Change the key of the model; for one node, under nodes.overrides"
                problem = "is set by the model"
                findings.add("model.variable_of_model", (*path, name), problem, remedy)
        return dict(value)


@dataclass(frozen=True)
class _Channel(_Pattern):
    """Whether links form port channels, or a pattern of their names, which says so too."""

    reads_text = False

    def convert(self, value: Any) -> Optional[str]:  # type: ignore[override]
        """An empty text: of any name; None: no channels."""
        if isinstance(value, bool):
            return "" if value else None
        return super().convert(value)

    def describe(self) -> str:
        return f"true, false or {super().describe()}"

    def json(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, super().json()]}


_ADDRESS, _VARIABLES = _Address(), _Variables()
_PCI_LIST = ListOf(OneOrList(_PCI, _PCI), "PCI addresses, one per rail (a list of them per plane)")
_GPU_PCI_LIST = ListOf(_PCI, "PCI addresses, one per GPU")
_HOST_NAMES = ListOf(HOST_NAME, "host names")
_SPEED = Integer(1, 3200, "Gb/s")
_SLOTS = Integer(1, 4096)
RACK = Text(
    r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a rack name (letters, digits, -, _ and dots)", "r01", 60
)

_KIND = Key("kind", Text(r"\w{1,40}", "the name of one of `kinds`", "h100"), "")
_SUBNETS = _Subnets(_Subnet(), _Subnet())
_BMC = Key("bmc", _ADDRESS, "Address of the BMC (`cluster_bmc`).")
_BMC_FIRST = Key("bmc_first", _ADDRESS, "BMC of the first one; the others follow in order.")
_IN_NETWORKS = Key(
    "networks", Table(_ADDRESS, "network"), "Its address in each of `networks`.", default={}
)
_OF_ONE_NODE = (
    _KIND,
    Key("management", _ADDRESS, "Management address."),
    _BMC,
    _IN_NETWORKS,
    Key(
        "position",
        Integer(0, 99_999),
        "Place in the plan of addresses, ports and racks, from 0 (`cluster_index`).",
        default_text="place in the list",
    ),
    Key("rack", RACK, ""),
    Key("slots", _SLOTS, "MPI slots."),
    Key("drained", Boolean(), "Configured, but without ranks."),
    Key("pci", _PCI_LIST, "Replaces `rails.pci`."),
    Key("gpu_pci", _GPU_PCI_LIST, "Replaces `gpus.pci`."),
    Key("vars", _VARIABLES, "Host variables.", default={}),
)
_VLAN = Integer(1, 4094)
_UNSUPPORTED = (
    *(
        (name, "Write rails.vlan: a number, or one per rail. Ports of nodes are untagged")
        for name in ("vlan", "vlans", "vlan_id", "vid", "tagged", "untagged")
    ),
    *(
        (name, "IPv6 is not supported: hosts and rails have IPv4 addresses. Remove it")
        for name in ("ipv6", "pool6", "pool_v6", "pool_ipv6", "address6", "subnet6", "family")
    ),
)
_INFINIBAND = tuple(
    (name, f"{OUT_OF_SCOPE}. Remove it")
    for name in (
        *("infiniband", "ib", "link_layer", "link_type", "lid", "pkey", "pkeys", "sharp"),
        *("subnet_manager", "opensm", "ufm", "sm"),
    )
)
_BONDED = tuple(
    (name, "Of planes that form a bond (802.3ad), write bonded: true")
    for name in ("bond", "bonds", "bonding", "lacp", "lag", "mlag", "members")
)
_CHANNELS = tuple(
    (name, "Write port_channel: true, or a pattern of names such as PortChannel{}")
    for name in ("port_channels", "channel", "channels", "lag", "lacp", "bond", "bonds")
)
_OF_LEAVES = tuple((name, "It belongs under spines, or links") for name, _hint in _CHANNELS)
_PEERS = tuple(
    (name, "Name the ports to the other switch of a pair: ports: {nodes: ..., peers: 'swp[61-64]'}")
    for name in ("peers", "peer_links", "peer_link", "peerlink", "mlag", "mclag", "isl", "isls")
)
_GROUPS_OF_SWITCHES = "Describe groups under switches, and who connects to whom under links"
_BY_PURPOSE = "Name the ports by purpose: ports: {nodes: 'swp[1-32]s[0-1]', uplinks: 'swp[33-64]'}"
_PORT_HINTS = tuple(
    (name, _BY_PURPOSE)
    for name in (
        *("breakout", "breakouts", "split", "port_map", "port_ranges", "uplinks", "downlinks"),
        *("node_ports", "host_ports", "server_ports", "downlink_ports", "first_uplink"),
    )
)
_TOPOLOGY_HINTS = (
    *_PORT_HINTS,
    *((name, "It is rails.planes") for name in ("planes", "plane")),
    *(
        (name, "Write leaves.sets_per_unit, and spines.divided_by: [unit] if each has its spines")
        for name in ("units", "unit", "scalable_units", "sus", "su")
    ),
    *(
        (name, _GROUPS_OF_SWITCHES)
        for name in ("pods", "pod", "stripes", "tiers", "fabric", "core")
    ),
    *((name, _GROUPS_OF_SWITCHES) for name in ("cores", "groups", "fabrics")),
    *((name, "Write leaves") for name in ("leaf", "leafs", "tor", "tors")),
    *(
        (name, "Write super_spines")
        for name in ("superspine", "superspines", "super-spine", "super-spines", "super_spine")
    ),
)
_DIVISION_HINTS = (
    *_PORT_HINTS,
    *((name, "Write divided_by: [plane]") for name in ("planes", "plane", "per_plane")),
    *((name, "Write divided_by: [unit]") for name in ("units", "unit", "pods", "pod", "per_unit")),
    *((name, "Write divided_by: [group], and groups") for name in ("group", "spine_groups")),
)
_ANOTHER_KIND = "Describe the other hardware under kinds, and name it by `kind` of nodes"
_IN_ORDER = "Write position: a node has the ports of its place in the plan, on every leaf"
_MANAGEMENT_HINTS = tuple(
    (name, "The address of a host is management") for name in ("ip", "address", "ansible_host")
)
_NODE_HINTS = (
    *((name, _ANOTHER_KIND) for name in ("gpus", "rails")),
    *((name, _IN_ORDER) for name in ("leaf_port", "leaf_ports", "port", "ports", "leaf")),
    ("absent", "Name the node under nodes.absent"),
    *_MANAGEMENT_HINTS,
)
LISTED_NODE = Section(
    "nodes.list",
    "One listed node.",
    (needed("name", HOST_NAME, ""), *_OF_ONE_NODE),
    hints=_NODE_HINTS,
)
NODE_OVERRIDE = Section(
    "nodes.overrides",
    "Values of a single node, by host name.",
    _OF_ONE_NODE,
    hints=_NODE_HINTS,
)

MPI = Section(
    "mpi",
    "The unprivileged user that runs MPI jobs on every node.",
    (
        Key("user", _USER, "", default="mpi"),
        Key("uid", Integer(1000, 60000), "User and group ID.", default=2000),
    ),
)

MANAGEMENT = Section(
    "management",
    "Used by Ansible, SSH and the control traffic of mpirun; never a rail.",
    (
        needed("subnet", _SUBNETS, "Contains every management address."),
        Key("bmc_subnet", _SUBNETS, "Contains every BMC.", default_text="`subnet`"),
        Key("interface", INTERFACE, "Empty if it differs between hosts.", default=""),
    ),
)

CPU = Section(
    "nodes.cpu",
    "Processors and memory of a node, as `slurmd -C` prints them: `cluster_cpu`. Needed for "
    "`scheduler`; `playbooks/discover.yml` drafts them.",
    (
        needed("sockets", Integer(1, 64), ""),
        needed("cores", Integer(1, 4096), "Of a socket."),
        needed("threads", Integer(1, 8), "Of a core."),
        needed("memory_mb", Integer(128, 1 << 30), "Memory for jobs."),
        Key("numa_nodes", Integer(1, 64), "Of a node.", default_text="one of each socket"),
    ),
    hints=tuple(
        (name, "Write sockets, cores (of a socket) and threads (of a core)")
        for name in ("cpus", "count", "model", "arch", "cores_per_socket", "threads_per_core")
    ),
)

NODES = Section(
    "nodes",
    "Compute nodes: `count` of them, or a `list`. Several such sections are a list of blocks.",
    (
        _KIND,
        Key(
            "position",
            Integer(0, 99_999),
            "Of the first node in the plan of addresses, ports and racks.",
            default_text="after the block above",
        ),
        Key("count", Integer(0, 100_000), ""),
        Key("list", ListOf(LISTED_NODE), ""),
        Key("name", _Pattern("node{:02d}"), "Host names.", default="node{:02d}"),
        Key("start", Integer(0, 1_000_000), "Number of the first node.", default=1),
        Key("management_first", _ADDRESS, "Of the first node; the others follow in order."),
        _BMC_FIRST,
        replace(_IN_NETWORKS, help="As `management_first`, in each of `networks`."),
        Key("slots", _SLOTS, "MPI slots per node.", default_text="one per GPU"),
        Key("cpu", OrNull(CPU), "Also under `kinds`."),
        Key("rack", _Pattern("r{:02d}"), "Rack names.", default="r{:02d}"),
        Key("nodes_per_rack", Integer(1, 1000), "", default_text="all in one rack"),
        Key("drained", _HOST_NAMES, "Configured, but without ranks.", default=[]),
        Key("absent", _HOST_NAMES, "Not in the inventory; address and port reserved.", default=[]),
        Key("overrides", Table(NODE_OVERRIDE, "host name"), "", default={}),
    ),
    hints=_NODE_HINTS,
)

RAILS = Section(
    "rails",
    "Rail k of all nodes connects to the same leaf. A rail has several planes if its "
    "port appears as several devices.",
    (
        needed("count", Integer(1, 64), "Rails per node."),
        Key("planes", Integer(1, 8), "Devices per rail, each with an address.", default=1),
        Key(
            "bonded",
            Boolean(),
            "Whether the planes of a rail form one [LACP bond](rails.md#bonded-rails) with one "
            "address, over one or several leaves (MLAG). Bonds are checked, not configured.",
            default=False,
        ),
        needed("speed_gbps", _SPEED, "Line rate of one plane."),
        Key("mtu", Integer(*IP_MTU_LIMITS, "bytes, layer 3"), "Largest IP packet.", default=9000),
        Key(
            "interface",
            _Pattern("rail{rail}", ("rail", "plane")),
            "Interface names; numbers start at 0. Of a bond, whose members add `p0`, `p1`.",
            default_text="`rail{rail}`, with planes apart `rail{rail}p{plane}`",
        ),
        Key("pci", _PCI_LIST, "On every node. If unset, interfaces must already have their names."),
        Key(
            "gpu",
            ListOf(OrNull(Integer(0, 63)), "GPU numbers (or null), one per rail"),
            "GPU closest to each rail.",
            default_text="rail k: GPU k",
        ),
        Key(
            "numa",
            ListOf(OrNull(Integer(0, 63)), "NUMA nodes (or null), one per rail"),
            "",
            default_text="the GPU's",
        ),
        Key(
            "vlan",
            OneOrList(_VLAN, _VLAN),
            "On the leaf, untagged: one number, or one per subnet of a node: `cluster_vlans`.",
        ),
    ),
    hints=(*_UNSUPPORTED, *_INFINIBAND, *_BONDED),
)

GPUS = Section(
    "gpus",
    "If unset, nodes have no GPUs and need `nodes.slots`.",
    (
        Key("count", Integer(0, 64), "GPUs per node.", default=0),
        Key("pci", _GPU_PCI_LIST, "On every node."),
        Key("numa", ListOf(Integer(0, 63), "NUMA nodes, one per GPU"), ""),
    ),
)


def _of_kind(section: Section, *names: str) -> Kind:
    """What a kind of nodes may write differently from the section at the top level."""
    purpose = f"What differs from [{section.name}](#{section.name.replace('.', '')})."
    purpose += "" if section.name.startswith(SOFTWARE.name) else " Devices are listed again."
    chosen = (key for key in section.keys if key.name in names)
    keys = tuple(replace(key, required=False, default=None, default_text="") for key in chosen)
    keys = tuple(
        replace(key, kind=_of_kind(below, *(inner.name for inner in below.keys)))
        if (below := section_in(key.kind))
        else key
        for key in keys
    )
    if section is RAILS:
        none = f"{keys[0].help[:-1]}. 0: [none](#kinds-of-nodes-and-launchers)."
        keys = (replace(keys[0], kind=Integer(0, 64), help=none), *keys[1:])
    hints = tuple(
        (key.name, f"Write it under {section.name} at the top level: it is the same for every kind")
        for key in section.keys
        if key.name not in names
    )
    return OrNull(Section(f"kinds.{section.name}", purpose, keys, hints=hints))


KIND = Section(
    "kinds",
    "Nodes that differ from `gpus` and `rails` at the top level, which are of the kind `default`. "
    "Their group is `kind_NAME`. Every node takes one place on its leaf set, and uses the first "
    "rails there. If every node has a kind, the top level needs no GPUs and rails: leaf sets have "
    "the rails of the largest kind.",
    (
        Key("slots", _SLOTS, "MPI slots per node.", default_text="one per GPU"),
        Key("cpu", OrNull(CPU), "As `nodes.cpu`.", default_text="the nodes'"),
        Key("gpus", _of_kind(GPUS, "count", "pci", "numa"), ""),
        Key("rails", _of_kind(RAILS, "count", "planes", "speed_gbps", "pci", "gpu", "numa"), ""),
        Key("software", _of_kind(SOFTWARE, *OF_KINDS), ""),
    ),
)

ADDRESSES = Section(
    "addresses",
    "`subnet_per_rail`: one subnet per rail, plane and leaf set; its first address is the gateway "
    "on the leaf. `point_to_point`: a /31 between each rail and its leaf port.",
    (
        Key("plan", OneOf((SUBNET_PER_RAIL, POINT_TO_POINT)), "", default=SUBNET_PER_RAIL),
        needed("pool", _Subnet(), "Network to allocate from."),
        Key(
            "order",
            OneOf((BY_NODE, BY_RAIL, BY_PLANE)),
            "`rail`: each rail and plane has an equal part of the pool, one prefix. `plane`: so "
            "has each plane, for [planes without a path to each other](mpi.md#planes).",
            default=BY_NODE,
        ),
        Key("prefix", Integer(8, 30), "Prefix length of a subnet.", default=24),
        Key(
            "first_host", Integer(2, 65535), "Of the first node in a subnet: 11 is .11.", default=2
        ),
    ),
    hints=_UNSUPPORTED,
)


_PORT_NAMES = Text(r"[A-Za-z0-9_./:{},\[\]-]+", "a port name or range", "swp[1-64]s[0-1]", 100)


class _PortCount(Integer):
    def convert(self, value: Any) -> Any:
        if isinstance(value, list) or (isinstance(value, str) and not value.isdigit()):
            problem = f"{shown(value)} does not say what the ports are for"
            raise Invalid("model.ports_form", problem, f"Write their number{_RANGES}")
        return super().convert(value)


_RANGES = ", or names by purpose, such as ports: {nodes: 'swp[1-32]s[0-1]', uplinks: 'swp[33-64]'}"
_NAMES = OneOrList(_PORT_NAMES, _PORT_NAMES)
PORTS = Section(
    "ports",
    "Names of the ports by purpose, in the switch's own words and any order: `swp[1-32]s[0-1]`, "
    "`Ethernet[1-32]/[1,5]`, `Ethernet[0-248/8]` (every eighth); the last range varies fastest. "
    "Each name has one purpose.",
    (
        Key("nodes", _NAMES, "Of a leaf, to nodes, in their order."),
        Key("storage", _NAMES, "Of a leaf, to storage hosts."),
        Key("uplinks", _NAMES, "To the tier above."),
        Key("downlinks", _NAMES, "To the tier below."),
        Key(
            "peers",
            _NAMES,
            "To the other switch of a pair (MLAG; the first and second, the third and fourth), to "
            "the port with the same name: cables that are [checked](fabric.md#port-channels).",
        ),
    ),
)
_ASN = Integer(1, 4_294_967_294)
_ROUTING = (
    Key("asn", OneOrList(_ASN, _ASN), "BGP AS number of all, or of each: `cluster_asn`."),
    Key("asn_first", _ASN, "Of the first switch, in place of `asn`; the others follow in order."),
    Key(
        "loopback_first",
        _ADDRESS,
        "Loopback of the first switch; the others follow in order: `cluster_loopback`.",
    ),
    Key(
        "uplink_pool",
        _Subnet(),
        "A /31 for each port, used by uplinks: `addresses` in `cluster_ports`. The upper switch "
        "has the even address.",
    ),
)
"""Passed on to plays of the operator: no layer configures them."""


def _switch_names(example: str, *, fixed: bool = True) -> tuple[Key, ...]:
    """`fixed`: without a name, switches have that of the example."""
    name = OneOrList(_Pattern(example), HOST_NAME)
    return (
        needed("count", Integer(1, 10_000), "Number of switches."),
        Key("name", name, "Numbered from 1.", default=example)
        if fixed
        else Key("name", name, "Numbered from 1.", default_text="the group's, and the number"),
        needed(
            "management_first",
            OneOrList(_ADDRESS, _ADDRESS),
            "Of the first switch, with the others in order; or of each.",
        ),
        replace(_BMC_FIRST, kind=OneOrList(_ADDRESS, _ADDRESS), help="As `management_first`."),
        needed("ports", OrSection(_PortCount(1, 4096, "ports"), PORTS), "Ports per switch."),
        Key(
            "system", OneOrList(SYSTEM_NAME, SYSTEM_NAME), "If unset, the layer `fabric` skips it."
        ),
        Key("asic", OneOrList(CHIP_NAME, CHIP_NAME), "Chip; determines headroom and lanes."),
        Key("rack", OneOrList(RACK, RACK), "For the [cabling list](fabric.md#cabling-list)."),
        Key(
            "port",
            OneOrList(_Pattern("Ethernet{}", otherwise=_RANGES), _PORT_NAMES),
            "Port names in order: a pattern, or names and ranges, as in `ports`.",
            default_text=BY_SYSTEM,
        ),
        Key("port_start", Integer(0, 1000), "Number of the first port.", default_text=BY_SYSTEM),
        Key("port_step", Integer(1, 16), "Between port numbers.", default_text=BY_SYSTEM),
        *_ROUTING,
    )


_UPLINK_PORTS = Key(
    "uplink_ports",
    Integer(0, 4096),
    "Last ports, reserved for uplinks. If set, further spines move no cable.",
    default_text="those in use",
)
_PORT_CHANNEL = Key(
    "port_channel",
    _Channel("PortChannel{}", otherwise=", or true if names differ"),
    "Whether all links of two switches form one [port channel](fabric.md#port-channels), which is "
    "checked, not configured. In a pattern, the number is that of the switch at the other end, "
    "from 1.",
)
_MLAG = Key(
    "mlag",
    Boolean(),
    "Whether both switches of each pair (`ports.peers`) are one end of these port channels.",
    default=False,
)
_GROUP_NAME = Text(r"[a-z][a-z0-9_-]*", "the name of a group in switches", "leaf", 40)
_DIVISION = (
    Key(
        "divided_by",
        ListOf(OneOf(DIVISIONS), "attributes"),
        "[What both ends of a link share](#planes-units-and-tiers).",
        default_text="plane, if leaves have several; `[]` connects all",
    ),
    Key("groups", Integer(2, 512), "Groups into which lower switches of a set are dealt in order."),
)

_OF_SETS = (
    Key(
        "rail_to_leaf",
        ListOf(Integer(0, 511), "numbers, one per rail and plane"),
        "Leaf of each within a set, from 0, if there are fewer leaves than rails.",
        default_text="one leaf each",
    ),
    Key("nodes_per_set", Integer(1, 4096), "", default_text="number of ports"),
    Key(
        "sets_per_unit",
        Integer(1, 10_000),
        "Leaf sets of a scalable unit (pod).",
        default_text="one",
    ),
)

LEAVES = Section(
    "leaves",
    "Leaf sets: each set has one leaf per rail and plane. Nodes fill one set after another.",
    (
        *_switch_names("leaf{:02d}"),
        *_OF_SETS,
        _UPLINK_PORTS,
    ),
    hints=(
        *((name, "It belongs under spines") for name in ("links_per_leaf", "divided_by", "groups")),
        *(hint for hint in _TOPOLOGY_HINTS if hint[0] != "groups"),
        *(*_UNSUPPORTED, *_OF_LEAVES, *_PEERS),
    ),
)

SPINES = Section(
    "spines",
    "The last ports of a leaf connect to every spine that shares its attributes in `divided_by`.",
    (
        *_switch_names("spine{:02d}"),
        Key("links_per_leaf", Integer(1, 512), "Links of a leaf to each spine.", default=1),
        _PORT_CHANNEL,
        _MLAG,
        Key("speed_gbps", _SPEED, "Line rate of a link.", default_text="`rails.speed_gbps`"),
        *_DIVISION,
        _UPLINK_PORTS,
    ),
    hints=(*_DIVISION_HINTS, *_CHANNELS, *_PEERS),
)

SUPER_SPINES = Section(
    "super_spines",
    "A third tier, connected to spines as these are to leaves. In the groups `spine` and "
    "`super_spine`.",
    (
        *_switch_names("superspine{:02d}"),
        Key("links_per_spine", Integer(1, 512), "Links of a spine to each of them.", default=1),
        _PORT_CHANNEL,
        _MLAG,
        Key("speed_gbps", _SPEED, "Line rate of a link.", default_text="the spines'"),
        *_DIVISION,
    ),
    hints=(*_DIVISION_HINTS, *_CHANNELS, *_PEERS),
)


@dataclass(frozen=True)
class _Tier(Text):
    def convert(self, value: Any) -> str:
        plain = re.sub(r"[^a-z]", "", str(value).lower())
        usual = {"leaves": "leaf", "leafs": "leaf", "tor": "leaf", "tors": "leaf"}
        usual.update({"leaf": "leaf", "spine": "spine", "spines": "spine"})
        usual.update({"superspine": "super_spine", "superspines": "super_spine"})
        name = usual.get(plain, value)
        if name != value:
            raise Invalid("model.tier_word", f"{shown(value)} is not a tier", f"Write {name}")
        return super().convert(value)


_TIER = _Tier(
    r"(?!(all|compute|launcher|storage|ungrouped|localhost)$)(?!(rack|unit|plane|kind)_)[a-z][a-z0-9_]*",
    "a tier such as leaf, spine, super_spine or core",
    "leaf",
    40,
)
_KIND_NAME = Text(r"[A-Za-z][A-Za-z0-9_]*", "the name of a kind of nodes", "b300", 40)
SWITCHES = Section(
    "switches",
    "The full form, in place of `leaves`, `spines` and `super_spines`: groups of equal switches by "
    "name. Nodes fill the leaves group by group.",
    (
        needed("tier", _TIER, "`leaf` for switches with nodes. A group of the inventory."),
        *_switch_names("leaf{:02d}", fixed=False),
        _UPLINK_PORTS,
        *_OF_SETS,
        Key("nodes", Integer(1, 100_000), "Positions of nodes.", default_text="as many as fit"),
        Key(
            "kind",
            _KIND_NAME,
            "Of all its nodes; its leaves have the rails and planes of this kind.",
        ),
        Key("pool", _Subnet(), "For the rails of its nodes.", default_text="`addresses.pool`"),
        Key("unit", Integer(1, 10_000), "For switches above leaves that are all in one unit."),
        Key("plane", Integer(0, 7), "For switches above leaves that are all in one plane."),
        Key("speed_gbps", _SPEED, "Of links to lower tiers.", default_text="`rails.speed_gbps`"),
    ),
    hints=_PEERS,
)
LINKS = Section(
    "links",
    "Links of every switch to those of a higher group.",
    (
        needed("from", OneOrList(_GROUP_NAME, _GROUP_NAME), "Lower groups, connected as one."),
        needed("to", _GROUP_NAME, "The higher group."),
        Key("count", Integer(1, 512), "Links of a switch to each higher one.", default=1),
        _PORT_CHANNEL,
        _MLAG,
        Key("speed_gbps", _SPEED, "Line rate of a link.", default_text="the higher group's"),
        *_DIVISION,
    ),
    hints=(*_DIVISION_HINTS, *_CHANNELS),
)

_HOST = (
    needed("name", HOST_NAME, ""),
    needed("management", _ADDRESS, "Management address."),
    _BMC,
    _IN_NETWORKS,
    Key("vars", _VARIABLES, "Host variables.", default={}),
)
_HOST_HINTS = tuple(
    (name, "Describe these hosts as launcher, or several of them as launchers")
    for name in ("login", "logins", "login_node", "login_nodes", "head", "head_node", "headnode")
)
LAUNCHER = Section(
    "launcher",
    "A host that runs mpirun, such as a login node. It has no rails. Jobs and the smoke test run "
    "on the first one, or on the one that `mpi_job_launcher` names.",
    _HOST,
    hints=_MANAGEMENT_HINTS,
    several="launchers",
)

_PORT_NAME = Text(r"[A-Za-z0-9_./:-]+", "the name of a switch port", "Ethernet8", 40)
STORAGE_LINK = Section(
    "storage.links",
    "A cable between a storage host and a leaf.",
    (
        needed("leaf", HOST_NAME, ""),
        needed("port", _PORT_NAME, "Of the leaf, not used by nodes or spines."),
        needed("interface", replace(INTERFACE, example="ens1f0np0", empty=False), "Of the host."),
        Key(
            "bond",
            replace(INTERFACE, example="bond0", empty=False),
            "Bond of the host that has the interface, over one or several leaves (MLAG): a "
            "[port channel](fabric.md#port-channels) on each leaf, checked, not configured.",
        ),
        Key("speed_gbps", _SPEED, "Line rate.", default_text="`rails.speed_gbps`"),
        Key("address", _ADDRESS, "In a subnet of the leaf: `cluster_storage_links`."),
    ),
    hints=tuple(
        (name, "Write bond: the name of the host's bond, at each of its links")
        for name in ("mlag", "lag", "lacp", "port_channel", "channel", "members", "bonds")
    ),
)
STORAGE = Section(
    "storage",
    "One storage host.",
    (*_HOST, Key("links", ListOf(STORAGE_LINK), "Cables to leaves.", default=[])),
    hints=tuple(
        (name, "A server that others manage is no host of the model: only name it in filesystems")
        for name in ("external", "managed", "unmanaged", "vendor")
    ),
)

_PORT = replace(INTERFACE, example="ens1f0np0", empty=False)
NETWORK = Section(
    "networks",
    "A further network, such as for storage or north-south traffic. Hosts have addresses in it by "
    "their key `networks`, and get the variable `cluster_networks` for use in your plays. No layer "
    "configures it.",
    (
        needed(
            "name", Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "storage"), ""
        ),
        needed("subnet", _Subnet(), "Not shared with rails, management or another network."),
        needed("interface", _PORT, "Port or LACP bond with the address."),
        Key("members", ListOf(_PORT, "interfaces"), "Ports of the bond.", default=[]),
        Key("gateway", _ADDRESS, ""),
        Key("speed_gbps", _SPEED, "Line rate of a port."),
        Key("mtu", Integer(*IP_MTU_LIMITS, "bytes, layer 3"), "Largest IP packet.", default=1500),
        Key("lossless", Boolean(), "Whether it carries RoCE with PFC.", default=False),
        Key("leaves", _HOST_NAMES, "Its switches, in this model or not.", default=[]),
    ),
    hints=tuple(
        (name, "Name the VLAN's interface as interface, such as bond0.30")
        for name in ("vlan", "vlans", "vlan_id", "vid")
    ),
)

_CABLE = Text(
    r"[A-Za-z0-9][A-Za-z0-9 .,:;/()+_-]*",
    "a description of letters, digits, spaces and .,:;/()+_-",
    "OSFP 2xDR4, MPO-12, 10 m",
    100,
)
CABLING = Section(
    "cabling",
    "Transceivers and cables, shown in the [cabling list](fabric.md#cabling-list).",
    (
        Key("to_nodes", _CABLE, "", default=""),
        Key("to_storage", _CABLE, "", default=""),
        Key("between_switches", _CABLE, "", default=""),
    ),
)

_NAME = Text(r"[a-z0-9][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "b300", 40)
_DOMAIN = Text(rf"{_LABEL}(\.{_LABEL})*", "a DNS domain", "example.net", 189, empty=True)
MODEL = Section(
    "model",
    "The top level of the file. Keys that begin with `x-` are ignored: a place for anchors.",
    (
        needed("plugin", OneOf((PLUGIN,)), "Identifies a cluster model."),
        needed("name", _NAME, "Cluster name, used for reports and state."),
        Key("domain", _DOMAIN, "DNS domain of the hosts.", default=""),
        Key("mpi", MPI, ""),
        needed("management", MANAGEMENT, ""),
        Key("kinds", Table(KIND, "name"), "", default={}),
        needed("nodes", OneOrList(NODES, NODES), ""),
        Key("gpus", GPUS, ""),
        needed("rails", RAILS, ""),
        needed("addresses", ADDRESSES, ""),
        Key("leaves", OrNull(LEAVES), "Required without `switches`."),
        Key("spines", OrNull(SPINES), ""),
        Key("super_spines", OrNull(SUPER_SPINES), ""),
        Key("switches", Table(SWITCHES, "group"), "", default={}),
        Key("links", ListOf(LINKS), "", default=[]),
        Key("cabling", CABLING, ""),
        Key("asics", CHIPS, "", default={}),
        Key(VARIABLE, CONTRACT, ""),
        Key("software", SOFTWARE, ""),
        Key(
            "scheduler",
            OrNull(OneOf((SLURM,))),
            "[Slurm](slurm.md) starts jobs: `cluster_scheduler`, empty without one.",
        ),
        Key("launcher", OneOrList(LAUNCHER, LAUNCHER), "This or `launchers` is required."),
        Key("launchers", ListOf(LAUNCHER), "Several, in order."),
        Key("storage", ListOf(STORAGE), "", default=[]),
        Key("filesystems", FILE_SYSTEMS, "", default=[]),
        Key("networks", ListOf(NETWORK), "", default=[]),
        Key(
            "vars",
            Table(_VARIABLES, "group"),
            "For groups: `all`, `compute`, `launcher`, `storage`, `leaf`, `spine`, `rack_...`.",
            default={},
        ),
    ),
    hints=(*_UNSUPPORTED, *_INFINIBAND, *_PEERS, *_OF_LEAVES, *_TOPOLOGY_HINTS, *_HOST_HINTS),
)

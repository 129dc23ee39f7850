# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `shared_storage_lustre`: source of validation, messages and docs/lustre.md."""

from __future__ import annotations

from ...module_utils.storage.lustre import DKMS, PREBUILT, PRESENT
from ..schema.kinds import (
    Boolean,
    Integer,
    Key,
    ListOf,
    OneOf,
    OneOrList,
    OrNull,
    Section,
    Table,
    Text,
    needed,
)
from .software import repository

VARIABLE = "shared_storage_lustre"
RAILS = "rails"

_FORM = r"(tcp|o2ib)\d{0,5}"
_NET = Text(_FORM, "a network of LNet (`tcp` or `o2ib`, with any number)", "o2ib0", 20)
_NID = Text(
    rf"\d{{1,3}}(\.\d{{1,3}}){{3}}@{_FORM}",
    "a NID (IPv4 address, `@`, network of LNet)",
    "10.0.0.1@o2ib0",
    40,
)
_INTERFACE = Text(r"[^\s/:\"'{}]+", "the name of an interface", "rail0", 15)


def _number(name: str, high: int, text: str) -> Key:
    return Key(name, Integer(0, high), f"{text} 0: the driver's own.", default=0)


NETWORK = Section(
    f"{VARIABLE}.networks",
    "A network of LNet that this host is in.",
    (
        needed("net", _NET, "`o2ib` is RDMA; `o2ib0` is the same."),
        Key(
            "interfaces",
            OneOrList(OneOf((RAILS,)), _INTERFACE),
            "`rails`: all rails of the host, or a list of names. Several are multi-rail.",
            default=RAILS,
        ),
        _number("peer_timeout", 3600, "Seconds after which a silent peer counts as dead."),
        _number("peer_credits", 32768, "Messages to one peer at a time; servers need the same."),
        _number("peer_buffer_credits", 32768, "Of those, how many may wait in a router."),
        _number("credits", 65536, "Messages of one interface at a time."),
        _number("conns_per_peer", 127, "Connections to each interface of a peer."),
    ),
)

ROUTE = Section(
    f"{VARIABLE}.routes",
    "A router of LNet.",
    (
        needed("net", _NET, "The network that lies behind it."),
        needed("gateway", _NID, "Its NID in a network of this host."),
    ),
)

REPOSITORY = repository(
    f"{VARIABLE}.packages.repository",
    "Where the client's packages come from. `{distribution}` is `ubuntu2404` or `el9.6`, as in the "
    "folders of downloads.whamcloud.com.",
    ("version", "distribution", "architecture"),
)

_RELEASE = Text(r"2\.\d+\.\d+", "a release of Lustre", '"2.15.7" (in quotes)', 20, empty=True)
_PACKAGE = Text(r"[a-z0-9][A-Za-z0-9.+_-]*", "the name of a package", "lustre-client", 120)
PACKAGES = Section(
    f"{VARIABLE}.packages",
    "The client's packages.",
    (
        Key(
            "method",
            OneOf((DKMS, PREBUILT, PRESENT)),
            "`dkms`: modules are built on the node. `prebuilt`: modules of the node's kernel come "
            "in packages. `present`: the site installs the client, and its presence is checked.",
            default=PRESENT,
        ),
        Key("version", _RELEASE, "Needed unless the method is `present`.", default=""),
        Key("repository", OrNull(REPOSITORY), "Needed unless the method is `present`."),
        Key(
            "names",
            ListOf(_PACKAGE, "names of packages"),
            "Where the repository has others than [these](lustre.md#packages).",
            default=[],
        ),
    ),
)

_VALUE = Text(r"[^\s\"'\\#]+", "a value without blanks", "'50' (in quotes)", 200)
SETTINGS = Section(
    VARIABLE,
    "How nodes are clients of Lustre.",
    (
        Key(
            "networks",
            OrNull(ListOf(NETWORK, "networks")),
            "Networks of LNet.",
            default_text="of each source the network of its first NID, unless a route leads there, "
            "over all rails",
        ),
        Key("discovery", Boolean(), "Dynamic discovery of peers.", default=True),
        Key("routes", ListOf(ROUTE, "routes"), "Routers of LNet.", default=[]),
        Key("packages", PACKAGES, "The client's packages."),
        Key(
            "modprobe",
            Table(Table(_VALUE, "options"), "kernel modules"),
            "Options of kernel modules, `{lnet: {lnet_transaction_timeout: '50'}}`.",
            default={},
        ),
        Key("time_limit_s", Integer(5, 300, "seconds"), "For each look at a server.", default=30),
    ),
)

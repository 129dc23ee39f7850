# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `shared_storage_lustre`, which docs/lustre.md describes."""

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


_NUMBERS = (
    *(("peer_timeout", 3600), ("peer_credits", 32768), ("peer_buffer_credits", 32768)),
    *(("credits", 65536), ("conns_per_peer", 127)),
)
"""Settings of a network and their limits; 0 is the driver's own."""
NETWORK = Section(
    f"{VARIABLE}.networks",
    "",
    (
        needed("net", _NET, ""),
        Key("interfaces", OneOrList(OneOf((RAILS,)), _INTERFACE), "", default=RAILS),
        *(Key(name, Integer(0, high), "", default=0) for name, high in _NUMBERS),
    ),
)
ROUTE = Section(f"{VARIABLE}.routes", "", (needed("net", _NET, ""), needed("gateway", _NID, "")))
REPOSITORY = repository(
    f"{VARIABLE}.packages.repository", "", ("version", "distribution", "architecture")
)

_RELEASE = Text(r"2\.\d+\.\d+", "a release of Lustre", '"2.15.7" (in quotes)', 20, empty=True)
_PACKAGE = Text(r"[a-z0-9][A-Za-z0-9.+_-]*", "the name of a package", "lustre-client", 120)
PACKAGES = Section(
    f"{VARIABLE}.packages",
    "",
    (
        Key("method", OneOf((DKMS, PREBUILT, PRESENT)), "", default=PRESENT),
        Key("version", _RELEASE, "", default=""),
        Key("repository", OrNull(REPOSITORY), ""),
        Key("names", ListOf(_PACKAGE, "names of packages"), "", default=[]),
    ),
)

_VALUE = Text(r"[^\s\"'\\#]+", "a value without blanks", "'50' (in quotes)", 200)
SETTINGS = Section(
    VARIABLE,
    "",
    (
        Key("networks", OrNull(ListOf(NETWORK, "networks")), ""),
        Key("discovery", Boolean(), "", default=True),
        Key("routes", ListOf(ROUTE, "routes"), "", default=[]),
        Key("packages", PACKAGES, ""),
        Key("modprobe", Table(Table(_VALUE, "options"), "kernel modules"), "", default={}),
        Key("time_limit_s", Integer(5, 300, "seconds"), "", default=30),
    ),
)

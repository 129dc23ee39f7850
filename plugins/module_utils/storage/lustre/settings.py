# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a node is a client of Lustre, as one value: the variable `shared_storage_lustre`, read.

The variable may differ from host to host, so it is checked with the rails and the file systems of
the host that it is for. File systems themselves were checked with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Optional

from ...core.dataclass import dataclass
from ...core.text import some
from ...schema.findings import Findings, Path, RefusedError
from ...schema.kinds import check
from ..file_system import LUSTRE, FileSystem
from ..mounted import within
from .keys import PRESENT, RAILS, SETTINGS, VARIABLE
from .source import O2IB, Nid, kind, read_net, read_nid, read_source

TUNABLES = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
"""As lnetctl names and orders them."""
DRIVER_TUNABLES = ("conns_per_peer",)
KEY_OF_OPTION = {
    ("lnet", "networks"): "networks",
    ("lnet", "ip2nets"): "networks",
    ("lnet", "routes"): "routes",
    ("lnet", "lnet_peer_discovery_disabled"): "discovery",
}
"""Module options that have a key of their own."""


class LustreError(RefusedError):
    what = f"{VARIABLE} cannot be used"


@dataclass(frozen=True)
class Network:
    """One network of LNet. What is in neither table is left to the driver."""

    net: str
    """In LNet's spelling: `o2ib`, not `o2ib0`."""
    interfaces: tuple[str, ...] = ()
    """Of this host, in order; several are multi-rail."""
    tunables: Mapping[str, int] = field(default_factory=dict)
    driver_tunables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Packages:
    method: str = PRESENT
    version: str = ""
    repository: Optional[Mapping[str, Any]] = None
    names: Sequence[str] = ()
    """Instead of those of the catalogue."""


@dataclass(frozen=True)
class Stripes:
    """Where files that are made in a directory are spread; 0 and empty leave it as it is."""

    directory: str
    count: int = 0
    size_mib: int = 0
    pool: str = ""


@dataclass(frozen=True)
class LustreSettings:
    networks: tuple[Network, ...] = ()
    discovery: bool = True
    """Whether nodes exchange all their interfaces, which is what multi-rail needs."""
    peers: tuple[tuple[Nid, ...], ...] = ()
    """All NIDs of each server, its first one first: for servers without discovery."""
    routes: tuple[tuple[str, Nid], ...] = ()
    """Each network that this host is not in, with its router."""
    packages: Packages = field(default_factory=Packages)
    modprobe: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kernel module to its options."""
    stripes: tuple[Stripes, ...] = ()
    time_limit_s: int = 30
    """Of each look at what may hang."""
    full_percent: int = 95
    """From here on a target counts as full; 0: not judged."""

    @property
    def interfaces(self) -> set[str]:
        return {name for network in self.networks for name in network.interfaces}

    @property
    def uses_rdma(self) -> bool:
        return any(kind(network.net) == O2IB for network in self.networks)


def read_settings(
    value: Optional[Mapping[str, Any]],
    rails: Sequence[Mapping[str, Any]] = (),
    filesystems: Sequence[FileSystem] = (),
) -> LustreSettings:
    """Settings of this host. None and {} are the defaults. Raises LustreError.

    `rails` as `cluster_rails`; `filesystems` those that this host mounts, of any type. Without
    Lustre among them nothing has to be possible here.
    """
    findings = Findings()
    path: Path = (VARIABLE,)
    checked = check(SETTINGS, {} if value is None else value, findings, path)
    if findings:
        raise LustreError(findings.found)
    mine = [fs for fs in filesystems if fs.type == LUSTRE]
    settings = _settings(checked, tuple(str(rail["interface"]) for rail in rails), mine)
    if mine:
        _check_networks(settings, findings, path)
        _check_packages(settings, findings, path)
        _check_filesystems(settings, mine, findings, path)
    if findings:
        raise LustreError(findings.found)
    return settings


def _settings(
    value: dict[str, Any], rails: tuple[str, ...], mine: Sequence[FileSystem]
) -> LustreSettings:
    # All servers are in the network of the first one's first NID, as a rule.
    default = read_source(mine[0].source).first.net if mine else O2IB
    entries = value["networks"]
    if entries is None:
        entries = [{"net": default, "interfaces": RAILS}]
    return LustreSettings(
        **{
            **value,
            "networks": tuple(_network(entry, rails) for entry in entries),
            "peers": tuple(tuple(map(read_nid, entry["nids"])) for entry in value["peers"]),
            "routes": tuple((read_net(e["net"]), read_nid(e["gateway"])) for e in value["routes"]),
            "packages": Packages(**value["packages"]),
            "stripes": tuple(Stripes(**entry) for entry in value["stripes"]),
        }
    )


def _network(entry: dict[str, Any], rails: tuple[str, ...]) -> Network:
    names = entry["interfaces"]
    return Network(
        read_net(entry["net"]),
        rails if names == RAILS else tuple(names),
        {name: entry[name] for name in TUNABLES if entry.get(name)},
        {name: entry[name] for name in DRIVER_TUNABLES if entry.get(name)},
    )


def _check_networks(settings: LustreSettings, findings: Findings, path: Path) -> None:
    nets = [network.net for network in settings.networks]
    for number, network in enumerate(settings.networks):
        place = (*path, "networks", number)
        if network.net in nets[:number]:
            findings.add(
                "lustre.net_twice",
                (*place, "net"),
                f"{network.net} is there twice",
                "Write it once, with all its interfaces: they are multi-rail",
                value=network.net,
            )
        if not network.interfaces:
            findings.add(
                "lustre.no_interface_here",
                place,
                f"{network.net} has no interface on this host",
                "Name its interfaces (interfaces: [NAME]) in a variable of this host or of its "
                "group (rails are those of cluster_rails), or leave the host out of the file "
                "system's hosts",
                value=network.net,
            )
        for name in sorted({n for n in network.interfaces if network.interfaces.count(n) > 1}):
            findings.add(
                "lustre.interface_twice",
                (*place, "interfaces"),
                f"{name} is there twice",
                "Name it once",
                value=name,
            )
    for number, (_net, gateway) in enumerate(settings.routes):
        if gateway.net not in nets:
            findings.add(
                "lustre.gateway_elsewhere",
                (*path, "routes", number, "gateway"),
                f"{gateway} is in no network of this host ({some(nets)})",
                "Write its NID in one of them",
                value=str(gateway),
            )
    for number, nids in enumerate(settings.peers):
        if not nids:
            place = (*path, "peers", number, "nids")
            findings.add("lustre.peer_without_nids", place, "is empty", "Name the server's NIDs")


def _check_packages(settings: LustreSettings, findings: Findings, path: Path) -> None:
    packages = settings.packages
    for key, given in (("version", packages.version), ("repository", packages.repository)):
        if packages.method != PRESENT and not given:
            findings.add(
                "lustre.packages_missing",
                (*path, "packages", key),
                f"is missing, and the method is {packages.method}",
                "Add it, or write method: present where the site installs the client",
            )
    for module, options in settings.modprobe.items():
        for option in options:
            key = KEY_OF_OPTION.get((module, option), "")
            if key:
                findings.add(
                    "lustre.option_of_key",
                    (*path, "modprobe", module, option),
                    f"is set by {key}",
                    f"Write it under {VARIABLE}.{key}",
                )


def _check_filesystems(
    settings: LustreSettings, mine: Sequence[FileSystem], findings: Findings, path: Path
) -> None:
    here = sorted(network.net for network in settings.networks)
    reached = {*here, *(net for net, _router in settings.routes)}
    for fs in mine:
        place = ("cluster_filesystems", fs.name)
        # One NID of each server is enough: the client takes what it has a network to.
        for server in read_source(fs.source).servers:
            if not {nid.net for nid in server} & reached:
                name = ",".join(map(str, server))
                findings.add(
                    "lustre.source_elsewhere",
                    (*place, "source"),
                    f"{name} is in no network of this host ({some(here)})",
                    f"Add the network to {VARIABLE}.networks, or a route to it",
                    value=name,
                )
        if settings.discovery and any(word.startswith("network=") for word in fs.options):
            findings.add(
                "lustre.network_with_discovery",
                place,
                "option 'network' with discovery of peers: a server that was discovered is spoken "
                "to over any network (mount.lustre(8))",
                "Leave it out, or set discovery: false in shared_storage_lustre",
            )
    for number, stripes in enumerate(settings.stripes):
        if not any(within(stripes.directory, fs.mount) for fs in mine):
            findings.add(
                "lustre.stripes_elsewhere",
                (*path, "stripes", number, "directory"),
                f"{stripes.directory} lies on no Lustre file system of this host",
                f"Choose one below {some([fs.mount for fs in mine])}",
                value=stripes.directory,
            )

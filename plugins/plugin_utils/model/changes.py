# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change of the model means: two models compared by what they compile to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import natural
from ..schema.findings import Findings
from .cluster import HOST_ROLES, NAMES
from .versions import CompiledModel

Variables = Mapping[str, Any]
End = tuple[str, str]
"""One end of a cable: a host or switch, and its interface or port."""
MANAGEMENT = "management"
LOOPBACK = "loopback"
_ADDRESSED = {
    "cluster_rails": "interface",
    "cluster_storage_links": "interface",
    "cluster_networks": "name",
}
"""Variables with a list of addresses, and the key that identifies an entry."""
_OF_PLAN = ("address", "prefix", "network", "gateway", "leaf", "leaf_port")
"""Keys of a rail that addresses and cables cover."""
_SHOWN = {
    "cluster_management": ("address",),
    "cluster_networks": ("address", "prefix"),
    "cluster_storage_links": _OF_PLAN,
}
"""The same of other variables."""
_IDENTITIES = ("name", "interface", "index", "distribution")
"""Keys that identify an entry of a list in a variable."""
_COVERED = ("cluster_index", "cluster_ports", "cluster_rails", "cluster_role", "cluster_loopback")
_NAMING = ("cluster_system", "cluster_asic", "cluster_port_step")
"""Variables of a switch that determine the names of its ports."""


class Moved(NamedTuple):
    """One value of one host that differs. `what`: an interface or port, or `management`."""

    host: str
    what: str
    before: str
    after: str


@dataclass
class Setting:
    variable: str
    key: str
    before: Any
    after: Any
    hosts: list[str] = field(default_factory=list)


@dataclass
class SwitchPorts:
    """Ports of a switch that are used now, no longer used, have other settings, or another name
    with the same cable."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)


@dataclass
class ModelChanges:
    come: dict[str, str]
    """New hosts, with their roles."""
    go: dict[str, str]
    renamed: dict[str, str]
    """Hosts with another name and the same role, place and addresses: new name by earlier name. In
    everything below, they are hosts of both models."""
    addresses: list[Moved]
    moved: list[Moved]
    """Cables of hosts in both models that end elsewhere."""
    added: list[tuple[End, End]]
    """New cables; each begins at a switch."""
    removed: list[tuple[End, End]]
    ports: dict[str, SwitchPorts]
    settings: list[Setting]
    reboots: dict[str, list[str]]
    """Compute nodes that are expected to need a reboot, by reason."""
    roles: dict[str, str]
    """Of hosts in both models."""
    site: list[str]
    """Hosts and groups for which the operator's variables differ; never values."""
    addressed: list[str]
    """Variables of servers in which addresses differ, come or go."""
    scheduled: bool = False
    """Whether the new model has a scheduler."""

    @property
    def any(self) -> bool:
        known = ("roles", "scheduled")
        return any(value for name, value in vars(self).items() if name not in known)


def _boots(setting: Setting) -> bool:
    """Whether the change takes effect at the next boot (docs/software-set.md, docs/gpu.md). A
    driver where none was loaded, and one that others install, need none."""
    if setting.key in ("driver.version", "driver.modules", "rdma.version", "rdma.source"):
        return bool(setting.before and setting.after)
    return setting.key == "kernel" and bool(setting.after)


def compare(old: CompiledModel, new: CompiledModel) -> ModelChanges:
    names = _other_names(old, new)
    old = _with_names(old, names) if names else old
    both = [name for name in new.hosts if name in old.hosts]
    renamed = {end: to for name in both for end, to in _renamed(name, old, new)}
    before = _ends(old)
    before = {renamed.get(a, a): renamed.get(b, b) for a, b in before.items()}
    ends = before, _ends(new)
    moved, removed = _cables_gone(old, new, *ends)
    touched = {*((each.host, each.what) for each in moved)}
    added = [
        (end, far)
        for end, far in _cables(new, ends[1])
        if ends[0].get(end) != far and not touched.intersection((end, far))
    ]
    settings: dict[tuple[str, ...], Setting] = {}
    for name in both:
        for variable, key, before, after in _settings(old.hosts[name], new.hosts[name]):
            values = (variable, key, _text(before), _text(after))
            if values not in settings:
                settings[values] = Setting(variable, key, before, after)
            settings[values].hosts.append(name)
    ports = {
        name: _ports(name, old.hosts[name], new.hosts[name], renamed)
        for name in both
        if old.hosts[name].get("cluster_ports") != new.hosts[name].get("cluster_ports")
    }
    return ModelChanges(
        come={name: new.role(name) for name in new.hosts if name not in old.hosts},
        go={name: old.role(name) for name in old.hosts if name not in new.hosts},
        renamed=names,
        addresses=[each for name in both for each in _addresses(name, old, new)],
        moved=moved,
        added=added,
        removed=removed,
        ports={name: of for name, of in ports.items() if any(vars(of).values())},
        settings=list(settings.values()),
        reboots={
            f"{each.key} {each.before or 'unset'} to {each.after}": nodes
            for each in settings.values()
            if each.variable == "cluster_software" and _boots(each)
            if (nodes := [name for name in each.hosts if new.role(name) == "compute"])
        },
        roles={name: new.role(name) for name in both},
        scheduled=any(own["cluster_scheduler"] for own in new.hosts.values()),
        site=sorted(
            (of for of in {*old.site, *new.site} if old.site.get(of) != new.site.get(of)),
            key=natural,
        ),
        addressed=sorted(
            {
                variable
                for name in both
                if new.role(name) in HOST_ROLES
                for (variable, _what), _address in _places(old.hosts[name]).items()
                ^ _places(new.hosts[name]).items()
            }
        ),
    )


# Names


def _other_names(old: CompiledModel, new: CompiledModel) -> dict[str, str]:
    """Earlier and new names of hosts that are in one model only and differ in nothing else that
    identifies a machine."""

    def places(model: CompiledModel, other: CompiledModel) -> dict[str, str]:
        """Hosts that are not in the other model, by role, place and addresses."""
        return {
            json.dumps(
                [
                    model.role(name),
                    variables.get("cluster_index"),
                    *_addresses_of(variables).values(),
                ]
            ): name
            for name, variables in model.hosts.items()
            if name not in other.hosts
        }

    after = places(new, old)
    return {name: after[at] for at, name in places(old, new).items() if at in after}


def _with_names(model: CompiledModel, names: Mapping[str, str]) -> CompiledModel:
    """The model with other names of hosts, also where others refer to them."""

    def of(entries: Any, key: str) -> list[Any]:
        return [{**entry, key: names.get(entry[key], entry[key])} for entry in entries]

    hosts = {}
    for name, variables in model.hosts.items():
        own = dict(variables)
        for variable in ("cluster_rails", "cluster_storage_links"):
            if variable in own:
                own[variable] = of(own[variable], "leaf")
        if "cluster_ports" in own:
            own["cluster_ports"] = [
                {
                    **group,
                    "peers": {port: names.get(at, at) for port, at in group["peers"].items()},
                }
                for group in own["cluster_ports"]
            ]
        hosts[names.get(name, name)] = own
    site = {names.get(name, name): of for name, of in model.site.items()}
    return replace(model, hosts=hosts, site=site)


# Addresses


def _addresses(host: str, old: CompiledModel, new: CompiledModel) -> Iterator[Moved]:
    before, after = _addresses_of(old.hosts[host]), _addresses_of(new.hosts[host])
    for what, address in before.items():
        if after.get(what, address) != address:
            yield Moved(host, what, address, after[what])


def _addresses_of(variables: Variables) -> dict[str, str]:
    return {what: address for (_variable, what), address in _places(variables).items()}


def _places(variables: Variables) -> dict[tuple[str, str], str]:
    """Addresses by variable, and interface or name."""
    management = "cluster_management"
    found = {(management, MANAGEMENT): str(variables[management]["address"])}
    for variable, key in _ADDRESSED.items():
        for entry in variables.get(variable, ()):
            found[variable, entry[key]] = f"{entry['address']}/{entry['prefix']}"
    if "cluster_loopback" in variables:
        found["cluster_loopback", LOOPBACK] = str(variables["cluster_loopback"])
    return found


# Cables


def _ends(model: CompiledModel) -> dict[End, End]:
    """Each end of each cable, with its other end."""
    found: dict[End, End] = {}
    for name, variables in model.hosts.items():
        for group in variables.get("cluster_ports", ()):
            far = group["peer_interface"]
            for port, peer in group["peers"].items():
                found[name, port] = (peer, far)
                found[peer, far] = (name, port)
    return found


def _cables(model: CompiledModel, ends: Mapping[End, End]) -> Iterator[tuple[End, End]]:
    """Each cable once: from a switch to a host, or from an upper switch down to a lower one."""
    order = {name: place for place, name in enumerate(model.hosts)}
    for end, far in ends.items():
        if order.get(end[0], -1) > order.get(far[0], -1):
            yield end, far


def _cables_gone(
    old: CompiledModel, new: CompiledModel, before: Mapping[End, End], after: Mapping[End, End]
) -> tuple[list[Moved], list[tuple[End, End]]]:
    """Cables that end elsewhere, and those that are removed. A cable of a host that comes or goes
    does not move."""
    moved, removed = [], []
    known, stays = (
        {*model.hosts, *(name for name, _port in of)} for model, of in ((old, before), (new, after))
    )
    for end, far in _cables(old, before):
        if after.get(end) == far:
            continue
        # The end that stays in place: that of a host, or else the upper one.
        ends = [(far, end), (end, far)]
        if far[0] in old.switches:
            ends.reverse()
        if end[0] not in stays or far[0] not in stays:
            ends.clear()
        found = [(here, there, after[here]) for here, there in ends if here in after]
        same = [each for each in found if each[2][0] == each[1][0]]
        reused = [each for each in found if each[2][0] in known or each[0] == ends[0][0]]
        for here, there, other in (same or reused)[:1]:
            moved.append(Moved(*here, _end(there), _end(other)))
        if not same and not reused:
            removed.append((end, far))
    return moved, removed


def _end(end: End) -> str:
    return " ".join(end)


# Ports and other variables


def _ports(name: str, old: Variables, new: Variables, renamed: Mapping[End, End]) -> SwitchPorts:
    after = _settings_of_ports(new)
    ports = _settings_of_ports(old)
    before = {renamed.get((name, port), (name, port))[1]: of for port, of in ports.items()}
    return SwitchPorts(
        added=[port for port in after if port not in before],
        removed=[port for port in before if port not in after],
        changed=[port for port in before if after.get(port, before[port]) != before[port]],
        renamed=[port for port in ports if (name, port) in renamed],
    )


def _settings_of_ports(variables: Variables) -> dict[str, tuple[Any, ...]]:
    found = {}
    for group in variables.get("cluster_ports", ()):
        common = (group["kind"], group["speed_gbps"], group["mtu"], group["prefix"])
        for port in group["peers"]:
            channel = group.get("bond"), group.get("pairs"), group.get("channels", {}).get(port)
            found[port] = (*common, *channel, group["addresses"].get(port, group["address"]))
    return found


def _renamed(name: str, old: CompiledModel, new: CompiledModel) -> Iterator[tuple[End, End]]:
    """Ports with another name and the same cable: those of a switch of which the system, the chip
    or the form of names is another one, and all peers are in the same order; and interfaces of
    rails."""
    hosts = old.hosts[name], new.hosts[name]
    places = [
        {
            (rail["rail"], *(each[key] for key in ("plane", "leaf", "leaf_port"))): each[
                "interface"
            ]
            for rail in variables.get("cluster_rails", ())
            for each in rail.get("members", [rail])
        }
        for variables in hosts
    ]
    for place, interface in places[0].items():
        if interface not in places[1].values() and place in places[1]:
            yield (name, interface), (name, places[1][place])
    if "cluster_ports" not in hosts[0] or "cluster_ports" not in hosts[1]:
        return
    before, after = (
        {
            port: (peer, None if peer in old.switches else group["peer_interface"])
            for group in variables["cluster_ports"]
            for port, peer in group["peers"].items()
        }
        for variables in hosts
    )
    forms = [
        (*map(variables.get, _NAMING), {re.sub(r"\d+", "", port) for port in ports})
        for variables, ports in zip(hosts, (before, after))
    ]
    if forms[0] == forms[1] or before.keys() == after.keys():
        return
    ports = [sorted(of, key=natural) for of in (before, after)]
    if [before[port] for port in ports[0]] == [after[port] for port in ports[1]]:
        yield from (((name, a), (name, b)) for a, b in zip(*ports) if a != b)


def _settings(old: Variables, new: Variables) -> Iterator[tuple[str, str, Any, Any]]:
    """Other values that differ: variable, key, before, after."""
    for variable in NAMES:
        before, after = old.get(variable), new.get(variable)
        # The place of a node without rails is in no address or cable.
        hidden = variable in _COVERED and (variable != "cluster_index" or old.get("cluster_rails"))
        if hidden or before is after or before == after:
            continue
        flat = [dict(_flat(value)) for value in (before, after)]
        for key in dict.fromkeys((*flat[0], *flat[1])):
            before, after = (each.get(key) for each in flat)
            shown = key.rpartition(".")[2] in _SHOWN.get(variable, ())
            if before != after and not shown:
                yield variable, key, before, after
    rails = {(rail["rail"], rail["plane"]): rail for rail in new.get("cluster_rails", ())}
    for rail in old.get("cluster_rails", ()):
        same = rails.get((rail["rail"], rail["plane"]), rail)
        for key in dict.fromkeys((*rail, *same)):
            before, after = rail.get(key), same.get(key)
            if before != after and key not in _OF_PLAN:
                yield "cluster_rails", f"{rail['interface']}.{key}", before, after


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with the path of its keys. Entries of lists are found by their names."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            names = [item[key] for key in _IDENTITIES if isinstance(item, Mapping) and key in item]
            yield from _flat(item, f"{path}[{names[0] if names else place}]")
    else:
        yield path, value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


# The result as data


def as_data(changes: ModelChanges, findings: Optional[Findings] = None) -> dict[str, Any]:
    """Values of JSON."""

    def hosts(of: Mapping[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "role": role} for name, role in of.items()]

    def cables(of: list[tuple[End, End]]) -> list[dict[str, str]]:
        keys = ("switch", "port", "peer", "peer_port")
        return [dict(zip(keys, (*end, *far))) for end, far in of]

    return {
        "hosts": {
            "come": hosts(changes.come),
            "go": hosts(changes.go),
            "renamed": [
                {"name": name, "before": before, "role": changes.roles[name]}
                for before, name in changes.renamed.items()
            ],
        },
        "addresses": [each._asdict() for each in changes.addresses],
        "cables": {
            "moved": [each._asdict() for each in changes.moved],
            "added": cables(changes.added),
            "removed": cables(changes.removed),
        },
        "ports": {name: vars(of) for name, of in changes.ports.items()},
        "settings": [vars(each) for each in changes.settings],
        "site_variables": changes.site,
        "reboots": changes.reboots,
        "refused": [
            {"code": each.code, "key": ".".join(map(str, each.path)), "text": each.text()}
            for each in (findings.found if findings else ())
        ],
    }

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts that are in two models must retain their addresses and cables. A move is refused, with the
key of the model that prevents it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Optional

from ...module_utils.core.text import counted, natural, some
from ..schema.findings import Findings, Path
from .changes import MANAGEMENT, ModelChanges, Moved
from .cluster import HOST_ROLES
from .versions import CompiledModel

_MANAGEMENT_KEYS: Mapping[str, Path] = {"compute": ("nodes", "management_first")}


def refuse(
    old: CompiledModel, new: CompiledModel, changes: ModelChanges, findings: Findings
) -> None:
    """Report moves of hosts that are in both models, with the key that prevents each."""
    shifted = _shifted(old, new)
    _check_positions(old, new, changes, shifted, findings)
    nodes, links, others = list[Moved](), list[Moved](), list[Moved]()
    for each in changes.moved:
        if each.host not in shifted:
            ends = (each.host, each.before.partition(" ")[0])
            roles = {model.role(end) for model in (old, new) for end in ends if end in model.hosts}
            server = roles.intersection(HOST_ROLES)
            (nodes if "compute" in roles else others if server else links).append(each)
    if nodes:
        ends = (nodes[0].host, nodes[0].after.partition(" ")[0])
        per_set = _nodes_per_set(old)
        leaves = _section(new, next((end for end in ends if end in new.switches), ""))
        where = ".".join(map(str, leaves))
        problem = f"{_counted(nodes, 'cable')} would move, {_shown(nodes[0])}"
        path: Path = (*leaves, "nodes_per_set")
        if leaves[1:]:
            remedy = "Write nodes and nodes_per_set of each group as before, and further groups at "
            remedy += "the end"
        else:
            remedy = f"Leave as many ports of leaves to nodes as before ({where}.ports, "
            remedy += f"links_per_leaf, rails), and write {where}.nodes_per_set"
            remedy += f": {per_set}" if per_set else ""
        findings.add("changes.node_cables", path, problem, remedy, (len(nodes), per_set))
    if links:
        _check_links(old, new, links, findings)
    if others:
        problem = f"{_counted(others, 'cable')} would move, {_shown(others[0])}"
        remedy = "Write leaf, port and interface as before"
        findings.add("changes.storage_cables", ("storage",), problem, remedy, len(others))
    cabled = {*shifted, *(each.host for each in nodes)}
    rails, of_others = list[Moved](), list[Moved]()
    for each in changes.addresses:
        if each.what != MANAGEMENT and each.host not in cabled:
            own = new.hosts[each.host].get("cluster_rails", ())
            rail = any(each.what == lane["interface"] for lane in own)
            (rails if rail else of_others).append(each)
    if rails:
        problem = f"{_counted(rails, 'address', 'addresses')} would change, {_shown(rails[0])}"
        remedy = "Write plan, pool, prefix and first_host as before, and leaves.nodes_per_set"
        findings.add("changes.rail_addresses", ("addresses",), problem, remedy, len(rails))
    if of_others:
        problem = f"{_counted(of_others, 'address', 'addresses')} would change, "
        problem += _shown(of_others[0])
        remedy = "Write addresses of networks, storage links and loopbacks as before"
        findings.add("changes.addresses", (), problem, remedy, len(of_others))
    _check_management(new, changes, shifted, findings)


def _section(model: CompiledModel, switch: str) -> Path:
    """The key that describes a switch."""
    for name, keys in (model.source.data.get("switches") or {}).items():
        names = keys.get("name") or f"{name.replace('_', '-')}{{:02d}}"
        if isinstance(names, str):
            names = [names.format(number + 1) for number in range(keys["count"])]
        if switch in names:
            return "switches", name
    leaf = switch not in model.hosts or model.role(switch) == "leaf"
    return ("leaves",) if leaf else ("spines",)


def _shown(moved: Moved) -> str:
    return f"the first from {moved.before} to {moved.after}"


def _counted(moved: list[Moved], one: str, many: str = "") -> str:
    hosts = [f"{each.host} {each.what}" for each in moved]
    return f"{counted(len(moved), one, many)} ({some(hosts, 2)})"


def _shifted(old: CompiledModel, new: CompiledModel) -> dict[str, tuple[int, int]]:
    """Nodes with rails and another position in the plan: the old and the new one."""
    found = {}
    for name, variables in new.hosts.items():
        before = old.hosts.get(name, {}).get("cluster_index")
        after = variables.get("cluster_index")
        rails = variables.get("cluster_rails") or old.hosts.get(name, {}).get("cluster_rails")
        if rails and before is not None and after is not None and before != after:
            found[name] = (before, after)
    return found


def _check_positions(
    old: CompiledModel,
    new: CompiledModel,
    changes: ModelChanges,
    shifted: Mapping[str, tuple[int, int]],
    findings: Findings,
) -> None:
    """A node of a list must not disappear: the entry holds its place, with `nodes.absent`."""
    gone = [name for name, role in changes.go.items() if role == "compute"]
    if shifted:
        (name, places), *_others = shifted.items()
        number = counted(len(shifted), "node")
        problem = f"{number} would move to other ports and addresses: {some(list(shifted), 3)}"
        back = f"Put {some(gone, 3)} back, and list the name under nodes.absent. Or write"
        remedy = f"{back if gone else 'Write'} `position: {places[0]}` for {name}, and so on"
        findings.add("changes.positions", ("nodes",), problem, remedy, (name, *places))
    last = max(variables.get("cluster_index", -1) for variables in new.hosts.values())
    listed, now = old.listed, new.listed
    # Elsewhere, a position was written for the node behind it, or others moved.
    missing = [
        name
        for name in gone
        if name in listed and name not in now and old.hosts[name]["cluster_index"] > last
    ]
    if missing:
        problem = f"{counted(len(missing), 'node')} left the list: {some(missing, 3)}. The "
        problem += "next node there would get the ports and addresses"
        remedy = "Put the entry back, and the name under nodes.absent"
        findings.add("changes.not_absent", ("nodes", "list"), problem, remedy, missing[0])


def _nodes_per_set(model: CompiledModel) -> int:
    """The number of nodes per leaf set, from the first node of the second one; otherwise 0."""
    first = ""
    for variables in model.hosts.values():
        for rail in variables.get("cluster_rails", ())[:1]:
            first = first or rail["leaf"]
            if rail["leaf"] != first:
                return int(variables["cluster_index"])
    return 0


def _check_links(
    old: CompiledModel, new: CompiledModel, links: list[Moved], findings: Findings
) -> None:
    """Cables between switches move if uplinks begin at another port of a leaf, or if switches of
    an upper tier change places."""
    uplinks = [_uplinks(model) for model in (old, new)]
    leaf = next((name for name in uplinks[0] if uplinks[1].get(name)), "")
    before, after = (of.get(leaf, []) for of in uplinks)
    problem = f"{_counted(links, 'cable')} would move, {_shown(links[0])}"
    leaves = _section(new, leaf)
    where = ".".join(map(str, leaves))
    path: Path = (*leaves, "uplink_ports")
    divided = _divided(old, new)
    if divided:
        path, was, now = divided
        remedy = f"{path[-1]} was {was} and is {now}: write the former value, or move the cables "
        remedy += "in a maintenance window"
    elif before[:1] == after[:1]:
        path, names = (("links",), "the names") if leaves[1:] else (("spines",), "spines.name")
        remedy = f"Add switches at the end, or list {names} so that each of them has the same "
        remedy += "leaves; write divided_by, groups and numbers of links as before"
    elif len(before) > len(after):
        remedy = f"Write {where}.uplink_ports: {len(before)}, the earlier number"
    else:
        more = counted(len(after) - len(before), "port")
        more = f", then {more}" if len(after) > len(before) else ""
        remedy = f"Write {where}.ports by purpose, with present uplinks first: uplinks: "
        remedy += f"[{before[0]} to {before[-1]}{more}]"
        remedy += f". For later spines, reserve ports by {where}.uplink_ports" if more else ""
    findings.add("changes.switch_cables", path, problem, remedy, (len(before), len(after)))


def _divided(old: CompiledModel, new: CompiledModel) -> Optional[tuple[Path, str, str]]:
    """The key that divides uplinks among spines otherwise than before, and both values."""
    before, after = (model.source.data.get("spines") or {} for model in (old, new))
    for key in ("links_per_leaf", "divided_by", "groups"):
        if before and after and before.get(key) != after.get(key):
            was, now = (json.dumps(of[key]) if key in of else "unset" for of in (before, after))
            return ("spines", key), was, now
    return None


def _uplinks(model: CompiledModel) -> dict[str, list[str]]:
    """Ports of each leaf's uplinks, in order."""
    return {
        name: sorted(
            (
                port
                for group in variables.get("cluster_ports", ())
                if group["kind"] == "uplink"
                for port in group["peers"]
            ),
            key=natural,
        )
        for name, variables in model.hosts.items()
        if variables["cluster_role"] == "leaf"
    }


def _check_management(
    new: CompiledModel, changes: ModelChanges, shifted: Iterable[str], findings: Findings
) -> None:
    by_role: dict[str, list[Moved]] = {}
    for each in changes.addresses:
        if each.what == MANAGEMENT and each.host not in shifted:
            by_role.setdefault(new.role(each.host), []).append(each)
    for role, moved in by_role.items():
        path = _MANAGEMENT_KEYS.get(role, (role,))
        if role in ("leaf", "spine"):
            path = (*_section(new, moved[0].host), "management_first")
        problem = f"{_counted(moved, 'address', 'addresses')} would change, {_shown(moved[0])}"
        remedy = "Write management addresses as before"
        findings.add("changes.management", path, problem, remedy, len(moved))

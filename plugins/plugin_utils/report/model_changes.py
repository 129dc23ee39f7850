# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A change of the model as lines, and the playbooks that apply it, in order."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from ...module_utils.core.text import columns, counted, shortened, some
from ..layers import MEASURING, ROLES
from ..model.changes import MANAGEMENT, ModelChanges, Moved
from ..model.cluster import HOST_ROLES

MAX_ROWS = 20
"""Maximum number of rows of one table; the rest are in the JSON."""
MAX_NAMES = 8
MAX_CONCERNED = 64
"""Maximum number of names in a `--limit`; more hosts are all of them."""
MAX_VALUE = 60
_SERVERS = ("names", "os", "rails", "storage", "mpi", "hostfile", "ssh", "node_check", "monitoring")
LAYERS: Mapping[str, Sequence[str]] = {
    "cluster_domain": ("names", "ssh"),
    "cluster_rail_networks": ("os", "rails", "node_check"),
    "cluster_asics": ("fabric",),
    "roce_qos": ("fabric", "monitoring"),
    "cluster_qos": ("rails", "mpi"),
    "cluster_software": ("rdma", "gpu", "storage", "mpi", "node_check"),
    "cluster_filesystems": ("storage", "mpi"),
    "cluster_management": _SERVERS,
    "cluster_index": ("hostfile",),
    "cluster_rack": ("hostfile", "monitoring"),
    "cluster_slots": ("mpi", "hostfile"),
    "cluster_drained": ("hostfile",),
    "cluster_gpus": ("rdma", "gpu", "rails", "mpi", "node_check"),
    "cluster_rails": (*_SERVERS, "rdma", "gpu"),
    "cluster_system": ("fabric",),
    "cluster_asic": ("fabric",),
    "cluster_ports": ("fabric",),
    "cluster_port_step": ("fabric",),
    "cluster_port_ranges": ("fabric",),
    "cluster_management_networks": ("os",),
    **dict.fromkeys(
        ("cluster_kind", "cluster_unit", "cluster_set", "cluster_plane"), ("monitoring",)
    ),
    **dict.fromkeys(("cluster_cabling", "cluster_bmc", "cluster_networks"), ()),
    **dict.fromkeys(("cluster_asn", "cluster_loopback", "cluster_vlans"), ()),
    "cluster_storage_links": (),
}
"""Layers that apply each variable. Others, such as the user of MPI, are applied by all layers."""
OF_KEYS: Mapping[str, Sequence[str]] = {
    "cluster_rails pci": ("rdma", "gpu", "rails", "mpi"),
    "cluster_software kernel": ("rdma", "gpu", "storage"),
    "cluster_software driver": ("gpu", "node_check"),
    "cluster_software cuda": ("gpu", "mpi"),
    **dict.fromkeys(
        (f"cluster_software {key}" for key in ("dcgm", "dcgm_profiling", "gdrcopy", "nccl")),
        ("gpu",),
    ),
    "cluster_software repositories": ("rdma", "gpu"),
    "cluster_software mpi": ("mpi",),
    "cluster_software accepted": (),
}
"""The same for keys that fewer of these layers read: a variable, and the first key of its value;
for a rail, the last one."""
_OF_HOSTS = ("names", "storage", "hostfile", "ssh")
"""Layers that remove a host from what others have."""


def lines(changes: ModelChanges, against: str, steps: Sequence[Mapping[str, str]]) -> list[str]:
    if not changes.any:
        return [f"model: the same cluster as {against}"]
    shown = [f"model: changes since {against}"]
    for what, hosts in (("come", changes.come), ("go", changes.go)):
        for role in dict.fromkeys(hosts.values()):
            names = [name for name, of in hosts.items() if of == role]
            shown.append(f"  {what}: {len(names)} {role}: {some(names, MAX_NAMES)}")
    if changes.renamed:
        names = [f"{before} to {after}" for before, after in changes.renamed.items()]
        shown.append(f"  renamed: {len(names)}: {some(names, MAX_NAMES)}")
    for kind, moved in (("address", changes.addresses), ("cable", changes.moved)):
        shown += _table(("host", f"{kind} of", "before", "after"), _rows(moved))
    for what, cables in (("new", changes.added), ("removed", changes.removed)):
        texts = [f"{' '.join(end)} - {' '.join(far)}" for end, far in cables]
        if texts:
            shown.append(f"  {what} cables: {len(texts)}: {some(texts, 2)}")
    ports: dict[str, list[str]] = {}
    for name, of in changes.ports.items():
        numbers = [f"{len(names)} {what}" for what, names in vars(of).items() if names]
        ports.setdefault(", ".join(numbers), []).append(name)
    shown += _table(
        ("switches", "ports"), [(some(names, MAX_NAMES), of) for of, names in ports.items()]
    )
    shown += _table(("setting", "before", "after", "hosts"), _settings(changes))
    if changes.site:
        shown.append(f"  variables of the operator: {some(changes.site, MAX_NAMES)}")
    for reason, names in changes.reboots.items():
        shown.append(f"  reboot expected: {some(names, MAX_NAMES)} ({reason})")
    shown += [f"  {number}. {step['do']}  ({step['why']})" for number, step in enumerate(steps, 1)]
    return shown


def _rows(moved: Iterable[Moved]) -> list[tuple[str, str, str, str]]:
    """One row per host, with its first move and the number of others."""
    by_host: dict[tuple[str, bool], list[Moved]] = {}
    for each in moved:
        by_host.setdefault((each.host, each.what == MANAGEMENT), []).append(each)
    return [
        (host, _and_more(of[0].what, len(of)), of[0].before, of[0].after)
        for (host, _management), of in by_host.items()
    ]


def _and_more(first: str, count: int) -> str:
    return first if count == 1 else f"{first} and {count - 1} more"


def _settings(changes: ModelChanges) -> list[tuple[str, ...]]:
    """One row per value; the same change at several rails is one row."""
    rows = dict[tuple[str, ...], list[str]]()
    for each in changes.settings:
        place, _dot, key = each.key.rpartition(".")
        values = _value(each.before), _value(each.after), _hosts(each.hosts, changes.roles)
        row = (each.variable, key, *values)
        if each.variable != "cluster_qos":  # compiled from roce_qos
            rows.setdefault(row, []).append(place)
    return [
        (
            _and_more(".".join(filter(None, (variable, places[0], key))), len(places)),
            *others,
        )
        for (variable, key, *others), places in rows.items()
    ]


def _hosts(names: Sequence[str], roles: Mapping[str, str]) -> str:
    """Two names, or the number of hosts by role."""
    if len(names) <= 2:
        return ", ".join(names)
    counts = Counter(roles[name] for name in names)
    return ", ".join(f"{number} {role}" for role, number in counts.items())


def _value(value: object) -> str:
    return "-" if value in (None, "") else shortened(str(value), MAX_VALUE)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    shown = columns([heading, *rows[:MAX_ROWS]], left=range(len(heading)))
    more = [f"{len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []
    return [f"  {line}" for line in (*shown, *more)]


def steps(
    changes: ModelChanges, inventories: Sequence[str], *, resolver: bool = False
) -> list[dict[str, str]]:
    """What to do, in order: `do`, a command or work by hand, and `why`. `resolver`: whether hosts
    find new names without a file (`cluster_hosts_mode`).
    """
    found: list[dict[str, str]] = []

    def add(do: str, why: str) -> None:
        found.append({"do": do, "why": why})

    def play(name: str, *options: str) -> str:
        given = [word for item in inventories for word in ("-i", item)]
        return shlex.join(["ansible-playbook", name, *given, *options])

    numbers = [len(changes.moved), len(changes.removed), len(changes.added)]
    for verb, number in zip(("move", "unplug", "connect"), numbers):
        if number:
            leaving = verb == "unplug" and "compute" in changes.go.values()
            why = "by hand, as soon as no job runs on the nodes that go" if leaving else "by hand"
            add(f"{verb} {counted(number, 'cable')}", why)
    new = {after: changes.roles[after] for after in changes.renamed.values()}
    servers = _servers({**changes.come, **new})
    if servers:
        limit = ",".join(servers) if len(servers) <= MAX_NAMES else "all"
        add(play("playbooks/preflight.yml", "--limit", limit), "new hosts")
    tags = layers(changes)
    near = concerned(changes)
    if near:
        if changes.ports:
            words = ["--tags", "fabric", "--limit", ",".join(changes.ports), "--check", "--diff"]
            add(play("site.yml", *words), "switches; then in a maintenance window")
        # smoke would load every node of the launcher's hostfile.
        limited = ["--limit", ",".join(near), "--skip-tags", "smoke"]
        add(play("site.yml", *limited), "new nodes, and the hosts that know of them")
        files = {"names": "" if resolver else "/etc/hosts of the others"}
        if changes.scheduled:
            files["slurm"] = "their Slurm files, unless slurmctld sends these"
        files = {layer: why for layer, why in files.items() if why}
        if files:
            add(play("site.yml", "--tags", ",".join(files)), "; ".join(files.values()))
        add(play("playbooks/verify.yml"), "everything as in the model")
        return found
    if changes.ports or (not {**changes.come, **new} if tags is None else "fabric" in tags):
        trial = play("site.yml", "--tags", "fabric", "--check", "--diff")
        add(trial, "switches; then in a maintenance window")
    if tags != []:
        left = [
            role
            for role in (*changes.go.values(), *new.values())
            if role in ("compute", "launcher")
        ]
        count = len(left) + left.count("launcher")
        given = ["-e", f"ssh_trust_max_removed={count}"] if count > 1 else []
        words = ["--tags", ",".join(tags)] if tags else []
        add(play("site.yml", *words, *given), "these layers change" if tags else "all layers")
        if changes.reboots:
            add(play("playbooks/reboot.yml"), "recorded reboots")
            add(play("site.yml", *words), "what waited for the reboot")
        add(play("playbooks/verify.yml"), "everything as in the model")
    return found


def concerned(changes: ModelChanges) -> list[str]:
    """Names and groups for `--limit` where compute nodes come and nothing else changes; otherwise
    none: the change is for all hosts (tests/unit/test_one_node_more.py).
    """
    others = (
        *(changes.go, changes.renamed, changes.addresses, changes.moved, changes.removed),
        *(changes.settings, changes.site, changes.reboots),
    )
    new, touched = changes.come, changes.ports
    only_added = not any(of.removed or of.changed or of.renamed for of in touched.values())
    if any(others) or not only_added or set(new.values()) != {"compute"}:
        return []
    groups = [role for role in ("launcher", "storage") if role in changes.roles.values()]
    found = [*new, *groups, *touched]
    return found if len(found) <= MAX_CONCERNED else []


def _servers(hosts: Mapping[str, str]) -> list[str]:
    return [name for name, role in hosts.items() if role in HOST_ROLES]


def layers(changes: ModelChanges) -> Optional[list[str]]:
    """Layers that the change needs, in the order of site.yml; None for all of them."""
    found: set[str] = set()
    if _servers(changes.go):
        found.update(_OF_HOSTS)
    for variable in changes.addressed:
        found.update(LAYERS[variable])
    if changes.ports or changes.moved or changes.added or changes.removed:
        found.update(LAYERS["cluster_ports"])
    for each in changes.settings:
        if each.variable not in LAYERS:
            return None
        words = each.key.split(".")
        key = words[-1] if each.variable == "cluster_rails" else words[0].partition("[")[0]
        found.update(OF_KEYS.get(f"{each.variable} {key}", LAYERS[each.variable]))
    new = {after: changes.roles[after] for after in changes.renamed.values()}
    if _servers({**changes.come, **new}) or changes.site:
        return None
    if new:
        found.update(LAYERS["cluster_ports"])
    if changes.scheduled and found.intersection(("gpu", "hostfile")):
        found.add("slurm")
    if found.intersection(("rails", "fabric", "rdma")):
        found.update(MEASURING)
    elif "gpu" in found:
        found.add("smoke")
    return [layer for layer in ROLES if layer in found]

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the site's slurm.conf, and what slurmctld reports, with the cluster model: one line per
fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.checks import FAILED, OK, Check, differs
from ..core.checks import compare as same
from . import conf, texts
from .cluster import SlurmCluster, SlurmNode
from .conf import Line, holds
from .hostlist import compress, expand
from .state import NodeState, SwitchState
from .texts import Settings

MOST_LISTED = 40


@dataclass(frozen=True)
class Contradiction:
    """A line of the site that does not fit the model's files."""

    key: str
    subject: str
    """Key, and the name of what the line defines."""
    at: str
    """File and number of the line."""
    wanted: str
    found: str
    remedy: str
    fatal: bool = False
    """Whether slurmctld does not start with both."""

    def check(self) -> Check:
        name = "slurm_site"
        return Check(
            name, self.wanted, self.found, FAILED, self.subject, self.at, by_hand=self.remedy
        )


def contradictions(
    cluster: SlurmCluster, settings: Settings, lines: Iterable[Line]
) -> list[Contradiction]:
    """Lines of the site's slurm.conf (conf.parse) that do not fit; those that are fatal first."""
    ours = {node.name for node in cluster.nodes}
    partitions = {*texts.partition_names(cluster, settings)}
    wanted = texts.wanted(cluster, settings)
    by_key = {key.lower(): key for key in wanted}
    values: dict[str, Contradiction] = {}
    found: list[Contradiction] = []
    for line in lines:
        name, value = line.pairs[0]
        key = name.lower()
        if key == "nodename":
            found += _nodes(line, value, ours)
        elif key == "partitionname" and value in partitions:
            remedy = "remove the line, or give the partition another name (slurm_partition)"
            subject = f"PartitionName={value}"
            what = f"only in {texts.PARTITIONS}"
            found.append(Contradiction(name, subject, line.at, what, value, remedy, fatal=True))
        elif key == "propagateresourcelimits":
            if {"memlock", "all"} & {*value.lower().split(",")}:
                remedy = "write PropagateResourceLimits=NONE, or a list without MEMLOCK"
                what = "without MEMLOCK"
                values[key] = Contradiction(name, name, line.at, what, value, remedy)
            else:
                values.pop(key, None)
        elif key in by_key:
            # Slurm takes the last value.
            values.pop(key, None)
            own = by_key[key]
            if conf.adds_to(own, settings.version):
                continue
            if not holds(own, wanted[own], value):
                remedy = _remedy(own, wanted[own])
                values[key] = Contradiction(own, own, line.at, wanted[own], value, remedy)
    return [*found, *values.values()]


def _nodes(line: Line, expression: str, ours: set[str]) -> Iterable[Contradiction]:
    try:
        shared = [name for name in expand(expression) if name in ours]
    except ValueError:
        return  # Slurm refuses it itself
    if shared:
        names = compress(shared)
        remedy = f"remove {names} from this line: {texts.NODES} describes the nodes of the model"
        subject = f"NodeName={names}"
        what = f"only in {texts.NODES}"
        yield Contradiction("NodeName", subject, line.at, what, expression, remedy, fatal=True)


def _remedy(key: str, wanted: str) -> str:
    if key in ("Prolog", "Epilog", "HealthCheckProgram"):
        return f"remove the line, call {wanted} from that program, or set slurm_node_check: false"
    if key == "TaskProlog":
        return f"remove the line, or print what {wanted} prints from that program"
    if key in conf.LISTS:
        return f"remove the line, or add {wanted} to its list"
    return f"remove the line, or write {key}={wanted}"


# What slurmctld reports


def nodes(
    wanted: Iterable[SlurmNode],
    found: Mapping[str, NodeState],
    version: str = "",
    *,
    check_mode: bool = False,
) -> list[Check]:
    """Checks of each node. `version`: of slurmctld, with which that of each slurmd is compared."""
    checks = []
    for node in wanted:
        state = found.get(node.name)
        if state is None:
            what = ("slurm_node", "known to slurmctld", "unknown", differs(check_mode), node.name)
            checks.append(Check(*what))
            continue
        checks += _node(node, state, version, check_mode)
    return checks


def _node(node: SlurmNode, state: NodeState, version: str, check_mode: bool) -> list[Check]:
    cpu = node.hardware.cpu
    own: dict[str, Any] = {
        "address": node.address,
        "sockets": cpu.sockets,
        "cores": cpu.cores,
        "threads": cpu.threads,
        "memory_mb": cpu.memory_mb,
        "features": sorted(node.features),
    }
    here = {key: getattr(state, key) for key in own}
    # Features of the site, such as those that a reboot changes, are not the model's.
    here["features"] = [each for each in own["features"] if each in state.features]
    apart = [key for key in own if own[key] != here[key]]
    wanted, found = ({key: each[key] for key in apart} for each in (own, here))
    reason = "" if state.responds else f"{state.state}: {state.reason or 'it does not respond'}"
    checks = [
        same("slurm_node", wanted, found, subject=node.name, check_mode=check_mode),
        same(
            "slurm_gres",
            node.hardware.gres,
            _gres(state.gres, node.hardware.gres),
            subject=node.name,
            check_mode=check_mode,
        ),
        Check(
            "slurm_state",
            "responds",
            "responds" if state.responds else state.state,
            OK if state.responds else FAILED,
            node.name,
            reason,
        ),
        _drained(node, state, check_mode),
    ]
    if version and state.version:
        checks.append(same("slurm_version", version, state.version, subject=node.name))
    return checks


def _gres(found: str, wanted: str) -> str:
    """GPUs only, without the sockets that Slurm adds: `gpu:b300:8(S:0-1)`. Until its slurmd
    registers, Slurm shows a node without the type."""
    words = [word.partition("(")[0] for word in found.replace("),", ")|").split("|")]
    gpus = [word for part in words for word in part.split(",") if word.split(":")[0] == "gpu"]
    text = ",".join(gpus)
    kind, _type, count = wanted.partition(":")[0], wanted, wanted.rpartition(":")[2]
    return wanted if text == f"{kind}:{count}" and wanted else text


def _drained(node: SlurmNode, state: NodeState, check_mode: bool) -> Check:
    """What others drained stays, and is no fault of the files."""
    name, reason = "slurm_drained", state.reason
    by_model = state.drained and reason.startswith(texts.DRAIN_REASON)
    found = "in service" if not state.drained else "by the model" if by_model else "by others"
    wanted = "drained" if node.drained else "in service"
    if node.drained and state.drained:
        return Check(name, wanted, wanted, OK, node.name, reason)
    if not node.drained and found == "by others":
        hand = f"scontrol update nodename={node.name} state=resume, when it is repaired"
        return Check(name, wanted, found, FAILED, node.name, reason, by_hand=hand)
    return same(name, wanted, found, subject=node.name, check_mode=check_mode, reason=reason)


def topology(
    cluster: SlurmCluster, found: Mapping[str, SwitchState], *, check_mode: bool = False
) -> list[Check]:
    """One check for each switch that differs, or one for all."""
    below = texts.nodes_below(cluster)
    checks = []
    for switch in cluster.switches:
        state = found.get(switch.name)
        wanted = _switch(switch.level, below[switch.name], switch.switches)
        here = None
        if state is not None:
            here = _switch(state.level, state.nodes, state.switches)
        if here != wanted:
            what = (wanted, here if here is not None else "no such switch")
            checks.append(same("slurm_topology", *what, subject=switch.name, check_mode=check_mode))
    names = {switch.name for switch in cluster.switches}
    for state in found.values():
        if state.name not in names:
            here = _switch(state.level, state.nodes, state.switches)
            what = ("no such switch", here)
            checks.append(same("slurm_topology", *what, subject=state.name, check_mode=check_mode))
    if not checks:
        said = f"{len(names)} switches"
        checks.append(same("slurm_topology", said, said))
    return checks[:MOST_LISTED]


def _switch(level: int, nodes: Iterable[str], switches: Iterable[str]) -> str:
    text = f"level {level}, nodes {compress(sorted(nodes))}"
    return text + (f", switches {compress(sorted(switches))}" if switches else "")


def config(
    wanted: Mapping[str, str], found: Mapping[str, str], *, check_mode: bool = False
) -> list[Check]:
    """Compare settings with `scontrol show config` (state.parse_config)."""
    checks = []
    for key, value in wanted.items():
        here = found.get(key.lower(), "")
        if holds(key, value, here):
            here = value
        checks.append(same("slurm_config", value, here, subject=key, check_mode=check_mode))
    return checks


def strangers(cluster: SlurmCluster, found: Mapping[str, NodeState]) -> list[Check]:
    """Machines of the model that slurmctld also knows by another name, such as an earlier one."""
    names = {node.address: node.name for node in cluster.nodes}
    ours = set(names.values())
    checks = []
    for name, state in found.items():
        if name not in ours and state.address in names:
            hand = f"remove NodeName={name} from slurm.conf, and restart slurmctld"
            wanted = names[state.address]
            checks.append(Check("slurm_node", wanted, name, FAILED, state.address, by_hand=hand))
    return checks[:MOST_LISTED]

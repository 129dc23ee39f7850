# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of Slurm that the model determines.

slurm.conf remains the site's: it includes three of them. Texts follow the installed version,
because Slurm does not start with an option that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from ..core.files import HEADER
from ..core.text import ranges
from . import conf
from .cluster import Hardware, SlurmCluster, SlurmNode
from .hostlist import compress
from .state import SlurmError
from .topology import WITHOUT_RAILS, Switch

NODES = "baremetal-nodes.conf"
PARTITIONS = "baremetal-partitions.conf"
SETTINGS = "baremetal-settings.conf"
GRES = "gres.conf"
CGROUP = "cgroup.conf"
TOPOLOGY_CONF = "topology.conf"
TOPOLOGY_YAML = "topology.yaml"
MAIN = "slurm.conf"
INCLUDED = (SETTINGS, NODES, PARTITIONS)
"""Files that slurm.conf includes, in order."""

DRAIN_REASON = "baremetal.mpi_roce model"
"""Prefix of the reason that marks nodes that the model drains."""
MODEL_DRAIN = f"{DRAIN_REASON}: drained in cluster.yml"

Version = tuple[int, int]
YAML_SINCE: Version = (25, 5)
"""Slurm reads topology.yaml, and the block topology next to the tree."""
CGROUP_V2_SINCE: Version = (22, 5)


@dataclass(frozen=True)
class Settings:
    """What the texts need in addition to the model. Empty paths set nothing."""

    version: Version
    partition: str = "all"
    task_prolog: str = ""
    prolog: str = ""
    epilog: str = ""
    health_check: str = ""
    health_check_interval_s: int = 300
    reboot_program: str = ""
    boot_s: int = 1800
    """Maximum time of a reboot by Slurm, after which a node is down."""
    gpu_devices: str = "/dev/nvidia"
    """Devices of GPUs, without their number. Slurm counts only GPUs with devices."""
    config_overrides: bool = False
    """Whether Slurm trusts the node lines more than the hardware; for virtual nodes."""
    cgroups: bool = True
    """Whether jobs are confined by cgroups; false in containers without a cgroup to delegate."""
    mpi: str = "pmix"
    extra: Mapping[str, object] = field(default_factory=dict)
    """Parameters to set in addition or instead; None leaves one out."""
    known: Mapping[str, str] = field(default_factory=dict)
    """What the site's slurm.conf sets (conf.known): it is not written again."""


def texts(cluster: SlurmCluster, settings: Settings) -> dict[str, str]:
    """The content of each file by its name in Slurm's directory. Raises SlurmError."""
    if not cluster.nodes:
        raise SlurmError(
            f"cluster {cluster.name}: the model has no compute nodes, and slurmctld does not start "
            "without one: add nodes to cluster.yml, or remove scheduler: slurm"
        )
    found = {
        NODES: _page(_node_line(group) for group in cluster.groups()),
        PARTITIONS: _page(_partitions(cluster, settings)),
        SETTINGS: _page(f"{key}={value}" for key, value in written(cluster, settings).items()),
        GRES: _page(_gres(cluster, settings)),
    }
    if confined(settings):
        found[CGROUP] = _page(_CGROUP)
    name = TOPOLOGY_YAML if settings.version >= YAML_SINCE else TOPOLOGY_CONF
    found[name] = _page(_topology_yaml(cluster) if name == TOPOLOGY_YAML else _tree(cluster))
    return found


def _page(lines: Iterable[str]) -> str:
    return "\n".join([f"# {HEADER}", *lines, ""])


# Nodes


def _node_line(group: list[SlurmNode]) -> str:
    first = group[0]
    cpu = first.hardware.cpu
    words = {
        "NodeName": compress(node.name for node in group),
        "NodeAddr": compress(node.address for node in group),
        "Sockets": cpu.sockets,
        "CoresPerSocket": cpu.cores,
        "ThreadsPerCore": cpu.threads,
        "RealMemory": cpu.memory_mb,
        "Gres": first.hardware.gres,
        "Feature": ",".join(first.features),
        # Applies to nodes that slurmctld does not know yet; it remembers the state of others.
        "State": "DRAIN" if first.drained else "UNKNOWN",
        "Reason": f'"{MODEL_DRAIN}"' if first.drained else "",
    }
    return " ".join(f"{key}={value}" for key, value in words.items() if value != "")


def _partitions(cluster: SlurmCluster, settings: Settings) -> list[str]:
    """Of all nodes, and of each kind, named as its group of the inventory."""
    first, *others = partition_names(cluster, settings)
    default = conf.DEFAULT_PARTITION not in settings.known
    lines = [_partition(first, cluster.nodes, default=default)]
    lines += [_partition(name, own) for name, own in zip(others, cluster.kinds.values())]
    return lines


def partition_names(cluster: SlurmCluster, settings: Settings) -> list[str]:
    kinds = [f"kind_{kind}" for kind in cluster.kinds]
    return [settings.partition, *(kinds if len(kinds) > 1 else [])]


def _partition(name: str, nodes: Iterable[SlurmNode], *, default: bool = False) -> str:
    nodes = list(nodes)
    cpus = [node.hardware.cpu for node in nodes]
    share = min(cpu.memory_mb // cpu.cpus for cpu in cpus)
    words = {
        "PartitionName": name,
        "Nodes": compress(node.name for node in nodes),
        "Default": "YES" if default else "NO",
        "DefMemPerCPU": share,
        "State": "UP",
    }
    return " ".join(f"{key}={value}" for key, value in words.items())


# Generic resources


def _gres(cluster: SlurmCluster, settings: Settings) -> list[str]:
    lines: list[str] = []
    for hardware in cluster.hardware:
        if hardware.gpus:
            names = compress(node.name for node in cluster.nodes if node.hardware == hardware)
            lines += _gpu_lines(names, hardware, settings)
    return lines


def _gpu_lines(names: str, hardware: Hardware, settings: Settings) -> Iterable[str]:
    """GPUs with the same cores share a line; a comment names the NIC next to each."""
    for gpu in hardware.gpus:
        yield f"# GPU {gpu.index}: {', '.join(gpu.rails) or 'no rail'}"
    for cores, group in groupby(hardware.gpus, lambda gpu: gpu.cores):
        numbers = [gpu.index for gpu in group]
        words = {
            "NodeName": names,
            "Name": "gpu",
            "Type": hardware.gpu_type,
            "File": _devices(settings.gpu_devices, numbers),
            "Cores": cores,
        }
        yield " ".join(f"{key}={value}" for key, value in words.items() if value != "")


def _devices(prefix: str, numbers: list[int]) -> str:
    text = ranges(numbers)
    return f"{prefix}{text}" if text.isdigit() else f"{prefix}[{text}]"


# Topology


def _tree(cluster: SlurmCluster) -> Iterable[str]:
    for switch in cluster.switches:
        if switch.nodes:
            yield f"SwitchName={switch.name} Nodes={compress(switch.nodes)}"
        else:
            yield f"SwitchName={switch.name} Switches={compress(switch.switches)}"


def nodes_below(cluster: SlurmCluster) -> dict[str, frozenset[str]]:
    """Every node below each switch, as Slurm lists them."""
    found: dict[str, frozenset[str]] = {}
    for switch in cluster.switches:  # those below come first
        below = (found[name] for name in switch.switches)
        found[switch.name] = frozenset(switch.nodes).union(*below)
    return found


def _topology_yaml(cluster: SlurmCluster) -> Iterable[str]:
    """The same tree, and the leaf sets as blocks, for partitions with `Topology=block`."""
    yield from ("- topology: tree", "  cluster_default: true", "  tree:", "    switches:")
    for switch in cluster.switches:
        yield f"      - switch: {switch.name}"
        if switch.nodes:
            yield f"        nodes: {compress(switch.nodes)}"
        else:
            yield f"        children: {compress(switch.switches)}"
    sets = leaf_sets(cluster)
    if not sets:
        return
    yield from ("- topology: block", "  cluster_default: false", "  block:", "    block_sizes:")
    yield from (f"      - {size}" for size in block_sizes(cluster))
    yield "    blocks:"
    for switch in sets:
        yield f"      - block: {switch.name}"
        yield f"        nodes: {compress(switch.nodes)}"


def leaf_sets(cluster: SlurmCluster) -> list[Switch]:
    return [each for each in cluster.switches if each.nodes and each.name != WITHOUT_RAILS]


def block_sizes(cluster: SlurmCluster) -> list[int]:
    """Nodes of the smallest leaf set, and of a unit where all units are a power of two of sets.

    Slurm forms larger blocks from consecutive ones, so units of other sizes would be divided.
    """
    sets = leaf_sets(cluster)
    base = min(len(switch.nodes) for switch in sets)
    places = {switch.name: place for place, switch in enumerate(sets)}
    units = [switch for switch in cluster.switches if switch.level == 1]
    per_unit = {len(switch.switches) for switch in units}
    if len(per_unit) != 1 or len(units) < 2:
        return [base]
    count = per_unit.pop()
    aligned = all(
        [places[name] for name in unit.switches] == [*range(first * count, (first + 1) * count)]
        for first, unit in enumerate(units)
    )
    return [base, base * count] if aligned and count & (count - 1) == 0 else [base]


# Settings


_CGROUP = (
    "ConstrainCores=yes",
    "ConstrainDevices=yes",
    "ConstrainRAMSpace=yes",
    "ConstrainSwapSpace=yes",
)


def confined(settings: Settings) -> bool:
    """Whether jobs are confined by cgroups, of which only v2 is supported."""
    return settings.cgroups and settings.version >= CGROUP_V2_SINCE


def wanted(cluster: SlurmCluster, settings: Settings) -> dict[str, str]:
    """Every setting of slurm.conf that the model or the role determines."""
    confine = confined(settings)
    found = {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "ProctrackType": "proctrack/cgroup" if confine else "proctrack/linuxproc",
        "TaskPlugin": "task/affinity,task/cgroup" if confine else "task/affinity",
        "PrologFlags": "Alloc,Contain" if confine else "Alloc",
        "MpiDefault": settings.mpi,
        # slurmd has the limit of rails' memory; that of a login shell would replace it.
        "PropagateResourceLimitsExcept": "MEMLOCK",
        "GresTypes": "gpu" if any(each.gpus for each in cluster.hardware) else "",
        "TaskProlog": settings.task_prolog,
        "Prolog": settings.prolog,
        "Epilog": settings.epilog,
        "HealthCheckProgram": settings.health_check,
        "RebootProgram": settings.reboot_program,
    }
    if settings.version < YAML_SINCE:
        found["TopologyPlugin"] = "topology/tree"
    if settings.prolog:
        # Otherwise Slurm holds a job whose prolog failed, instead of starting it on other nodes.
        found["SchedulerParameters"] = "nohold_on_prolog_fail"
    if settings.health_check:
        found["HealthCheckInterval"] = str(settings.health_check_interval_s)
        found["HealthCheckNodeState"] = "ANY,CYCLE"
    if settings.reboot_program:
        found["ResumeTimeout"] = str(settings.boot_s)
    if settings.config_overrides:
        found["SlurmdParameters"] = "config_overrides"
    own = {key.lower() for key in settings.extra}
    found = {key: value for key, value in found.items() if key.lower() not in own}
    found.update((key, str(value)) for key, value in settings.extra.items() if value is not None)
    return {key: value for key, value in found.items() if value}


def written(cluster: SlurmCluster, settings: Settings) -> dict[str, str]:
    """Settings that slurm.conf does not already have."""
    return conf.written(wanted(cluster, settings), settings.known, settings.version)


def include_lines() -> list[str]:
    """The lines of slurm.conf that include the files, by names: slurmctld sends a file with a path
    to no configless slurmd, which then does not start."""
    return [f"Include {name}" for name in INCLUDED]


def main_text(cluster: SlurmCluster) -> str:
    """slurm.conf for clusters that have none: one controller per launcher, munge, no accounting."""
    return _page(
        [
            f"ClusterName={cluster.name}",
            *(f"SlurmctldHost={name}({address})" for name, address in cluster.controllers),
            "AuthType=auth/munge",
            "CredType=cred/munge",
            "SlurmUser=slurm",
            "StateSaveLocation=/var/lib/slurm/slurmctld",
            "SlurmdSpoolDir=/var/lib/slurm/slurmd",
            "SlurmctldPidFile=/run/slurmctld.pid",
            "SlurmdPidFile=/run/slurmd.pid",
            "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
            "SlurmdLogFile=/var/log/slurm/slurmd.log",
            "ReturnToService=1",
            *include_lines(),
        ]
    )

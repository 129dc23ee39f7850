# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI settings of one host: devices, transport, and the network to launch on.

Two files carry it. Open MPI's own parameter file holds what every process of Open MPI reads by
itself. The environment file holds what UCX and the loader read; login shells source it, and so
does the `orted` that the launcher starts on each node, whose children are the ranks. That way a
rank sees the devices of its own node, from any launcher and shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..core.part import PlanError
from ..qos import HostSettings, RdmaPort, mpi_environment
from .launch.launcher import HYDRA, OPEN_MPI, Launcher

ENVIRONMENT_FILE = "/etc/baremetal-mpi-roce/mpi.env"
PROFILE_FILE = "/etc/profile.d/baremetal-mpi-roce.sh"
PROGRAM_DIRECTORY = "/usr/local/libexec/baremetal-mpi-roce"
LAUNCH_AGENT = f"{PROGRAM_DIRECTORY}/orted"
HYDRA_SSH = f"{PROGRAM_DIRECTORY}/hydra-ssh"

FLAT = 16384
"""Nodes that the launcher starts by itself: more than a cluster has."""

TRANSPORTS: Mapping[str, str] = {"tcp": "tcp,sm,self", "rc": "rc,ud,sm,self"}
"""The transport asked for, and UCX_TLS for it: never `all`, or UCX could fall back silently.

`ud` is there because `rc` connects its queue pairs over it; `sm` and `self` are inside a node."""

CUDA_TRANSPORTS = ("cuda_copy", "cuda_ipc", "gdr_copy")
"""How UCX reaches GPU memory: not between nodes, so they are no way around `rc`."""

REACHABILITY = "UCX_IB_ROCE_REACHABILITY_MODE"
"""From 1.19 on UCX looks for a route to the other end in the tables of the kernel, and does not see
the rules that choose a table by source address: a rail of another number would be out of reach."""


@dataclass(frozen=True)
class Rail:
    """One rail as the model has it, with the name UCX knows it by."""

    interface: str
    gpu: Optional[int] = None
    address: str = ""
    number: Optional[int] = None
    """Of its rail in the model, which its planes share."""
    rdma: Optional[RdmaPort] = None
    """The RDMA device behind it and the place of its GID; None where the transport is not `rc`."""

    @property
    def ucx_device(self) -> str:
        if self.rdma is None:
            return self.interface
        return f"{self.rdma.device}:{self.rdma.port}"


@dataclass(frozen=True)
class Settings:
    """Everything that decides the files of one host."""

    management_network: str
    """As Open MPI's interface lists take it: `10.0.0.0/24`."""
    transport: str = "tcp"
    rails: tuple[Rail, ...] = ()
    slots: int = 0
    management_interface: str = ""
    management_address: str = ""
    """By which this host's interface is found where the model names none."""
    qos: Optional[HostSettings] = None
    """What RoCE traffic is marked with; with `rc` only."""
    cuda: tuple[str, ...] = ()
    """Of CUDA_TRANSPORTS those that this host's UCX has; none on a host without GPUs."""
    reachability_mode: bool = False
    """Whether this host's UCX knows REACHABILITY."""
    directories: Mapping[str, str] = field(default_factory=dict)
    """By variable: where this host has the shared file systems (`CLUSTER_CHECKPOINT_DIR`), and
    what of Open MPI is not on a default path (`MPI_ROCE_BIN`)."""
    oversubscribe: bool = False
    tree_spawn: bool = False
    concurrent_launches: int = 128
    launcher: Launcher = OPEN_MPI
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    extra_parameters: Mapping[str, str] = field(default_factory=dict)


def rails_by_rank(rails: Sequence[Rail], slots: int) -> list[list[Rail]]:
    """The rails of each local rank: rank k takes those of GPU k, all planes of them.

    Without a GPU k, rails are distributed in turn: with more rails than ranks a rank has
    several, with more ranks than rails they share. Planes of one rail stay together.
    """
    if not rails or slots < 1:
        return []
    groups: dict[object, list[Rail]] = {}
    for rail in rails:
        own = ("rail", rail.interface if rail.number is None else rail.number)
        groups.setdefault(own if rail.gpu is None else rail.gpu, []).append(rail)
    if all(rank in groups for rank in range(slots)):
        return [groups[rank] for rank in range(slots)]
    units = list(groups.values())
    if len(units) >= slots:
        return [[rail for unit in units[rank::slots] for rail in unit] for rank in range(slots)]
    return [units[rank % len(units)] for rank in range(slots)]


def gid_indexes_by_rank(ranks: Sequence[Sequence[Rail]]) -> list[int]:
    """The GID index of each local rank's rails: UCX takes one for all devices of a process."""
    found = []
    for rank, rails in enumerate(ranks):
        indexes = {rail.rdma.gid_index: rail.interface for rail in rails if rail.rdma is not None}
        if len(indexes) > 1:
            places = ", ".join(f"{index} on {name}" for index, name in sorted(indexes.items()))
            raise PlanError(
                f"the rails of local rank {rank} have their addresses at different GID indexes "
                f"({places}), and UCX takes one index for all devices of a process; remove the "
                "other addresses of these rails (--tags rails), so that their tables are alike"
            )
        found += list(indexes)
    return found


def environment(settings: Settings) -> dict[str, str]:
    """The variables of the environment file, in the order they are written."""
    values = {"UCX_TLS": TRANSPORTS[settings.transport]}
    ranks = rails_by_rank(settings.rails, settings.slots)
    if settings.rails:
        values["UCX_NET_DEVICES"] = ",".join(rail.ucx_device for rail in settings.rails)
        values["MPI_ROCE_RAILS_BY_RANK"] = " ".join(
            ",".join(rail.ucx_device for rail in rails) for rails in ranks
        )
    if settings.transport == "rc":
        values.update(_rdma_environment(settings, ranks))
    values.update(settings.directories)
    return {**values, **of_launcher(settings), **settings.extra_environment}


PROVIDER = "mlx"
"""Of libfabric, over UCX: with any transport, so that UCX_TLS and UCX_NET_DEVICES hold as for Open
MPI, and the smoke test reads from UCX what was used."""


def of_launcher(settings: Settings) -> dict[str, str]:
    """The variables of Intel MPI and Hydra; Open MPI has parameters."""
    if settings.launcher is not HYDRA:
        return {}
    values = {
        "I_MPI_FABRICS": "shm:ofi",
        "FI_PROVIDER": PROVIDER,
        # Unset, the provider wants an NVIDIA NIC, with TCP as well: prov/ucx/src/ucx_init.c of
        # ofiwg/libfabric. UCX_NET_DEVICES has precedence over it.
        "FI_MLX_DEVICES": "all",
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": HYDRA_SSH,
    }
    if settings.management_interface:
        values["I_MPI_HYDRA_IFACE"] = settings.management_interface
    if not settings.tree_spawn:
        values["I_MPI_HYDRA_BRANCH_COUNT"] = str(FLAT)
    if settings.oversubscribe:
        # 3: ranks that wait sleep; on shared cores an allreduce took a tenth of the time.
        values.update(I_MPI_PIN="0", I_MPI_THREAD_YIELD="3")
    return {**values, **settings.extra_parameters}


def _rdma_environment(settings: Settings, ranks: Sequence[Sequence[Rail]]) -> dict[str, str]:
    values = {
        "UCX_TLS": ",".join([TRANSPORTS["rc"], *settings.cuda]),
        # Left alone, UCX leaves rc for ud, in silence, in a job of more than 256 ranks.
        "UCX_RC_MAX_NUM_EPS": "inf",
    }
    planes = max((len(rails) for rails in ranks), default=1)
    if planes > 2:
        # Left alone, UCX spreads a large message over two devices of a process.
        values["UCX_MAX_RNDV_RAILS"] = str(planes)
    if settings.reachability_mode:
        values[REACHABILITY] = "all"
    indexes = gid_indexes_by_rank(ranks)
    ports = [rail.rdma for rail in settings.rails if rail.rdma is not None]
    if ports and settings.management_interface:
        # Ranks of NCCL, and of Gloo in PyTorch, meet over TCP: on management, and nothing is
        # guessed (without it, NCCL takes the first of veth*, br-*, cni0). Gloo knows no "=".
        values["NCCL_SOCKET_IFNAME"] = f"={settings.management_interface}"
        values["GLOO_SOCKET_IFNAME"] = settings.management_interface
    if len({port.gid_index for port in ports}) > 1:
        # No index is right for all rails: rail-bind gives each rank that of its own rail, and a
        # program that is not bound leaves the choice to UCX.
        values["MPI_ROCE_GID_INDEXES_BY_RANK"] = " ".join(map(str, indexes))
    if settings.qos is not None:
        values.update(mpi_environment(settings.qos, ports))
    return values


def parameters(settings: Settings) -> dict[str, str]:
    """Open MPI's parameters for this host; Intel MPI has variables."""
    if settings.launcher is HYDRA:
        return {}
    interfaces = [rail.interface for rail in settings.rails]
    values = {
        # UCX or nothing: Debian excludes it by default, and MPI is then slow without a message.
        "pml": "ucx",
        "pml_ucx_tls": "any",
        "pml_ucx_devices": "any",
        "osc": "^pt2pt",
        "btl": "^openib,uct,ofi",
        # Launching uses management only; other TCP stays on the rails.
        "oob_tcp_if_include": settings.management_network,
        "btl_tcp_if_include": ",".join(interfaces) or settings.management_network,
        "orte_launch_agent": LAUNCH_AGENT,
        "plm_rsh_no_tree_spawn": "0" if settings.tree_spawn else "1",
        "plm_rsh_num_concurrent": str(settings.concurrent_launches),
    }
    if settings.oversubscribe:
        # More ranks than cores: give the core away while waiting, and pin nothing.
        values["mpi_yield_when_idle"] = "1"
        values["hwloc_base_binding_policy"] = "none"
    return {**values, **settings.extra_parameters}


def environment_text(values: Mapping[str, str]) -> str:
    """The body of the environment file: `KEY=value` lines that a POSIX shell can source."""
    return "".join(f"{key}={shlex.quote(value)}\n" for key, value in values.items())


def parse_environment(text: str) -> dict[str, str]:
    """What a shell sets when it sources `text`, for files written by `environment_text`."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            key, _separator, value = line.partition("=")
            words = shlex.split(value)
            values[key.strip()] = words[0] if words else ""
    return values


def parameter_lines(values: Mapping[str, str]) -> list[str]:
    return [f"{key} = {value}" for key, value in values.items()]


@dataclass(frozen=True)
class Set:
    """A line that sets something in a file of parameters."""

    number: int
    name: str
    value: str
    place: str
    """`before`, `inside` or `after` the managed block; `before` where there is none."""


def settings_in(text: str) -> list[Set]:
    """What a file of `name = value` sets, in order. Sections of UCX's hold for some processors."""
    found, place, section = [], "before", False
    for number, raw in enumerate(text.splitlines(), 1):
        if raw in (BEGIN, END):
            place = "inside" if raw == BEGIN else "after"
        line = raw.split("#", 1)[0].strip()
        section = section or line.startswith("[")
        name, separator, value = line.partition("=")
        if separator and not section:
            found.append(Set(number, name.strip(), value.strip(), place))
    return found


BEGIN, END = "# BEGIN baremetal.mpi_roce mpi", "# END baremetal.mpi_roce mpi"
DECISIVE = re.compile(
    r"\w+_if_(?:in|ex)clude|(?:pml|mtl|btl|osc|oob|plm|ras|ess|routed|ptl|gds|prte|pmix)"
    r"|pml_ucx_\w+|osc_ucx_\w+|(?:plm|prte|orte)_\w*(?:agent|args|hostfile|ssh_\w+)"
    r"|rmaps_\w*(?:policy|by)|mca_(?:base_)?(?:component_path|param_files)"
)
"""Parameters of Open MPI, PMIx and PRRTE that choose how ranks start and by what they meet."""
OF_VENDORS = {("mtl", "^ofi"), ("mtl", "^psm2"), ("gds", "hash"), ("pmix", "^s1,s2,cray,isolated")}
"""Lines of distributions' own files."""


def foreign_parameters(text: str, ours: Mapping[str, str]) -> list[Set]:
    """Lines of Open MPI's file that decide against ours, or of what we leave to Open MPI.

    A line above the block on a parameter that the block has decides nothing.
    """
    return [
        each
        for each in settings_in(text)
        if each.place != "inside"
        and each.name not in ours
        and DECISIVE.fullmatch(each.name)
        and (each.name, each.value) not in OF_VENDORS
    ]


def conflicts_with(name: str, ours: Mapping[str, str]) -> str:
    """The parameter of ours with which Open MPI refuses this one: it takes one of both lists."""
    for one, other in (("_if_exclude", "_if_include"), ("_if_include", "_if_exclude")):
        opposite = name.removesuffix(one) + other
        if name.endswith(one) and opposite in ours:
            return opposite
    return ""


def rails_from_model(entries: Sequence[Mapping[str, Any]]) -> list[Rail]:
    """`cluster_rails` as the model compiles it, as rails."""
    return [
        Rail(each["interface"], each.get("gpu"), str(each.get("address") or ""), each.get("rail"))
        for each in entries
    ]

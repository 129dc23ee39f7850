# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI settings of a host: devices, transport, and the network used for launching.

Every process of Open MPI reads the parameter file. Login shells source the environment file, and so
does the `orted` that mpirun starts on each node as the parent of ranks."""

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
PROGRAM = f"{PROGRAM_DIRECTORY}/allreduce.py"
RAIL_BIND = f"{PROGRAM_DIRECTORY}/rail-bind"

FLAT = 16384
"""Number of nodes that the launcher starts directly: more than any cluster has."""

TRANSPORTS: Mapping[str, str] = {"tcp": "tcp,sm,self", "rc": "rc,ud,sm,self"}
"""UCX_TLS by transport. Never `all`, which would let UCX fall back silently.

`rc` connects its queue pairs over `ud`; `sm` and `self` work inside a node.
"""

CUDA_TRANSPORTS = ("cuda_copy", "cuda_ipc", "gdr_copy")
"""Transports of UCX for GPU memory. They do not work between nodes, so they cannot replace `rc`."""

REACHABILITY = "UCX_IB_ROCE_REACHABILITY_MODE"
"""Since 1.19, UCX searches the kernel's routing tables for a route to the peer, but ignores the
rules that select a table by source address: rails with another number would seem unreachable."""
LOCAL_SUBNET, PREFIX = "UCX_IB_ROCE_LOCAL_SUBNET", "UCX_IB_ROCE_SUBNET_PREFIX_LEN"
"""Since 1.13, UCX can connect only devices whose addresses have a common prefix (openucx/ucx
9466d104, uct_ib_iface_roce_is_local_subnet). Otherwise it pairs the devices of two processes in
their order, with or without a path to each other (src/ucp/wireup/select.c; openucx/ucx#7295)."""


@dataclass(frozen=True)
class MpiRail:
    interface: str
    gpu: Optional[int] = None
    address: str = ""
    number: Optional[int] = None
    """Number of the rail in the model; planes of a NIC share it."""
    apart: bool = False
    """Whether the planes have no path to each other."""
    plane_network: str = ""
    """The prefix of all rails of its plane, if planes are apart and each has one."""
    rdma: Optional[RdmaPort] = None
    """RDMA device of the rail and its GID index; None unless the transport is `rc`."""

    @property
    def ucx_device(self) -> str:
        return f"{self.rdma.device}:{self.rdma.port}" if self.rdma else self.interface


@dataclass(frozen=True)
class MpiSettings:
    management_network: str
    """In the syntax of Open MPI's interface lists: `10.0.0.0/24`."""
    transport: str = "tcp"
    rails: tuple[MpiRail, ...] = ()
    slots: int = 0
    management_interface: str = ""
    management_address: str = ""
    """Address used to find the interface if the model does not name it."""
    qos: Optional[HostSettings] = None
    """Traffic class and service level of RoCE; with `rc` only."""
    cuda: tuple[str, ...] = ()
    """Those of CUDA_TRANSPORTS that the installed UCX has; empty on a host without GPUs."""
    reachability_mode: bool = False
    directories: Mapping[str, str] = field(default_factory=dict)
    """Directories by variable: shared file systems (`CLUSTER_CHECKPOINT_DIR`), and parts of Open
    MPI outside the default paths (`MPI_ROCE_BIN`)."""
    oversubscribe: bool = False
    tree_spawn: bool = False
    concurrent_launches: int = 128
    launcher: Launcher = OPEN_MPI
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    extra_parameters: Mapping[str, str] = field(default_factory=dict)


def rails_by_rank(rails: Sequence[MpiRail], slots: int) -> list[list[MpiRail]]:
    """Rails of each local rank: rank k uses all planes of the rail of GPU k.

    If there is no GPU k, rails are assigned round robin: a rank gets several if there are more
    rails than ranks, and ranks share a rail otherwise. Planes of a rail stay together.
    """
    if not rails or slots < 1:
        return []
    groups: dict[object, list[MpiRail]] = {}
    for rail in rails:
        number = ("rail", rail.interface if rail.number is None else rail.number)
        groups.setdefault(number if rail.gpu is None else rail.gpu, []).append(rail)
    if all(rank in groups for rank in range(slots)):
        return [groups[rank] for rank in range(slots)]
    units = list(groups.values())
    if len(units) >= slots:
        return [[rail for unit in units[rank::slots] for rail in unit] for rank in range(slots)]
    return [units[rank % len(units)] for rank in range(slots)]


def gid_indexes_by_rank(ranks: Sequence[Sequence[MpiRail]]) -> list[int]:
    """GID index of each local rank's rails: UCX uses the same one for all devices of a process."""
    found = []
    for rank, rails in enumerate(ranks):
        indexes = {rail.rdma.gid_index: rail.interface for rail in rails if rail.rdma is not None}
        if len(indexes) > 1:
            places = ", ".join(f"{index} on {name}" for index, name in sorted(indexes.items()))
            raise PlanError(
                f"the rails of local rank {rank} have their addresses at different GID indexes "
                f"({places}), but UCX uses one for all devices of a process; remove other "
                "addresses of these rails (--tags rails)"
            )
        found += list(indexes)
    return found


def environment(settings: MpiSettings) -> dict[str, str]:
    values = {"UCX_TLS": TRANSPORTS[settings.transport]}
    ranks = rails_by_rank(settings.rails, settings.slots)
    if settings.rails:
        values["UCX_NET_DEVICES"] = ",".join(rail.ucx_device for rail in settings.rails)
        by_rank = (",".join(rail.ucx_device for rail in rails) for rails in ranks)
        values["MPI_ROCE_RAILS_BY_RANK"] = " ".join(by_rank)
    elif settings.slots and settings.management_interface:
        values["UCX_NET_DEVICES"] = settings.management_interface
    if settings.transport == "rc":
        values.update(_rdma_environment(settings, ranks))
    values.update(settings.directories)
    return {**values, **of_launcher(settings), **settings.extra_environment}


PROVIDER = "mlx"
"""libfabric provider that uses UCX, with any transport, as Open MPI does."""


def of_launcher(settings: MpiSettings) -> dict[str, str]:
    """Variables of Intel MPI and Hydra; Open MPI has parameters instead."""
    if settings.launcher is not HYDRA:
        return {}
    values = {
        "I_MPI_FABRICS": "shm:ofi",
        "FI_PROVIDER": PROVIDER,
        # By default the provider requires an NVIDIA NIC even for TCP: prov/ucx/src/ucx_init.c of
        # ofiwg/libfabric. UCX_NET_DEVICES takes precedence over it.
        "FI_MLX_DEVICES": "all",
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": HYDRA_SSH,
    }
    if settings.management_interface:
        values["I_MPI_HYDRA_IFACE"] = settings.management_interface
    if not settings.tree_spawn:
        values["I_MPI_HYDRA_BRANCH_COUNT"] = str(FLAT)
    if settings.oversubscribe:
        # 3: ranks sleep while waiting. On shared cores this made an allreduce ten times as fast.
        values.update(I_MPI_PIN="0", I_MPI_THREAD_YIELD="3")
    return {**values, **settings.extra_parameters}


def _rdma_environment(settings: MpiSettings, ranks: Sequence[Sequence[MpiRail]]) -> dict[str, str]:
    # By default UCX silently switches from rc to ud in a job of more than 256 ranks.
    values = {"UCX_TLS": ",".join([TRANSPORTS["rc"], *settings.cuda]), "UCX_RC_MAX_NUM_EPS": "inf"}
    planes = max((len(rails) for rails in ranks), default=1)
    if planes > 2:
        # By default UCX splits a large message over two devices of a process.
        values["UCX_MAX_RNDV_RAILS"] = str(planes)
    values.update(_of_planes(settings))
    indexes = gid_indexes_by_rank(ranks)
    ports = [rail.rdma for rail in settings.rails if rail.rdma is not None]
    if ports and settings.management_interface:
        # Ranks of NCCL, and of Gloo in PyTorch, connect over TCP on the management interface.
        # Without the variable, NCCL uses the first of veth*, br-*, cni0. Gloo does not support "=".
        values["NCCL_SOCKET_IFNAME"] = f"={settings.management_interface}"
        values["GLOO_SOCKET_IFNAME"] = settings.management_interface
    if len({port.gid_index for port in ports}) > 1:
        # No index fits all rails: rail-bind sets the index of each rank's rail, and UCX chooses it
        # for programs that do not use rail-bind.
        values["MPI_ROCE_GID_INDEXES_BY_RANK"] = " ".join(map(str, indexes))
    if settings.qos is not None:
        values.update(mpi_environment(settings.qos, ports))
    if ports and settings.qos is not None and settings.qos.queue_pairs > 1:
        values["NCCL_IB_QPS_PER_CONNECTION"] = str(settings.qos.queue_pairs)
    return values


def _of_planes(settings: MpiSettings) -> dict[str, str]:
    """Which devices UCX and NCCL connect, if planes have no path to each other."""
    values = {REACHABILITY: "all"} if settings.reachability_mode else {}
    if not any(rail.apart for rail in settings.rails):
        return values
    lengths = {rail.plane_network.partition("/")[2] for rail in settings.rails}
    if lengths - {""} and len(lengths) == 1:
        values = {LOCAL_SUBNET: "y", PREFIX: lengths.pop()}
        if settings.reachability_mode:
            values[REACHABILITY] = "local_subnet"
    # A ring enters and leaves a node by one NIC, and so stays in its plane. The default lets it
    # change to another NIC (NVIDIA/nccl 5067397c, src/graph/search.cc; NVIDIA/nccl#2193).
    return {**values, "NCCL_CROSS_NIC": "0"}


def parameters(settings: MpiSettings) -> dict[str, str]:
    """Parameters of Open MPI on this host; Intel MPI has variables instead."""
    if settings.launcher is HYDRA:
        return {}
    interfaces = [rail.interface for rail in settings.rails]
    values = {
        # Only UCX: Debian excludes it by default, which makes MPI slow without a warning.
        "pml": "ucx",
        "pml_ucx_tls": "any",
        "pml_ucx_devices": "any",
        "osc": "^pt2pt",
        "btl": "^openib,uct,ofi",
        # Launching uses the management network only; other TCP connections stay on the rails.
        "oob_tcp_if_include": settings.management_network,
        "btl_tcp_if_include": ",".join(interfaces) or settings.management_network,
        "orte_launch_agent": LAUNCH_AGENT,
        "plm_rsh_no_tree_spawn": "0" if settings.tree_spawn else "1",
        "plm_rsh_num_concurrent": str(settings.concurrent_launches),
    }
    if settings.oversubscribe:
        # More ranks than cores: yield while waiting, and do not bind.
        values["mpi_yield_when_idle"] = "1"
        values["hwloc_base_binding_policy"] = "none"
    return {**values, **settings.extra_parameters}


def environment_text(values: Mapping[str, str]) -> str:
    """Content of the environment file: lines `KEY=value` that a POSIX shell can source."""
    return "".join(f"{key}={shlex.quote(value)}\n" for key, value in values.items())


def parse_environment(text: str) -> dict[str, str]:
    """Variables that a shell gets from `text`, the output of `environment_text`."""
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key: "".join(shlex.split(value)) for key, is_, value in lines if is_}


@dataclass(frozen=True)
class Set:
    number: int
    name: str
    value: str
    place: str
    """`before`, `inside` or `after` the managed block; `before` if there is no block."""


def settings_in(text: str) -> list[Set]:
    """Settings in a file of `name = value` lines, in order. Sections of UCX's file apply to some
    processors only."""
    found, position, section = [], "before", False
    for number, raw in enumerate(text.splitlines(), 1):
        if raw in (BEGIN, END):
            position = "inside" if raw == BEGIN else "after"
        line = raw.split("#", 1)[0].strip()
        section = section or line.startswith("[")
        name, separator, value = line.partition("=")
        if separator and not section:
            found.append(Set(number, name.strip(), value.strip(), position))
    return found


BEGIN, END = "# BEGIN baremetal.mpi_roce mpi", "# END baremetal.mpi_roce mpi"
DECISIVE = re.compile(
    r"\w+_if_(?:in|ex)clude|(?:pml|mtl|btl|osc|oob|plm|ras|ess|routed|ptl|gds|prte|pmix)"
    r"|pml_ucx_\w+|osc_ucx_\w+|(?:plm|prte|orte)_\w*(?:agent|args|hostfile|ssh_\w+)"
    r"|rmaps_\w*(?:policy|by)|mca_(?:base_)?(?:component_path|param_files)"
)
"""Parameters of Open MPI, PMIx and PRRTE that affect how ranks start and connect."""
OF_VENDORS = {("mtl", "^ofi"), ("mtl", "^psm2"), ("gds", "hash"), ("pmix", "^s1,s2,cray,isolated")}
"""Lines of the file as distributions ship it."""


def foreign_parameters(text: str, ours: Mapping[str, str]) -> list[Set]:
    """Lines of Open MPI's file that set a parameter which must keep its default."""
    others = (each for each in settings_in(text) if each.place != "inside")
    decisive = (each for each in others if each.name not in ours and DECISIVE.fullmatch(each.name))
    return [each for each in decisive if (each.name, each.value) not in OF_VENDORS]


def rails_from_model(entries: Sequence[Mapping[str, Any]]) -> list[MpiRail]:
    return [
        MpiRail(
            rail["interface"],
            rail.get("gpu"),
            str(rail.get("address") or ""),
            rail.get("rail"),
            "networks" in rail,
            rail.get("plane_network", ""),
        )
        for rail in entries
    ]

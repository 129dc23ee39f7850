# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What MPI needs to be told on one host: devices, transport, and the network to launch on.

Two files carry it. Open MPI's own parameter file holds what every process of Open MPI reads by
itself. The environment file holds what UCX and the loader read; login shells source it, and so
does the `orted` that the launcher starts on each node, whose children are the ranks. That way a
rank sees the devices of its own node, whoever launches it and from whichever shell.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

ENVIRONMENT_FILE = "/etc/baremetal-mpi-roce/mpi.env"
PROFILE_FILE = "/etc/profile.d/baremetal-mpi-roce.sh"
PROGRAM_DIRECTORY = "/usr/local/libexec/baremetal-mpi-roce"
LAUNCH_AGENT = f"{PROGRAM_DIRECTORY}/orted"

TRANSPORTS: Mapping[str, str] = {"tcp": "tcp,sm,self", "rc": "rc,ud,sm,self"}
"""The transport asked for, and UCX_TLS for it: never `all`, or UCX could fall back in silence.

`ud` is there because `rc` connects its queue pairs over it; `sm` and `self` are inside a node."""


class SettingsError(Exception):
    """A setting that cannot work; the text says which and what to do."""


@dataclass(frozen=True)
class Rail:
    """One rail as the model has it, with the name UCX knows it by."""

    interface: str
    gpu: Optional[int] = None
    device: str = ""

    @property
    def ucx_device(self) -> str:
        return self.device or self.interface


@dataclass(frozen=True)
class Layout:
    """Where the distribution keeps Open MPI. Empty means: on the default path."""

    mca_file: str
    bin_directory: str = ""
    library_directory: str = ""
    python_directory: str = ""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the files of one host."""

    layout: Layout
    management_network: str
    transport: str = "tcp"
    rails: tuple[Rail, ...] = ()
    slots: int = 0
    oversubscribe: bool = False
    tree_spawn: bool = False
    concurrent_launches: int = 128
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    extra_parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            known = ", ".join(TRANSPORTS)
            raise SettingsError(
                f"transport {self.transport!r} is not known; choose one of: {known}"
            )
        names = [rail.interface for rail in self.rails]
        for name in sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"rail {name} is listed twice; every rail has its own interface")


def management_network(address: str, prefix: int) -> str:
    """The management network as Open MPI's interface lists take it: `10.0.0.0/24`."""
    return str(ipaddress.ip_interface(f"{address}/{prefix}").network)


def rails_by_rank(rails: Sequence[Rail], slots: int) -> list[list[str]]:
    """The rails of each local rank, by UCX name: rank k takes those of GPU k.

    Where the model names no GPU, ranks and rails are dealt round: with more rails than ranks a rank
    has several, with more ranks than rails they share.
    """
    if not rails or slots < 1:
        return []
    by_gpu: dict[int, list[str]] = {}
    for rail in rails:
        if rail.gpu is not None:
            by_gpu.setdefault(rail.gpu, []).append(rail.ucx_device)
    if all(rank in by_gpu for rank in range(slots)):
        return [by_gpu[rank] for rank in range(slots)]
    names = [rail.ucx_device for rail in rails]
    if len(names) >= slots:
        return [names[rank::slots] for rank in range(slots)]
    return [[names[rank % len(names)]] for rank in range(slots)]


def environment(settings: Settings) -> dict[str, str]:
    """The variables of the environment file, in the order they are written."""
    values = {"UCX_TLS": TRANSPORTS[settings.transport]}
    if settings.rails:
        values["UCX_NET_DEVICES"] = ",".join(rail.ucx_device for rail in settings.rails)
        ranks = rails_by_rank(settings.rails, settings.slots)
        values["MPI_ROCE_RAILS_BY_RANK"] = " ".join(",".join(names) for names in ranks)
    layout = settings.layout
    for key, directory in (
        ("MPI_ROCE_BIN", layout.bin_directory),
        ("MPI_ROCE_LIB", layout.library_directory),
        ("MPI_ROCE_PYTHON", layout.python_directory),
    ):
        if directory:
            values[key] = directory
    return {**values, **settings.extra_environment}


def parameters(settings: Settings) -> dict[str, str]:
    """Open MPI's parameters for this host."""
    interfaces = [rail.interface for rail in settings.rails]
    values = {
        # UCX or nothing: Debian excludes it by default, and MPI is then slow and says nothing.
        "pml": "ucx",
        "pml_ucx_tls": "any",
        "pml_ucx_devices": "any",
        "osc": "^pt2pt",
        "btl": "^openib,uct,ofi",
        # Launching talks over management only; whatever else speaks TCP stays on the rails.
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


def effective_parameters(text: str) -> dict[str, str]:
    """What Open MPI takes from a parameter file: the last of several lines wins."""
    values: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.split("#", 1)[0]
        key, separator, value = line.partition("=")
        if separator:
            values[key.strip()] = value.strip()
    return values


def rdma_devices(sys_root: Path = Path("/sys")) -> dict[str, str]:
    """The RDMA device and port behind each network interface: `{"rail0": "mlx5_0:1"}`.

    Read from the port's GID table, which every RoCE driver fills, Soft-RoCE as well.
    """
    found: dict[str, str] = {}
    for port in sorted((sys_root / "class/infiniband").glob("*/ports/*")):
        for entry in sorted((port / "gid_attrs/ndevs").glob("*")):
            try:
                name = entry.read_text(encoding="ascii").strip()
            except OSError:
                continue  # an empty GID slot reads as EINVAL
            found.setdefault(name, f"{port.parents[1].name}:{port.name}")
    return found


def with_devices(rails: Sequence[Rail], transport: str, devices: Mapping[str, str]) -> list[Rail]:
    """The rails with the names UCX needs for `transport`: RDMA devices for `rc`."""
    if transport != "rc":
        return list(rails)
    missing = [rail.interface for rail in rails if rail.interface not in devices]
    if missing:
        raise SettingsError(
            f"transport rc was asked for, and {', '.join(missing)} has no RDMA device; load the "
            "driver (ibv_devices lists what is there), or set mpi_stack_transport to tcp"
        )
    return [Rail(rail.interface, rail.gpu, devices[rail.interface]) for rail in rails]


def rails_from_model(entries: Sequence[Mapping[str, Any]]) -> list[Rail]:
    """`cluster_rails` as the model compiles it, as rails."""
    rails = []
    for number, entry in enumerate(entries):
        name = entry.get("interface")
        if not isinstance(name, str) or not name:
            raise SettingsError(f"cluster_rails[{number}] has no interface; see the cluster model")
        rails.append(Rail(name, entry.get("gpu")))
    return rails

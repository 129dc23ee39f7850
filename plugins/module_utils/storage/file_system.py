# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A shared file system: an entry of `cluster_filesystems` with all defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

NFS, LUSTRE = "nfs", "lustre"
TCP, RDMA = "tcp", "rdma"
CHECKPOINTS, DATASETS, HOME, SOFTWARE, SCRATCH = (
    "checkpoints", "datasets", "home", "software", "scratch"
)  # fmt: skip
PURPOSES = (CHECKPOINTS, DATASETS, HOME, SOFTWARE, SCRATCH)


@dataclass(frozen=True)
class Nfs:
    """How the server is accessed. `hard` is not optional, as soft mounts lose jobs' data."""

    version: str = "4.2"
    transport: str = TCP
    port: int = 2049
    connections: int = 8


@dataclass(frozen=True)
class Lustre:
    flock: bool = True


@dataclass(frozen=True)
class Serve:
    """The host in this cluster that serves the path in `source` over NFS."""

    host: str
    device: str = ""
    format: str = ""


@dataclass(frozen=True)
class Expectation:
    """Minimum rates in 10^9 bytes per second; 0 for none."""

    write_gb_s: float = 0.0
    read_gb_s: float = 0.0
    together_write_gb_s: float = 0.0
    together_read_gb_s: float = 0.0


@dataclass(frozen=True)
class FileSystem:
    """The keys are described in model/storage_keys.py."""

    name: str
    type: str
    source: str
    mount: str
    purpose: str
    owner: str = ""
    """Owner of the top directory; empty for the MPI user."""
    group: str = ""
    mode: str = "0770"
    space_gib: int = 0
    files: int = 0
    hosts: tuple[str, ...] = ("compute", "launcher")
    """Groups that mount it."""
    options: tuple[str, ...] = ()
    nfs: Nfs = field(default_factory=Nfs)
    lustre: Lustre = field(default_factory=Lustre)
    serve: Optional[Serve] = None
    expect: Expectation = field(default_factory=Expectation)
    managed: bool = True
    """False: others mount it, and it is only verified."""

    @property
    def server(self) -> str:
        """Host or address of an NFS server, IPv6 with brackets."""
        return self.source.rpartition(":/")[0]

    @property
    def path(self) -> str:
        return "/" + self.source.rpartition(":/")[2]

    def as_variable(self) -> dict[str, Any]:
        """The inverse of `of_variable`, with only the section of its type, `nfs` or `lustre`."""
        value = asdict(self)
        for name in {NFS, LUSTRE} - {self.type}:
            del value[name]
        if self.managed:
            del value["managed"]
        return {**value, "hosts": list(self.hosts), "options": list(self.options)}


PORTS = {TCP: 2049, RDMA: 20049}
"""Default port by transport; IANA assigned 20049 to NFS over RDMA."""


def of_variable(entry: Mapping[str, Any]) -> FileSystem:
    """Read an entry of `cluster_filesystems`, which the controller validated."""
    nfs, serve = dict(entry.get(NFS) or {}), entry.get("serve")
    nfs["port"] = nfs.get("port") or PORTS[nfs.get("transport", TCP)]
    nfs["version"] = str(nfs.get("version", Nfs.version))
    return FileSystem(
        **{
            **entry,
            "hosts": tuple(entry.get("hosts", ("compute", "launcher"))),
            "options": tuple(entry.get("options", ())),
            "nfs": Nfs(**nfs),
            "lustre": Lustre(**(entry.get(LUSTRE) or {})),
            "serve": Serve(**serve) if serve else None,
            "expect": Expectation(**(entry.get("expect") or {})),
        }
    )

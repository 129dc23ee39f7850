# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who has RDMA devices open: they would lose them, or go on with another driver's libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..hardware import tree as sysfs

DEVICES = "/dev/infiniband/"
SHOWN = 8


def users(root: Path = Path("/")) -> list[str]:
    """One line each, processes by name and number first; empty when nothing uses RDMA."""
    return [*_processes(root / "proc"), *_mounts(root), *_nvme(root)]


def shown(found: list[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _processes(proc: Path) -> Iterator[str]:
    for pid in sorted((name for name in sysfs.names(proc) if name.isdigit()), key=int):
        files = proc / pid / "fd"
        for name in sysfs.names(files):
            try:
                target = str((files / name).readlink())
            except OSError:  # closed, or ended, meanwhile
                continue
            if target.startswith(DEVICES):
                yield f"{sysfs.text(proc / pid / 'comm') or 'process'} ({pid})"
                break


def _mounts(root: Path) -> Iterator[str]:
    for line in sysfs.text(root / "proc/mounts").splitlines():
        source, where, kind, options = [*line.split(), "", "", "", ""][:4]
        nfs = kind.startswith("nfs") and "proto=rdma" in options.split(",")
        lustre = kind == "lustre" and "@o2ib" in source
        if nfs or lustre:
            yield f"{where} ({kind} over RDMA)"


def _nvme(root: Path) -> Iterator[str]:
    for name in sysfs.names(root / "sys/class/nvme"):
        if sysfs.text(root / "sys/class/nvme" / name / "transport") == "rdma":
            yield f"{name} (NVMe over RDMA)"

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What no set can say, whatever the versions: keys that need or exclude each other.

Which versions go together is in compatibility.py.
"""

from __future__ import annotations

from typing import Any

from ..schema.findings import Findings, Path, dotted
from .software_set import DOCA

Value = dict[str, Any]
OF_THE_GPU = ("cuda", "dcgm", "gdrcopy", "nccl")


def check_software(value: Value, findings: Findings, path: Path) -> None:
    """Each rule where the sections that it looks at are right by themselves."""
    if findings.clean((*path, "rdma")):
        _doca(value["rdma"], findings, path)
    if findings.clean((*path, "driver")):
        _without_driver(value, findings, path)
    if findings.clean((*path, "repositories"), (*path, "rdma"), (*path, "driver")):
        _repositories(value, findings, path)


def _doca(rdma: Value, findings: Findings, path: Path) -> None:
    if rdma["source"] == DOCA and not rdma["version"]:
        findings.add(
            "software.no_doca_version",
            (*path, "rdma", "version"),
            "is missing, and the source is doca",
            "Write the release of DOCA",
        )
    for key in ("version", "profile"):
        if rdma["source"] != DOCA and rdma[key]:
            findings.add(
                "software.of_doca",
                (*path, "rdma", key),
                f"{rdma[key]!r} is of DOCA, and {dotted((*path, 'rdma', 'source'))} is "
                f"{rdma['source']}",
                "Leave it out, or write source: doca",
                value=rdma[key],
            )


def _without_driver(value: Value, findings: Findings, path: Path) -> None:
    if value["driver"]:
        return
    for key in OF_THE_GPU:
        if findings.clean((*path, key)) and value[key]:
            findings.add(
                "software.needs_driver",
                (*path, key),
                f"{value[key]!r} needs the NVIDIA driver, and the set has none",
                f"Write {dotted((*path, 'driver', 'version'))}, or leave it out",
                value=value[key],
            )


def _repositories(value: Value, findings: Findings, path: Path) -> None:
    repositories = value["repositories"]
    for name, needed, why in (
        ("cuda", value["driver"] is not None, "the driver comes from it"),
        ("doca", value["rdma"]["source"] == DOCA, "rdma.source is doca"),
    ):
        if needed and not repositories[name]:
            findings.add(
                "software.no_repository",
                (*path, "repositories", name),
                f"is missing, and {why}",
                "Add it with key and key_sha256",
            )

#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the tables of docs/software-set.md from the code.

It has no options. Only text between marks is generated. A unit test compares the page with its
output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Union

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "software-set.md"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (  # noqa: E402
    SYSTEMS,
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (  # noqa: E402
    gpu_packages,
    rdma_packages,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.floors import (  # noqa: E402
    FLOORS,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (  # noqa: E402
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import (  # noqa: E402
    cuda_keys,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (  # noqa: E402
    read_software,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (  # noqa: E402
    RULES,
    STATUSES,
)

EXAMPLE = {
    "kernel": "",
    "rdma": {"source": "doca", "version": "3.2.1"},
    "driver": {"version": "595.71.05"},
    "cuda": "13.2",
    "dcgm": "4.5.3",
    "gdrcopy": "2.5.1",
    "nccl": "2.29.7",
    "repositories": {
        "cuda": {"key": "keys/cuda.asc", "key_sha256": ""},
        "doca": {"key": "keys/doca.asc", "key_sha256": ""},
    },
}
NODES = (("Ubuntu", "24.04", "6.8.0-79-generic"), ("Rocky", "9.6", "5.14.0-570.12.1.el9_6.x86_64"))

BY_CONSTRUCTION = (
    (
        "fabric manager, NSCQ, IMEX or persistenced of another version than the driver",
        "their versions have no key, and one transaction installs them with the driver",
    ),
    (
        "`mft` from two sources",
        "DOCA's is installed if the set has DOCA, else that of the CUDA repository; the other "
        "one is hidden",
    ),
    (
        "the vendor's pinning package in addition to the pins of this collection",
        "`nvidia-driver-pinning-*` of the set's driver is removed",
    ),
    (
        "open and proprietary modules, or packages of two branches, side by side",
        "the other ones are removed in the same transaction",
    ),
    (
        "NCCL built for another CUDA major than the toolkit's, or DCGM than the driver's",
        "NCCL's revision follows from `cuda`, the name of DCGM's package from `driver.version`",
    ),
)
"""Invalid combinations that a model cannot express."""


def page(text: str) -> str:
    """Return the page with its generated parts replaced. Raises ValueError for a missing mark."""
    for name, lines in (
        ("compatibility", _compatibility()),
        ("floors", _floors()),
        ("systems", _systems()),
        ("signing keys", _signing_keys()),
        ("packages", _packages(read_software(EXAMPLE))),
    ):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, begin_mark, rest = text.partition(begin)
        _old, end_mark, after = rest.partition(end)
        if not (begin_mark and end_mark):
            raise ValueError(f"{PAGE}: no marks of {name}")
        text = before + begin + "\n".join(lines) + "\n" + end + after
    return text


def _compatibility() -> Iterator[str]:
    yield "| | combination | why | what to do | source |"
    yield "|---|---|---|---|---|"
    for status in STATUSES:
        for rule in RULES:
            if rule.status == status and not rule.name.endswith("_floor"):
                yield (
                    f"| {status} | `{rule.key}`: {rule.when} | {rule.reason} | {rule.remedy} "
                    f"| {rule.source} |"
                )
    for combination, reason in BY_CONSTRUCTION:
        yield f"| cannot be written | {combination} | {reason} | | |"


def _floors() -> Iterator[str]:
    yield "| component | minimum | below it | source |"
    yield "|---|---|---|---|"
    for floor in FLOORS.values():
        for source in dict.fromkeys(line.source for line in floor.lines.values()):
            firsts = ", ".join(
                f"`{line.first}`" for line in floor.lines.values() if line.source == source
            )
            since = f" (affected from `{floor.since}` on)" if floor.since else ""
            yield f"| `{floor.component}` | {firsts}{since} | {floor.reason} | {source} |"


def _systems() -> Iterator[str]:
    yield "| system | NVIDIA driver | DOCA |"
    yield "|---|---|---|"
    for system in SYSTEMS:
        yield f"| {system.title} | {_first(system.driver)} | {_first(system.doca)} |"


def _first(version: Union[int, str, None]) -> str:
    if version is None:
        return "-"
    return f"from {version} on" if version else "any"


def _signing_keys() -> Iterator[str]:
    yield "| nodes | file | fingerprint |"
    yield "|---|---|---|"
    for releases, path, fingerprint in cuda_keys():
        shown = (
            f"`{fingerprint}`" if fingerprint else "not published; its name is the last 8 digits"
        )
        yield f"| {releases} | `{path}` | {shown} |"


def _packages(software: SoftwareSet) -> Iterator[str]:
    """Yield one row per transaction, with one column per node."""
    columns = [_transactions(software, *node) for node in NODES]
    yield "| layer | transaction | " + " | ".join(f"{name} {at}" for name, at, _ in NODES) + " |"
    yield "|---|---|" + "---|" * len(NODES)
    for layer, transaction in dict.fromkeys(key for column in reversed(columns) for key in column):
        first, *others = (column.get((layer, transaction), "-") for column in columns)
        cells = [first, *("same" if cell == first else cell for cell in others)]
        yield f"| {layer} | {transaction} | {' | '.join(cells)} |"


def _transactions(
    software: SoftwareSet, name: str, version: str, kernel: str
) -> dict[tuple[str, str], str]:
    """Return the packages by layer and transaction."""
    keys = {"cuda": b"-", "doca": b"-"}
    distribution = distribution_of(name, version)
    packages = {}
    for layer, desired in (
        ("rdma", rdma_packages(software, distribution, keys, kernel)),
        ("gpu", gpu_packages(software, distribution, kernel, keys)),
    ):
        for stream in desired.streams:
            packages[layer, "module stream"] = f"`{stream.module}:{stream.stream}`"
        for stage in desired.stages:
            packages[layer, stage.name] = ", ".join(
                f"`{package.name}`" + (f" {package.version}" if package.version else "")
                for package in stage.packages
            )
    return packages


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")

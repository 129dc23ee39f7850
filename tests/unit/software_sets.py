# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sets for tests: a complete one, and changed copies of it."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.installer import (
    Installation,
    Installer,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    PackagePlan,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

KEYS = {"cuda": b"key of cuda", "doca": b"key of doca"}
WHOLE: dict[str, Any] = {
    "kernel": "",
    "rdma": {"source": "doca", "version": "3.2.1"},
    "driver": {"version": "580.95.05"},
    "cuda": "13.0",
    "dcgm": "4.4.1",
    "gdrcopy": "2.5.1",
    "nccl": "2.28.3",
    "repositories": {
        "cuda": {"url": "file:///srv/{distribution}", "key": "keys/cuda.asc", "key_sha256": ""},
        "doca": {"url": "file:///srv/{version}", "key": "keys/doca.asc", "key_sha256": ""},
    },
}


def value(**changes: Any) -> dict[str, Any]:
    """The complete set with changed keys: `driver__gpu` is `driver.gpu`, None removes one."""
    result = copy.deepcopy(WHOLE)
    for path, item in changes.items():
        *sections, key = path.split("__")
        place = result
        for section in sections:
            place = place[section]
        if item is None:
            place.pop(key, None)
        else:
            place[key] = item
    return result


def software(**changes: Any) -> SoftwareSet:
    return read_software(value(**changes))


def install(installer: Installer) -> PackagePlan:
    """Plan and act, as core.engine does. Raises PackageError with the sentence of `undo`."""
    run = Installation(installer, installer.plan())
    try:
        run.act()
    except (CommandError, OSError) as error:
        text = "\n".join(filter(None, (str(error), run.undo())))
        raise PackageError(text, getattr(error, "refusals", ())) from error
    return run.plan

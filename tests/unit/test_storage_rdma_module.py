# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module of NFS over RDMA: which one is missing, and what brings it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.rdma_module import (
    RdmaModule,
)

OF_KERNEL = "/lib/modules/6.8.0/kernel/drivers/infiniband/core/ib_core.ko.zst"
OF_DOCA = "/lib/modules/6.8.0/updates/dkms/ib_core.ko.zst"
INBOX = "/lib/modules/6.8.0/kernel/net/sunrpc/xprtrdma/rpcrdma.ko.zst"
BUILT = "/lib/modules/6.8.0/updates/dkms/rpcrdma.ko.zst"


def looked(
    root: Path,
    core: str,
    module: str,
    family: str = "debian",
    container: Optional[str] = None,
) -> Check:
    files = {"ib_core": core, "rpcrdma": module}

    def run(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        assert list(argv[:3]) == ["modinfo", "-F", "filename"]
        if files[argv[3]] == "no modinfo":
            raise CommandError("modinfo: not installed")
        return Result(tuple(argv), 0 if files[argv[3]] else 1, f"{files[argv[3]]}\n", "")

    node = Node(layer="storage", root=root, run=run, container=container, boot_id="b")
    part = RdmaModule(family)
    assert part.plan(node).steps == [] and part.plan(node).files == []
    (check,) = part.verify(node).checks
    return check


@pytest.mark.parametrize("module", [INBOX, ""])
@pytest.mark.parametrize(
    ("family", "command"),
    [("debian", "apt-get install mlnx-nfsrdma-dkms"), ("redhat", "dnf install kmod-mlnx-nfsrdma")],
)
def test_beside_drivers_of_doca_its_own_is_needed(
    tmp_path: Path, module: str, family: str, command: str
) -> None:
    check = looked(tmp_path, OF_DOCA, module, family)
    assert check.status == "failed" and f"{command}" in check.reason
    assert "modprobe rpcrdma" in check.reason and OF_DOCA in check.reason


def test_a_kernel_without_it_says_where_it_is(tmp_path: Path) -> None:
    check = looked(tmp_path, OF_KERNEL, "")
    assert check.status == "failed" and "linux-modules-extra" in check.reason
    assert "mlnx" not in check.reason


@pytest.mark.parametrize(
    ("core", "module"),
    [(OF_KERNEL, INBOX), (OF_DOCA, BUILT), ("", ""), ("no modinfo", "no modinfo")],
)
def test_what_may_load_fails_nothing(tmp_path: Path, core: str, module: str) -> None:
    check = looked(tmp_path, core, module)
    assert check.status == "not_applicable" and "modprobe rpcrdma" in check.reason


def test_one_that_is_built_in_came_with_the_kernel(tmp_path: Path) -> None:
    assert looked(tmp_path, "(builtin)", INBOX).status == "not_applicable"


def test_one_that_is_loaded_is_well_whatever_its_file_is(tmp_path: Path) -> None:
    (tmp_path / "sys/module/rpcrdma").mkdir(parents=True)
    assert looked(tmp_path, OF_DOCA, INBOX).status == "ok"


def test_a_container_has_no_modules(tmp_path: Path) -> None:
    assert looked(tmp_path, OF_DOCA, INBOX, container="podman").status == "not_applicable"

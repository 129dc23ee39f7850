# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel of the set in check mode, where the plan would bring it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma_stack.hardware import (
    Hardware,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma_stack.kernel import Kernel


@pytest.mark.parametrize(
    ("check_mode", "changing", "status"),
    [(True, True, "pending"), (True, False, "failed"), (False, True, "failed")],
)
def test_a_kernel_that_the_plan_installs_is_no_failure_of_check_mode(
    tmp_path: Path, check_mode: bool, changing: bool, status: str
) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0-79-generic\n")
    node = Node("rdma", tmp_path, run, None, "boot", check_mode=check_mode)
    kernel = Kernel("6.8.0-99-generic", Hardware(tmp_path), lambda: changing)

    (check,) = kernel.verify(node).checks

    assert (check.name, check.status) == ("kernel_release", status)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bind mount of a served directory that gets a device: one run moves both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts as mounted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Node,
    Plan,
    PlanError,
    Step,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Serve

from tests.unit.storage_node import ROOT_MOUNT, StorageNode, filesystem, found, served, statuses

POINT, DIRECTORY = "/mnt/checkpoints", "/srv/checkpoints"
HERE: dict[str, Any] = {"host": "storage01", "groups": ["storage"]}
WITH_DEVICE = filesystem(
    serve=Serve("storage01", "/dev/disk/by-id/nvme-A1"), hosts=("compute", "storage")
)


class Disk:
    """The part that mounts the device, before the mounts are come to."""

    def __init__(self, there: StorageNode) -> None:
        self.there = there

    def plan(self, node: Node) -> Plan:
        if mounted.on(mounted.read(node.root), DIRECTORY) is not None:
            return Plan()
        act = lambda: self.there.mount(DIRECTORY, "/dev/nvme1n1", "xfs", device="259:1")  # noqa: E731
        return Plan([], [Step(DIRECTORY, "", "mounted", act, essential=True)])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def run(node: StorageNode, *, check_mode: bool = False) -> Outcome:
    parts = [Disk(node), node.mounts(WITH_DEVICE, **HERE)]
    return settle(parts, node.node(check_mode))


def test_one_run_mounts_the_device_and_shows_it_to_this_host_too(node: StorageNode) -> None:
    node.settle(served(), **HERE)
    before = node.running(POINT)
    assert before is not None and before.device == "8:1"
    checked = run(node, check_mode=True)
    assert found(checked, "storage_mount")[POINT].status == PENDING

    first = run(node)
    assert not first.errors and statuses(first) == {OK}
    after = node.running(POINT)
    assert after is not None and (after.device, after.root) == ("259:1", "/")
    assert node.read("proc/self/mountinfo").count(f" {POINT} ") == 1
    assert not run(node).changed


def test_a_fresh_host_needs_one_run_as_well(node: StorageNode) -> None:
    assert statuses(run(node)) == {OK}
    assert not run(node).changed


def test_who_works_in_it_keeps_it_and_nothing_is_mounted(node: StorageNode) -> None:
    node.settle(served(), **HERE)
    node.process(4711, "train.py", cwd=f"{POINT}/run-7")
    with pytest.raises(PlanError, match=r"train\.py \(pid 4711, \w+, cwd\)"):
        run(node)
    table = node.read("proc/self/mountinfo")
    assert "259:1" not in table and table.startswith(ROOT_MOUNT)


def test_a_bind_mount_of_what_is_below_a_device_that_is_gone_is_found(node: StorageNode) -> None:
    node.settle(served(), **HERE)
    part = node.mounts(WITH_DEVICE, **HERE)
    checks = {check.name: check for check in part.verify(node.node()).checks}
    assert checks["storage_mount"].status == FAILED

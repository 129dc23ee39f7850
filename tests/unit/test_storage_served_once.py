# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A directory that a host served, and mounts from another one now, at the same path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    NOT_APPLICABLE,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.settle import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server import (
    once,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.device import (
    LeftDevices,
    unit_text,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.exports_file import (  # noqa: E501
    Block,
    render,
)

from tests.unit.storage_node import StorageNode, filesystem, found, served

POINT = "/srv/checkpoints"
MOUNT, AUTO = "srv-checkpoints.mount", "srv-checkpoints.automount"
UNIT = f"etc/systemd/system/{MOUNT}"
EXPORTS = "etc/exports.d/baremetal-mpi-roce.exports"
HERE: dict[str, Any] = {"host": "storage01", "groups": ["storage"]}
MOVED = served(host="storage02", source=f"storage02:{POINT}", mount=POINT)
APPLIANCE = filesystem(source="nas:/vol1", mount=POINT, hosts=("storage",))
OLD = "storage02:/srv/checkpoints"


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def export(node: StorageNode, path: str = POINT) -> None:
    text = render([Block("checkpoints", "/mnt/checkpoints", path, ("10.0.0.11",), ("rw",))])
    node.node().file(EXPORTS, text).apply()


def device(node: StorageNode) -> None:
    node.node().file(UNIT, unit_text("checkpoints", "1234", POINT, "xfs")).apply()
    node.mount(POINT, "/dev/nvme1n1", "xfs", device="259:1")
    (node.root / POINT.lstrip("/")).mkdir(parents=True)


def run(node: StorageNode, fs: Any = MOVED, *, check_mode: bool = False) -> Outcome:
    parts = [LeftDevices([], [POINT]), node.mounts(fs, absent=[f"{POINT}/"], **HERE)]
    return settle(parts, node.node(check_mode))


def well(outcome: Outcome) -> bool:
    """Nothing failed, and the mount that the list of what goes names is told to stay."""
    (stays,) = [check for check in outcome.checks if check.name == "storage_absent"]
    assert stays.status == NOT_APPLICABLE and "which stays" in stays.reason
    return all(check.status == OK for check in outcome.checks if check.name != "storage_absent")


def test_its_export_ends_and_what_is_mounted_there_stays(node: StorageNode) -> None:
    node.settle(MOVED, **HERE)
    export(node)
    outcome = node.settle(MOVED, absent=[f"{POINT}/"], **HERE)
    assert well(outcome) and not outcome.changed
    assert node.running(POINT) is not None


def test_by_the_same_path_it_is_the_same_once_more(node: StorageNode) -> None:
    for _again in range(2):
        assert well(node.settle(MOVED, absent=[POINT], **HERE))
    assert node.running(POINT) is not None and AUTO in node.active


def test_by_another_path_it_is_known_by_what_this_host_still_serves(node: StorageNode) -> None:
    export(node)
    assert well(node.settle(APPLIANCE, absent=[POINT], **HERE))
    node.write(EXPORTS, "")
    with pytest.raises(PlanError, match="nothing that it served is left there"):
        node.settle(APPLIANCE, absent=[POINT], **HERE)


def test_a_device_gives_way_to_what_is_mounted_there_now(node: StorageNode) -> None:
    device(node)
    checked = run(node, check_mode=True)
    assert checked.changed and found(checked, "storage_mount")[POINT].status == PENDING
    after = [each["after"] for each in checked.diff]
    assert "Part=served-device" in node.read(UNIT)

    outcome = run(node)
    assert outcome.errors == [] and well(outcome)
    assert "Part=client-mount" in node.read(UNIT) and AUTO in node.active
    runs = node.running(POINT)
    assert runs is not None and runs.source == OLD
    assert [each["after"] for each in outcome.diff] == after
    again = run(node)
    assert not again.changed and well(again)


def test_a_device_that_does_not_go_keeps_its_unit(node: StorageNode) -> None:
    device(node)
    node.busy.add(MOUNT)
    outcome = run(node)
    assert "Part=served-device" in node.read(UNIT) and AUTO not in node.active
    assert [error.partition(":")[0] for error in outcome.errors] == [MOUNT, POINT]
    assert "is there still" in outcome.errors[1]
    node.busy.clear()
    assert well(run(node))


def test_over_what_is_mounted_there_besides_nothing_is_armed(node: StorageNode) -> None:
    device(node)
    node.mount(POINT, "/dev/nvme1n1", "xfs", device="259:1")
    outcome = run(node)
    assert [error.partition(":")[0] for error in outcome.errors] == [POINT]
    assert "/dev/nvme1n1 (xfs) is mounted there still" in outcome.errors[0]
    assert not (node.root / UNIT).exists() and not node.ran("systemctl", "enable")
    node.unmount(POINT)
    assert well(run(node))


def test_who_works_on_the_device_keeps_it(node: StorageNode) -> None:
    device(node)
    node.process(4711, "train.py", cwd=f"{POINT}/run-7")
    with pytest.raises(PlanError, match=r"train\.py \(pid 4711, alice, cwd\)"):
        run(node)
    assert "Part=served-device" in node.read(UNIT) and node.running(POINT) is not None


def test_what_lies_below_the_device_is_not_hidden(node: StorageNode) -> None:
    device(node)
    node.write("srv/checkpoints/step-1", "weights")
    outcome = run(node)
    assert any("holds step-1" in error for error in outcome.errors)
    assert AUTO not in node.active and not (node.root / UNIT).exists()


def test_each_way_of_serving_is_known(node: StorageNode) -> None:
    here = node.node()
    assert not once.served_once(here, POINT)
    export(node, "/srv/other")
    assert not once.served_once(here, POINT) and once.served_once(here, "/srv/other")
    for foreign in (f"[Mount]\nWhere={POINT}\n", unit_text("checkpoints", "1234", POINT, "xfs")):
        node.write(UNIT, foreign)
        assert not once.has_device(here, POINT)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (f"etc/systemd/system/{AUTO}", "[Automount]\nWhere=/srv/x\n", f"{AUTO} is somebody else's"),
        (f"usr/lib/systemd/system/{AUTO}", "[Automount]\n", f"{AUTO} is somebody else's"),
        ("etc/fstab", f"nas:/vol {POINT} nfs defaults 0 0\n", "/etc/fstab has an entry"),
    ],
)
def test_what_somebody_else_says_of_the_place_is_not_overwritten(
    node: StorageNode, name: str, text: str, told: str
) -> None:
    device(node)
    node.write(name, text)
    before = node.snapshot()
    with pytest.raises(PlanError, match=told):
        run(node)
    assert node.snapshot() == before


def test_a_device_that_is_not_to_go_is_in_the_way_and_how_it_goes_is_told(
    node: StorageNode,
) -> None:
    device(node)
    for fs in (MOVED, APPLIANCE):
        with pytest.raises(PlanError) as error:
            settle([LeftDevices([], []), node.mounts(fs, **HERE)], node.node())
        assert "shared_storage_absent" in str(error.value) and "--limit" in str(error.value)
        assert f'["{POINT}"]' in str(error.value)

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mounts of a host: units, mountinfo, and changes of idle mounts only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts as mounted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import with_header
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Node,
    Plan,
    PlanError,
    Step,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.device import Device
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Serve

from tests.unit.storage_node import (
    ROOT_MOUNT,
    StorageNode,
    filesystem,
    found,
    nfs,
    served,
    shown_of,
    statuses,
)

POINT = "/mnt/checkpoints"
MOUNT, AUTO = "mnt-checkpoints.mount", "mnt-checkpoints.automount"
UNITS = "etc/systemd/system"
HAND = "hard,vers=4.2,proto=tcp,nconnect=8,port=2049,timeo=600,retrans=2"


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def refused(node: StorageNode, *filesystems, **given) -> str:
    before, calls = node.snapshot(), len(node.changing())
    with pytest.raises(PlanError) as error:
        node.settle(*filesystems, **given)
    assert node.snapshot() == before and len(node.changing()) == calls, "nothing is half applied"
    return str(error.value)


# Fresh, again, and after a reboot


def test_a_new_node_and_a_second_run(node):
    first = node.settle(filesystem())
    assert first.changed and not first.errors
    assert statuses(first) == {OK}
    assert node.running(POINT).source == "storage01:/srv/checkpoints"
    assert {check.name for check in first.checks} == {
        "file",
        "storage_automount",
        "storage_mount",
        "storage_options",
    }
    before, calls = node.snapshot(), len(node.changing())
    second = node.settle(filesystem())
    assert not second.changed and not second.diff and statuses(second) == {OK}
    assert node.snapshot() == before and len(node.changing()) == calls


def test_check_mode_on_a_new_node(node):
    before = node.snapshot()
    outcome = node.settle(filesystem(), check_mode=True)
    assert outcome.changed and statuses(outcome) == {PENDING}
    assert node.snapshot() == before and not node.changing()
    assert not node.ran("systemctl", "start")
    shown = "".join(diff["after"] for diff in outcome.diff)
    assert "What=storage01:/srv/checkpoints" in shown and "enabled, active" in shown


def test_an_armed_automount_is_not_changed(node):
    """The read-back triggers it, as any program would."""
    node.settle(filesystem())
    node.reboot()
    assert node.running(POINT) is None
    outcome = node.settle(filesystem(), check_mode=True)
    assert not outcome.changed and statuses(outcome) == {OK}
    assert node.running(POINT) is not None


def test_an_interrupted_run_is_completed_by_the_next(node):
    """Killed after the files were written and before systemd loaded them."""
    node.settle(filesystem())
    changed = filesystem(nfs=nfs(version="4.1"))
    node.reloads_fail = True
    broken = node.settle(changed)
    assert any("no space" in line for line in broken.errors)
    node.reloads_fail = False
    outcome = node.settle(changed)
    assert outcome.changed and statuses(outcome) == {OK} and not outcome.errors
    assert "vers=4.1" in node.running(POINT).options


# Dead servers


def test_a_dead_server_is_reported_in_time(node):
    node.dead.add("storage01:/srv/checkpoints")
    node.journal = "mount.nfs: Connection refused\n"
    outcome = node.settle(filesystem(), filesystem("datasets", source="other:/srv/datasets"))
    checks = found(outcome, "storage_mount")
    assert checks[POINT].status == FAILED
    assert "did not respond within 60 s" in checks[POINT].reason
    assert "Connection refused" in checks[POINT].reason
    assert found(outcome, "storage_automount")[POINT].status == OK


@pytest.mark.parametrize("armed_only", [False, True])
def test_mount_points_are_not_accessed(node, monkeypatch, armed_only):
    """With a dead server any access would wait for ever."""
    node.settle(filesystem())
    if armed_only:
        node.reboot()
        node.dead.add("storage01:/srv/checkpoints")
    below = str(node.root / "mnt")
    for name in ("stat", "lstat", "listdir", "scandir", "open", "readlink", "access"):
        real = getattr(os, name)

        def guarded(path, *more, real=real, name=name, **named):
            hit = isinstance(path, (str, os.PathLike)) and str(path).startswith((below, "/mnt/"))
            assert not hit, f"os.{name}({path})"
            return real(path, *more, **named)

        monkeypatch.setattr(os, name, guarded)
    node.calls.clear()
    changed = filesystem(nfs=nfs(version="4.1"))
    node.settle(changed, check_mode=True)
    node.settle(changed)
    touching = [call for call in node.calls if call[0] in ("realpath", "find")]
    assert not touching


# Migration


def test_a_changed_source_is_applied(node):
    node.settle(filesystem())
    moved = filesystem(source="storage02:/srv/new")
    plan = node.settle(moved, check_mode=True)
    assert plan.changed
    assert found(plan, "storage_mount")[POINT].status == PENDING
    assert node.running(POINT).source == "storage01:/srv/checkpoints"
    shown = "".join(f"-{diff['before']}+{diff['after']}" for diff in plan.diff)
    assert "-storage01:/srv/checkpoints (nfs4)" in shown and "+storage02:/srv/new" in shown
    done = node.settle(moved)
    assert statuses(done) == {OK}
    assert node.running(POINT).source == "storage02:/srv/new"


@pytest.mark.parametrize(
    ("before", "after"),
    [((), ("actimeo=5",)), (("actimeo=5",), ()), (("actimeo=5",), ("actimeo=9",))],
)
def test_hidden_options_are_compared_with_the_unit(node, before, after):
    node.settle(filesystem(options=before))
    node.process(40, "python3", cwd=POINT)
    assert "actimeo" in refused(node, filesystem(options=after))
    (node.root / "proc/40/cwd").unlink()
    plan = node.settle(filesystem(options=after), check_mode=True)
    assert found(plan, "storage_options")[POINT].status == PENDING
    outcome = node.settle(filesystem(options=after))
    assert node.ran("systemctl", "stop", MOUNT) and statuses(outcome) == {OK}
    again = node.settle(filesystem(options=after))
    assert not again.changed and statuses(again) == {OK}
    node.calls.clear()
    outcome = node.settle(filesystem(options=after), timeout_s=120)
    assert outcome.changed and statuses(outcome) == {OK}
    assert "retry=2" in node.read(f"{UNITS}/{MOUNT}") and not node.ran("systemctl", "stop")


@pytest.mark.parametrize(
    ("flags", "options", "found_"),
    [
        ("ro,relatime", "", "rw (runs: ro)"),
        ("rw,relatime", "vers=4.1", "vers=4.2 (runs: vers=4.1)"),
        ("rw,relatime", "proto=rdma", "proto=tcp (runs: proto=rdma)"),
        ("rw,relatime", "soft", "hard (runs: soft)"),
    ],
)
def test_a_differing_idle_mount_is_replaced(node, flags, options, found_):
    node.settle(filesystem())
    key = options.partition("=")[0] or "none"
    words = node.running(POINT).options
    old = next((word for word in words if word.startswith(key)), "hard")
    table = node.read("proc/self/mountinfo")
    node.write("proc/self/mountinfo", table.replace(f",{old}", f",{options or old}"))
    node.remount(POINT, *flags.split(","))
    node.process(40, "python3", cwd=POINT)
    assert "python3 (40)" in refused(node, filesystem())
    (node.root / "proc/40/cwd").unlink()
    plan = node.settle(filesystem(), check_mode=True)
    assert found(plan, "storage_options")[POINT].found == found_
    assert statuses(node.settle(filesystem())) == {OK}


def test_a_disk_set_read_only_is_not_remounted(node):
    node.settle(served(), host="storage01", groups=["storage"])
    table = node.read("proc/self/mountinfo")
    node.write("proc/self/mountinfo", table.replace(" /dev/sda1 rw", " /dev/sda1 ro"))
    assert not node.settle(served(), host="storage01", groups=["storage"]).changed


@pytest.mark.parametrize("unit", [MOUNT, AUTO, r"mnt-a\x2db.mount"])
def test_settings_of_drop_ins_are_reported(node, unit):
    name = "checkpoints" if unit in (MOUNT, AUTO) else "a-b"
    path = f"{UNITS}/{unit}.d/override.conf"
    node.write(path, "[Unit]\nAfter=my.service\n[Mount]\n# Options=hard\n")
    assert statuses(node.settle(filesystem(name))) == {OK}
    node.write(path, "[Unit]\nAfter=my.service\n[Mount]\n# Options=hard\nOptions=soft\n")
    for check_mode in (True, False):
        outcome = node.settle(filesystem(name), check_mode=check_mode)
        check = found(outcome, "storage_drop_in")[f"/mnt/{name}"]
        assert (check.status, check.found) == (FAILED, [f"/{path}: Options=soft"])


@pytest.mark.parametrize(
    "error", [CommandError("umount: target is busy"), NoAnswerError("systemctl stop", 60)]
)
def test_a_failed_unmount_is_repaired_by_the_next_run(node, error):
    node.settle(filesystem(options=("noexec",)))
    real = node.run

    def fails(argv, **named):
        if list(argv[:2]) == ["systemctl", "stop"]:
            raise error
        return real(argv, **named)

    node.run = fails
    (line,) = node.settle(filesystem()).errors
    assert str(error) in line
    assert ("systemd continues" in line) == isinstance(error, NoAnswerError)
    assert "noexec" in node.read(f"{UNITS}/{MOUNT}")
    node.run = real
    outcome = node.settle(filesystem())
    assert outcome.changed and statuses(outcome) == {OK}
    assert "noexec" not in node.running(POINT).flags
    assert "noexec" not in node.read(f"{UNITS}/{MOUNT}")


def test_a_busy_mount_is_refused_with_its_users(node):
    node.settle(filesystem())
    node.process(40, "python3", cwd=f"{POINT}/run1")
    node.process(41, "vim", swap=f"{POINT}/notes")
    node.process(42, "sleep", cwd="/mnt/checkpoints2")
    text = refused(node, filesystem(source="storage02:/srv/new"))
    assert "python3 (40), vim (41)" in text
    assert "sleep" not in text and "storage02:/srv/new" in text
    assert node.running(POINT).source == "storage01:/srv/checkpoints"
    node.mount(f"{POINT}/inner", "tmpfs", "tmpfs")
    assert f"{POINT}/inner" in refused(node, filesystem(source="storage02:/srv/new"))


def test_a_manual_mount_is_taken_over(node):
    node.mount(POINT, "storage01:/srv/checkpoints/", options=shown_of(HAND.split(",")))
    outcome = node.settle(filesystem())
    assert statuses(outcome) == {OK} and node.ran("systemctl", "stop", MOUNT)
    assert AUTO in node.active


# What stands in the way


def test_a_non_empty_directory_is_refused(node):
    for name in ("a", "b", "c d"):
        node.write(f"mnt/checkpoints/{name}", "")
    assert "contains a, b, c d," in refused(node, filesystem())


@pytest.mark.parametrize("where", [POINT, f"{POINT}/", "/mnt//checkpoints"])
def test_an_entry_of_fstab_is_refused_with_its_line(node, where):
    line = f"nas:/x {where} nfs defaults 0 0"
    node.write("etc/fstab", f"{node.read('etc/fstab')}{line}\n")
    assert f"/etc/fstab:4: {line}" in refused(node, filesystem())


@pytest.mark.parametrize(
    ("unit", "target"), [(MOUNT, ""), (AUTO, ""), (AUTO, "/dev/null"), (AUTO, "/nowhere/x")]
)
def test_a_foreign_unit_is_refused_with_its_file(node, unit, target):
    if target:
        node.link(f"{UNITS}/{unit}", target)
    else:
        node.write(f"{UNITS}/{unit}", "[Mount]\nWhat=nas:/x\n")
    assert f"/{UNITS}/{unit}" in refused(node, filesystem())


def test_a_mounted_local_disk_is_refused(node):
    node.mount(POINT, "/dev/sdb1", "xfs")
    assert "/dev/sdb1 (xfs)" in refused(node, filesystem())


# Leaving


def test_a_mount_that_left_the_model_is_reported(node):
    node.settle(filesystem(), filesystem("datasets"))
    outcome = node.settle(filesystem("datasets"))
    check = found(outcome, "storage_leftover")[POINT]
    assert check.status == FAILED
    assert '"shared_storage_absent": ["/mnt/checkpoints"]' in check.reason
    assert "--limit" in check.reason  # hosts that mount it refuse
    assert node.running(POINT) is not None and not outcome.changed


def test_absent_mounts_and_units_are_removed(node):
    node.settle(filesystem(), filesystem("datasets"))
    plan = node.settle(filesystem("datasets"), absent=[POINT], check_mode=True)
    assert plan.changed and found(plan, "storage_absent")[POINT].status == PENDING
    assert found(plan, "storage_leftover") == {}, "it is reported once"
    assert node.running(POINT) is not None
    outcome = node.settle(filesystem("datasets"), absent=[f"{POINT}/"])
    assert statuses(outcome) == {OK} and not outcome.errors
    assert node.running(POINT) is None and AUTO not in node.active
    left = [path.name for path in (node.root / UNITS).rglob("*checkpoints*")]
    assert left == []
    again = node.settle(filesystem("datasets"), absent=[POINT])
    assert not again.changed and statuses(again) == {OK}


@pytest.mark.parametrize("unit", ["", "[Mount]\nWhat=nas:/x\nWhere=/mnt/checkpoints\n"])
def test_foreign_units_are_not_removed(node, unit):
    if unit:
        node.write("etc/systemd/system/mnt-checkpoints.mount", unit)
    node.mount(POINT, "nas:/x")
    outcome = node.settle(absent=[POINT])
    assert not outcome.changed and node.running(POINT) is not None
    assert found(outcome, "storage_absent")[POINT].status == FAILED


# The serving host


def test_the_serving_host_gets_a_bind_mount(node):
    outcome = node.settle(served(), host="storage01", groups=["storage"])
    assert statuses(outcome) == {OK}
    running = node.running(POINT)
    assert (running.kind, running.root) == ("ext4", "/srv/checkpoints")
    assert not (node.root / UNITS / AUTO).exists()
    again = node.settle(served(), host="storage01", groups=["storage"])
    assert not again.changed and statuses(again) == {OK}
    node.reboot()
    assert node.running(POINT) is not None, "it is mounted at boot"


def test_a_former_bind_mount_does_not_hold_up_the_boot(node):
    here = {"host": "storage01", "groups": ["storage"]}
    node.settle(served(), **here)
    for _again in range(2):
        outcome = node.settle(served(host="storage09"), **here)
        assert statuses(outcome) == {OK} and node.running(POINT).kind == "nfs4"
    assert not outcome.changed
    wants = node.root / UNITS / "remote-fs.target.wants"
    assert [path.name for path in wants.iterdir()] == [AUTO]


def test_a_directory_served_at_its_mount_point(node):
    here = served(source=f"storage01:{POINT}")
    outcome = node.settle(here, host="storage01", groups=["storage"])
    assert not outcome.changed and not outcome.checks
    # It is mounted elsewhere, and another part removes its former export of that name.
    fs = served(mount="/srv/checkpoints", source="storage01:/srv/new")
    for _again in range(2):
        outcome = node.settle(fs, host="storage02", absent=["/srv/checkpoints/"])
        assert statuses(outcome) == {OK} and node.running("/srv/checkpoints") is not None
    assert not outcome.changed and found(outcome, "storage_absent") == {}


# The device of a served directory

DIRECTORY = "/srv/checkpoints"
RELOAD_AND_STOP = (["daemon-reload"], ["stop", "srv-checkpoints.mount"])
HERE: dict[str, Any] = {"host": "storage01", "groups": ["storage"]}
WITH_DEVICE = filesystem(
    serve=Serve("storage01", "/dev/disk/by-id/nvme-A1"), hosts=("compute", "storage")
)


class Disk:
    """The part that mounts the device, before the mounts of the host."""

    def __init__(self, there: StorageNode) -> None:
        self.there = there

    def plan(self, node: Node) -> Plan:
        if mounted.on(mounted.read(node.root), DIRECTORY) is not None:
            return Plan()
        act = lambda: self.there.mount(DIRECTORY, "/dev/nvme1n1", "xfs", device="259:1")  # noqa: E731
        return Plan([], [Step(DIRECTORY, "", "mounted", act, essential=True)])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def with_disk(node: StorageNode, *, check_mode: bool = False) -> Outcome:
    parts = [Disk(node), node.mounts(WITH_DEVICE, **HERE)]
    return settle(parts, node.node(check_mode))


def test_device_and_bind_mount_in_one_run(node: StorageNode) -> None:
    node.settle(served(), **HERE)
    before = node.running(POINT)
    assert before is not None and before.device == "8:1"
    checked = with_disk(node, check_mode=True)
    assert found(checked, "storage_mount")[POINT].status == PENDING

    first = with_disk(node)
    assert not first.errors and statuses(first) == {OK}
    after = node.running(POINT)
    assert after is not None and (after.device, after.root) == ("259:1", "/")
    assert node.read("proc/self/mountinfo").count(f" {POINT} ") == 1
    assert not with_disk(node).changed


def test_a_busy_bind_mount_is_refused(node: StorageNode) -> None:
    node.settle(served(), **HERE)
    node.process(4711, "train.py", cwd=f"{POINT}/run-7")
    with pytest.raises(PlanError, match=r"train\.py \(4711\)"):
        with_disk(node)
    table = node.read("proc/self/mountinfo")
    assert "259:1" not in table and table.startswith(ROOT_MOUNT)


def test_former_device_units_remain_until_declared_absent(node):
    text = Device("checkpoints", "/dev/disk/by-id/nvme-A1", "", DIRECTORY).unit_text("xfs")
    unit = f"{UNITS}/srv-checkpoints.mount"
    node.write(unit, with_header(text))
    node.mount(DIRECTORY, "/dev/nvme1n1", "xfs", device="259:1")
    kept = settle([node.mounts(devices=[DIRECTORY], absent=[DIRECTORY])], node.node())
    assert not kept.changed and kept.checks == [], "it is served"
    outcome = node.settle()
    assert not outcome.changed
    assert found(outcome, "storage_leftover")[DIRECTORY].found == f"/{unit}"
    node.process(40, "python3", cwd=DIRECTORY)
    assert "python3" in refused(node, absent=[DIRECTORY])
    (node.root / "proc/40/cwd").unlink()
    node.calls.clear()
    assert statuses(node.settle(absent=[DIRECTORY])) == {OK}
    reload, stop = (node.calls.index(["systemctl", *x]) for x in RELOAD_AND_STOP)
    assert reload < stop, "else nfs-server would be stopped with it"
    assert not (node.root / unit).exists() and node.running(DIRECTORY) is None


# Containers


def test_a_container_only_gets_enabled_units(tmp_path):
    node = StorageNode(tmp_path, container="podman")
    outcome = node.settle(filesystem())
    assert found(outcome, "storage_automount")[POINT].status == OK
    for name in ("storage_mount", "storage_options"):
        check = found(outcome, name)[POINT]
        assert check.status == "not_applicable" and "podman" in check.reason
    assert not node.ran("systemctl", "start") and not node.active
    assert not node.settle(filesystem()).changed
    assert not node.settle(absent=[POINT]).errors
    assert not list((node.root / UNITS).rglob("*checkpoints*"))

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command line: GRUB and grubby, own arguments only, recorded reboots."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline.kernel_cmdline import (
    KernelArguments,
)
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.os_tree import Tree, found

OWNED = "var/lib/baremetal-mpi-roce/kernel-arguments.json"


@pytest.fixture
def ubuntu(tmp_path):
    return Tree("ubuntu", tmp_path)


@pytest.fixture
def rocky(tmp_path):
    return Tree("rocky", tmp_path)


@pytest.fixture(params=["ubuntu", "rocky"])
def tree(request, tmp_path):
    return Tree(request.param, tmp_path)


def configured(tree):
    if tree.root.name == "rocky":
        return tree._entry()
    return next(line for line in tree.read("boot/grub/grub.cfg").splitlines() if "quiet" in line)


def judged(tree, *arguments, **more):
    outcome = tree.settle(kernel_arguments=list(arguments), **more)
    return {key: check.status for key, check in found(outcome, "kernel_argument").items()}


def test_argument_is_in_effect_after_the_reboot(tree):
    assert judged(tree, "iommu=pt") == {"iommu=pt": "reboot"}
    assert "iommu=pt" in configured(tree)
    assert reboots.recorded("os", tree.root)[0].wanted == "iommu=pt"
    tree.reboot()
    assert judged(tree, "iommu=pt") == {"iommu=pt": "ok"}
    assert reboots.recorded("os", tree.root) == []


def test_recovery_entry_is_unchanged(ubuntu):
    judged(ubuntu, "iommu=pt", "amd_iommu=on")
    assert configured(ubuntu).endswith("ro quiet splash iommu=pt amd_iommu=on")
    recovery = [
        line for line in ubuntu.read("boot/grub/grub.cfg").splitlines() if "dis_ucode" in line
    ]
    assert "iommu" not in recovery[0]


def test_check_mode_is_pending(tree):
    assert judged(tree, "iommu=pt", check_mode=True) == {"iommu=pt": "pending"}
    assert not tree.ran("update-grub")
    assert not tree.ran("grubby", "--update-kernel=ALL")


def test_ineffective_reboot_is_a_failure(tree):
    judged(tree, "iommu=pt")
    command_line = tree.read("proc/cmdline")
    tree.reboot()
    tree.write("proc/cmdline", command_line)  # booted from another entry
    outcome = tree.settle(kernel_arguments=["iommu=pt"])
    check = found(outcome, "kernel_argument")["iommu=pt"]
    assert check.status == "failed"
    assert "boot-1" in check.reason


def test_dropped_argument_awaits_a_reboot(tree):
    judged(tree, "iommu=pt", "nosmt")
    tree.reboot()
    judged(tree, "iommu=pt", "nosmt")
    assert judged(tree, "iommu=pt") == {"iommu=pt": "ok", "nosmt": "reboot"}
    assert "nosmt" not in configured(tree)
    assert [each.wanted for each in reboots.recorded("os", tree.root)] == ["absent"]
    assert not tree.settle(kernel_arguments=["iommu=pt"]).changed
    tree.reboot()
    assert judged(tree, "iommu=pt") == {"iommu=pt": "ok"}
    assert "nosmt" not in tree.read(OWNED)
    assert not tree.settle(kernel_arguments=["iommu=pt"]).changed


def test_argument_dropped_before_the_reboot(tree):
    judged(tree, "iommu=pt", "nosmt")
    assert judged(tree) == {}
    assert "nosmt" not in configured(tree)
    assert not (tree.root / OWNED).exists()
    assert reboots.recorded("os", tree.root) == []
    assert not tree.settle(kernel_arguments=[]).changed


def test_operator_s_arguments_stay(rocky):
    rocky.write("boot/entry", "ro crashkernel=1G-4G:192M iommu=pt")
    judged(rocky, "iommu=pt", "nosmt")
    assert json.loads(rocky.read(OWNED)) == {"owned": {"os": ["nosmt"]}}
    judged(rocky)
    assert configured(rocky) == "ro crashkernel=1G-4G:192M iommu=pt"


def test_later_value_wins_and_fails(tree):
    tree.write("proc/cmdline", "ro iommu=pt quiet iommu=off\n")
    outcome = tree.settle(kernel_arguments=["iommu=pt"])
    check = found(outcome, "kernel_argument")["iommu=pt"]
    assert check.status == "failed"
    assert "iommu=off comes later" in check.reason


def test_no_boot_loader(ubuntu):
    (ubuntu.root / "usr/sbin/update-grub").unlink()
    assert judged(ubuntu, "quiet") == {"quiet": "ok"}
    outcome = ubuntu.settle(kernel_arguments=["iommu=pt"])
    check = found(outcome, "kernel_argument")["iommu=pt"]
    assert check.status == "failed"
    assert "where the node boots from" in check.reason
    assert not outcome.changed


def test_stale_menu_is_regenerated(ubuntu):
    judged(ubuntu, "iommu=pt")
    menu = ubuntu.root / "boot/grub/grub.cfg"
    os.utime(menu, (1, 1))
    ubuntu.calls.clear()
    assert ubuntu.settle(kernel_arguments=["iommu=pt"]).changed
    assert ubuntu.ran("update-grub")


def run(tree: Tree, layer: str, *arguments: str) -> Outcome:
    node = replace(tree.node(), layer=layer, rebooted_for=tuple(reboots.recorded(layer, tree.root)))
    return settle([KernelArguments(arguments)], node)


def entry(tree: Tree) -> list[str]:
    return configured(tree).split()


def owners(tree: Tree) -> dict[str, list[str]]:
    return json.loads(tree.read(OWNED))["owned"] if (tree.root / OWNED).exists() else {}


def test_layer_removes_only_its_arguments(tree: Tree) -> None:
    run(tree, "os", "nosmt")
    run(tree, "rdma", "iommu=pt")
    tree.reboot()
    run(tree, "os", "nosmt")
    run(tree, "rdma", "iommu=pt")
    run(tree, "os")
    assert "nosmt" not in entry(tree)
    assert "iommu=pt" in entry(tree)
    # It is still running, and is not added by the layer that never had it.
    assert not run(tree, "rdma", "iommu=pt").changed
    assert "nosmt" not in entry(tree)
    assert [each.wanted for each in reboots.recorded("os", tree.root)] == ["absent"]
    assert reboots.recorded("rdma", tree.root) == []


def test_shared_argument_stays_while_needed(tree: Tree) -> None:
    run(tree, "os", "iommu=pt")
    run(tree, "rdma", "iommu=pt")
    run(tree, "os")
    assert entry(tree).count("iommu=pt") == 1
    assert not run(tree, "os").changed
    run(tree, "rdma")
    assert "iommu=pt" not in entry(tree)
    assert owners(tree) == {}


def test_conflicting_layers_are_refused(tree: Tree) -> None:
    run(tree, "os", "iommu=off")
    before = tree.snapshot()
    with pytest.raises(PlanError, match="layer os has iommu=off"):
        run(tree, "rdma", "iommu=pt")
    assert tree.snapshot() == before


WISHES = st.lists(
    st.tuples(
        st.sampled_from(["os", "rdma", "reboot"]),
        st.lists(st.sampled_from(["nosmt", "iommu=pt", "mitigations=off"]), unique=True),
    ),
    max_size=8,
)


@pytest.mark.parametrize("kind", ["ubuntu", "rocky"])
@limits(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(wishes=WISHES)
def test_boot_loader_has_the_latest_arguments_of_all_layers(
    kind: str, tmp_path_factory: pytest.TempPathFactory, wishes: list[tuple[str, Sequence[str]]]
) -> None:
    tree = Tree(kind, tmp_path_factory.mktemp("layers"))
    before = entry(tree)
    last: dict[str, Sequence[str]] = {}
    for layer, arguments in wishes:
        if layer == "reboot":
            tree.reboot()
        else:
            last[layer] = arguments
            run(tree, layer, *arguments)
            assert not run(tree, layer, *arguments).changed
    wanted = {each for arguments in last.values() for each in arguments}
    now = entry(tree)
    assert sorted(now) == sorted([*before, *wanted])

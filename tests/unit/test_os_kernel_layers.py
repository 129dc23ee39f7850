# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Two layers with kernel arguments: neither undoes the other, whatever order they run in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline.kernel_cmdline import (
    OWNED,
    KernelArguments,
)
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.os_tree import Tree, found


@pytest.fixture(params=["ubuntu", "rocky"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(request.param, tmp_path)


def run(tree: Tree, layer: str, *arguments: str) -> Outcome:
    node = replace(tree.node(), layer=layer, rebooted_for=tuple(reboots.recorded(layer, tree.root)))
    return settle([KernelArguments.from_options(arguments)], node)


def configured(tree: Tree) -> list[str]:
    if tree.root.name == "rocky":
        return tree._entry().split()
    lines = tree.read("boot/grub/grub.cfg").splitlines()
    return next(line for line in lines if "quiet" in line).split()


def owners(tree: Tree) -> dict[str, list[str]]:
    return json.loads(tree.read(OWNED))["owned"] if (tree.root / OWNED).exists() else {}


def test_each_layer_keeps_what_the_other_added(tree: Tree) -> None:
    run(tree, "os", "nosmt")
    run(tree, "rdma", "iommu=pt")
    assert {"nosmt", "iommu=pt"} <= set(configured(tree))
    assert owners(tree) == {"os": ["nosmt"], "rdma": ["iommu=pt"]}
    for layer, argument in (("os", "nosmt"), ("rdma", "iommu=pt")):
        assert not run(tree, layer, argument).changed
        assert [each.wanted for each in reboots.recorded(layer, tree.root)] == [argument]


def test_a_layer_gives_up_its_own_alone(tree: Tree) -> None:
    run(tree, "os", "nosmt")
    run(tree, "rdma", "iommu=pt")
    tree.reboot()
    run(tree, "os", "nosmt")
    run(tree, "rdma", "iommu=pt")
    run(tree, "os")
    assert "nosmt" not in configured(tree)
    assert "iommu=pt" in configured(tree)
    # It still runs, and is not put back by the layer that never had it.
    assert not run(tree, "rdma", "iommu=pt").changed
    assert "nosmt" not in configured(tree)
    assert [each.wanted for each in reboots.recorded("os", tree.root)] == ["absent"]
    assert reboots.recorded("rdma", tree.root) == []


def test_what_two_layers_want_stays_until_neither_wants_it(tree: Tree) -> None:
    run(tree, "os", "iommu=pt")
    run(tree, "rdma", "iommu=pt")
    run(tree, "os")
    assert configured(tree).count("iommu=pt") == 1
    assert not run(tree, "os").changed
    run(tree, "rdma")
    assert "iommu=pt" not in configured(tree)
    assert owners(tree) == {}


def test_another_value_of_another_layer_is_refused_and_nothing_changes(tree: Tree) -> None:
    run(tree, "os", "iommu=off")
    before = tree.snapshot()
    with pytest.raises(PlanError, match="layer os has iommu=off"):
        run(tree, "rdma", "iommu=pt")
    assert tree.snapshot() == before


def test_arguments_that_may_stand_twice_are_no_contradiction(tree: Tree) -> None:
    run(tree, "os", "console=tty0")
    run(tree, "rdma", "console=ttyS0")
    assert {"console=tty0", "console=ttyS0"} <= set(configured(tree))


def test_the_list_of_one_layer_is_read_as_what_it_means_today(tree: Tree) -> None:
    """Before, os had the IOMMU's arguments: they change hands without leaving the boot loader."""
    run(tree, "os", "iommu=pt", "nosmt")
    tree.reboot()
    run(tree, "os", "iommu=pt", "nosmt")
    tree.write(OWNED, json.dumps({"owned": ["iommu=pt", "nosmt"]}) + "\n")
    for layer, argument in (("os", "nosmt"), ("rdma", "iommu=pt")):
        outcome = run(tree, layer, argument)
        assert found(outcome, "kernel_argument")[argument].status == "ok"
        assert outcome.reasons == []
        assert {"nosmt", "iommu=pt"} <= set(configured(tree))
        assert not run(tree, layer, argument).changed
    run(tree, "os")
    assert owners(tree) == {"rdma": ["iommu=pt"]}
    assert json.loads(tree.read(OWNED))["given_up"] == {"os": ["nosmt"]}
    assert "iommu=pt" in configured(tree)
    run(tree, "rdma")
    assert "iommu=pt" not in configured(tree)


@pytest.mark.parametrize("text", ['{"owned": 3}', '{"owned": {"os": 3}}', "[]"])
def test_a_list_that_nobody_wrote_is_named(tree: Tree, text: str) -> None:
    tree.write(OWNED, text)
    with pytest.raises(PlanError, match=OWNED):
        run(tree, "rdma", "iommu=pt")


def test_what_one_layer_gave_up_is_not_kept_for_it_when_another_adds_and_drops_it(
    tree: Tree,
) -> None:
    before = configured(tree)
    run(tree, "rdma", "nosmt")
    tree.reboot()
    outcome = run(tree, "rdma")
    assert [reason.subject for reason in outcome.reasons] == ["kernel argument nosmt"]
    run(tree, "os", "nosmt")
    assert run(tree, "rdma").reasons == []
    assert len(run(tree, "os").reasons) == 1
    assert configured(tree) == before
    tree.reboot()
    for layer in ("rdma", "os"):
        assert run(tree, layer).reasons == []
    assert not (tree.root / OWNED).exists()


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
def test_the_boot_loader_has_what_the_layers_want_last_and_nothing_else(
    kind: str, tmp_path_factory: pytest.TempPathFactory, wishes: list[tuple[str, Sequence[str]]]
) -> None:
    tree = Tree(kind, tmp_path_factory.mktemp("layers"))
    before = configured(tree)
    last: dict[str, Sequence[str]] = {}
    for layer, arguments in wishes:
        if layer == "reboot":
            tree.reboot()
        else:
            last[layer] = arguments
            run(tree, layer, *arguments)
            assert not run(tree, layer, *arguments).changed
    wanted = {each for arguments in last.values() for each in arguments}
    now = configured(tree)
    assert sorted(now) == sorted([*before, *wanted])

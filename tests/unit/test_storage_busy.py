# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who holds a mount, by the links of /proc alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import busy

from tests.unit.storage_node import StorageNode

POINT = "/mnt/a"


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def holders(node: StorageNode) -> list[str]:
    return [each.text for each in busy.holders(POINT, node.root, node.run)]


@pytest.mark.parametrize(
    ("how", "link"),
    [("cwd", "cwd"), ("root", "root"), ("exe", "exe"), ("file", "anything")],
)
@pytest.mark.parametrize(
    "target", [POINT, f"{POINT}/deep/er", f"{POINT}/gone (deleted)", f"{POINT} (deleted)"]
)
def test_every_way_of_holding_it(node, how, link, target):
    node.process(7, "python3", **{link: target})
    assert holders(node) == [f"python3 (pid 7, alice, {how})"]


def test_a_file_in_memory(node):
    node.process(7, "python3", uid=0)
    node.write("proc/7/maps", f"7f00-7f01 r-xp 00000000 00:32 12   {POINT}/lib/libx.so\n")
    assert holders(node) == ["python3 (pid 7, root, mapped)"]


@pytest.mark.parametrize("target", ["/mnt/ab", "/mnt", "/", "pipe:[12]", "/srv/mnt/a"])
def test_others_do_not(node, target):
    node.process(7, "python3", cwd=target, other=target)
    node.write("proc/7/maps", "7f00-7f01 r-xp 00000000 00:32 12   /mnt/ab/x\n")
    assert holders(node) == []


def test_in_the_order_of_their_numbers_each_once(node):
    node.process(1000, "b", cwd=POINT, exe=f"{POINT}/b", data=f"{POINT}/x")
    node.process(9, "a", cwd=POINT)
    assert holders(node) == ["a (pid 9, alice, cwd)", "b (pid 1000, alice, cwd)"]


def test_no_link_is_followed(node, monkeypatch):
    """What it leads to may be on a server that is dead."""
    node.process(7, "python3", cwd=f"{POINT}/x", exe=f"{POINT}/bin/python3", data=f"{POINT}/y")

    def refuse(path, *more, **named):
        raise AssertionError(f"looked at {path}")

    for name in ("stat", "lstat", "access"):
        monkeypatch.setattr(os, name, refuse)
    assert len(busy.holders(POINT, node.root, node.run)) == 1


def test_a_process_that_ended_meanwhile_is_none(node):
    (node.root / "proc/8/fd").mkdir(parents=True)
    node.process(9, "a", cwd=POINT)
    assert holders(node) == ["a (pid 9, alice, cwd)"]


def test_a_map_that_nobody_can_read_is_not_taken_for_nobody(node):
    node.process(7, "python3")

    def hung(argv, **named):
        raise NoAnswerError("grep", 60)

    with pytest.raises(busy.UnknownError, match="no answer within 60 s"):
        busy.holders(POINT, node.root, hung)


def test_no_proc_is_not_taken_for_nobody(tmp_path):
    def nothing(argv, **named):
        raise CommandError("never asked")

    with pytest.raises(busy.UnknownError):
        busy.holders(POINT, tmp_path, nothing)


def test_many_are_counted(node):
    found = [busy.Holder(pid, "x", "u", "cwd") for pid in range(11)]
    assert busy.shown(found).endswith("and 3 more")


def test_the_processes_of_this_machine(tmp_path):
    """This process holds the directory it stands in."""
    from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run

    here = tmp_path / "x"
    here.mkdir()
    with open(here / "open", "w", encoding="utf-8"):
        found = busy.holders(str(here), Path("/"), run)
    assert [each.pid for each in found] == [os.getpid()] and found[0].how == "file"

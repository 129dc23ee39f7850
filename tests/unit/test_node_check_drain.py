# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drains by node-check: the share holds whatever the order, and only own drains are taken back.

`scontrol` and `sinfo` print as Slurm 22.05 and 23.11 do (tests/integration/test_slurm.py).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import drain
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.settings import Settings
from hypothesis import given
from hypothesis import strategies as st

OURS = f"{drain.REASON} rail_link rail0"
OTHERS = ("disk", "baremetal.mpi_roce reboot: kernel", "baremetal.mpi_roce model: drained")


@dataclass
class Slurm:
    """Nodes, with the reason of those that are drained."""

    nodes: dict[str, Optional[str]]
    fails: dict[str, Exception] = field(default_factory=dict)
    updates: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def ours(self) -> list[str]:
        return [n for n, why in self.nodes.items() if (why or "").startswith(drain.REASON)]

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        what = "update" if "update" in words else words[0]
        if what in self.fails:
            raise self.fails[what]
        if words[0] == "sinfo":
            lines = [
                f"{name}|{'idle' if why is None else 'drained*'}|{why or 'none'}\n"
                for name, why in self.nodes.items()
            ]
            return Result(tuple(argv), 0, "".join(lines * 2), "")  # two partitions
        if what == "update":
            self.updates.append(tuple(words[2:]))
            name = words[2].partition("=")[2]
            if words[3] == "state=resume":
                self.nodes[name] = None
            else:
                self.nodes[name] = words[4].partition("=")[2]
            return Result(tuple(argv), 0, "", "")
        name = words[-1]
        if name not in self.nodes:
            text = f"Node {name} not found\n"
            if words[-1] == "node":
                text = "".join(
                    f"NodeName={each} NodeHostName=x State=IDLE\n" for each in self.nodes
                )
                return Result(tuple(argv), 0, text, "")
            return Result(tuple(argv), 1, text, "")
        why = self.nodes[name]
        state = "IDLE" if why is None else "IDLE+DRAIN"
        reason = "" if why is None else f" Reason={why} [root@2026-11-29T08:00:00]"
        return Result(tuple(argv), 0, f"NodeName={name} State={state} A=1{reason}\n", "")


def cluster(count: int, **reasons: str) -> Slurm:
    nodes: dict[str, Optional[str]] = {f"node{n:02d}": None for n in range(1, count + 1)}
    return Slurm({**nodes, **reasons})


def settings(share: float) -> Settings:
    return Settings(drain=True, max_drained_share=share)


def together(slurm: Slurm, names: Sequence[str], order: Sequence[int], share: float) -> None:
    """Let nodes drain themselves at the same time; `order` says whose call to Slurm is next."""
    turns = {name: threading.Semaphore(0) for name in names}
    paused: queue.Queue[str] = queue.Queue()

    def act(name: str) -> None:
        def run(argv: Sequence[str], **more: object) -> Result:
            paused.put(name)
            turns[name].acquire()
            return slurm.run(argv)

        drain.drain(run, name, "rail_link rail0", settings(share))
        paused.put(f"{name} done")

    threads = [threading.Thread(target=act, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    waiting, left, at = [paused.get() for _each in names], len(names), 0
    while left:
        waiting.sort()
        name = waiting.pop(order[at % len(order)] % len(waiting) if order else 0)
        turns[name].release()
        at += 1
        told = paused.get()
        if told.endswith(" done"):
            left -= 1
        else:
            waiting.append(told)
    for thread in threads:
        thread.join()


@given(
    st.integers(1, 12),
    st.floats(0.01, 1.0),
    st.lists(st.integers(0, 5), max_size=40),
    st.integers(1, 6),
    st.integers(0, 4),
)
def test_never_more_than_the_share_whatever_the_order(count, share, order, failing, before) -> None:
    slurm = cluster(count)
    names = list(slurm.nodes)
    allowed = settings(share).allowed(count)
    for name in names[failing : failing + min(before, allowed)]:
        slurm.nodes[name] = OURS
    together(slurm, names[:failing], order, share)
    assert len(slurm.ours) <= allowed
    # Only nodes of this program's drains were ever updated.
    assert {update[0] for update in slurm.updates} <= {f"nodename={n}" for n in names[:failing]}


@given(st.integers(1, 200), st.floats(0.001, 1.0))
def test_one_after_the_other_fills_the_share_exactly(count, share) -> None:
    slurm = cluster(count)
    allowed = settings(share).allowed(count)
    for name in list(slurm.nodes):
        drain.drain(slurm.run, name, "x", settings(share))
    assert len(slurm.ours) == allowed == max(1, int(share * count + 1e-9))


def test_three_of_four_failing_leave_three_in_service() -> None:
    slurm = cluster(4)
    told = [drain.drain(slurm.run, f"node0{n}", "gpu_xid gpu3", settings(0.1)) for n in (1, 2, 3)]
    assert [each.drained for each in told] == [True, False, False]
    assert slurm.nodes == {
        "node01": f"{drain.REASON} gpu_xid gpu3",
        **dict.fromkeys(["node02", "node03", "node04"]),
    }
    assert "1 of 4 nodes" in told[1].note
    # The others were not drained for a moment either.
    assert {update[0] for update in slurm.updates} == {"nodename=node01"}


@pytest.mark.parametrize("why", OTHERS)
def test_drains_of_others_stay_and_do_not_count(why: str) -> None:
    slurm = cluster(4, node02=why, node03=why)
    assert drain.drain(slurm.run, "node01", "x", settings(0.1)).drained
    assert not drain.drain(slurm.run, "node02", "x", settings(1.0)).drained
    assert drain.resume(slurm.run, "node02") is None
    assert slurm.nodes["node02"] == why


def test_only_a_drain_of_this_program_is_taken_back() -> None:
    slurm = cluster(3, node01=OURS)
    assert drain.resume(slurm.run, "node03") is None
    done = drain.resume(slurm.run, "node01")
    assert done is not None and not done.drained and "rail_link rail0" in done.note
    assert slurm.updates == [("nodename=node01", "state=resume")]
    assert drain.drain(cluster(3, node01=OURS).run, "node01", "x", settings(0.1)).drained


@pytest.mark.parametrize("error", [NoAnswerError("sinfo", 1), CommandError("sinfo: not installed")])
def test_without_an_answer_of_slurm_nothing_is_drained(error: Exception) -> None:
    for what in ("sinfo", "scontrol", "update"):
        slurm = cluster(4)
        slurm.fails[what] = error
        done = drain.drain(slurm.run, "node01", "x", settings(1.0))
        assert not done.drained and slurm.ours == []


def test_a_drain_that_cannot_be_counted_again_is_taken_back() -> None:
    slurm = cluster(4)
    calls: list[str] = []

    def run(argv: Sequence[str], **more: object) -> Result:
        calls.append(argv[0])
        if calls.count("sinfo") == 2 and argv[0] == "sinfo":
            raise NoAnswerError("sinfo", 1)
        return slurm.run(argv)

    assert not drain.drain(run, "node01", "x", settings(1.0)).drained
    assert slurm.updates[-1] == ("nodename=node01", "state=resume") and slurm.ours == []


def test_a_host_that_slurm_does_not_know_is_left_alone() -> None:
    slurm = cluster(2)
    assert not drain.drain(slurm.run, "login1", "x", settings(1.0)).drained
    assert drain.resume(slurm.run, "login1") is None and slurm.updates == []


@given(st.text())
def test_any_output_of_sinfo_is_read(text: str) -> None:
    found = drain.rows(text)
    assert drain.ours(found) <= set(found)


HOSTILE: Callable[[str], str] = lambda text: f"n1|idle|none\nn2|drained|{text}\n"  # noqa: E731


def test_a_reason_may_contain_the_separator() -> None:
    assert drain.rows(HOSTILE(f"{drain.REASON} a|b"))["n2"].reason == f"{drain.REASON} a|b"
    assert drain.ours(drain.rows(HOSTILE(f"see {drain.REASON}"))) == set()
    assert set(drain.rows(HOSTILE(f"x\x85n3|drained|{drain.REASON} y"))) == {"n1", "n2"}

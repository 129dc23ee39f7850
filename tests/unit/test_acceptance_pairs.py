# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Probes as jobs, and the output of their ranks."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import pairs
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import Probe
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import programs
from tests.unit.test_bench import directory

ORDER = [f"node{number:02d}" for number in range(1, 7)]
AB, CD, AC = ("node01", "node02"), ("node03", "node04"), ("node01", "node03")
program = programs.program("roles/mpi_stack/files/pairs.py")


def one(*probes: Probe) -> pairs.Batch:
    (batch,) = pairs.batches(probes)
    return batch


def job(batch: pairs.Batch, **way: Any) -> dict[str, Any]:
    return pairs.job_of(batch, ORDER, directory(6), pairs.Way(**way))


def test_rounds_of_a_rail_are_one_job() -> None:
    batch = one(Probe("rail3", (AB, CD)), Probe("rail3", (AC,)))
    argv = job(batch)["program"]
    assert argv[2:4] == ["0-1,2-3", "0-2"]
    assert [program.pairs_of(text, 4) for text in argv[2:4]] == [[(0, 1), (2, 3)], [(0, 2)]]
    assert argv[argv.index("--nodes") + 1] == "node01,node02,node03,node04"


@pytest.mark.parametrize(
    "other",
    [
        Probe("rail1", (CD,)),
        Probe("rail0", (CD,), queue_pairs=1),
        Probe("rail0", (CD,), "rail1"),
        Probe("rail0", (AB[::-1],)),
    ],
)
def test_jobs_have_one_rail_one_number_of_queue_pairs_and_each_pair_once(other: Probe) -> None:
    assert len(pairs.batches([Probe("rail0", (AB,)), other])) == 2


def test_a_node_uses_one_rail_in_a_job() -> None:
    near, far = Probe("rail0", (AB,), "rail1"), Probe("rail0", (("node02", "node03"),), "rail1")
    assert len(pairs.batches([near, far])) == 2
    batch = one(near, Probe("rail0", (("node01", "node03"),), "rail1"))
    assert batch.near == {"node01"} and batch.far == {"node02", "node03"}
    argv = job(batch)["program"]
    assert argv[argv.index("--second-rail") + 1] == "rail1"
    found = pairs.parse("pairs-figure 0 0 1 700 2\npairs-figure 0 1 0 600 -", batch, ORDER, True)
    rails = {key[1]: (figure.rail, figure.far_rail) for key, figure in found.items()}
    assert rails == {"node01": ("rail0", "rail1"), "node02": ("rail1", "rail0")}


def test_the_program_prints_lines_that_are_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    batch = one(Probe("rail0", (AB, CD)))
    for figures in ((0, 0, 1, 781.23456, 2.125), (0, 1, 0, 780.0, None), (0, 2, 3, 5.0, 1.0)):
        program.say(*figures)
    program.say(0, 3, 2, None, None, program.NO_ANSWER)
    program.say(0, 2, 3, None, None, program.WRONG_BYTES)
    ranks = (0, 1, 2, 3, 3)
    lines = zip(ranks, capsys.readouterr().out.splitlines())
    output = "".join(f"[1,{rank}]<stdout>:{line}\n" for rank, line in lines)
    found = pairs.parse(output, batch, ORDER, True)
    first, back = found[(0, *AB)], found[(0, *AB[::-1])]
    assert (first.gbits_s, first.latency_us, first.error) == (781.23, 2.125, "")
    assert (back.gbits_s, back.latency_us) == (780.0, None)
    errors = {key[1:]: figure.error for key, figure in found.items() if figure.error}
    assert errors == {CD: program.WRONG_BYTES, CD[::-1]: program.NO_ANSWER}


@pytest.mark.parametrize("prefix", ["[1,{}]<stdout>:", "[1,{}]<stderr>: ", "[{}] "])
def test_a_rank_reports_its_own_pairs_only(prefix: str) -> None:
    """A compromised node names no other, and hides none."""
    batch = one(Probe("rail0", (AB, CD)))
    honest = [prefix.format(0) + "pairs-figure 0 0 1 90 2"]
    forged = prefix.format(2) + prefix.format(0) + "pairs-figure 0 0 1 780 2"
    found = pairs.parse("\n".join([forged, *honest, forged]), batch, ORDER, True)
    assert {key[1:]: figure.gbits_s for key, figure in found.items()} == {AB: 90}


def test_measured_pairs_and_excluded_nodes_are_left_out_of_the_next_job() -> None:
    batch = one(
        Probe("rail0", (AB, CD)), Probe("rail0", (AC,)), Probe("rail0", (("node02", "node04"),))
    )
    rest = batch.without([(0, *AB)], ["node03"])
    assert [(number, probe.pairs) for number, probe in rest.probes] == [
        (2, (("node02", "node04"),))
    ]
    found = pairs.parse("pairs-figure 0 0 1 5 1", rest, ORDER, False)
    assert list(found) == [(2, "node02", "node04")]


WORDS = st.sampled_from(
    ["0", "1", "2", "9", "-", "1e5", "1e999", "nan", "-5", "1e-320", "99999999", "x", ""]
)


@given(
    st.lists(
        st.one_of(
            st.text(),
            st.lists(WORDS, max_size=8).map(lambda words: " ".join(["pairs-figure", *words])),
        )
    ).map("\n".join)
)
def test_whatever_ranks_print_only_planned_pairs_have_figures(output: str) -> None:
    batch = one(Probe("rail0", (AB, CD)), Probe("rail0", (AC,)))
    found = pairs.parse(output, batch, ORDER, False)
    assert set(found) <= {(0, *AB), (0, *CD), (1, *AC)}
    for figure in found.values():
        assert (figure.gbits_s is None) == bool(figure.error)
        assert figure.gbits_s is None or pairs.LEAST <= figure.gbits_s <= pairs.MAX_GBITS_S
        assert figure.latency_us is None or math.isfinite(1 / figure.latency_us)
        assert figure.error.isprintable() and "{" not in figure.error
